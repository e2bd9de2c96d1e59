"""The tree as linguistic rules (paper, Eqs. 20 and 32)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from privfed.learners.fuzzy_tree.fuzzy import labels, to_unit
from privfed.questions.tree import (
    MOST_NAMES,
    digits_of,
    digits_text,
    ends_text,
    names_text,
    number_text,
)
from privfed.tables.schema import shown

if TYPE_CHECKING:
    from privfed.learners.fuzzy_tree.estimator import FuzzyTreeRegressor
    from privfed.learners.fuzzy_tree.growth import FuzzyNode
    from privfed.learners.pictures import TreeNode


@dataclass(frozen=True)
class EquationCode:
    """Encoding of a column in equations: (value clipped to the scaling's ends - origin) / step."""

    origin: float
    step: float
    explanation: str = ""  #: explanation of the encoding


@dataclass(frozen=True)
class FuzzyRule:
    """One rule, in the data's own units."""

    #: (feature, set's name) pairs; empty: a rule that always holds
    conditions: tuple[tuple[str, str], ...]
    target: str  #: what it predicts
    intercept: float  #: of the linear model
    slopes: dict[str, float]  #: of the linear model, by feature
    #: mean activation over training records, which normalises matches
    mean_activation: float
    constant: bool  #: whether noise or suppression left only a constant
    #: the categories in each condition's set, `` (female)``; empty for numbers
    members: tuple[str, ...] = ()
    #: significant digits in its text: four of the prediction, even if large terms cancel
    digits: int = 4
    #: the same with columns encoded, whose slopes are by step
    coded_digits: int = 4

    def __str__(self) -> str:
        return self.text({})

    def text(self, counts: Mapping[str, EquationCode]) -> str:
        """Return the rule as a sentence, with some columns encoded."""
        members = self.members or ("",) * len(self.conditions)
        tests = " AND ".join(
            f"{shown(feature)} is {fuzzy_set}{suffix}"
            for (feature, fuzzy_set), suffix in zip(self.conditions, members, strict=True)
        )
        identity, digits = EquationCode(0.0, 1.0), self.coded_digits if counts else self.digits
        shift = sum(counts.get(f, identity).origin * slope for f, slope in self.slopes.items())
        terms = [digits_text(self.intercept + shift, digits)]
        for feature, per_unit in self.slopes.items():
            slope = per_unit * counts.get(feature, identity).step
            if slope != 0:
                size = digits_text(abs(slope), digits)
                terms.append(f"{'+' if slope > 0 else '-'} {size} {shown(feature)}")
        return f"IF {tests or 'anything'} THEN {shown(self.target)} = {' '.join(terms)}"

    def to_dict(self) -> dict[str, Any]:
        """Return the rule as plain data."""
        return {
            "if": [{"feature": feature, "is": fuzzy_set} for feature, fuzzy_set in self.conditions],
            "intercept": self.intercept,
            "slopes": self.slopes,
            "mean_activation": self.mean_activation,
            "constant": self.constant,
            "text": str(self),
        }


def rules(tree: FuzzyTreeRegressor) -> list[FuzzyRule]:
    """Return one rule per leaf, with coefficients in the data's own units.

    With u = (x - l) / (h - l) - 1/2 and t = (y - a) / (b - a) - 1/2, a model t = c0 + sum c u is y
    = a + (b - a) (1/2 + c0 - sum c (l / (h - l) + 1/2)) + sum (b - a) c / (h - l) x. Values of x
    are clipped to the scaling's ends.
    """
    assert tree.schema_.target is not None
    low, high = tree.target_ or tree.schema_.target.bounds
    width = tree.upper_ - tree.lower_
    safe = np.where(width > 0, width, 1.0)
    extent = np.maximum(np.abs(tree.lower_), np.abs(tree.upper_))
    codes = counts(tree)
    coded = np.array([name in codes for name in tree.schema_.names])
    origins = np.where(coded, tree.lower_, 0.0)
    names = tree.schema_.names
    terms = [labels(len(n)) for n in tree.sets_]
    result = []
    for number, leaf in enumerate(tree.leaves_):
        first, *rest = tree.models_.coefficients[number]
        slopes = np.where(width > 0, np.array(rest) / safe, 0.0)
        offset = np.where(width > 0, tree.lower_ / safe + 0.5, 0.5) * np.array(rest)
        intercept = float(low + (high - low) * (0.5 + first - offset.sum()))
        largest, coded_largest = (
            max(abs(constant), (high - low) * float((np.abs(slopes) * extents).max()))
            for constant, extents in (
                (intercept, extent),
                (
                    intercept + (high - low) * float(origins @ slopes),
                    np.where(coded, width, extent),
                ),
            )
        )
        result.append(
            FuzzyRule(
                tuple((names[feature], terms[feature][branch]) for feature, branch in leaf.path),
                tree.schema_.target.name,
                intercept,
                {
                    name: float(slope * (high - low))
                    for name, slope in zip(names, slopes, strict=True)
                },
                float(tree.mean_activation_[number]),
                bool(tree.models_.constant[number]),
                tuple(_members(tree, feature, branch) for feature, branch in leaf.path),
                digits_of(largest, high - low),
                digits_of(coded_largest, high - low),
            )
        )
    return result


def _members(tree: FuzzyTreeRegressor, feature: int, fuzzy_set: int) -> str:
    """Format the categories of a set, with memberships below one: `` (b, c by 0.5)``; empty for a number."""
    column = tree.schema_.features[feature]
    if column.kind != "category":
        return ""
    last = len(tree.sets_[feature]) - 1
    codes = np.arange(len(column.categories), dtype=float)
    unit = to_unit(codes, *(ends[[feature]] for ends in (tree.lower_, tree.upper_)))
    degrees = np.maximum(1 - np.abs(unit * last - fuzzy_set), 0)
    some = np.flatnonzero(degrees > 0.005)
    if len(some) > MOST_NAMES:
        peak = np.flatnonzero(degrees == degrees.max())
        names = column.categories
        return f" ({names_text(names, some)}; the nearer to {names_text(names, peak)} the more)"
    named = [
        shown(column.categories[code])
        + ("" if degrees[code] > 0.995 else f" by {degrees[code]:.2g}")
        for code in some
    ]
    return f" ({', '.join(named) or 'no category'})"


def counts(tree: FuzzyTreeRegressor) -> dict[str, EquationCode]:
    """Return encodings of categories, and of integers with two values within the scaling's ends.

    Noisy ends of a scaling may be within one step of the codes, so that slopes are steep: equations then do not
    multiply a category's code.
    """
    codes = {}
    for column, low, high in zip(
        tree.schema_.features, tree.lower_.tolist(), tree.upper_.tolist(), strict=True
    ):
        if column.kind == "category":
            last = len(column.categories) - 1
            values = np.clip(np.arange(last + 1), low, high) - low
            step = (high - low) / last or 1.0
            codes[column.name] = EquationCode(
                low, step, _codes_text(column.categories, values / step)
            )
        elif column.kind == "integer" and low < high <= np.floor(low) + 1 and (low, high) != (0, 1):
            below = int(np.floor(low))
            two_valued = column.bounds == (below, below + 1) == (0, 1)
            text = "" if two_valued else f"0 up to {below}, 1 from {below + 1} on"
            codes[column.name] = EquationCode(low, high - low, text)
    return codes


def _codes_text(names: Sequence[str], codes: np.ndarray) -> str:
    """Format categories' codes, which do not fall: many between the smallest and the largest by their step."""
    if len(names) <= MOST_NAMES:
        return ", ".join(
            f"{number_text(code)} for {shown(name)}"
            for name, code in zip(names, codes.tolist(), strict=True)
        )
    codes = np.round(codes, 4)  # a scaling's exact ends are not whole to the last digit
    lowest, highest = np.flatnonzero(codes == codes[0]), np.flatnonzero(codes == codes[-1])
    if codes[0] == codes[-1]:
        return f"{number_text(codes[0])} for all"
    inner = np.arange(lowest[-1] + 1, highest[0])
    parts = [f"{number_text(codes[0])} for {names_text(names, lowest)}"]
    if len(inner):
        parts.append(f"{number_text(codes[inner[0]])} for {shown(names[inner[0]])}")
    if len(inner) > 1:
        step = number_text(codes[inner[1]] - codes[inner[0]])
        parts[-1] += f" and {step} more for each further one up to {shown(names[inner[-1]])}"
    return ", ".join([*parts, f"{number_text(codes[-1])} for {names_text(names, highest)}"])


def legend(tree: FuzzyTreeRegressor) -> list[str]:
    """Return notes for readers: which rule applies, sets' peaks, encodings of categories and far values."""
    target, columns, notes = tree.schema_.target, tree.schema_.features, []
    assert target is not None
    width = tree.upper_ - tree.lower_
    split = {feature for leaf in tree.leaves_ for feature, _ in leaf.path}
    sloped = set(np.flatnonzero(tree.models_.coefficients[:, 1:].any(axis=0)).tolist())
    if tree.n_leaves_ > 1:
        notes.append(
            "One rule predicts each case: the one whose conditions it meets best, by the product of its degrees "
            f"(1 at a set's peak, 0 at the next set's){_divisor(tree)}."
        )
    for feature in sorted(split):
        n_sets, column = tree.sets_[feature], columns[feature]
        if column.kind != "category":
            beyond = " (beyond, a degree is 1)" if n_sets[0] > 0 or n_sets[-1] < 1 else ""
            text = ", ".join(
                f"{name} at {number_text(peak, float(width[feature]))}"
                for name, peak in zip(
                    labels(len(n_sets)), peaks(tree, feature).tolist(), strict=True
                )
            )
            notes.append(
                f"Peaks of the sets of {shown(column.name)}, which overlap between them{beyond}: {text}."
            )
    encoded = counts(tree)
    codes = [f"{shown(columns[k].name)} {encoded[columns[k].name].explanation}"
            for k in sorted(sloped)
            if columns[k].name in encoded and encoded[columns[k].name].explanation]  # fmt: skip
    if codes:
        notes.append(f"Codes in equations: {'; '.join(codes)}.")
    ends = ", ".join(
        f"{shown(columns[k].name)} "
        + " to ".join(_end_text(end[k], width[k]) for end in (tree.lower_, tree.upper_))
        for k in sorted(split | sloped)
        if columns[k].name not in encoded
    )
    if ends:
        notes.append(f"Values beyond these limits count as the nearest limit: {ends}.")
    if tree.clipped:
        low, high = tree.prediction_limits_
        name = shown(target.name) + (f" ({target.description})" if target.description else "")
        notes.append(f"Predictions of {name} lie between {ends_text(low, high)}.")
    return notes


def _end_text(end: float, width: float) -> str:
    """Format an end of a range; one that is nearly zero relative to the range's width as 0."""
    return number_text(end if abs(end) > 5e-5 * width else 0.0, width)


def peaks(tree: FuzzyTreeRegressor, feature: int) -> np.ndarray:
    """Return the peaks of a feature's sets, in its own unit."""
    low, high = tree.lower_[feature], tree.upper_[feature]
    return np.asarray(low + (high - low) * np.array(tree.sets_[feature]))


def _divisor(tree: FuzzyTreeRegressor) -> str:
    """Describe what products of degrees are divided by, if rules differ in it."""
    means = tree.mean_activation_.tolist()
    halves = [0.5 ** len(leaf.path) for leaf in tree.leaves_]  # if withheld
    if len(set(means)) == 1:
        return ""
    if means == halves:
        return ", doubled for each condition"
    some = any(mean == half for mean, half in zip(means, halves, strict=True))
    withheld = " (0.5 for each condition where that was withheld)" * some
    values = ", ".join(map(number_text, means))
    return f", divided by its mean over cases that meet the rule{withheld}, rule by rule {values}"


def drawn(tree: FuzzyTreeRegressor) -> TreeNode:
    """Return the tree for plotting: splits' features, leaves' means (for a model without growth, its formula)."""
    from privfed.learners.pictures import TreeNode

    assert tree.schema_.target is not None
    low, high = tree.target_ or tree.schema_.target.bounds
    names, terms = (tree.schema_.names, [labels(len(item)) for item in tree.sets_])

    def node(item: FuzzyNode) -> TreeNode:
        if item.feature is None:
            return TreeNode(number_text(low + (high - low) * (item.mean + 0.5), high - low))
        feature = item.feature
        children = [
            (f"is {terms[feature][k]}{_members(tree, feature, k)}", node(child))
            for k, child in item.children.items()
        ]
        return TreeNode(shown(names[feature]), children)

    return node(tree.root_)
