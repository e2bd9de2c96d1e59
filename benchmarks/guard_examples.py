"""Guards as others write them, right and wrong ones, for the check of guards.

All claim, unless they say otherwise, (1, 1e-5) for a client, add-or-remove, by an L2 clip of 1 and
Gaussian noise of the deviation :data:`SIGMA`, drawn anew in each round, for one round.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np

from privfed.engines.updates import UpdateGate
from privfed.guards.claim import GuardClaim
from privfed.ledger import Ledger
from privfed.privacy.noise import TestNoise
from privfed.privacy.policy import Guard, Policy

CLAIM = GuardClaim(1.0, 1e-5, rounds=1, clip=1.0, noise="gaussian")
assert CLAIM.min_scale is not None
SIGMA: float = CLAIM.min_scale * (1 + 1e-9)
GRID = 2.0**-20
#: Zero-concentrated cost of one round: sigma^2 = 1 / (2 rho).
RHO = Fraction(1 / (2 * SIGMA**2)).limit_denominator(10**9)
Arrays = list[np.ndarray]
#: Where guards' seeds come from; a test may seed it. Their noise is for trials, and protects nobody.
SEEDS: list[np.random.Generator] = [np.random.default_rng()]


def seed() -> int:
    """A seed for a guard that is made anew."""
    return int(SEEDS[-1].integers(2**63))


class Right:
    """Clips the whole update, adds noise in whole numbers of a grid, and stops when its rounds are spent."""

    clip, factor, allowed, floats, once = 1.0, 1.0, 1, False, False

    def __init__(self) -> None:
        self.asked = 0
        self.noise = TestNoise(7 if self.once else seed())

    def __call__(self, update: Arrays) -> Arrays | None:
        """What leaves."""
        self.asked += 1
        if self.asked > self.allowed:
            return None
        flat = np.nan_to_num(
            np.concatenate([np.ravel(each) for each in update]), posinf=0, neginf=0
        )
        norm = float(np.linalg.norm(flat))
        kept = flat * min(1.0, self.clip * (1 - 1e-9) / norm) if norm else flat
        return self.split(np.fix(kept / GRID) * GRID + self.drawn(flat.size), update)

    def drawn(self, size: int) -> np.ndarray:
        """The noise of one answer."""
        if self.floats:
            return np.random.default_rng(seed()).normal(0, SIGMA, size)
        return self.noise.gaussian(size, self.factor * SIGMA / GRID) * GRID

    @staticmethod
    def split(flat: np.ndarray, like: Arrays) -> Arrays:
        """A flat vector in the shapes of a model."""
        parts, begun = [], 0
        for each in like:
            parts.append(flat[begun : begun + each.size].reshape(each.shape))
            begun += each.size
        return parts


class Sampled(Right):
    """Takes part in every other round at random, whatever the update is: right, and told apart by no input."""

    def __call__(self, update: Arrays) -> Arrays | None:
        """What leaves."""
        told = super().__call__(update)
        return told if np.random.default_rng(seed()).random() < 0.5 else None


class Unclipped(Right):
    """Forgets to clip."""

    clip = math.inf

    def __call__(self, update: Arrays) -> Arrays | None:
        """What leaves."""
        self.asked += 1
        flat = np.nan_to_num(
            np.concatenate([np.ravel(each) for each in update]), posinf=0, neginf=0
        )
        return (
            None if self.asked > self.allowed else self.split(flat + self.drawn(flat.size), update)
        )


class Half(Right):
    """Noise of half the scale."""

    factor = 0.5


class Floats(Right):
    """Noise drawn in floating point."""

    floats = True


class Seeded(Right):
    """The same noise in every run."""

    once = True


class EveryOther(Right):
    """Counts every second round only, and so answers twice as often as it says."""

    allowed = 2


class FourRounds(Right):
    """Claims its epsilon of four rounds, with noise enough for them."""

    allowed, factor = 4, 2.0


class Forgetful(FourRounds):
    """Claims its epsilon of four rounds, with noise enough for one of them."""

    factor = 1.0


class ByLayer(Right):
    """Clips each array by itself, and claims the clip of one of them."""

    def __call__(self, update: Arrays) -> Arrays | None:
        """What leaves."""
        told = []
        for each in update:
            flat = np.nan_to_num(np.ravel(each), posinf=0, neginf=0)
            kept = flat * min(1.0, 1 / max(float(np.linalg.norm(flat)), 1e-300))
            told.append((np.fix(kept / GRID) * GRID + self.drawn(flat.size)).reshape(each.shape))
        self.asked += 1
        return None if self.asked > self.allowed else told


class PassesScalars(Right):
    """Takes numbers without axes for no part of the model."""

    def __call__(self, update: Arrays) -> Arrays | None:
        """What leaves."""
        told = super().__call__(update)
        return told and [
            new if np.ndim(old) else old for new, old in zip(told, update, strict=True)
        ]


def gate(clip: float = 1.0) -> UpdateGate:
    """privfed's own gate around a model: one round at the claim's cost, replayable noise."""
    policy = Policy(
        {"model.update": (Guard.of("gaussian", spend=RHO, times=1),)},
        unit="client",
        accountant="zcdp",
    )
    return UpdateGate("a", policy, Ledger(), clip=clip, noise=TestNoise(seed()))


def gated_mod(clip: float = 1.0) -> Any:
    """privfed's mod for Flower."""
    from privfed.engines.flower import guard

    return guard(gate(clip))


def gated_filter(clip: float = 1.0) -> Any:
    """privfed's filter for FLARE."""
    from privfed.engines.flare_filter import GateFilter

    return GateFilter(gate(clip))


def flower_mod(of: str = "Right") -> Any:
    """A mod of Flower around one of these guards: the update is what training added to the model sent."""
    guard = globals()[of]()

    def mod(message: Any, context: Any, call_next: Any) -> Any:
        from flwr.app import Array, ArrayRecord

        reply = call_next(message, context)
        (sent,), ((name, made),) = (
            message.content.array_records.values(),
            reply.content.array_records.items(),
        )
        before, after = sent.to_numpy_ndarrays(), made.to_numpy_ndarrays()
        told = guard([new - old for new, old in zip(after, before, strict=True)])
        if told is None:
            del reply.content[name]
            return reply
        kept = [old + new for old, new in zip(before, told, strict=True)]
        named = zip(made.keys(), kept, strict=True)
        reply.content[name] = ArrayRecord({key: Array(np.asarray(each)) for key, each in named})
        return reply

    return mod


def noisy_count(table: Any) -> float:
    """Records, with Laplace noise of scale 1 in whole numbers."""
    return float(len(table) + TestNoise(seed()).laplace(1, 1.0)[0])


def mean_of_table(table: Any) -> Any:
    """The exact means."""
    return table.mean(numeric_only=True).to_numpy()
