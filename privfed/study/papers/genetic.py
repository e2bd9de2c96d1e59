"""FedGA-Tree's figures: classification and regression by the paper's protocol (its Section IV).

20 clients, 90/10 splits, P = 20 (40 in regression), G = 100, five quantile bins and balanced classes in
classification, as in the paper's sets. Gains are means over clients of the relative change of macro F1
(of the mean squared error) to the client's local tree, in %. The search runs without gates (in the paper only
the sizes are noisy, and they are equal here); the IBM tree runs through gates, with secure noise.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, TypeVar

import numpy as np
import pandas as pd
from sklearn.metrics import f1_score
from sklearn.preprocessing import KBinsDiscretizer

from privfed.engines.local import LocalDisclosure
from privfed.exchange.ungated import UngatedDisclosure
from privfed.learners import GeneticTreeClassifier, GeneticTreeRegressor
from privfed.learners.base import FederatedLearner, PersonalLearner
from privfed.learners.baselines import (
    CentralTreeClassifier,
    CentralTreeRegressor,
    LocalTreeClassifier,
    LocalTreeRegressor,
    TruexTreeClassifier,
)
from privfed.learners.genetic_tree import local
from privfed.learners.genetic_tree.personal import Choice
from privfed.learners.genetic_tree.population import Scoring
from privfed.learners.genetic_tree.queries import KeepBest
from privfed.learners.genetic_tree.structures import DEEPEST, NIL
from privfed.study.papers.table import Measured, repeated
from privfed.tables.records import Records
from privfed.tables.schema import Column, Schema

#: The paper's available classification sets, and its regression sets with their tables.
CLASSES = (
    "nursery",
    "california",
    "magic_telescope",
    "electricity",
    "bank_marketing",
    "default_credit_card",
)
NUMBERS = {
    "houses": "california",
    **{name: name for name in ("abalone", "sulfur", "space_ga", "kin8nm", "delta_elevators")},
}
CLIENTS = 20
#: Numbers of clients, and the fractions that are active in each generation (Figures 6, 7 and 10).
SIZES = tuple((clients, 1.0) for clients in (5, 10, 15, 30))
SHARES = tuple((CLIENTS, active) for active in (0.5, 0.25, 0.1))
FIRST = 100  #: Seed of the first split
#: The paper's means over its fourteen sets (Section IV-B).
PAPER = {
    ("paper", "gain"): 5.58,
    ("paper", "share"): 75.0,
    ("IBM, secure sum", "gain"): -2.58,
    ("IBM, secure sum", "share"): 31.0,
}
#: The paper's mean gains by the choice of IBM trees' depth (Appendix B).
DEPTHS = {"tuned": -2.58, "half of the features": -3.75, "median of the clients'": -3.16}
TRIED = (2, 4, 6, 8, 10)  #: Candidate depths for tuning
Searches = list[tuple[dict[str, Any], dict[str, tuple[bool, bool]]]]
#: The paper's search, and the clients' choices from it by name: (include the local tree, refit).
PAPERS_WAY: Searches = [({}, {"paper": (False, False)})]
Kind = TypeVar("Kind", bound=UngatedDisclosure)


@dataclass(frozen=True, eq=False)
class Prepared:
    """One split: the clients' records, the held-out ones, and the public schema."""

    clients: dict[str, tuple[np.ndarray, np.ndarray]]
    test_x: np.ndarray
    test_y: np.ndarray
    schema: Schema

    @property
    def classify(self) -> bool:
        """Whether the target has classes."""
        return self.schema.target is not None and not self.schema.target.numeric


def encoded(name: str, frame: pd.DataFrame) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return encoded features, target, and which features are numeric; the last column is the target."""
    frame = frame.dropna()
    target = frame.pop(frame.columns[-1])
    if name in NUMBERS:
        y = target.to_numpy(float)
    else:
        y = pd.factorize(target > target.median() if name == "california" else target, sort=True)[0]
    numeric = np.array([pd.api.types.is_numeric_dtype(frame[c]) for c in frame])
    columns = [
        frame[c].to_numpy(float) if number else pd.factorize(frame[c], sort=True)[0].astype(float)
        for c, number in zip(frame, numeric, strict=True)
    ]
    return np.column_stack(columns), y, numeric


def binned(
    train: np.ndarray, test: np.ndarray, numeric: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Bin by the training set's quintiles, or by two equal-width bins (paper, Appendix A)."""
    train, test = train.copy(), test.copy()
    for feature in np.flatnonzero(numeric):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            binner = KBinsDiscretizer(
                5, encode="ordinal", strategy="quantile", quantile_method="averaged_inverted_cdf"
            ).fit(train[:, [feature]])
            if len(binner.bin_edges_[0]) < 3:
                binner = KBinsDiscretizer(2, encode="ordinal", strategy="uniform").fit(
                    train[:, [feature]]
                )
        train[:, feature] = binner.transform(train[:, [feature]])[:, 0]
        test[:, feature] = binner.transform(test[:, [feature]])[:, 0]
    return train, test


