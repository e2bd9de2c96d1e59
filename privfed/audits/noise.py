"""Tests of the noise that releases had: whether release less exact is of the law that was charged.

They read the sums of a monitor (:class:`privfed.owner.noise_monitor.NoiseSums`) and prove nothing of a
sensitivity, a price or a clip: other audits do.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from scipy import stats

from privfed.attacks.finding import Finding
from privfed.errors import number_of
from privfed.owner.noise_monitor import NoiseSums

#: How often all tests of a study, or of one look at an owner's ledger, may accuse honest noise: over a
#: thousand looks at a ledger that grows, at most once in a thousand.
FAMILY_WISE = 1e-6
#: Laplace noise narrower by f has scores of mean square f^-1.4, where Gaussian noise has f^-2 (measured for
#: f up to 1.3): what is found of the one is found of the other at this power.
LAPLACE = 1.45
NAME = "audit of the noise drawn"  #: Findings of this audit are called so


@dataclass(frozen=True)
class NoiseTest:
    """One test of a tally: what it looks at, over how many cells, and its p-value if all is honest."""

    name: str
    cells: int
    p: float


def noise_tests(tally: Mapping[str, tuple[float, ...]]) -> list[NoiseTest]:
    """All tests of a tally; each p-value is exact or errs towards honesty.

    Normal scores of n cells sum to a normal of variance n, and their squares to chi-square(n). Scores
    times signs that were settled before them are normal scores again. A count of independent events of
    unequal probabilities has, from one beyond its mean on, a tail no heavier than the binomial of the
    same mean (Hoeffding 1956, Theorem 5); that of one event at least is no greater than the mean.
    """
    found = []
    for label, (cells, *sums) in tally.items():
        kind, _, about = label.partition(" ")
        if not cells or kind == "unread":
            continue
        if kind == "count":
            found.append(NoiseTest(about, int(cells), _count(int(cells), *sums)))
        else:
            centred = float(2 * stats.norm.sf(abs(sums[0]) / np.sqrt(cells)))
            aim = "shared with" if kind == "sign" else "mean of"
            found.append(NoiseTest(f"{aim} {about}", int(cells), centred))
        if kind == "score":
            spread = 2 * min(stats.chi2.cdf(sums[1], cells), stats.chi2.sf(sums[1], cells))
            found.append(NoiseTest(f"variance of {about}", int(cells), float(spread)))
    return found


def _count(cells: int, seen: float, expected: float) -> float:
    if abs(seen - expected) < 1:
        return min(1.0, 2 * expected) if seen == 1 else 1.0
    share = min(expected / cells, 1.0)
    tail = (
        stats.binom.sf(seen - 1, cells, share)
        if seen > expected
        else stats.binom.cdf(seen, cells, share)
    )
    return min(1.0, float(2 * tail))


def audit_noise(
    tallies: Mapping[str, NoiseSums], *, policies: int = 1, family_wise: float = FAMILY_WISE
) -> list[Finding]:
    """Hold the noise of all releases of one policy against the laws that were charged.

    One finding, a breach if a test convicts at one level for all tests of all policies
    together; none without noise. What was not looked at is counted in its detail.

    Args:
        tallies: by data owner, or by what else noise shall be compared.
        policies: how many policies are tested beside each other, this one included.
        family_wise: that level.
    """
    total, owners = NoiseSums(), NoiseSums()
    for owner, tally in tallies.items():
        total.add_all(tally)
        if "score all" in tally:
            owners.add(f"score owner {owner}", *tally["score all"])
    tests = noise_tests(total.add_all(owners if len(owners) > 1 else {}))
    unread = {
        label[7:]: int(sums[0]) for label, sums in total.items() if label.startswith("unread")
    }
    unread = {why: cells for why, cells in unread.items() if cells}
    if not tests and not unread:
        return []
    level = family_wise / max(1, len(tests)) / policies
    convicted = sorted((test for test in tests if test.p < level), key=lambda test: test.p)
    worst = min(tests, key=lambda test: test.p, default=NoiseTest("no test", 0, 1.0))
    return [
        Finding(
            NAME,
            "Is release minus exact answer noise of the charged distribution, independent in every cell?",
            "tests that convict the noise",
            len(convicted),
            of=len(tests),
            baseline=0.0,
            severity="breach" if convicted else "none",
            detail={
                "cells": total.cells,
                "least p": worst.p,
                "by": worst.name,
                "level": level,
                "family-wise level": family_wise,
                "convicted": [test.name for test in convicted[:8]],
                "not looked at": unread,
                "narrower gaussian found with chance .8": (
                    factor := scale_found(total.cells, level)
                ),
                "narrower laplace found with chance .8": factor**LAPLACE,
            },
            partial=f"{number_of(sum(unread.values()), 'cell')} not looked at" if unread else "",
        )
    ]


def scale_found(cells: int, level: float) -> float:
    """The factor below which too narrow Gaussian noise is convicted with probability .8 by a two-sided test.

    The scores' sum of squares is then factor^-2 chi-square(cells); infinite if no factor is found.
    """
    critical = stats.chi2.ppf(level / 2, cells)
    return float(np.sqrt(stats.chi2.ppf(0.8, cells) / critical)) if critical > 0 else float("inf")
