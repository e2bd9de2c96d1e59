"""A policy's guards at work on one query: which parts each protects, and what that costs."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np

from privfed.errors import PluginError, PolicyError, UnsupportedLoss
from privfed.exchange.messages import Reason, ReleasedPart
from privfed.owner.opendp_maps import checked, libraries
from privfed.privacy.accountant import Accountant
from privfed.privacy.laws import Law, mapped
from privfed.privacy.loss import QUERIED, Loss
from privfed.privacy.masked_sums import MaskedProtection, all_masked
from privfed.privacy.mechanism import BoundedPart, Mechanism, Protection, TooWide
from privfed.privacy.policy import Guard, Policy
from privfed.privacy.policy_objects import mechanism_of
from privfed.questions.part import Part, PartType
from privfed.questions.query import Query
from privfed.tables.records import Records

KEPT = 256  #: Most quotes that are kept: questions of one kind mostly have equal parts


class Refused(Exception):
    """Carries a reason out of the checks, and a word to the owner; nothing has happened yet."""

    def __init__(self, reason: Reason, why: str = "") -> None:
        super().__init__(reason)
        self.reason, self.why = reason, why


@dataclass(frozen=True)
class Quote:
    """What answering a question takes, priced once, without data."""

    protections: tuple[Protection, ...]  #: each guard at work on its parts
    loss: Loss  #: what they cost together
    model: str  #: ``local`` where each individual's own bits are noised, or else ``central``
    #: what a ledger's line says of the noise: who made it, and OpenDP's own word on it
    facts: Mapping[str, Any]
    #: the same protections with one owner's share of the noise, where the answer is masked
    masked: tuple[MaskedProtection, ...] = ()


class Guards:
    """All guards of one policy, and what they say of questions; equal ones are quoted once."""

    def __init__(self, policy: Policy, accountant: Accountant) -> None:
        self._policy, self._accountant = policy, accountant
        self.mechanisms = {
            kind: [mechanism_of(guard) for guard in guards]
            for kind, guards in policy.guards.items()
        }
        if policy.masked is not None:
            policy.masked.check_mechanisms(self.mechanisms.values())
        self._kept: dict[Any, Quote] = {}

    def quote(
        self, asked: type[Query], parts: Mapping[str, Part], proposed: Fraction | None
    ) -> Quote:
        """Price a question by its parts; Refused: a mechanism cannot protect them, or misstates."""
        key = asked, tuple(parts.items()), proposed
        try:
            kept = self._kept.get(key)
        except TypeError:  # a part that some query built of lists
            return self._quoted(asked, parts, proposed)
        if kept is None:
            kept = self._quoted(asked, parts, proposed)
            if len(self._kept) >= KEPT:
                self._kept.clear()
            self._kept[key] = kept
        return kept

    def _quoted(
        self, asked: type[Query], parts: Mapping[str, Part], proposed: Fraction | None
    ) -> Quote:
        guards = self._policy.guards[asked.kind]
        each = zip(guards, self.mechanisms[asked.kind], assign(guards, parts), strict=True)
        at_work = [
            (
                mechanism,
                {name: self._bounded(parts[name]) for name in names},
                guard.amount(proposed),
            )
            for guard, mechanism, names in each
            if names
        ]
        for use in at_work:
            check_supported(*use)
        protections = tuple(priced(*use) for use in at_work)
        try:
            shared = all_masked(protections, self._policy.masked)
        except ValueError:
            raise Refused(Reason.UNSUPPORTED) from None
        protections = tuple(each.total for each in shared) or protections
        loss = stated_by(asked, total(protections))
        try:
            self._accountant.cost(loss)
        except (UnsupportedLoss, ValueError, ArithmeticError):
            raise Refused(Reason.UNSUPPORTED) from None
        model = "local" if is_local(protections) else "central"
        facts = described(protections, loss)
        if shared and self._policy.masked is not None:
            alone = sum((each.alone for each in shared), Loss.free())
            facts |= {"masked": self._policy.masked.to_dict(), "unmasked": alone.to_dict()}
        return Quote(protections, loss, model, facts, shared)

    def _bounded(self, part: Part) -> BoundedPart:
        try:
            return bounded_under(part, self._policy)
        except PolicyError:  # no finite bound for the policy's unit
            return BoundedPart(part, None)


def bounded_under(part: Part, policy: Policy) -> BoundedPart:
    """A part with its bound under the policy's unit, relation and cap; PolicyError: none is finite."""
    if part.sensitivity is None:
        return BoundedPart(part, None)
    return BoundedPart(part, part.sensitivity.under(policy.unit, policy.relation, policy.cap))


def assign(guards: Sequence[Guard], parts: Iterable[str]) -> list[list[str]]:
    """Give each guard its parts; parts that no guard covers are withheld."""
    names = list(parts)
    named = {name for guard in guards for name in guard.parts}
    return [
        [n for n in names if n in guard.parts or ("*" in guard.parts and n not in named)]
        for guard in guards
    ]


