"""Queries of a rule search: bits for sibling templates, one sampled rule, and parameters.

Every query specifies the individuals queried by a public draw, so that only they are charged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any, ClassVar, Literal

import numpy as np

from privfed.errors import QueryError
from privfed.learners.rule_search.rule_index import RuleIndex
from privfed.learners.stl.grammar import Symbols
from privfed.questions.part import GRID, Bound, Part, PartType, Sensitivity
from privfed.questions.query import CohortQuery, View
from privfed.tables.schema import Schema

MAX_SYMBOLS = 2**16  #: Symbols are stored in two bytes
Encoding = Literal["unary", "hashed"]  #: Encoding of a frequency oracle's answer


@dataclass(frozen=True)
class CohortSample:
    """The individuals queried: a slice of a public random order of the cohort."""

    people: int  #: size of the cohort
    first: int  #: first, last: the slice, excluding ``last``
    last: int
    seed: int = 0  #: seed of the order; 0 keeps the cohort's own

    @classmethod
    def everybody(cls, people: int) -> CohortSample:
        """Return the whole cohort, in its own order."""
        return cls(people, 0, people)

    @property
    def size(self) -> int:
        """The number of individuals queried."""
        return self.last - self.first

    def check(self) -> None:
        """Check the slice against the cohort (else QueryError)."""
        if not (0 <= self.first < self.last <= self.people and 0 <= self.seed < 2**63):
            raise QueryError("malformed", "a question asks nobody, or people beyond the cohort")

    def positions(self, people: int) -> np.ndarray:
        """Return the positions of those queried in a cohort of ``people``."""
        self.check()
        if people != self.people:
            raise QueryError("malformed", "the cohort has another size")
        return _order(self.people, self.seed)[self.first : self.last]


@lru_cache(maxsize=8)
def _order(people: int, seed: int) -> np.ndarray:
    if seed == 0:
        return np.arange(people)
    return np.random.default_rng(seed).permutation(people)


def check_siblings(templates: Sequence[Symbols]) -> None:
    """Check that templates are disjoint: none twice, and none a prefix of another.

    Then a rule, which is one sequence of symbols, matches at most one of them. QueryError:
    ``malformed`` for none or an impossible symbol, ``false-partition`` for nested templates.
    """
    if not templates:
        raise QueryError("malformed", "a question needs at least one template")
    if not all(0 < symbol < MAX_SYMBOLS for template in templates for symbol in template):
        raise QueryError("malformed", "a template has a symbol that no grammar has")
    sorted_templates = sorted(templates)
    for prefix, following in pairwise(sorted_templates):
        if following[: len(prefix)] == prefix:
            raise QueryError("false-partition", "two templates are nested: one rule matches both")


class RuleQuery(CohortQuery):
    """Base class of queries to holders of rules of one grammar."""

    who: CohortSample
    grammar: str

    def asked(self, people: int) -> np.ndarray:
        """Return the slice of the public order."""
        return self.who.positions(people)

    def fits(self, records: Any) -> bool:
        """Whether the records are rules of the query's grammar."""
        return isinstance(records, RuleIndex) and records.grammar.digest == self.grammar

    def _bits(
        self, rows: int, axis: str, one_rule: int, replaced: int, anything: int
    ) -> dict[str, Part]:
        """Return the part ``bits``, with ``rows`` per individual, and bounds on how many may change."""
        self.who.check()
        bounds = (Bound(changed, changed) for changed in (one_rule, replaced, anything))
        shape = (rows, self.who.size)
        return {"bits": Part(PartType.BITS, (axis, "individual"), shape, Sensitivity(*bounds))}

    def _rule_index(self, view: View) -> RuleIndex:
        if not self.fits(view.records):
            raise TypeError("this question needs rules of the grammar that it was written for")
        index: RuleIndex = view.records
        return index


