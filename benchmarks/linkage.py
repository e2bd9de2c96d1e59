"""Individuals of a rule search linked to known rule books: python benchmarks/linkage.py

A twentieth of the simulated sepsis population answers (2,017 individuals of about 110 rules each); as
many others, whose rules are known too, never do: the control group. For each way of asking: how many
of those who answered are linked to their own rules at 1 % false links, what the epsilon that is stated
would suggest, and what a person has spent. The epsilon of `levels` is a rule's, of the others a
person's.
"""

from __future__ import annotations

import time

import numpy as np
from result_rows import arguments

from privfed.attacks.linkage import Linkage
from privfed.engines.cohort import CohortDisclosure
from privfed.learners import RuleSearch
from privfed.learners.rule_search.generator import PROFILES, generate
from privfed.learners.rule_search.rule_index import RuleIndex

SETTINGS = {"min_support": 0.01, "max_operators": 6}


def halves(book: RuleIndex) -> tuple[RuleIndex, RuleIndex]:
    """The first half of the people, and the second, who never answer."""
    entries, half = book.entries(), book.people // 2
    told = []
    for first in (0, half):
        own = [(s, p - first, v) for s, p, v in entries if first <= p < first + half]
        told.append(RuleIndex.indexed(book.grammar, half, own))
    return told[0], told[1]


def linked(
    strategy: str, epsilon: str, members: RuleIndex, strangers: RuleIndex, seed: int
) -> None:
    begun = time.perf_counter()
    search = RuleSearch(strategy, epsilon=epsilon, **SETTINGS)  # type: ignore[arg-type]
    cohort = CohortDisclosure.of(members, search.private(epsilon), seed=seed)
    search.fit(cohort)
    truth = {"cohort": members, "strangers": strangers}
    for one in Linkage().run(cohort.transcript(), truth):  # type: ignore[arg-type]
        detail = one.detail
        print(
            f"{strategy} at epsilon {epsilon}, {detail['questions read']} questions: {one.metric} "
            f"{one.value:.3f} ({one.low:.3f} to {one.high:.3f}, guess {one.baseline:.3f}), area "
            f"{detail['area under the curve']:.3f}; epsilon of a person, median "
            f"{detail['epsilon of a person, median']:.0f}, {time.perf_counter() - begun:.1f} s",
            flush=True,
        )


if __name__ == "__main__":
    arguments(__doc__).parse_args()
    profile = PROFILES["sepsis"].scaled(0.1)
    members, strangers = halves(generate(profile, 1))
    rules = np.bincount(members.holders, minlength=members.people)
    print(
        f"{members.people} individuals, {rules.mean():.1f} rules each, {len(strangers)} strangers"
    )
    for strategy, epsilon in (
        ("levels", "1"),
        ("levels", "8"),
        ("equal", "1"),
        ("sampled", "1"),
    ):
        linked(strategy, epsilon, members, strangers, 1)