def prepared(
    frame: pd.DataFrame,
    name: str,
    seed: int,
    clients: int,
    alpha: float | None,
    *,
    balanced: bool = True,
    bins: bool = True,
    rows: int | None = None,
) -> Prepared:
    """Split a set at random into 90 and 10 %, and partition the former among clients.

    Args:
        frame: the set, its target last.
        name: of the set.
        seed: of the split.
        clients: number of clients.
        alpha: of the Dirichlet partition by label; None for equal fractions.
        balanced: whether two classes are balanced, as in the paper's sets.
        bins: whether classification sets are binned, as in the paper.
        rows: maximum number of records; None for all.
    """
    rng = np.random.default_rng(seed)
    X, y, numeric = encoded(name, frame)
    classify = name not in NUMBERS
    if classify and balanced and y.max() == 1:
        smallest = int(np.bincount(y).min())
        subset = np.concatenate(
            [rng.permutation(np.flatnonzero(y == c))[:smallest] for c in (0, 1)]
        )
        X, y = X[subset], y[subset]
    order = rng.permutation(len(y))[:rows]
    test, train = order[: len(order) // 10], order[len(order) // 10 :]
    train_x, test_x = X[train], X[test]
    if classify and bins:
        train_x, test_x = binned(train_x, test_x, numeric)
    owner = np.arange(len(train)) % clients
    if alpha is not None:
        for label in np.unique(y):
            positions = np.flatnonzero(y[train] == label)
            owner[positions] = rng.choice(
                clients, len(positions), p=rng.dirichlet([alpha] * clients)
            )
    lower, upper = x_bounds(train_x)
    columns = [Column(f"x{n}", "number", lower[n], upper[n]) for n in range(X.shape[1])]
    target = (
        Column("y", "category", categories=tuple(f"c{c}" for c in range(int(y.max()) + 1)))
        if classify
        else Column("y", "number", float(y.min()), float(y.max()))
    )
    parts = {
        f"{k:02d}": (train_x[owner == k], y[train][owner == k].astype(float))
        for k in range(clients)
    }
    kept_clients = {name_: pair for name_, pair in parts.items() if len(pair[1]) >= 10}
    return Prepared(kept_clients, test_x, y[test], Schema(tuple(columns), target))


def x_bounds(X: np.ndarray) -> tuple[list[float], list[float]]:
    """Return minimum and maximum of each feature; constant features get a maximum above their value."""
    low, high = X.min(axis=0), X.max(axis=0)
    return low.tolist(), np.where(high > low, high, low + 1).tolist()


def federation(data: Prepared, kind: type[Kind]) -> Kind:
    """Build a federation without gates; training and scores are exact."""
    return kind({name: Records(data.schema, X, y) for name, (X, y) in data.clients.items()})


def fitted(learner: FederatedLearner, data: Prepared) -> FederatedLearner:
    """Fit without gates; every client loads its personal model."""
    clients = federation(data, UngatedDisclosure)
    learner.fit(clients)
    return at_home(learner, clients) if isinstance(learner, PersonalLearner) else learner


def score(learner: FederatedLearner, data: Prepared) -> np.ndarray:
    """Return each client's macro F1, or mean squared error, on the common test set, shape (clients,)."""
    scores = []
    for name in data.clients:
        options: dict[str, Any] = {"client": name} if isinstance(learner, PersonalLearner) else {}
        predicted = learner.predict(data.test_x, **options)
        if data.classify:
            true = [f"c{c}" for c in data.test_y]
            scores.append(f1_score(true, predicted, average="macro", zero_division=0))
        else:
            scores.append(float(np.mean((predicted - data.test_y) ** 2)))
    return np.array(scores)


def nodes(learner: FederatedLearner, data: Prepared) -> float:
    """Return the mean number of decision nodes."""
    if isinstance(learner, PersonalLearner):
        return float(np.mean([learner.at_home(name).decisions for name in data.clients]))
    if isinstance(learner, TruexTreeClassifier):
        return float((learner.shared_.tree.feature >= 0).sum())
    return float("nan")


def truex(
    data: Prepared, active: Sequence[str], *, secure: bool = True, depth: int = 6
) -> FederatedLearner:
    """Fit the IBM tree of some clients through gates, epsilon 1, with or without the noise of a secure sum."""
    frames = []
    for name in active:
        X, y = data.clients[name]
        frame = pd.DataFrame(X, columns=list(data.schema.names))
        frames.append(frame.assign(y=[f"c{int(c)}" for c in y], client=name))
    learner = TruexTreeClassifier(max_depth=depth)
    gates = LocalDisclosure.from_frame(
        pd.concat(frames),
        target="y",
        client="client",
        schema=data.schema,
        policy=learner.published(1, len(active) if secure else 1),
    )
    return learner.fit(gates)


def searched(
    data: Prepared, participation: float, seed: int, searches: Searches
) -> Iterator[tuple[str, PersonalLearner]]:
    """Run each search once, and yield the clients' personal models by each choice."""
    kind = GeneticTreeClassifier if data.classify else GeneticTreeRegressor
    for changes, choices in searches:
        clients = federation(data, UngatedDisclosure)
        learner = kind(client_fraction=participation, random_state=seed, **changes)
        learner.fit(clients)
        bounded = bool(changes.get("bounded"))
        scoring = Scoring(data.classify, changes.get("fitness", "share"), bounded=bounded)
        scoring = replace(scoring, held=learner.scored_on_)
        assert learner.candidates_ is not None
        for name, (own_tree, refit) in choices.items():
            clients.ask(KeepBest(learner.candidates_, scoring, Choice(own_tree, refit)))
            yield name, at_home(learner, clients)


def at_home(learner: PersonalLearner, clients: UngatedDisclosure) -> PersonalLearner:
    """Load every client's personal model."""
    for name in clients.clients:
        learner.take_home(name, clients.shelves[name])
    return learner


def active_clients(data: Prepared, participation: float, seed: int) -> list[str]:
    """Draw the clients of the IBM tree, which is grown once: as many as in each generation of the search."""
    count = max(1, round(participation * len(data.clients)))
    chosen = np.random.default_rng(seed).choice(len(data.clients), count, replace=False)
    return [list(data.clients)[number] for number in sorted(chosen)]


def fitted_all(
    data: Prepared, participation: float, seed: int, searches: Searches
) -> Iterator[tuple[str, FederatedLearner]]:
    """Yield the fitted learners by name."""
    yield from searched(data, participation, seed, searches)
    central: FederatedLearner = CentralTreeClassifier() if data.classify else CentralTreeRegressor()
    yield "central", fitted(central, data)
    if data.classify:
        active = active_clients(data, participation, seed)
        yield "IBM", truex(data, active, secure=False)
        yield "IBM, secure sum", truex(data, active)


def edit_distance(first: Sequence[int], second: Sequence[int]) -> float:
    """Return the edit distance of two sequences, divided by the longer one's length."""
    steps = np.arange(len(second) + 1)
    row = steps.copy()
    for count, item in enumerate(first, 1):
        candidates = np.minimum(row[1:] + 1, row[:-1] + (np.asarray(second) != item))
        row = np.minimum.accumulate(np.concatenate([[count], candidates]) - steps) + steps
    return float(row[-1]) / max(len(first), len(second), 1)


def distance(learner: FederatedLearner, data: Prepared) -> float:
    """Return the mean edit distance of clients' trees to their structures in the initial population.

    Each is the list of its decisions' features in pre-order (the paper: "the list of hashed decision
    features"); a client's structure is its local tree of the agreed depth.
    """
    if not isinstance(learner, GeneticTreeClassifier | GeneticTreeRegressor):
        return float("nan")
    assert learner.candidates_ is not None
    classes = len(data.schema.target.categories) if data.classify and data.schema.target else 0
    distances = []
    for name, (X, y) in data.clients.items():
        initial = local.structure(X, y, classes, learner.candidates_.depth)
        tree = learner.at_home(name).tree.feature
        distances.append(edit_distance(initial[initial != NIL].tolist(), tree[tree >= 0].tolist()))
    return float(np.mean(distances))


def measured(
    data: Prepared, participation: float, seed: int, searches: Searches = PAPERS_WAY
) -> list[dict[str, Any]]:
    """Measure all learners on one split: score, nodes, gain, clients that gain, and edit distance."""
    local_tree = fitted(LocalTreeClassifier() if data.classify else LocalTreeRegressor(), data)
    base = score(local_tree, data)
    rows = [{"learner": "local", "score": base.mean(), "nodes": nodes(local_tree, data)}]
    for name, learner in fitted_all(data, participation, seed, searches):
        scores = score(learner, data)
        improved = scores > base if data.classify else scores < base
        rows.append(
            {
                "learner": name,
                "score": scores.mean(),
                "nodes": nodes(learner, data),
                "gain": 100 * float(np.mean(scores / base - 1)),
                "share": 100 * improved.mean(),
                "distance": distance(learner, data),
            }
        )
    return rows


#: Figures: their names in tables, and the learners that have them.
FIGURES = {
    "gain": ("gain over own trees, %", ("paper", "central", "IBM, secure sum")),
    "share": ("clients that gain, %", ("paper", "IBM, secure sum")),
    "nodes": ("decision nodes", ("local", "paper", "IBM, secure sum")),
    "distance": ("edit distance to the client's structure", ("paper",)),
    "score": ("score", ("local", "paper", "central", "IBM, secure sum")),
}


def table(
    figures: Sequence[str],
    settings: Sequence[tuple[int, float]] = ((CLIENTS, 1.0),),
    *,
    numbers: bool = False,
) -> Callable[[Mapping[str, pd.DataFrame], int], Iterator[Measured]]:
    """Return a run of ``figures`` of :data:`FIGURES` by set, number of clients and fraction active in a generation.

    Repetitions are splits, each run once. A mean over several sets is compared with the paper's, which is
    over its fourteen.
    """

    def run(data: Mapping[str, pd.DataFrame], splits: int) -> Iterator[Measured]:
        files = {name: file for name, file in NUMBERS.items() if numbers and file in data}
        files = files or {name: name for name in data}
        for count, active in settings:
            rows = []
            cells = list(product(files, range(FIRST, FIRST + splits)))
            for name, split in repeated(cells, f"{count} clients, {100 * active:g} % active"):
                sample = prepared(data[files[name]], name, split, count, None)
                results = measured(sample, active, split)
                rows += [{"set": name, "split": split, **row} for row in results]
            setting = f", {count} clients, {100 * active:g} % active" * (len(settings) > 1)
            yield from set_figures(pd.DataFrame(rows), figures, setting)

    return run


def set_figures(rows: pd.DataFrame, figures: Sequence[str], setting: str) -> Iterator[Measured]:
    """Yield the figures of each set over splits, and of all sets' mean."""
    for name, part, single in by_set(rows):
        for figure, learner in ((f, label) for f in figures for label in FIGURES[f][1]):
            values = part[part["learner"] == learner].groupby("split")[figure].mean().dropna()
            if len(values):
                paper = None if single or setting else PAPER.get((learner, figure))
                column = f"{learner}: {FIGURES[figure][0]}"
                yield Measured(f"{name}{setting}", column, paper, values.tolist())


def by_set(rows: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame, bool]]:
    """Yield a label with each set's rows, then with all rows if there are several sets; and whether it is one set."""
    sets = list(dict.fromkeys(rows["set"]))
    yield from ((name, rows[rows["set"] == name], True) for name in sets)
    if len(sets) > 1:
        yield f"mean of {len(sets)} sets", rows, False


