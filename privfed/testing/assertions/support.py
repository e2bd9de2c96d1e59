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

#: Tables, with all but a few records redrawn, on which a number must be unchanged.
CONFIRMED = 3
AGAIN = 2  #: Repeated runs without a record that must differ again, since noise may change a number rarely
SHOWN = 4  #: Most findings in a message
PLANTED = "planted"  #: Path of the planted value
Key = tuple[str, int]  #: A leaf's path, and its index among the leaves of that path
#: Records that elements of leaves depend on, if they are few.
Few = Mapping[tuple[Key, int], tuple[int, ...]]


class FewRecords(AssertionError):
    """A released number depends on too few records."""


def assert_support(
    run: Callable[[Any], object], raw: Any, k: int = 5, *, allow: Sequence[str] = (), seed: int = 0
) -> None:
    """Assert that every number, text and byte string that ``run`` releases depends on at least k records.

    Each record in turn is removed, and replaced by another; outputs that change depend on it. A number
    that fewer than k records change is tested again with all other records redrawn: if it is unchanged, it
    is a function of those few. Outputs that differ between two runs on the same table, or that change only
    once without a record, are noised and pass; fix the seed of the noise in ``run`` to test them. Outputs
    that never change are public.

    Sums of few records combined with sums of many are not tested (see :func:`assert_no_raw`), nor is the
    amount of noise (see :func:`assert_dp`).

    Args:
        run: function under test; takes a table, returns what it releases, in any form.
        raw: the table, in the form that ``run`` takes: a DataFrame, an array, a list of records.
        k: number of records that each number must depend on.
        allow: patterns of paths to ignore, such as ``"left['n']"``.
        seed: of the redrawn records.

    Raises:
        FewRecords: something depends on fewer records; an AssertionError.
        AssertionError: nothing was released, or a planted value of one record was not detected.
        InputError: the table has fewer than two records or k is below 2.
    """
    __tracebackhide__ = True
    current().keep_back(raw)
    if k < 2 or len(raw) < 2:
        raise InputError("support needs k of at least 2 and a table of at least two records")
    study = _Study(run, raw, k, allow, seed)
    few = study.few_records()
    if all(path.startswith(PLANTED) for path, _ in study.base):
        raise AssertionError("nothing left at all, so that there is nothing to look at")
    failing = {key: records for key, records in few.items() if not key[0][0].startswith(PLANTED)}
    if failing:
        raise FewRecords(_message(study, failing))
    if not few:
        raise AssertionError(
            "a planted value of one record was not noticed: leaving a record out changes nothing in "
            "the table that run was given; pass the table itself, not a copy that run does not read"
        )


@dataclass(frozen=True)
class _ElementState:
    """A leaf, whether each of its elements is noised, and the records that changed each.

    ``changed`` holds up to k records for each change (removal, replacement) and element, shape
    (2, elements, k); ``count`` is their number, shape (2, elements).
    """

    leaf: Leaf
    noised: np.ndarray
    changed: np.ndarray
    count: np.ndarray

    def settled(self) -> bool:
        """Whether k records have changed each element, by either change."""
        enough = (self.count == self.changed.shape[2]).all(axis=0)
        return bool((enough | self.noised).all())


