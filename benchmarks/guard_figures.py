"""How often the check of guards convicts right guards, and finds each planted fault.

Usage: python benchmarks/guard_figures.py [HONEST [PLANTED]]

HONEST runs of all functions together, and PLANTED of each right mod or filter and of each fault. Stacks that are
not installed are left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

from guard_examples import CLAIM
from result_rows import arguments

from privfed.guards.claim import GuardClaim
from privfed.guards.verdict import check_guard

FOUR = replace(CLAIM, rounds=4)
OWN = "python:guard_examples:"
#: Right guards, and wrong ones, each with what is claimed of it.
RIGHT = {"Right": CLAIM, "FourRounds": FOUR}
WRONG = {
    "Unclipped": CLAIM,
    "Half": CLAIM,
    "Floats": CLAIM,
    "Seeded": CLAIM,
    "EveryOther": CLAIM,
    "Forgetful": FOUR,
    "ByLayer": CLAIM,
    "PassesScalars": CLAIM,
}
MOD, FILTERS = "flower:guard_examples:flower_mod", "flare:nvflare.app_common.filters"
#: Guards of the stacks: name, options, claim. The first four are right.
STACKS: list[tuple[str, dict[str, Any], GuardClaim]] = [
    (MOD, {"of": "Right"}, CLAIM),
    (MOD, {"of": "FourRounds"}, FOUR),
    ("flower:guard_examples:gated_mod", {"clip": 1.0}, CLAIM),
    ("flare:guard_examples:gated_filter", {"clip": 1.0}, CLAIM),
    (MOD, {"of": "Unclipped"}, CLAIM),
    (MOD, {"of": "Floats"}, CLAIM),
    (MOD, {"of": "EveryOther"}, CLAIM),
    (MOD, {"of": "Forgetful"}, FOUR),
    (
        "flower:flwr.clientapp.mod:LocalDpMod",
        {"clipping_norm": 1.0, "sensitivity": 1.0, "epsilon": 0.9, "delta": 1e-5},
        CLAIM,
    ),
    (f"{FILTERS}.svt_privacy:SVTPrivacy", {}, GuardClaim(0.1)),
    (f"{FILTERS}.percentile_privacy:PercentilePrivacy", {}, GuardClaim(1.0)),
]


def convicted(
    guard: str, claim: GuardClaim, runs: int, options: Mapping[str, Any] | None = None
) -> None:
    """Print how many of so many checks convict, and by what."""
    verdicts = [check_guard(guard, claim, options=options) for _ in range(runs)]
    by = sorted({found.attack for verdict in verdicts for found in verdict.convicting})
    found = sum(bool(verdict.convicting) for verdict in verdicts)
    print(f"{guard} {dict(options or {})}: convicted {found} of {runs} {by}", flush=True)


def main(honest: int, planted: int) -> None:
    """Count convictions."""
    for name, claim in RIGHT.items():
        convicted(OWN + name, claim, honest // 2)
    for guard, options, claim in STACKS if planted else ():
        if find_spec("flwr" if guard.startswith("flower") else "nvflare"):
            convicted(guard, claim, planted, options)
    for name, claim in WRONG.items() if planted else ():
        convicted(OWN + name, claim, planted)


if __name__ == "__main__":
    parser = arguments(__doc__)
    parser.add_argument("honest", type=int, nargs="?", default=200, help="runs of right guards")
    parser.add_argument("planted", type=int, nargs="?", default=10, help="runs of each fault")
    main(**vars(parser.parse_args()))
