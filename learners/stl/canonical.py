"""Canonical form, in which equivalent formulas match syntactically.

Negations move inwards (onto ``U`` and ``=`` at most), implications become disjunctions, and the
operands of ``&`` and ``|`` are sorted and nested to the right. Every step keeps the robustness of
every signal: De Morgan's laws hold for min and max exactly.
"""

from dataclasses import replace
from functools import reduce

from privfed.learners.stl.formula import (
    ANY,
    Atom,
    Connective,
    Formula,
    Hole,
    Not,
    RuleError,
    Temporal,
    Until,
    children,
    rebuilt,
)

_OPPOSITE = {"<=": ">=", ">=": "<=", "&": "|", "|": "&", "F": "G", "G": "F"}
RANK = {"&": 1, "|": 2, "U": 3, "F": 4, "G": 5, "!": 6}  #: Sort order of operators, after the atoms
Key = tuple[tuple[int, str, int], ...]  #: Orders formulas by symbols in preorder, then parameters


def canonical(formula: Formula) -> Formula:
    """Return the canonical form of a complete formula (RuleError: it has open parts)."""
    if _is_open(formula):
        raise RuleError("a template has no canonical form; give a complete rule")
    return _sort_operands(_normal_form(formula, negated=False))


def pattern(formula: Formula) -> Formula:
    """Return a template with negations and implications as in :func:`canonical`, without sorting."""
    return _normal_form(formula, negated=False)


def matches(template: Formula, rule: Formula) -> bool:
    """Whether a complete canonical rule matches a :func:`pattern`.

    Thresholds and intervals are ignored, as are the order and the nesting of operands of ``&`` and
    ``|``, among which an open part matches one or more operands.
    """
    if isinstance(template, Hole):
        return True
    if isinstance(template, Atom):
        return isinstance(rule, Atom) and _compares(template, rule)
    if isinstance(template, Not) and isinstance(template.child, Atom):
        return _opposes(template.child, rule)
    if isinstance(rule, Atom) or sign(template) != sign(rule):
        return False
    if isinstance(template, Connective):
        return _operands_match(template, rule)
    return all(map(matches, children(template), children(rule)))


def _compares(template: Atom, rule: Atom) -> bool:
    """Whether variable and relation equal the template's, or are open there."""
    return template.variable in (ANY, rule.variable) and template.relation in (ANY, rule.relation)


def _opposes(template: Atom, rule: Formula) -> bool:
    """Whether a rule negates a comparison: for ``=`` by ``!``, else by the opposite relation."""
    if isinstance(rule, Not):
        return isinstance(rule.child, Atom) and _compares(template, rule.child)
    if not isinstance(rule, Atom) or rule.relation == "=" or template.relation != ANY:
        return False
    return template.variable in (ANY, rule.variable)


def _operands_match(template: Connective, rule: Formula) -> bool:
    """Whether each non-open operand matches a distinct one, and each open one at least one more."""
    operands, others = (_operands(formula, template.operator) for formula in (template, rule))
    closed: list[Formula] = [formula for formula in operands if not isinstance(formula, Hole)]
    spare, holes = len(others) - len(closed), len(operands) - len(closed)
    return (spare >= holes if holes else spare == 0) and _assignable(closed, others)


def _assignable(closed: list[Formula], operands: list[Formula]) -> bool:
    if not closed:
        return True
    first, *rest = closed
    return any(
        matches(first, operand) and _assignable(rest, operands[:index] + operands[index + 1 :])
        for index, operand in enumerate(operands)
    )


def _is_open(formula: Formula) -> bool:
    if isinstance(formula, Atom):
        return ANY in (formula.variable, formula.relation)
    return isinstance(formula, Hole) or any(_is_open(child) for child in children(formula))


def _normal_form(formula: Formula, negated: bool) -> Formula:
    if isinstance(formula, Not):
        return _normal_form(formula.child, not negated)
    if isinstance(formula, Temporal):
        operator = _OPPOSITE[formula.operator] if negated else formula.operator
        return Temporal(operator, formula.interval, _normal_form(formula.child, negated))
    if isinstance(formula, Connective):
        return _connective(formula, negated)
    if negated and isinstance(formula, Atom) and formula.relation in ("<=", ">="):
        return replace(formula, relation=_OPPOSITE[formula.relation])
    positive = rebuilt(formula, (_normal_form(part, negated=False) for part in children(formula)))
    return Not(positive) if negated and not isinstance(formula, Hole) else positive


def _connective(formula: Connective, negated: bool) -> Formula:
    implies = formula.operator == "->"
    operator = "|" if implies else formula.operator
    left = _normal_form(formula.left, negated != implies)
    right = _normal_form(formula.right, negated)
    return Connective(_OPPOSITE[operator] if negated else operator, left, right)


def _sort_operands(formula: Formula) -> Formula:
    if not isinstance(formula, Connective):
        return rebuilt(formula, map(_sort_operands, children(formula)))
    operator = formula.operator
    operands = sorted((_sort_operands(part) for part in _operands(formula, operator)), key=key)
    return reduce(lambda right, left: Connective(operator, left, right), reversed(operands))


def _operands(formula: Formula, operator: str) -> list[Formula]:
    if isinstance(formula, Connective) and formula.operator == operator:
        return _operands(formula.left, operator) + _operands(formula.right, operator)
    return [formula]


def key(formula: Formula) -> tuple[Key, tuple[float, ...]]:
    """Return the sort key: symbols in preorder, then parameters in preorder."""
    return symbols(formula), parameters(formula)


def symbols(formula: Formula) -> Key:
    """Return the symbols in preorder; atoms sort before operators, by name and relation."""
    if isinstance(formula, Atom):
        return ((0, formula.variable, ("<=", ">=", "=").index(formula.relation)),)
    top = (RANK[sign(formula)], "", 0)
    return (top, *(symbol for child in children(formula) for symbol in symbols(child)))


def sign(formula: Formula) -> str:
    """Return the top operator of a canonical formula."""
    if isinstance(formula, Connective | Temporal):
        return formula.operator
    return "U" if isinstance(formula, Until) else "!"


def parameters(formula: Formula) -> tuple[float, ...]:
    """Return thresholds and ends of intervals in preorder, without open ones."""
    values: tuple[float, ...] = ()
    if isinstance(formula, Atom) and formula.threshold is not None:
        values = (float(formula.threshold),)
    if isinstance(formula, Temporal | Until) and formula.interval is not None:
        values = (float(formula.interval[0]), float(formula.interval[1]))
    return values + tuple(value for child in children(formula) for value in parameters(child))
