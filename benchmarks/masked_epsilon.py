"""What totals of masked shares cost: stated, exactly by probability masses, and proven by an audit.

    python benchmarks/masked_epsilon.py [--owners 5 20 100] [--epsilons 0.5 1 4] [--cells 10000]

One question of counts spends a whole budget at delta 1e-5, for records added or removed. Some of the owners
tell the server their noise. Exact: the hockey-stick divergence of what is left, a sum of discrete Gaussians on the
refined grid, between counts that differ by one. Audited: each cell holds one record or none, by a coin; from the
total of one run (through the owners' gates, where nobody tells anything) each coin is guessed.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
from result_rows import arguments
from scipy.optimize import brentq
from scipy.signal import fftconvolve

from privfed import LocalDisclosure, Policy
from privfed.audits.one_run import audit_one_run
from privfed.ledger import Ledger
from privfed.mechanisms.gaussian import Gaussian
from privfed.owner.gate import Gate
from privfed.owner.masking import MaskingKey
from privfed.privacy.conversion import largest_rho, to_epsilon
from privfed.privacy.masked_sums import MaskedProtection, MaskedSums, masked
from privfed.privacy.mechanism import BoundedPart
from privfed.privacy.noise import SecureNoise, TestNoise
from privfed.privacy.policy import Guard
from privfed.questions.part import Bound, Part, PartType, Sensitivity
from privfed.tables.records import Records
from privfed.tables.schema import Column, Schema
from privfed.testing.queries import Histogram

DELTA = 1e-5
#: Deviations of a share beyond which a mass is left out: 1e-40.
REACH = 14


def shares(epsilon: str, owners: int, cells: int) -> tuple[MaskedProtection, Fraction]:
    """A count of some cells, masked among all owners, and its rho."""
    rho = largest_rho(Fraction(epsilon), Fraction(str(DELTA)))
    part = Part(PartType.COUNTS, ("cell",), (cells,), Sensitivity.of(1))
    terms = MaskedSums({name: "" for name in names(owners)})
    found = masked(Gaussian().price({"counts": BoundedPart(part, Bound(1, 1))}, rho), terms)
    assert found is not None
    return found, rho


def names(owners: int) -> list[str]:
    """The owners' names."""
    return [f"o{number:03d}" for number in range(owners)]


def exact_epsilon(sigma: float, honest: int, step: int) -> float:
    """Epsilon at :data:`DELTA` of a sum of so many discrete Gaussians, moved by some steps of the grid."""
    points = np.arange(-math.ceil(REACH * sigma), math.ceil(REACH * sigma) + 1)
    one = np.exp(-(points**2) / (2 * sigma**2))
    one /= one.sum()
    total = one
    for _ in range(honest - 1):
        total = np.maximum(fftconvolve(total, one), 0.0)
    far, near = total[step:], total[: len(total) - step]

    def excess(epsilon: float) -> float:
        return float(np.maximum(far - math.exp(epsilon) * near, 0).sum()) - DELTA

    return float(brentq(excess, 0.0, 200.0)) if excess(0.0) > 0 else 0.0


def proven(told: np.ndarray, coins: np.ndarray, claimed: float) -> float:
    """The epsilon that one run proves, at confidence .99."""
    found = audit_one_run(
        coins, told, claimed, delta=DELTA, alpha=0.01, noise="independent gaussian", centre=0.5
    )
    return found.value


def through_gates(
    owners: int, rho: Fraction, coins: np.ndarray, seed: int | None = None
) -> np.ndarray:
    """The total of one question to so many gates, whose records lie in the cells that the coins chose.

    With a ``seed`` the noise can be drawn again, and protects nobody.
    """
    bins = Histogram(0, tuple(range(len(coins) + 1)))
    schema = Schema((Column("a", lower=0, upper=len(coins)),))
    terms = {name: MaskingKey(name.encode().ljust(32)).public for name in names(owners)}
    guards = {bins.kind: (Guard.of("gaussian", spend=rho),)}
    policy = Policy(guards, accountant="zcdp", masked=MaskedSums(terms))
    held, gates = np.flatnonzero(coins) + 0.5, {}
    for number, name in enumerate(names(owners)):
        records = Records(schema, held[number::owners][:, None])
        gates[name] = Gate(
            name, records, policy, Ledger(None, name), queries=(Histogram,),
            secret=name.encode().ljust(32),
            noise=None if seed is None else TestNoise(seed + number),
        )  # fmt: skip
    total = LocalDisclosure(gates).ask(bins).only.total("counts")
    return np.asarray(total, float)


def main() -> None:
    """Print a line for each number of owners, epsilon, and number of those who tell."""
    parser = arguments(
        __doc__, owners=[5, 20, 100], epsilons=["0.5", "1", "4"], cells=[10_000], first_seed=0
    )
    given = parser.parse_args()
    (cells,) = given.cells
    print("owners tell epsilon | stated exact audited")
    for owners in given.owners:
        for epsilon in given.epsilons:
            each, rho = shares(epsilon, owners, cells)
            law, step = each.drawn["counts"], each.refined["counts"]
            for tell in (0, owners - 1):
                honest = owners - tell
                coins = np.random.default_rng([given.first_seed, owners, tell]).random(cells) < 0.5
                stated = to_epsilon(float(rho) * owners / honest, DELTA)
                if tell:
                    told: Any = each.protect({"counts": coins}, SecureNoise(), {})["counts"]
                    told = told.data / step
                else:
                    told = through_gates(owners, rho, coins)
                exact = exact_epsilon(law.parameter, honest, step)
                found = proven(told, coins, stated)
                print(
                    f"{owners} {tell} {epsilon} | {stated:.4f} {exact:.4f} {found:.3f}", flush=True
                )


if __name__ == "__main__":
    main()
