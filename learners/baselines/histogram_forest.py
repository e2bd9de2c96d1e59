"""Federated histogram forest (Kalloori and Klingler 2022): equal widths between all clients' extremes."""

from dataclasses import replace
from typing import ClassVar

from privfed.learners.baselines.base import Baseline
from privfed.learners.forest import FedForestClassifier, FedForestRegressor
from privfed.learners.forest.growth import ForestParams
from privfed.learners.forest.published import PublishedForest
from privfed.learners.forest.queries import BinStatistics, Sketches
from privfed.learners.parameters import Constraints, Integers, inherited
from privfed.learners.ways import LearnerByWays, Ways
from privfed.questions.query import Query
from privfed.tables.schema import Schema

_CONSTRAINTS: Constraints = {
    **{
        name: FedForestClassifier._parameter_constraints[name]
        for name in (
            "n_estimators",
            "max_depth",
            "min_samples_leaf",
            "max_features",
            "random_state",
        )
    },
    "n_bins": [Integers(at_least=2, at_most=1000)],
}


class HistogramForest(PublishedForest):
    """FedForest's protocol, of which it asks extremes and bins alone."""

    queries: ClassVar[tuple[type[Query], ...]] = (Sketches, BinStatistics)


class _HistogramForest(Baseline, LearnerByWays):
    """What both share: their parameters, and bins of equal width."""

    ways: ClassVar[Ways] = (HistogramForest,)
    _parameter_constraints: ClassVar[Constraints] = _CONSTRAINTS

    def __init__(
        self,
        *,
        n_estimators: int = 100,
        max_depth: int | None = 10,
        min_samples_leaf: int = 5,
        max_features: float | str | None = None,
        n_bins: int = 10,
        random_state: int | None = None,
    ) -> None:
        self.n_bins = n_bins
        super().__init__(
            n_estimators=n_estimators,
            max_depth=max_depth,
            min_samples_leaf=min_samples_leaf,
            max_features=max_features,
            random_state=random_state,
        )

    def _params(self, schema: Schema) -> ForestParams:
        params: ForestParams = super()._params(schema)  # type: ignore[safe-super]
        return replace(params, quantiles=self.n_bins, candidates="range")


@inherited(max_features="sqrt")
class HistogramForestClassifier(_HistogramForest, FedForestClassifier):
    """A federated forest over equal-width bins.

    Args:
        n_estimators: how many.
        max_depth: most splits on a path.
        min_samples_leaf: fewest records of a leaf.
        max_features: how many features each node looks at.
        n_bins: equal widths of each feature.
        random_state: seed of the server's own draws.
    """


class HistogramForestRegressor(_HistogramForest, FedForestRegressor):
    """A regression forest over equal-width bins; parameters as :class:`HistogramForestClassifier`."""
