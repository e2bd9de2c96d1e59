"""Asserts that every released number depends on many records, or is noised."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from privfed.errors import InputError
from privfed.leaks.reading.leaf import Leaf
from privfed.leaks.reading.walk import flatten

#: How many tables, with all but a few records drawn anew, must leave a number as it is.
CONFIRMED = 3
#: How many findings a message tells of.
SHOWN = 4
#: A leaf by its path, and by which of the leaves of that path it is.
Key = tuple[str, int]


class FewRecords(AssertionError):
    """A released number depends on too few records."""


def assert_support(
    run: Callable[[Any], object], raw: Any, k: int = 5, *, allow: Sequence[str] = (), seed: int = 0
) -> None:
    """Assert that every number, text and string of bytes that ``run`` lets out depends on k records.

    Each record in turn is left out, and each is replaced by another; what changes depends on it. A
    number that fewer than k records change is looked at again, with all other records drawn anew:
    what then stays as it was is a function of those few alone. What differs between two runs on the
    same table is noised, and passes; fix the seed of noise in ``run`` to look behind it. What
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
    records = _Records.of(raw)
    if k < 2 or records.count < 2:
        raise InputError("support needs k of at least 2 and a table of at least two records")
    study = _Study(run, records, k, tuple(allow), seed)
    few = study.few()
    if all(key[0].startswith(PLANTED) for key in study.base):
        raise AssertionError("nothing left at all, so that there is nothing to look at")
    planted = [found for found in few if found.key[0].startswith(PLANTED)]
    told = [found for found in few if not found.key[0].startswith(PLANTED)]
    if told:
        raise FewRecords(_message(told, k))
    if not planted:
        raise AssertionError(
            "a planted value of one record was not noticed: leaving a record out changes nothing in "
            "the table that run was given; pass the table itself, not a copy that run does not read"
        )


#: Where the planted value lies.
PLANTED = "planted"


@dataclass(frozen=True)
class _Records:
    """A table that can be taken apart by records, whatever its type."""

    table: Any
    count: int

    @classmethod
    def of(cls, raw: Any) -> _Records:
        """Hold records of any type that has a length."""
        return cls(raw, len(raw))

    def take(self, chosen: np.ndarray) -> Any:
        """The table of some records, in that order; of the same type."""
        if isinstance(self.table, pd.DataFrame | pd.Series):
            return self.table.iloc[chosen]
        if isinstance(self.table, list | tuple):
            return type(self.table)(self.table[int(place)] for place in chosen)
        return self.table[chosen]

    def first(self, some: Any) -> object:
        """A record that no other one equals, as it is in a table."""
        if isinstance(some, pd.DataFrame | pd.Series):
            return some.iloc[:1].to_numpy().tolist()
        return some[:1]


@dataclass
class _Seen:
    """One leaf over all runs.

    Args:
        leaf: what it was, and where.
        noised: which of its elements differ between two runs on the same table.
        changed: for each way of changing a record, the records that changed each element; no more
            than are needed.
        count: how many did, shape (ways, elements).
    """

    leaf: Leaf
    noised: np.ndarray
    count: np.ndarray
    changed: list[dict[int, set[int]]] = field(default_factory=lambda: [{}, {}])

    @property
    def value(self) -> np.ndarray:
        """Its elements; a text and a string of bytes are one each."""
        return elements(self.leaf)

    def settled(self, k: int) -> bool:
        """Whether enough records have changed each element, in each way."""
        enough = np.all(self.count >= k, axis=0)
        return bool(np.all(enough | self.noised))


@dataclass(frozen=True)
class Few:
    """An element that depends on few records alone."""

    key: Key
    element: int
    records: tuple[int, ...]
    where: str = ""


