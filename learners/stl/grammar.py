"""The public rule grammar: its symbols, templates, and their continuations.

A structure is a canonical formula without its parameters, written as symbols in preorder. A
template is a prefix of a structure; the rest is open. So all structures under a template are one
range of the sorted structures, and a rule matches exactly one template of each length.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from privfed.learners.stl import canonical
from privfed.learners.stl.formula import (
    RELATIONS,
    Atom,
    Connective,
    Formula,
    Hole,
    Not,
    RuleError,
    Temporal,
    Until,
)
from privfed.questions import wire
from privfed.tables.schema import Schema

Symbols = tuple[int, ...]  #: Structures and templates: numbers of symbols, from 1
OPERATORS = ("&", "|", "U", "F", "G", "!")
_ARITY = {"&": 2, "|": 2, "U": 2, "F": 1, "G": 1, "!": 1}
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*")


@dataclass(frozen=True)
class Grammar:
    """The possible rules."""

    variables: tuple[tuple[str, float, float], ...]  #: names and public bounds; sorted by name
    operators: tuple[str, ...] = ("&", "|", "U", "F", "G")  #: of ``& | U F G !``
    relations: tuple[str, ...] = ("<=", ">=")  #: which of ``<= >= =``
    most_operators: int = 4  #: maximum operators of one rule
    horizon: int = 1  #: maximum step in an interval

    def __post_init__(self) -> None:
        if not self.variables or not self.relations:
            raise RuleError(
                "a grammar without variables or relations has no terminals; name at least one each"
            )
        variables = ((name, float(lower), float(upper)) for name, lower, upper in self.variables)
        object.__setattr__(self, "variables", tuple(sorted(variables)))
        for name, lower, upper in self.variables:
            if not _NAME.fullmatch(name) or not lower < upper:
                raise RuleError(
                    f"variable {name!r} needs a name of letters, digits, '_' and '.', and bounds "
                    "lower < upper; rename the column in the schema"
                )
        unknown = [o for o in self.operators if o not in OPERATORS]
        unknown += [r for r in self.relations if r not in RELATIONS]
        if unknown or self.most_operators < 0 or self.horizon < 0:
            raise RuleError(
                f"a grammar knows the operators {' '.join(OPERATORS)}, the relations "
                f"{' '.join(RELATIONS)}, and most_operators and horizon of at least 0"
            )
        if self.atoms + len(OPERATORS) > 65535:
            raise RuleError("a grammar has at most 65535 symbols")

    @classmethod
    def of(
        cls,
        schema: Schema,
        operators: Sequence[str] = ("&", "|", "U", "F", "G"),
        *,
        relations: Sequence[str] = ("<=", ">="),
        most_operators: int = 4,
        horizon: int = 1,
    ) -> Grammar:
        """Return the grammar over a schema's features."""
        variables = tuple((c.name, float(c.bounds[0]), float(c.bounds[1])) for c in schema.features)
        return cls(variables, tuple(operators), tuple(relations), most_operators, horizon)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of the variables, sorted."""
        return tuple(name for name, _, _ in self.variables)

    @property
    def atoms(self) -> int:
        """Number of terminal symbols; they come first."""
        return len(self.variables) * len(self.relations)

    @cached_property
    def size(self) -> int:
        """Number of symbols; they are 1 to this."""
        return self.atoms + len(self._used)

    @cached_property
    def _used(self) -> tuple[str, ...]:
        return tuple(o for o in OPERATORS if o in self.operators)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the grammar; equal digests mean equal numbers of symbols."""
        return wire.digest(wire.encode(self))

    def operator(self, symbol: int) -> str:
        """Return a symbol's operator, or the empty string for an atom."""
        return "" if symbol <= self.atoms else self._used[symbol - self.atoms - 1]

    def arity(self, symbol: int) -> int:
        """Return the number of parts after a symbol."""
        return _ARITY.get(self.operator(symbol), 0)

    # --- between formulas and symbols ----------------------------------------------------------

    @cached_property
    def _numbers(self) -> dict[tuple[int, str, int], int]:
        relations = [RELATIONS.index(r) for r in RELATIONS if r in self.relations]
        atoms = [(0, name, relation) for name in self.names for relation in relations]
        signs = [(canonical.RANK[o], "", 0) for o in self._used]
        return {symbol: number for number, symbol in enumerate([*atoms, *signs], start=1)}

    def structure(self, rule: Formula) -> Symbols:
        """Return the structure of a canonical rule (RuleError: outside the grammar; without parameters)."""
        try:
            structure = tuple(self._numbers[symbol] for symbol in canonical.symbols(rule))
        except KeyError:
            raise RuleError(
                "a rule uses a variable, an operator or a relation outside the grammar, which has the "
                f"operators {' '.join(self._used)} and the relations {' '.join(self.relations)}; "
                "widen its operators or relations"
            ) from None
        if sum(symbol > self.atoms for symbol in structure) > self.most_operators:
            raise RuleError(f"a rule has more than {self.most_operators} operators")
        return structure

    def formula(self, template: Symbols, parameters: Sequence[float] = ()) -> Formula:
        """Return the formula of a template, with holes for open parts, and parameters if given."""
        self.check(template)
        return self._read(iter(template), iter(parameters))

    def _read(self, symbols: Iterator[int], values: Iterator[float]) -> Formula:
        symbol = next(symbols, None)
        if symbol is None:
            return Hole()
        operator = self.operator(symbol)
        if not operator:
            name, relation = self.atom(symbol)
            return Atom(name, relation, next(values, None))
        interval = _interval(values) if operator in ("F", "G", "U") else None
        parts = [self._read(symbols, values) for _ in range(_ARITY[operator])]
        if operator == "!":
            return Not(*parts)
        if operator == "U":
            return Until(interval, *parts)
        if operator in ("F", "G"):
            return Temporal(operator, interval, *parts)
        return Connective(operator, *parts)

    def atom(self, symbol: int) -> tuple[str, str]:
        """Return variable and relation of a terminal symbol."""
        variable, relation = divmod(symbol - 1, len(self.relations))
        return self.names[variable], [r for r in RELATIONS if r in self.relations][relation]

    def ranges(self, structure: Symbols) -> list[tuple[float, float]]:
        """Return the public range of each parameter, in preorder: steps 0 to horizon, or the bounds."""
        ranges: list[tuple[float, float]] = []
        for symbol in structure:
            if symbol <= self.atoms:
                ranges.append(self.variables[(symbol - 1) // len(self.relations)][1:])
            elif self.operator(symbol) in ("F", "G", "U"):
                ranges += [(0.0, float(self.horizon))] * 2
        return ranges

    # --- templates -----------------------------------------------------------------------------

    def check(self, template: Symbols) -> None:
        """Check that a template is a prefix of one formula of the grammar (else RuleError)."""
        if not all(1 <= symbol <= self.size for symbol in template):
            raise RuleError("a template names a symbol outside the grammar")
        if any(self.open(template[:length]) <= 0 for length in range(len(template))):
            raise RuleError("a template goes on after its formula is complete")

    def open(self, template: Symbols) -> int:
        """Return the number of open parts; zero for a complete structure."""
        return 1 + sum(self.arity(symbol) - 1 for symbol in template)

    def complete(self, template: Symbols) -> bool:
        """Whether a template is one whole formula of the grammar's symbols."""
        try:
            self.check(template)
        except RuleError:
            return False
        return self.open(template) == 0

    def continuations(self, template: Symbols) -> list[Symbols]:
        """Return the templates with one more symbol that some canonical rule of the grammar matches."""
        slots = self._slots(template)
        symbols = range(1, self.size + 1) if slots else ()
        following = [(*template, s) for s in symbols if self._allowed(s, slots[-1])]
        return [longer for longer in following if longer[-1] <= self.atoms or self._fits(longer)]

    def structures(self) -> list[Symbols]:
        """Return all complete structures, of a small grammar."""
        complete: list[Symbols] = []
        frontier: list[Symbols] = [()]
        while frontier:
            template = frontier.pop()
            following = self.continuations(template)
            complete += [] if following else [template]
            frontier += following
        return complete

    def _fits(self, template: Symbols) -> bool:
        """Whether the operators so far, and those that open parts require, are within the limit."""
        needed = sum(slot.min_symbol > self.atoms or slot.negated for slot in self._slots(template))
        return needed + sum(symbol > self.atoms for symbol in template) <= self.most_operators

    def _allowed(self, symbol: int, slot: _Slot) -> bool:
        operator = self.operator(symbol)
        if slot.negated:
            relation = "" if operator else self.atom(symbol)[1]
            return operator == "U" or relation == "="
        if operator and operator == slot.banned:
            return False
        return symbol >= slot.min_symbol or operator == slot.chain != ""

    def _slots(self, template: Symbols) -> list[_Slot]:
        """Return a template's open parts with their constraints; the next to be filled is last."""
        slots = [_Slot()]
        for symbol in template:
            slot = slots.pop()
            if slot.right is not None:
                slot.right.min_symbol = symbol
            operator = self.operator(symbol)
            if operator in ("&", "|"):
                right = _Slot(chain=operator)
                min_symbol = slot.min_symbol if operator == slot.chain else 0
                slots += [right, _Slot(banned=operator, min_symbol=min_symbol, right=right)]
            else:
                slots += [_Slot(negated=operator == "!") for _ in range(self.arity(symbol))]
        return slots


@dataclass
class _Slot:
    """An open part: canonical operands are sorted, and a left operand is not a chain itself."""

    banned: str = ""
    chain: str = ""
    min_symbol: int = 0
    negated: bool = False
    right: _Slot | None = field(default=None, repr=False)


def _interval(values: Iterator[float]) -> tuple[int, int] | None:
    first = next(values, None)
    if first is None:
        return None
    second = next(values, first)
    low, high = sorted((max(0, round(first)), max(0, round(second))))
    return low, high
