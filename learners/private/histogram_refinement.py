"""Rounds of histograms, to locate every column's mass and estimate the signal-to-noise ratio."""

import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np

from privfed.errors import NobodyAnswered, Note
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
    blank.append(ColumnEstimate.blank(federation.schema.columns[-1]))
    answer = federation.ask(FeatureHistogram(_grid(blank))).only
    own = {client: _rows(counts, blank) for client, counts in answer.each("counts").items()}
    sizes = {
        owner: total_of(rows, [1.0] * len(blank))[0] / len(named)
        for client, rows in own.items()
        for named in [answer.releases[client].owners or (client,)]
        for owner in named
    }
    unit = answer.deviation("counts") * math.sqrt(float(SETTINGS.histogram_fraction) / len(blank))
    noises = [release.parts["counts"] for release in answer.releases.values()]
    scale = max((p.noise.parameter * float(p.grid) for p in noises if p.noise), default=0.0)
    whole = len(blank) / (2 * scale**2) / float(SETTINGS.histogram_fraction) if scale else None
    budget = RemainingBudget(whole)  # zCDP, from the cost of the first round
    refinement = _Refinement(federation, budget, sizes, blank)
    refinement.join(refinement.told(answer), refinement.ask_target(SETTINGS.target_fraction))
    feigned = 2 * math.sqrt(refinement.uncertain)
    unsure = refinement.records < feigned
    if unsure:
        warnings.warn(
            f"the noise in all histograms together could be {feigned:.0f} records by "
            "itself: the budget is too small for so few; the model may be no better than a constant",
            Note,
            stacklevel=5,
        )
    signal = signal_of(refinement.count / max(unit, 1e-9), len(blank) - 1)
    # a number's mean comes first if the counts may be noise only
    known = 0.0 if unsure and number else signal
    params = ModelParams.for_signal(known, number=number).with_linear(linear)
    for _ in range(SETTINGS.n_histograms - 1):
        refinement.closer(params, signal)
    features, target = tuple(refinement.columns[:-1]), refinement.columns[-1]
    return Look(
        Marginals(features, target, refinement.count, signal),
        params,
        budget,
        sizes,
        unit / refinement.count,
        math.sqrt(refinement.variance) / refinement.count,
        refinement.shares(),
    )


@dataclass(frozen=True, eq=False)
class _Told:
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
        look = max(params.look, self.locating(signal)) if params.look else 0.0
        finer = [own.closer(params.resolution) for own in self.columns]
        every = None
        if look:
            query = FeatureHistogram(_grid(finer))
            every = self._asked(query, finer, self.purse.part(look))
        self.columns = [*(self.columns if every is None else finer)[:-1], finer[-1]]
        self.join(every, self.ask_target(params.target))

    def locating(self, signal: float) -> float:
        """Return the fraction of the budget for locating the mass, larger for seemingly wider bounds.

        To distinguish one of M bins from the others, its records must be at least sqrt(2 ln M) times the noise of a
        count, and their ratio is the signal times the root of a tenth of the fraction.
        """
        beliefs = [own.beliefs for own in self.columns[:-1]]
        narrow = sum(own.narrow for own in beliefs if own is not None) / max(len(beliefs), 1)
        most = min(float(SETTINGS.max_histogram_fraction), SETTINGS.locating / signal**2)
        return narrow * most

    def ask_target(self, share: Fraction | float) -> _Told | None:
        own = self.columns[-1:]
        return self._asked(TargetHistogram(_grid(own)), own, self.purse.part(share))

    def _asked(
        self,
        query: FeatureHistogram | TargetHistogram,
        columns: list[ColumnEstimate],
        spend: Fraction | None,
    ) -> _Told | None:
        try:
            return self.told(self.federation.ask(query, spend=spend).only, columns)
        except NobodyAnswered:
            return None

    def told(self, answer: Answer, columns: list[ColumnEstimate] | None = None) -> _Told:
        """Return an answer's counts, scaled up to all clients."""
        present = _present(self.sizes, answer)
        rows = _rows(answer.total("counts") / present, columns or self.columns)
        return _Told(rows, (answer.deviation("counts") / present) ** 2)

    def join(self, every: _Told | None, target: _Told | None) -> None:
        rows = [] if every is None else list(every.rows)
        variances = [] if every is None else [every.variance] * len(rows)
        if target is not None:
            row, variance = target.rows[0], target.variance
            if rows:
                row, variance = joined((rows.pop(), variances.pop()), (row, variance))
            rows, variances = [*rows, row], [*variances, variance]
        if not rows:
            return
        self._count(rows, variances)
        each = zip(self.columns[-len(rows) :], rows, variances, strict=True)
        self.columns[-len(rows) :] = [
            own.updated(row, variance, self.count) for own, row, variance in each
        ]
        self._share_widths()
        self.variance = variances[-1]

    def _share_widths(self) -> None:
        told = [(j, own.beliefs) for j, own in enumerate(self.columns) if own.beliefs is not None]
        every = shared([beliefs for _, beliefs in told])
        for (j, _), beliefs in zip(told, every, strict=True):
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
    known = list(sizes.values())
    usual = max(float(np.mean(known)), 1e-9)
    here = sum(sizes.get(owner, usual) for owner in present)
    return max(here / sum(known), 1e-3)


def _grid(columns: list[ColumnEstimate]) -> BinEdges:
    return BinEdges.from_arrays([own.cuts for own in columns])


def _rows(counts: np.ndarray, columns: list[ColumnEstimate]) -> list[np.ndarray]:
    """Return each column's counts, without noise beyond its bins."""
    if counts.ndim == 1:
        return [np.asarray(counts, float)]
    each = zip(counts, columns, strict=True)
    return [np.asarray(row[: len(own.cuts) + 1], float) for row, own in each]
