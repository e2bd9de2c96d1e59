"""An index from templates to the individuals of a cohort who hold a matching rule.

Canonical structures are sorted, so that a template (a prefix) is one range of them, found by binary
search; the holders of a range are contiguous.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from privfed.errors import InputError
from privfed.learners.stl.canonical import parameters
from privfed.learners.stl.formula import Formula
from privfed.learners.stl.grammar import Grammar, Symbols
from privfed.questions import wire
from privfed.tables.schema import Column, Schema

#: A rule as (structure, individual, scaled parameters).
Entry = tuple[Symbols, int, Sequence[float]]


@dataclass(frozen=True, eq=False)
class RuleIndex:
    """The rules of a cohort, by structure."""

    grammar: Grammar  #: the possible rules; public
    people: int  #: number of individuals; public
    structures: np.ndarray  #: distinct, in lexicographic order, zero-padded, (structures, L)
    starts: np.ndarray  #: index of each structure's first holder, and the end
    holders: np.ndarray  #: the individual behind each rule, shape (rules,)
    #: the rules' parameters scaled to [0, 1] by their public ranges, concatenated
    values: np.ndarray = field(default_factory=lambda: np.zeros(0, np.float32))
    #: index of each structure's first value; a structure of m parameters held k times has k rows of
    #: m
    offsets: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    roster: str = ""  #: identifies the named individuals and their order

    def __len__(self) -> int:
        return self.people

    @property
    def rules(self) -> int:
        """Number of rules of all individuals."""
        return len(self.holders)

    @cached_property
    def schema(self) -> Schema:
        """The public variables with their bounds."""
        return Schema(tuple(Column(n, lower=a, upper=b) for n, a, b in self.grammar.variables))

    @classmethod
    def of(cls, rules: Mapping[str, Iterable[Formula]], grammar: Grammar) -> RuleIndex:
        """Index the canonical rules of each individual (InputError: no individuals, or a rule outside the grammar)."""
        if not rules:
            raise InputError("a cohort needs at least one individual; this one is empty")
        entries = [
            (grammar.structure(rule), person, _scaled(grammar, rule))
            for person, formulas in enumerate(rules.values())
            for rule in formulas
        ]
        index = cls.indexed(grammar, len(rules), sorted(entries, key=lambda entry: entry[:2]))
        return replace(index, roster=wire.digest(wire.encode(tuple(rules))))

    @classmethod
    def indexed(cls, grammar: Grammar, people: int, entries: Sequence[Entry]) -> RuleIndex:
        """Index (structure, individual, scaled parameters) entries that are already sorted."""
        distinct = sorted({structure for structure, _, _ in entries})
        longest = max((len(structure) for structure in distinct), default=1)
        table = np.zeros((len(distinct), longest), dtype=np.uint16)
        for row, structure in enumerate(distinct):
            table[row, : len(structure)] = structure
        row_of = {structure: row for row, structure in enumerate(distinct)}
        rows = np.array([row_of[structure] for structure, _, _ in entries], dtype=np.int64)
        sizes = np.array([len(values) for _, _, values in entries], dtype=np.int64)
        starts = np.searchsorted(rows, np.arange(len(distinct) + 1))
        ends = np.concatenate([[0], np.cumsum(sizes)])
        values = np.array([v for _, _, scaled in entries for v in scaled], dtype=np.float32)
        holders = np.array([person for _, person, _ in entries], dtype=np.int32)
        return cls(grammar, people, table, starts, holders, values, ends[starts])

    @cached_property
    def _columns(self) -> np.ndarray:
        return np.ascontiguousarray(self.structures.T)

    def span(self, template: Symbols) -> tuple[int, int]:
        """Return the range of structures that match a template."""
        low, high = 0, len(self.structures)
        for index, symbol in enumerate(template):
            if low == high or index >= self.structures.shape[1]:
                return low, low
            column = self._columns[index, low:high]
            key = column.dtype.type(symbol)
            left, right = column.searchsorted(key, "left"), column.searchsorted(key, "right")
            low, high = low + int(left), low + int(right)
        return low, high

    def matching(self, template: Symbols) -> np.ndarray:
        """Return the holder of each matching rule, repeated for several rules."""
        low, high = self.span(template)
        return np.asarray(self.holders[self.starts[low] : self.starts[high]])

    def answers(self, template: Symbols) -> np.ndarray:
        """Return whether each individual holds a matching rule, shape (people,)."""
        bits = np.zeros(self.people, dtype=bool)
        bits[self.matching(template)] = True
        return bits

    def count(self, template: Symbols) -> int:
        """Return the true number of individuals with a matching rule, for scores."""
        return int(self.answers(template).sum())

    def parameters(self, structure: Symbols, width: int) -> np.ndarray:
        """Return scaled parameters of each individual's first rule of a structure, or 1/2; shape (width, people).

        InputError: the structure is open, or does not have ``width`` parameters.
        """
        self.grammar.check(structure)
        if self.grammar.open(structure) or len(self.grammar.ranges(structure)) != width:
            raise InputError("an open structure, or one with another number of parameters")
        answers = np.full((width, self.people), 0.5)
        low, high = self.span(structure)
        if low == high:
            return answers
        section = slice(int(self.starts[low]), int(self.starts[low + 1]))
        count = section.stop - section.start
        rows = self.values[self.offsets[low] : self.offsets[low] + count * width]
        reversed_rows = rows.reshape(count, width)[::-1].T
        answers[:, self.holders[section][::-1]] = np.clip(reversed_rows, 0, 1)
        return answers

    def valid(self, min_holders: float) -> dict[Symbols, int]:
        """Return complete structures with at least ``min_holders`` holders, with their numbers."""
        counts = {
            self.structure(row): len(np.unique(self.held_by(row)))
            for row in np.flatnonzero(np.diff(self.starts) >= min_holders).tolist()
        }
        return {structure: count for structure, count in counts.items() if count >= min_holders}

    def structure(self, row: int) -> Symbols:
        """Return the symbols of a row of ``structures``."""
        return tuple(int(symbol) for symbol in self.structures[row] if symbol)

    def held_by(self, row: int) -> np.ndarray:
        """Return the holders of a row of ``structures``, repeated for several such rules."""
        return np.asarray(self.holders[self.starts[row] : self.starts[row + 1]])

    def entries(self) -> list[Entry]:
        """Return all rules as (structure, individual, scaled parameters), in the index's order."""
        entries: list[Entry] = []
        for row in range(len(self.structures)):
            structure = self.structure(row)
            width = len(self.grammar.ranges(structure)) if len(self.offsets) else 0
            begin = int(self.offsets[row]) if width else 0
            for person in self.held_by(row).tolist():
                entries.append((structure, person, self.values[begin : begin + width].tolist()))
                begin += width
        return entries


def _scaled(grammar: Grammar, rule: Formula) -> list[float]:
    ranges = grammar.ranges(grammar.structure(rule))
    return [
        min(1.0, max(0.0, (value - low) / (high - low))) if high > low else 0.0
        for value, (low, high) in zip(parameters(rule), ranges, strict=True)
    ]
