"""What learning costs: time and memory of default fits over gates and ledgers, with secure noise.

    python benchmarks/rulefit_speed.py --kept /tmp/costs
    python benchmarks/results_page.py

Each fit is a process of its own, on one core: ten covariates (Model 2 of RuleFit's simulations), as many
records in each client. Seconds are the processor's, ratios are of one run, and memory is the most that
the process took beyond what it held before it began to learn, its table included. Where noise is drawn,
its part of the time is told apart: each number takes OpenDP's exact sampler some microseconds. Fits
that the folder already holds are not made again.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from result_rows import arguments, write_rows
from results_page import TABLES

from privfed import Column, LocalDisclosure, Schema
from privfed.learners import FedForestClassifier, FuzzyTreeRegressor, RuleFitClassifier
from privfed.privacy.noise import SecureNoise
from privfed.study.papers.simulations import SCHEMA, draw, split

ROOT = Path(__file__).resolve().parent.parent
LEARNERS: dict[str, Any] = {
    "RuleFit": RuleFitClassifier,
    "forest": FedForestClassifier,
    "fuzzy tree": FuzzyTreeRegressor,
}
#: The goals: megabytes beyond the data, and a hundred clients' time over that of five.
MEMORY, MANY = 200, 2.0
SEED = 0
#: What is measured, the goal, and the figure.
Line = tuple[str, str, float]
NOTE = "one core, shared with other work: ratios of one run, processor time; ledgers in memory; secure noise"


@dataclass(frozen=True)
class Cost:
    """What one fit took: seconds, those of drawing noise, how many numbers that was, megabytes."""

    seconds: float
    noise: float
    cells: int
    memory: float


# --- one fit, in a process of its own ----------------------------------------------------------


def fit(learner: str, policy: str, rows: int, clients: int) -> Cost:
    """Learn once, policy `published` or `private` at epsilon 1."""
    warnings.simplefilter("ignore")
    frame = split(draw(2, rows, np.random.default_rng(SEED)), (1 / clients,) * clients)
    kind = LEARNERS[learner]
    own = kind() if learner == "fuzzy tree" else kind(random_state=SEED)
    schema = SCHEMA
    if learner == "fuzzy tree":  # a regressor: the class as a share
        schema = Schema(SCHEMA.features, Column("y", "number", 0, 1))
    allowed = own.published() if policy == "published" else own.private(1, "1e-5", schema=schema)
    gates = LocalDisclosure.from_frame(
        frame, "y", client="client", schema=schema, policy=allowed, queries=kind.queries
    )
    drawn = _watched()
    before, start = _most(), time.process_time()
    own.fit(gates)
    return Cost(time.process_time() - start, drawn[0], int(drawn[1]), _most() - before)


def _most() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _watched() -> list[float]:
    """Seconds and numbers of noise from here on."""
    told = [0.0, 0]
    for law in ("gaussian", "laplace"):
        sampler = getattr(SecureNoise, law)

        def watched(noise: Any, size: int, scale: float, sampler: Any = sampler) -> np.ndarray:
            start = time.process_time()
            found: np.ndarray = sampler(noise, size, scale)
            told[0] += time.process_time() - start
            told[1] += size
            return found

        setattr(SecureNoise, law, watched)
    return told


@dataclass(frozen=True)
class Fits:
    """Costs of fits, each measured once and kept in a folder."""

    kept: Path

    def cost(self, learner: str, policy: str, rows: int, clients: int) -> Cost:
        """Return the cost of one fit, in a process of its own unless it is kept."""
        self.kept.mkdir(parents=True, exist_ok=True)
        what = [learner, policy, str(rows), str(clients)]
        file = self.kept / f"{'-'.join(what).replace(' ', '_')}.json"
        if not file.exists():
            cores = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
            told = subprocess.run(
                [sys.executable, __file__, "--one", *what],
                env={**os.environ, **cores, "PYTHONPATH": str(ROOT)},
                capture_output=True,
                text=True,
                check=True,
            )
            file.write_text(told.stdout, encoding="utf-8")
        cost = Cost(**json.loads(file.read_text(encoding="utf-8")))
        print(*what, cost, flush=True)
        return cost


# --- goals and figures -------------------------------------------------------------------------


def memory(fits: Fits, learner: str, policy: str, rows: int, bound: str = "") -> Iterator[Line]:
    """Memory of a fit of five clients."""
    what = f"{learner}, {policy}, {rows:,} x 10, five clients: MB beyond the data"
    yield what, bound, fits.cost(learner, policy, rows, 5).memory


def many_clients(fits: Fits, learner: str, policy: str) -> Iterator[Line]:
    """The same records among ever more clients: time in times of five clients'."""
    what, goal = f"{learner}, {policy}, 20,000 x 10", f"at most {MANY:g}"
    five = fits.cost(learner, policy, 20_000, 5)
    for clients in (20, 100):
        more = fits.cost(learner, policy, 20_000, clients)
        yield (
            f"{what}: time of {clients} clients over that of five",
            goal if clients == 100 else "",
            more.seconds / five.seconds,
        )
    if policy == "private":
        yield f"{what}: the same of noise alone, {clients} clients", "", more.noise / five.seconds
        yield f"{what}: noisy numbers of each of {clients} clients", "", more.cells / clients
        yield f"{what}: microseconds of a noisy number", "", 1e6 * more.noise / more.cells


def lines(fits: Fits, quick: bool) -> Iterator[Line]:
    """What is measured, the goal, and the figure."""
    bound = f"at most {MEMORY}"
    yield from memory(fits, "RuleFit", "published", 20_000, bound)
    for learner, policy in (
        ("RuleFit", "private"),
        ("forest", "private"),
        ("fuzzy tree", "private"),
        ("RuleFit", "published"),
    ):
        yield from many_clients(fits, learner, policy)
    if quick:
        return
    yield from memory(fits, "RuleFit", "private", 200_000, bound)
    yield from memory(fits, "RuleFit", "published", 200_000, bound)


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument(
        "--kept", type=Path, default=Path("costs"), help="a folder for costs of single fits"
    )
    parser.add_argument("--quick", action="store_true", help="leave the large tables out")
    parser.add_argument("--out", type=Path, default=TABLES / "rulefit_speed.csv")
    parser.add_argument("--one", nargs=4, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.one:
        learner, policy, rows, clients = chosen.one
        print(json.dumps(asdict(fit(learner, policy, int(rows), int(clients)))))
        return
    found = lines(Fits(chosen.kept), chosen.quick)
    table = pd.DataFrame(found, columns=["cost", "goal", "figure"])
    keys = ("cost", "goal")
    write_rows(table, chosen.out, keys, seed=str(SEED), note=NOTE, float_format="%.4g")


if __name__ == "__main__":
    main()
