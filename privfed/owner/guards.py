"""Apply a policy's guards to a query: the parts that each protects, and the cost."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from privfed.errors import PluginError, PolicyError, UnsupportedLoss
from privfed.exchange.messages import Reason, ReleasedPart
from privfed.owner.opendp_maps import checked, libraries
from privfed.privacy.accountant import Accountant
from privfed.privacy.laws import Law, mapped
from privfed.privacy.loss import COMPOSED, QUERIED, Loss, foreign
from privfed.privacy.masked_sums import MaskedProtection, all_masked
from privfed.privacy.mechanism import BoundedPart, Mechanism, Protection, TooWide
from privfed.privacy.policy import Guard, Policy
from privfed.privacy.policy_objects import mechanism_of, versions_of
from privfed.questions.part import Part, PartType
from privfed.questions.query import Query
from privfed.tables.records import Records

KEPT = 256  #: Maximum cached quotes: queries of one kind mostly have equal parts


class Refused(Exception):
    """Raised by the checks before any effect, with a reason and a note for the owner."""

    def __init__(self, reason: Reason, why: str = "") -> None:
        super().__init__(reason)
        self.reason, self.why = reason, why


@dataclass(frozen=True)
class Quote:
    """The price of answering a query, computed without data."""

    protections: tuple[Protection, ...]  #: each guard applied to its parts
    loss: Loss  #: their joint cost
    model: str  #: ``local`` if each individual's own bits are noised, else ``central``
    #: a ledger row's description of the noise: its origin, and the cost by OpenDP's maps
    facts: Mapping[str, Any]
    #: the same protections with one owner's share of the noise, if the answer is masked
    masked: tuple[MaskedProtection, ...] = ()


class Guards:
    """All guards of one policy, and their quotes for queries, cached; see :func:`guards_of`."""

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
        self, query: type[Query], parts: Mapping[str, Part], proposed: Fraction | None
    ) -> Quote:
        """Price a query by its parts (Refused: a mechanism cannot protect them, or misstates its cost)."""
        key = query, tuple(parts.items()), proposed
        try:
            kept = self._kept.get(key)
        except TypeError:  # a part with unhashable lists
            return self._quoted(query, parts, proposed)
        if kept is None:
            kept = self._quoted(query, parts, proposed)
            if len(self._kept) >= KEPT:
                self._kept.clear()
            self._kept[key] = kept
        return kept

    def _quoted(
        self, query: type[Query], parts: Mapping[str, Part], proposed: Fraction | None
    ) -> Quote:
        guards = self._policy.guards[query.kind]
        each = zip(guards, self.mechanisms[query.kind], assign(guards, parts), strict=True)
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
        loss = stated_by(query, self._accountant, total(protections))
        try:
            self._accountant.cost(loss)
        except UnsupportedLoss:
            raise Refused(Reason.UNSUPPORTED) from None
        except PluginError as error:
            raise Refused(Reason.UNSOUND, str(error)) from None
        model = "local" if is_local(protections) else "central"
        facts = described(protections, loss, query, type(self._accountant))
        if shared and self._policy.masked is not None:
            alone = sum((each.alone for each in shared), Loss.free())
            facts |= {"masked": self._policy.masked.to_dict(), "unmasked": alone.to_dict()}
        return Quote(protections, loss, model, facts, shared)

    def _bounded(self, part: Part) -> BoundedPart:
        try:
            return bounded_under(part, self._policy)
        except PolicyError:  # no finite sensitivity for the policy's unit
            return BoundedPart(part, None)


#: Shared guards by the id of their policy, which they keep alive.
_SHARED: WeakValueDictionary[int, Guards] = WeakValueDictionary()


def guards_of(policy: Policy, accountant: Accountant) -> Guards:
    """Return a policy's guards: one object for all gates of a process, which quote a query once.

    A quote follows from the policy and the query's parts alone, unless another package's mechanism or
    accountant has a state of its own: then each gate has its own guards.
    """
    guards = _SHARED.get(id(policy)) or Guards(policy, accountant)
    used = [accountant, *(each for made in guards.mechanisms.values() for each in made)]
    if not any(foreign(type(each)) for each in used):
        _SHARED[id(policy)] = guards
    return guards


def bounded_under(part: Part, policy: Policy) -> BoundedPart:
    """Return a part with its bound under the policy's unit, relation and cap (PolicyError: not finite)."""
    if part.sensitivity is None:
        return BoundedPart(part, None)
    return BoundedPart(part, part.sensitivity.under(policy.unit, policy.relation, policy.cap))


