"""Each default attack's processor time and memory: what it found, or why it did not look.

    python benchmarks/attack_speed.py [--rows 1000 10000 100000] [--learners tree forest] [--attacks pool]

Five clients share made-up records of twelve columns, in the learner's `published` policy, with ledgers on disk as a
study keeps them. A row is written as soon as an attack ends, and is not measured again while it stands in
`results/attacks_cost.csv`; seconds are the processor's, memory with the releases themselves.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Callable
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pandas as pd
from result_rows import RESULTS, arguments, progress, read_rows, write_rows

from privfed.attacks.base import Truth
from privfed.engines.local import LocalDisclosure
from privfed.exchange.masked_totals import in_time
from privfed.exchange.transcript import Transcript
from privfed.learners import (
    FedForestRegressor,
    FuzzyTreeRegressor,
    GeneticTreeRegressor,
    RuleFitRegressor,
)
from privfed.learners.base import FederatedLearner
from privfed.ledger import Ledger
from privfed.questions import plugins
from privfed.tables.records import Records
from privfed.tables.schema import Column, Schema

CLIENTS, FEATURES = 5, 12
TABLE, KEYS = "attacks_cost", ("learner", "rows", "attack")
LEARNERS: dict[str, Callable[[], FederatedLearner]] = {
    "tree": FuzzyTreeRegressor,
    "forest": lambda: FedForestRegressor(random_state=0),
    "RuleFit": lambda: RuleFitRegressor(random_state=0),
    "genetic": lambda: GeneticTreeRegressor(random_state=0),
}


def made_up(rows: int) -> tuple[pd.DataFrame, Schema]:
    rng = np.random.default_rng(0)
    x = np.round(rng.normal(50, 15, (rows, FEATURES)).clip(0, 100), 2)
    y = (x[:, 0] * x[:, 1] / 50 + x[:, 2] + rng.normal(0, 5, rows)).round(1).clip(0, 300)
    columns = tuple(Column(f"x{i}", lower=0, upper=100) for i in range(FEATURES))
    frame = pd.DataFrame(x, columns=[column.name for column in columns]).assign(y=y)
    return frame, Schema(columns, Column("y", lower=0, upper=300))


def main(rows: int, learner: str, names: list[str]) -> None:
    """Measure attacks on one training's releases, those without a row."""
    known = read_rows(RESULTS / f"{TABLE}.csv")
    done = {tuple(row[key] for key in KEYS) for row in known}
    names = [name for name in names if (learner, str(rows), name) not in done]
    if not names:
        return
    frame, schema = made_up(rows)
    owned = frame.assign(owner=[f"clinic {i % CLIENTS}" for i in range(rows)])
    transcript = trained(LEARNERS[learner](), owned, schema)
    truth = {
        str(owner): Records.from_frame(part.drop(columns="owner"), schema)
        for owner, part in owned.groupby("owner")
    }
    for name in progress(names, f"{learner}, {rows} records, {len(transcript)} releases"):
        context = get_context("fork")
        receiver, sender = context.Pipe(duplex=False)
        child = context.Process(target=measure, args=(sender, name, transcript, truth, schema))
        child.start()
        sender.close()
        try:
            told = receiver.recv()
        except EOFError:
            told = {"why": "ended by the system, for its memory most likely"}
        child.join()
        known.append({"learner": learner, "rows": str(rows), "attack": name, **told})
        write_rows(known, TABLE, KEYS, seed="0")


def trained(model: FederatedLearner, owned: pd.DataFrame, schema: Schema) -> Transcript:
    """What one training released, read from its ledgers: the training's own memory ends with its process."""
    with TemporaryDirectory() as folder:
        fitting = get_context("fork").Process(target=fit, args=(model, owned, schema, folder))
        fitting.start()
        fitting.join()
        ledgers = [Ledger.read(path) for path in sorted(Path(folder).glob("*.db"))]
        transcript = in_time(line for ledger in ledgers for line in ledger.disclosed())
        for ledger in ledgers:
            ledger.close()
    return transcript


def fit(model: FederatedLearner, owned: pd.DataFrame, schema: Schema, folder: str) -> None:
    """Train once, with ledgers in a folder."""
    federation = LocalDisclosure.from_frame(
        owned,
        "y",
        client="owner",
        schema=schema,
        policy=model.published(),
        seed=0,
        ledgers=folder,
    )
    model.fit(federation)
    federation.close()


def measure(
    sender: Connection, name: str, transcript: Transcript, truth: Truth, schema: Schema
) -> None:
    """One attack in a process of its own, so that its memory is its own."""
    begun = time.process_time()
    attack = plugins.load("attacks", name)()
    found = attack.run(transcript, truth, schema) if attack.attackable(transcript) else []
    if attack.attackable(transcript) and not found and attack.bounds and attack.bounds.over:
        found = [attack.unfinished()]
    spent = time.process_time() - begun
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    states = sorted({each.state for each in found}) or ["nothing to read"]
    reasons = dict.fromkeys(each.partial for each in found if each.partial)
    sender.send(
        {
            "seconds": f"{spent:.1f}",
            "gigabytes": f"{peak / 2**20:.2f}",
            "states": ", ".join(states),
            "why": "; ".join(reasons),
        }
    )


if __name__ == "__main__":
    wanted = arguments(
        __doc__,
        rows=(1000, 10_000, 100_000),
        learners=tuple(LEARNERS),
        attacks=tuple(sorted(plugins.available("attacks"))),
    ).parse_args()
    for size in wanted.rows:
        for each in wanted.learners:
            main(size, each, wanted.attacks)
