"""FedForest's tables: public sets by Dirichlet partition, fragmentation, shifts, outliers, simulations.

The tables' cells are empty in the available text of the paper, so our figures are compared with centralized
forests. Every forest has 100 trees, depth at most 10, leaves of at least 5 records and 10 thresholds per
feature; nodes sample sqrt(p) features in classification, all in regression (Section 5). Scores are accuracy,
R^2, or the mean squared error of the simulations, of which .25 is noise. Clients of the public sets differ in
features: records are ordered by their first principal component, cut into ten groups, and each group is
divided by its own Dirichlet(alpha) fractions. Nothing is protected here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from sklearn.tree import DecisionTreeRegressor

from privfed.exchange.ungated import UngatedDisclosure
from privfed.learners import FedForestClassifier, FedForestRegressor, baselines
from privfed.study.papers.table import Measured, repeated
from privfed.tables.schema import Column, Schema

#: The paper's available sets, and whether they are classification sets.
SETS = {
    "diabetes_pima": True,
    "breast_cancer_wdbc": True,
    "banknote": True,
    "wisconsin": True,
    "bodyfat": False,
    "space_ga": False,
    "kin8nm": False,
}
#: Columns that are functions of the target.
OTHER_FORMS = {"bodyfat": ("density", "Density")}
CLIENTS, GROUPS, HELD_OUT = 5, 10, 0.3
#: Features of the two studies of covariate shift.
NOISY = 10
Methods = dict[str, Callable[..., Any]]
#: A setting, and each method's score.
Scores = tuple[str, dict[str, float]]
#: A histogram forest with global equal-width bins, not new ones at every node.
FIXED = "histogram, bins laid once"
#: The reference method and ours, on the same records.
CENTRAL, OURS = "scikit-learn", "FedForest"


def methods(
    *, classes: bool, client_splits: bool = False, network: bool = True, depth: int = 10
) -> Methods:
    """Return the compared methods by name, as functions of ``random_state`` that build them."""
    kind, max_features = ("Classifier", "sqrt") if classes else ("Regressor", None)
    forest: Any = FedForestClassifier if classes else FedForestRegressor
    central, local, histogram, averaged = (
        getattr(baselines, name + kind)
        for name in ("CentralForest", "LocalForest", "HistogramForest", "FedAvgNetwork")
    )
    baseline = {"max_features": max_features, "max_depth": depth}
    average = partial(forest, max_depth=depth, gain_aggregation="average")
    builders: Methods = {
        CENTRAL: partial(central, **baseline),
        OURS: partial(forest, max_depth=depth),
        "AvgImp": average,
        "AvgImp, Top-L": partial(average, top_k=5),
        "histogram": partial(histogram, **baseline),
        "ensemble": partial(local, **baseline),
    }
    if client_splits:
        builders["FedForest, H"] = partial(forest, max_depth=depth, client_splits=True)
        builders["AvgImp, H"] = partial(average, client_splits=True)
    if network:
        builders["FedAvg network"] = averaged
    return builders


def score(
    model: Any, test: pd.DataFrame, target: str, kind: str, client: list[str] | None
) -> float:
    """Return accuracy, R^2 or mean squared error on a table."""
    options = {} if client is None else {"client": client}
    predicted, truth = model.predict(test.drop(columns=target), **options), test[target].to_numpy()
    if kind == "accuracy":
        return float(np.mean(predicted.astype(str) == truth.astype(str)))
    error = float(np.mean((predicted - truth) ** 2))
    return error if kind == "mse" else 1 - error / float(np.var(truth))


def compare(
    train: pd.DataFrame, test: pd.DataFrame, schema: Schema, kind: str, builders: Methods, seed: int
) -> dict[str, float]:
    """Return every method's score; ``client`` is a column of both tables, known at prediction."""
    assert schema.target is not None
    target = schema.target.name
    federation = UngatedDisclosure.from_frame(train, schema, "client")
    rows, clients = test.drop(columns="client"), test["client"].astype(str).tolist()
    scores = {}
    for name, build in builders.items():
        model = build(random_state=seed).fit(federation)
        known = clients if name.endswith(", H") else None
        scores[name] = score(model, rows, target, kind, known)
        if name == "ensemble":
            models = model.models_
            masks = {c: train["client"].astype(str).eq(c) for c in models}
            local_scores = [score(model, rows, target, kind, [c] * len(rows)) for c in masks]
            scores["local"] = float(np.mean(local_scores))
    return scores


