"""The ledger and the accountants at full size: one command, every figure with its target.

    python benchmarks/ledger.py [--quick]

Speeds are put beside a peer in the same run (SQLite alone with the same rows and the same durability),
and are given by the clock and by the processor time that the run itself had: on a machine that is
shared, the two differ.
"""

from __future__ import annotations

import math
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pandas as pd
from ledger_trials import (
    crowd,
    every_flip,
    fill,
    killed,
    objects,
    some_flips,
)
from result_rows import arguments
from scipy.special import expit

from privfed.accountants import pld
from privfed.engines.local import LocalDisclosure
from privfed.learners import RuleFitClassifier
from privfed.ledger import Ledger
from privfed.ledger.sqlite_store import SqliteStore
from privfed.mechanisms.randomized_response import flip_probability
from privfed.owner.gate import Gate
from privfed.privacy.accountant import Budget
from privfed.privacy.laws import BitFlips, Charged, DiscreteGaussian, DiscreteLaplace
from privfed.privacy.loss import Loss
from privfed.privacy.policy import Guard, Policy
from privfed.tables.records import Records
from privfed.tables.schema import Column, Schema
from privfed.testing.queries import Histogram


@dataclass(frozen=True)
class Took:
    """Seconds by the clock, and of processor time."""

    wall: float
    own: float

    def rate(self, count: int) -> str:
        return f"{count / self.wall:,.0f}/s, {count / self.own:,.0f}/CPU s"

    def __str__(self) -> str:
        return f"{self.wall:.2f} s, {self.own:.2f} CPU s"


def timed(work: Callable[[], object]) -> Took:
    start, own = time.perf_counter(), time.process_time()
    work()
    return Took(time.perf_counter() - start, time.process_time() - own)


def line(what: str, figure: str, target: str) -> None:
    print(f"{what:56} {figure:>44}   {target}", flush=True)


def appending(folder: Path, rows: int) -> Path:
    path = folder / "append.db"
    ledger = Ledger(path, "d")
    took = timed(lambda: fill(ledger, rows))
    size = path.stat().st_size / rows
    ledger.close()
    peer = timed(lambda: plain_rows(folder / "plain.db", rows, int(size)))
    line(
        f"append {rows:,} durable rows, 2,000 together",
        f"{took.rate(rows)}; {took.own / peer.own:.1f} x SQLite alone",
        ">= 20,000 rows/s",
    )
    return path


def plain_rows(path: Path, rows: int, size: int) -> None:
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("PRAGMA journal_mode=WAL")
    db.execute("PRAGMA synchronous=FULL")
    db.execute("CREATE TABLE entries (seq INTEGER PRIMARY KEY, body BLOB)")
    for start in range(0, rows, 2000):
        db.execute("BEGIN IMMEDIATE")
        for _ in range(start, min(start + 2000, rows)):
            db.execute("INSERT INTO entries (body) VALUES (?)", (b"x" * size,))
        db.execute("COMMIT")
    db.close()


def verifying(path: Path, rows: int) -> None:
    ledger = Ledger.read(path)
    line(f"verify {rows:,} rows", str(timed(ledger.verify)), "< 10 s per 1,000,000")
    ledger.close()
    seconds = min(timed(lambda: Ledger(path, "d").close()).wall for _ in range(5))
    small = path.with_name("small.db")
    Ledger(small, "d").close()
    alone = min(timed(lambda: Ledger(small, "d").close()).wall for _ in range(5))
    line("open it", f"{seconds * 1e3:.1f} ms (empty: {alone * 1e3:.1f} ms)", "O(1)")


def crashing(folder: Path, kills: int) -> None:
    lives = killed(folder / "killed.db", kills, seed=11)
    outcome = f"{lives.changed} changed, {lives.short} short, {lives.interrupted} refused"
    line(f"SIGKILL x {lives.kills}, {len(lives.released)} released", outcome, "0, 0 and 0")


def tampering(folder: Path, rows: int, sample: int) -> None:
    path = folder / "flips.db"
    ledger = Ledger(path, "d")
    fill(ledger, rows)
    ledger.close()
    tried, unnoticed = every_flip(path)
    line(
        f"every bit of every value of {rows + 1:,} rows", f"{unnoticed} of {tried:,} unnoticed", "0"
    )
    tried, unnoticed = some_flips(path, sample, seed=3)
    line("of them in the file, by the whole verifier", f"{unnoticed} of {tried:,} unnoticed", "0")
    assert not objects(path)


def crowding(folder: Path, each: int) -> None:
    seconds = time.perf_counter()
    counts = crowd(folder / "crowd.db", 4, 8, each, "20")
    seconds = time.perf_counter() - seconds
    line(
        f"4 processes x 8 threads x {each} requests, budget for 200",
        f"{counts.get('release', 0)} released, {counts.get('budget', 0)} refused, {seconds:.0f} s",
        "200 and the rest, nothing else",
    )


SCHEMA = Schema(tuple(Column(f"x{i}", lower=0.0, upper=1.0) for i in range(10)))


