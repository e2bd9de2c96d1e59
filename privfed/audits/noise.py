"""Tests whether the noise of releases, release minus exact, has the charged distribution.

They read the sums of a monitor (:class:`privfed.owner.noise_monitor.NoiseSums`) and do not cover
sensitivities, prices or clipping: other audits do.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from scipy import stats

from privfed.attacks.finding import Finding
from privfed.errors import number_of
from privfed.owner.noise_monitor import CELLS, NoiseSums

#: Family-wise level of all tests of a study, or of one reading of an owner's ledger: over a
#: thousand readings of a growing ledger, at most 1e-3.
FAMILY_WISE = 1e-6
#: Laplace noise narrower by f has scores of mean square f^-1.4, whereas Gaussian noise has f^-2 (measured for
#: f up to 1.3): the detectable factor of one is that of the other to this power.
LAPLACE = 1.45
NAME = "audit of the noise drawn"  #: Name of this audit's findings
#: Which cells a monitor does not test, by its word for why; an error counts as one cell
UNTESTED = {
    "no law": "whose noise has no stated law",
    "finished": "that the mechanism changes after the noise (finish)",
    "suppressed": "of parts with suppressed ones",
    "beyond": f"beyond the first {CELLS:,} of a part",
    "error": "or more whose noise could not be read",
}


@dataclass(frozen=True)
class NoiseTest:
    """One test of a tally: its name, its number of cells, and its p-value for correct noise."""

    name: str
    cells: int
    p: float


def noise_tests(tally: Mapping[str, tuple[float, ...]]) -> list[NoiseTest]:
    """All tests of a tally; each p-value is exact or conservative.

    Normal scores of n cells sum to a normal of variance n, and their squares to chi-square(n). Scores
    times signs that are fixed before them are normal scores again. A count of independent events of
    unequal probabilities has, from one beyond its mean on, a tail no heavier than the binomial of the
    same mean (Hoeffding 1956, Theorem 5); that of one event at least is no greater than the mean.
    """
    tests = []
    for label, (cells, *sums) in tally.items():
        kind, _, about = label.partition(" ")
        if not cells or kind == "unread":
            continue
        if kind == "count":
            tests.append(NoiseTest(about, int(cells), _count(int(cells), *sums)))
        else:
            centred = float(2 * stats.norm.sf(abs(sums[0]) / np.sqrt(cells)))
            prefix = "shared with" if kind == "sign" else "mean of"
            tests.append(NoiseTest(f"{prefix} {about}", int(cells), centred))
        if kind == "score":
            p_value = 2 * min(stats.chi2.cdf(sums[1], cells), stats.chi2.sf(sums[1], cells))
            tests.append(NoiseTest(f"variance of {about}", int(cells), float(p_value)))
    return tests


def _count(cells: int, seen: float, expected: float) -> float:
    if abs(seen - expected) < 1:
        return min(1.0, 2 * expected) if seen == 1 else 1.0
    rate = min(expected / cells, 1.0)
    tail = (
        stats.binom.sf(seen - 1, cells, rate)
        if seen > expected
        else stats.binom.cdf(seen, cells, rate)
    )
    return min(1.0, float(2 * tail))


def audit_noise(
    tallies: Mapping[str, NoiseSums], *, policies: int = 1, family_wise: float = FAMILY_WISE
) -> list[Finding]:
    """Test the noise of all releases of one policy against the charged laws.

    One finding, a breach if a test rejects at the family-wise level of all tests of all policies;
    none without noise. Untested cells are counted in its detail.

    Args:
        tallies: by data owner, or another group whose noise is compared.
        policies: number of policies tested together, including this one.
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
    rejected = sorted((test for test in tests if test.p < level), key=lambda test: test.p)
    worst = min(tests, key=lambda test: test.p, default=NoiseTest("no test", 0, 1.0))
    return [
        Finding(
            NAME,
            "Is release minus exact answer noise of the charged distribution, independent in every cell?",
            "tests that convict the noise",
            len(rejected),
            of=len(tests),
            baseline=0.0,
            severity="breach" if rejected else "none",
            detail={
                "cells": total.cells,
                "least p": worst.p,
                "by": worst.name,
                "level": level,
                "family-wise level": family_wise,
                "convicted": [test.name for test in rejected[:8]],
                "not looked at": unread,
                "narrower gaussian found with chance .8": (
                    factor := scale_found(total.cells, level)
                ),
                "narrower laplace found with chance .8": factor**LAPLACE,
            },
            partial=" and ".join(_untested(why, count) for why, count in unread.items()),
        )
    ]


def _untested(why: str, count: int) -> str:
    return f"{number_of(count, 'cell')} {UNTESTED.get(why, 'not looked at')}"


def scale_found(cells: int, level: float) -> float:
    """The factor from which too narrow Gaussian noise is rejected with probability .8 by a two-sided test.

    The scores' sum of squares is then factor^-2 chi-square(cells); infinite if no factor is found.
    """
    critical = stats.chi2.ppf(level / 2, cells)
    return float(np.sqrt(stats.chi2.ppf(0.8, cells) / critical)) if critical > 0 else float("inf")
