"""Rounds of histograms, to locate every column's mass and estimate the signal-to-noise ratio."""

import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np

from privfed.errors import NobodyAnswered, Note, small_budget
from privfed.exchange.disclosure import Answer, Disclosure
from privfed.learners.private.grid import BinEdges, one_bin_each
from privfed.learners.private.marginals import (
    ColumnEstimate,
    Marginals,
    Shares,
    joined,
    signal_of,
    total_of,
)
from privfed.learners.private.planning import RemainingBudget
from privfed.learners.private.queries import FeatureHistogram, TargetHistogram
from privfed.learners.private.settings import SETTINGS, ModelParams
from privfed.learners.private.support_posterior import shared


@dataclass(frozen=True, eq=False)
class Look:
    """Results of the histograms."""

    marginals: Marginals  #: estimated marginal distributions
    params: ModelParams  #: parameters chosen by signal-to-noise ratio
    purse: RemainingBudget
    sizes: Mapping[str, float]  #: each client's number of records, from the first round
    unit: float  #: noise of a count at the whole budget, as a fraction of the records
    noise: float  #: noise of a count of the target, as a fraction of the records
    classes: Shares | None  #: the classes' fractions of the records; None for a number

    def present(self, answer: Answer) -> float:
        """Return the answering clients' fraction of the records, by the first counts."""
        return _present(self.sizes, answer)


def look(federation: Disclosure, *, linear: bool, number: bool) -> Look:
    """Query all rounds; the first one's signal-to-noise ratio chooses the model's parameters.

    Raises:
        NobodyAnswered: no client answered the first round.
    """
    blank = [ColumnEstimate.in_an_interval(column) for column in federation.schema.features]
    column = federation.schema.columns[-1]
    blank.append(ColumnEstimate.of_target(column) if number else ColumnEstimate.blank(column))
    answer = federation.ask(FeatureHistogram(_grid(blank))).only
    counted = {client: _rows(counts, blank) for client, counts in answer.each("counts").items()}
    sizes = {
        owner: total_of(rows, [1.0] * len(blank))[0] / len(owners)
        for client, rows in counted.items()
        for owners in [answer.releases[client].owners or (client,)]
        for owner in owners
    }
    unit = answer.deviation("counts") * math.sqrt(float(SETTINGS.histogram_fraction) / len(blank))
    noises = [release.parts["counts"] for release in answer.releases.values()]
    scale = max((p.noise.parameter * float(p.grid) for p in noises if p.noise), default=0.0)
    rho = len(blank) / (2 * scale**2) / float(SETTINGS.histogram_fraction) if scale else None
    budget = RemainingBudget(rho)  # zCDP, from the cost of the first round
    refinement = _Refinement(federation, budget, sizes, blank)
    refinement.join(refinement.scaled(answer), refinement.ask_target(SETTINGS.target_fraction))
    noise_total = 2 * math.sqrt(refinement.uncertain)
    unsure = refinement.records < noise_total
    if unsure:
        warnings.warn(small_budget(noise_total), Note, stacklevel=5)
    signal = signal_of(refinement.count / max(unit, 1e-9), len(blank) - 1)
    # a number's mean comes first if the counts may be noise only
    ratio = 0.0 if unsure and number else signal
    params = ModelParams.for_signal(ratio, number=number).with_linear(linear)
    for _ in range(SETTINGS.n_histograms - 1):
        refinement.closer(params, signal)
    classes = None if number else refinement.shares()
    if classes is not None and classes.uncertain and not unsure:
        warnings.warn(
            "the noise of all counts leaves the odds of a class uncertain by a factor of "
            f"{math.exp(classes.spread):.1f} (one standard deviation, the classes' mean): the budget is too small for so "
            "few records of it, and the model may be worse than a constant",
            Note,
            stacklevel=5,
        )
    features, target = tuple(refinement.columns[:-1]), refinement.columns[-1]
    return Look(
        Marginals(features, target, refinement.count, signal),
        params,
        budget,
        sizes,
        unit / refinement.count,
        math.sqrt(refinement.variance) / refinement.count,
        classes,
    )


@dataclass(frozen=True, eq=False)
class _NoisyCounts:
    """Noisy counts by column, and the noise variance of each count."""

    rows: list[np.ndarray]
    variance: float