def assign(guards: Sequence[Guard], parts: Iterable[str]) -> list[list[str]]:
    """Assign parts to guards; parts that no guard covers are withheld."""
    names = list(parts)
    named = {name for guard in guards for name in guard.parts}
    return [
        [n for n in names if n in guard.parts or ("*" in guard.parts and n not in named)]
        for guard in guards
    ]


def check_supported(
    mechanism: Mechanism, group: Mapping[str, BoundedPart], spend: Fraction
) -> None:
    """Refuse what a mechanism cannot protect: unsupported parts, no spend, data-dependent sizes."""
    data_dependent = any(-1 in bounded.part.shape for bounded in group.values())
    if not mechanism.supports(group):
        raise Refused(Reason.UNSUPPORTED)
    if mechanism.currency is not None and (spend <= 0 or data_dependent):
        raise Refused(Reason.UNSUPPORTED)


def priced(mechanism: Mechanism, group: Mapping[str, BoundedPart], spend: Fraction) -> Protection:
    """Price a mechanism (Refused: its noise is too wide, or its stated price too low)."""
    try:
        return checked(mechanism, group, spend)
    except TooWide as error:
        raise Refused(Reason.UNSUPPORTED, f"mechanism {mechanism.name!r}: {error}") from None
    except PluginError as error:
        raise Refused(Reason.UNSOUND, f"mechanism {mechanism.name!r}: {error}") from None
    except Exception as error:
        why = f"raises {type(error).__name__} as it is priced"
        raise Refused(Reason.UNSOUND, f"mechanism {mechanism.name!r} {why}") from None


def total(protections: Sequence[Protection]) -> Loss:
    """Return the joint cost of several protections."""
    losses = [protection.loss for protection in protections]
    return sum(losses[1:], losses[0]) if losses else Loss.free()


def stated_by(query: type[Query], accountant: Accountant, loss: Loss) -> Loss:
    """Return the loss, adding to its basis a query's sensitivities and an accountant that are not built in."""
    words = {f"{QUERIED}:{query.kind}": query, f"{COMPOSED}:{accountant.name}": type(accountant)}
    theirs = {word for word, kind in words.items() if foreign(kind)}
    if not loss.counted or not theirs:
        return loss
    return replace(loss, basis=tuple(sorted({*loss.basis, *theirs})))


def described(protections: Sequence[Protection], loss: Loss, *used: type) -> dict[str, Any]:
    """Return a ledger row's description of a release's noise: its origin, and the cost by OpenDP's maps.

    The versions include those of the packages of ``used`` classes.
    """
    made = [part for p in protections for part in (p.mechanism, *p.laws.values())]
    return {
        "mechanisms": {name: p.mechanism.name for p in protections for name in p.group},
        "maps": [
            [charged.law.measure, cost]
            for charged in loss.laws
            if (cost := mapped(charged)) is not None
        ],
        "libraries": {**libraries(), **versions_of([*used, *map(type, made)])},
    }


def is_local(protections: Sequence[Protection]) -> bool:
    """Whether each individual's own bits are noised, which protects any input against any other."""
    parts = [bounded.part for protection in protections for bounded in protection.group.values()]
    return bool(parts) and all(
        part.type == PartType.BITS and part.sensitivity is not None and part.sensitivity.anything
        for part in parts
    )


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
    """Return at most ``cap`` records of each unit, as the policy's guarantee assumes."""
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
