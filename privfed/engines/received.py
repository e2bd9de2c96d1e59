"""The privacy loss of what a study's server received, from the replies alone."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from privfed.engines.journal import Journal
from privfed.exchange.messages import Envelope, Failure, Release, Request
from privfed.owner.guards import Guards, Quote, Refused
from privfed.privacy.accountant import Amount, plus
from privfed.privacy.loss import basis_in_words
from privfed.privacy.policy import Policy
from privfed.privacy.policy_objects import accountant_of, kinds_of
from privfed.questions import wire
from privfed.tables.schema import Schema


def received_privacy(policy: Policy, schema: Schema, journal: Journal) -> dict[str, Any] | None:
    """Return the loss of all releases in a journal, as :meth:`.Disclosure.privacy` does, with ``by`` = ``"owners"``.

    Each release is priced as its owner's gate prices it, under the proposed policy, which the owners agreed on. A release
    whose noise is of another law than that price is of another policy: the result is None, as it is under masked sums,
    whose laws are of the total. The figure is on the owners' word: a reply states its noise, and only their ledgers
    show what was charged. Charges without a release, those of other studies, and queries about the model's errors on
    held-out records, which did not make it, are not included.
    A bit that was sent again at no charge counts again.
    """
    if policy.masked is not None:
        return None
    accountant, kinds = accountant_of(policy), kinds_of(policy, ())
    guards = Guards(policy, accountant)
    totals: dict[str, Amount] = defaultdict(lambda: accountant.nothing)
    basis: set[str] = set()
    secure, unprotected = True, False
    for line in journal.replies:
        reply = wire.decode(line.envelope, Envelope).open()
        unprotected |= isinstance(reply, Failure)  # only unprotected queries fail in words
        if not isinstance(reply, Release):
            continue
        request = wire.decode(line.message, Request)
        if request.kind not in kinds:
            return None
        query = kinds[request.kind].from_canonical(request.fields)
        if query.held_out:
            continue
        try:
            quote = guards.quote(type(query), query.parts(schema), request.spend)
        except Refused:
            return None
        if not _is_of(reply, quote):
            return None
        totals[line.client] = plus(totals[line.client], accountant.cost(quote.loss))
        unprotected |= not quote.loss.finite
        secure, basis = secure and reply.secure, basis | {*quote.loss.basis}
    if not totals:
        return None
    fixed = [] if policy.budget is None else [accountant.ceiling(policy.budget)]
    stated = [accountant.stated(each, policy.budget, fixed=fixed) for each in totals.values()]
    return {
        "epsilon": None if unprotected else max(float(each.epsilon) for each in stated),
        "delta": max(float(each.delta) for each in stated),
        "unit": policy.unit,
        "relation": policy.relation,
        "basis": basis_in_words(basis),
        "noise": "secure" if secure else "test",
        "by": "owners",
    }


def _is_of(reply: Release, quote: Quote) -> bool:
    """Whether a release has the parts, mechanisms and laws of a price."""
    priced = {
        name: (protection.mechanism.name, protection.laws.get(name))
        for protection in quote.protections
        for name in protection.group
    }
    return priced == {name: (part.mechanism, part.noise) for name, part in reply.parts.items()}