@dataclass(eq=False)
class _Refinement:
    """The state between two rounds; the target is the last column."""

    federation: Disclosure
    purse: RemainingBudget
    sizes: Mapping[str, float]
    columns: list[ColumnEstimate]
    records: float = 0.0  #: from all counts so far
    uncertain: float = field(default=math.inf)
    variance: float = field(default=math.inf)

    @property
    def count(self) -> float:
        return max(SETTINGS.min_records, self.records)

    def closer(self, params: ModelParams, signal: float) -> None:
        fraction = max(params.look, self.locating(signal)) if params.look else 0.0
        finer = [column.closer(params.resolution) for column in self.columns]
        counts = None
        if fraction:
            query = FeatureHistogram(_grid(finer))
            counts = self._ask(query, finer, self.purse.part(fraction))
        self.columns = [*(self.columns if counts is None else finer)[:-1], finer[-1]]
        self.join(counts, self.ask_target(params.target))

    def locating(self, signal: float) -> float:
        """Return the fraction of the budget for locating the mass, larger for seemingly wider bounds.

        To distinguish one of M bins from the others, its records must be at least sqrt(2 ln M) times the noise of a
        count, and their ratio is the signal times the root of a tenth of the fraction.
        """
        beliefs = [c.beliefs for c in self.columns[:-1]]
        narrow = sum(c.narrow for c in beliefs if c is not None) / max(len(beliefs), 1)
        limit = min(float(SETTINGS.max_histogram_fraction), SETTINGS.locating / signal**2)
        return narrow * limit

    def ask_target(self, fraction: Fraction | float) -> _NoisyCounts | None:
        target = self.columns[-1:]
        return self._ask(TargetHistogram(_grid(target)), target, self.purse.part(fraction))

    def _ask(
        self,
        query: FeatureHistogram | TargetHistogram,
        columns: list[ColumnEstimate],
        spend: Fraction | None,
    ) -> _NoisyCounts | None:
        try:
            return self.scaled(self.federation.ask(query, spend=spend).only, columns)
        except NobodyAnswered:
            return None

    def scaled(self, answer: Answer, columns: list[ColumnEstimate] | None = None) -> _NoisyCounts:
        """Return an answer's counts, scaled up to all clients."""
        present = _present(self.sizes, answer)
        rows = _rows(answer.total("counts") / present, columns or self.columns)
        return _NoisyCounts(rows, (answer.deviation("counts") / present) ** 2)

    def join(self, counts: _NoisyCounts | None, target: _NoisyCounts | None) -> None:
        rows = [] if counts is None else list(counts.rows)
        variances = [] if counts is None else [counts.variance] * len(rows)
        if target is not None:
            row, variance = target.rows[0], target.variance
            if rows:
                row, variance = joined((rows.pop(), variances.pop()), (row, variance))
            rows, variances = [*rows, row], [*variances, variance]
        if not rows:
            return
        self._count(rows, variances)
        updates = zip(self.columns[-len(rows) :], rows, variances, strict=True)
        self.columns[-len(rows) :] = [
            column.updated(row, variance, self.count) for column, row, variance in updates
        ]
        self._share_widths()
        self.variance = variances[-1]

    def _share_widths(self) -> None:
        indexed = [(j, c.beliefs) for j, c in enumerate(self.columns) if c.beliefs is not None]
        posteriors = shared([beliefs for _, beliefs in indexed])
        for (j, _), beliefs in zip(indexed, posteriors, strict=True):
            self.columns[j] = self.columns[j].believed(beliefs, self.count)

    def shares(self) -> Shares | None:
        target = self.columns[-1]
        if target.counted is None or not one_bin_each(target.column):
            return None
        return Shares.from_counts(*target.counted, self.count, self.uncertain)

    def _count(self, rows: list[np.ndarray], variances: list[float]) -> None:
        records, uncertain = total_of(rows, variances)
        trust = 1.0 if math.isinf(self.uncertain) else self.uncertain / (self.uncertain + uncertain)
        self.records += trust * (records - self.records)
        self.uncertain = trust * uncertain


def _present(sizes: Mapping[str, float], answer: Answer) -> float:
    present = [o for c, release in answer.releases.items() for o in release.owners or (c,)]
    if set(present) == set(sizes):
        return 1.0
    counts = list(sizes.values())
    mean = max(float(np.mean(counts)), 1e-9)
    answering = sum(sizes.get(owner, mean) for owner in present)
    return max(answering / sum(counts), 1e-3)


def _grid(columns: list[ColumnEstimate]) -> BinEdges:
    return BinEdges.from_arrays([column.cuts for column in columns])


def _rows(counts: np.ndarray, columns: list[ColumnEstimate]) -> list[np.ndarray]:
    """Return each column's counts, without noise beyond its bins."""
    if counts.ndim == 1:
        return [np.asarray(counts, float)]
    pairs = zip(counts, columns, strict=True)
    return [np.asarray(row[: len(column.cuts) + 1], float) for row, column in pairs]
