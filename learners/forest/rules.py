"""Convert a forest to text rules, one per leaf from left to right, and back.

    "age" <= 41.5 and "sex" in ["female"] and "(client)" not in ["A", "C"] => 12: 0.25, 0.75

means that the leaf has 12 records of the sample, with these fractions of classes (or, for a
regression, the mean of the scaled target). Names and lists are JSON. The text of :func:`described`
is rounded, and names the classes; it cannot be parsed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from privfed.errors import InputError
from privfed.questions.tree import (
    ROUNDED,
    categories_text,
    interval_text,
    names_text,
    number_text,
)
from privfed.tables.schema import Column, Schema, shown

if TYPE_CHECKING:
    from privfed.learners.pictures import TreeNode

_STRING = r'"(?:[^"\\]|\\.)*"'
_STEP = re.compile(
    rf"({_STRING}) (<=|>|in|not in) (\[(?:{_STRING}(?:, {_STRING})*)?\]|[-+.\w]+)(?: and |$)"
)
_BEGIN = re.compile(r"tree \d+:")


def lines(data: dict[str, list[Any]]) -> list[str]:
    """Return one tree's exact rules, from its lists by node."""
    return _rules(data, lambda value: ", ".join(map(repr, value)))


def described(
    data: dict[str, list[Any]], classes: Sequence[object] = (), schema: Schema | None = None
) -> list[str]:
    """Return rounded rules for display: four significant digits, three for fractions, by class if any.

    More digits if a column's range requires them: ``age <= 41.5 => 12: dead=0.25, alive=0.75``.
    """
    return _rules(
        _rounded(data, schema),
        lambda value: _value(value, classes, schema),
        columns=_columns(schema),
    )


def notes(data: dict[str, list[Any]], schema: Schema) -> list[str]:
    """Return a note if :func:`described` rounds any cut of a column of numbers."""
    columns = _columns(schema)
    pairs = [
        (columns[n], c) for n, c in zip(data["feature"], data["cut"], strict=True) if c is not None
    ]
    numbers = ((column, cut) for column, cut in pairs if column.kind == "number")
    return [ROUNDED] * any(_short(cut, column) != float(_exact_cut(cut)) for column, cut in numbers)


def _columns(schema: Schema | None) -> dict[str, Column]:
    """Return the schema's columns by name."""
    return {} if schema is None else {column.name: column for column in schema.features}


def _rounded(data: dict[str, list[Any]], schema: Schema | None) -> dict[str, list[Any]]:
    """Return the same tree with rounded cuts."""
    columns = _columns(schema)
    cuts = [
        None if cut is None else _short(cut, columns.get(name))
        for name, cut in zip(data["feature"], data["cut"], strict=True)
    ]
    return data | {"cut": cuts}


def _value(value: list[float], classes: Sequence[object], schema: Schema | None) -> str:
    """Format a leaf's value for display."""
    if not classes:
        target = None if schema is None else schema.target
        return ", ".join(_text(_short(mean, target, whole=False)) for mean in value)
    named = zip(map(shown, map(str, classes)), value, strict=True)
    return ", ".join(f"{name}={fraction:.3g}" for name, fraction in named)


def _merge(steps: list[tuple[str, str, Any]], columns: Mapping[str, Column]) -> list[str]:
    """Format a path's conditions (name, sign, cut or list), merged by feature."""
    features = dict.fromkeys(name for name, _, _ in steps)
    return [
        _condition(name, [step[1:] for step in steps if step[0] == name], columns.get(name))
        for name in features
    ]


