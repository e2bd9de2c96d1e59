"""Whether a model of another package's learner follows from the releases: a learner in one process may read more."""

import json
import math
from collections.abc import Sequence
from typing import Any

from sklearn.base import clone

from privfed.attacks.finding import Finding
from privfed.exchange.disclosure import ReplayDisclosure
from privfed.exchange.transcript import Transcript
from privfed.learners.base import FederatedLearner
from privfed.learners.plain import DIGEST
from privfed.learners.saved import written
from privfed.tables.schema import Schema

NAME = "audit of the learner's replay"
#: Rounding differences between threads, libraries and processors: relative, and absolute near zero
RELATIVE, ABSOLUTE = 1e-6, 1e-9


def audit_replay(
    learner: FederatedLearner,
    model: FederatedLearner,
    transcript: Transcript,
    clients: Sequence[str],
) -> Finding:
    """Train again on the recorded answers alone, twice, and compare with the fitted model.

    A model that they do not reproduce contains something else, which no guarantee covers. One that they reproduce
    proves little: a learner may read other sources again.

    Args:
        learner: unfitted, with the same parameters.
        model: fitted.
        transcript: the releases.
        clients: the federation's clients, in the same order.
    """
    partial, models = "", [None]
    try:
        models = [_replay(learner, transcript, model.schema_, clients) for _ in range(2)]
    except Exception as error:  # noqa: BLE001  # a plugin's own: it ends no study
        partial = f"it failed with {type(error).__name__} on the recorded answers"
    if not alike(models[0], models[-1]):
        partial = "its own random choices differ from one training to the next"
    other = not partial and not alike(models[0], _as_data(model))
    return Finding(
        NAME,
        "Do the recorded answers alone give the same model?",
        "models that the recorded answers do not give",
        int(other),
        of=1,
        baseline=0.0,
        severity="breach" if other else "none",
        simulation=False,
        partial=partial,
    )


def alike(a: Any, b: Any) -> bool:
    """Whether two models are equal as JSON data, numbers up to rounding errors."""
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(alike(a[key], b[key]) for key in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(alike, a, b))
    if isinstance(a, float) and isinstance(b, int | float):
        return math.isclose(a, b, rel_tol=RELATIVE, abs_tol=ABSOLUTE)
    if isinstance(a, int) and isinstance(b, float):
        return alike(b, a)
    return bool(a == b)


def _as_data(model: FederatedLearner) -> Any:
    data = json.loads(written(model))
    del data[DIGEST]  # numbers may differ by rounding errors
    return data


def _replay(
    learner: FederatedLearner, transcript: Transcript, schema: Schema, clients: Sequence[str]
) -> Any:
    fresh: FederatedLearner = clone(learner)
    return _as_data(fresh.fit(ReplayDisclosure(schema, transcript, clients)))
