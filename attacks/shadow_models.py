"""Membership from a model alone, by shadow models trained with and without each record.

Shadows are trained on random parts of the attacker's records. LiRA: Carlini et al. 2022,
"Membership inference attacks from first principles", Algorithm 1 and Section VI. RMIA: Zarifzadeh,
Liu and Shokri 2024, "Low-cost high-power membership inference attacks", Section 3. Without shadows the
same scores are compared with their quantiles among public records: Bertran et al. 2023, "Scalable membership
inference attacks via quantile regression". Regressors are scored by a log density of the residual.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from scipy.special import log_ndtr, logsumexp
from sklearn.ensemble import RandomForestRegressor

from privfed.attacks.deadline import Deadline
from privfed.attacks.finding import Finding
from privfed.attacks.roc import FOUND_AT, RocCurve, auc_p_value, clopper_pearson, exposure
from privfed.errors import InputError, unknown

#: Trains a model: takes features and outcomes, returns a fitted model.
Train = Callable[[np.ndarray, np.ndarray], Any]
#: How a record is scored; offline methods never train on it.
Way = Literal["lira", "lira-offline", "rmia", "rmia-offline"]
WAYS: tuple[Way, ...] = ("lira", "lira-offline", "rmia", "rmia-offline")
QUESTION = "Can a reader of the model alone tell which records trained it?"
#: Probabilities are clipped this far from 0 and 1 before the log odds: a forest of 100 trees votes in
#: steps of a hundredth, and nearly unanimous votes differ by rounding alone.
CLIPPED = 5e-3
OWN = 32  #: Fewest shadows for a standard deviation by record
#: Shrinkage to 1 of RMIA's mean over shadows without a record, for those with it (Equation 10).
OFFLINE = 0.3
PUBLIC = 20  #: Fewest public records for the quantile regression
FOLDS, TREES = 5, 50  #: Folds, and trees of the regression
RATE = 0.01  #: FPR at which findings state the TPR


def model_scores(model: Any, *, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Score of each record under a model, approximately normal over models, shape (records,).

    Classifiers: the log odds of the record's own class (logit scaling, Carlini et al. 2022, Section
    VI-B). Regressors: minus the absolute residual, in standard deviations of the outcomes (a
    Laplace log density).

    Args:
        model: has ``predict_proba`` and ``classes_``, or ``predict``.
        x: features, shape (records, features).
        y: outcomes, shape (records,).

    Raises:
        InputError: outcomes that the model has no class for, or predictions that are not finite.
    """
    if hasattr(model, "predict_proba"):
        classes = np.asarray(model.classes_)
        index = np.searchsorted(classes, y)
        if (classes[np.minimum(index, len(classes) - 1)] != y).any():
            raise InputError("some outcomes are not among the model's classes")
        probability = np.asarray(model.predict_proba(x), dtype=float)[np.arange(len(y)), index]
        probability = np.clip(probability, CLIPPED, 1 - CLIPPED)
        scores = np.log(probability) - np.log1p(-probability)
    else:
        size = float(np.std(y)) or 1.0
        scores = -np.abs(np.asarray(model.predict(x), dtype=float) - y) / size
    if not np.isfinite(scores).all():
        raise InputError("the model's predictions are not finite")
    return np.asarray(scores)


@dataclass(frozen=True, eq=False)
class Shadows:
    """Shadow models' scores, and which were trained on which record; shape (shadows, records)."""

    scores: np.ndarray
    inside: np.ndarray

    def without(self, shadow: int) -> Shadows:
        """All but one."""
        kept = np.arange(len(self.scores)) != shadow
        return Shadows(self.scores[kept], self.inside[kept])


