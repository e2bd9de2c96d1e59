"""Private evaluation of a model by its errors on the owners' held-out records, for a share of the budget.

The share is taken from the learner's, in the accountant's currency, so that the study's total is the same.
Intervals cover the noise only: the central 95 % of the metrics over 1,000 draws of the noise, each
subtracted from the releases.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np

from privfed.errors import NobodyAnswered, QueryError, StudyError, UnsupportedLoss
from privfed.exchange.disclosure import Answer, Disclosure
from privfed.learners.base import FederatedLearner, Planned
from privfed.learners.evaluation import (
    BIN_WEIGHT,
    BINS,
    EDGES,
    LEAST,
    ClassScores,
    RegressionErrors,
    middle_and_half,
    question_about,
)
from privfed.privacy.policy import Guard, Policy
from privfed.privacy.policy_objects import accountant_of
from privfed.questions.exact import shown
from privfed.study.metrics import SCORES
from privfed.tables.schema import Column, Schema

#: Default share of a deployment's budget for the evaluation
SHARE = Fraction(1, 10)
DRAWS = 1000  #: Number of noise draws for an interval
#: By accountant: the mechanism whose spends are in its currency.
MECHANISMS = {"zcdp": "gaussian", "pure": "laplace"}
NOTE = "released by the owners on their held-out records; 95 % intervals cover the noise alone"
TOO_FEW = "performance not measured: the held-out records are too few for the noise of its share of the budget"
OWN_MODELS = (
    "performance not measured: each owner measures her own model, which no noise covers "
    "(privfed predict --client --shelf)"
)
ACCURACY, AREA, RMSE = "accuracy", "area under the curve", "root mean squared error"
LEVEL = 0.95  #: Confidence level of intervals
KINDS = {ClassScores.kind, RegressionErrors.kind}
CERTAIN = 1e-6  #: Distance from a perfect score below which a constant baseline is degenerate
LEAST_SHARE = 1e-9  #: Minimum frequency of a class in the constant's log loss
#: Metrics by name, shape (1 + draws,): as released, then for each draw
Figures = dict[str, np.ndarray]
#: Totals over owners by part, shape (1 + draws, ...): as released, then for each draw
Sums = Mapping[str, np.ndarray]
#: A bin of predictions: the class, lower and upper end, and the outcome's mean
Bin = tuple[str, float, float, np.ndarray]


def with_evaluation(
    propose: Callable[[Fraction], Policy],
    epsilon: Fraction,
    share: Fraction | None,
    model: FederatedLearner,
    schema: Schema,
) -> Policy:
    """Return a learner's policy at an epsilon of which a share is spent on the evaluation.

    ``share`` None is :data:`SHARE` if the model can be evaluated, else 0.

    Raises:
        StudyError: a share is given, and the model cannot be evaluated; or epsilon is too small.
    """
    policy, query = propose(epsilon), question_of(model, schema)
    budget, mechanism = policy.budget, MECHANISMS.get(accountant_of(policy).name)
    if share == 0 or budget is None or mechanism is None or query is None:
        if share:
            raise StudyError(
                f"policy {policy.name!r}: evaluation asks owners about one model for all, which "
                f"{type(model).__name__} does not give, or under another accountant than zcdp or pure; leave it out"
            )
        return policy
    share, accountant = SHARE if share is None else share, accountant_of(policy)
    reserved = tuple(share * part for part in accountant.ceiling(budget))
    remaining = accountant.left(reserved, budget)
    if remaining == 0:
        raise StudyError(
            f"policy {policy.name!r}: epsilon {shown(epsilon)} is too small to keep a share of it for queries of the "
            'model\'s errors; write a larger one, or evaluation = "0"'
        )
    proposed = propose(remaining)
    guard = Guard(mechanism, spend=reserved[0], times=1)
    return replace(proposed, budget=budget, guards={**proposed.guards, query.kind: (guard,)})


def question_of(model: FederatedLearner, schema: Schema) -> Any:
    """Return the evaluation's query for pricing, without a model; None if the learner has none."""
    kind = question_about(model)
    query = None if kind is None else kind(b"")
    try:
        return None if query is None or not query.parts(schema) else query
    except QueryError:  # no target that it predicts
        return None


def asks_evaluation(policy: Policy) -> bool:
    """Whether a policy allows an evaluation's query."""
    return not KINDS.isdisjoint(policy.guards)


