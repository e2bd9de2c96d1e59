"""Disclosure risks of a fitted tree or forest for its training records.

Each risk is measured on the training records, and on held-out ones as a control: what is as true of people outside the
training data follows from the population (Giomi et al. 2023, "A unified framework for quantifying privacy risk").
The structural risks are those of Smith et al. 2022, "Safe machine learning model release from trusted research
environments": leaves of few records, leaves of one outcome, as many parameters as records.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import ndtr, stdtrit

from privfed.attacks.finding import HALF, Finding, Severity
from privfed.attacks.fitted_trees import FittedTrees
from privfed.attacks.membership import auc_std
from privfed.attacks.roc import FOUND_AT, RocCurve, auc_p_value, exposure, interval
from privfed.attacks.shadow_models import Train, membership_scores, model_scores, shadows

LEAST = 5  #: Smallest size of a leaf that does not single records out
NEAR = 0.01  #: A number is disclosed if the error is below this fraction of the training records' range
SHADOWS = 64  #: Shadow models, if the work allows as many
#: Work of all shadow models, in comparisons of one value while trees grow: a minute or two.
MAX_WORK = 4e8
PER_TREE = 5e3  #: Work of a tree of no records
NO_CONTROL = "without held-out records there is no control; give --outsiders"


@dataclass(frozen=True, eq=False)
class LabelledRecords:
    """Records with their outcomes: features float, shape (records, features), and class codes or numbers."""

    x: np.ndarray
    y: np.ndarray

    def __len__(self) -> int:
        return len(self.y)


def structural(
    model: FittedTrees, train: LabelledRecords, held_out: LabelledRecords | None
) -> list[Finding]:
    """The structural risks: small leaves, outcomes, parameters."""
    findings = small_leaves(model, train, held_out), outcomes(model, train, held_out)
    return [*findings, parameters(model, train)]


def small_leaves(
    model: FittedTrees, train: LabelledRecords, held_out: LabelledRecords | None, size: int = LEAST
) -> Finding:
    """Records whose leaf holds too few *other* training records, averaged over trees.

    The control counts the training records in the leaf of each held-out record.
    """
    leaves = model.leaves(train.x)
    leaf_sizes = np.bincount(leaves.ravel(), minlength=len(model.counts))
    fractions = [(leaf_sizes[leaves] < size).mean(axis=0)]
    if held_out is not None:
        fractions.append((leaf_sizes[model.leaves(held_out.x)] < size - 1).mean(axis=0))
    sizes = leaf_sizes[model.forest.leaves]
    return _comparison(
        fractions,
        "leaf sizes",
        "Do leaves single out training records, alone or with a few others?",
        f"share of training records in a leaf of fewer than {size}"
        + (", of an average tree" if len(model.forest) > 1 else ""),
        risk="singling out",
        harm="a path of the model describes a person whom it shares with few or no others",
        detail={
            "training records in the smallest leaf": int(sizes[sizes > 0].min()),
            "leaves": len(sizes),
            "leaves of one training record": int((sizes == 1).sum()),
        },
    )


def outcomes(
    model: FittedTrees, train: LabelledRecords, held_out: LabelledRecords | None
) -> Finding:
    """Records whose outcome the model gives: with certainty, or a number within :data:`NEAR`."""
    groups = [train] if held_out is None else [train, held_out]
    if model.labels:
        proba = [
            model.mean(group.x)[np.arange(len(group)), group.y.astype(int)] for group in groups
        ]
        given = [probability > 1 - 1e-9 for probability in proba]
        how = "with certainty, as all its leaves are of one class"
    else:
        width = float(np.ptp(train.y)) or 1.0
        given = [np.abs(model.mean(group.x)[:, 0] - group.y) < NEAR * width for group in groups]
        how = f"to {100 * NEAR:g} % of the range"
    return _comparison(
        [group.astype(float) for group in given],
        "class disclosure" if model.labels else "outcome disclosure",
        "Does the model give the outcomes of people who are known to be in its training data?",
        f"share of training records whose outcome it gives {how}",
        risk="inference",
        harm="someone who knows that a person was in the training data can tell the outcome",
    )


def parameters(model: FittedTrees, train: LabelledRecords) -> Finding:
    """Free parameters against training records: with as many, a model can store every outcome."""
    size, records = model.size, len(train)
    return Finding(
        "degrees of freedom",
        "Has the model room for every training record's outcome?",
        "free parameters of the model, compared with the number of training records",
        size,
        baseline=float(records),
        risk="inference",
        harm="the model has a free parameter for each training record, and more",
        severity=Severity.SOME if size >= records else Severity.NONE,
        detail={"residual degrees of freedom": records - size},
    )


def confidence(
    model: FittedTrees, train: LabelledRecords, held_out: LabelledRecords | None
) -> Finding:
    """Membership by how well the model knows a record; needs held-out records."""
    if held_out is None:
        return _auc_finding(np.zeros(0), np.zeros(0), "confidence", {}, NO_CONTROL)
    X, y = np.concatenate([train.x, held_out.x]), np.concatenate([train.y, held_out.y])
    scores = model_scores(model, x=X, y=y)
    return _auc_finding(scores[: len(train)], scores[len(train) :], "confidence", {})


def by_shadows(
    model: FittedTrees,
    train: LabelledRecords,
    held_out: LabelledRecords | None,
    fit: Train,
    *,
    max_work: float = MAX_WORK,
    progress: Callable[[int], object] = lambda _: None,
) -> Finding:
    """Membership by likelihood ratio (LiRA) from shadows of the same settings; see :mod:`shadow_models`.

    Shadows learn from halves of all records; their number follows from counted work.

    Args:
        fit: trains one.
        progress: called after each.
    """
    if held_out is None:
        return _auc_finding(np.zeros(0), np.zeros(0), "likelihood ratio", {}, NO_CONTROL)
    X, y = np.concatenate([train.x, held_out.x]), np.concatenate([train.y, held_out.y])
    work = shadow_work(model, len(y) // 2)
    number = 2 * min(SHADOWS // 2, int(max_work // (2 * work)))
    if number < 4:
        partial = f"four shadow models take {4 * work:.1g} operations, more than {max_work:.1g}"
        return _auc_finding(np.zeros(0), np.zeros(0), "likelihood ratio", {}, partial)

    def counted(train_x: np.ndarray, train_y: np.ndarray) -> Any:
        learnt = fit(train_x, train_y)
        progress(1)
        return learnt

    known = shadows(counted, x=X, y=y, number=number, time_limit=math.inf)
    scores = membership_scores(model_scores(model, x=X, y=y), known)
    detail = {"shadow models": number}
    return _auc_finding(scores[: len(train)], scores[len(train) :], "likelihood ratio", detail)


def shadow_work(model: FittedTrees, records: int) -> float:
    """Comparisons that one shadow model takes: trees x records x levels x features tried at a split."""
    n_candidates = model.width
    chosen = model.parameters.get("max_features")
    if chosen in ("sqrt", "log2"):
        n_candidates = max(
            1, round(math.sqrt(model.width) if chosen == "sqrt" else math.log2(model.width))
        )
    return len(model.forest) * (PER_TREE + records * math.log2(max(records, 2)) * n_candidates)


def _comparison(
    groups: list[np.ndarray], attack: str, question: str, metric: str, **figures: Any
) -> Finding:
    """Compare fractions of training and held-out records; the interval is of their difference.

    Without held-out records there is no baseline, and any positive fraction is reported.
    """
    value, control = float(groups[0].mean()), [float(group.mean()) for group in groups[1:]]
    below, above = _difference(*groups) if control else (0.0, 0.0)
    detail = {"training records": len(groups[0]), **figures.pop("detail", {})}
    if control:
        detail["held-out records"] = len(groups[1])
    else:
        detail["note"] = NO_CONTROL
    baseline = control[0] if control else None
    width = max(below, above) / HALF
    return Finding(
        attack,
        question,
        metric,
        value,
        of=1.0,
        low=max(0.0, value - below) if control else None,
        high=min(1.0, value + above) if control else None,
        # a control with none found is no proof of a rate of 0
        chance=float(ndtr((control[0] - value) / width)) if width else None,
        baseline=baseline,
        severity=Severity.SOME if value - below > (baseline or 0.0) else Severity.NONE,
        detail=detail,
        exposed={"": exposure(*groups)} if control else {},
        **figures,
    )


def _difference(first: np.ndarray, second: np.ndarray) -> tuple[float, float]:
    """How far the 95 % interval of a difference of means goes below and above it.

    Of booleans by the exact interval of each (Zou and Donner 2008, "Construction of confidence limits about
    effect measures"); of fractions of many trees by Welch's t. Both are wide for few records, even equal ones.
    """
    groups = first, second
    if all(np.isin(group, (0, 1)).all() for group in groups):
        ends = [(group.mean(), *interval(group.sum(), len(group))) for group in groups]
        (p1, l1, u1), (p2, l2, u2) = ends
        return math.hypot(p1 - l1, u2 - p2), math.hypot(u1 - p1, p2 - l2)
    if min(map(len, groups)) < 2:
        return 1.0, 1.0
    errors = [float(group.var(ddof=1)) / len(group) for group in groups]
    denom = sum(error**2 / (len(group) - 1) for error, group in zip(errors, groups, strict=True))
    half = (
        float(stdtrit(sum(errors) ** 2 / denom, 0.975)) * math.sqrt(sum(errors)) if denom else 0.0
    )
    return half, half


def _auc_finding(
    members: np.ndarray, others: np.ndarray, attack: str, detail: dict[str, Any], partial: str = ""
) -> Finding:
    """Pairs of a training and a held-out record that scores order correctly, with the TPR by FPR."""
    roc_auc, half, p_value = 0.5, 0.5, 1.0
    if not partial:
        curve = RocCurve.of(members, others)
        roc_auc = curve.auc
        std = auc_std(roc_auc, len(members), len(others))
        p_value = auc_p_value(roc_auc, len(members), len(others), std)
        half = HALF * std
        detail = {
            "training records": len(members),
            "held-out records": len(others),
            **detail,
            FOUND_AT: curve.points,
        }
    return Finding(
        attack,
        "Can a reader of the model tell a person in its training data from another?",
        "share of training and held-out pairs told apart",
        roc_auc,
        of=1.0,
        low=max(0.0, roc_auc - half),
        high=min(1.0, roc_auc + half),
        chance=p_value,
        baseline=0.5,
        measure="area",
        severity=Severity.SOME if roc_auc - half > 0.5 else Severity.NONE,
        detail=detail,
        partial=partial,
        risk="singling out",
        harm="someone with a person's record can tell whether the model was fitted to it",
        exposed={} if partial else {"": exposure(members, others)},
    )