class _Study:
    """Runs on changed tables, and what changed."""

    def __init__(
        self,
        run: Callable[[Any], object],
        records: _Records,
        k: int,
        allow: tuple[str, ...],
        seed: int,
    ) -> None:
        self.records, self.k, self._run, self._allow = records, k, run, allow
        self._rng = np.random.default_rng(seed)
        everybody = np.arange(records.count)
        first, again = self._leaves(everybody), self._leaves(everybody)
        self.base = {
            key: _Seen(leaf, differs, np.zeros((2, differs.size), np.int64))
            for key, leaf in first.items()
            for differs in [_differ(leaf, again.get(key))]
        }

    def _leaves(self, chosen: np.ndarray) -> dict[Key, Leaf]:
        some = self.records.take(chosen)
        planted = self.records.first(some)
        left = dict(_keyed(self._run(some), "left", self._allow))
        return left | dict(_keyed(planted, PLANTED, ()))

    def few(self) -> list[Few]:
        """Elements that fewer than k records change, and that stay where all others are redrawn."""
        everybody = np.arange(self.records.count)
        for record in self._rng.permutation(self.records.count):
            if all(seen.settled(self.k) for seen in self.base.values()):
                break
            self._change(0, int(record), np.delete(everybody, record))
            other = everybody.copy()
            other[record] = (record + 1 + self.records.count // 3) % self.records.count
            self._change(1, int(record), other)
        return self._confirmed(list(self._suspects()))

    def _change(self, way: int, record: int, chosen: np.ndarray) -> None:
        now = self._leaves(chosen)
        for key, seen in self.base.items():
            differs = _differ(seen.leaf, now.get(key)) & ~seen.noised
            for element in np.flatnonzero(differs & (seen.count[way] < self.k)):
                seen.changed[way].setdefault(int(element), set()).add(record)
            seen.count[way] += differs

    def _suspects(self) -> Iterator[Few]:
        for key, seen in self.base.items():
            for way in (0, 1):
                counted = seen.count[way]
                for element in np.flatnonzero((counted > 0) & (counted < self.k)):
                    whose = tuple(sorted(seen.changed[way][int(element)]))
                    yield Few(key, int(element), whose, seen.leaf.element(int(element)))

    def _confirmed(self, suspects: list[Few]) -> list[Few]:
        """Suspects that stay as they are while all records but their own are drawn anew."""
        runs: dict[tuple[int, ...], list[dict[Key, Leaf]]] = {}
        kept = []
        for one in suspects:
            if one.records not in runs:
                runs[one.records] = [self._redrawn(one.records) for _ in range(CONFIRMED)]
            leaf = self.base[one.key].leaf
            stays = [
                not _differ(leaf, left.get(one.key))[one.element] for left in runs[one.records]
            ]
            if all(stays):
                kept.append(one)
        return kept

    def _redrawn(self, fixed: Sequence[int]) -> dict[Key, Leaf]:
        chosen = np.arange(self.records.count)
        others = np.setdiff1d(chosen, fixed)
        if len(others):
            chosen[others] = self._rng.choice(others, len(others))
        return self._leaves(chosen)


def _keyed(left: object, root: str, allow: Sequence[str]) -> Iterator[tuple[Key, Leaf]]:
    """What left by path, and by which of the leaves of that path it is."""
    times: dict[str, int] = {}
    for whole in flatten(left, root):
        leaf = whole.less(allow)
        if leaf is not None:
            place = times.get(leaf.path, 0)
            times[leaf.path] = place + 1
            yield (leaf.path, place), leaf


def elements(leaf: Leaf) -> np.ndarray:
    """Numbers one by one; a text or a string of bytes as one element."""
    if isinstance(leaf.value, np.ndarray):
        return leaf.value.reshape(-1)
    return np.array([leaf.value], dtype=object)


def _differ(leaf: Leaf, now: Leaf | None) -> np.ndarray:
    """Which elements differ; all of them where there are more or fewer."""
    value = elements(leaf)
    other = None if now is None else elements(now)
    if other is None or other.shape != value.shape or value.dtype.kind != other.dtype.kind:
        return np.ones(value.shape, dtype=bool)
    differs = value != other
    if value.dtype.kind == "f":
        differs &= ~(np.isnan(value) & np.isnan(other))
    return np.asarray(differs)


def _message(few: Sequence[Few], k: int) -> str:
    by_path: Mapping[tuple[Key, int], Few] = {(one.key, one.element): one for one in few}
    lines = [f"{len(by_path)} released items depend on fewer than {k} records:"]
    for one in list(by_path.values())[:SHOWN]:
        whose = ", ".join(map(str, one.records))
        lines.append(f"- {one.where}: on record {whose} alone")
    lines.append(
        f"  pool at least {k} records in each number, suppress what has fewer (and what could be "
        "subtracted), or add noise"
    )
    return "\n".join(lines)