def _condition(name: str, steps: list[tuple[str, Any]], column: Column | None = None) -> str:
    """Merge all conditions on one feature into one: ``GCS >= 3``, ``sex = male``; clients, which have no column, by name."""
    if not isinstance(steps[0][1], list):
        above = [float(np.nextafter(cut, np.inf)) for sign, cut in steps if sign == ">"]
        below = [float(np.nextafter(cut, np.inf)) for sign, cut in steps if sign == "<="]
        ends = max(above, default=-np.inf), min(below, default=np.inf)
        return interval_text(name, *ends, column)
    if column is not None:
        sides = [np.isin(column.categories, listed) ^ (sign != "in") for sign, listed in steps]
        return categories_text(column, np.logical_and.reduce(sides))
    allowed = [set(listed) for sign, listed in steps if sign == "in"]
    excluded = list(dict.fromkeys(n for sign, omit in steps if sign == "not in" for n in omit))
    if not allowed:
        return f"{shown(name)} not in {_set_text(excluded)}"
    first = next(listed for sign, listed in steps if sign == "in")
    kept = [n for n in first if n in set.intersection(*allowed) and n not in excluded]
    return f"{shown(name)} {f'= {shown(kept[0])}' if len(kept) == 1 else f'in {_set_text(kept)}'}"


def _set_text(names: Sequence[str]) -> str:
    """Format a set of names for display."""
    return f"{{{names_text(names, np.arange(len(names)))}}}"


def _rules(
    data: dict[str, list[Any]],
    leaf: Callable[[list[float]], str],
    *,
    columns: Mapping[str, Column] | None = None,
) -> list[str]:
    """Return one tree's rules, with ``leaf`` formatting values; for parsing without ``columns``."""
    rules: list[str] = []
    stack: list[tuple[int, tuple[tuple[str, str, Any], ...]]] = [(0, ())]
    while stack:
        node, path = stack.pop()
        if data["feature"][node] is None:
            size, steps = sum(data["records"][node]), list(path)
            texts = (
                [_format(*step) for step in steps] if columns is None else _merge(steps, columns)
            )
            rules.append(
                f"{' and '.join(texts) or 'always'} => {size}: {leaf(data['value'][node])}"
            )
            continue
        left, right = _sides_of(data, node)
        stack += [(data["right"][node], (*path, right)), (data["left"][node], (*path, left))]
    return rules


def _exact_cut(cut: float) -> str:
    return str(np.float32(cut))  # the shortest text of that 32-bit float


def _short(number: float, column: Column | None, *, whole: bool = True) -> float:
    """Round a number for display, unless it is a cut of six digits or an integer's; of the latter, the last value below.

    A rounded cut would decide otherwise than the tree for values between the two.
    """
    width = np.inf if column is None else float(np.ptp(column.bounds))
    if whole:
        if column is not None and column.kind == "integer":
            return float(np.floor(number))
        number = float(_exact_cut(number))
        if float(f"{number:.6g}") == number:
            return number
    return float(number_text(number, width))


def _text(number: float) -> str:
    return f"{number:.15g}"  # 12350, not 1.235e+04


def _sides_of(
    data: dict[str, list[Any]], node: int
) -> tuple[tuple[str, str, Any], tuple[str, str, Any]]:
    """Return the conditions to go left and right: name, sign, and a cut or a list."""
    name, left_if = data["feature"][node], data["left_if"][node]
    if left_if is None:
        cut = data["cut"][node]
        return (name, "<=", cut), (name, ">", cut)
    return (name, "in", left_if), (name, "not in", left_if)


def _format(name: str, sign: str, split: Any) -> str:
    """Format one condition for parsing."""
    value = json.dumps(split) if isinstance(split, list) else _exact_cut(split)
    return f"{json.dumps(name)} {sign} {value}"


def drawn(
    data: dict[str, list[Any]], classes: Sequence[object] = (), schema: Schema | None = None
) -> TreeNode:
    """Return one tree for plotting, from its lists by node."""
    from privfed.learners.pictures import TreeNode

    rounded = _rounded(data, schema)
    columns = _columns(schema)

    def build(node: int) -> TreeNode:
        name = data["feature"][node]
        if name is None:
            return TreeNode(_value(data["value"][node], classes, schema))
        children = data["left"][node], data["right"][node]
        sides = zip(_sides_of(rounded, node), children, strict=True)
        column = columns.get(name)
        texts = [(_condition(name, [step[1:]], column), build(child)) for step, child in sides]
        return TreeNode(shown(name), texts)

    return build(0)


