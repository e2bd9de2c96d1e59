"""A forest as text rules, one for each leaf from left to right, and back.

    "age" <= 41.5 and "sex" in ["female"] and "(client)" not in ["A", "C"] => 12: 0.25, 0.75

says that 12 records of the sample were there, and the shares of the classes among them (or, for a
regression, the mean of the scaled target). Names and lists are written as JSON.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from privfed.errors import InputError

if TYPE_CHECKING:
    from privfed.learners.pictures import TreeNode

_STRING = r'"(?:[^"\\]|\\.)*"'
_STEP = re.compile(
    rf"({_STRING}) (<=|>|in|not in) (\[(?:{_STRING}(?:, {_STRING})*)?\]|[-+.\w]+)(?: and |$)"
)
_BEGIN = re.compile(r"tree \d+:")


def lines(plain: dict[str, list[Any]]) -> list[str]:
    """One tree's rules, from its lists by node."""
    found: list[str] = []
    waiting: list[tuple[int, tuple[str, ...]]] = [(0, ())]
    while waiting:
        node, path = waiting.pop()
        name = plain["feature"][node]
        if name is None:
            size = sum(plain["records"][node])
            value = ", ".join(map(repr, plain["value"][node]))
            found.append(f"{' and '.join(path) or 'always'} => {size}: {value}")
            continue
        for side, child in (("right", plain["right"][node]), ("left", plain["left"][node])):
            waiting.append((child, (*path, _condition(plain, node, name, side))))
    return found


def _condition(plain: dict[str, list[Any]], node: int, name: str, side: str) -> str:
    """How a record goes to one side of a node."""
    left_if = plain["left_if"][node]
    if left_if is None:
        cut = str(np.float32(plain["cut"][node]))  # the shortest text of that 32-bit float
        return f"{json.dumps(name)} {'<=' if side == 'left' else '>'} {cut}"
    return f"{json.dumps(name)} {'in' if side == 'left' else 'not in'} {json.dumps(left_if)}"


def drawn(plain: dict[str, list[Any]], node: int = 0) -> TreeNode:
    """One tree below a node as a picture has it, from its lists by node."""
    from privfed.learners.pictures import TreeNode

    name = plain["feature"][node]
    if name is None:
        return TreeNode(", ".join(f"{value:.3g}" for value in plain["value"][node]))
    sides = (("left", plain["left"][node]), ("right", plain["right"][node]))
    below = [(_condition(plain, node, name, side), drawn(plain, child)) for side, child in sides]
    return TreeNode(name, below)


@dataclass(frozen=True)
class _Leaf:
    """One parsed rule: its conditions (name, sign, text), records and value."""

    steps: tuple[tuple[str, str, str], ...]
    records: int
    value: list[float]


def parse(text: str) -> dict[str, Any]:
    """The plain data of a forest from its text; see :meth:`_FedForest.from_text`."""
    first, _, rest = text.partition("\n")
    try:
        head: dict[str, Any] = json.loads(first)
    except ValueError:
        raise InputError("the first line of a forest's text is JSON; keep it as it was") from None
    trees: list[list[_Leaf]] = []
    for number, line in enumerate(rest.splitlines(), start=2):
        if _BEGIN.fullmatch(line.strip()):
            trees.append([])
        elif line.strip():
            if not trees:
                raise InputError(f"line {number}: a rule stands before the first 'tree 0:'")
            trees[-1].append(_leaf(line.strip(), number))
    plain = [_tree(leaves, number) for number, leaves in enumerate(trees)]
    return {**head, "state": {"criterion": head.get("criterion"), "trees": plain}}


def _leaf(line: str, number: int) -> _Leaf:
    path, arrow, said = line.rpartition(" => ")
    steps = [] if path == "always" else _STEP.findall(path)
    whole = path == "always" or "".join(match.group() for match in _STEP.finditer(path)) == path
    records, _, value = said.partition(": ")
    try:
        numbers = [float(each) for each in value.split(", ")]
        if arrow and whole and np.isfinite(numbers).all():
            return _Leaf(
                tuple((json.loads(n), sign, v) for n, sign, v in steps), int(records), numbers
            )
    except ValueError:
        pass
    raise InputError(
        f'line {number} is no rule; write "name" <= number and "name" in ["a"] => records: value'
    )


def _tree(leaves: list[_Leaf], number: int) -> dict[str, list[Any]]:
    """The nodes of one tree, each after its parent, siblings side by side."""
    if not leaves:
        raise InputError(f"tree {number} has no rules")
    keys = ("feature", "cut", "left_if", "left", "right", "records", "value")
    plain: dict[str, list[Any]] = {key: [None] for key in keys}
    waiting = [(0, leaves, 0)]
    inner: list[int] = []
    while waiting:
        node, below, depth = waiting.pop(0)
        if len(below) == 1 and len(below[0].steps) == depth:
            plain["records"][node], plain["value"][node] = [below[0].records], below[0].value
            continue
        left, right = _parted(below, depth, number)
        name, _, said = left[0].steps[depth]
        split = json.loads(said)
        plain["feature"][node] = name
        plain["left_if" if isinstance(split, list) else "cut"][node] = split
        child = len(plain["feature"])
        plain["left"][node], plain["right"][node] = child, child + 1
        for key in keys:
            plain[key] += [None, None]
        inner.append(node)
        waiting += [(child, left, depth + 1), (child + 1, right, depth + 1)]
    for node in reversed(inner):
        _join(plain, node)
    return plain


def _parted(below: list[_Leaf], depth: int, number: int) -> tuple[list[_Leaf], list[_Leaf]]:
    """The rules on either side of the condition at one depth."""
    sides: dict[bool, list[_Leaf]] = {True: [], False: []}
    seen = set()
    for leaf in below:
        if len(leaf.steps) <= depth:
            break
        name, sign, said = leaf.steps[depth]
        seen.add((name, said, sign in ("<=", ">")))
        sides[sign in ("<=", "in")].append(leaf)
    if len(seen) != 1 or not sides[True] or not sides[False]:
        raise InputError(f"tree {number}: two rules do not part at one condition of its two sides")
    return sides[True], sides[False]


def _join(plain: dict[str, list[Any]], node: int) -> None:
    """An inner node's records and value from its children's."""
    pair = plain["left"][node], plain["right"][node]
    records = [plain["records"][child][0] for child in pair]
    values = np.array([plain["value"][child] for child in pair])
    weights = np.array(records, float) if sum(records) else np.ones(2)
    plain["records"][node] = [sum(records)]
    plain["value"][node] = (weights @ values / weights.sum()).tolist()
