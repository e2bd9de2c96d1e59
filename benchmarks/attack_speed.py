"""Processor time and memory of attacks: python benchmarks/attack_speed.py [rows] [tree or forest] [attacks...]

Five clients share made-up records of twelve columns, in the `published` policy of a fuzzy tree or of a forest.
"""

from __future__ import annotations

import resource
import sys
import time
from multiprocessing import get_context
from typing import Any

import numpy as np
import pandas as pd

from privfed.attacks.base import Truth
from privfed.engines.local import LocalDisclosure
from privfed.exchange.transcript import Transcript
from privfed.learners import FedForestRegressor, FuzzyTreeRegressor
from privfed.questions import plugins
from privfed.tables.records import Records
from privfed.tables.schema import Column, Schema

CLIENTS, FEATURES = 5, 12


def made_up(rows: int) -> tuple[pd.DataFrame, Schema]:
    rng = np.random.default_rng(0)
    x = np.round(rng.normal(50, 15, (rows, FEATURES)).clip(0, 100), 2)
    y = (x[:, 0] * x[:, 1] / 50 + x[:, 2] + rng.normal(0, 5, rows)).round(1).clip(0, 300)
    columns = tuple(Column(f"x{i}", lower=0, upper=100) for i in range(FEATURES))
    frame = pd.DataFrame(x, columns=[column.name for column in columns]).assign(y=y)
    return frame, Schema(columns, Column("y", lower=0, upper=300))


def main(rows: int, learner: Any, names: list[str]) -> None:
    frame, schema = made_up(rows)
    owned = frame.assign(owner=[f"clinic {i % CLIENTS}" for i in range(rows)])
    federation = LocalDisclosure.from_frame(
        owned, "y", client="owner", schema=schema, policy=learner.published(), seed=0
    )
    learner.fit(federation)
    truth = {
        str(owner): Records.from_frame(part.drop(columns="owner"), schema)
        for owner, part in owned.groupby("owner")
    }
    transcript = federation.transcript()
    print(f"{rows} rows, {len(transcript)} releases of {type(learner).__name__}", flush=True)
    for name in names:
        child = get_context("fork").Process(target=measure, args=(name, transcript, truth, schema))
        child.start()
        child.join()


def measure(name: str, transcript: Transcript, truth: Truth, schema: Schema) -> None:
    """One attack in a process of its own, so that its memory is its own."""
    begun = time.process_time()
    attack = plugins.load("attacks", name)()
    found = attack.run(transcript, truth, schema) if attack.attackable(transcript) else []
    spent = time.process_time() - begun
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    told = [f"{each.metric}: {each.value:g} {each.state} {each.partial}" for each in found]
    print(f"{name}: {spent:.1f} s, {peak / 2**20:.2f} GB; {'; '.join(told)}", flush=True)


if __name__ == "__main__":
    main(
        int(sys.argv[1]) if len(sys.argv) > 1 else 8000,
        FedForestRegressor(random_state=0) if "forest" in sys.argv[2:] else FuzzyTreeRegressor(),
        [name for name in sys.argv[2:] if name not in ("tree", "forest")]
        or sorted(plugins.available("attacks")),
    )