@dataclass(frozen=True)
class TemplateBits(RuleQuery):
    """One bit for each template from each individual: do you hold a rule that matches it?

    Sensitivity: the templates are disjoint, so adding or removing a rule changes at most one bit of
    its holder: L1 = 1. Replacing a rule changes at most two (one if there is one template).
    Replacing all rules of an individual changes any of its bits: L1 = number of templates.
    """

    who: CohortSample
    grammar: str
    templates: tuple[Symbols, ...]
    kind: ClassVar[str] = "rule_search.templates"

    def parts(self, schema: Schema) -> Mapping[str, Part]:
        """Return ``bits``, shape (templates, individuals queried)."""
        check_siblings(self.templates)
        number = len(self.templates)
        return self._bits(number, "template", 1, min(2, number), number)

    def evaluate(self, view: View) -> Mapping[str, np.ndarray]:
        """Look up every template in the index."""
        index = self._rule_index(view)
        positions = self.asked(len(index))
        bits = np.empty((len(self.templates), len(positions)), dtype=bool)
        whole = self.who.seed == 0 and self.who.size == len(index)
        for row, template in enumerate(self.templates):
            bits[row] = index.answers(template) if whole else index.answers(template)[positions]
        return {"bits": bits}


@dataclass(frozen=True)
class _SamplingQuery(RuleQuery):
    """Base class: each individual secretly draws one of ``slots`` equally likely slots, possibly empty."""

    who: CohortSample
    grammar: str
    templates: tuple[Symbols, ...]
    slots: int

    def _check(self) -> None:
        check_siblings(self.templates)
        if not 1 <= self.slots < 2**63:  # what NumPy can draw
            raise QueryError("malformed", "sampling needs at least one slot, and fewer than 2^63")

    def _matched_templates(self, view: View) -> np.ndarray:
        """Return the template that each drawn rule matches, or -1; slots depend on the client's secret."""
        index = self._rule_index(view)
        slots = view.rng(f"sampled rule {self.who.seed}").integers(0, self.slots, len(index))
        drawn, ranks = np.full(len(index), -1, dtype=np.int64), rule_ranks(index)
        for row, template in enumerate(self.templates):
            low, high = index.span(template)
            inside = slice(int(index.starts[low]), int(index.starts[high]))
            people = index.holders[inside]
            drawn[people[ranks[inside] == slots[people]]] = row
        return np.asarray(drawn[self.asked(len(index))])


@dataclass(frozen=True)
class SampledRule(_SamplingQuery):
    """Each individual draws one of its rules in secret, and marks the template that it matches.

    Sensitivity: at most one bit of an individual is set for any rules, so that any change affects
    at most two: L1 = 2 (one if there is one template), for one rule as well as for all data, as an
    added rule may put another one in the drawn slot.
    """

    kind: ClassVar[str] = "rule_search.sampled"

    def parts(self, schema: Schema) -> Mapping[str, Part]:
        """Return ``bits``, shape (templates, individuals queried): unary encoding."""
        self._check()
        two = min(2, len(self.templates))
        return self._bits(len(self.templates), "template", two, two, two)

    def evaluate(self, view: View) -> Mapping[str, np.ndarray]:
        """Mark the template of each individual's drawn rule."""
        return {
            "bits": self._matched_templates(view)[None] == np.arange(len(self.templates))[:, None]
        }


@dataclass(frozen=True)
class HashedRule(_SamplingQuery):
    """Each individual draws one of its rules in secret, and gives a public hash of its template.

    An individual whose drawn rule matches no template, or with an empty slot, answers the hash of
    code 0.

    Sensitivity: one bit per individual, for any rules: L1 = 1, for one rule as well as for all
    data.
    """

    kind: ClassVar[str] = "rule_search.hashed"

    def parts(self, schema: Schema) -> Mapping[str, Part]:
        """Return ``bits``, shape (1, individuals queried)."""
        self._check()
        return self._bits(1, "hash", 1, 1, 1)

    def evaluate(self, view: View) -> Mapping[str, np.ndarray]:
        """Compute the parity of each individual's mask and its template's code."""
        codes = (1 + self._matched_templates(view)).astype(np.uint32)
        return {"bits": parity(self.masks() & codes)[None]}

    def unhashed(self) -> tuple[CohortQuery, np.ndarray]:
        """Return the query of the drawn rules' templates, and which of them set each individual's bit."""
        codes = 1 + np.arange(len(self.templates), dtype=np.uint32)
        drawn = SampledRule(self.who, self.grammar, self.templates, self.slots)
        return drawn, parity(self.masks() & codes[:, None])

    def masks(self) -> np.ndarray:
        """Return the public mask of each individual queried, shape (individuals,)."""
        return _masks(self.digest, self.who.size, self.width)

    @property
    def width(self) -> int:
        """Number of bits of a mask, enough for all codes."""
        return len(self.templates).bit_length()


