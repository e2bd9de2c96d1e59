"""Faulty mechanisms and gates that disclose more than they charge for, which audits must detect."""

from collections.abc import Collection, Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np

from privfed.exchange.messages import Envelope, Request
from privfed.ledger import Entry, Ledger
from privfed.mechanisms.additive import AdditiveNoise
from privfed.mechanisms.gaussian import Gaussian
from privfed.mechanisms.laplace import Laplace
from privfed.mechanisms.randomized_response import RandomizedResponse, flip_of
from privfed.owner.gate import Gate
from privfed.owner.guards import capped
from privfed.privacy.laws import Law
from privfed.privacy.loss import Loss
from privfed.privacy.mechanism import (
    BoundedPart,
    Cells,
    Mechanism,
    Protected,
    Protection,
    joint,
    unmasked,
)
from privfed.privacy.noise import Noise, TestNoise
from privfed.privacy.policy import Policy
from privfed.questions.part import Bound


def with_mechanism(policy: Policy, mechanism: Mechanism, kinds: Collection[str] = ()) -> Policy:
    """Return the policy with another mechanism for some kinds of query, or all, at the same spend."""
    guards = {
        kind: tuple(replace(guard, mechanism=mechanism) for guard in line)
        for kind, line in policy.guards.items()
        if kind in (kinds or policy.guards)
    }
    return replace(policy, guards={**policy.guards, **guards})


class FaultyMechanism(Mechanism):
    """A mechanism with a fault, named after its class; it states the loss of its correct parent."""

    def __init_subclass__(cls) -> None:
        cls.name = f"faulty-{cls.__name__}"


class FloatLaplace(FaultyMechanism, Laplace):
    """Laplace noise in floating point, whose low bits disclose the input (Mironov 2012)."""

    def __init__(self, seed: int = 0) -> None:
        self._rng = np.random.default_rng(seed)

    def draw(self, law: Law, noise: Noise, cells: int) -> np.ndarray:
        return self._rng.laplace(0.0, law.parameter, cells)


class Thinner(FaultyMechanism, AdditiveNoise):
    """Noise whose scale is divided by a factor, while the stated distribution and loss are not."""

    def __init__(self, factor: float = 2.0) -> None:
        self.factor = factor

    def draw(self, law: Law, noise: Noise, cells: int) -> np.ndarray:
        return super().draw(type(law)(law.parameter / self.factor), noise, cells)


class ThinnerLaplace(Thinner, Laplace):
    """Laplace noise whose true epsilon is the factor times the charge."""


class ThinnerGaussian(Thinner, Gaussian):
    """Gaussian noise whose true rho is the squared factor times the charge."""


class Understating(FaultyMechanism, AdditiveNoise):
    """Underestimates the sensitivity by a factor, and states the noise that follows from it."""

    def __init__(self, factor: float = 2.0) -> None:
        self.factor = factor

    def scale(self, bound: Bound, spend: Fraction) -> float:
        return super().scale(bound, spend) / self.factor  # type: ignore[safe-super]


class UnderstatingLaplace(Understating, Laplace):
    """Too small an L1 sensitivity, as if the L2 norm were used."""


class UnderstatingGaussian(Understating, Gaussian):
    """Too small an L2 sensitivity, as if replacing a record were adding one."""


class FirstPartLaplace(FaultyMechanism, Laplace):
    """Calibrates the noise of a whole group to the sensitivity of its first part."""

    def price(self, group: Mapping[str, BoundedPart], spend: Fraction) -> Protection:
        first = next(iter(group.values())).bound
        assert first is not None
        law = self.law(self.scale(first, spend))
        return replace(super().price(group, spend), laws=dict.fromkeys(group, law))


class SharedBetweenPartsLaplace(FaultyMechanism, Laplace):
    """Draws noise once and adds it to every part, so that a difference of parts has none."""

    def protect(self, exact: Cells, priced: Protection, noise: Noise, reveals: Cells) -> Protected:
        widest = max(priced.laws.values(), key=lambda law: law.parameter)
        drawn = self.draw(widest, noise, max(x.size for x in exact.values()))
        return {name: unmasked(x + drawn[: x.size].reshape(x.shape)) for name, x in exact.items()}


