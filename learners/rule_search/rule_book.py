"""What the individuals of a cohort hold: an index from templates to holders.

Canonical structures are sorted, so that a template (a prefix) is one range of them, found by binary
search; the holders of a range lie side by side. A question takes time in the matching rules and the
individuals, and in nothing else.
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


@dataclass(frozen=True, eq=False)
class RuleBook:
    """The rules of a cohort, by structure.

    Args:
        grammar: which rules there can be; public.
        people: number of individuals; public.
        structures: distinct structures in lexicographic order, zero-padded, shape (structures, L).
        starts: where each structure's holders begin in ``holders``; one more than structures.
        holders: the individual behind each rule, shape (rules,).
        values: the rules' parameters scaled to [0, 1] by their public ranges, one after another.
        offsets: where each structure's values begin; a structure of m parameters held k times has
            k rows of m.
        roster: tells the individuals and their order from any others; empty for unnamed ones.
    """

    grammar: Grammar
    people: int
    structures: np.ndarray
    starts: np.ndarray
    holders: np.ndarray
    values: np.ndarray = field(default_factory=lambda: np.zeros(0, np.float32))
    offsets: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    roster: str = ""

    def __len__(self) -> int:
        return self.people

    @property
    def rules(self) -> int:
        """Number of rules, over all individuals."""
        return len(self.holders)

    @cached_property
    def schema(self) -> Schema:
        """The public variables with their bounds."""
        return Schema(tuple(Column(n, lower=a, upper=b) for n, a, b in self.grammar.variables))

    @classmethod
    def of(cls, rules: Mapping[str, Iterable[Formula]], grammar: Grammar) -> RuleBook:
        """Index the canonical rules of each individual, in the mapping's order.

        Raises:
            InputError: nobody, or a rule outside the grammar (the individual is named, no value).
        """
        if not rules:
            raise InputError("a cohort needs at least one individual; this one is empty")
        entries = [
            (grammar.structure(rule), person, _scaled(grammar, rule))
            for person, held in enumerate(rules.values())
            for rule in held
        ]
        book = cls.indexed(grammar, len(rules), sorted(entries, key=lambda entry: entry[:2]))
        return replace(book, roster=wire.digest(wire.encode(tuple(rules))))

    @classmethod
    def indexed(
        cls,
        grammar: Grammar,
        people: int,
        entries: Sequence[tuple[Symbols, int, Sequence[float]]],
    ) -> RuleBook:
        """Index (structure, individual, scaled parameters) entries that are sorted already."""
        distinct = sorted({structure for structure, _, _ in entries})
        longest = max((len(structure) for structure in distinct), default=1)
        table = np.zeros((len(distinct), longest), dtype=np.uint16)
        for row, structure in enumerate(distinct):
            table[row, : len(structure)] = structure
        places = {structure: row for row, structure in enumerate(distinct)}
        rows = np.array([places[structure] for structure, _, _ in entries], dtype=np.int64)
        sizes = np.array([len(values) for _, _, values in entries], dtype=np.int64)
        starts = np.searchsorted(rows, np.arange(len(distinct) + 1))
        ends = np.concatenate([[0], np.cumsum(sizes)])
        values = np.array([v for _, _, held in entries for v in held], dtype=np.float32)
        holders = np.array([person for _, person, _ in entries], dtype=np.int32)
        return cls(grammar, people, table, starts, holders, values, ends[starts])

    @cached_property
    def _columns(self) -> np.ndarray:
        """The structures by place in the sequence, contiguous, so that a search copies nothing."""
        return np.ascontiguousarray(self.structures.T)

    def span(self, template: Symbols) -> tuple[int, int]:
        """The range of structures that match a template."""
        low, high = 0, len(self.structures)
        for place, symbol in enumerate(template):
            if low == high or place >= self.structures.shape[1]:
                return low, low
            column = self._columns[place, low:high]
            wanted = column.dtype.type(symbol)
            low, high = (
                low + int(column.searchsorted(wanted, "left")),
                low + int(column.searchsorted(wanted, "right")),
            )
        return low, high

    def matching(self, template: Symbols) -> np.ndarray:
        """The holder of each rule that matches, repeated where one holds several."""
        low, high = self.span(template)
        return np.asarray(self.holders[self.starts[low] : self.starts[high]])

    def answers(self, template: Symbols) -> np.ndarray:
        """Whether each individual holds a matching rule, shape (people,)."""
        bits = np.zeros(self.people, dtype=bool)
        bits[self.matching(template)] = True
        return bits

    def count(self, template: Symbols) -> int:
        """How many individuals hold a matching rule: the truth that estimates are scored by."""
        return int(self.answers(template).sum())

    def parameters(self, structure: Symbols, width: int) -> np.ndarray:
        """Scaled parameters of each individual's first rule of a structure; 1/2 for the others.

        Returns:
            shape (width, people).

        Raises:
            InputError: the structure is open, or does not have so many parameters.
        """
        self.grammar.check(structure)
        if self.grammar.open(structure) or len(self.grammar.ranges(structure)) != width:
            raise InputError("an open structure, or one with another number of parameters")
        answers = np.full((width, self.people), 0.5)
        low, high = self.span(structure)
        if low == high:
            return answers
        held = slice(int(self.starts[low]), int(self.starts[low + 1]))
        count = held.stop - held.start
        rows = self.values[self.offsets[low] : self.offsets[low] + count * width]
        for_holders = rows.reshape(count, width)[::-1].T
        answers[:, self.holders[held][::-1]] = np.clip(for_holders, 0, 1)
        return answers

    def valid(self, least: float) -> dict[Symbols, int]:
        """Complete structures that at least so many individuals hold, with how many."""
        counts = np.diff(self.starts)
        rows = np.flatnonzero(counts >= least)
        held = {
            tuple(int(s) for s in self.structures[row] if s): len(
                np.unique(self.holders[self.starts[row] : self.starts[row + 1]])
            )
            for row in rows
        }
        return {structure: count for structure, count in held.items() if count >= least}

    def without(self, rule: int) -> RuleBook:
        """The neighbour that lacks one rule (by its place among the holders)."""
        return self._rebuilt([e for place, e in enumerate(self.entries()) if place != rule])

    def replaced(self, person: int, other: Sequence[tuple[Symbols, Sequence[float]]]) -> RuleBook:
        """The neighbour in which one individual holds other rules altogether."""
        kept = [entry for entry in self.entries() if entry[1] != person]
        return self._rebuilt(kept + [(structure, person, values) for structure, values in other])

    def entries(self) -> list[tuple[Symbols, int, Sequence[float]]]:
        """All rules as (structure, individual, scaled parameters), in the index's order."""
        entries: list[tuple[Symbols, int, Sequence[float]]] = []
        for row in range(len(self.structures)):
            structure = tuple(int(s) for s in self.structures[row] if s)
            first, last = int(self.starts[row]), int(self.starts[row + 1])
            width = len(self.grammar.ranges(structure)) if len(self.offsets) else 0
            for place in range(first, last):
                begin = (int(self.offsets[row]) if width else 0) + (place - first) * width
                values = self.values[begin : begin + width].tolist()
                entries.append((structure, int(self.holders[place]), values))
        return entries

    def _rebuilt(self, entries: list[tuple[Symbols, int, Sequence[float]]]) -> RuleBook:
        ordered = sorted(entries, key=lambda entry: entry[:2])
        return RuleBook.indexed(self.grammar, self.people, ordered)


def _scaled(grammar: Grammar, rule: Formula) -> list[float]:
    ranges = grammar.ranges(grammar.structure(rule))
    return [
        min(1.0, max(0.0, (value - low) / (high - low))) if high > low else 0.0
        for value, (low, high) in zip(parameters(rule), ranges, strict=True)
    ]
