"""What the gates cost, and how fast the tree is beside a plain numpy twin.

    python benchmarks/fuzzy_tree_speed.py TABLE.csv [--repeats 5]

Five clients, default parameters. Prints medians and ratios of one run: the same learner over gates
(policy `published`, durable ledgers on disk) and over a bare in-memory federation; the bare learner
and a twin that takes one node at a time, vectorised over records; and the peak of memory while
training over gates, above the same process after its imports.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd

from privfed import LocalDisclosure, Schema
from privfed.exchange.ungated import UngatedDisclosure
from privfed.learners import FuzzyTreeRegressor

CLIENTS = 5


def load(path: Path) -> tuple[pd.DataFrame, Schema, str]:
    """The table with drawn clients, its schema and its target."""
    frame = pd.read_csv(path)
    target = str(frame.columns[-1])
    schema = Schema.infer(frame, target)
    drawn = np.random.default_rng(0).permutation(len(frame)) % CLIENTS
    return frame.assign(client=drawn), schema, target


class Twin:
    """The centralized tree by its formulas, one node after another, over several clients."""

    def __init__(self, tables: list[tuple[np.ndarray, np.ndarray]], sets: int = 5) -> None:
        self.tables, self.sets = tables, sets
        self.whole = sum(len(y) for _, y in tables)
        self.leaves: list[np.ndarray] = []

    def grow(self, weights: list[np.ndarray], depth: int, open_: frozenset[int]) -> None:
        """Split one node or fit it as a leaf."""
        strong = sum(int((w >= 0.5**depth).sum()) for w in weights)
        node = self.sums(weights)
        best, gain = -1, -np.inf
        for feature in sorted(open_):
            cells = np.array([self.sums(self.times(weights, feature, s)) for s in range(self.sets)])
            kept = cells[cells[:, 0] > 0]
            inside = (self.variance(kept) * kept[:, 0]).sum() / kept[:, 0].sum()
            found = self.variance(node[None])[0] - inside
            if found > gain:
                best, gain = feature, found
        if best < 0 or strong / self.whole <= 0.1 or gain < 1e-4:
            self.fit(weights)
            return
        for s in range(self.sets):
            below = self.times(weights, best, s)
            if any((w > 0).any() for w in below):
                self.grow(below, depth + 1, open_ - {best})

    def times(self, weights: list[np.ndarray], feature: int, s: int) -> list[np.ndarray]:
        """Weights below one branch, at every client."""
        return [
            w * np.maximum(0.0, 1 - np.abs(x[:, feature] * (self.sets - 1) - s))
            for w, (x, _) in zip(weights, self.tables, strict=True)
        ]

    def sums(self, weights: list[np.ndarray]) -> np.ndarray:
        """WS, WLS and WSS over all clients."""
        each = [
            (w.sum(), (w * y).sum(), (w * y * y).sum())
            for w, (_, y) in zip(weights, self.tables, strict=True)
        ]
        return np.asarray(np.sum(each, axis=0))

    @staticmethod
    def variance(cells: np.ndarray) -> np.ndarray:
        """Fuzzy variance of rows of sums."""
        return np.asarray(cells[:, 2] / cells[:, 0] - (cells[:, 1] / cells[:, 0]) ** 2)

    def fit(self, weights: list[np.ndarray]) -> None:
        """Weighted least squares of one leaf."""
        width = self.tables[0][0].shape[1] + 1
        gram, moment = np.zeros((width, width)), np.zeros(width)
        for w, (x, y) in zip(weights, self.tables, strict=True):
            design = np.column_stack([np.ones(len(y)), x])
            gram += design.T @ (w[:, None] * design)
            moment += design.T @ (w * y)
        self.leaves.append(np.linalg.pinv(gram, rcond=1e-5, hermitian=True) @ moment)


def train_twin(frame: pd.DataFrame, schema: Schema, target: str) -> int:
    """Scale, grow and fit; returns the number of leaves."""
    features = list(schema.names)
    low, high = np.percentile(frame[features], [2.5, 97.5], axis=0)
    assert schema.target is not None
    bottom, top = schema.target.bounds
    tables = [
        (
            np.clip((part[features].to_numpy() - low) / (high - low), 0, 1),
            ((part[target] - bottom) / (top - bottom)).to_numpy(),
        )
        for _, part in frame.groupby("client")
    ]
    twin = Twin(tables)
    twin.grow([np.ones(len(y)) for _, y in tables], 0, frozenset(range(len(features))))
    return len(twin.leaves)


def gated(frame: pd.DataFrame, schema: Schema, target: str, folder: str) -> LocalDisclosure:
    """A federation with gates and ledgers on disk."""
    policy = FuzzyTreeRegressor().published()
    return LocalDisclosure.from_frame(
        frame, target, client="client", schema=schema, policy=policy, ledgers=folder
    )


def clock(work: object) -> float:
    """Seconds of one call."""
    start = time.perf_counter()
    work()  # type: ignore[operator]
    return time.perf_counter() - start


def memory(path: Path) -> str:
    """Peak above imports while training over gates, in a process of its own."""
    code = (
        "import sys, tempfile; from pathlib import Path\n"
        "sys.path.insert(0, sys.argv[1])\n"
        "import fuzzy_tree_speed as own\n"
        "from privfed.learners.fuzzy_tree import queries\n"
        "import privfed.owner.gate, privfed.questions.plugins as plugins\n"
        "[plugins.load(g, n) for g in ('mechanisms', 'accountants', 'queries') for n in plugins.available(g)]\n"
        "status = lambda: Path('/proc/self/status').read_text().split('VmHWM:')[1]\n"
        "peak = lambda: int(status().split()[0]) / 1024\n"
        "before = peak(); table = own.load(Path(sys.argv[2]))\n"
        "data = table[0].drop(columns='client').memory_usage(index=False).sum() / 2**20\n"
        "fed = own.gated(*table, tempfile.mkdtemp())\n"
        "own.FuzzyTreeRegressor().fit(fed)\n"
        "print(f'{peak() - before:.1f} MB above imports; data {data:.1f} MB, allowed {4 * data + 50:.1f} MB')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(Path(__file__).parent), str(path)],
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("table", type=Path)
    parser.add_argument("--repeats", type=int, default=5)
    given = parser.parse_args()
    frame, schema, target = load(given.table)
    times: dict[str, list[float]] = {"gated": [], "bare": [], "twin": []}
    rounds = 0
    for _ in range(given.repeats):
        learner = FuzzyTreeRegressor()
        with tempfile.TemporaryDirectory() as folder:
            federation = gated(frame, schema, target, folder)
            times["gated"].append(clock(lambda: learner.fit(federation)))  # noqa: B023
            rounds = learner.rounds_
        bare = UngatedDisclosure.from_frame(frame, schema, "client")
        times["bare"].append(clock(lambda: FuzzyTreeRegressor().fit(bare)))  # noqa: B023
        times["twin"].append(clock(lambda: train_twin(frame, schema, target)))
    middle = {name: float(np.median(seconds)) for name, seconds in times.items()}
    for name, seconds in middle.items():
        print(f"{name:6} {seconds:7.3f} s")
    allowed = 1.1 * middle["bare"] + 0.005 * CLIENTS * rounds
    print(
        f"gated / bare {middle['gated'] / middle['bare']:.2f} in {rounds} rounds; "
        f"of what is allowed {middle['gated'] / allowed:.2f}"
    )
    print(
        f"gated / twin {middle['gated'] / middle['twin']:.2f}, bare / twin {middle['bare'] / middle['twin']:.2f}"
    )
    print("peak memory", memory(given.table))


if __name__ == "__main__":
    main()
