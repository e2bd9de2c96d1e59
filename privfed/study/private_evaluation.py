"""A model's worth by what owners release of its errors on held-out records: a share of the budget.

The share is taken from the learner's, in the accountant's own currency, so that the study costs no more.
Intervals follow from the noise alone: of 1,000 draws of it, each subtracted from what was released, the
middle 95 % of the figures.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np

from privfed.errors import NobodyAnswered, QueryError, StudyError
from privfed.exchange.disclosure import Answer, Disclosure
from privfed.learners.base import FederatedLearner, Planned
from privfed.learners.evaluation import (
    LEAST,
    ClassScores,
    RegressionErrors,
    middle_and_half,
    question_about,
)
from privfed.privacy.laws import DiscreteLaplace
from privfed.privacy.policy import Guard, Policy
from privfed.privacy.policy_objects import accountant_of
from privfed.study.metrics import SCORES
from privfed.tables.schema import Schema

SHARE = Fraction(
    1, 10
)  #: Share of a deployment's budget that is kept for it, unless the study says otherwise
DRAWS = 1000  #: Of the noise, for an interval
#: By accountant: the mechanism whose spends are its currency.
MECHANISMS = {"zcdp": "gaussian", "pure": "laplace"}
NOTE = "released by the owners on their held-out records; intervals of 95 % are of the noise alone"
TOO_FEW = (
    "performance not measured: too few held-out records for the noise of its share of the budget"
)
OWN_MODELS = (
    "performance not measured: each owner measures her own model, which no noise covers "
    "(privfed predict --client --shelf)"
)
ACCURACY, AREA, RMSE = "accuracy", "area under the curve", "root mean squared error"
LEVEL = 0.95  #: Of an interval
KINDS = {ClassScores.kind, RegressionErrors.kind}
Figures = dict[str, float]
Sums = Mapping[str, np.ndarray]  #: Totals over owners, by part


def with_evaluation(
    propose: Callable[[Fraction], Policy],
    epsilon: Fraction,
    share: Fraction | None,
    model: FederatedLearner,
    schema: Schema,
) -> Policy:
    """Return a learner's policy of some epsilon, a share of which is kept for questions of its errors.

    ``share`` None keeps :data:`SHARE` where such questions can be asked.

    Raises:
        StudyError: a share is asked for, and they cannot be.
    """
    whole, query = propose(epsilon), question_of(model, schema)
    budget, mechanism = whole.budget, MECHANISMS.get(accountant_of(whole).name)
    if share == 0 or budget is None or mechanism is None or query is None:
        if share:
            raise StudyError(
                f"policy {whole.name!r}: evaluation asks owners about one model for all, which "
                f"{type(model).__name__} does not give, or under another accountant than zcdp or pure; leave it out"
            )
        return whole
    share, accountant = SHARE if share is None else share, accountant_of(whole)
    kept = tuple(share * part for part in accountant.ceiling(budget))
    proposed = propose(accountant.left(kept, budget))
    guard = Guard(mechanism, spend=kept[0], times=1)
    return replace(proposed, budget=budget, guards={**proposed.guards, query.kind: (guard,)})


def question_of(model: FederatedLearner, schema: Schema) -> Any:
    """The question by which a learner's models are priced, before there is one; None if there is none."""
    made = question_about(model)
    query = None if made is None else made(b"")
    try:
        return None if query is None or not query.parts(schema) else query
    except QueryError:  # no target that it predicts
        return None


def asks_evaluation(policy: Policy) -> bool:
    """Whether a policy answers a question of a model's errors."""
    return not KINDS.isdisjoint(policy.guards)


def whole_plan(model: FederatedLearner, schema: Schema, policy: Policy) -> Sequence[Planned]:
    """A learner's longest schedule, and the question of its errors where the policy answers that."""
    plan, query = model.plan(schema, policy), question_of(model, schema)
    asked = query is not None and query.kind in policy.guards
    return [*plan, Planned(query, 1)] if asked else plan


def evaluated(model: FederatedLearner, federation: Disclosure) -> dict[str, Any]:
    """Ask all owners for a fitted model's errors, and say what follows.

    Returns:
        as :func:`.measure`, of noisy figures, and ``intervals`` by name; or ``told``, why there is none.
    """
    kind = question_about(model)
    if kind is None:
        return {"told": OWN_MODELS, "value": None}
    try:
        (answer,) = federation.ask(kind.about(model))
    except NobodyAnswered as silence:
        return {"told": f"performance not measured: {silence}", "value": None}
    totals, draws = _heard(answer)
    target = federation.schema.target
    assert target is not None
    if kind is ClassScores:
        return _told(_of_classes, totals, draws)
    return _told(partial(_of_numbers, half=middle_and_half(target)[1]), totals, draws)


