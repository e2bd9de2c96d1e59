"""Scoring candidates: the trie beside recursion in numpy and plain Python, in one process.

    python benchmarks/genetic_speed.py [--clients 20] [--records 2000] [--features 10] [--depth 6]
    python benchmarks/genetic_speed.py --whole [--numbers] [--clients 20] [--records 5000]

A generation is P = 20 offspring scored at every client, bred by the paper's operators from a
population that starts with the clients' own structures. The slow ones score the same candidates of a
few generations at one client; their fits must be the same. Prints milliseconds for one client and
generation, what a whole generation takes, memory, and ratios.

``--whole`` fits the published protocol with gates and ledgers, as a user does, beside the trees that
scikit-learn grows for it (each client's, on five folds and on all records). Prints CPU time, the
ratio, and peak memory.
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Callable

import numpy as np
import pandas as pd
from result_rows import arguments

from privfed import LocalDisclosure
from privfed.learners import GeneticTreeClassifier, GeneticTreeRegressor
from privfed.learners.genetic_tree import local, operators
from privfed.learners.genetic_tree.fitness import macro_f1, scores
from privfed.learners.genetic_tree.splits import Ranked
from privfed.learners.genetic_tree.structures import NIL, random_structures
from privfed.learners.genetic_tree.trie import Trie
from privfed.tables.schema import Column, Schema

P = 20


def client(seed: int, records: int, features: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(records, features))
    signal = x[:, 0] * x[:, 1] + x[:, 2] - 0.5 * x[:, 3] * x[:, 4]
    return x, (signal + 0.7 * rng.normal(size=records) > 0).astype(int)


def by_numpy(x: np.ndarray, y: np.ndarray, fit: np.ndarray) -> tuple[int, float] | None:
    """The best cut of one feature by sorting and cumulated counts, where there is one."""
    order = np.argsort(x[fit], kind="stable")
    values, ones = x[fit][order], np.cumsum(y[fit][order])
    ends = np.flatnonzero(values[1:] != values[:-1])
    if not len(ends):
        return None
    left, right = ends + 1.0, len(fit) - ends - 1.0
    a, b = ones[ends].astype(float), (ones[-1] - ones[ends]).astype(float)
    quality = (a**2 + (left - a) ** 2) / left + (b**2 + (right - b) ** 2) / right
    best = int(quality.argmax())
    return 0, float(values[ends[best]] / 2 + values[ends[best] + 1] / 2)


def by_python(x: np.ndarray, y: np.ndarray, fit: np.ndarray) -> tuple[int, float] | None:
    """The same, record by record."""
    pairs = sorted((float(x[record]), int(y[record])) for record in fit)
    total, ones, found = sum(label for _, label in pairs), 0, (-1.0, 0.0)
    for at in range(len(pairs) - 1):
        ones += pairs[at][1]
        if pairs[at][0] == pairs[at + 1][0]:
            continue
        left, right = at + 1, len(pairs) - at - 1
        quality = (ones**2 + (left - ones) ** 2) / left
        quality += ((total - ones) ** 2 + (right - total + ones) ** 2) / right
        found = max(found, (quality, pairs[at][0] / 2 + pairs[at + 1][0] / 2), key=lambda f: f[0])
    return (0, found[1]) if found[0] >= 0 else None


Cut = Callable[[np.ndarray, np.ndarray, np.ndarray], tuple[int, float] | None]


def recursed(
    x: np.ndarray, y: np.ndarray, genes: np.ndarray, fit: np.ndarray, held: np.ndarray, cut: Cut
) -> np.ndarray:
    """Confusion counts of one candidate, (true, said), fitted node by node."""
    label = np.bincount(y[fit], minlength=2)
    pure = label.max() == len(fit)
    found = None if not len(genes) or genes[0] == NIL or pure else cut(x[:, genes[0]], y, fit)
    if found is None:
        cells = np.zeros((2, 2))
        cells[:, label.argmax()] = np.bincount(y[held], minlength=2)
        return cells
    half, column = len(genes) // 2, x[:, genes[0]]
    sides = [[part[(column[part] <= found[1]) == low] for part in (fit, held)] for low in (1, 0)]
    lower, upper = genes[1 : 1 + half], genes[1 + half :]
    left, right = sides
    below: np.ndarray = recursed(x, y, lower, left[0], left[1], cut)
    below += recursed(x, y, upper, right[0], right[1], cut)
    return below


def whole(given: argparse.Namespace) -> None:
    """Fit the published protocol, then grow the clients' own trees; print the ratio of CPU time."""
    owned = [client(k, given.records, given.features) for k in range(given.clients)]
    rng, classes = np.random.default_rng(0), 0 if given.numbers else 2
    data = [(x, y if classes else y + rng.normal(size=len(y))) for x, y in owned]
    names = [f"x{number}" for number in range(given.features)]
    frame = pd.DataFrame(np.concatenate([x for x, _ in data]).clip(-9, 9), columns=names)
    frame["y"] = np.concatenate([y for _, y in data]).clip(-9, 9)
    frame["owner"] = np.repeat(np.arange(given.clients), given.records)
    target = Column("y", "integer", 0, 1) if classes else Column("y", "number", -9, 9)
    schema = Schema(tuple(Column(name, "number", -9, 9) for name in names), target)
    learner = (GeneticTreeClassifier if classes else GeneticTreeRegressor)(
        generations=given.generations, random_state=0
    )
    before = time.process_time()
    policy = learner.published()
    fed = LocalDisclosure.from_frame(
        frame, target="y", client="owner", schema=schema, policy=policy, seed=1
    )
    learner.fit(fed)
    fitted = time.process_time()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
    for x, y in data:
        parts = local.folds(rng.permutation(len(y)), learner.cv)
        for part in parts:
            rest = np.setdiff1d(np.arange(len(y)), part)
            local.cart(x[rest], y[rest], classes, learner.max_depth)
        local.cart(x, y, classes, learner.depth_)
    own = time.process_time() - fitted
    print(
        f"whole fit: {fitted - before:.1f} s, {(fitted - before) / own:.2f} times as long as the clients' "
        f"own trees in scikit-learn ({own:.1f} s); peak memory {peak:.0f} MiB"
    )


