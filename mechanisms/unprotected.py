"""Mechanisms that add nothing, named for what they are: open, refuse, nullify; and training that did."""

from collections.abc import Mapping
from fractions import Fraction
from typing import ClassVar

from privfed.errors import InputError, PolicyError
from privfed.privacy.loss import Loss
from privfed.privacy.mechanism import BoundedPart, Cells, Mechanism, Protected, Protection, unmasked
from privfed.privacy.noise import Noise
from privfed.questions.exact import Number, exact, round_up, shown


class Open(Mechanism):
    """Releases exact values: no protection, and the total is then no finite guarantee."""

    name: ClassVar[str] = "open"

    def supports(self, group: Mapping[str, BoundedPart]) -> bool:
        """Anything."""
        return True

    reason: ClassVar[str] = "released exactly, by the owner's policy"  #: Why nothing is proved

    def price(self, group: Mapping[str, BoundedPart], spend: Fraction) -> Protection:
        """Unprotected."""
        return Protection(self, group, spend, stated=Loss.open(self.reason))


class Refuse(Open):
    """Refuses whatever it guards: a policy's explicit no."""

    name: ClassVar[str] = "refuse"

    def supports(self, group: Mapping[str, BoundedPart]) -> bool:
        """Nothing."""
        return False


class Nullify(Open):
    """Suppresses the cells that would give a record away (a disclosure-control rule, no DP).

    Suppressed cells (``reveals``) are zero and masked, which depends on data and is a release
    itself. Source: Corcuera Barcena et al. 2025, Algorithm 1, Check&Nullify, which subtraction
    undoes (``privfed.attacks.subtraction``); ``strict`` silences also what could be subtracted.
    """

    name: ClassVar[str] = "nullify"
    suppresses: ClassVar[bool] = True
    reason: ClassVar[str] = "small cells suppressed, which is no differential privacy"

    def __init__(self, *, strict: bool = False) -> None:
        self.strict = strict


class Training(Mechanism):
    """Releases what private training made, such as Opacus's, at the price that its own accountant gave.

    A guard's ``spend`` and ``delta`` are the (epsilon, delta) of one release, under the policy's unit and
    relation: of a record, where each record's gradient was clipped and noise was added to their sum. That it
    was is its word, and every total says on whose word it is. Clipping what was made afterwards costs
    nothing (post-processing). That training failed is not covered: the update of zero then leaves as it is.

    With the training's settings a release costs a rho too, by which many rounds add up to little more than its
    accountant says of them together: see :func:`.sampled_gaussian`. A ``spend`` below what they cost is refused.

    Args:
        delta: of one release.
        noise: Opacus's noise multiplier, sigma over the clip.
        rate: the probability with which a step takes a record: Opacus samples so unless told otherwise.
        steps: batches in one release.
    """

    name: ClassVar[str] = "training"
    currency: ClassVar[str | None] = "epsilon"

    def __init__(
        self, *, delta: Number = 0, noise: Number = 0, rate: Number = 0, steps: int = 0
    ) -> None:
        self.delta, self.noise, self.rate = str(delta), str(noise), str(rate)
        self.steps = steps
        if not exact(delta, "delta", zero=True) < 1:
            raise InputError('training: delta is below 1, such as "1e-6"')
        settings = exact(noise, "noise", zero=True), exact(rate, "rate", zero=True), steps
        if any(settings) and not (
            all(settings) and settings[1] <= 1 and steps > 0 and float(delta)
        ):
            raise InputError(
                'training: its settings are noise, rate and steps, with a delta; write noise = "1.2", '
                'rate = "0.04", steps = 24'
            )

    def supports(self, group: Mapping[str, BoundedPart]) -> bool:
        """A model's update alone: what is summed over a table, no training has made private."""
        return set(group) == {"update"}

    def price(self, group: Mapping[str, BoundedPart], spend: Fraction) -> Protection:
        """What its accountant said."""
        return Protection(self, group, spend, stated=self.dearest(spend))

    def dearest(self, spend: Fraction) -> Loss:
        """The same, whatever was trained (PolicyError: the settings cost more than is spent)."""
        delta = exact(self.delta, "delta", zero=True)
        if not self.steps:
            return Loss(spend, delta=delta) if delta else Loss.pure(spend)
        from privfed.privacy.sampled_gaussian import sampled_gaussian

        settings = float(self.noise), float(self.rate), self.steps
        rho, epsilon = sampled_gaussian(*settings, float(delta))
        if spend < epsilon:
            raise PolicyError(
                f"training: noise {self.noise}, rate {self.rate} and {self.steps} steps cost epsilon "
                f"{shown(round_up(epsilon), 4)} at delta {self.delta}, and spend says {shown(spend, 4)}; write what "
                "its accountant says"
            )
        return Loss(spend, rho, delta)

    def protect(self, exact: Cells, priced: Protection, noise: Noise, reveals: Cells) -> Protected:
        """Unchanged; that this is its own makes the price its word."""
        return {name: unmasked(exact[name]) for name in priced.group}
