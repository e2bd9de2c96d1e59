"""Whether a model of another package's learner follows from what left: a learner in one process may read more."""

import json
import math
from collections.abc import Sequence
from typing import Any

from sklearn.base import clone

from privfed.attacks.finding import Finding
from privfed.exchange.disclosure import ReplayDisclosure
from privfed.exchange.transcript import Transcript
from privfed.learners.base import FederatedLearner
from privfed.learners.saved import written
from privfed.tables.schema import Schema

NAME = "audit of the learner's replay"
#: Differences of numbers that other threads, libraries and processors make: relative, and absolute near zero
RELATIVE, ABSOLUTE = 1e-6, 1e-9


def audit_replay(
    learner: FederatedLearner,
    model: FederatedLearner,
    transcript: Transcript,
    clients: Sequence[str],
) -> Finding:
    """Train again on the recorded answers alone, twice, and compare with the model that was made.

    A model that they do not give has something else in it, which no guarantee covers. One that they give
    proves little: what a learner reads elsewhere it may read again.

    Args:
        learner: unfitted, as it was.
        model: fitted.
        transcript: what left.
        clients: who could be asked, in the same order.
    """
    partial, again = "", [None]
    try:
        again = [_replayed(learner, transcript, model.schema_, clients) for _ in range(2)]
    except Exception as error:  # noqa: BLE001  # a plugin's own: it ends no study
        partial = f"it failed with {type(error).__name__} on the recorded answers"
    if not alike(again[0], again[-1]):
        partial = "its own random choices differ from one training to the next"
    other = not partial and not alike(again[0], _plain(model))
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


def alike(one: Any, other: Any) -> bool:
    """Whether two models are the same as plain data, numbers up to rounding errors."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(alike(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(alike, one, other))
    if isinstance(one, float) and isinstance(other, int | float):
        return math.isclose(one, other, rel_tol=RELATIVE, abs_tol=ABSOLUTE)
    if isinstance(one, int) and isinstance(other, float):
        return alike(other, one)
    return bool(one == other)


def _plain(model: FederatedLearner) -> Any:
    return json.loads(written(model))


def _replayed(
    learner: FederatedLearner, transcript: Transcript, schema: Schema, clients: Sequence[str]
) -> Any:
    fresh: FederatedLearner = clone(learner)
    return _plain(fresh.fit(ReplayDisclosure(schema, transcript, clients)))