class SharedBetweenCellsLaplace(FaultyMechanism, Laplace):
    """Draws noise for half of the cells, and uses it twice."""

    def draw(self, law: Law, noise: Noise, cells: int) -> np.ndarray:
        half = super().draw(law, noise, (cells + 1) // 2)
        return np.concatenate([half, half])[:cells]


class SeededLaplace(FaultyMechanism, Laplace):
    """Draws from a generator with a fixed seed: after a restart the noise repeats."""

    def __init__(self, seed: int = 0) -> None:
        self._noise = TestNoise(seed)

    def draw(self, law: Law, noise: Noise, cells: int) -> np.ndarray:
        return super().draw(law, self._noise, cells)


class ThinCellLaplace(FaultyMechanism, Laplace):
    """Adds only a third of the required noise to the last cell of a part."""

    def draw(self, law: Law, noise: Noise, cells: int) -> np.ndarray:
        others = super().draw(law, noise, cells - 1)
        return np.concatenate([others, super().draw(type(law)(law.parameter / 3), noise, 1)])


class TwoAnswersLaplace(FaultyMechanism, Laplace):
    """Answers twice for one charge, and releases the mean of both answers."""

    def draw(self, law: Law, noise: Noise, cells: int) -> np.ndarray:
        first, second = (super(TwoAnswersLaplace, self).draw(law, noise, cells) for _ in range(2))
        return np.asarray((first + second) // 2)


class RoundedLaplace(FloatLaplace):
    """Noise in floating point, rounded to three decimals: adding it to the value undoes that."""

    def draw(self, law: Law, noise: Noise, cells: int) -> np.ndarray:
        return np.round(super().draw(law, noise, cells), 3)


class Truncated(FaultyMechanism, AdditiveNoise):
    """Redraws noise beyond a number of scales: outputs farther out disclose everything."""

    scales: ClassVar[float]

    def draw(self, law: Law, noise: Noise, cells: int) -> np.ndarray:
        drawn = super().draw(law, noise, cells)
        while (far := np.abs(drawn) > self.scales * law.parameter).any():
            drawn[far] = super().draw(law, noise, int(far.sum()))
        return drawn


class TruncatedLaplace(Truncated, Laplace):
    """Laplace noise without its tails: seven outputs in a thousand would lie there."""

    scales: ClassVar[float] = 5.0


class TruncatedGaussian(Truncated, Gaussian):
    """Gaussian noise without its tails: at 4 sigma six outputs in 100,000, out of audits' reach."""

    scales: ClassVar[float] = 4.0


class ForgetfulLaplace(FaultyMechanism, Laplace):
    """Omits the noise of a cell with probability 1 / ``once_in``."""

    def __init__(self, once_in: int = 1000) -> None:
        self.once_in = once_in

    def draw(self, law: Law, noise: Noise, cells: int) -> np.ndarray:
        forgotten = noise.bits(cells, Fraction(2**64 // self.once_in, 2**64))
        return np.where(forgotten, 0, super().draw(law, noise, cells))


class NearLaplace(FaultyMechanism, Laplace):
    """Adds no noise to answers beyond 30 scales, as if they disclosed nothing."""

    def protect(self, exact: Cells, priced: Protection, noise: Noise, reveals: Cells) -> Protected:
        noisy = super().protect(exact, priced, noise, reveals)
        return {
            name: unmasked(np.where(np.abs(x) > 30 * priced.laws[name].parameter, x, noisy[name]))
            for name, x in exact.items()
        }


class ReusedLaplace(FaultyMechanism, Laplace):
    """Adds the noise of its first answer to all later ones."""

    def __init__(self) -> None:
        self._drawn: dict[tuple[Law, int], np.ndarray] = {}

    def draw(self, law: Law, noise: Noise, cells: int) -> np.ndarray:
        key = law, cells
        if key not in self._drawn:
            self._drawn[key] = super().draw(law, noise, cells)
        return self._drawn[key]


class ParityLaplace(FaultyMechanism, Laplace):
    """Encodes the parity of the sum of all cells in the last bit of the last cell."""

    def protect(self, exact: Cells, priced: Protection, noise: Noise, reveals: Cells) -> Protected:
        noisy = dict(super().protect(exact, priced, noise, reveals))
        odd, name = sum(int(x.sum()) for x in exact.values()) % 2, list(noisy)[-1]
        last = noisy[name].reshape(-1)
        last[-1] += odd - last[-1] % 2
        return noisy | {name: last.reshape(noisy[name].shape)}


class AnswerScaledLaplace(FaultyMechanism, Laplace):
    """Adds only a third of the noise if the first cell is nonzero."""

    def protect(self, exact: Cells, priced: Protection, noise: Noise, reveals: Cells) -> Protected:
        full = super().protect(exact, priced, noise, reveals)
        if not next(iter(exact.values())).ravel()[0]:
            return full
        return {name: unmasked(x + (full[name].data - x) // 3) for name, x in exact.items()}


class HalfChargeGaussian(FaultyMechanism, Gaussian):
    """States half of its noise's loss, as for subsampling that did not take place."""

    def price(self, group: Mapping[str, BoundedPart], spend: Fraction) -> Protection:
        honest = super().price(group, 2 * spend)
        return replace(honest, spend=spend, stated=Loss(rho=spend))


class SilentGaussian(FaultyMechanism, Gaussian):
    """Adds no noise to the first of every ``every`` answers, but states that it did."""

    def __init__(self, every: int) -> None:
        self.every, self.answers = every, 0

    def draw(self, law: Law, noise: Noise, cells: int) -> np.ndarray:
        silent, self.answers = self.answers % self.every == 0, self.answers + 1
        return super().draw(law, noise, cells) * (not silent)


class YesLeaningResponse(FaultyMechanism, RandomizedResponse):
    """Answers truthfully with probability p, and otherwise yes with probability q = 1 - p.

    Its true epsilon is ln(1 + e^eps + e^(2 eps)), never below ln 3: yes has probability p + q^2 if it
    is true and q^2 if it is not, and p / q = e^eps.
    """

    def protect(self, exact: Cells, priced: Protection, noise: Noise, reveals: Cells) -> Protected:
        flip = flip_of(priced.group, priced.spend)
        answers = {}
        for name in priced.group:
            truth = exact[name].astype(bool)
            lies, yes = (noise.bits(truth.size, flip).reshape(truth.shape) for _ in range(2))
            answers[name] = unmasked(np.where(lies, yes, truth))
        return answers


class UnsharedResponse(FaultyMechanism, RandomizedResponse):
    """Flips each bit with the whole spend: the true epsilon is m times the charge for m bits."""

    _priced: Protection | None = None
    _unshared: Protection

    def protect(self, exact: Cells, priced: Protection, noise: Noise, reveals: Cells) -> Protected:
        if self._priced is not priced:  # priced once for many draws of one query
            self._unshared = self.price(priced.group, priced.spend * joint(priced.group).l1)
            self._priced = priced
        return super().protect(exact, self._unshared, noise, reveals)


class OpenBitResponse(FaultyMechanism, RandomizedResponse):
    """Flips all bits correctly except the first, which it releases exactly."""

    def protect(self, exact: Cells, priced: Protection, noise: Noise, reveals: Cells) -> Protected:
        answers = dict(super().protect(exact, priced, noise, reveals))
        for name, answer in answers.items():
            answer[0] = exact[name][0]
        return answers


class LaxCapGate(Gate):
    """Keeps one more record of each individual than the cap that its charge assumes."""

    def __init__(
        self, owner: str, records: Any, policy: Policy, ledger: Ledger, **settings: Any
    ) -> None:
        super().__init__(owner, records, policy, ledger, **settings)
        lax = replace(policy, cap=(policy.cap or 0) + 1)
        self._view = replace(self._view, records=capped(records, lax))


class AnewGate(Gate):
    """Answers a retry with fresh noise, without a charge."""

    def _again(self, request: Request, entry: Entry) -> Envelope:
        query, quote, _ = self._prepare(request)
        return self._evaluate(request, query, quote)