@lru_cache(maxsize=4)
def _masks(digest: str, size: int, width: int) -> np.ndarray:
    rng = np.random.default_rng(int(digest[:16], 16))
    return rng.integers(0, 2**width, size, dtype=np.uint32)


def parity(numbers: np.ndarray) -> np.ndarray:
    """Whether each number has an odd number of set bits."""
    return np.asarray(np.bitwise_count(numbers) % 2 == 1)


@lru_cache(maxsize=2)
def rule_ranks(index: RuleIndex) -> np.ndarray:
    """Return each rule's rank among those of its holder, in the index's order, shape (rules,)."""
    order = np.argsort(index.holders, kind="stable")
    sorted_holders = index.holders[order]
    first = np.searchsorted(sorted_holders, np.arange(index.people))
    ranks = np.empty(len(order), dtype=np.int32)
    ranks[order] = np.arange(len(order)) - first[sorted_holders]
    return ranks


@dataclass(frozen=True)
class Parameters(RuleQuery):
    """The parameters of complete structures: a value each, whether or not there is a match.

    Sensitivity: for each parameter an individual gives a value scaled to [0, 1] by public ranges,
    or 1/2 without such a rule. The structures are disjoint, so adding or removing a rule changes
    the values of one structure, each by at most one: L1 = m and squared L2 = m in units of the
    ranges, m the maximum parameters of a structure. Replacing a rule may change those of two
    structures, replacing all rules those of all.
    """

    who: CohortSample
    grammar: str
    structures: tuple[Symbols, ...]
    widths: tuple[int, ...]
    kind: ClassVar[str] = "rule_search.parameters"

    def parts(self, schema: Schema) -> Mapping[str, Part]:
        """Return ``values``, shape (all parameters, individuals queried), in grid units of their ranges."""
        self.who.check()
        check_siblings(self.structures)
        if len(self.widths) != len(self.structures) or not all(0 < w < 1000 for w in self.widths):
            raise QueryError("malformed", "each structure needs its number of parameters")
        width, total = max(self.widths), sum(self.widths)
        sensitivity = Sensitivity(_ranges(width), _ranges(min(2 * width, total)), _ranges(total))
        shape = (total, self.who.size)
        return {
            "values": Part(PartType.SUMS, ("parameter", "individual"), shape, sensitivity, GRID)
        }

    def fits(self, records: Any) -> bool:
        """Whether, in addition, every structure is complete and has its number of parameters."""
        return super().fits(records) and all(
            records.grammar.complete(structure) and len(records.grammar.ranges(structure)) == width
            for structure, width in zip(self.structures, self.widths, strict=True)
        )

    def evaluate(self, view: View) -> Mapping[str, np.ndarray]:
        """Look up the structures, each with its number of parameters."""
        index = self._rule_index(view)
        positions = self.asked(len(index))
        values = [
            index.parameters(structure, width)[:, positions]
            for structure, width in zip(self.structures, self.widths, strict=True)
        ]
        return {"values": np.floor(np.concatenate(values) * int(1 / GRID))}


def _ranges(number: int) -> Bound:
    """Return the bound for a change of ``number`` values over their full ranges."""
    units = int(1 / GRID)
    return Bound(number * units, number * units**2)
