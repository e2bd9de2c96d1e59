"""Asserts that every released number depends on many records, or is noised."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from privfed.errors import InputError, number_of
from privfed.leaks.reading.leaf import Leaf
from privfed.leaks.reading.walk import flatten
from privfed.testing.assertions.suite import current

#: How many tables, with all but a few records drawn anew, must leave a number as it is.
CONFIRMED = 3
AGAIN = 2  #: How many runs without a record must differ again, for noise may seldom change a number
SHOWN = 4  #: How many findings a message tells of
PLANTED = "planted"  #: Where the planted value lies
Key = tuple[str, int]  #: A leaf by its path, and by which of the leaves of that path it is
#: The records that elements of leaves depend on, where they are few.
Few = Mapping[tuple[Key, int], tuple[int, ...]]


class FewRecords(AssertionError):
    """A released number depends on too few records."""


def assert_support(
    run: Callable[[Any], object], raw: Any, k: int = 5, *, allow: Sequence[str] = (), seed: int = 0
) -> None:
    """Assert that every number, text and string of bytes that ``run`` lets out depends on k records.

    Each record in turn is left out, and each is replaced by another; what changes depends on it. A
    number that fewer than k records change is looked at again, with all other records drawn anew:
    what then stays as it was is a function of those few alone. What differs between two runs on the
    same table, or changes without a record and does not when it is left out again, is noised, and passes; fix the
    seed of noise in ``run`` to look behind it. What
    nothing changes is public.

    It says nothing of sums of few records beside sums of many (:func:`assert_no_raw` does), nor of
    whether the noise is enough (:func:`assert_dp` does).

    Args:
        run: what is tested: takes a table and gives what leaves, in any form.
        raw: the table, as ``run`` takes it: a DataFrame, an array, a list of records.
        k: how many records a number must depend on.
        allow: patterns of paths to leave out, such as ``"left['n']"``.
        seed: of the records that are drawn anew.

    Raises:
        FewRecords: something depends on fewer records; an AssertionError.
        AssertionError: nothing left, or a planted value of one record was not noticed.
        InputError: the table has fewer than two records or k is below 2.
    """
    __tracebackhide__ = True
    current().keep_back(raw)
    if k < 2 or len(raw) < 2:
        raise InputError("support needs k of at least 2 and a table of at least two records")
    study = _Study(run, raw, k, allow, seed)
    few = study.few()
    if all(path.startswith(PLANTED) for path, _ in study.base):
        raise AssertionError("nothing left at all, so that there is nothing to look at")
    left = {at: records for at, records in few.items() if not at[0][0].startswith(PLANTED)}
    if left:
        raise FewRecords(_message(study, left))
    if not few:
        raise AssertionError(
            "a planted value of one record was not noticed: leaving a record out changes nothing in "
            "the table that run was given; pass the table itself, not a copy that run does not read"
        )


@dataclass(frozen=True)
class _Seen:
    """A leaf, which of its elements are noised, and the records that changed each.

    ``changed`` holds up to k records for each way of changing one and each element, shape
    (2, elements, k); ``count`` says how many, shape (2, elements).
    """

    leaf: Leaf
    noised: np.ndarray
    changed: np.ndarray
    count: np.ndarray

    def settled(self) -> bool:
        """Whether k records have changed each element, in each way."""
        enough = (self.count == self.changed.shape[2]).all(axis=0)
        return bool((enough | self.noised).all())


class _Study:
    """Runs on changed tables, and what changed."""

    def __init__(
        self, run: Callable[[Any], object], raw: Any, k: int, allow: Sequence[str], seed: int
    ) -> None:
        self.k, self._run, self._raw, self._allow = k, run, raw, allow
        self._rng, self._everybody = np.random.default_rng(seed), np.arange(len(raw))
        first, again = self._leaves(self._everybody), self._leaves(self._everybody)
        self.base: dict[Key, _Seen] = {}
        for key, leaf in first.items():
            noised = _differ(leaf, again.get(key))
            changed = np.zeros((2, noised.size, k), np.int32)
            count = np.zeros((2, noised.size), np.int64)
            self.base[key] = _Seen(leaf, noised, changed, count)

    def _leaves(self, chosen: np.ndarray) -> dict[Key, Leaf]:
        some = _taken(self._raw, chosen)
        frame = isinstance(some, pd.DataFrame | pd.Series)
        first = some.iloc[:1].to_numpy().tolist() if frame else some[:1]
        return _keyed(self._run(some), "left", self._allow) | _keyed(first, PLANTED, ())

    def few(self) -> Few:
        """Elements that fewer than k records change, and that stay where all others are redrawn."""
        for record in self._rng.permutation(len(self._everybody)).tolist():
            if all(seen.settled() for seen in self.base.values()):
                break
            for way in range(2):
                self._change(way, record, self._leaves(self._without(way, record)))
        redrawn: dict[tuple[int, ...], list[dict[Key, Leaf]]] = {}
        again: dict[tuple[int, int], list[dict[Key, Leaf]]] = {}
        few = {}
        for key, way, element, records in self._suspects():
            leaf = self.base[key].leaf
            for at in ((way, record) for record in records):
                if at not in again:
                    again[at] = [self._leaves(self._without(*at)) for _ in range(AGAIN)]
            answers = [answer for one in records for answer in again[way, one]]
            if not all(_differ(leaf, answer.get(key))[element] for answer in answers):
                continue  # noise that seldom changes it
            if records not in redrawn:
                redrawn[records] = [self._redrawn(records) for _ in range(CONFIRMED)]
            if not any(_differ(leaf, left.get(key))[element] for left in redrawn[records]):
                few[key, element] = records
        return few

    def _without(self, way: int, record: int) -> np.ndarray:
        """All records but one, which is left out, or has another in its place."""
        if way == 0:
            return np.delete(self._everybody, record)
        count, chosen = len(self._everybody), self._everybody.copy()
        chosen[record] = (record + 1 + count // 3) % count
        return chosen

    def _change(self, way: int, record: int, now: Mapping[Key, Leaf]) -> None:
        for key, seen in self.base.items():
            differs = _differ(seen.leaf, now.get(key)) & ~seen.noised
            at = np.flatnonzero(differs & (seen.count[way] < self.k))
            seen.changed[way, at, seen.count[way, at]] = record
            seen.count[way, at] += 1

    def _suspects(self) -> Iterator[tuple[Key, int, int, tuple[int, ...]]]:
        for key, seen in self.base.items():
            for way, element in np.argwhere((seen.count > 0) & (seen.count < self.k)).tolist():
                records = seen.changed[way, element, : seen.count[way, element]]
                yield key, way, element, tuple(sorted(records.tolist()))

    def _redrawn(self, fixed: Sequence[int]) -> dict[Key, Leaf]:
        chosen = self._everybody.copy()
        others = np.setdiff1d(chosen, fixed)
        if len(others):
            chosen[others] = self._rng.choice(others, len(others))
        return self._leaves(chosen)


def _taken(table: Any, chosen: np.ndarray) -> Any:
    """The table of some records, in that order; of the same type."""
    if isinstance(table, pd.DataFrame | pd.Series):
        return table.iloc[chosen]
    if isinstance(table, list | tuple):
        return type(table)(table[int(place)] for place in chosen)
    return table[chosen]


def _keyed(left: object, root: str, allow: Sequence[str]) -> dict[Key, Leaf]:
    times: Counter[str] = Counter()
    keyed = {}
    for whole in flatten(left, root):
        leaf = whole.less(allow)
        if leaf is not None:
            keyed[leaf.path, times[leaf.path]] = leaf
            times[leaf.path] += 1
    return keyed


def _elements(leaf: Leaf) -> np.ndarray:
    """Numbers one by one; a text or a string of bytes as one element."""
    if isinstance(leaf.value, np.ndarray):
        return leaf.value.reshape(-1)
    return np.array([leaf.value], dtype=object)


def _differ(leaf: Leaf, now: Leaf | None) -> np.ndarray:
    """Which elements differ, of each name; where there are more or fewer, those that stand nowhere any more.

    Of unnamed ones only fractions are looked for, for a count may stand elsewhere by chance: whole numbers differ.
    """
    value = _elements(leaf)
    other = None if now is None else _elements(now)
    if now is None or other is None or value.dtype.kind != other.dtype.kind:
        return np.ones(value.shape, dtype=bool)
    if _named(leaf) and _named(now):
        at = {name: place for place, name in enumerate(now.labels or ())}
        places = np.array([at.get(name, len(other)) for name in leaf.labels or ()], dtype=int)
        there = places < len(other)
        found = np.append(other, other.dtype.type())[places]
        return np.asarray(~there | _unequal(value, found))
    if other.shape != value.shape:
        fractions = value % 1 != 0 if value.dtype.kind == "f" else False
        return np.asarray(~(fractions & np.isin(value, other)))
    return _unequal(value, other)


def _named(leaf: Leaf) -> bool:
    """Whether each element has a name of its own, as the values of a mapping have, and those of a text have not."""
    return (
        isinstance(leaf.value, np.ndarray)
        and leaf.value.ndim == 1
        and isinstance(leaf.labels, list | tuple)
        and len(set(leaf.labels)) == len(leaf.labels) == leaf.value.size
    )


def _unequal(value: np.ndarray, other: np.ndarray) -> np.ndarray:
    differs = value != other
    if value.dtype.kind == "f":
        differs &= ~(np.isnan(value) & np.isnan(other))
    return np.asarray(differs)


def _message(study: _Study, few: Few) -> str:
    items = f"{number_of(len(few), 'released item')} {'depends' if len(few) == 1 else 'depend'}"
    lines = [f"{items} on fewer than {study.k} records:"]
    for (key, element), records in list(few.items())[:SHOWN]:
        where = study.base[key].leaf.element(element)
        of = "record" if len(records) == 1 else "records"
        lines.append(f"- {where}: on {of} {', '.join(map(str, records))} alone")
    lines.append(
        f"  pool at least {study.k} records in each number, suppress what has fewer (and what could "
        "be subtracted), or add noise"
    )
    return "\n".join(lines)
