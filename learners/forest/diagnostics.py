"""Two tests of heterogeneity (paper, Appendix F.4).

For homogeneous clients, averaged decreases, shortlists and trees of few clients save communication; under covariate
shift, exact statistics are required; under outcome shift, splits on the client.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats
from sklearn.base import clone

from privfed.errors import InputError
from privfed.exchange.disclosure import Disclosure
from privfed.learners.forest.growth import ForestGrower, ForestParams
from privfed.learners.forest.level import NodeFeatures, OpenNodes
from privfed.learners.forest.level_queries import ask_about, versions
from privfed.learners.forest.model import FittedForest
from privfed.learners.forest.queries import Sketches
from privfed.learners.forest.samples import Sampling
from privfed.learners.forest.settings import SETTINGS
from privfed.learners.forest.trees import BinaryTrees
from privfed.learners.impurity import neg_weighted_impurity


@dataclass(frozen=True)
class CovariateShift:
    """The covariate shift between clients."""

    gain: float  #: relative decrease of the client impurity (Gini) by the best root split
    p_value: float  #: of the same split on the other half of the records, by a chi-squared test
    #: mean one-versus-rest AUC for the client, on that half; 1/2 by chance
    auc: float
    #: features' importances for the client, by name
    importances: dict[str, float]


def covariate_shift(
    federation: Disclosure, *, depth: int = 4, min_leaf: int = 20, random_state: int | None = None
) -> CovariateShift:
    """Grow one tree that predicts the client, on half of each client's records; score the other half.

    The halves are drawn by the records' secret coins. Quantiles and counts are released, but no
    targets.

    Args:
        federation: the clients.
        depth: maximum splits on a path of the tree.
        min_leaf: minimum records of a leaf.
        random_state: names the draw of the halves.

    Raises:
        InputError: there is but one client.
        NobodyAnswered: no client answered.
    """
    clients, features = len(federation.clients), len(federation.schema.features)
    if clients < 2:
        raise InputError("comparing clients needs at least two")
    seed = int(np.random.default_rng(random_state).integers(2**62))
    params = ForestParams(
        trees=1,
        max_depth=depth,
        min_leaf=min_leaf,
        criterion="gini",
        classes=clients,
        per_node=features,
        quantiles=SETTINGS.max_quantiles,
        sampling="split",
        seed=seed,
    )
    halves = [Sampling("split", seed, np.array([half]), 2) for half in (0, 1)]
    grown = ForestGrower(federation, params, target_client=True, sampling=halves[0]).grow()
    learned = grown.totals.sum(axis=0).astype(float)
    fresh = _counts_of_leaves(federation, grown.trees, halves[1]).astype(float)
    fractions = learned / np.maximum(learned.sum(axis=1, keepdims=True), 1)
    schema, records = federation.schema, learned.T.astype(np.int64)
    forest = FittedForest(
        grown.trees, fractions, records, schema, tuple(federation.clients), "gini"
    )
    importances = dict(zip(schema.names, forest.importances().tolist(), strict=False))
    auc = _auc(grown.trees, fractions, fresh)
    return CovariateShift(*_root_split(grown.trees, learned, fresh), auc, importances)


def _counts_of_leaves(federation: Disclosure, trees: BinaryTrees, half: Sampling) -> np.ndarray:
    """Query the other half's records in each leaf, by client, shape (nodes, clients)."""
    leaves = np.flatnonzero(~trees.inner)
    no_pairs = NodeFeatures(np.zeros(len(leaves), np.int64), np.zeros(0, np.int64))
    level = OpenNodes(trees, half, leaves, no_pairs, no_pairs, 1)
    everyone = np.ones((len(federation.clients), 1), bool)
    by_client = versions(level, everyone, len(federation.schema.features))
    replies = ask_about(federation, level, by_client, lambda version: Sketches(version.level, 1))
    counts = np.zeros((len(trees), len(federation.clients)), np.int64)
    counts[leaves] = replies.statistics().at(np.arange(len(leaves)))[:, :, 0].T
    return counts


def _root_split(trees: BinaryTrees, learned: np.ndarray, fresh: np.ndarray) -> tuple[float, float]:
    """Return the relative impurity decrease of the root's split, and its chi-squared p-value."""
    if not trees.inner[0]:
        return 0.0, 1.0
    sides = trees.left[0] + np.arange(2)
    size = learned[[0, *sides]].sum(axis=1)
    impurity = size - neg_weighted_impurity(learned[[0, *sides]], "gini")
    gain = float(1 - impurity[1:].sum() / impurity[0])
    parents = trees.parents()
    node = np.arange(len(trees))
    while parents[node].any():
        node = np.where(parents[node] > 0, parents[node], node)
    table = np.array([fresh[node == side].sum(axis=0) for side in sides])
    table = table[:, table.sum(axis=0) > 0]
    if table.shape[1] < 2 or not table.any(axis=1).all():
        return gain, 1.0
    return gain, float(stats.chi2_contingency(table, correction=False).pvalue)


def _auc(trees: BinaryTrees, fractions: np.ndarray, fresh: np.ndarray) -> float:
    """Return the clients' mean AUC, with their fraction of a leaf's learned records as score."""
    leaves = np.flatnonzero(~trees.inner)
    aucs = []
    for client in range(fresh.shape[1]):
        members = fresh[leaves, client]
        others = fresh[leaves].sum(axis=1) - members
        if not members.sum() or not others.sum():
            continue
        score = fractions[leaves, client]
        wins = (score[:, None] > score) + 0.5 * (score[:, None] == score)
        aucs.append(float(members @ wins @ others / (members.sum() * others.sum())))
    return float(np.mean(aucs)) if aucs else 0.5


@dataclass(frozen=True)
class OutcomeShift:
    """Out-of-bag scores (accuracy or R^2) of a forest on the features alone, and with splits on the client."""

    without: float
    within: float

    @property
    def gain(self) -> float:
        """The improvement by splits on the client; above noise if outcomes differ given equal features."""
        return self.within - self.without


def outcome_shift(federation: Disclosure, learner: Any) -> OutcomeShift:
    """Compare out-of-bag scores of two clones of a forest, without and with splits on the client."""
    scores = [
        clone(learner).set_params(client_splits=way, oob_score=True).fit(federation).oob_score_
        for way in (False, True)
    ]
    return OutcomeShift(*scores)
