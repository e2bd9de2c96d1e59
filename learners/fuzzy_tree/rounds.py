"""The private linear model, and its leaf random effects, in rounds of noisy queries."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from privfed.exchange.disclosure import Answer
from privfed.learners.fuzzy_tree.fuzzy import Peaks
from privfed.learners.fuzzy_tree.linear import Coordinates, Moments, Residuals, ResidualsBySet
from privfed.learners.fuzzy_tree.main_effects import GrownTree, beyond_line
from privfed.learners.fuzzy_tree.settings import SETTINGS
from privfed.learners.fuzzy_tree.shrinkage import (
    Count,
    DesignEstimate,
    LeafEstimate,
    ResidualSums,
    SecondMoments,
    Target,
    departures,
    leaf_random_effects,
)
from privfed.questions.cells import Path
from privfed.questions.query import Query

_UNKNOWN = 1e12  #: variance of a sum that was not released


@dataclass(eq=False)
class ModelQueries:
    """Queries of the rounds; each returns None if no client answers it."""

    ask: Callable[[Query], Answer]
    tree: GrownTree
    lower: np.ndarray  #: ends of each feature's [0, 1]
    upper: np.ndarray
    target: tuple[float, ...]  #: the target's interval; empty for the public bounds

    def moments(self, coordinates: Coordinates) -> Answer | None:
        """Second moments in some coordinates."""
        sets, options = self._sets(self.tree.uniform)
        answer = self.ask(Moments(((),), sets, self.lower, self.upper, coordinates, **options))
        return answer if "moments" in answer else None

    def residuals(
        self, nodes: Sequence[Path], coordinates: Coordinates, model: np.ndarray, clip: float
    ) -> Answer | None:
        """Residuals by node, at a model and clipped at a limit."""
        sets, options = self._sets(self.tree.sets)
        common = (tuple(nodes), sets, self.lower, self.upper)
        answer = self.ask(Residuals(*common, coordinates, model, clip, **options))
        return answer if "residuals" in answer else None

    def by_set(self, coordinates: Coordinates, model: np.ndarray, clip: float) -> Answer | None:
        """Residuals by uniform set of each candidate; None also if there is none, or nothing is known of their records."""
        chosen = self.tree.candidates
        if self.tree.sums is None or not chosen:
            return None
        sets, options = self._sets(self.tree.uniform)
        common = (((),), sets, self.lower, self.upper)
        answer = self.ask(ResidualsBySet(*common, coordinates, model, clip, chosen, **options))
        return answer if "residuals" in answer else None

    def _sets(self, peaks: tuple[Peaks, ...]) -> tuple[int, dict[str, Any]]:
        """Return the maximum number of sets, and the options of queries with sets of these peaks."""
        sizes = tuple(map(len, peaks))
        return max(sizes), {
            "partition": sizes if len(set(sizes)) > 1 else (),
            "target": self.target,
            "peaks": () if peaks == self.tree.uniform else peaks,
        }


@dataclass(eq=False)
class ModelRounds:
    """The state between rounds; models are deviations from the mean target."""

    queries: ModelQueries
    tree: GrownTree  #: whose leaves the last round may be about
    features: tuple[int, ...]  #: positions of the linear terms
    count: Count  #: of the records
    target: Target  #: estimates of the target
    categories: Sequence[int]  #: numbers of the features' categories; 0 for a number
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

    def learn(self) -> np.ndarray | None:
        """Run all rounds; return leaf effects in (1, u - 1/2), shape (leaves, width), or None for a single model.

        Before the last round, the tree is split again on features whose effects are no lines.
        """
        for number in range(SETTINGS.moment_rounds):
            if number:
                self._recentre()
            answer = self.queries.moments(self.coordinates)
            if answer is None:
                break
            noise, lead = answer.deviation("moments"), self.coordinates.lead
            self._combine(SecondMoments.from_sums(answer.total("moments"), noise, self.count, lead))
            self._step()
        if self._design is None:
            return None
        for _ in range(SETTINGS.residual_rounds - SETTINGS.moment_rounds - 1):
            self._step()
        self.tree.split_on(self._step_by_set())
        effects = None
        if len(self.tree.leaves) > 1 and self._pays():
            effects = self._leaf_effects()
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
        self._learn(moment - self._shape.gram @ self.model, noise[1] ** 2 * np.eye(len(moment)))

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
        answer = self.queries.residuals(((),), self.coordinates, self.model, clip)
        if answer is None or self._design is None:
            return
        self._noise = answer.deviation("residuals") / clip
        variance = answer.deviation("residuals") ** 2
        self._learn(answer.total("residuals")[0], variance * np.eye(self.coordinates.width))

    def _step_by_set(self) -> list[int]:
        """Query residuals by set, and update the model; return features that depart from lines, the most explaining first.

        Memberships in a feature's sets, times the sets' peaks, add up to its value: so sums by set give those along the
        coordinates, too.
        """
        clip = self._clip()
        answer = self.queries.by_set(self.coordinates, self.model, clip)
        if answer is None:
            return []
        sums, noise = answer.total("residuals"), answer.deviation("residuals")
        explained = {}
        for index, feature in enumerate(self.tree.candidates):
            peaks = self.tree.uniform[feature]
            known = (sums[index, : len(peaks)], noise, self.tree.records(index), peaks)
            squares, p = beyond_line(*known, self._residual_var)
            least = SETTINGS.min_beyond_line * self._residual_var * float(known[2].sum())
            if p * len(self.tree.candidates) < SETTINGS.line_level and squares > least:
                explained[feature] = squares
        along = self._along()
        missing = ~along.any(axis=(1, 2))
        total, across = np.einsum("cfs,fs->c", along, sums), np.einsum("cfs,dfs->cd", along, along)
        self._learn(total, noise**2 * across + np.diag(np.where(missing, _UNKNOWN, 0.0)))
        return sorted(explained, key=explained.__getitem__, reverse=True)

    def _along(self) -> np.ndarray:
        """Return the weights of cells in the sums along coordinates, shape (width, candidates, sets); zero if there are none."""
        n_sets = max(len(self.tree.uniform[feature]) for feature in self.tree.candidates)
        along = np.zeros((self.coordinates.width, len(self.tree.candidates), n_sets))
        for index, feature in enumerate(self.tree.candidates):
            peaks = np.array(self.tree.uniform[feature])
            along[0, index, : len(peaks)] = self.coordinates.lead / len(self.tree.candidates)
            if feature in self.features:
                at = self.features.index(feature)
                scaled = (peaks - 0.5 - self.coordinates.centre[at]) * self.coordinates.scale[at]
                along[at + 1, index, : len(peaks)] = scaled
        return along

    def _learn(self, residuals: np.ndarray, noise: np.ndarray) -> None:
        """Update the model by residuals along coordinates, with noise of a covariance."""
        shape = self._shape
        sums = residuals + shape.gram @ (self.model - self._constant)
        self._rounds.append(ResidualSums(sums, noise, self._departure))
        shift, self._departure = departures(shape, self._rounds, self.target, self._residual_var)
        self.model = self._constant + shift

    # --- leaves ------------------------------------------------------------------------------------

    def _pays(self) -> bool:
        """Whether residuals by leaf would exceed their noise, as it was so far, or show effects of sets."""
        required = SETTINGS.records_per_noise * self._noise * self.coordinates.width
        return self.tree.regrown or self.count.records / len(self.tree.leaves) > required

    def _leaf_effects(self) -> np.ndarray | None:
        """Return leaf effects if they are probable, else None."""
        leaves, clip = [leaf.path for leaf in self.tree.leaves], self._clip()
        if self.tree.apart:
            clip = min(1.0, max(clip, self.tree.apart + math.sqrt(self._residual_var)))
        answer = self.queries.residuals(leaves, self.coordinates, self.model, clip)
        if answer is None:
            return None
        weights = np.array([leaf.weight for leaf in self.tree.leaves])
        floored = np.maximum(weights, weights.sum() / len(leaves) / 50)
        floored = floored * self._together(leaves)
        records = floored * self._shape.count / floored.sum()
        sums, noise = answer.total("residuals"), answer.deviation("residuals") ** 2
        target = replace(self.target, variance=self._residual_var)
        known = [self._leaf(path, n) for path, n in zip(leaves, records, strict=True)]
        effects, p = leaf_random_effects(self._shape, sums, known, noise, target)
        return (
            self.coordinates.plain(self._without_flat(effects))
            if p > SETTINGS.min_leaf_probability
            else None
        )

    def _sets_of(self, path: Path) -> list[tuple[int, float, float] | None]:
        """Return each step's position among the linear terms, middle and variance; a category's set has no variance."""
        steps: list[tuple[int, float, float] | None] = []
        for feature, branch in path:
            if feature not in self.features:
                steps.append(None)
                continue
            peaks, at = self.tree.sets[feature], self.features.index(feature)
            exact = len(peaks) == self.categories[feature]
            middle, variance = (peaks[branch], 0.0) if exact else _moments_of(peaks, branch)
            centre, scale = self.coordinates.centre[at], self.coordinates.scale[at]
            steps.append((at, float((middle - 0.5 - centre) * scale), float(variance * scale**2)))
        return steps

    def _leaf(self, path: Path, records: float) -> LeafEstimate:
        """Return what is estimated of a leaf's records."""
        sets = self._sets_of(path)
        known = [step for step in sets if step is not None]
        design = self._shape
        if known:
            index, middles, variances = zip(*known, strict=True)
            design = design.within(index, np.array(middles), np.array(variances))
        branches = [branch for _, branch in path] if self.tree.regrown else []
        return LeafEstimate(design, records, sets, branches)

    def _together(self, leaves: Sequence[Path]) -> np.ndarray:
        """Return how many more records leaves have than if their features were independent: for normal ones."""
        ratios = np.ones(len(leaves))
        for number, path in enumerate(leaves):
            known = [step for step in self._sets_of(path) if step is not None]
            if len(known) < 2:
                continue
            index = [at for at, _, _ in known]
            away = np.array([middle for _, middle, _ in known]) - self._shape.means[index]
            joint = self._shape.covariance[np.ix_(index, index)] + np.diag([v for _, _, v in known])
            alone = np.diag(joint)
            log = float((away**2 / alone).sum() - away @ np.linalg.solve(joint, away))
            log += float(np.log(alone).sum() - np.linalg.slogdet(joint)[1])
            ratios[number] = math.exp(float(np.clip(log / 2, -5, 5)))
        return ratios


def _moments_of(peaks: Peaks, number: int) -> tuple[float, float]:
    """Return a set's middle and variance: h^2 / 6 for a triangle of half width h, w^2 / 12 up to an end of [0, 1].

    Half a triangle at an end counts as a whole one about its peak: its middle is there if values were clipped to the end,
    or are few.
    """
    if (peaks[0], peaks[-1]) == (0.0, 1.0):
        return peaks[number], (peaks[1] - peaks[0]) ** 2 / 6
    between = sum(peaks) / 2
    low, high = (between, 1.0) if number else (0.0, between)
    return (low + high) / 2, (high - low) ** 2 / 12
