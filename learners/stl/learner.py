"""A client's own rule learner: genetic search over structures (Nenzi et al. 2018, Section 4).

The parameters of each are tuned by Bayesian optimisation, as in the paper, or by a faster local
search. Nothing here is private and nothing is released: the rules are the client's records.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import Matern, WhiteKernel

from privfed.errors import InputError
from privfed.learners.stl.canonical import canonical
from privfed.learners.stl.formula import (
    Atom,
    Connective,
    Formula,
    Path,
    Temporal,
    Until,
    at,
    check_signals,
    children,
    operators,
    paths,
    put,
    rebuilt,
    trace,
)
from privfed.learners.stl.grammar import Grammar

_QUANTILES = np.linspace(0.05, 0.95, 19)  #: Quantiles of a variable that thresholds may take
_MAX_ROBUSTNESS = 1e6  #: Clips robustness of intervals beyond a trajectory's end
_INTERVALS = 6  #: Intervals tried for each temporal operator of a rule, in one sweep


@dataclass(frozen=True)
class ScoredRule:
    """A rule, and its score for separating the classes."""

    rule: Formula
    score: float


@dataclass(frozen=True)
class GeneticRules:
    """Genetic search for rules that hold on the positive class and fail on the negative one."""

    grammar: Grammar  #: which rules there can be
    rules: int = 10  #: maximum rules to return, of distinct structures
    least: float = 0.5  #: score: balanced accuracy (-1 to 1) + .1 gap - .01 operators
    population: int = 24  #: structures in each generation
    generations: int = 6  #: number of generations
    sweeps: int = 1  #: passes of the local search over a rule's parameters
    seed: int = 0  #: seed of the search
    tuning: Literal["local", "bayesian"] = "local"  #: of parameters; GP-UCB is ten times slower
    evaluations: int = 20  #: of a structure, by Bayesian optimisation

    def __post_init__(self) -> None:
        sizes = (self.rules, self.population, self.generations + 1, self.sweeps + 1)
        if min(sizes) < 1 or not 0 < self.least < 2:
            raise InputError(
                "a genetic search needs rules and a population of at least 1, generations and "
                "sweeps of at least 0, and a least score above 0 and below 2"
            )
        if self.tuning not in ("local", "bayesian") or self.evaluations < 1:
            raise InputError(
                'tuning must be "local" or "bayesian", with at least 1 evaluation; write for example '
                'tuning = "bayesian", evaluations = 20'
            )

    def learn(self, signals: np.ndarray, labels: np.ndarray) -> list[ScoredRule]:
        """Return canonical rules, best first; empty if a class is missing or nothing separates them.

        Trajectories have the shape (samples, steps, variables in the grammar's order), labels (true
        for the positive class) the shape (samples,). InputError: either is malformed.
        """
        array = check_signals(signals, self.grammar.names)
        positive = np.asarray(labels).astype(bool)
        if positive.shape != array.shape[:1]:
            raise InputError("labels need one truth value for each trajectory")
        if positive.all() or not positive.any():
            return []
        return _Search(self, array, positive).run()


class _Search:
    def __init__(self, settings: GeneticRules, signals: np.ndarray, positive: np.ndarray) -> None:
        self._settings, self._grammar = settings, settings.grammar
        self._signals = signals
        self._classes = np.array([positive / positive.sum(), ~positive / (~positive).sum()])
        self._rng = np.random.default_rng(settings.seed)
        self._columns = {name: index for index, name in enumerate(self._grammar.names)}
        self._levels = np.quantile(signals.reshape(-1, signals.shape[2]), _QUANTILES, axis=0)
        self._best: dict[tuple[int, ...], ScoredRule] = {}
        self._scores: dict[Formula, float] = {}  # a search revisits structures

    def run(self) -> list[ScoredRule]:
        """Evolve the population, and return its sufficiently good formulas, best first."""
        settings, depth = self._settings, min(2, self._grammar.most_operators)
        alive = [self._tune(self._draw(depth)) for _ in range(settings.population)]
        for _ in range(settings.generations):
            children = [self._tune(self._child(alive)) for _ in alive]
            alive = sorted(alive + children, key=lambda s: -s.score)[: settings.population]
        ranked = sorted(self._best.values(), key=lambda s: -s.score)
        return [scored for scored in ranked if scored.score >= settings.least][: settings.rules]

    # --- structures ----------------------------------------------------------------------------

    def _draw(self, limit: int) -> Formula:
        usable = [operator for operator in self._grammar.operators if operator != "!"]
        if limit == 0 or self._rng.random() < 0.4 or not usable:
            return self._atom()
        operator = self._pick(usable)
        if operator in ("F", "G"):
            return Temporal(operator, self._interval(), self._draw(limit - 1))
        left, right = (
            self._draw((limit - 1) // 2),
            self._draw(limit - 1 - (limit - 1) // 2),
        )
        if operator == "U":
            return Until(self._interval(), left, right)
        return Connective(operator, left, right)

    def _atom(self) -> Atom:
        name = self._pick(self._grammar.names)
        relation = self._pick(self._grammar.relations)
        return Atom(name, relation, float(self._rng.choice(self._levels[:, self._columns[name]])))

    def _interval(self) -> tuple[int, int]:
        first, last = sorted(self._rng.integers(0, self._longest + 1, 2).tolist())
        return first, last

    @property
    def _longest(self) -> int:
        return int(min(self._grammar.horizon, self._signals.shape[1] - 1))

    def _pick(self, options: tuple[str, ...] | list[str]) -> str:
        return options[int(self._rng.integers(len(options)))]

    def _child(self, alive: list[ScoredRule]) -> Formula:
        """Return a crossover of two winners of small tournaments, or a mutation of one."""
        limit, mother = self._grammar.most_operators, self._winner(alive)
        crosses = self._rng.random() < 0.6
        new = self._part(self._winner(alive)) if crosses else self._draw(min(1, limit))
        child = self._replace_part(mother, new)
        return child if operators(child) <= limit else mother

    def _winner(self, alive: list[ScoredRule]) -> Formula:
        drawn = [alive[index] for index in self._rng.integers(len(alive), size=3)]
        best: ScoredRule = max(drawn, key=lambda scored: scored.score)
        return best.rule

    def _part(self, formula: Formula) -> Formula:
        parts = children(formula)
        if not parts or self._rng.random() < 0.4:
            return formula
        return self._part(parts[int(self._rng.integers(len(parts)))])

    def _replace_part(self, formula: Formula, new: Formula) -> Formula:
        parts = list(children(formula))
        if not parts or self._rng.random() < 0.3:
            return new
        index = int(self._rng.integers(len(parts)))
        parts[index] = self._replace_part(parts[index], new)
        return rebuilt(formula, parts)

    # --- parameters ----------------------------------------------------------------------------

    def _tune(self, formula: Formula) -> ScoredRule:
        """Tune the parameters, and return the canonical form; the best by structure is cached."""
        bayesian = self._settings.tuning == "bayesian"
        tuned = self._bayesian_search(formula) if bayesian else self._local_search(formula)
        best = ScoredRule(canonical(tuned.rule), tuned.score)
        structure = self._grammar.structure(best.rule)
        known = self._best.get(structure)
        if known is None or best.score > known.score:
            self._best[structure] = best
        return best

    def _local_search(self, formula: Formula) -> ScoredRule:
        """Tune by local search, one part after the other."""
        best = ScoredRule(formula, self._score(formula))
        for _ in range(self._settings.sweeps):
            for path in paths(best.rule):
                best = self._improve_part(best, path)
        return best

    def _bayesian_search(self, formula: Formula) -> ScoredRule:
        start = np.array(self._coordinates(formula))
        point, score = maximise(
            lambda values: self._score(self._formula_at(formula, values)),
            start,
            evaluations=self._settings.evaluations,
            rng=self._rng,
        )
        return ScoredRule(self._formula_at(formula, point), score)

    def _coordinates(self, formula: Formula) -> list[float]:
        """Return the parameters in preorder, scaled to [0, 1]: ranks of thresholds, fractions of steps."""
        local: list[float] = []
        if isinstance(formula, Atom) and formula.threshold is not None:
            levels = self._levels[:, self._columns[formula.variable]]
            rank = np.searchsorted(levels, formula.threshold)
            local = [min(1.0, float(rank) / (len(levels) - 1))]
        if isinstance(formula, Temporal | Until) and formula.interval is not None:
            local = [step / max(1, self._longest) for step in formula.interval]
        return local + [value for child in children(formula) for value in self._coordinates(child)]

    def _formula_at(self, formula: Formula, point: np.ndarray) -> Formula:
        values = iter(point.tolist())

        def filled(part: Formula) -> Formula:
            if isinstance(part, Atom):
                levels = self._levels[:, self._columns[part.variable]]
                rank = next(values) * (len(levels) - 1)
                level = float(np.interp(rank, np.arange(len(levels)), levels))
                return replace(part, threshold=level)
            if isinstance(part, Temporal | Until):
                first, last = sorted(round(next(values) * self._longest) for _ in range(2))
                part = replace(part, interval=(first, last))
            return rebuilt(part, map(filled, children(part)))

        return filled(formula)

    def _improve_part(self, best: ScoredRule, path: Path) -> ScoredRule:
        for part in self._variants(at(best.rule, path)):
            candidate = put(best.rule, path, part)
            score = self._score(candidate)
            if score > best.score:
                best = ScoredRule(candidate, score)
        return best

    def _variants(self, part: Formula) -> list[Formula]:
        """Return the part with other thresholds (some quantiles) or other random intervals."""
        if isinstance(part, Atom):
            levels = self._levels[::3, self._columns[part.variable]].tolist()
            return [replace(part, threshold=level) for level in levels]
        if isinstance(part, Temporal | Until):
            return [replace(part, interval=self._interval()) for _ in range(_INTERVALS)]
        return []

    def _score(self, formula: Formula) -> float:
        """Return the discrimination function of Nenzi et al. 2018, equation 3, plus balanced accuracy."""
        if formula in self._scores:
            return self._scores[formula]
        values = trace(formula, self._signals, self._columns)[:, 0]
        values = np.clip(values, -_MAX_ROBUSTNESS, _MAX_ROBUSTNESS)
        good, bad = self._classes @ values
        stds = np.sqrt(np.maximum(self._classes @ values**2 - (good**2, bad**2), 0.0))
        gap = (good - bad) / (stds.sum() + 1e-9)
        tpr, fpr = self._classes @ (values > 0)
        score = float(tpr - fpr + 0.1 * np.tanh(gap) - 0.01 * operators(formula))
        self._scores[formula] = score
        return score


# --- Bayesian optimisation of a rule's parameters: GP-UCB (Srinivas et al. 2010; Nenzi et al. 2018)

_FIRST, _CANDIDATES = 6, 256  #: Points drawn before the first fit; candidates of each step
_WIDTH = (
    2.0  #: Posterior standard deviations above the mean; in theory more, and growing with the steps
)
_LENGTH = 0.3  #: Length scale of the kernel in the unit cube


def maximise(
    objective: Callable[[np.ndarray], float],
    start: np.ndarray,
    *,
    evaluations: int,
    rng: np.random.Generator,
) -> tuple[np.ndarray, float]:
    """Maximise an expensive function on the unit cube, shape (dimensions,), from a start point.

    Returns the best point of ``evaluations``, and its value.
    """
    points, values = [start], [objective(start)]
    for step in range(1, evaluations):
        point = rng.random(len(start)) if step < _FIRST else _next(points, values, rng)
        points.append(point)
        values.append(objective(point))
    best = int(np.argmax(values))
    return points[best], values[best]


def _next(points: list[np.ndarray], values: list[float], rng: np.random.Generator) -> np.ndarray:
    """Return the candidate with the largest upper confidence bound."""
    size = len(points[0])
    near = points[int(np.argmax(values))] + rng.normal(0, 0.1, (_CANDIDATES // 2, size))
    candidates = np.concatenate([rng.random((_CANDIDATES // 2, size)), np.clip(near, 0, 1)])
    kernel = Matern(_LENGTH, nu=2.5) + WhiteKernel(1e-4)
    process = GaussianProcessRegressor(kernel, optimizer=None, normalize_y=True)
    process.fit(np.array(points), np.array(values))
    mean, std = process.predict(candidates, return_std=True)
    best: np.ndarray = candidates[int(np.argmax(mean + _WIDTH * std))]
    return best