def divided(
    frame: pd.DataFrame, alpha: float, clients: int, rng: np.random.Generator
) -> np.ndarray:
    """Return each record's client, drawn by its group along the first principal component."""
    encoded = pd.get_dummies(frame.iloc[:, :-1]).to_numpy(dtype=float)
    scaled = (encoded - encoded.mean(axis=0)) / np.maximum(encoded.std(axis=0), 1e-12)
    projection = scaled @ np.linalg.svd(scaled, full_matrices=False)[2][0]
    group = np.argsort(np.argsort(projection)) * GROUPS // len(frame)
    fractions = rng.dirichlet([alpha] * clients, GROUPS)
    return np.array([rng.choice(clients, p=fractions[index]) for index in group])


def prepared(name: str, frame: pd.DataFrame) -> tuple[pd.DataFrame, Schema]:
    """Return a set without missing values, and a schema of its bounds; the last column is the target."""
    complete = frame.dropna().drop(columns=[c for c in OTHER_FORMS.get(name, ()) if c in frame])
    return complete, Schema.infer(complete, str(complete.columns[-1]))


def halves(frame: pd.DataFrame, rng: np.random.Generator) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return training and held-out rows."""
    held_out = rng.random(len(frame)) < HELD_OUT
    return frame[~held_out], frame[held_out]


def public(
    data: Mapping[str, pd.DataFrame], seeds: int, selected: Sequence[str] = ()
) -> Iterator[Scores]:
    """Table 2, by set and Dirichlet alpha; ``selected``: only these methods."""
    for name, frame in data.items():
        complete, schema = prepared(name, frame)
        builders = methods(classes=SETS[name])
        builders = {method: builders[method] for method in selected or builders}
        for alpha in (10.0, 1.0, 0.1):
            for seed in repeated(range(seeds), f"{name}, alpha {alpha:g}"):
                rng = np.random.default_rng(seed)
                assigned = complete.assign(client=divided(complete, alpha, CLIENTS, rng))
                kind = "accuracy" if SETS[name] else "R^2"
                scores = compare(*halves(assigned, rng), schema, kind, builders, seed)
                yield f"{name}, {alpha:g}", scores


def fragmented(
    data: Mapping[str, pd.DataFrame], seeds: int, counts: Sequence[int] = (1, 2, 5, 10, 20, 50, 100)
) -> Iterator[Scores]:
    """Yield Table 3: banknote among 1 to 100 clients."""
    frame, schema = prepared("banknote", data["banknote"])
    for clients in counts:
        for seed in repeated(range(seeds), f"K = {clients}"):
            rng = np.random.default_rng(seed)
            train, test = halves(frame.assign(client=rng.integers(0, clients, len(frame))), rng)
            builders = methods(classes=True, network=False)
            yield f"K = {clients}", compare(train, test, schema, "accuracy", builders, seed)


def ground_truth(features: int) -> DecisionTreeRegressor:
    """Fit a tree to steps, waves and an interaction (after the paper, Appendix F)."""
    rng = np.random.default_rng(12345)
    X = rng.uniform(-4, 4, (20_000, features))
    y = 2.0 * (X[:, 0] > 0) + np.sin(2 * X[:, 1]) + 1.5 * (X[:, 2] > 1) * (X[:, 3] < 0)
    return DecisionTreeRegressor(max_depth=8, random_state=0).fit(X, y)


def simulated(
    seed: int,
    *,
    separation: float,
    within: float,
    offset: float,
    records: int = 400,
    features: int = 6,
) -> pd.DataFrame:
    """Simulate clients whose features are shifted by up to ``separation``, and outcomes by up to ``offset``.

    No client's features include zero, where the truth steps: "the target function requires a split between"
    the supports. A client in the middle would see the step, and then AvgImp would, too.
    """
    rng = np.random.default_rng(seed)
    client = np.repeat(np.arange(CLIENTS), records)
    center = np.linspace(-separation, separation, CLIENTS + 1)[client]
    X = rng.normal(size=(len(client), features)) * within
    X[:, 0] += center
    y = ground_truth(features).predict(np.clip(X, -4, 4)) + rng.normal(0, 0.5, len(client))
    y += np.linspace(-offset, offset, CLIENTS)[client]
    return pd.DataFrame(X, columns=names(features)).assign(y=y, client=client.astype(str))


def names(features: int) -> list[str]:
    """Return a simulation's columns."""
    return [f"x{number}" for number in range(features)]


def schema_of(features: int, bound: float = 60.0) -> Schema:
    """Return a simulation's schema."""
    columns = tuple(Column(name, "number", -bound, bound) for name in names(features))
    return Schema(columns, Column("y", "number", -20, 20))


#: Shift of clients' features, standard deviation within a client, shift of outcomes.
REGIMES: dict[str, dict[str, Any]] = {
    "alike": {"separation": 0.0, "within": 1.0, "offset": 0.0},
    "covariate shift": {"separation": 3.5, "within": 0.25, "offset": 0.0},
    "outcome shift": {"separation": 0.0, "within": 1.0, "offset": 2.0},
    "covariate and outcome shift": {"separation": 3.5, "within": 0.25, "offset": 2.0},
}


