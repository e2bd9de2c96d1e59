"""Shares of raw values that a forest's sketches hand over, by policy: the attack ``sketches``.

    python benchmarks/forest_values.py DATA [--sets breast_cancer_wdbc diabetes_pima] [--trees 10]

Five clients, records dealt at random; sqrt(p) features a node, depth 10, leaves of 5. Sketches are order
statistics, or interpolated ("least squares" solves those for the values between). Under `private` the
forest grows and no sketch leaves, which the table says in words.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
from result_rows import PaperRows, arguments

from privfed import LocalDisclosure
from privfed.attacks.sketches import SketchedValues
from privfed.learners import FedForestClassifier
from privfed.privacy.policy import Policy
from privfed.study.papers.forest import CLIENTS, prepared
from privfed.tables.records import Records

METRICS = ("cells that stand in the sketches", "cells recovered with least squares")
#: What stands in the place of a share where the attack has nothing to work on.
NOTHING = "no sketch leaves"
POLICIES = ("published", "nullified", "private")


def policy_of(learner: FedForestClassifier, name: str) -> Policy:
    """One of :data:`POLICIES`; ``private`` at epsilon 1."""
    if name == "private":
        return learner.private(1)
    return learner.published() if name == "published" else learner.nullified()


def shares(
    folder: Path, name: str, trees: int, policy: str, interpolate: bool
) -> Iterator[tuple[str, float | None, float | None]]:
    """Each finding of the attack: what, share of all cells, and share by chance; none without a sketch."""
    frame, schema = prepared(name, pd.read_csv(folder / f"{name}.csv"))
    assert schema.target is not None
    owner = np.random.default_rng(0).integers(0, CLIENTS, len(frame)).astype(str)
    learner = FedForestClassifier(n_estimators=trees, interpolate=interpolate, random_state=0)
    owned, guards = frame.assign(owner=owner), policy_of(learner, policy)
    known = replace(schema, inferred=guards.budget is None)  # else as if bounds had been public
    federation = LocalDisclosure.from_frame(
        owned, schema.target.name, client="owner", schema=known, policy=guards
    )
    learner.fit(federation)
    truth = {
        str(o): Records.from_frame(p.drop(columns="owner"), schema)
        for o, p in owned.groupby("owner")
    }
    attack, transcript = SketchedValues(), federation.transcript()
    if not attack.attackable(transcript):
        for metric in METRICS:
            yield metric, None, None
        return
    for found in attack.run(transcript, truth, schema):
        assert found.of and found.baseline is not None
        yield found.metric, float(found.value / found.of), float(found.baseline / found.of)


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("--sets", nargs="*", default=["breast_cancer_wdbc", "diabetes_pima"])
    parser.add_argument("--trees", type=int, default=10)
    given = parser.parse_args()
    cells = PaperRows("FedForest", "0")
    for name in given.sets:
        for policy in POLICIES:
            for interpolate in (False, True) if policy != "private" else (False,):
                row = f"{name}, {policy}" + ", interpolated" * interpolate
                for metric, share, chance in shares(
                    given.data, name, given.trees, policy, interpolate
                ):
                    note = f"share of all cells, {given.trees} trees, five clients"
                    for column, value in ((metric, share), (f"{metric}, by chance", chance)):
                        shown = NOTHING if value is None else value
                        print(f"{row}: {column}: {shown}", flush=True)
                        cells.add("Raw values out of sketches", row, column=column, ours=shown,
                                  note=note)  # fmt: skip
    print(cells.write("forest_values"))


if __name__ == "__main__":
    main()
