"""What a peer of the league gets, in this process or, through a folder, in an environment of its own.

    PYTHON benchmarks/peers/problem.py PEER METHOD FOLDER     # as benchmarks/league.py calls it

A peer is a file in this folder whose ``METHODS`` name functions of a :class:`Problem` that return numbers, or
chances of class 1, for its test rows (``ALONE``:
of methods that do one of ``classes`` and ``numbers``, which). It needs numpy and pandas alone; what else it imports, inside of its
functions, is its own. ``ENVIRONMENT`` says what to install where it does not go beside privfed.
"""

from __future__ import annotations

import importlib
import json
import math
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
import pandas as pd

DELTA = 1e-5


@dataclass(frozen=True)
class Feature:
    """A column and what is publicly known of it: bounds of a number, or its categories."""

    name: str
    bounds: tuple[float, float] | None
    categories: tuple[str, ...] = ()


@dataclass(frozen=True)
class Problem:
    """Learn column ``y`` of ``train`` under (epsilon, 1e-5), and predict it for ``test``."""

    train: pd.DataFrame  #: features and y, which is a number or 0 and 1
    test: pd.DataFrame  #: features
    features: tuple[Feature, ...]
    target: tuple[float, float] | None  #: bounds of a number; None for classes
    epsilon: float
    seed: int

    @cached_property
    def rng(self) -> np.random.Generator:
        """The run's randomness."""
        return np.random.default_rng(self.seed)

    def scaled(self, table: pd.DataFrame) -> np.ndarray:
        """Rows with an intercept, numbers in [-1, 1] by their bounds, and a column 0 or 1 for each category."""
        columns = [np.ones(len(table))]
        for feature in self.features:
            values = table[feature.name]
            if feature.bounds:
                low, high = feature.bounds
                columns.append(2 * (values.to_numpy(float) - low) / (high - low) - 1)
            else:
                columns += [
                    np.asarray(values.astype(str) == name, float) for name in feature.categories
                ]
        return np.column_stack(columns)

    @property
    def y(self) -> np.ndarray:
        """Training targets: numbers in [-1, 1] by their bounds, or 0 and 1."""
        y = self.train["y"].to_numpy(float)
        if self.target is None:
            return y
        low, high = self.target
        return np.asarray(2 * (y - low) / (high - low) - 1)

    def unscaled(self, y: np.ndarray) -> np.ndarray:
        """Numbers of [-1, 1] in units of the target."""
        low, high = self.target or (-1.0, 1.0)
        return np.asarray(low + (np.clip(y, -1, 1) + 1) / 2 * (high - low))

    @cached_property
    def mu(self) -> float:
        """The Gaussian mechanism's sensitivity over its deviation at (epsilon, delta), exactly (Balle and Wang 2018)."""
        low, high = 0.0, 100.0
        for _ in range(100):
            middle = (low + high) / 2
            low, high = (
                (middle, high) if gaussian_delta(self.epsilon, middle) < DELTA else (low, middle)
            )
        return low

    def write(self, folder: Path) -> None:
        """Write this into a folder, for :func:`read` in another environment."""
        self.train.to_csv(folder / "train.csv", index=False)
        self.test.to_csv(folder / "test.csv", index=False)
        about = {"features": [asdict(one) for one in self.features], "target": self.target}
        told = json.dumps({**about, "epsilon": self.epsilon, "seed": self.seed})
        (folder / "problem.json").write_text(told, encoding="utf-8")


def gaussian_delta(epsilon: float, mu: float) -> float:
    """The least delta of a Gaussian mechanism: Phi(mu / 2 - epsilon / mu) - e^epsilon Phi(- mu / 2 - epsilon / mu)."""
    if mu <= 0:
        return 0.0
    phi = NormalDist().cdf
    return phi(mu / 2 - epsilon / mu) - math.exp(epsilon) * phi(-mu / 2 - epsilon / mu)


def read(folder: Path) -> Problem:
    """Read what :meth:`Problem.write` wrote."""
    told = json.loads((folder / "problem.json").read_text(encoding="utf-8"))
    features = tuple(
        Feature(
            one["name"], tuple(one["bounds"]) if one["bounds"] else None, tuple(one["categories"])
        )
        for one in told["features"]
    )
    named = {one.name: str for one in features if not one.bounds}
    train, test = (
        pd.read_csv(folder / f"{name}.csv", dtype=named, keep_default_na=False)
        for name in ("train", "test")
    )
    target = tuple(told["target"]) if told["target"] else None
    return Problem(train, test, features, target, told["epsilon"], told["seed"])


Method = Callable[[Problem], np.ndarray]


def methods(peer: str) -> Mapping[str, Method]:
    """The functions of a peer's file, by their methods' names."""
    found: Mapping[str, Method] = importlib.import_module(f"peers.{peer}").METHODS
    return found


def timed(method: Method, problem: Problem) -> tuple[np.ndarray, float]:
    """What a method predicts, and its processor time in seconds."""
    begun = time.process_time()
    return np.asarray(method(problem), float), time.process_time() - begun


def main() -> None:
    """Carry out one method on a folder's problem, and leave its predictions there."""
    peer, method, folder = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    sys.path.insert(0, str(Path(__file__).parent.parent))
    shared: Any = importlib.import_module("peers.problem")
    told, seconds = shared.timed(shared.methods(peer)[method], shared.read(folder))
    np.save(folder / "told.npy", np.append(told, seconds))


if __name__ == "__main__":
    main()
