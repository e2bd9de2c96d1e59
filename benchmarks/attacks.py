"""What the attacks get under each policy: python benchmarks/attacks.py [folder]

Five clients. All attacks on fuzzy trees: scikit-learn's diabetes; with a folder that holds
mortgage.csv, that too. Membership at RuleFit: scikit-learn's breast cancer, beside the most that the
ledgers' epsilon allows, over many draws of noise; intervals are of 95 % and over the draws.
"""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
from attack_pool import divided
from result_rows import arguments
from sklearn.datasets import load_diabetes

from privfed.accountants.risk import Tradeoff
from privfed.accountants.zcdp import ZeroConcentrated
from privfed.attacks.base import Attack, Truth
from privfed.attacks.membership import LikelihoodRatios, Membership
from privfed.engines.local import LocalDisclosure
from privfed.learners import RuleFitClassifier
from privfed.learners.fuzzy_tree import FuzzyTreeRegressor
from privfed.privacy.policy import Policy
from privfed.questions import plugins
from privfed.tables.schema import Schema
from privfed.tables.sources import load

CLIENTS, DRAWS = 5, {"published": 5, "private": 40}


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
        known = replace(schema, inferred=guards.budget is None)  # else as if they had been public
        federation = LocalDisclosure.from_frame(
            owned, target, client="owner", schema=known, policy=guards, seed=0
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


def membership(base: str, epsilon: str) -> None:
    """Attack one policy of RuleFit under many draws of noise, noisy and exact numbers apart."""
    data = load("breast_cancer")
    assert data.schema is not None
    owned, truth = divided(data.frame, data.schema)
    runs = []
    for seed in range(DRAWS[base]):
        learner = RuleFitClassifier(random_state=seed)
        policy = getattr(learner, base)(epsilon)
        runs.append(
            LocalDisclosure.from_frame(
                owned, data.target, client="owner", schema=data.schema, policy=policy, seed=seed
            )
        )
        learner.fit(runs[-1])
    bound = allowed(runs[0]) if base == "private" else (1.0, 1.0)
    for exact in (False, True) if base == "published" else (False,):
        areas = [areas_of(run, truth, data.schema)[exact] for run in runs]
        figures = {"AUC": areas, "TPR at 1 % FPR": rates(runs, truth, data.schema, exact)}
        told = [
            f"{name} {np.mean(each):.3f} +- {1.96 * np.std(each, ddof=1) / np.sqrt(len(each)):.3f}"
            f" of at most {most:.3f}"
            for (name, each), most in zip(figures.items(), bound, strict=True)
        ]
        numbers = "exact" if exact else "noisy"
        print(
            f"RuleFit {base} at epsilon {epsilon}, {numbers} numbers: {', '.join(told)}", flush=True
        )


def areas_of(run: LocalDisclosure, truth: Truth, schema: Schema) -> list[float]:
    return [found.value for found in Membership().run(run.transcript(), truth, schema)]


def rates(runs: list[LocalDisclosure], truth: Truth, schema: Schema, exact: bool) -> list[float]:
    """True positives of each run at one bar, which 1 % of all runs' outsiders pass.

    One run has as many draws of noise as clients, far too few to set a bar by.
    """
    members, outsiders = [], []
    for run in runs:
        known = LikelihoodRatios(truth, schema, exact)
        known.read(run.transcript())
        scores = {client: known.of(client) for client in truth}
        members.append(np.concatenate([own.pop(client) for client, own in scores.items()]))
        outsiders += [each for others in scores.values() for each in others.values()]
    bar = np.quantile(np.concatenate(outsiders), 0.99)
    return [float((own > bar).mean()) for own in members]


def allowed(federation: LocalDisclosure) -> tuple[float, float]:
    """The most that any test can get from what the worst-off client's ledger has charged."""
    accountant = ZeroConcentrated()
    totals = [gate.ledger.spent(accountant).total for gate in federation.gates.values()]
    curve = Tradeoff.of_total(accountant, max(totals))
    return curve.area, curve.found(0.01)


if __name__ == "__main__":
    parser = arguments(__doc__)
    parser.add_argument("folder", type=Path, nargs="?", help="with mortgage.csv")
    given = parser.parse_args()
    attack("diabetes", load_diabetes(as_frame=True, scaled=False).frame, "target")
    if given.folder:
        mortgage = pd.read_csv(given.folder / "mortgage.csv")
        attack("mortgage", mortgage, mortgage.columns[-1])
    for base in ("published", "private"):
        for epsilon in ("1", "4", "8"):
            membership(base, epsilon)
