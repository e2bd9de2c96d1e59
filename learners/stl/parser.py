"""Recursive-descent parser of formulas and templates.

Precedence, tightest first: ``!``, ``F`` and ``G``; ``U``; ``&``; ``|``; ``->`` (to the right).
Errors give the column and never repeat a number of the text.
"""

import re

from privfed.learners.stl.formula import (
    ANY,
    Atom,
    Connective,
    Formula,
    Hole,
    Interval,
    Not,
    RuleError,
    Temporal,
    Until,
)

MAX_SYMBOLS, MAX_DEPTH = 1000, 60  #: Maximum length of one rule, in symbols, and maximum nesting
_SYMBOL = re.compile(
    r"\s*(?:(?P<number>[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)"
    r"|(?P<name>[A-Za-z_][A-Za-z0-9_.]*)|(?P<sign>->|<=|>=|==|[<>=!&|()\[\],?]))"
)
_RELATIONS = {"<=": "<=", "<": "<=", ">=": ">=", ">": ">=", "=": "=", "==": "=", ANY: ANY}


def parse(text: str) -> Formula:
    """Parse one formula or template (RuleError: outside the grammar, with the column).

    Strict inequalities are read as weak ones: over real values they have the same robustness.
    """
    reader = _Reader(text)
    formula = reader.implication(0)
    reader.end()
    return formula


class _Reader:
    def __init__(self, text: str) -> None:
        self._symbols: list[tuple[str, str, int]] = []
        position, text = 0, text.rstrip()
        while position < len(text):
            match = _SYMBOL.match(text, position)
            if match is None or match.lastgroup is None:
                raise RuleError(f"column {position + 1}: no symbol of the rule grammar")
            kind = match.lastgroup
            self._symbols.append((kind, match[kind], match.start(kind) + 1))
            position = match.end()
        if len(self._symbols) > MAX_SYMBOLS:
            raise RuleError(f"a rule has at most {MAX_SYMBOLS} symbols")
        self._next = 0

    def implication(self, depth: int) -> Formula:
        """Parse the lowest precedence: ``a -> b``, right-associative."""
        left = self._chain(depth, ("|", "&"))
        if not self._take("->"):
            return left
        return Connective("->", left, self.implication(self._deeper(depth)))

    def _chain(self, depth: int, signs: tuple[str, ...]) -> Formula:
        """Parse left-associative connectives, lowest precedence first."""
        if not signs:
            return self._until(depth)
        left = self._chain(depth, signs[1:])
        while self._take(signs[0]):
            left = Connective(signs[0], left, self._chain(depth, signs[1:]))
        return left

    def _until(self, depth: int) -> Formula:
        left = self._unary(depth)
        if not self._temporal("U"):
            return left
        interval = self._interval()
        return Until(interval, left, self._unary(self._deeper(depth)))

    def _unary(self, depth: int) -> Formula:
        if self._take("!"):
            return Not(self._unary(self._deeper(depth)))
        for operator in ("F", "G"):
            if self._temporal(operator):
                interval = self._interval()
                return Temporal(operator, interval, self._unary(self._deeper(depth)))
        if self._take("("):
            inside = self.implication(self._deeper(depth))
            self._expect(")")
            return inside
        return self._atom() if self._compares() or not self._take(ANY) else Hole()

    def _compares(self) -> bool:
        """Whether the token after next is a relation, so that an open part is a variable."""
        following = self._symbols[self._next + 1 : self._next + 2]
        return [symbol in _RELATIONS for _, symbol, _ in following] == [True]

    def _atom(self) -> Atom:
        kind, variable, column = self._peek()
        if kind != "name" and variable != ANY:
            raise RuleError(f"column {column}: expected a variable, '(', '!', 'F[', 'G[' or '?'")
        self._next += 1
        kind, relation, column = self._peek()
        if relation not in _RELATIONS:
            raise RuleError(f"column {column}: expected a relation after a variable")
        self._next += 1
        return Atom(variable, _RELATIONS[relation], self._threshold())

    def _threshold(self) -> float | None:
        if self._take(ANY):
            return None
        kind, number, column = self._peek()
        if kind != "number":
            raise RuleError(f"column {column}: expected a number")
        self._next += 1
        return float(number)

    def _interval(self) -> Interval | None:
        """Parse an interval; None if it or one of its ends is open, as templates ignore intervals."""
        self._expect("[")
        first = self._step()
        if first is None and self._take("]"):
            return None
        self._expect(",")
        last = self._step()
        self._expect("]")
        return None if first is None or last is None else (first, last)

    def _step(self) -> int | None:
        if self._take(ANY):
            return None
        kind, number, column = self._peek()
        if kind != "number" or not number.isdigit() or len(number) > 9:
            raise RuleError(f"column {column}: an interval counts whole steps")
        self._next += 1
        return int(number)

    def _temporal(self, operator: str) -> bool:
        """Whether a letter is an operator, that is, before an interval."""
        upcoming = self._symbols[self._next : self._next + 2]
        matched = [symbol for _, symbol, _ in upcoming] == [operator, "["]
        self._next += matched
        return matched

    def _peek(self) -> tuple[str, str, int]:
        if self._next < len(self._symbols):
            return self._symbols[self._next]
        return "end", "", 1 + (self._symbols[-1][2] if self._symbols else 0)

    def _take(self, sign: str) -> bool:
        matched = self._peek()[:2] == ("sign", sign)
        self._next += matched
        return matched

    def _expect(self, sign: str) -> None:
        if not self._take(sign):
            raise RuleError(f"column {self._peek()[2]}: expected {sign!r}")

    def end(self) -> None:
        """Check that the text has ended."""
        if self._next < len(self._symbols):
            raise RuleError(f"column {self._peek()[2]}: expected the end of the rule")

    @staticmethod
    def _deeper(depth: int) -> int:
        if depth >= MAX_DEPTH:
            raise RuleError(f"a rule is nested at most {MAX_DEPTH} deep")
        return depth + 1