def simulations(
    data: Mapping[str, pd.DataFrame], seeds: int, regimes: Sequence[str] = tuple(REGIMES)
) -> Iterator[Scores]:
    """Yield Figure 2: equal clients, shifted features, shifted outcomes; Appendix F.2: both shifted."""
    for name in regimes:
        for seed in repeated(range(seeds), name):
            train, test = (simulated(seed + add, **REGIMES[name]) for add in (0, 1000))
            builders = methods(classes=False, client_splits=True, network=False)
            yield name, compare(train, test, schema_of(6), "mse", builders, seed)


def outliers(
    data: Mapping[str, pd.DataFrame],
    seeds: int,
    fractions: Sequence[float] = (0.0, 0.02, 0.05, 0.1, 0.15, 0.2),
) -> Iterator[Scores]:
    """Yield Table 7: feature vectors of 0 to 20 % of the records times ten (Appendix F.3)."""
    for fraction in fractions:
        for seed in repeated(range(seeds), f"{100 * fraction:g} % outliers"):
            train, test = (simulated(seed + add, **REGIMES["alike"]) for add in (0, 1000))
            outlying = np.random.default_rng(seed).random(len(train)) < fraction
            train.loc[outlying, names(6)] *= 10
            builders = methods(classes=False, network=False)
            scores = compare(train, test, schema_of(6), "mse", builders, seed)
            coarse = {FIXED: builders["histogram"]}
            fixed = compare(*binned(train, test), schema_of(6), "mse", coarse, seed)
            yield f"{fraction:.0%}", scores | fixed


def binned(train: pd.DataFrame, test: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Replace every feature by the middle of one of ten equal bins between all clients' extremes."""
    tables = train.copy(), test.copy()
    for name in train.columns.drop(["y", "client"]):
        edges = np.linspace(train[name].min(), train[name].max(), 11)
        centers = (edges[:-1] + edges[1:]) / 2
        for table in tables:
            table[name] = centers[np.searchsorted(edges[1:-1], table[name], side="right")]
    return tables


def shifts(
    data: Mapping[str, pd.DataFrame], seeds: int, kinds: Sequence[str] = ("disjoint", "overlapping")
) -> Iterator[Scores]:
    """Yield Tables 5 and 6: two clients at increasing distances, with a step or a slope (Appendix F.1).

    The available text does not state the depth. At depth 10 a tree compensates wrong splits by many, as
    long as random splits use the right feature: both depths are shown.
    """
    compared = (CENTRAL, OURS, f"{OURS}, H", "AvgImp", "AvgImp, H")
    for name in kinds:
        for depth, distances in ((3, (0.0, 1.0, 2.5, 5.0)), (10, (5.0,))):
            builders = methods(classes=False, client_splits=True, network=False, depth=depth)
            builders = {method: builders[method] for method in compared}
            for shift in distances:
                setting = f"{name}, depth {depth}, shift {shift:g}"
                for seed in repeated(range(seeds), setting):
                    train, test = (pair(name, shift, seed + add) for add in (0, 1000))
                    yield setting, compare(train, test, schema_of(NOISY), "mse", builders, seed)


def pair(name: str, shift: float, seed: int) -> pd.DataFrame:
    """Simulate two clients at -shift and shift along the first of ten features, the only relevant one."""
    rng = np.random.default_rng(seed)
    client = np.repeat([0, 1], 500)
    X = rng.normal(size=(1000, NOISY))
    X[:, 0] += np.where(client == 0, -shift, shift)
    y = (X[:, 0] > 0) * 2.0 if name == "disjoint" else X[:, 0]
    y = y + rng.normal(0, 0.5, 1000)
    return pd.DataFrame(X, columns=names(NOISY)).assign(y=y, client=client.astype(str))


def collected(settings: Iterator[Scores]) -> Iterator[Measured]:
    """Yield each method's scores by setting, and FedForest's less the centralized forest's on the same records."""
    rows: dict[str, list[dict[str, float]]] = {}
    for setting, scores in settings:
        rows.setdefault(setting, []).append(scores)
    for setting, runs in rows.items():
        for name in runs[0]:
            yield Measured(setting, name, None, [run[name] for run in runs])
        paired = [run[OURS] - run[CENTRAL] for run in runs]
        yield Measured(setting, f"{OURS} less {CENTRAL}", None, paired)


def table(
    settings: Callable[..., Iterator[Scores]], **chosen: Any
) -> Callable[..., Iterator[Measured]]:
    """Return a run of :data:`privfed.study.papers.TABLES` from one of the studies above."""
    return lambda data, seeds, **few: collected(settings(data, seeds, **{**chosen, **few}))
