"""A guard's claimed guarantee, and the neighbours for which it must hold."""

import math
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, Literal, get_args

from scipy.optimize import brentq

from privfed.audits.threshold_tests import PrivacyClaim
from privfed.errors import InputError
from privfed.privacy.conversion import gaussian_epsilon
from privfed.questions.part import Relation, Unit

NoiseName = Literal["", "gaussian", "laplace"]


@dataclass(frozen=True)
class GuardClaim:
    """A guard's claim, as stated by its documentation or a privacy officer.

    Args:
        epsilon: nats, of all ``rounds`` together.
        delta: of all rounds together.
        unit: the unit of privacy, a client or a record.
        relation: how neighbours differ.
        rounds: number of rounds before its budget is spent; None if not stated.
        clip: L2 norm to which an update is clipped; None if not stated.
        noise: its law; empty if not stated. ``"gaussian"`` claims a Gaussian trade-off curve, for which audits have
            far more power.
        scale: of the noise of one round: standard deviation, or Laplace's scale; None if not stated.

    Raises:
        InputError: the claim is impossible.
    """

    epsilon: float
    delta: float = 0.0
    unit: Unit = "client"
    relation: Relation = "add-or-remove"
    rounds: int | None = None
    clip: float | None = None
    noise: NoiseName = ""
    scale: float | None = None

    def __post_init__(self) -> None:
        if not (0 < self.epsilon < math.inf and 0 <= self.delta < 1):
            raise InputError(
                "a guard's claim needs epsilon above 0 and finite, and 0 <= delta < 1: write "
                "--epsilon 1 --delta 1e-5"
            )
        if self.unit not in ("client", "record"):
            raise InputError("a guard's unit is client or record: write --unit client")
        if self.relation not in get_args(Relation):
            raise InputError(f"relation is one of {', '.join(get_args(Relation))}")
        if self.noise not in get_args(NoiseName):
            raise InputError(
                "noise is gaussian or laplace; leave --noise out where nothing is said"
            )
        if self.noise == "gaussian" and not self.delta:
            raise InputError("Gaussian noise has no pure epsilon: write --delta 1e-5")
        if self.rounds is not None and self.rounds < 1:
            raise InputError("rounds is a whole number of at least 1")
        for name in ("clip", "scale"):
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise InputError(f"{name} is a finite number above 0")

    @property
    def reach(self) -> int:
        """The maximum L2 distance of neighbours' clipped updates, in clips.

        A client added or removed, whose absence is the zero vector: 1, as ||u|| <= c after clipping. A client replaced:
        ||u - v|| <= 2c, attained at v = -u: 2. A record added, removed or replaced may change the trained update
        arbitrarily, as nothing before the clip bounds its effect: 2.
        """
        return 1 if (self.unit, self.relation) == ("client", "add-or-remove") else 2

    @property
    def privacy(self) -> PrivacyClaim:
        """Return the claim in the terms of an audit."""
        return PrivacyClaim(self.epsilon, self.delta, gaussian=self.noise == "gaussian")

    @cached_property
    def min_scale(self) -> float | None:
        """Return the minimum noise scale of one round that the claim requires; None if it does not follow.

        Gaussian: T rounds of sensitivity s and std sigma are mu-Gaussian-DP, mu = sqrt(T) s / sigma (Dong et al.
        2022, Corollary 3.3), with mu from the claim. For other laws an L2 clip does not determine a scale.
        """
        if self.scale is not None:
            return self.scale
        if self.clip is None or self.noise != "gaussian":
            return None
        top = 2 * (self.epsilon + 1) + 1e-6
        mu = brentq(lambda m: gaussian_epsilon(m, self.delta) - self.epsilon, 1e-6, top * 10)
        return math.sqrt(self.rounds or 1) * self.reach * self.clip / float(mu)

    def to_dict(self) -> dict[str, Any]:
        """Return the claim as plain data."""
        return asdict(self)
