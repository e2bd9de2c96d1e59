"""What can be rebuilt from answers: python benchmarks/reconstruction.py [bits] [tables] [private_forests] ...

Bits from 512 random subset sums of 128 (Laplace noise, ten draws each); people of a 2 x 4 x 10 table
from its exact two-way margins (twenty draws); values from power sums; and the attacks on what learners
released: everything together, and records out of forests' sketches. All data simulated, but for
scikit-learn's diabetes and breast cancer, which five clinics share.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
from result_rows import RESULTS, arguments, read_rows, write_rows
from sklearn.datasets import load_diabetes

from privfed.attacks.base import HELD_OUT, Attack
from privfed.attacks.contingency import ranges
from privfed.attacks.forest_records import PiecedRecords
from privfed.attacks.power_sums import values
from privfed.attacks.reconstruction import LIKELIEST, Reconstruction
from privfed.attacks.sketches import SketchedValues
from privfed.attacks.subset_sums import rebuilt_bits
from privfed.engines.local import LocalDisclosure
from privfed.learners import (
    FedForestClassifier,
    FedForestRegressor,
    FuzzyTreeRegressor,
    RuleFitClassifier,
)
from privfed.privacy.policy import Policy
from privfed.tables.records import Records
from privfed.tables.schema import Schema
from privfed.tables.sources import load

CLINICS = 5
BINARY = 5  #: Columns of a private forest's table, each above or below its median
EPSILONS, TABLE = ("0.5", "1", "2", "4", "8"), "attacks_forests"


def bits() -> None:
    for noise in (1, 2, 4, 8):
        shares, times = [], []
        for seed in range(10):
            rng = np.random.default_rng(seed)
            secret, weights = rng.random(128) < 0.5, (rng.random((512, 128)) < 0.5).astype(float)
            answers = weights @ secret + rng.laplace(0, noise, 512)
            begun = time.perf_counter()
            found = rebuilt_bits(weights, answers)
            times.append(time.perf_counter() - begun)
            assert found is not None
            shares.append(float((found == secret).mean()))
        print(
            f"128 bits, noise {noise}: {np.mean(shares):.3f} right (least {min(shares):.3f}), "
            f"{np.mean(times):.2f} s"
        )


def tables(shape: tuple[int, ...] = (2, 4, 10)) -> None:
    index = np.indices(shape).reshape(len(shape), -1)
    design = np.array(
        [
            (index[a] == i) & (index[b] == j)
            for a in range(3)
            for b in range(a)
            for i, j in product(range(shape[a]), range(shape[b]))
        ],
        dtype=float,
    )
    for people in (10, 20, 30, 50):
        whole, inside, begun = [], [], time.perf_counter()
        for seed in range(20):
            rng = np.random.default_rng(seed)
            cells = [rng.integers(0, size, people) for size in shape]
            table = np.bincount(np.ravel_multi_index(cells, shape), minlength=int(np.prod(shape)))
            found = ranges(design, low=design @ table, high=design @ table)
            assert found is not None
            whole.append(found.determined.all())
            inside.append(table[found.determined].sum() / people)
        print(
            f"2 x 4 x 10 table of {people}: {np.mean(whole):.2f} of 20 rebuilt whole, "
            f"{np.mean(inside):.2f} of people in determined cells, "
            f"{(time.perf_counter() - begun) / 20:.2f} s each"
        )


def power_sums() -> None:
    for count in (2, 5, 8, 10):
        worst = 0.0
        for seed in range(20):
            held = np.sort(np.random.default_rng(seed).uniform(0, 1, count))
            found = values(np.array([(held**order).sum() for order in range(1, count + 1)]))
            worst = max(worst, np.inf if found is None else float(np.abs(found - held).max()))
        print(f"{count} values of [0, 1] from power sums: off by at most {worst:.0e}, 20 draws")


def learners() -> None:
    diabetes = load_diabetes(as_frame=True, scaled=False).frame
    cancer = load("breast_cancer")
    assert cancer.schema is not None
    own = Schema.infer(diabetes, "target")
    public = replace(own, inferred=False)  # as if its bounds had been
    tree, forest = FuzzyTreeRegressor(), FedForestRegressor(n_estimators=50, random_state=0)
    few, shallow = RuleFitClassifier(random_state=0), FuzzyTreeRegressor(max_depth=2)
    ways: list[tuple[str, Any, Callable[[], Policy], pd.DataFrame, str, Schema]] = [
        ("tree published", tree, tree.published, diabetes, "target", own),
        ("tree strict", tree, lambda: tree.published(strict=True), diabetes, "target", own),
        ("tree private 8", shallow, lambda: shallow.private("8"), diabetes, "target", public),
        ("forest published", forest, forest.published, diabetes, "target", own),
        ("RuleFit published", few, few.published, cancer.frame, cancer.target, cancer.schema),
        ("RuleFit private 8", few, lambda: few.private("8"), cancer.frame, cancer.target, cancer.schema),
        ("RuleFit private 1", few, lambda: few.private("1"), cancer.frame, cancer.target, cancer.schema),
    ]  # fmt: skip
    for name, learner, policy, frame, target, schema in ways:
        owned = frame.assign(owner=np.random.default_rng(0).permutation(len(frame)) % CLINICS)
        owned["owner"] = owned["owner"].map("clinic {}".format)
        federation = LocalDisclosure.from_frame(
            owned, target, client="owner", schema=schema, policy=policy(), seed=0
        )
        learner.fit(federation)
        parts = owned.groupby("owner")
        truth = {str(o): Records.from_frame(p.drop(columns="owner"), schema) for o, p in parts}
        for attack in (Reconstruction(), SketchedValues(), PiecedRecords()):
            report(name, attack, federation, truth, schema)


def report(
    name: str,
    attack: Attack,
    federation: LocalDisclosure,
    truth: dict[str, Records],
    schema: Schema,
) -> None:
    if not attack.attackable(federation.transcript()):
        return
    begun = time.perf_counter()
    for found in attack.run(federation.transcript(), truth, schema):
        print(
            f"{name}: {found.metric}: {found.value:g} of {found.of:g}, by chance "
            f"{found.baseline:g}, {found.severity}, {time.perf_counter() - begun:.1f} s",
            flush=True,
        )


def private_forests(epsilons: Sequence[str] = EPSILONS, seeds: int = 2) -> None:
    """The likeliest table behind a private forest's noisy sums, by epsilon, beside what the guarantee allows.

    Whether a record stands in the table is a test for its having been there. Of one whose false positive
    rate is q, (epsilon, delta) allows a true positive rate of e^epsilon q + delta and of
    1 - e^-epsilon (1 - q - delta) at most. Rows of `results/attacks_forests.csv` are not measured again.
    """
    known = read_rows(RESULTS / f"{TABLE}.csv")
    cancer = load("breast_cancer")
    ways = [name for name in cancer.frame if name != cancer.target][1::4][:BINARY]
    frame = (cancer.frame[ways] > cancer.frame[ways].median()).astype(int).astype("category")
    frame[cancer.target] = cancer.frame[cancer.target]
    schema = replace(Schema.infer(frame, cancer.target), inferred=False)
    clinic, names = (
        np.arange(len(frame)) % (4 * CLINICS) // 4,
        [f"clinic {i}" for i in range(CLINICS)],
    )
    for epsilon in (each for each in epsilons if each not in {row["epsilon"] for row in known}):
        begun, hits = time.process_time(), np.zeros(3)
        for seed in range(seeds):
            mixed = frame.sample(frac=1, random_state=seed).assign(owner=np.take(names, clinic))
            held = np.arange(len(mixed)) % 4 == 3
            forest = FedForestClassifier(random_state=seed)
            policy = forest.private(epsilon, delta="1e-5", schema=schema)
            federation = LocalDisclosure.from_frame(
                mixed[~held], cancer.target, client="owner", schema=schema, policy=policy, seed=seed
            )
            forest.fit(federation)
            truth = {
                f"{name}{ending}": Records.from_frame(part.drop(columns="owner"), schema)
                for ending, rows in (("", mixed[~held]), (HELD_OUT, mixed[held]))
                for name, part in rows.groupby("owner")
            }
            found = Reconstruction().run(federation.transcript(), truth, schema)
            one = next(each for each in found if each.metric == LIKELIEST)
            assert not one.partial, one.partial
            hits += one.value, one.baseline or 0, one.of or 0
            federation.close()
        inside, beside = hits[:2] / hits[2]
        odds = math.exp(float(epsilon))
        allowed = min(odds * beside + 1e-5, 1 - (1 - beside - 1e-5) / odds)
        row = {
            "epsilon": epsilon,
            "records in the likeliest table": f"{inside:.3f}",
            "held-out ones": f"{beside:.3f}",
            "the guarantee allows": f"{allowed:.3f}",
            "records": f"{hits[2]:.0f}",
        }
        print(row, f"{time.process_time() - begun:.0f} s", flush=True)
        known.append(row)
        write_rows(known, TABLE, ("epsilon",), seed=f"0 to {seeds - 1}")


PARTS = {
    "bits": bits,
    "tables": tables,
    "power_sums": power_sums,
    "learners": learners,
    "private_forests": private_forests,
}

if __name__ == "__main__":
    warnings.simplefilter("ignore")
    for name in arguments(__doc__, parts=PARTS).parse_args().parts:
        PARTS[name]()
