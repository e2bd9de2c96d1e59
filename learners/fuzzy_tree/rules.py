"""The tree as linguistic rules (paper, Eqs. 20 and 32)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from privfed.learners.fuzzy_tree.fuzzy import labels, sets_of

if TYPE_CHECKING:
    from privfed.learners.fuzzy_tree.estimator import FuzzyTreeRegressor
    from privfed.learners.fuzzy_tree.growth import FuzzyNode
    from privfed.learners.pictures import TreeNode


@dataclass(frozen=True)
class FuzzyRule:
    """One rule, in the data's own units."""

    #: (feature, set's name) pairs; none is a rule that always holds
    conditions: tuple[tuple[str, str], ...]
    target: str  #: what it predicts
    intercept: float  #: of the linear model
    slopes: dict[str, float]  #: of the linear model, by feature
    #: average strength over training records, by which matches are normalised
    mean_activation: float
    constant: bool  #: whether noise or silence left only a constant

    def __str__(self) -> str:
        tests = " AND ".join(f"{feature} is {fuzzy_set}" for feature, fuzzy_set in self.conditions)
        terms = [f"{self.intercept:.4g}"]
        for feature, slope in self.slopes.items():
            if slope != 0:
                terms.append(f"{'+' if slope > 0 else '-'} {abs(slope):.4g} {feature}")
        return f"IF {tests or 'anything'} THEN {self.target} = {' '.join(terms)}"

    def to_dict(self) -> dict[str, Any]:
        """The rule as plain data."""
        return {
            "if": [{"feature": feature, "is": fuzzy_set} for feature, fuzzy_set in self.conditions],
            "intercept": self.intercept,
            "slopes": self.slopes,
            "mean_activation": self.mean_activation,
            "constant": self.constant,
            "text": str(self),
        }


def rules(tree: FuzzyTreeRegressor) -> list[FuzzyRule]:
    """One rule for each leaf, coefficients in the data's own units.

    With u = (x - l) / (h - l) - 1/2 and t = (y - a) / (b - a) - 1/2, a model t = c0 + sum c u is
    y = a + (b - a) (1/2 + c0 - sum c (l / (h - l) + 1/2)) + sum (b - a) c / (h - l) x.
    Values of x beyond the scaling's ends count as its ends.
    """
    assert tree.schema_.target is not None
    low, high = tree.target_ or tree.schema_.target.bounds
    width = tree.upper_ - tree.lower_
    safe = np.where(width > 0, width, 1.0)
    names = tree.schema_.names
    terms = [labels(own) for own in sets_of(tree.n_fuzzy_sets, tree.schema_)]
    found = []
    for number, leaf in enumerate(tree.leaves_):
        first, *rest = tree.models_.coefficients[number]
        slopes = np.where(width > 0, np.array(rest) / safe, 0.0)
        offset = np.where(width > 0, tree.lower_ / safe + 0.5, 0.5) * np.array(rest)
        found.append(
            FuzzyRule(
                tuple((names[feature], terms[feature][branch]) for feature, branch in leaf.path),
                tree.schema_.target.name,
                float(low + (high - low) * (0.5 + first - offset.sum())),
                {
                    name: float(slope * (high - low))
                    for name, slope in zip(names, slopes, strict=True)
                },
                float(tree.mean_activation_[number]),
                bool(tree.models_.constant[number]),
            )
        )
    return found


def drawn(tree: FuzzyTreeRegressor) -> TreeNode:
    """The tree as a picture has it: a split's feature, a leaf's mean (of a model without growth, its formula)."""
    from privfed.learners.pictures import TreeNode

    assert tree.schema_.target is not None
    low, high = tree.target_ or tree.schema_.target.bounds
    names, terms = (
        tree.schema_.names,
        [labels(own) for own in sets_of(tree.n_fuzzy_sets, tree.schema_)],
    )

    def node(own: FuzzyNode) -> TreeNode:
        if own.feature is None:
            return TreeNode(f"{low + (high - low) * (own.mean + 0.5):.4g}")
        feature = own.feature
        below = [(f"is {terms[feature][k]}", node(child)) for k, child in own.children.items()]
        return TreeNode(names[feature], below)

    return node(tree.root_)