def main() -> None:
    parser = arguments(__doc__)
    for name, value in (("clients", 20), ("records", 2000), ("features", 10), ("depth", 6)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--generations", type=int, default=100)
    parser.add_argument("--whole", action="store_true")
    parser.add_argument("--numbers", action="store_true")
    given = parser.parse_args()
    if given.whole:
        whole(given)
        return
    depth, rng = given.depth, np.random.default_rng(0)
    data = [client(k, given.records, given.features) for k in range(given.clients)]
    held = [np.sort(rng.permutation(given.records)[: given.records // 5]) for _ in data]
    roots = [(np.setdiff1d(np.arange(given.records), part), part) for part in held]
    tries = [
        Trie(Ranked.of(x, y, 2), [root], depth) for (x, y), root in zip(data, roots, strict=True)
    ]
    own = np.array([local.structure(x, y, 2, depth) for x, y in data])
    more = random_structures(max(P - len(own), 0), depth, given.features, 0.01, rng)
    offspring, genes, fitness = np.concatenate([own, more]), own[:0], np.empty(0)
    seconds, asked = [], []
    for _ in range(given.generations):
        before = time.process_time()
        told = np.mean([scores(trie, offspring) for trie in tries], axis=0)
        seconds.append(time.process_time() - before)
        asked.append(offspring)
        genes, fitness = np.concatenate([genes, offspring]), np.concatenate([fitness, told])
        alive = operators.survivors(genes, fitness, P, depth, np.zeros(len(genes), bool))
        genes, fitness = genes[alive], fitness[alive]
        parents = genes[operators.tournaments(fitness, P, 3, rng)]
        born = operators.crossover(parents, rng)
        offspring = operators.mutate(born, given.features, 0.05, 0.05, rng)
    each = 1e3 * np.mean(seconds) / given.clients
    print(
        f"trie: {each:.2f} ms a client and generation; a generation of {given.clients} clients "
        f"{np.mean(seconds):.3f} s on average, {np.median(seconds):.3f} s at the median, "
        f"{seconds[0]:.3f} s the first; {sum(t.bytes for t in tries) / 2**20:.0f} MiB in all tries"
    )
    (x, y), (fit, part) = data[0], roots[0]
    sample = asked[:: max(1, given.generations // 5)]
    for name, cut in (("numpy recursion", by_numpy), ("plain Python", by_python)):
        before = time.process_time()
        found = [
            macro_f1(np.array([recursed(x, y, row, fit, part, cut) for row in population]))
            for population in sample
        ]
        slow = 1e3 * (time.process_time() - before) / len(sample)
        same = all(
            np.allclose(one, scores(tries[0], population), atol=1e-12)
            for one, population in zip(found, sample, strict=True)
        )
        print(f"{name}: {slow:.0f} ms, {slow / each:.0f} times as long; same scores: {same}")


if __name__ == "__main__":
    main()
