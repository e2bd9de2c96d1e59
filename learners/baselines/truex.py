"""One tree for all from noisy class counts: the protocol of Truex et al. (2019), with CART splits.

S. Truex et al., "A hybrid approach to privacy-preserving federated learning", AISec 2019, Section 4.1,
made binary as the FedGA-Tree paper does (its Section IV-A2).
"""

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any, ClassVar, Self

import numpy as np

from privfed.errors import InputError, NobodyAnswered, PolicyError
from privfed.exchange.disclosure import Disclosure
from privfed.learners.base import Planned
from privfed.learners.baselines.base import BaselineClassifier, Rows
from privfed.learners.genetic_tree.counts import NodeCounts
from privfed.learners.genetic_tree.local_subtrees import Shared
from privfed.learners.genetic_tree.personal import PersonalTree
from privfed.learners.genetic_tree.population import classes
from privfed.learners.genetic_tree.structures import DEEPEST
from privfed.learners.genetic_tree.top import NoisyTreeGrower, SplitCriterion, full_tree, padded
from privfed.learners.parameters import Constraints, Integers
from privfed.privacy.policy import Guard, Policy
from privfed.questions.exact import Number, exact
from privfed.questions.query import Query
from privfed.tables.schema import Schema


class LevelCounts(NodeCounts):
    """Counts for growing a level of the tree, and for its leaves' labels."""

    kind: ClassVar[str] = "baselines.truex"


class TruexTreeClassifier(BaselineClassifier):
    """A tree from noisy class counts, level by level; nodes are split at any gain, as in CART.

    Each of the d levels and the leaves' labels spend an equal part of epsilon, with all features of
    a level together (the paper divides by 2 (d + 1) and by the features, as it queries totals and
    class counts separately; here sums over bins give the totals).

    Args:
        max_depth: d; 6 is best in the FedGA-Tree paper.
        n_bins: equal-width bins of features with many values.
    """

    _parameter_constraints: ClassVar[Constraints] = {
        "max_depth": [Integers(1, DEEPEST)],
        "n_bins": [Integers(2, 64)],
    }
    queries: ClassVar[tuple[type[Query], ...]] = (LevelCounts,)

    def __init__(self, max_depth: int = 6, n_bins: int = 5) -> None:
        self.max_depth = max_depth
        self.n_bins = n_bins

    def fit(self, federation: Disclosure) -> Self:
        """Grow the tree, and set ``shared_``; errors as for the base."""
        self._start(federation)
        schema, grower = federation.schema, NoisyTreeGrower(classes(federation.schema))
        features, open_ = np.arange(len(schema.features)), [0]
        edges = self._edges(schema)
        for level in range(self.max_depth):
            query = LevelCounts(grower.tree, np.array(open_), features, edges, None)
            try:
                counts = np.asarray(federation.ask(query).total("counts"), dtype=float)
            except NobodyAnswered:
                if not level:
                    raise
                break
            rule = SplitCriterion(min_records=0.0, noise_stds=0.0)
            open_ = grower.level(open_, counts, features, edges, 0.0, rule)
            if not open_:
                break
        self._label(federation, grower, edges)
        self.shared_ = Shared(grower.tree, grower.fractions)
        return self

    def _label(self, federation: Disclosure, grower: NoisyTreeGrower, edges: np.ndarray) -> None:
        """Query the leaves' class counts again; without an answer keep the splits' counts."""
        leaves = grower.tree.leaves
        query = LevelCounts(grower.tree, leaves, np.zeros(1, np.int64), edges[:1], None)
        try:
            counts = np.asarray(federation.ask(query).total("counts"), dtype=float)
        except NobodyAnswered:
            return
        for node, of_node in zip(leaves.tolist(), counts[:, 0].sum(axis=1), strict=True):
            grower.nodes[node].counts = of_node

    def _edges(self, schema: Schema) -> np.ndarray:
        """Return public edges: between all values of columns with few, else at equal steps."""
        rows = []
        for column in schema.features:
            low, high = column.bounds
            few = column.kind != "number" and np.floor(high) - np.ceil(low) < self.n_bins
            if few or column.kind == "category":
                rows.append(np.arange(np.ceil(low), np.floor(high)) + 0.5)
            else:
                rows.append(np.linspace(low, high, self.n_bins + 1)[1:-1])
        return padded(rows, max(map(len, rows)))

    def _outputs(self, X: Rows, client: Any) -> np.ndarray:
        leaves = self.shared_.tree.reach(self._encode(X, client))
        probabilities: np.ndarray = self.shared_.values[leaves]
        return probabilities

    def check(self, schema: Schema) -> None:
        """Check that the target is classes."""
        super().check(schema)
        if not classes(schema):
            raise InputError("TruexTreeClassifier needs a category, or an integer from 0 to 1")

    def published(self, epsilon: Number = 1, parties: int = 1) -> Policy:
        """Return a policy with Laplace noise, with total ``epsilon`` (Truex et al.: 1).

        Args:
            epsilon: of the total.
            parties: t, honest parties of a secure sum: each adds noise of a variance t - 1 times smaller, so that
                the *sum* is as noisy as one party's release would have to be. The ledger charges each party's release
                without the encryption, sqrt(t - 1) times as much.

        Raises:
            PolicyError: invalid number of parties.
        """
        if not isinstance(parties, int) or parties < 1:
            raise PolicyError(f"parties must be a whole number of at least 1, not {parties!r}")
        factor = Fraction(int(max(parties - 1, 1) ** 0.5 * 10**6), 10**6)
        spend = exact(epsilon, "epsilon") * factor / (self.max_depth + 1)
        guard = Guard.of("laplace", spend=spend, times=self.max_depth + 1)
        return Policy({LevelCounts.kind: (guard,)}, name="published")

    def plan(self, schema: Schema, policy: Policy) -> Sequence[Planned]:
        """Return each level, and the leaves."""
        features, edges = np.arange(len(schema.features)), self._edges(schema)
        tree = full_tree(self.max_depth - 1)
        return [Planned(LevelCounts(tree, tree.leaves, features, edges, None), self.max_depth + 1)]

    def state(self) -> dict[str, Any]:
        """The tree."""
        return PersonalTree(self.shared_.tree, self.shared_.values, "shared").to_dict()

    def restore(self, state: Mapping[str, Any]) -> None:
        """Read the tree."""
        shared = PersonalTree.checked(state, self.schema_, classify=True)
        self.shared_ = Shared(shared.tree, shared.values)
