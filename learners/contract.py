"""Checks of what a learner's methods give back, which every learner of another package must keep."""

from typing import Any

import numpy as np

from privfed.errors import PluginError


def check_fitted(learner: Any, fitted: Any) -> None:
    """Check that ``fit`` began with ``_start`` and returned the learner (else PluginError)."""
    name = type(learner).__name__
    if fitted is not learner:
        raise PluginError(
            f"{name}: fit returns a {type(fitted).__name__}, not the learner; end it with return self"
        )
    if "schema_" not in vars(learner):
        raise PluginError(f"{name}: fit does not begin with self._start(federation)")


def most_probable(learner: Any, probabilities: Any) -> np.ndarray:
    """Return the most probable class of each row; ties: the first (PluginError: not (rows, classes) probabilities)."""
    given, classes = np.asarray(probabilities), learner.classes_
    if given.shape[1:] != classes.shape:
        raise PluginError(
            f"{type(learner).__name__}: predict_proba gives an array of shape {given.shape}, not of (rows, "
            f"{len(classes)} classes)"
        )
    return np.asarray(classes[given.argmax(axis=1)])
