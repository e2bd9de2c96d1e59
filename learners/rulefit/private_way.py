"""The private way: the private engine's model, converted to rules and linear terms."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from privfed.exchange.disclosure import Disclosure
from privfed.learners import private
from privfed.learners.base import Planned
from privfed.learners.private import PrivateModel
from privfed.learners.private.basis import Trees
from privfed.learners.rulefit.cutoffs import Cutoffs
from privfed.learners.rulefit.model import ClassEnsembles, RuleEnsemble
from privfed.learners.rulefit.published import FittedRules, RuleFitParams
from privfed.learners.rulefit.rules import Terms
from privfed.learners.rulefit.short import shortened
from privfed.learners.ways import Way
from privfed.tables.schema import Schema


class PrivateRuleFit(Way[RuleFitParams, FittedRules]):
    """Random rules and noisy sums by bin and leaf; see :mod:`privfed.learners.private`."""

    name = "private"
    queries = private.QUERIES

    def plan(self, schema: Schema) -> Sequence[Planned]:
        """See the base."""
        return private.schedule(schema, self._outcome(schema))

    def learn(self, federation: Disclosure, rng: np.random.Generator) -> FittedRules:
        """See the base."""
        outcome = self._outcome(federation.schema)
        fitted = private.learn(federation, outcome, rng, linear=self.params.linear)
        limits = fitted.outcome.lower, fitted.outcome.upper
        max_terms, stable = self.params.max_terms, self.params.stable
        monotonic = self.params.monotonic
        if max_terms is None:
            models = [as_rules(fitted, output) for output in range(len(fitted.start))]
        else:
            (stream,) = rng.spawn(1)
            models = shortened(fitted, max_terms, stream, stable=stable, monotonic=monotonic)
        return FittedRules(ClassEnsembles.joined(models, "softmax"), limits, fitted.rounds)

    def _outcome(self, schema: Schema) -> private.Outcome:
        return private.Outcome.of(schema, not self.params.boosting.logistic)


def as_rules(fitted: PrivateModel, output: int = 0) -> RuleEnsemble:
    """Convert one score of a fitted model to a rule ensemble.

    A column's bin and a tree's leaf are rules, without unreachable leaves and duplicates. If the linear term is a rank,
    which is not linear, its steps are added to the column's bins. Supports and deviations are those of the synthetic
    records, at no cost.
    """
    basis, columns = fitted.basis, fitted.basis.columns
    cutoffs = cutoffs_of(fitted)
    steps, stats = _steps(fitted, output)
    leaves = [_leaves(trees, cutoffs.sizes) for trees in basis.trees]
    boxes = np.concatenate([steps, *leaves]).astype(np.uint8)
    first = basis.size - sum(trees.count * trees.leaves for trees in basis.trees)
    effects = fitted.effects[:, output]
    stats = np.concatenate([stats, np.column_stack([effects, fitted.means])[first:]])
    whole = (boxes[..., 0] == 0) & (boxes[..., 1] >= cutoffs.sizes)
    intercept = float(fitted.start[output]) + float(stats[whole.all(axis=1), 0].sum())
    proper = (boxes[..., 0] < boxes[..., 1]).all(axis=1) & ~whole.all(axis=1)
    unique, weights, supports = _merge(boxes[proper], stats[proper])
    linear = () if fitted.ranked else tuple(np.flatnonzero(effects[:columns]).tolist())
    weights = np.concatenate([[intercept], weights, effects[list(linear)]])
    if fitted.outcome.kind == "number":  # scaled to [-1/2, 1/2] there, to [-1, 1] here
        weights = 2 * weights
    deviations = np.sqrt(np.maximum(supports * (1 - supports), 0))
    return RuleEnsemble(
        fitted.schema,
        Terms(cutoffs, unique, linear),
        weights,
        supports,
        np.concatenate([deviations, fitted.deviations[list(linear)]]),
    )


def cutoffs_of(fitted: PrivateModel) -> Cutoffs:
    """Return the shared cut-offs; linear terms increase from -1 to 1 between their limits."""
    lower, upper = fitted.limits.T
    return Cutoffs(fitted.basis.grid.cuts, lower, upper, 0.2 * (upper - lower))


def _steps(fitted: PrivateModel, output: int) -> tuple[np.ndarray, np.ndarray]:
    """Return boxes of the columns' codes, merged if of equal effect, and (effect, support) of each."""
    basis, sizes = fitted.basis, fitted.basis.grid.sizes
    effects, boxes, stats = fitted.effects[:, output], [], []
    for j, size in enumerate(sizes):
        index = basis.starts[j] + basis.bins[j, :size].astype(int)
        heights = effects[index]
        if fitted.ranked:
            heights = heights + effects[j] * basis.values[j, :size]
        edges = np.concatenate([[0], np.flatnonzero(np.diff(heights)) + 1, [size]])
        for low, high in pairwise(edges.tolist()):
            box = np.column_stack([np.zeros_like(sizes), sizes])
            box[j] = (low, high)
            boxes.append(box)
            stats.append((heights[low], fitted.shares[j, low:high].sum()))
    return np.array(boxes), np.array(stats)


def _leaves(trees: Trees, sizes: np.ndarray) -> np.ndarray:
    """Return boxes of all leaves, tree after tree; unreachable ones are empty."""
    depth = trees.features.shape[1]
    boxes = np.empty((trees.count, trees.leaves, len(sizes), 2), np.int64)
    boxes[..., 0], boxes[..., 1] = 0, sizes
    for tree in range(trees.count):
        for level in range(depth):
            feature, cut = int(trees.features[tree, level]), int(trees.cuts[tree, level])
            right = (np.arange(trees.leaves) >> level & 1).astype(bool)
            spans = boxes[tree, :, feature]
            spans[right, 0] = np.maximum(spans[right, 0], cut)
            spans[~right, 1] = np.minimum(spans[~right, 1], cut)
    return boxes.reshape(-1, len(sizes), 2)


def _merge(boxes: np.ndarray, stats: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    width = boxes.shape[1] * boxes.shape[2]
    flat, first, inverse = np.unique(
        boxes.reshape(len(boxes), width), axis=0, return_index=True, return_inverse=True
    )
    weights = np.bincount(inverse.ravel(), stats[:, 0], minlength=len(flat))
    return flat.reshape(len(flat), *boxes.shape[1:]), weights, stats[first, 1]