def depths(data: Mapping[str, pd.DataFrame], splits: int) -> Iterator[Measured]:
    """Yield Figure 11: gain of IBM trees over each client's local tree, by the choice of their depth.

    ``tuned`` is the best of :data:`TRIED` on the held-out records, and so an upper bound; the median is of the
    depths that clients select by 5-fold cross-validation, as in FedGA-Tree.
    """
    rows, cells = [], list(product(data, range(FIRST, FIRST + splits)))
    for name, split in repeated(cells, "depths of IBM trees"):
        sample = prepared(data[name], name, split, CLIENTS, None)
        base = score(fitted(LocalTreeClassifier(), sample), sample)
        rng, candidates, local_depths = np.random.default_rng(split), range(2, DEEPEST + 1), []
        assert sample.schema.target is not None
        classes = len(sample.schema.target.categories)
        for X, y in sample.clients.values():
            parts = local.folds(rng.permutation(len(y)), 5)
            local_depths.append(
                local.best_depth(local.depth_scores(X, y, classes, parts, candidates), candidates)
            )
        chosen = {"half of the features": max(1, len(sample.schema.names) // 2)}
        chosen["median of the clients'"] = int(np.median(local_depths))
        gains = {}
        for depth in {*TRIED, *chosen.values()}:
            scores = score(truex(sample, list(sample.clients), depth=depth), sample)
            gains[depth] = 100 * float(np.mean(scores / base - 1))
        results = {choice: gains[depth] for choice, depth in chosen.items()}
        results["tuned"] = max(gains.values())
        about = {"set": name, "split": split}
        rows += [{**about, "way": choice, "gain": gain} for choice, gain in results.items()]
    for name, part, single in by_set(pd.DataFrame(rows)):
        for choice, paper in DEPTHS.items():
            values = part[part["way"] == choice].groupby("split")["gain"].mean().tolist()
            figure = f"{choice}: gain over own trees, %"
            yield Measured(name, figure, None if single else paper, values)
