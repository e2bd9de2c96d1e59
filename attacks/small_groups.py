"""Small groups, and groups of one class, from counts of rules, leaves and cells.

A person known to be in a small group can be singled out; one known to be in a group of one class has that
class, whatever the group's size (class disclosure, the lack of l-diversity, Machanavajjhala et al.
2007). Both are read from released counts, or from a fitted tree, forest or rule model, and reported
separately.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import astuple, dataclass
from typing import Any, ClassVar

import numpy as np

from privfed.attacks.base import Attack, PublicSchema, Truth, exact_parts
from privfed.attacks.finding import Finding, Risk
from privfed.attacks.reading import finite_numbers
from privfed.errors import InputError
from privfed.exchange.messages import ReleasedPart
from privfed.exchange.transcript import Transcript, TranscriptEntry

SMALLEST = 5  #: Groups of fewer records than this are small by default
CLASS = "class"  #: The class axis of a part


@dataclass(frozen=True)
class Groups:
    """Numbers of non-empty groups, of small ones, of those counted by class, and of these with one class."""

    groups: int = 0
    small: int = 0
    classed: int = 0
    alike: int = 0

    def __add__(self, other: Groups) -> Groups:
        """Add up both."""
        return Groups(*map(sum, zip(astuple(self), astuple(other), strict=True)))


def groups_of(counts: np.ndarray, smallest: int = SMALLEST) -> Groups:
    """Count the small groups, and those of a single class.

    Args:
        counts: records by group, shape (groups,), or by group and class, shape (groups, classes);
            NaN if withheld: such a group is not counted.
        smallest: the least size that is not small.

    Raises:
        InputError: counts that are negative, or of another shape.
    """
    table = np.asarray(counts, dtype=float)
    if table.ndim not in (1, 2) or (table < 0).any():
        raise InputError("groups need counts by group, or by group and class, none negative")
    by_class = table.ndim == 2 and table.shape[1] > 1
    sizes = table.sum(axis=1) if table.ndim == 2 else table
    nonempty = sizes > 0
    small = int((nonempty & (sizes < smallest)).sum())
    groups = int(nonempty.sum())
    if not by_class:
        return Groups(groups, small)
    return Groups(groups, small, groups, int((nonempty & ((table > 0).sum(axis=1) == 1)).sum()))


def model_groups(model: Any) -> np.ndarray:
    """Training records of each leaf of a fitted scikit-learn tree or forest, by class if any.

    Shape (leaves, classes), or (leaves,) for a regressor; InputError without trees.
    """
    trees = np.ravel(getattr(model, "estimators_", None) or [model])
    if not all(hasattr(tree, "tree_") for tree in trees):
        raise InputError("only fitted trees and forests of scikit-learn can be read leaf by leaf")
    return np.concatenate([_leaves(tree.tree_, hasattr(tree, "classes_")) for tree in trees])


def _leaves(tree: Any, classes: bool) -> np.ndarray:
    leaf = tree.children_left < 0
    sizes = np.asarray(tree.n_node_samples[leaf], dtype=float)
    if not classes:
        return sizes
    value = np.asarray(tree.value[leaf, 0], dtype=float)
    return np.asarray(value / value.sum(axis=1, keepdims=True) * sizes[:, None])


def read_leaves(model: Any, *, smallest: int = SMALLEST) -> list[Finding]:
    """Find leaves of few records, and of one class, in a fitted tree or forest; InputError without trees."""
    groups = groups_of(model_groups(model), smallest)
    return SmallGroups(smallest=smallest).report(groups, (), {})


class SmallGroups(Attack):
    """Reads exact counts of rules, leaves and cells: small groups, and groups of one class.

    Noisy counts hide both and are not read. A group counts once for each release of it.

    ``smallest`` is the least size that is not small.
    """

    name: ClassVar[str] = "small_groups"
    risk: ClassVar[Risk] = "singling out"
    harm: ClassVar[str] = "a released group is so small that it describes one person"
    question: ClassVar[str] = (
        "Which released groups are so small, or so uniform, that they describe one person?"
    )

    def __init__(self, *, time_limit: float | None = None, smallest: int = SMALLEST) -> None:
        super().__init__(time_limit=time_limit)
        if not smallest > 1:
            raise InputError("smallest must be 2 at least: no group is smaller than one record")
        self.smallest = smallest

    def attackable(self, transcript: Transcript) -> bool:
        """Whether there are exact counts."""
        return any(True for entry in transcript for _ in _counts(entry))

    def run(
        self, transcript: Transcript, truth: Truth | None = None, schema: PublicSchema | None = None
    ) -> list[Finding]:
        """See :class:`Attack`: small groups, and groups of one class; the truth is not needed."""
        total, kinds, skipped, read = Groups(), set(), 0, 0
        deadline, entries = self.deadline(), transcript.entries
        for entry in deadline.each(entries):
            read += 1
            for part in _counts(entry):
                values = finite_numbers(part)
                if values is None or (np.nan_to_num(values) < 0).any():
                    skipped += 1
                    continue
                kinds.add(entry.kind)
                total += groups_of(_table(values, part.axes), self.smallest)
        detail = {"parts that could not be read": skipped} if skipped else {}
        partial = deadline.partial(read, len(entries), "releases")
        return self.report(total, tuple(sorted(kinds)), detail, partial) if total.groups else []

    def report(
        self, groups: Groups, kinds: tuple[str, ...], detail: dict[str, Any], partial: str = ""
    ) -> list[Finding]:
        """Findings of the counts."""
        metrics = [(f"groups of fewer than {self.smallest} records", groups.small, groups.groups)]
        if groups.classed:
            one_class = "groups whose records are all of one class"
            metrics.append((one_class, groups.alike, groups.classed))
        return [
            self.finding(
                metric,
                number,
                of=number_of,
                baseline=0.0,
                releases=kinds,
                severity="some" if number else "none",
                simulation=False,
                detail=dict(detail),
                partial=partial,
            )
            for metric, number, number_of in metrics
        ]


def _counts(entry: TranscriptEntry) -> Iterator[ReleasedPart]:
    """Yield exact counts of more than the client's own size."""
    for part in exact_parts(entry).values():
        if part.type == "counts" and part.axes not in (("client",), ("all",)):
            yield part


def _table(values: np.ndarray, axes: tuple[str, ...]) -> np.ndarray:
    if CLASS not in axes or len(axes) != values.ndim or axes == (CLASS,):
        return np.asarray(values.ravel())
    last = np.moveaxis(values, axes.index(CLASS), -1)
    return np.asarray(last.reshape(-1, last.shape[-1]))
