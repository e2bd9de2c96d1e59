"""What the attacks get under each policy of the fuzzy tree: python benchmarks/attacks.py [folder]

Five clients, scikit-learn's diabetes; with a folder that holds mortgage.csv, that too.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.datasets import load_diabetes

from privfed import plugins
from privfed.attacks.base import Attack, Truth
from privfed.learners.fuzzy_tree import FuzzyTreeRegressor
from privfed.local import LocalDisclosure
from privfed.policy import Policy
from privfed.records import Records
from privfed.schema import Schema

CLIENTS = 5


def policies() -> dict[str, tuple[FuzzyTreeRegressor, Policy]]:
    free, shallow = FuzzyTreeRegressor(), FuzzyTreeRegressor(max_depth=2)
    return {
        "published": (free, free.published()),
        "strict": (free, free.published(strict=True)),
        "private": (shallow, shallow.private(8)),
    }


def attack(name: str, frame: pd.DataFrame, target: str) -> None:
    schema = Schema.infer(frame, target)
    order = np.random.default_rng(0).permutation(len(frame)) % CLIENTS
    owned = frame.assign(owner=[f"clinic {i}" for i in order])
    truth: Truth = {
        owner: Records.from_frame(part.drop(columns="owner"), schema)
        for owner, part in owned.groupby("owner")
    }
    for policy, (learner, guards) in policies().items():
        federation = LocalDisclosure.from_frame(
            owned, target, "owner", schema=schema, policy=guards, seed=0
        )
        learner.fit(federation)
        print(f"{name}, {policy}: {learner.n_leaves_} leaves")
        for attacker in ("verbatim", "recovery", "subtraction", "membership"):
            report(plugins.load("attacks", attacker)(), federation, truth, schema)


def report(attacker: Attack, federation: LocalDisclosure, truth: Truth, schema: Schema) -> None:
    started = time.perf_counter()
    found = attacker.run(federation.transcript(), truth, schema)
    spent = time.perf_counter() - started
    for one in found:
        print(
            f"  {one.attack:12} {one.metric}: {one.value:g} of {one.of:g}, "
            f"by chance {one.baseline:g}, {one.severity}, {spent:.1f} s"
        )


if __name__ == "__main__":
    attack("diabetes", load_diabetes(as_frame=True, scaled=False).frame, "target")
    if len(sys.argv) > 1:
        mortgage = pd.read_csv(Path(sys.argv[1]) / "mortgage.csv")
        attack("mortgage", mortgage, mortgage.columns[-1])
