"""Build the objects that a policy names: accountant, mechanisms and query classes."""

from collections.abc import Iterable
from fractions import Fraction
from inspect import signature
from types import FunctionType

from privfed.errors import Faults, PluginError, PolicyError, PrivfedError
from privfed.privacy.accountant import Accountant
from privfed.privacy.loss import Loss, foreign
from privfed.privacy.mechanism import Mechanism
from privfed.privacy.policy import Guard, Policy
from privfed.questions import plugins
from privfed.questions.query import LocalEffect, Query

#: The methods that an accountant's author writes; `odometer` has a default.
ACCOUNTED = {"amount", "ceiling", "guarantee", "odometer"}
METHODS = FunctionType, property


def accountant_of(policy: Policy) -> Accountant:
    """Build the accountant that a policy names; one of another package is held to its budget (PluginError)."""
    named = policy.accountant
    accountant = named if isinstance(named, Accountant) else _accountant(named)
    if foreign(type(accountant)):
        _check_methods(type(accountant))
        _check_name("accountants", accountant.name, type(accountant))
        for budget in (policy.budget, *(limit.budget for limit in policy.limits)):
            if budget is not None:
                accountant.check(budget)
    return accountant


def _check_methods(kind: type[Accountant]) -> None:
    """Hold another package's accountant to the methods that it is asked for: sums and comparisons are privfed's."""
    theirs = {name for each in kind.__mro__ if foreign(each) for name in vars(each)}
    ours = {name for name, value in vars(Accountant).items() if isinstance(value, METHODS)}
    if replaced := ", ".join(sorted(theirs & ours - ACCOUNTED)):
        raise PluginError(
            f"accountant {kind.name!r} replaces {replaced}, which privfed does itself; write "
            f"{', '.join(sorted(ACCOUNTED))} alone"
        )


def _accountant(name: str) -> Accountant:
    accountant: Accountant = plugins.load("accountants", name)()
    return accountant


def _check_name(group: str, name: str, kind: type) -> None:
    """Hold a plugin that is passed as an object to a name of its own, by which ledgers are read."""
    if plugins.taken(group, name, kind):
        raise PluginError(
            f"{plugins.GROUPS[group]} {name!r}: another one is installed by this name; choose another"
        )


def installed_accountant(name: str | None) -> Accountant | None:
    """Build an accountant by its name in data; None if it is not installed."""
    if name not in plugins.available("accountants"):
        return None
    return _accountant(name)


def mechanism_of(guard: Guard) -> Mechanism:
    """Build the mechanism that a guard names (PolicyError: wrong options, or no spend)."""
    mechanism = guard.mechanism if isinstance(guard.mechanism, Mechanism) else _built(guard)
    _check_name("mechanisms", mechanism.name, type(mechanism))
    if mechanism.currency not in (None, "epsilon", "rho"):
        raise PluginError(f"mechanism {mechanism.name!r}: currency is 'epsilon', 'rho' or None")
    if mechanism.currency is not None and guard.spend is None:
        raise PolicyError(
            f'mechanism {guard.called!r} needs spend = "..." (in {mechanism.currency}) in its guard'
        )
    return mechanism


def _built(guard: Guard) -> Mechanism:
    build = plugins.load("mechanisms", guard.called)
    try:
        mechanism: Mechanism = build(**guard.options)
        return mechanism
    except PrivfedError:
        raise
    except Exception as error:  # noqa: BLE001  # a plugin's own, on public options
        takes = list(signature(build).parameters)
        unknown = ", ".join(name for name in guard.options if name not in takes)
        why = (
            f"does not take the options {unknown}" if unknown else f"refuses its options ({error})"
        )
        known = ", ".join(takes) or "none"
        raise PolicyError(f"mechanism {guard.mechanism!r} {why}; it takes {known}") from None


def versions_of(kinds: Iterable[type]) -> dict[str, str]:
    """Versions of the packages that some classes, beside ours, come from; for the ledger."""
    modules = {kind.__module__.partition(".")[0] for kind in kinds if foreign(kind)}
    return dict(plugins.packages().get(name, (name, "unknown")) for name in sorted(modules))


def dearest_of(policy: Policy) -> dict[str, tuple[int, tuple[Loss, ...]]] | None:
    """Return, by kind, how often it may be answered and the dominating losses of one answer, by guard.

    None if the policy does not bound them: a kind has no ``times``, or a guard no finite guarantee.
    Kinds that are always refused, and local effects, are omitted.
    """
    losses_by_kind: dict[str, tuple[int, tuple[Loss, ...]]] = {}
    for kind, guards in policy.guards.items():
        if not guards or any(guard.called == "refuse" for guard in guards):
            continue
        times = [guard.times for guard in guards if guard.times is not None]
        try:
            losses = [mechanism_of(g).dearest(g.cap or g.spend or Fraction(0)) for g in guards]
        except (PluginError, PolicyError):
            return None
        known = tuple(loss for loss in losses if loss is not None)
        if not times or len(known) < len(guards):
            return None
        losses_by_kind[kind] = min(times), known
    return losses_by_kind


def kinds_of(policy: Policy, queries: Iterable[type[Query]]) -> dict[str, type[Query]]:
    """Return the query classes that the policy names (PolicyError: not installed, or guarded wrongly; PluginError: its kind is another's)."""
    given = {query.kind: query for query in queries}
    kinds: dict[str, type[Query]] = {}
    faults = Faults()
    for kind, guards in policy.guards.items():
        with faults.collected():
            kinds[kind] = given[kind] if kind in given else _installed(kind)
            _check_name("queries", kind, kinds[kind])
            _check_local(kind, issubclass(kinds[kind], LocalEffect), bool(guards))
    faults.tell(PolicyError)
    return kinds


def _installed(kind: str) -> type[Query]:
    try:
        query: type[Query] = plugins.load("queries", kind)
    except PluginError as error:
        raise PolicyError(f"the policy names a query that is not installed: {error}") from None
    if query.kind != kind:
        raise PluginError(f"the query installed as {kind!r} calls itself {query.kind!r}")
    return query


def _check_local(kind: str, local: bool, guarded: bool) -> None:
    if local and guarded:
        raise PolicyError(
            f"query {kind!r} releases nothing, so nothing guards it; write it under local instead"
        )
    if not local and not guarded:
        raise PolicyError(
            f"query {kind!r} releases something, so it is not a local effect; write a [[guard]] for it"
        )
