"""Mechanisms without noise (open, refuse, nullify), and one for models from private training."""

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
        """Return True."""
        return True

    reason: ClassVar[str] = "released exactly, by the owner's policy"  #: Why there is no guarantee

    def price(self, group: Mapping[str, BoundedPart], spend: Fraction) -> Protection:
        """State that the release is unprotected."""
        return Protection(self, group, spend, stated=Loss.open(self.reason))


class Refuse(Open):
    """Refuses every query that it guards."""

    name: ClassVar[str] = "refuse"

    def supports(self, group: Mapping[str, BoundedPart]) -> bool:
        """Return False."""
        return False


class Nullify(Open):
    """Suppresses the cells that would disclose a record (a disclosure-control rule, no DP).

    Suppressed cells (``reveals``) are zero and masked; which ones depends on data and is released.
    Source: Corcuera Barcena et al. 2025, Algorithm 1, Check&Nullify, which subtraction undoes
    (``privfed.attacks.subtraction``); ``strict`` also suppresses cells from which others could be
    subtracted.
    """

    name: ClassVar[str] = "nullify"
    suppresses: ClassVar[bool] = True
    reason: ClassVar[str] = "small cells suppressed, which is not differential privacy"

    def __init__(self, *, strict: bool = False) -> None:
        self.strict = strict


class Training(Mechanism):
    """Releases the result of private training, such as Opacus's, at the price of its own accountant.

    A guard's ``spend`` and ``delta`` are the (epsilon, delta) of one release, under the policy's unit and relation: of
    a record if each record's gradient was clipped and noise was added to their sum. This is the training's claim, and
    every total names it. Clipping the result costs nothing (post-processing). A failure of training is not covered: the
    update of zero is then released unmodified.

    With the training's settings a release also has a rho, by which many rounds add up to little more than its
    accountant's joint figure: see :func:`.sampled_gaussian`. A ``spend`` below their cost is refused.

    Args:
        delta: of one release.
        noise: Opacus's noise multiplier, sigma over the clip.
        rate: the probability with which a step samples a record, as Opacus does by default.
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
        """Whether the only part is a model's update; sums over a table are not made private by training."""
        return set(group) == {"update"}

    def price(self, group: Mapping[str, BoundedPart], spend: Fraction) -> Protection:
        """State the loss given by the training's accountant."""
        return Protection(self, group, spend, stated=self.dearest(spend))

    def dearest(self, spend: Fraction) -> Loss:
        """Return the loss of one release (PolicyError: the settings cost more than the spend)."""
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
        """Return the parts unchanged; overriding makes the price this mechanism's claim."""
        return {name: unmasked(exact[name]) for name in priced.group}
