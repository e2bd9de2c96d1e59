"""The private linear model, and its leaf random effects, in rounds of noisy queries."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from privfed.exchange.disclosure import Answer
from privfed.learners.fuzzy_tree.fuzzy import Peaks
from privfed.learners.fuzzy_tree.linear import Coordinates
from privfed.learners.fuzzy_tree.settings import SETTINGS
from privfed.learners.fuzzy_tree.shrinkage import (
    Count,
    DesignEstimate,
    ResidualSums,
    SecondMoments,
    Target,
    departures,
    leaf_random_effects,
)
from privfed.questions.cells import Path


@dataclass(eq=False)
class ModelRounds:
    """The state between rounds; models are deviations from the mean target."""

    #: queries second moments in some coordinates; None if no client answers
    ask_moments: Callable[[Coordinates], Answer | None]
    #: queries residuals by node, at a model and clipped at a limit; None likewise
    ask_residuals: Callable[[Sequence[Path], Coordinates, np.ndarray, float], Answer | None]
    features: tuple[int, ...]  #: positions of the linear terms
    count: Count  #: of the records
    target: Target  #: estimates of the target
    #: by feature of the schema, its sets' peaks, and whether each has only one category
    sets: Sequence[tuple[Peaks, bool]]
    clip: float = SETTINGS.clips[0]  #: limit of residuals, in their std
    coordinates: Coordinates = field(init=False)
    model: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        self.coordinates = Coordinates.public(self.features)
        self.model = self._constant
        self._design: SecondMoments | None = None
        self._rounds: list[ResidualSums] = []
        self._departure: float | None = None
        self._noise = math.inf

    @property
    def plain(self) -> np.ndarray:
        """Return the model in (1, u - 1/2), shape (width,); a constant is its prediction at the means."""
        if not self.constant:
            return self.coordinates.plain(self.model)
        level = self.target.mean
        if self._design is not None:
            level = float(np.append(self.coordinates.lead, self._shape.means) @ self.model)
        return np.append(level, np.zeros(len(self.features)))

    @property
    def blank(self) -> bool:
        """Whether no client released second moments."""
        return self._design is None

    @property
    def constant(self) -> bool:
        """Whether the model explains too little, and is a constant."""
        if self._design is None:
            return True
        return self._shape.explained(self.model) < SETTINGS.min_explained * self.target.variance

    def learn(
        self, leaves: Sequence[Path], weights: np.ndarray, apart: float = 0.0
    ) -> np.ndarray | None:
        """Run all rounds; return leaf effects in (1, u - 1/2), shape (leaves, width), or None for a single model.

        Args:
            leaves: of a tree, which the last round may be about.
            weights: records by leaf, as far as known.
            apart: maximum difference between a leaf's mean target and that of all, which residuals of leaves may have.
        """
        for number in range(SETTINGS.moment_rounds):
            if number:
                self._recentre()
            answer = self.ask_moments(self.coordinates)
            if answer is None:
                break
            noise, lead = answer.deviation("moments"), self.coordinates.lead
            self._combine(SecondMoments.from_sums(answer.total("moments"), noise, self.count, lead))
            self._step()
        if self._design is None:
            return None
        for _ in range(SETTINGS.residual_rounds - SETTINGS.moment_rounds - 1):
            self._step()
        effects = None
        if len(leaves) > 1 and self._pays(len(leaves)):
            effects = self._leaves(leaves, weights, apart)
        else:
            self._step()
        self.model = self._without_flat(self.model)
        return effects

    # --- the design --------------------------------------------------------------------------------

    def _combine(self, moments: SecondMoments) -> None:
        """Combine moments; rescale earlier residuals if records' weights changed."""
        ratio = moments.count.records / max(self.count.records, 1.0)
        self._rounds = [
            replace(r, sums=ratio * r.sums, noise=ratio**2 * r.noise) for r in self._rounds
        ]
        self.count = moments.count
        self._design = moments if self._design is None else self._design.joined(moments)

    @property
    def _shape(self) -> DesignEstimate:
        assert self._design is not None
        return DesignEstimate.from_moments(self._design, self.coordinates.lead)

    def _recentre(self) -> None:
        """Set coordinates about the means, with features scaled by their importance."""
        if self._design is None or not self.features:
            return
        shape, previous = self._shape, self.coordinates
        variances = self._variances(shape)
        weight = np.abs(self.model[1:]) * np.sqrt(variances)
        ratio = weight / max(float(weight.mean()), 1e-12)
        stretch = (SETTINGS.even_stretch + (1 - SETTINGS.even_stretch) * ratio) / np.sqrt(variances)
        centre = previous.centre + shape.means / previous.scale
        self.coordinates = Coordinates.about(
            self.features, centre, stretch * previous.scale, variances / previous.scale**2
        )
        self._move(previous, previous.into(self.coordinates))

    def _variances(self, shape: DesignEstimate) -> np.ndarray:
        """Return features' variances, shrunk towards their mean as far as noise may explain differences."""
        assert self._design is not None
        observed = np.diag(self._design.moments)[1:] - shape.means**2
        noise = np.diag(self._design.variances)[1:]
        mean = max(float(observed.mean()), math.sqrt(float(noise.mean()) / len(observed)), 1e-6)
        excess = max(float(((observed - mean) ** 2 - noise).mean()), 0.0)
        shrunk = mean + excess / (excess + noise + 1e-18) * (observed - mean)
        ratio = SETTINGS.max_variance_ratio
        return np.asarray(np.clip(shrunk, mean / ratio, mean * ratio))

    def _without_flat(self, models: np.ndarray) -> np.ndarray:
        """Return models, shape (..., width), without slopes of nearly constant features.

        Their variance is within its noise, though a tenth of the features' mean variance would not be: their slopes
        belong to the level. Coordinates are about the means, where predictions are unchanged.
        """
        assert self._design is not None
        observed = np.diag(self._design.moments)[1:] - self._shape.means**2
        noise = 2 * np.sqrt(np.diag(self._design.variances)[1:])
        flat = (observed <= noise) & (observed + noise <= SETTINGS.still_variance * observed.mean())
        return np.where(np.append(False, flat), 0.0, models)

    def _move(self, previous: Coordinates, matrix: np.ndarray) -> None:
        """Transform the state to the new coordinates."""
        assert self._design is not None
        self._design = self._design.moved(matrix)
        self.model = np.linalg.solve(matrix.T, self.model)
        self._rounds = [
            replace(r, sums=matrix @ r.sums, noise=matrix @ r.noise @ matrix.T)
            for r in self._rounds
        ]
        if self._departure is not None:
            ratio = previous.scale / self.coordinates.scale
            self._departure *= float(np.mean(ratio**2))

    def learn_from(self, gram: np.ndarray, moment: np.ndarray, noise: tuple[float, float]) -> None:
        """Learn from one round, if clients offer no more: X'X and X'y in (1, u - 1/2), and their noise stds."""
        zeros = np.zeros(len(self.features))
        self.coordinates = Coordinates(self.features, zeros, zeros + 1, 1.0)
        self.model = self._constant
        self._combine(SecondMoments.from_sums(gram, noise[0], self.count, 1.0))
        self._learn(moment - self._shape.gram @ self.model, noise[1])

    # --- the model ---------------------------------------------------------------------------------

    @property
    def _constant(self) -> np.ndarray:
        """Return the mean target without slopes."""
        model = np.zeros(self.coordinates.width)
        model[0] = self.target.mean / self.coordinates.lead
        return model

    @property
    def _residual_var(self) -> float:
        """Return the variance of the residuals at the model so far."""
        explained = self._shape.explained(self.model) if self._design is not None else 0.0
        total = self.target.variance
        return max(total - SETTINGS.explained_trust * explained, SETTINGS.min_unexplained * total)

    def _clip(self) -> float:
        limit = max(SETTINGS.min_clip, self.clip * math.sqrt(self._residual_var))
        return min(1.0 if self._rounds else 0.5 + abs(self.target.mean), limit)

    def _step(self) -> None:
        """Query residuals of all records at the model so far, and update the model."""
        clip = self._clip()
        answer = self.ask_residuals(((),), self.coordinates, self.model, clip)
        if answer is None or self._design is None:
            return
        self._noise = answer.deviation("residuals") / clip
        self._learn(answer.total("residuals")[0], answer.deviation("residuals"))

    def _learn(self, residuals: np.ndarray, noise: float) -> None:
        shape = self._shape
        sums = residuals + shape.gram @ (self.model - self._constant)
        self._rounds.append(ResidualSums(sums, noise**2 * np.eye(len(sums)), self._departure))
        shift, self._departure = departures(shape, self._rounds, self.target, self._residual_var)
        self.model = self._constant + shift

    # --- leaves ------------------------------------------------------------------------------------

    def _pays(self, leaves: int) -> bool:
        """Whether residuals by leaf would exceed their noise, as it was so far."""
        required = SETTINGS.records_per_noise * self._noise * self.coordinates.width
        return self.count.records / leaves > required

    def _leaves(
        self, leaves: Sequence[Path], weights: np.ndarray, apart: float
    ) -> np.ndarray | None:
        """Return leaf effects if they are probable, else None."""
        clip = self._clip()
        if apart:
            clip = min(1.0, max(clip, apart + math.sqrt(self._residual_var)))
        answer = self.ask_residuals(leaves, self.coordinates, self.model, clip)
        if answer is None:
            return None
        floored = np.maximum(weights, weights.sum() / len(leaves) / 50)
        records = floored * self._shape.count / floored.sum()
        sums, noise = answer.total("residuals"), answer.deviation("residuals") ** 2
        target = replace(self.target, variance=self._residual_var)
        shapes = [self._within(path) for path in leaves]
        effects, p = leaf_random_effects(self._shape, sums, records, noise, target, shapes)
        return (
            self.coordinates.plain(self._without_flat(effects))
            if p > SETTINGS.min_leaf_probability
            else None
        )

    def _within(self, path: Path) -> DesignEstimate:
        """Return the design within a leaf's sets; a category's set has no variance."""
        steps = [(self.features.index(f), *self.sets[f], k) for f, k in path if f in self.features]
        if not steps:
            return self._shape
        index = [place for place, *_ in steps]
        middles, variances = np.array(
            [(own[k], 0.0) if exact else _moments_of(own, k) for _, own, exact, k in steps]
        ).T
        centre, scale = self.coordinates.centre[index], self.coordinates.scale[index]
        return self._shape.within(index, (middles - 0.5 - centre) * scale, variances * scale**2)


def _moments_of(peaks: Peaks, number: int) -> tuple[float, float]:
    """Return a set's middle and variance: h^2 / 6 for a triangle of half width h, w^2 / 12 up to an end of [0, 1]."""
    if (peaks[0], peaks[-1]) == (0.0, 1.0):
        return peaks[number], (peaks[1] - peaks[0]) ** 2 / 6
    between = sum(peaks) / 2
    low, high = (between, 1.0) if number else (0.0, between)
    return (low + high) / 2, (high - low) ** 2 / 12
