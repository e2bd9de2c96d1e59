"""How many records lie below public cuts, told so that no count is of one or two records.

What strict suppression allows of a column. Cuts halve the public bounds, their halves, and so on. Each
client goes through them from coarse to fine, left to right, and takes a cut where it leaves no record,
or at least three, to the next cut taken on either side. Which cuts are taken depends on the records
alone and never on what is asked: so whatever a server asks, in whatever order, it is told a part of one
and the same list. Whatever follows from that list linearly is a sum over whole cells between
neighbouring cuts of it, and each cell holds no record or at least three.

Halving ends where a cell holds fewer than three records, or less than a 128th of them, or nothing but
one value: so a cut tells no more of where a value lies than how far apart several of them are.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np

from privfed.errors import QueryError
from privfed.questions.part import Bound, Part, PartType, Sensitivity
from privfed.questions.query import Query, View
from privfed.tables.schema import Schema

#: A place in the bounds: (k, n) is n / 2^k of the way, n odd.
Cut = tuple[int, int]
#: Fewest records of a cell; least share of a client's records that is halved; finest halving.
FEWEST, _LEAST_SHARE, DEEPEST = 3, 128, 60


def place(cut: Cut, bounds: tuple[float, float]) -> float:
    """Where a cut lies, rounded once."""
    share = Fraction(cut[1], 2 ** cut[0])
    low, high = Fraction(bounds[0]), Fraction(bounds[1])
    return float(low + share * (high - low))


def told_cuts(values: np.ndarray, bounds: tuple[float, float]) -> frozenset[Cut]:
    """The cuts below which a client may tell the number of its records.

    Args:
        values: of one column, within the bounds.
    """
    ordered = np.sort(values)
    total = len(ordered)
    least = max(FEWEST, math.ceil(total / _LEAST_SHARE))
    taken, reached = set[Cut](), [0, total]
    cells = [(0, 0, 0, total)]
    while cells:
        halves = []
        for depth, number, start, stop in cells:
            if stop - start < least or ordered[start] == ordered[stop - 1] or depth == DEEPEST:
                continue
            cut = depth + 1, 2 * number + 1
            middle = int(np.searchsorted(ordered, place(cut, bounds), side="left"))
            if _apart(reached, middle):
                taken.add(cut)
                insort(reached, middle)
            middle = min(max(middle, start), stop)
            halves += [(*_half(cut, 0), start, middle), (*_half(cut, 1), middle, stop)]
        cells = halves
    return frozenset(taken)


def _half(cut: Cut, which: int) -> Cut:
    """The cell on one side of its own middle."""
    return cut[0], cut[1] - 1 + which


def _apart(reached: list[int], count: int) -> bool:
    """Whether a count leaves no record or enough of them to its neighbours among some others."""
    after = bisect_left(reached, count)
    gaps = reached[after] - count, count - reached[max(after - 1, 0)]
    return gaps[0] == 0 or min(gaps) >= FEWEST


@dataclass(frozen=True)
class Below(Query):
    """Counts of each feature's records, and of the target's, below public cuts.

    Sensitivity, add-or-remove one record: it moves each of the C counts of each of the F features by
    one at most, so ``below`` has L1 and squared L2 F C, ``target`` C and C, and ``records`` 1 and 1;
    replacing it, at most as many: a count moves by one however a value changes, and ``records``
    not at all.

    Args:
        cuts: by feature, and last of the target where it is numeric, the same number of each.
    """

    cuts: tuple[tuple[Cut, ...], ...]
    kind: ClassVar[str] = "fuzzy_tree.below"

    def parts(self, schema: Schema) -> Mapping[str, Part]:
        """``below`` by feature and cut, ``target`` by cut where there is a numeric one, ``records``."""
        features, target = len(schema.features), _numeric(schema)
        lengths = {len(own) for own in self.cuts}
        if len(self.cuts) != features + target or len(lengths) != 1 or lengths == {0}:
            raise QueryError("malformed", "each column needs the same number of cuts, one or more")
        for depth, number in (cut for own in self.cuts for cut in own):
            if not (1 <= depth <= DEEPEST and 0 < number < 2**depth and number % 2):
                raise QueryError("malformed", "a cut is an odd number of 2^k parts of the bounds")
        (wide,) = lengths
        parts = {
            "below": _counts(("feature", "cut"), (features, wide), features * wide),
            "records": _counts((), (), 1),
        }
        return {**parts, "target": _counts(("cut",), (wide,), wide)} if target else parts

    def evaluate(self, view: View) -> Mapping[str, np.ndarray]:
        """Count, column by column."""
        columns, bounds = _columns(view)
        counts = np.array(
            [
                np.searchsorted(np.sort(values), [place(cut, own) for cut in cuts], side="left")
                for values, own, cuts in zip(columns, bounds, self.cuts, strict=True)
            ]
        )
        return self._by_part(counts, np.array(len(columns[0])), view.schema)

    def contribution(self, view: View) -> Mapping[str, np.ndarray]:
        """One where a record's value lies below a cut."""
        columns, bounds = _columns(view)
        ones = np.stack(
            [
                values[:, None] < np.array([place(cut, own) for cut in cuts])
                for values, own, cuts in zip(columns, bounds, self.cuts, strict=True)
            ],
            axis=1,
        ).astype(np.int64)
        each = self._by_part(ones.swapaxes(0, 1), np.ones(len(ones), np.int64), view.schema)
        return {**each, "below": each["below"].swapaxes(0, 1)}

    def reveals(
        self, exact: Mapping[str, np.ndarray], view: View, strict: bool = False
    ) -> Mapping[str, np.ndarray]:
        """Mark all cuts that a client does not take, under either rule: no paper asks this."""
        if "fuzzy_tree.cuts" not in view.cache:
            view.cache["fuzzy_tree.cuts"] = [
                told_cuts(values, own) for values, own in zip(*_columns(view), strict=True)
            ]
        taken = view.cache["fuzzy_tree.cuts"]
        few = bool(exact["records"] < FEWEST)
        hidden = np.array(
            [
                [few or cut not in told for cut in own]
                for own, told in zip(self.cuts, taken, strict=True)
            ]
        )
        return self._by_part(hidden, np.asarray(few), view.schema)

    @staticmethod
    def _by_part(columns: np.ndarray, records: np.ndarray, schema: Schema) -> dict[str, np.ndarray]:
        """What holds of each column, the features' together and the target's alone."""
        features = len(schema.features)
        parts = {"below": columns[:features], "records": records}
        return {**parts, "target": columns[-1]} if _numeric(schema) else parts


def _columns(view: View) -> tuple[list[np.ndarray], list[tuple[float, float]]]:
    """Each column's values and public bounds, the target's last."""
    schema, table = view.schema, view.table
    bounds = [column.bounds for column in schema.features]
    columns = list(table.x.T)
    if _numeric(schema):
        assert schema.target is not None
        bounds.append(schema.target.bounds)
        columns.append(table.target)
    return [np.clip(own, *ends) for own, ends in zip(columns, bounds, strict=True)], bounds


def _numeric(schema: Schema) -> bool:
    return schema.target is not None and schema.target.numeric


def _counts(axes: tuple[str, ...], shape: tuple[int, ...], most: int) -> Part:
    """Counts of which a record moves so many by one."""
    bound = Bound(most, most)
    return Part(PartType.COUNTS, axes, shape, Sensitivity(bound, replace_one=bound))
