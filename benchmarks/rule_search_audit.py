"""What audits prove about rule search's answers: python benchmarks/rule_search_audit.py

From 20,000 outputs each: how often the published code's mechanism and the right one are convicted,
and how long one audit takes; then one question and sessions of 500 through a cohort's gate, with
secure noise. The peer of each proven epsilon is the true one, or what the ledger charged.
"""

from __future__ import annotations

import math
import time

import numpy as np
from result_rows import arguments

from privfed.audits.cohorts import audit_session, complete_structures
from privfed.audits.mechanisms import audit
from privfed.learners.rule_search.generator import Profile
from privfed.mechanisms.randomized_response import RandomizedResponse
from privfed.privacy.mechanism import Mechanism
from privfed.privacy.noise import TestNoise
from privfed.testing.faulty import YesLeaningResponse

GAMES, OUTPUTS = 500, 20_000
GRAMMAR = Profile(1, 1, 1, 40, 1.0, 3).grammar


def games(mechanism: Mechanism, epsilon: str, true: float) -> None:
    begun = time.perf_counter()
    found = [
        audit(mechanism, epsilon, trials=OUTPUTS, noise=TestNoise(seed)) for seed in range(GAMES)
    ]
    each = (time.perf_counter() - begun) / GAMES
    convicted = sum(finding.severity == "breach" for finding in found)
    proven = np.median([finding.value for finding in found])
    print(
        f"{mechanism.name:28} stated {epsilon:>4} true {true:.3f} proven {proven:.3f} "
        f"convicted {convicted}/{GAMES} {each * 1000:.1f} ms each"
    )


def session(number: int, each: str, people: int, mechanism: Mechanism) -> None:
    begun = time.perf_counter()
    questions = complete_structures(GRAMMAR, number)
    found = audit_session(questions, GRAMMAR, each, people, mechanism)
    charged = found.of or 0.0
    print(
        f"{mechanism.name:28} {number:>3} questions at {each:>4}: charged {charged:.2f} proven "
        f"{found.value:.3f} ratio {found.value / charged:.3f} ({found.severity}), "
        f"{time.perf_counter() - begun:.1f} s"
    )


if __name__ == "__main__":
    arguments(__doc__).parse_args()
    for epsilon in ("0.1", "0.5", "1"):
        stated = float(epsilon)
        whole = math.log(1 + math.exp(stated) + math.exp(2 * stated))
        games(YesLeaningResponse(), epsilon, whole)
        games(RandomizedResponse(), epsilon, stated)
    for epsilon, people in (("0.1", 2_000_000), ("0.5", 200_000), ("1", 200_000), ("2", 200_000)):
        session(1, epsilon, people, RandomizedResponse())
    for each in ("0.01", "0.1"):
        session(500, each, 4000, RandomizedResponse())
    session(500, "0.01", 4000, YesLeaningResponse())