class _Study:
    """Runs on changed tables, and the elements that changed."""

    def __init__(
        self, run: Callable[[Any], object], raw: Any, k: int, allow: Sequence[str], seed: int
    ) -> None:
        self.k, self._run, self._raw, self._allow = k, run, raw, allow
        self._rng, self._all_records = np.random.default_rng(seed), np.arange(len(raw))
        first, again = self._leaves(self._all_records), self._leaves(self._all_records)
        self.base: dict[Key, _ElementState] = {}
        for key, leaf in first.items():
            noised = _differ(leaf, again.get(key))
            changed = np.zeros((2, noised.size, k), np.int32)
            count = np.zeros((2, noised.size), np.int64)
            self.base[key] = _ElementState(leaf, noised, changed, count)

    def _leaves(self, chosen: np.ndarray) -> dict[Key, Leaf]:
        subset = _subset(self._raw, chosen)
        frame = isinstance(subset, pd.DataFrame | pd.Series)
        first = subset.iloc[:1].to_numpy().tolist() if frame else subset[:1]
        return _by_path(self._run(subset), "left", self._allow) | _by_path(first, PLANTED, ())

    def few_records(self) -> Few:
        """Return elements that fewer than k records change, and that are unchanged if all others are redrawn."""
        for record in self._rng.permutation(len(self._all_records)).tolist():
            if all(state.settled() for state in self.base.values()):
                break
            for change in range(2):
                self._change(change, record, self._leaves(self._without(change, record)))
        redrawn: dict[tuple[int, ...], list[dict[Key, Leaf]]] = {}
        again: dict[tuple[int, int], list[dict[Key, Leaf]]] = {}
        few = {}
        for key, change, element, records in self._suspects():
            leaf = self.base[key].leaf
            for pair in ((change, record) for record in records):
                if pair not in again:
                    again[pair] = [self._leaves(self._without(*pair)) for _ in range(AGAIN)]
            answers = [answer for r in records for answer in again[change, r]]
            if not all(_differ(leaf, answer.get(key))[element] for answer in answers):
                continue  # noise that rarely changes it
            if records not in redrawn:
                redrawn[records] = [self._redrawn(records) for _ in range(CONFIRMED)]
            if not any(_differ(leaf, leaves.get(key))[element] for leaves in redrawn[records]):
                few[key, element] = records
        return few

    def _without(self, change: int, record: int) -> np.ndarray:
        """All records except one, which is removed or replaced by another."""
        if change == 0:
            return np.delete(self._all_records, record)
        count, chosen = len(self._all_records), self._all_records.copy()
        chosen[record] = (record + 1 + count // 3) % count
        return chosen

    def _change(self, change: int, record: int, leaves: Mapping[Key, Leaf]) -> None:
        for key, state in self.base.items():
            differs = _differ(state.leaf, leaves.get(key)) & ~state.noised
            index = np.flatnonzero(differs & (state.count[change] < self.k))
            state.changed[change, index, state.count[change, index]] = record
            state.count[change, index] += 1

    def _suspects(self) -> Iterator[tuple[Key, int, int, tuple[int, ...]]]:
        for key, state in self.base.items():
            for change, element in np.argwhere((state.count > 0) & (state.count < self.k)).tolist():
                records = state.changed[change, element, : state.count[change, element]]
                yield key, change, element, tuple(sorted(records.tolist()))

    def _redrawn(self, fixed: Sequence[int]) -> dict[Key, Leaf]:
        chosen = self._all_records.copy()
        others = np.setdiff1d(chosen, fixed)
        if len(others):
            chosen[others] = self._rng.choice(others, len(others))
        return self._leaves(chosen)


def _subset(table: Any, chosen: np.ndarray) -> Any:
    """The chosen records of a table, in order, as the same type."""
    if isinstance(table, pd.DataFrame | pd.Series):
        return table.iloc[chosen]
    if isinstance(table, list | tuple):
        return type(table)(table[int(index)] for index in chosen)
    return table[chosen]


def _by_path(output: object, root: str, allow: Sequence[str]) -> dict[Key, Leaf]:
    times: Counter[str] = Counter()
    keyed = {}
    for full in flatten(output, root):
        leaf = full.less(allow)
        if leaf is not None:
            keyed[leaf.path, times[leaf.path]] = leaf
            times[leaf.path] += 1
    return keyed


def _elements(leaf: Leaf) -> np.ndarray:
    """Elements of a leaf: its numbers; a text or byte string is one element."""
    if isinstance(leaf.value, np.ndarray):
        return leaf.value.reshape(-1)
    return np.array([leaf.value], dtype=object)


def _differ(leaf: Leaf, new: Leaf | None) -> np.ndarray:
    """Whether each element differs, compared by name or position; if the number changed, whether it is missing.

    Then only fractions are searched: an integer may occur elsewhere by chance, so it counts as different.
    """
    value = _elements(leaf)
    other = None if new is None else _elements(new)
    if new is None or other is None or value.dtype.kind != other.dtype.kind:
        return np.ones(value.shape, dtype=bool)
    if _has_names(leaf) and _has_names(new):
        index = {name: i for i, name in enumerate(new.labels or ())}
        order = np.array([index.get(name, len(other)) for name in leaf.labels or ()], dtype=int)
        is_there = order < len(other)
        matched = np.append(other, other.dtype.type())[order]
        return np.asarray(~is_there | _unequal(value, matched))
    if other.shape != value.shape:
        fractions = value % 1 != 0 if value.dtype.kind == "f" else False
        return np.asarray(~(fractions & np.isin(value, other)))
    return _unequal(value, other)


def _has_names(leaf: Leaf) -> bool:
    """Whether each element has a distinct name, as values of a mapping do and those of a text do not."""
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
        noun = "record" if len(records) == 1 else "records"
        lines.append(f"- {where}: on {noun} {', '.join(map(str, records))} alone")
    lines.append(
        f"  pool at least {study.k} records in each number, suppress what has fewer (and what could "
        "be subtracted), or add noise"
    )
    return "\n".join(lines)