def whole_plan(model: FederatedLearner, schema: Schema, policy: Policy) -> Sequence[Planned]:
    """Return a learner's longest schedule, with the evaluation's query if the policy allows it."""
    plan, query = model.plan(schema, policy), question_of(model, schema)
    if not isinstance(plan, Sequence) or not all(isinstance(line, Planned) for line in plan):
        raise StudyError(f"{type(model).__name__}: plan gives no list of Planned(query, times)")
    evaluates = query is not None and query.kind in policy.guards
    return [*plan, Planned(query, 1)] if evaluates else plan


def evaluated(model: FederatedLearner, federation: Disclosure) -> dict[str, Any]:
    """Query all owners for a fitted model's errors, and compute metrics.

    Returns:
        as :func:`.measure`, from noisy sums, with ``intervals`` by name and ``calibration``, see
        :func:`_calibration`; or ``told``, why there are none.
    """
    kind = question_about(model)
    if kind is None:
        return {"told": OWN_MODELS, "value": None}
    try:
        (answer,) = federation.ask(kind.about(model))
        sums, target = _noisy_sums(answer), federation.schema.target
    except (NobodyAnswered, UnsupportedLoss) as error:
        return {"told": f"performance not measured: {error}", "value": None}
    assert target is not None
    with np.errstate(divide="ignore", invalid="ignore"):
        if kind is ClassScores:
            return _metrics(*_class_figures(sums), sums) | _calibration(_bin_rates(sums, target))
        return _metrics(*_regression_figures(sums, target), sums) | _calibration(
            _bin_means(sums, target)
        )


def _noisy_sums(answer: Answer) -> Sums:
    """Return totals by part, as released, then with noise of the same law subtracted in each draw."""
    rng, releases = np.random.default_rng(0), answer.releases.values()
    totals = {name: answer.total(name) for name in sorted({n for r in releases for n in r.parts})}
    sums = {name: np.repeat(total[None], 1 + DRAWS, axis=0) for name, total in totals.items()}
    for name, part in (pair for release in releases for pair in release.parts.items()):
        if part.noise is None:
            continue
        points = part.noise.window
        mass = np.exp(part.noise.log_mass(points)) * np.gradient(points.astype(float))
        drawn = rng.choice(points, (DRAWS, *totals[name].shape), p=mass / mass.sum())
        sums[name][1:] -= drawn * float(part.grid)
    return sums