@dataclass(frozen=True)
class _Leaf:
    """One parsed rule: its conditions (name, sign, text), records and value."""

    steps: tuple[tuple[str, str, str], ...]
    records: int
    value: list[float]


def parse(text: str) -> dict[str, Any]:
    """Parse a forest's text to plain data; see :meth:`_FedForest.from_text`."""
    first, _, rest = text.partition("\n")
    try:
        head: dict[str, Any] = json.loads(first)
    except ValueError:
        raise InputError("the first line of a forest's text is JSON; keep it unchanged") from None
    trees: list[list[_Leaf]] = []
    for number, line in enumerate(map(str.strip, rest.splitlines()), start=2):
        if _BEGIN.fullmatch(line):
            trees.append([])
        elif line and not trees:
            raise InputError(f"line {number}: a rule stands before the first 'tree 0:'")
        elif line:
            trees[-1].append(_leaf(line, number))
    data = [_tree(leaves, number) for number, leaves in enumerate(trees)]
    return {**head, "state": {"criterion": head.get("criterion"), "trees": data}}


def _leaf(line: str, number: int) -> _Leaf:
    path, arrow, leaf = line.rpartition(" => ")
    steps = [] if path == "always" else _STEP.findall(path)
    whole = path == "always" or "".join(match.group() for match in _STEP.finditer(path)) == path
    records, _, value = leaf.partition(": ")
    with suppress(ValueError):
        numbers = [float(field) for field in value.split(", ")]
        if arrow and whole and np.isfinite(numbers).all():
            conditions = tuple((json.loads(name), sign, split) for name, sign, split in steps)
            return _Leaf(conditions, int(records), numbers)
    raise InputError(
        f'line {number} is not a rule; write "name" <= number and "name" in ["a"] => records: value'
    )


def _tree(leaves: list[_Leaf], number: int) -> dict[str, list[Any]]:
    """Return the nodes of one tree, children after parents, siblings adjacent."""
    if not leaves:
        raise InputError(f"tree {number} has no rules")
    keys = ("feature", "cut", "left_if", "left", "right", "records", "value")
    data: dict[str, list[Any]] = {key: [None] for key in keys}
    queue = [(0, leaves, 0)]
    inner: list[int] = []
    while queue:
        node, rules, depth = queue.pop(0)
        if len(rules) == 1 and len(rules[0].steps) == depth:
            data["records"][node], data["value"][node] = [rules[0].records], rules[0].value
            continue
        left, right = _sides(rules, depth, number)
        name, _, text = left[0].steps[depth]
        split = json.loads(text)
        data["feature"][node] = name
        data["left_if" if isinstance(split, list) else "cut"][node] = split
        child = len(data["feature"])
        data["left"][node], data["right"][node] = child, child + 1
        for key in keys:
            data[key] += [None, None]
        inner.append(node)
        queue += [(child, left, depth + 1), (child + 1, right, depth + 1)]
    for node in reversed(inner):  # records and value from the children's
        child = data["left"][node]
        records = [data["records"][index][0] for index in (child, child + 1)]
        weights = np.array(records, float) if sum(records) else np.ones(2)
        data["records"][node] = [sum(records)]
        values = np.array(data["value"][child : child + 2])
        data["value"][node] = (weights @ values / weights.sum()).tolist()
    return data


def _sides(leaves: list[_Leaf], depth: int, number: int) -> tuple[list[_Leaf], list[_Leaf]]:
    """Split rules by the condition at one depth."""
    steps = [leaf.steps[depth] for leaf in leaves if len(leaf.steps) > depth]
    conditions = {(name, text, sign in ("<=", ">")) for name, sign, text in steps}
    sides: tuple[list[_Leaf], list[_Leaf]] = ([], [])
    for leaf, (_, sign, _) in zip(leaves, steps, strict=False):
        sides[sign in (">", "not in")].append(leaf)
    if len(steps) < len(leaves) or len(conditions) != 1 or not all(sides):
        raise InputError(f"tree {number}: two rules do not part at one condition of its two sides")
    return sides
