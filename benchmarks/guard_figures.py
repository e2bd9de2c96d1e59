"""How often the check of guards convicts right guards, and finds each planted fault.

Usage: python benchmarks/guard_figures.py [HONEST [PLANTED]]
"""

from __future__ import annotations

import sys
from dataclasses import replace

from guard_examples import CLAIM

from privfed.guards.claim import GuardClaim
from privfed.guards.verdict import check_guard

FILTERS = "flare:nvflare.app_common.filters"
FOUR = replace(CLAIM, rounds=4)
#: Right guards, and wrong ones, each with what is claimed of it.
RIGHT = {"Right": CLAIM, "FourRounds": FOUR}
WRONG = {
    "python:guard_examples:Unclipped": CLAIM,
    "python:guard_examples:Half": CLAIM,
    "python:guard_examples:Floats": CLAIM,
    "python:guard_examples:Seeded": CLAIM,
    "python:guard_examples:EveryOther": CLAIM,
    "python:guard_examples:Forgetful": FOUR,
    "python:guard_examples:ByLayer": CLAIM,
    "python:guard_examples:PassesScalars": CLAIM,
    f"{FILTERS}.svt_privacy:SVTPrivacy": GuardClaim(0.1),
    f"{FILTERS}.percentile_privacy:PercentilePrivacy": GuardClaim(1.0),
}


def main(honest: int = 200, planted: int = 10) -> None:
    """Count convictions."""
    for name, claim in RIGHT.items():
        runs = [check_guard(f"python:guard_examples:{name}", claim) for _ in range(honest // 2)]
        convicted = [run.sentence for run in runs if run.convicting]
        print(f"{name}: convicted {len(convicted)} of {len(runs)} {convicted}", flush=True)
    for name, claim in WRONG.items() if planted else ():
        runs = [check_guard(name, claim) for _ in range(planted)]
        found = sum(bool(run.convicting) for run in runs)
        print(f"{name}: found {found} of {planted}; {runs[0].sentence}", flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:3]))
