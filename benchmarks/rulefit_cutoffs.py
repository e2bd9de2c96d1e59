"""The paper's Appendix B: AUC, time and number of rules over bins and cut-offs.

    python benchmarks/rulefit_cutoffs.py --repetitions 5

Model 2 of the simulations, five clients, all rules kept. "No histogram" lets every client split at its
own values: as many cut-offs as codes can hold, exact ones.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np
import pandas as pd
from rulefit_simulations import NAMES, RECORDS, SCHEMA, draw, scores, split

from privfed import LocalDisclosure
from privfed.learners import RuleFitClassifier

SETTINGS: tuple[dict[str, Any], ...] = (
    *({"bins": bins, "cutoffs": 20} for bins in (50, 100, 200)),
    *({"bins": 100, "cutoffs": cutoffs} for cutoffs in (5, 10, 40)),
    {"bins": 20_000, "cutoffs": 250},
)


def one(setting: dict[str, Any], number: int) -> dict[str, Any]:
    rng = np.random.default_rng([2, number])
    test, train = draw(2, RECORDS, rng), split(draw(2, RECORDS, rng), (0.2,) * 5)
    learner = RuleFitClassifier(**setting, max_rules=None, random_state=number)
    policy = learner.published(1 if setting["bins"] < 1000 else 1000)
    gates = LocalDisclosure.from_frame(
        train, "y", client="client", schema=SCHEMA, policy=policy, seed=0
    )
    start = time.perf_counter()
    learner.fit(gates)
    row = {"seconds": time.perf_counter() - start, "candidates": len(learner.model_.terms.boxes)}
    return {**setting, **row, "rules": len(learner.rules_), "auc": scores(learner, test)["auc"]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repetitions", type=int, default=5)
    chosen = parser.parse_args()
    rows = [one(setting, n) for setting in SETTINGS for n in range(chosen.repetitions)]
    print(
        f"{len(NAMES)} covariates, {RECORDS} records, 5 clients; medians; the last row has no histogram"
    )
    print(pd.DataFrame(rows).groupby(["bins", "cutoffs"], sort=False).median().round(4).to_string())


if __name__ == "__main__":
    main()