def shadows(
    train: Train,
    *,
    x: np.ndarray,
    y: np.ndarray,
    number: int = 64,
    seed: int = 0,
    time_limit: float = 120.0,
    parts: int = 2,
) -> Shadows:
    """Train shadow models, each on all but one of a few random parts of the records.

    Halves have the most power; more parts are nearer to a target trained on most of the known records.

    Args:
        train: trains one, such as ``lambda x, y: clone(model).fit(x, y)``.
        x: features, shape (records, features).
        y: outcomes, shape (records,).
        number: number of shadows, a multiple of the parts.
        seed: draws the parts.
        time_limit: seconds after which no further partition is begun.
        parts: number of parts, each left out by one shadow in turn.

    Raises:
        InputError: too few records or shadows, or arrays that are text or not finite.
    """
    _check(x, y)
    if parts < 2 or number < 2 * parts or number % parts or len(x) < 2 * parts:
        raise InputError(
            f"shadows leave each of {parts} parts out in turn: give a multiple of {parts}, "
            f"{2 * parts} at least, and {2 * parts} records"
        )
    rng, deadline = np.random.default_rng(seed), Deadline(time_limit)
    scores, inside = [], []
    for _ in deadline.range(number // parts):
        part = rng.permutation(len(x)) * parts // len(x)
        for left_out in reversed(range(parts)):
            training = part != left_out
            scores.append(model_scores(train(x[training], y[training]), x=x, y=y))
            inside.append(training)
    if len(scores) < 2 * parts:
        raise InputError(
            f"no {2 * parts} shadows could be trained in {time_limit:g} s; give a longer time_limit"
        )
    return Shadows(np.array(scores), np.array(inside))


def _check(x: np.ndarray, y: np.ndarray) -> None:
    features, outcomes = np.asarray(x), np.asarray(y)
    if features.ndim != 2 or outcomes.shape != (len(features),):
        raise InputError("shadows need features by record and one outcome each")
    if features.dtype.kind not in "biuf" or not np.isfinite(features.astype(float)).all():
        raise InputError("features must be finite numbers; encode text first")
    if outcomes.dtype.kind == "f" and not np.isfinite(outcomes).all():
        raise InputError("outcomes must be finite")


def membership_scores(target: np.ndarray, known: Shadows, *, way: Way = "lira") -> np.ndarray:
    """Membership scores of records, larger for likelier members.

    Args:
        target: the target's scores of the records, shape (records,).
        known: the shadows' scores of the same.
        way: ``lira`` and ``rmia`` use shadows with the record and without, ``-offline`` without.

    Raises:
        InputError: an unknown way, scores of other records, or a record that no shadow left out.
    """
    if way not in WAYS:
        raise InputError(unknown("way to read a model", way, WAYS))
    if np.shape(target) != known.scores.shape[1:]:
        raise InputError("the target's scores are of other records than the shadows'")
    counts = known.inside.sum(axis=0), (~known.inside).sum(axis=0)
    if min(counts[1]) < 2 or (not way.endswith("offline") and min(counts[0]) < 2):
        raise InputError("every record needs two shadows with it and two without")
    if way.startswith("rmia"):
        return _rmia(target, known, offline=way.endswith("offline"))
    return _lira(target, known, offline=way.endswith("offline"))


def _lira(target: np.ndarray, known: Shadows, *, offline: bool) -> np.ndarray:
    """ln N(target; with) - ln N(target; without), of one std; offline -ln P(N(without) > target).

    One std for both sides, whose difference 64 shadows cannot estimate.
    """
    outside = np.ma.MaskedArray(known.scores, known.inside)
    inside = np.ma.MaskedArray(known.scores, ~known.inside)
    mu_out, mu_in = np.asarray(outside.mean(axis=0)), np.asarray(inside.mean(axis=0).filled(0.0))
    variance = np.asarray(outside.var(axis=0))
    if not offline:
        variance = (variance + np.asarray(inside.var(axis=0))) / 2
    if len(known.scores) < OWN:
        variance = np.full_like(variance, variance.mean())
    std = np.sqrt(np.maximum(variance, 1e-12))
    if offline:
        return np.asarray(-log_ndtr((mu_out - target) / std))
    return np.asarray((mu_in - mu_out) * (target - (mu_in + mu_out) / 2) / std**2)


def _rmia(target: np.ndarray, known: Shadows, *, offline: bool) -> np.ndarray:
    """Fraction of other records z with p(x) / mean p(x) at least p(z) / mean p(z) (Equation 3)."""
    log_target, log_known = _log_probability(target), _log_probability(known.scores)
    out = np.where(known.inside, -np.inf, log_known)
    mean_out = logsumexp(out, axis=0) - np.log((~known.inside).sum(axis=0))
    if offline:
        mean = np.logaddexp(np.log((1 + OFFLINE) / 2) + mean_out, np.log((1 - OFFLINE) / 2))
    else:
        within = np.where(known.inside, log_known, -np.inf)
        mean_in = logsumexp(within, axis=0) - np.log(known.inside.sum(axis=0))
        mean = np.logaddexp(mean_out, mean_in) - np.log(2)
    ratio = log_target - mean
    return np.asarray(np.searchsorted(np.sort(ratio), ratio, side="right") / len(ratio))


def _log_probability(scores: np.ndarray) -> np.ndarray:
    return np.asarray(-np.logaddexp(0.0, -scores))


def quantiles(
    target: np.ndarray, *, x: np.ndarray, member: np.ndarray, seed: int = 0
) -> np.ndarray:
    """Standardised residual of each record's score from that expected of a similar non-member.

    Records are split at random into :data:`FOLDS`. Those of one are scored by a regression forest of the score on
    the record, fitted to the other folds' public records: the residual over its mean size. So members and others
    of a fold are scored alike, and for a model trained on none of them the scores are exchangeable.

    Args:
        target: the model's scores of the records, shape (records,); see :func:`model_scores`.
        x: the attacker's knowledge of each record, outcome included; float, shape (records, columns).
        member: records in question; the others are public. Bool, shape (records,).
        seed: draws the folds.

    Raises:
        InputError: fewer than :data:`PUBLIC` public records.
    """
    public = ~np.asarray(member, bool)
    if public.sum() < PUBLIC:
        raise InputError(
            f"{public.sum()} public records teach no quantiles; hold {PUBLIC} at least out"
        )
    rng, scores = np.random.default_rng(seed), np.empty(len(target))
    fold = np.empty(len(target), int)
    for group in (np.flatnonzero(public), np.flatnonzero(~public)):
        fold[rng.permutation(group)] = np.arange(len(group)) % FOLDS
    for test in (fold == number for number in range(FOLDS)):
        train = public & ~test
        forest = RandomForestRegressor(TREES, min_samples_leaf=5, oob_score=True, random_state=seed)
        forest.fit(x[train], target[train])
        size = float(np.abs(target[train] - forest.oob_prediction_).mean())
        scores[test] = (target[test] - forest.predict(x[test])) / max(size, 1e-12)
    return scores


def read_model(
    model: Any,
    *,
    x: np.ndarray,
    y: np.ndarray,
    member: np.ndarray,
    known: Shadows,
    way: Way = "lira",
) -> Finding:
    """Distinguish a model's training records from others by its scores of them.

    In ``exposed`` they are listed in order under an empty owner's name.

    Args:
        model: the target; see :func:`model_scores`.
        x, y: the records in question, which the shadows are of as well.
        member: training records, for scoring only; bool, shape (records,).
        known: shadow models.
        way: see :func:`membership_scores`.

    Raises:
        InputError: no members or no others, or see :func:`membership_scores`.
    """
    _check(x, y)
    truth = np.asarray(member, dtype=bool)
    if truth.shape != (len(x),) or truth.all() or not truth.any():
        raise InputError(
            "reading a model needs records that it learnt from and others: one bool each"
        )
    score = membership_scores(model_scores(model, x=x, y=y), known, way=way)
    return told_apart(score, truth, way, {"shadows": len(known.scores)})


def told_apart(score: np.ndarray, truth: np.ndarray, way: str, extra: Mapping[str, Any]) -> Finding:
    """The finding of an attack on a model; see :func:`read_model`.

    Args:
        score: larger for likelier members, shape (records,).
        truth: whether members; bool, shape (records,).
        way: suffix of the attack's name.
        extra: further detail.
    """
    curve = RocCurve.of(score[truth], score[~truth])
    number, others = int(truth.sum()), int((~truth).sum())
    tpr = curve.at(RATE)
    low, _ = clopper_pearson(np.floor(tpr * number), number, 0.025)
    detail: dict[str, Any] = {
        **extra,
        "members found at 1 % false positives": tpr,
        FOUND_AT: curve.points,
        "members": number,
        "others": others,
    }
    if others < 1 / RATE:
        detail["note"] = f"fewer than {round(1 / RATE)} others: the rate at 1 % is coarse"
    half = 1.96 * np.sqrt((1 / number + 1 / others) / 12)
    return _finding(
        way,
        curve.auc,
        low=max(0.0, curve.auc - float(half)),
        high=min(1.0, curve.auc + float(half)),
        chance=auc_p_value(curve.auc, number, others),
        severity="some" if curve.auc - half > 0.5 and float(low) > 0 else "none",
        detail=detail,
        exposed={"": exposure(score[truth], score[~truth])},
    )


def not_read(way: str, why: str) -> Finding:
    """The finding of an attack that was not run."""
    return _finding(way, 0.5, low=0.0, high=1.0, partial=why)


def _finding(way: str, roc_auc: float, **figures: Any) -> Finding:
    return Finding(
        f"model reader {way}",
        QUESTION,
        "share of pairs of a used and an unused record told apart by the model",
        roc_auc,
        of=1.0,
        baseline=0.5,
        measure="area",
        risk="singling out",
        harm="someone with a person's record can tell whether the model learnt from it",
        **figures,
    )
