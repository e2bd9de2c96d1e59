"""An audit of a whole gate in one run, by canary units with independent coins.

A mechanism may be correct and the gate wrong: it may hold too many records of one person, answer a
retry anew, or charge each client for a person who is at several. The gate itself is queried, by
bytes, and its answers are tested against its ledger's charges. Canaries are units of the policy's
guarantee.
"""

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

import numpy as np

from privfed.attacks.finding import Finding
from privfed.audits.histogram import Histogram
from privfed.audits.one_run import audit_one_run
from privfed.errors import InputError
from privfed.exchange.messages import Release, ReleasedPart, Request
from privfed.ledger import Ledger
from privfed.owner.gate import Gate, open_reply
from privfed.privacy.conversion import gaussian_epsilon
from privfed.privacy.loss import foreign
from privfed.privacy.noise import Noise, SecureNoise
from privfed.privacy.policy import Policy
from privfed.questions import wire
from privfed.tables.records import Records
from privfed.tables.schema import Column, Schema

MakeGate = Callable[[str, Records, Policy, Noise], Gate]  #: Builds the gate of a client's records
UNITS = ("record", "individual")  #: Units that can be canaries of one gate
SENDINGS = 2  #: Times that the request is sent: a retry must return the same answer


def plain_gate(owner: str, records: Records, policy: Policy, noise: Noise) -> Gate:
    """A standard gate with its ledger in memory."""
    return Gate(owner, records, policy, Ledger(None, owner), noise=noise, queries=(Histogram,))


def canary_policy(policy: Policy, kind: str) -> Policy:
    """A policy with its first guard of one kind applied to the canaries' query."""
    if kind not in policy.guards:
        raise InputError(
            f"the policy guards no {kind!r}; choose one of {', '.join(policy.guards) or 'none'}"
        )
    guards = tuple(replace(guard, parts=("*",)) for guard in policy.guards[kind][:1])
    return replace(policy, guards={Histogram.kind: guards}, limits=())


def audit_gate(  # noqa: PLR0913 - by name after the first few
    policy: Policy,
    kind: str = Histogram.kind,
    *,
    canaries: int = 4000,
    records: int | None = None,
    clients: int = 1,
    gate: MakeGate = plain_gate,
    noise: Callable[[int], Noise] = lambda client: SecureNoise(),
    alpha: float = 0.05,
    seed: int = 0,
) -> Finding:
    """Query a gate about canaries, and test its answers against its ledger: the epsilon proven out of that spent.

    Every canary has a separate cell of one histogram; under ``replace-one`` two, of which the coin
    chooses one.

    Args:
        policy: the owner's policy; its unit must be a record or an individual.
        kind: the kind of query whose first guard protects the canaries' counts.
        canaries: number of canaries, each with its own coin.
        records: records of a canary; by default one, or of an individual one more than the cap. More
            than the unit's own audit the claim for a whole person.
        clients: number of clients at which each canary has its records.
        noise: returns a client's source of noise; never the coins' source.
        alpha: probability of rejecting a correct gate's claim.
        seed: of the coins.
    """
    if policy.unit not in UNITS or canaries < 1 or clients < 1:
        raise InputError("canaries are records or individuals, at least one, at one client or more")
    audited = canary_policy(policy, kind)
    size = (1 if policy.unit == "record" else (policy.cap or 1) + 1) if records is None else records
    coins = np.random.default_rng([seed, canaries]).random(canaries) < 0.5
    paired = policy.relation == "replace-one"
    bins = canaries * (2 if paired else 1)
    table = _canaries(coins, size, paired)
    query = Histogram(0, tuple(float(edge) for edge in range(bins + 1)))
    gates = [gate(f"client {i}", table, audited, noise(i)) for i in range(clients)]
    answers = [answer for each_gate in gates for answer in _answers(each_gate, query)]
    counts = np.sum([answer.units for answer in answers], axis=0).astype(float)
    claimed, gaussian = _claim(gates, answers, audited)
    finding = audit_one_run(
        coins,
        counts[0::2] - counts[1::2] if paired else counts,
        claimed,
        delta=_delta(audited) if gaussian else 0.0,
        alpha=alpha,
        noise="independent gaussian" if gaussian else "any",
        centre=0.0 if paired else None,
        name=f"gate, unit {policy.unit}",
    )
    finding.detail.update(records=size, clients=clients, relation=policy.relation, cap=policy.cap)
    return replace(finding, releases=(kind,))


def _canaries(coins: np.ndarray, size: int, paired: bool) -> Records:
    """The records of the included canaries, each in its canary's cell."""
    index = np.arange(len(coins))
    cells = 2 * index + ~coins if paired else index[coins]
    individuals = index if paired else index[coins]
    bins = len(coins) * (2 if paired else 1)
    schema = Schema((Column("place", lower=0, upper=bins),))
    X = np.repeat(cells, size)[:, None] + 0.5
    return Records(schema, X, individual=np.repeat(individuals, size))


def _answers(gate: Gate, query: Histogram) -> list[ReleasedPart]:
    """A gate's answers to one request, sent :data:`SENDINGS` times."""
    request = Request.of("canaries", query, principal="audit")
    answers = []
    for _ in range(SENDINGS):
        reply = open_reply(gate.serve(wire.encode(request)))
        if not isinstance(reply, Release):
            raise InputError(f"the gate did not answer: {reply}")
        answers.append(reply.parts["counts"])
    return answers


def _claim(gates: list[Gate], answers: list[ReleasedPart], policy: Policy) -> tuple[float, bool]:
    """The epsilon spent by the ledgers, nats, and whether all noise is Gaussian."""
    spent = [gate.ledger.spent(gate.accountant).total for gate in gates]
    gaussian = all(part.noise is not None and part.noise.name == "gaussian" for part in answers)
    ours = not foreign(type(gates[0].accountant))
    if gaussian and ours and gates[0].accountant.components[0] == "rho":
        rho = max(float(total[0]) for total in spent)
        return gaussian_epsilon((2 * rho) ** 0.5, _delta(policy)), True
    delta = policy.budget.delta if policy.budget else Fraction(0)
    stated = [
        gate.accountant.guarantee(total, delta)[0] for gate, total in zip(gates, spent, strict=True)
    ]
    return float(max(stated)), False


def _delta(policy: Policy) -> float:
    return float(policy.budget.delta) if policy.budget and policy.budget.delta else 1e-5