def _interval(values: np.ndarray) -> list[float] | None:
    """Return a metric's central interval over the draws, extended to its value; None if too many are NaN."""
    value, drawn = values[0], values[1:]
    if np.isnan(value) or np.isnan(drawn).mean() > (1 - LEVEL) / 2:
        return None
    low, high = np.nanquantile(drawn, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return [float(min(low, value)), float(max(high, value))]


def _metrics(figures: Figures, constants: Figures, sums: Sums) -> dict[str, Any]:
    """Return the metrics, the first one as the headline, without those that have no interval.

    ``margins`` are intervals of the difference to the constant baseline, which is as noisy.
    """
    computed = {name: _interval(values) for name, values in figures.items()}
    intervals = {name: interval for name, interval in computed.items() if interval is not None}
    first = next(iter(figures))
    if first not in intervals:
        return {"told": TOO_FEW, "value": None}
    others = {name: float(figures[name][0]) for name in intervals if name != first}
    differences = {name: _interval(figures[name] - constants[name]) for name in constants}
    margins = {name: margin for name, margin in differences.items() if margin and name in intervals}
    degenerate = {name for name in margins if _is_degenerate(name, constants[name])}
    baselines = {name: float(constants[name][0]) for name in margins if name not in degenerate}
    return {
        "measure": first,
        "better": "higher" if first == ACCURACY else "lower",
        "value": float(figures[first][0]),
        "baseline": baselines.pop(first, None),
        "scores": others,
        "constants": baselines,
        "score_better": {name: SCORES[name] for name in others},
        "intervals": intervals,
        "margins": margins,
        "held_out": round(float(sums["sums"][0, 0])),
        "released": NOTE,
    }


def _is_degenerate(name: str, constant: np.ndarray) -> bool:
    """Whether noise makes a constant baseline perfect: zero variance, or a single class."""
    flawless = constant[0] >= 1 - CERTAIN if name == ACCURACY else constant[0] <= CERTAIN
    return bool(flawless and constant.any())


def _calibration(bins: Iterable[Bin]) -> dict[str, Any]:
    """Return mean outcomes by bin of the prediction, for bins with an interval.

    Returns:
        ``calibration``, a list of ``of`` (a class, or empty), ``low`` and ``high`` of the prediction, and
        of the outcome ``mean`` and ``interval``; empty if no bin has one.
    """
    rows = [
        {"of": of, "low": low, "high": high, "mean": float(values[0]), "interval": interval}
        for of, low, high, values in bins
        if (interval := _interval(values)) is not None
    ]
    return {"calibration": rows} if rows else {}


def _bin_means(sums: Sums, target: Column) -> Iterator[Bin]:
    """Yield the target's mean by bin of the prediction."""
    middle, half = middle_and_half(target)
    ends = target.bounds[0] + 2 * half * np.arange(BINS + 1) / BINS
    for index, values in enumerate(np.moveaxis(sums["bins"], 1, 0) if "bins" in sums else ()):
        means = np.clip(
            values[:, 1] / _nan_below_one(values[:, 0] * BIN_WEIGHT) * BIN_WEIGHT, -1, 1
        )
        yield "", float(ends[index]), float(ends[index + 1]), middle + half * means


def _bin_rates(sums: Sums, target: Column) -> Iterator[Bin]:
    """Yield each class's rate by bin of its predicted probability."""
    if "scores" not in sums:
        return
    names = [str(name) for name in target.categories] or ["0", "1"]
    shown = names[1:] if len(names) == 2 else names
    for code, label in enumerate(shown):
        others, in_class = sums["scores"][:, code, 0], sums["scores"][:, code, 1]
        rates = np.clip(in_class / _nan_below_one(in_class + others), 0, 1)
        for index, (low, high) in enumerate(zip((0.0, *EDGES), (*EDGES, 1.0), strict=True)):
            yield label, low, high, rates[:, index]


def _nan_below_one(counts: np.ndarray) -> np.ndarray:
    """Replace noisy counts of at most 1, which may be of no records, by NaN."""
    return np.where(counts > 1, counts, np.nan)


def _regression_figures(sums: Sums, target: Column) -> tuple[Figures, Figures]:
    """Return metrics of a regressor, and of the constant baseline, the held-out records' mean."""
    half = middle_and_half(target)[1]
    count, absolute, squared, t, t_squared = sums["sums"].T
    count = _nan_below_one(count)
    variance = np.maximum(t_squared / count - (t / count) ** 2, 0.0)
    error = np.maximum(squared / count, 0.0)
    figures = {
        RMSE: half * np.sqrt(error),
        "mean absolute error": half * np.maximum(absolute / count, 0.0),
        "R squared": 1 - error / np.where(variance > 0, variance, np.nan),
    }
    return figures, {RMSE: half * np.sqrt(variance), "R squared": np.zeros_like(count)}


def _class_figures(sums: Sums) -> tuple[Figures, Figures]:
    """Return metrics of a classifier, and of the constant baseline, the held-out records' class frequencies.

    The area under the curve is of binned probabilities (one against the rest, mean over classes): the
    fraction of pairs of a record of the class and another one in which the first has the higher bin; ties
    count one half.
    """
    count, errors, loss = sums["sums"].T
    count = _nan_below_one(count)
    auc = accuracy = entropy = np.full_like(count, np.nan)
    if "scores" in sums:
        others, in_class = sums["scores"][:, :, 0], sums["scores"][:, :, 1]
        sizes, n_others = in_class.sum(axis=2), others.sum(axis=2)
        below = np.cumsum(others, axis=2) - others / 2
        aucs = (in_class * below).sum(axis=2) / (sizes * n_others)
        defined = ((sizes > 0) & (n_others > 0)).all(axis=1)
        auc = np.where(defined, np.clip(aucs.mean(axis=1), 0, 1), np.nan)
        frequencies = np.clip(sizes / count[:, None], LEAST_SHARE, 1)
        if frequencies.shape[1] == 1:
            frequencies = np.hstack([1 - frequencies, frequencies]).clip(LEAST_SHARE, 1)
        accuracy = frequencies.max(axis=1)
        entropy = -(frequencies * np.log(frequencies)).sum(axis=1)
    figures = {
        ACCURACY: np.clip(1 - errors / count, 0, 1),
        AREA: auc,
        "log loss": np.maximum(loss / count, 0.0) * -np.log(LEAST),
    }
    return figures, {ACCURACY: accuracy, AREA: np.full_like(count, 0.5), "log loss": entropy}