def _heard(answer: Answer) -> tuple[Sums, list[Sums]]:
    """The totals by part, and as many with fresh noise of the same laws subtracted."""
    rng, releases = np.random.default_rng(0), answer.releases.values()
    totals = {name: answer.total(name) for name in sorted({n for r in releases for n in r.parts})}
    draws = {name: np.repeat(own[None], DRAWS, axis=0) for name, own in totals.items()}
    for name, part in (pair for release in releases for pair in release.parts.items()):
        if part.noise is None:
            continue
        scale, shape = part.noise.std * float(part.grid), draws[name].shape
        laplace = isinstance(part.noise, DiscreteLaplace)
        drawn = (
            rng.laplace(0, scale / np.sqrt(2), shape) if laplace else rng.normal(0, scale, shape)
        )
        draws[name] -= drawn
    return totals, [{name: own[k] for name, own in draws.items()} for k in range(DRAWS)]


def _told(
    figures: Callable[[Sums], tuple[Figures, Figures]], totals: Sums, draws: Sequence[Sums]
) -> dict[str, Any]:
    """Figures as metrics, the first of them the headline; those that the noise may undo are left out."""
    (found, constants), drawn = figures(totals), [figures(each)[0] for each in draws]
    intervals = {}
    for name, value in found.items():
        ends = np.array([each[name] for each in drawn])
        if np.isnan(value) or np.isnan(ends).mean() > (1 - LEVEL) / 2:
            continue
        low, high = np.nanquantile(ends, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
        intervals[name] = [float(min(low, value)), float(max(high, value))]
    first = next(iter(found))
    if first not in intervals:
        return {"told": TOO_FEW, "value": None}
    others = {name: found[name] for name in intervals if name != first}
    return {
        "measure": first,
        "better": "higher" if first == ACCURACY else "lower",
        "value": found[first],
        "baseline": constants[first],
        "scores": others,
        "constants": {name: constants[name] for name in others if name in constants},
        "score_better": {name: SCORES[name] for name in others},
        "intervals": intervals,
        "held_out": round(float(totals["sums"][0])),
        "released": NOTE,
    }


def _of_numbers(heard: Sums, half: float) -> tuple[Figures, Figures]:
    """A regressor's figures and the constant's: the held-out records' own mean."""
    count, absolute, squared, t, t_squared = map(float, heard["sums"])
    if count <= 1:
        nothing = dict.fromkeys((RMSE, "mean absolute error", "R squared"), np.nan)
        return nothing, nothing
    spread = max(t_squared / count - (t / count) ** 2, 0.0)
    error = max(squared / count, 0.0)
    found = {
        RMSE: half * error**0.5,
        "mean absolute error": half * max(absolute / count, 0.0),
        "R squared": 1 - error / spread if spread > 0 else np.nan,
    }
    return found, {RMSE: half * spread**0.5, "R squared": 0.0}


def _of_classes(heard: Sums) -> tuple[Figures, Figures]:
    """A classifier's figures and the constant's: the held-out records' own frequencies of classes.

    The area under the curve is of the binned probabilities (one against the rest, the mean over classes):
    the part of pairs of a record of the class and one that is not, in which the first's bin is higher; a
    half where it is the same.
    """
    count, missed, loss = map(float, heard["sums"])
    names = (ACCURACY, AREA, "log loss")
    if count <= 1:
        nothing = dict.fromkeys(names, np.nan)
        return nothing, nothing
    area, shares = np.nan, np.array([])
    if "scores" in heard:
        others, own = heard["scores"][:, 0], heard["scores"][:, 1]
        pairs = own.sum(axis=1) * others.sum(axis=1)
        below = np.cumsum(others, axis=1) - others / 2
        if (own.sum(axis=1) > 0).all() and (others.sum(axis=1) > 0).all():
            area = float(np.clip(((own * below).sum(axis=1) / pairs).mean(), 0, 1))
        shares = np.clip(own.sum(axis=1) / count, 1e-9, 1)
        shares = np.array([1 - shares[0], shares[0]]).clip(1e-9, 1) if len(shares) == 1 else shares
    found = {
        ACCURACY: float(np.clip(1 - missed / count, 0, 1)),
        AREA: area,
        "log loss": max(loss / count, 0.0) * -np.log(LEAST),
    }
    known = bool(len(shares))
    return found, {
        ACCURACY: float(shares.max()) if known else np.nan,
        AREA: 0.5,
        "log loss": float(-(shares * np.log(shares)).sum()) if known else np.nan,
    }
