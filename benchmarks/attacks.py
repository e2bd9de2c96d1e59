"""What the attacks get under each policy: python benchmarks/attacks.py [folder]

Five clients. All attacks on fuzzy trees: scikit-learn's diabetes; with a folder that holds
mortgage.csv, that too. Membership at RuleFit: scikit-learn's breast cancer, beside the most that the
ledgers' epsilon allows, over many draws of noise; intervals are of 95 % and over the draws.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.datasets import load_diabetes

from privfed import plugins
from privfed.accountants.risk import Tradeoff
from privfed.accountants.zcdp import ZeroConcentrated
from privfed.attacks.base import Attack, Truth
from privfed.attacks.membership import Membership
from privfed.data import load
from privfed.learners import RuleFitClassifier
from privfed.learners.fuzzy_tree import FuzzyTreeRegressor
from privfed.local import LocalDisclosure
from privfed.policy import Policy
from privfed.records import Records
from privfed.schema import Schema

CLIENTS, DRAWS = 5, 40
FOUND = "members found at 1 % false positives"


def policies() -> dict[str, tuple[FuzzyTreeRegressor, Policy]]:
    free, shallow = FuzzyTreeRegressor(), FuzzyTreeRegressor(max_depth=2)
    return {
        "published": (free, free.published()),
        "strict": (free, free.published(strict=True)),
        "private": (shallow, shallow.private(8)),
    }


def attack(name: str, frame: pd.DataFrame, target: str) -> None:
    schema = Schema.infer(frame, target)
    owned, truth = divided(frame, schema)
    for policy, (learner, guards) in policies().items():
        federation = LocalDisclosure.from_frame(
            owned, target, "owner", schema=schema, policy=guards, seed=0
        )
        learner.fit(federation)
        print(f"{name}, {policy}: {learner.n_leaves_} leaves")
        for attacker in ("verbatim", "recovery", "subtraction", "membership"):
            report(plugins.load("attacks", attacker)(), federation, truth, schema)


def divided(frame: pd.DataFrame, schema: Schema) -> tuple[pd.DataFrame, Truth]:
    order = np.random.default_rng(0).permutation(len(frame)) % CLIENTS
    owned = frame.assign(owner=[f"clinic {i}" for i in order])
    parts = owned.groupby("owner")
    return owned, {
        owner: Records.from_frame(part.drop(columns="owner"), schema) for owner, part in parts
    }


def report(attacker: Attack, federation: LocalDisclosure, truth: Truth, schema: Schema) -> None:
    started = time.perf_counter()
    found = attacker.run(federation.transcript(), truth, schema)
    spent = time.perf_counter() - started
    for one in found:
        print(
            f"  {one.attack:12} {one.metric}: {one.value:g} of {one.of:g}, "
            f"by chance {one.baseline:g}, {one.severity}, {spent:.1f} s"
        )


def membership(base: str, epsilon: str) -> None:
    """Attack one policy of RuleFit under many draws of noise, noisy and exact numbers apart."""
    data = load("breast_cancer")
    assert data.schema is not None
    owned, truth = divided(data.frame, data.schema)
    got: dict[str, list[tuple[float, float]]] = {}
    bound = (1.0, 1.0)
    for seed in range(DRAWS):
        learner = RuleFitClassifier(random_state=seed)
        federation = LocalDisclosure.from_frame(
            owned,
            data.target,
            "owner",
            schema=data.schema,
            policy=getattr(learner, base)(epsilon),
            seed=seed,
        )
        learner.fit(federation)
        for found in Membership().run(federation.transcript(), truth, data.schema):
            got.setdefault(found.metric, []).append((found.value, found.detail[FOUND]))
        if base == "private":
            bound = allowed(federation)
    for metric, figures in got.items():
        mean = np.mean(figures, axis=0)
        half = 1.96 * np.std(figures, axis=0, ddof=1) / np.sqrt(DRAWS)
        told = [
            f"{what} {mean[at]:.3f} +- {half[at]:.3f} of at most {bound[at]:.3f}"
            for at, what in enumerate(("AUC", "TPR at 1 % FPR"))
        ]
        numbers = " ".join(metric.split()[-2:])
        print(f"breast cancer, RuleFit {base} at epsilon {epsilon}, {numbers}: {', '.join(told)}")


def allowed(federation: LocalDisclosure) -> tuple[float, float]:
    """The most that any test can get from what the worst-off client's ledger has charged."""
    accountant = ZeroConcentrated()
    totals = [gate.ledger.spent(accountant).total for gate in federation.gates.values()]
    curve = Tradeoff.of_total(accountant, max(totals))
    return curve.area, curve.found(0.01)


if __name__ == "__main__":
    attack("diabetes", load_diabetes(as_frame=True, scaled=False).frame, "target")
    if len(sys.argv) > 1:
        mortgage = pd.read_csv(Path(sys.argv[1]) / "mortgage.csv")
        attack("mortgage", mortgage, mortgage.columns[-1])
    for base in ("published", "private"):
        for epsilon in ("1", "4", "8"):
            membership(base, epsilon)