def rounds(folder: Path, count: int, block: int, parallel: bool) -> None:
    """A plain schedule: each round one histogram of 32 bins from each of five clients."""
    policy = Policy(
        {Histogram.kind: (Guard.of("laplace", spend="0.01", times=count),)},
        budget=Budget.of(Fraction(count, 100)),
    )
    query = Histogram(0, tuple(np.linspace(0, 1, 33).tolist()))
    times = {}
    for where in ("disk", "memory"):
        gates = {}
        for client in range(5):
            name = f"{where}-{block}-{parallel}-{client}"
            ledger = Ledger(folder / f"{name}.db" if where == "disk" else None, name)
            records = Records(SCHEMA, np.random.default_rng(client).random((2000, 10)))
            gates[name] = Gate(name, records, policy, ledger, queries=(Histogram,), block=block)
        federation = LocalDisclosure(gates, parallel=parallel)
        times[where] = timed(partial(_repeated, partial(federation.ask, query), count))
    share = 1 - times["memory"].wall / times["disk"].wall
    line(
        f"{count} rounds, 5 clients{' at once' * parallel}, blocks of {block}: durable writes",
        f"{share:.1%} of {times['disk'].wall:.1f} s",
        f"<= 10 % (a bare commit takes {bare_commit(folder) * 1e3:.2f} ms here)",
    )


def training(folder: Path, count: int, block: int) -> None:
    """Federated RuleFit, five clients of 4,000 records: the seconds in commits, of all its seconds."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(20_000, 10)).clip(-5, 5), columns=list("abcdefghij"))
    frame["y"] = (rng.random(20_000) < expit(frame["a"] - frame["b"])).astype(int)
    frame["client"] = np.arange(20_000) % 5
    columns = tuple(Column(name, lower=-5, upper=5) for name in "abcdefghij")
    learner = RuleFitClassifier(random_state=0, n_rounds=count)
    federation = LocalDisclosure.from_frame(
        frame,
        "y",
        client="client",
        schema=Schema(columns, Column("y", "integer", 0, 1)),
        policy=learner.published(),
        ledgers=folder / f"training-{block}",
        block=block,
    )
    with commits() as seconds:
        took = timed(lambda: learner.fit(federation))
    federation.close()
    line(
        f"RuleFit, {count} rounds, 5 clients, blocks of {block}: durable writes",
        f"{sum(seconds) / took.wall:.1%} of {took}, {len(seconds):,} commits",
        "<= 10 %",
    )


@contextmanager
def commits() -> Iterator[list[float]]:
    """Collect the seconds that each commit of any ledger takes."""
    seconds: list[float] = []
    commit = SqliteStore.commit

    def measured(store: SqliteStore, state: Mapping[str, bytes]) -> None:
        seconds.append(timed(lambda: commit(store, state)).wall)

    with patch.object(SqliteStore, "commit", measured):
        yield seconds


def bare_commit(folder: Path) -> float:
    """Seconds that SQLite alone takes for one durable row."""
    db = sqlite3.connect(folder / "commit.db", isolation_level=None)
    db.execute("PRAGMA journal_mode=WAL")
    db.execute("PRAGMA synchronous=FULL")
    db.execute("CREATE TABLE IF NOT EXISTS entries (body BLOB)")

    def commits() -> None:
        for _ in range(100):
            db.execute("INSERT INTO entries VALUES (?)", (b"x" * 500,))

    took = timed(commits)
    db.close()
    return took.wall / 100


def _repeated(ask: Callable[[], object], count: int) -> None:
    for _ in range(count):
        ask()


def composing(releases: int) -> None:
    rng = np.random.default_rng(0)
    sizes = rng.uniform(0.5, 1.5, releases) / math.sqrt(releases)
    for name, kinds in (("Laplace", (0,)), ("mixed", (0, 1, 2))):
        losses = [_loss(kinds[i % len(kinds)], float(size)) for i, size in enumerate(sizes)]
        took = timed(partial(pld.epsilon_at, losses, 1e-6))
        ours = pld.epsilon_at(losses, 1e-6)
        line(
            f"{releases:,} different {name} releases, epsilon at 1e-6",
            f"{ours:.4f} in {took}",
            "< 2 s",
        )


def comparing(releases: int) -> None:
    """Against the composition of all releases without buckets, on a ten times finer grid."""
    rng = np.random.default_rng(1)
    sizes = rng.uniform(0.5, 1.5, releases) / math.sqrt(releases)
    losses = [_loss(i % 3, float(size)) for i, size in enumerate(sizes)]
    found = pld.pairs(losses)
    exact = pld.distribution(found, pld._interval(found) / 3).get_epsilon_for_delta(1e-6)
    ours = pld.epsilon_at(losses, 1e-6)
    line(
        f"{releases:,} mixed releases against no buckets, finer grid",
        f"{ours:.4f} / {exact:.4f} = {ours / exact:.4f}",
        "within 1 %",
    )


def _loss(kind: int, size: float) -> Loss:
    if kind == 0:
        return Loss.pure(repr(size), Charged(DiscreteLaplace(1000 / size), 1000))
    if kind == 1:
        return Loss.zcdp(repr(size**2 / 2), Charged(DiscreteGaussian(1000 / size), 1000000))
    flip = flip_probability(Fraction(repr(size)))
    return Loss.pure(repr(size), Charged(BitFlips(flip), 1))


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of everything")
    scale = 10 if parser.parse_args().quick else 1
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        path = appending(folder, 1_000_000 // scale)
        verifying(path, 1_000_000 // scale)
        for block, parallel in ((1, False), (16, False), (1, True), (16, True)):
            rounds(folder, 300 // scale, block, parallel)
        for block in (1, 16, 64):
            training(folder, 300 // scale, block)
        composing(10_000 // scale)
        comparing(2000 // scale)
        crowding(folder, 20)
        crashing(folder, 300 // scale)
        tampering(folder, 1000 // scale, 2000 // scale)


if __name__ == "__main__":
    main()
