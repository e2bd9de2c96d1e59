"""What a policy names in text, built: its accountant, its mechanisms, and the queries it knows."""

from __future__ import annotations

from collections.abc import Iterable

from privfed import plugins
from privfed.accountant import Accountant
from privfed.errors import PluginError, PolicyError
from privfed.mechanism import Mechanism
from privfed.policy import Guard, Policy
from privfed.query import Query


def accountant_of(policy: Policy) -> Accountant:
    """Build the accountant that a policy names."""
    if isinstance(policy.accountant, Accountant):
        return policy.accountant
    accountant: Accountant = plugins.load("accountants", policy.accountant)()
    return accountant


def mechanism_of(guard: Guard) -> Mechanism:
    """Build the mechanism that a guard names; wrong options or no spend are a PolicyError."""
    mechanism = guard.mechanism if isinstance(guard.mechanism, Mechanism) else _built(guard)
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
    except TypeError:
        known = ", ".join(guard.options) or "none"
        raise PolicyError(
            f"mechanism {guard.mechanism!r} does not take the options {known}; see `privfed plugins`"
        ) from None


def kinds_of(policy: Policy, queries: Iterable[type[Query]]) -> dict[str, type[Query]]:
    """The query classes that the policy names, and no others."""
    given = {query.kind: query for query in queries}
    kinds: dict[str, type[Query]] = {}
    for kind in policy.guards:
        if kind in given:
            kinds[kind] = given[kind]
            continue
        try:
            kinds[kind] = plugins.load("queries", kind)
        except PluginError as error:
            raise PolicyError(f"the policy names a query that is not installed: {error}") from None
        if kinds[kind].kind != kind:
            raise PluginError(f"the query installed as {kind!r} calls itself {kinds[kind].kind!r}")
    return kinds
