"""Scaling of features to [0, 1] and the target's interval, from released histograms."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from privfed.exchange.answers import Answer
from privfed.learners.fuzzy_tree.percentiles import (
    Histograms,
    most_rounds,
    rounds,
    widened,
)
from privfed.learners.fuzzy_tree.queries import Scaling
from privfed.learners.fuzzy_tree.settings import SETTINGS
from privfed.questions.query import Query
from privfed.tables.schema import Schema


@dataclass(eq=False)
class ScalingBounds:
    """The public bounds, until something narrower is released."""

    schema: Schema  #: the public one, with a numeric target
    lower: np.ndarray = field(init=False)  #: of the features, shape (features,)
    upper: np.ndarray = field(init=False)
    #: a released interval of the target; empty for its public bounds
    target: tuple[float, ...] = ()
    #: variance of the target over the square of its interval, as far as known
    usual: float = SETTINGS.usual_variance

    def __post_init__(self) -> None:
        self.lower, self.upper = self.schema.lower.copy(), self.schema.upper.copy()

    @property
    def _bounds(self) -> list[tuple[float, float]]:
        """Of all columns, the target's last."""
        assert self.schema.target is not None
        return [column.bounds for column in (*self.schema.features, self.schema.target)]

    def learn(self, ask: Callable[[Query], Answer], bins: int) -> None:
        """Refine histograms round by round; where none are offered, the public bounds stay.

        Args:
            ask: asks one query of those who offer an answer.
            bins: of each histogram.
        """
        low, high = np.array(self._bounds).T
        edges = np.linspace(low, high, bins + 1, axis=1)
        asked, former = Scaling(bins), None
        whole = np.array([column.kind != "number" for column in self.schema.columns])
        for number in range(1, most_rounds(bins) + 1):
            answer = ask(asked)
            if "counts" not in answer:
                break
            told = Histograms.from_answer(answer, edges)
            if told.noise.any():
                told = told if former is None else told.with_former(former)
                self._take_noisy(told)
            else:
                self._take(*told.percentiles())
            noisy, usual = bool(told.noise.any()), rounds(bins)
            fine = told.fine(whole) & (number >= usual) & (not noisy)
            if fine.all() or (noisy and number == SETTINGS.noisy_rounds):
                return
            former, edges = told, np.where(fine[:, None], told.edges, told.refined())
            asked = Scaling(bins, tuple(map(tuple, edges.tolist())))

    def _take(self, lower: np.ndarray, upper: np.ndarray) -> None:
        """Take exact percentiles; of the target, only an interval that is far narrower."""
        self.lower, self.upper = lower[:-1].copy(), upper[:-1].copy()
        ends, bounds = (float(lower[-1]), float(upper[-1])), self._bounds[-1]
        self.target = widened(
            *ends,
            bounds=bounds,
            share=SETTINGS.exact_narrow_target,
            room=SETTINGS.exact_margin_target,
        )

    def _take_noisy(self, told: Histograms) -> None:
        """Take a noisy round's percentiles, only intervals that are far narrower than the bounds."""
        features, bounds = len(self.lower), self._bounds
        shares = [SETTINGS.narrow] * features + [SETTINGS.narrow_target]
        ends = [
            widened(float(low), float(high), bounds=own, share=share)
            for low, high, own, share in zip(*told.percentiles(), bounds, shares, strict=True)
        ]
        if not told.noisy(features):  # what lies beyond the ends would be lost for nothing
            ends[-1] = ()
        taken = [own or both for own, both in zip(ends, bounds, strict=True)]
        self.lower, self.upper = np.array(taken[:features], float).reshape(-1, 2).T.copy()
        self.target = ends[-1]
        low, high = self.target or bounds[-1]
        self.usual = float(told.moments()[1][-1]) / (high - low) ** 2
