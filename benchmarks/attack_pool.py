"""What a list of candidates makes of a transcript: python benchmarks/attack_pool.py [rounds]

Five clients. Fuzzy trees on scikit-learn's diabetes data under `published` and `strict`, lists of
442 and 178; RuleFit `published` on breast cancer, its outcomes unknown too. Time is on one core.
Then, for `strict` by the smallest number of records of a cell that is shown: least squares alone, and
exact sums, within the attack's default work.
"""

from __future__ import annotations

import time
from unittest.mock import patch

import numpy as np
import pandas as pd
from result_rows import arguments
from sklearn.datasets import load_diabetes

from privfed.attacks.base import Truth
from privfed.attacks.candidate_inference import TARGET, CandidateInference, CandidateSystems
from privfed.engines.local import LocalDisclosure
from privfed.exchange.transcript import Transcript
from privfed.learners import RuleFitClassifier
from privfed.learners.fuzzy_tree import FuzzyTreeRegressor, sums
from privfed.tables.records import Records
from privfed.tables.schema import Schema
from privfed.tables.sources import load

CLIENTS = 5


def report(name: str, transcript: Transcript, truth: Truth, schema: Schema, size: int) -> None:
    """Attack with nothing unknown, then with the target unknown."""
    for unknown in ("", TARGET):
        started = time.perf_counter()
        attack = CandidateInference(
            time_limit=600, unknown=[unknown], max_candidates=size, max_unknowns=2000
        )
        for found in attack.run(transcript, truth, schema):
            told = {name: found.detail.get(name) for name in SHOWN if name in found.detail}
            print(
                f"{name}, lists of {size}, unknown {unknown or 'nothing'}: {found.value:.3f} "
                f"(guess {found.baseline:.3f}), {found.severity}, {told}, {found.partial} "
                f"{time.perf_counter() - started:.1f} s",
                flush=True,
            )


SHOWN = (
    "members found at 1 % false positives",
    "area under the curve",
    "median error as a share of the range",
    "rank of the equations",
    "unknowns",
)


WRONG = "named, but no members"


def divided(frame: pd.DataFrame, schema: Schema) -> tuple[pd.DataFrame, Truth]:
    order = np.random.default_rng(0).permutation(len(frame)) % CLIENTS
    owned = frame.assign(owner=[f"clinic {i}" for i in order])
    parts = owned.groupby("owner")
    return owned, {
        str(owner): Records.from_frame(part.drop(columns="owner"), schema) for owner, part in parts
    }


def trees() -> None:
    frame = load_diabetes(as_frame=True, scaled=False).frame
    schema = Schema.infer(frame, "target")
    owned, truth = divided(frame, schema)
    for strict in (False, True):
        learner = FuzzyTreeRegressor()
        policy = learner.published(strict=strict)
        federation = LocalDisclosure.from_frame(
            owned, "target", client="owner", schema=schema, policy=policy, seed=0
        )
        learner.fit(federation)
        for size in (442, 178):
            name = "strict tree" if strict else "published tree"
            report(name, federation.transcript(), truth, schema, size)


def shown() -> None:
    """Attack the strict tree by the smallest cell that is shown, first with least squares alone."""
    frame = load_diabetes(as_frame=True, scaled=False).frame
    schema = Schema.infer(frame, "target")
    owned, truth = divided(frame, schema)
    for least, sizes in ((3, (178, 300, 442)), (5, (178, 300, 442)), (10, (178,)), (20, (178,))):
        learner = FuzzyTreeRegressor()
        with patch.object(sums, "MIN_SHOWN", least):
            federation = LocalDisclosure.from_frame(
                owned,
                "target",
                client="owner",
                schema=schema,
                policy=learner.published(strict=True),
                seed=0,
            )
            learner.fit(federation)
        for size in sizes:
            attack = CandidateInference(unknown=[""], max_candidates=size, max_unknowns=2000)
            with patch.object(CandidateSystems, "decide", return_value=None):
                (alone,) = attack.run(federation.transcript(), truth, schema)
            found = attack.run(federation.transcript(), truth, schema)
            named = [(f.value, f.detail[WRONG]) for f in found if WRONG in f.detail]
            print(
                f"shown from {least}, lists of {size}: least squares {alone.value:.3f}, with exact "
                f"sums {found[0].value:.3f}; share named, number falsely: {named}; "
                f"{found[0].partial}",
                flush=True,
            )


def rules(rounds: int) -> None:
    data = load("breast_cancer")
    assert data.schema is not None
    owned, truth = divided(data.frame, data.schema)
    learner = RuleFitClassifier(n_rounds=rounds, random_state=0)
    federation = LocalDisclosure.from_frame(
        owned,
        data.target,
        client="owner",
        schema=data.schema,
        policy=learner.published(1),
        seed=0,
    )
    learner.fit(federation)
    report(f"RuleFit, {rounds} rounds", federation.transcript(), truth, data.schema, 569)


if __name__ == "__main__":
    parser = arguments(__doc__)
    parser.add_argument("rounds", type=int, nargs="?", default=100)
    given = parser.parse_args()
    trees()
    shown()
    rules(given.rounds)
