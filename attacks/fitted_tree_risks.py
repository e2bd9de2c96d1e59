"""What a fitted tree or forest gives away about the records that it was fitted to.

Each risk is measured on the training records, and on held-out ones as a control: what is as true of people whom the
model never saw follows from the population (Giomi et al. 2023, "A unified framework for quantifying privacy risk").
The structural risks are those of Smith et al. 2022, "Safe machine learning model release from trusted research
environments": leaves of few records, leaves of one outcome, parameters beside records.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import ndtr, stdtrit

from privfed.attacks.finding import HALF, Finding, Severity
from privfed.attacks.fitted_trees import FittedTrees
from privfed.attacks.membership import auc_deviation
from privfed.attacks.roc import FOUND_AT, RocCurve, area_chance, exposure, interval
from privfed.attacks.shadow_models import Train, membership_scores, model_scores, shadows

LEAST = 5  #: Records of a leaf below which it sets them apart
NEAR = 0.01  #: A number comes out if it is missed by less than this share of the training records' range
SHADOWS = 64  #: Shadow models, if the work allows as many
#: Work of all shadow models, in comparisons of one value while trees grow; so much takes a minute or two.
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
    """What the structure alone gives away: small leaves, outcomes, parameters."""
    told = small_leaves(model, train, held_out), outcomes(model, train, held_out)
    return [*told, parameters(model, train)]


def small_leaves(
    model: FittedTrees, train: LabelledRecords, held_out: LabelledRecords | None, least: int = LEAST
) -> Finding:
    """Records whose leaf holds too few *other* training records, averaged over trees.

    A record that had no part in the splits meets as many others, trained on or not: so the control.
    """
    reached = model.leaves(train.x)
    filled = np.bincount(reached.ravel(), minlength=len(model.counts))
    alone = [(filled[reached] < least).mean(axis=0)]
    if held_out is not None:
        alone.append((filled[model.leaves(held_out.x)] < least - 1).mean(axis=0))
    sizes = filled[model.forest.leaves]
    return _compared(
        alone,
        "leaf sizes",
        "Do leaves set training records apart from all but a few others?",
        f"share of training records in a leaf of fewer than {least}"
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
    """Records whose outcome the model gives: by certainty, or a number nearly."""
    groups = [train] if held_out is None else [train, held_out]
    if model.labels:
        chances = [model.mean(each.x)[np.arange(len(each)), each.y.astype(int)] for each in groups]
        given = [own > 1 - 1e-9 for own in chances]
        how = "with certainty, as all its leaves are of one class"
    else:
        width = float(np.ptp(train.y)) or 1.0
        given = [np.abs(model.mean(each.x)[:, 0] - each.y) < NEAR * width for each in groups]
        how = f"to {100 * NEAR:g} % of the range"
    return _compared(
        [each.astype(float) for each in given],
        "class disclosure" if model.labels else "outcome disclosure",
        "Does the model give the outcomes of people who are known to be in its training data?",
        f"share of training records whose outcome it gives {how}",
        risk="inference",
        harm="someone who knows that a person was in the training data can tell the outcome",
    )


def parameters(model: FittedTrees, train: LabelledRecords) -> Finding:
    """Free parameters beside training records: with as many, every outcome has room."""
    size, records = model.size, len(train)
    return Finding(
        "degrees of freedom",
        "Has the model room for every training record's outcome?",
        "free parameters of the model, beside the number of training records",
        size,
        baseline=float(records),
        risk="inference",
        harm="the model has a free parameter for each training record, and more",
        severity=Severity.SOME if size >= records else Severity.NONE,
        detail={
            "residual degrees of freedom": records - size,
        },
    )


def confidence(
    model: FittedTrees, train: LabelledRecords, held_out: LabelledRecords | None
) -> Finding:
    """Membership by how well the model knows a record; needs held-out records."""
    if held_out is None:
        return _told_apart(np.zeros(0), np.zeros(0), "confidence", {}, NO_CONTROL)
    x, y = np.concatenate([train.x, held_out.x]), np.concatenate([train.y, held_out.y])
    scores = model_scores(model, x=x, y=y)
    return _told_apart(scores[: len(train)], scores[len(train) :], "confidence", {})


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
        return _told_apart(np.zeros(0), np.zeros(0), "likelihood ratio", {}, NO_CONTROL)
    x, y = np.concatenate([train.x, held_out.x]), np.concatenate([train.y, held_out.y])
    each = shadow_work(model, len(y) // 2)
    number = 2 * min(SHADOWS // 2, int(max_work // (2 * each)))
    if number < 4:
        partial = f"four shadow models take {4 * each:.1g} operations, more than {max_work:.1g}"
        return _told_apart(np.zeros(0), np.zeros(0), "likelihood ratio", {}, partial)

    def counted(own_x: np.ndarray, own_y: np.ndarray) -> Any:
        learnt = fit(own_x, own_y)
        progress(1)
        return learnt

    known = shadows(counted, x=x, y=y, number=number, time_limit=math.inf)
    scores = membership_scores(model_scores(model, x=x, y=y), known)
    told = {"shadow models": number}
    return _told_apart(scores[: len(train)], scores[len(train) :], "likelihood ratio", told)


def shadow_work(model: FittedTrees, records: int) -> float:
    """Comparisons that one shadow model takes: trees x records x levels x features tried at a split."""
    tried = model.width
    chosen = model.parameters.get("max_features")
    if chosen in ("sqrt", "log2"):
        tried = max(
            1, round(math.sqrt(model.width) if chosen == "sqrt" else math.log2(model.width))
        )
    return len(model.forest) * (PER_TREE + records * math.log2(max(records, 2)) * tried)


def _compared(
    groups: list[np.ndarray], attack: str, question: str, metric: str, **figures: Any
) -> Finding:
    """A share of training records against that of held-out ones; the interval is of their difference.

    Without held-out records there is no baseline, and any share at all is told.
    """
    value, control = float(groups[0].mean()), [float(each.mean()) for each in groups[1:]]
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
        # a control of whom none is found is no proof that nobody ever would be
        chance=float(ndtr((control[0] - value) / width)) if width else None,
        baseline=baseline,
        severity=Severity.SOME if value - below > (baseline or 0.0) else Severity.NONE,
        detail=detail,
        exposed={"": exposure(*groups)} if control else {},
        **figures,
    )


def _difference(one: np.ndarray, other: np.ndarray) -> tuple[float, float]:
    """How far the 95 % interval of a difference of means goes below and above it.

    Of yes and no by the exact interval of each (Zou and Donner 2008, "Construction of confidence limits about
    effect measures"); of shares of many trees by Welch's t. Both are wide where records are few, however alike.
    """
    groups = one, other
    if all(np.isin(each, (0, 1)).all() for each in groups):
        ends = [(each.mean(), *interval(each.sum(), len(each))) for each in groups]
        (own, low, high), (rest, least, most) = ends
        return math.hypot(own - low, most - rest), math.hypot(high - own, rest - least)
    if min(map(len, groups)) < 2:
        return 1.0, 1.0
    errors = [float(each.var(ddof=1)) / len(each) for each in groups]
    spread = sum(error**2 / (len(each) - 1) for error, each in zip(errors, groups, strict=True))
    half = (
        float(stdtrit(sum(errors) ** 2 / spread, 0.975)) * math.sqrt(sum(errors)) if spread else 0.0
    )
    return half, half


def _told_apart(
    members: np.ndarray, others: np.ndarray, attack: str, detail: dict[str, Any], partial: str = ""
) -> Finding:
    """Pairs of a training and a held-out record that scores order rightly; the rates beside."""
    area, half, chance = 0.5, 0.5, 1.0
    if not partial:
        curve = RocCurve.of(members, others)
        area = curve.auc
        std = auc_deviation(area, len(members), len(others))
        chance = area_chance(area, len(members), len(others), std)
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
        area,
        of=1.0,
        low=max(0.0, area - half),
        high=min(1.0, area + half),
        chance=chance,
        baseline=0.5,
        measure="area",
        severity=Severity.SOME if area - half > 0.5 else Severity.NONE,
        detail=detail,
        partial=partial,
        risk="singling out",
        harm="someone with a person's record can tell whether the model was fitted to it",
        exposed={} if partial else {"": exposure(members, others)},
    )