def check_supported(
    mechanism: Mechanism, group: Mapping[str, BoundedPart], spend: Fraction
) -> None:
    """Refuse what the mechanism cannot protect: the wrong parts, no spend, sizes that tell."""
    data_dependent = any(-1 in bounded.part.shape for bounded in group.values())
    if not mechanism.supports(group):
        raise Refused(Reason.UNSUPPORTED)
    if mechanism.currency is not None and (spend <= 0 or data_dependent):
        raise Refused(Reason.UNSUPPORTED)


def priced(mechanism: Mechanism, group: Mapping[str, BoundedPart], spend: Fraction) -> Protection:
    """Price a mechanism at work, unless its noise is too wide, or it states what cannot be right."""
    try:
        return checked(mechanism, group, spend)
    except TooWide as error:
        raise Refused(Reason.UNSUPPORTED, f"mechanism {mechanism.name!r}: {error}") from None
    except PluginError as error:
        raise Refused(Reason.UNSOUND, f"mechanism {mechanism.name!r}: {error}") from None
    except Exception as error:
        why = f"its cost is no finite exact number ({type(error).__name__})"
        raise Refused(Reason.UNSOUND, f"mechanism {mechanism.name!r}: {why}") from None


def total(protections: Sequence[Protection]) -> Loss:
    """What several protections cost together."""
    losses = [protection.loss for protection in protections]
    return sum(losses[1:], losses[0]) if losses else Loss.free()


def foreign(asked: type[Query]) -> bool:
    """Whether a query's class is not one of ours, so that its sensitivities are on its author's word."""
    return asked.__module__.partition(".")[0] != "privfed"


def stated_by(asked: type[Query], loss: Loss) -> Loss:
    """The loss, which rests on the sensitivities that a query states where its class is not one of ours."""
    if not loss.counted or not foreign(asked):
        return loss
    return replace(loss, basis=tuple(sorted({*loss.basis, f"{QUERIED}:{asked.kind}"})))


def described(protections: Sequence[Protection], loss: Loss) -> dict[str, Any]:
    """What a ledger's line says of a release's noise: who made it, and OpenDP's own word on it."""
    return {
        "mechanisms": {name: p.mechanism.name for p in protections for name in p.group},
        "maps": [
            [charged.law.measure, cost]
            for charged in loss.laws
            if (cost := mapped(charged)) is not None
        ],
        "libraries": libraries(),
    }


def is_local(protections: Sequence[Protection]) -> bool:
    """Whether each individual's own bits are noised: any input against any other."""
    parts = [bounded.part for protection in protections for bounded in protection.group.values()]
    return bool(parts) and all(
        part.type == PartType.BITS and part.sensitivity is not None and part.sensitivity.anything
        for part in parts
    )


def as_declared(array: np.ndarray, part: Part) -> np.ndarray:
    """Hold an exact array against its declared shape and type."""
    if not part.admits(array.shape):
        raise ValueError("an array does not have its declared shape")
    if not part.exact:
        return array
    if array.dtype == bool:
        return array
    most = 2**53  # exactly: as a float it would let 2^53 + 1 pass, and a neighbour's cells be cut
    if array.dtype == np.int64 and -most <= array.min(initial=0) <= array.max(initial=0) <= most:
        return array.copy()
    if array.dtype.kind == "f" and not np.array_equal(np.trunc(array), array):
        raise ValueError("an array on a grid must hold whole units")
    # cutting here moves no two answers further apart, and none wraps around
    whole: np.ndarray = np.clip(array, np.float64(-most), np.float64(most)).astype(np.int64)
    return whole


def as_released(
    array: np.ma.MaskedArray, part: Part, mechanism: str, noise: Law | None
) -> ReleasedPart:
    """Wrap a protected array for release."""
    mask = np.ma.getmask(array)
    kept = np.ma.getmaskarray(array) if mask.any() else None
    return ReleasedPart(
        part.type, part.axes, np.asarray(array.data), kept, part.grid, mechanism, noise
    )


def capped(records: Any, policy: Policy) -> Any:
    """No more records of one unit than the policy's cap, on which its guarantee stands."""
    if policy.unit == "individual" and isinstance(records, Records) and records.individual is None:
        raise PolicyError(
            "unit 'individual' protects persons, and these records do not say whose they are; name "
            'the column with individual=..., or write unit = "record"'
        )
    if policy.cap is not None and not isinstance(records, Records):
        raise PolicyError(
            f"{type(records).__name__} cannot be held to a cap of records; leave cap out of the policy"
        )
    if policy.unit == "individual" and policy.cap is not None:
        return records.capped(policy.cap)
    if policy.unit == "client" and policy.cap is not None and len(records) > policy.cap:
        return records.take(np.arange(policy.cap))
    return records
