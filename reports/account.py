"""The ledgers of one policy in figures."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from typing import Any

from privfed.accountants import pld
from privfed.accountants.risk import Risk, Tradeoff
from privfed.errors import LedgerError
from privfed.exchange.messages import EXPLANATIONS, Envelope, Head, Reason, Release
from privfed.ledger import Entry, Ledger
from privfed.ledger.allowances import Allowances, people_of
from privfed.ledger.refusals import refusals_in
from privfed.ledger.statement import fixed_totals
from privfed.ledger.study_blocks import StudyBlock
from privfed.privacy.accountant import (
    STATED,
    Accountant,
    Amount,
    Budget,
    PrivacyStatement,
    fraction_of,
    plus,
)
from privfed.privacy.loss import Loss
from privfed.privacy.policy import Policy
from privfed.privacy.policy_objects import accountant_of, dearest_of
from privfed.reports.words import about, in_words, natural

#: Ledger events with a charge: a single one, a block ahead, or one drawn from a block.
CHARGING = ("reserved", "block", "drawn")


@dataclass(frozen=True)
class ChargedQuery:
    """One charged query of one client, in order."""

    kind: str  #: the kind of query
    protected: bool  #: whether its loss is finite
    spent: float | None  #: epsilon of all charges so far, or None without a finite guarantee


@dataclass(frozen=True)
class BlockAccount:
    """A study's block of a persistent budget: the permanent guarantee of its releases alone."""

    epsilon: float  #: of the study's releases, given all that was released before it began
    delta: float  #: its delta
    #: how it is composed: ``pld`` or ``rdp`` of all that the study's policy allows, or the
    #: accountant's ``filter`` of its share
    method: str
    share: float  #: the largest fraction of the budget in force that its share takes
    priced: float  #: epsilon of its share, as stated by its price and the ledger's budget
    risk: Risk  #: bounds on any attack on the study's releases alone


@dataclass
class ClientAccount:
    """One data owner's releases and their cost."""

    client: str  #: the owner's name
    released: int = 0  #: number of releases
    acknowledged: int = 0  #: number of replies that depend on no record, such as of a local effect
    unprotected: int = 0  #: number of charged queries without a finite guarantee
    failed: int = 0  #: number of charged queries that failed
    refused: dict[str, int] = field(default_factory=dict)  #: number of refusals, by their text
    bytes: int = 0  #: size of all releases
    #: proven epsilon spent so far, nats, at ``delta``; None without a finite guarantee
    epsilon: float | None = None
    delta: float = 0.0  #: its delta
    #: proven epsilon of the whole exchange, for any later queries: the budget's, or None if no
    #: ceiling was fixed in advance and kept
    ceiling: float | None = None
    budget: float | None = None  #: the policy's epsilon, or None
    in_force: Budget | None = None  #: the budget that is in force in the ledger, exactly
    #: the tightest guarantee of all queries that are allowed, or None without a guarantee
    tight: pld.ComposedGuarantee | None = None
    risk: Risk | None = None  #: bounds on any attack, or None without a guarantee
    secure: bool = True  #: whether all noise was secure; test noise protects no one
    head: tuple[int, str] = (0, "")  #: number and hash of the ledger's head
    #: whether the total exceeds the budget (compared exactly, before any conversion)
    over: bool = False
    #: whether the chain verifies and passes through the head that the server saw
    intact: bool = True
    amended: bool = False  #: whether the budget was changed after a charge
    total: Amount = ()  #: the sum of all charges under the policy's accountant
    taken: Amount = ()  #: that, and amounts reserved for studies but not charged yet
    #: epsilon that one more study may spend, besides what is reserved for others; None without a budget
    room: Fraction | None = None
    steps: list[ChargedQuery] = field(default_factory=list)  #: all charged queries in order
    principals: set[str] = field(default_factory=set)  #: names of the servers that sent them
    #: number of individuals in a cohort; the figures are those of the highest cost
    people: int | None = None
    #: basis of the figures besides derivations; see :class:`.Loss`
    basis: tuple[str, ...] = ()
    block: BlockAccount | None = None  #: the study's own block of a lasting budget, or None

    @property
    def proved(self) -> float | None:
        """Epsilon of the whole exchange, or, without a ceiling, epsilon spent so far."""
        return self.epsilon if self.ceiling is None else self.ceiling

    @property
    def detection(self) -> float:
        """Maximum TPR at 1% FPR of membership inference; 1 without a guarantee."""
        return 1.0 if self.risk is None else self.risk.found[0.01]


@dataclass(frozen=True)
class KindLine:
    """One kind of release over all clients."""

    kind: str  #: the kind of query
    about: str  #: its content, in one sentence
    parts: Mapping[str, str]  #: its parts' names and mechanisms
    released: int  #: number of releases
    losses: tuple[str, ...]  #: the distinct losses of one release, in words, ascending
    protected: bool  #: whether all losses are finite
    reasons: tuple[str, ...]  #: why there is no guarantee, if so
    by_record: bool = False  #: whether an exact part of it has one row per record
    free: bool = False  #: whether its replies depend on no record, such as those of a local effect


@dataclass(frozen=True)
class PolicyAccount:
    """All data owners' releases under one policy."""

    policy: Policy
    accountant: Accountant
    clients: tuple[ClientAccount, ...]
    kinds: tuple[KindLine, ...]

    @property
    def finite(self) -> bool:
        """Whether every release of every client has a finite guarantee."""
        return all(client.unprotected == 0 for client in self.clients)


def read(
    policy: Policy, ledgers: Mapping[str, Ledger], heads: Mapping[str, Head], study: str = ""
) -> PolicyAccount:
    """Read the ledgers of one policy.

    With blocks of a persistent budget, totals and risk are those of the budget in force, for any later
    queries of any study; those of the study alone are stated separately.

    Args:
        policy: the adopted policy; for a named study, the one in force in each owner's ledger counts instead.
        ledgers: by client.
        heads: the last heads that the server saw; the chains must pass through them, and a client
            with a head but no ledger is not intact.
        study: the study whose block is stated; empty for none.

    Raises:
        LedgerError: the ledgers count by different units, relations, caps or accountants.
    """
    shared: dict[str, _Gauge] = {}
    gauges: dict[str, _Gauge] = {}
    for name, ledger in ledgers.items():
        in_force = _in_force(policy, ledger, study)
        gauges[name] = shared.setdefault(in_force.digest, _Gauge(in_force))
    policy = _of_all(policy, [gauge.policy for gauge in gauges.values()])
    blocks = {name: ledger.study_blocks() for name, ledger in ledgers.items()}
    rows = {name: list(ledger.entries()) for name, ledger in ledgers.items()}
    clients = tuple(
        _client(
            ClientAccount(
                name,
                intact=_intact(ledger, heads.get(name)),
                amended=ledger.amended,
                taken=ledger.taken(gauges[name].accountant),
                room=gauges[name].room(ledger),
            ),
            rows[name],
            gauges[name],
            blocks[name].get(study),
        )
        for name, ledger in ledgers.items()
    )
    missing = tuple(ClientAccount(name, intact=False) for name in heads if name not in ledgers)
    accounts = tuple(sorted(clients + missing, key=lambda client: natural(client.client)))
    return PolicyAccount(policy, accountant_of(policy), accounts, _kinds(rows.values()))


def _in_force(policy: Policy, ledger: Ledger, study: str) -> Policy:
    """Return the policy by which a ledger counts a named study, or its last one if it does not know that name.

    The given one, which may hold objects, is returned if only its budget differs, or the ledger has none.
    """
    known = ledger.policies() if study else None
    if not known:
        return policy
    adopted = known.get(study, [*known.values()][-1])
    given, adopted = replace(policy, budget=adopted.budget), adopted.renamed(policy.name)
    return given if given.digest == adopted.digest else adopted


def _of_all(policy: Policy, in_force: Sequence[Policy]) -> Policy:
    """Return the first owner's policy, of whose unit, relation, cap and accountant all are (else LedgerError)."""
    terms = [p.terms | {"budget": None, "limit": None} for p in in_force]
    if any(other != terms[0] for other in terms):
        raise LedgerError(
            f"policy {policy.name!r}: its owners' ledgers count by different units, relations, caps or accountants, so "
            "that no sentence holds for all of them; report each owner alone"
        )
    return in_force[0] if in_force else policy


def _intact(ledger: Ledger, head: Head | None) -> bool:
    try:
        ledger.verify(head)
    except LedgerError:
        return False
    return True


class _Gauge:
    """Converts totals into statements, once for clients with equal ones."""

    def __init__(self, policy: Policy) -> None:
        self.policy, self.accountant = policy, accountant_of(policy)
        self.known: dict[tuple[Amount, bool, tuple[Amount, ...]], PrivacyStatement] = {}
        self.risks: dict[tuple[Any, ...], Risk] = {}
        self.fixed: tuple[Amount, ...] = ()

    @cached_property
    def allowed(self) -> tuple[pld.KindAllowance, ...] | None:
        """The maximum that the policy allows, if bounded."""
        limits = dearest_of(self.policy)
        if limits is None:
            return None
        return tuple(
            pld.KindAllowance(kind, times, losses) for kind, (times, losses) in limits.items()
        )

    def stated(self, total: Amount, amended: bool) -> PrivacyStatement:
        """Return the guarantee of a total."""
        key = (total, amended, self.fixed)
        if key not in self.known:
            self.known[key] = self.accountant.stated(
                total, self.policy.budget, amended=amended, fixed=self.fixed
            )
        return self.known[key]

    def room(self, ledger: Ledger) -> Fraction | None:
        """Return what one more study may spend besides what others have reserved."""
        budget, accountant = self.policy.budget, self.accountant
        return None if budget is None else accountant.left(ledger.taken(accountant), budget)

    def block(self, rows: list[Entry], block: StudyBlock, delta: Fraction) -> BlockAccount:
        """State a study's block, fixed when it began: the smaller of its share and the total that its policy allows."""
        assert self.policy.budget is not None
        own_rows = [row for row in rows if row.body.get("study") == block.study]
        epsilon, _ = self.accountant.guarantee(block.share, delta)
        tight = pld.of_entries(own_rows, self.allowed, float(delta), float(epsilon))
        key = (block.share, tight.method, tight.epsilon)
        if key not in self.risks:
            self.risks[key] = Risk.of(self._curve(tight, block.share))
        fraction = fraction_of(block.share, self.accountant.ceiling(self.policy.budget))
        return BlockAccount(
            tight.epsilon,
            float(delta),
            tight.method,
            float(fraction),
            float(epsilon),
            self.risks[key],
        )

    def _curve(self, tight: pld.ComposedGuarantee | None, amount: Amount) -> Tradeoff:
        """Trade-off behind a figure: of its composition method, or of the accountant's amount."""
        if tight is not None and self.allowed and tight.method in ("pld", "rdp"):
            if tight.method == "pld":
                return Tradeoff.of(pld.distribution_of(self.allowed))
            return Tradeoff.of_epsilons(pld.rdp_epsilons(self.allowed))
        return Tradeoff.of_total(self.accountant, amount)

    def risk(self, account: ClientAccount) -> Risk:
        """Return bounds on any attack, from the proven epsilon."""
        tight = account.tight
        key = (account.proved, account.delta, "" if tight is None else tight.method)
        if key not in self.risks:
            self.risks[key] = Risk.of(self._tradeoff(account))
        return self.risks[key]

    def _tradeoff(self, account: ClientAccount) -> Tradeoff:
        tight = account.tight
        if account.ceiling is not None and self.policy.budget is not None:
            return self._curve(tight, self.accountant.ceiling(self.policy.budget))
        if tight is not None and tight.method != "filter":
            return self._curve(tight, account.total)
        return Tradeoff.approximate(account.epsilon or 0.0, account.delta)


def _client(
    account: ClientAccount, rows: list[Entry], gauge: _Gauge, block: StudyBlock | None
) -> ClientAccount:
    people = next((count for count in map(people_of, rows) if count is not None), None)
    account.people, account.head = people, (rows[-1].seq, rows[-1].hash)
    accountant = gauge.accountant
    account.total = accountant.nothing
    gauge.fixed = fixed_totals(rows, accountant)
    allowances = None if people is None else Allowances(people, len(accountant.components))
    refusals: Counter[str] = Counter()
    free: set[tuple[str, str]] = set()
    for row in rows:
        if row.event in CHARGING:
            _step(account, row, gauge, allowances)
            if _is_free(row.body):
                free.add((row.principal, row.request))
        elif row.event == "released":
            is_free = (row.principal, row.request) in free
            account.acknowledged += is_free
            account.released += not is_free
            account.bytes += len(row.payload)
        elif row.event == "failed":
            account.failed += 1
        elif row.event == "refused":
            refusals[EXPLANATIONS[Reason(row.body["reason"])]] += refusals_in(row)
    account.refused = dict(refusals)
    _prove(account, rows, gauge, block)
    return account


def _prove(
    account: ClientAccount, rows: list[Entry], gauge: _Gauge, block: StudyBlock | None
) -> None:
    """State what follows from the total, if all charges have finite guarantees."""
    budget = gauge.policy.budget
    stated = gauge.stated(account.total, account.amended)
    account.delta = float(stated.delta)
    if budget is not None:
        account.budget, account.in_force = float(budget.epsilon), budget
        account.over = not gauge.accountant.fits(account.total, gauge.accountant.ceiling(budget))
    if account.unprotected == 0:
        account.epsilon = float(stated.epsilon)
        account.ceiling = None if stated.ceiling is None else float(stated.ceiling)
        epsilon, delta = account.proved or 0.0, float(stated.delta or STATED)
        allowed = gauge.allowed if block is None else None  # other studies may ask for more
        account.tight = pld.of_entries(rows, allowed, delta, epsilon)
        account.risk = gauge.risk(account)
        if block is not None:
            account.block = gauge.block(rows, block, stated.delta)


def _step(account: ClientAccount, row: Entry, gauge: _Gauge, allowances: Allowances | None) -> None:
    """Count one row: a block is several charges without a query, a draw a query without a charge.

    A cohort's total is the highest of any individual.
    """
    loss = Loss.from_dict(row.body["loss"])
    if allowances is not None and loss.counted:
        allowances.follow(row, gauge.accountant)
        account.total = allowances.most
    else:
        times = {"block": row.body.get("count", 1), "drawn": 0}.get(row.event, 1)
        account.total = plus(account.total, gauge.accountant.cost(loss), times)
    account.secure = account.secure and bool(row.body["secure"])
    account.basis = tuple(sorted({*account.basis, *loss.basis}))
    if row.event != "block":
        account.unprotected += not loss.finite
        stated = None if account.unprotected else gauge.stated(account.total, account.amended)
        spent = None if stated is None else float(stated.epsilon)
        account.steps.append(ChargedQuery(row.body["kind"], loss.finite, spent))
        account.principals.add(row.principal)


def _kinds(clients: Iterable[list[Entry]]) -> tuple[KindLine, ...]:
    """Group all charged queries by kind, in order of first appearance."""
    grouped: dict[str, list[dict[str, Any]]] = {}
    first: dict[str, Entry] = {}
    for rows in clients:
        kinds: dict[tuple[str, str], str] = {}
        for row in rows:
            if row.event in CHARGING and row.event != "block":
                grouped.setdefault(row.body["kind"], []).append(row.body)
                kinds[row.principal, row.request] = row.body["kind"]
            elif row.event == "released" and (row.principal, row.request) in kinds:
                first.setdefault(kinds[row.principal, row.request], row)
    return tuple(_kind(kind, bodies, first.get(kind)) for kind, bodies in grouped.items())


def _by_record(entry: Entry) -> bool:
    """Whether a release holds an exact part with one row per record."""
    reply = Envelope("release", entry.payload).open() if entry.payload else None
    parts = reply.parts.values() if isinstance(reply, Release) else ()
    return any(part.noise is None and "record" in part.axes for part in parts)


def _kind(kind: str, bodies: list[dict[str, Any]], entry: Entry | None) -> KindLine:
    parts: dict[str, str] = {}
    for body in bodies:
        parts |= body.get("mechanisms", {})
    losses = sorted((Loss.from_dict(body["loss"]) for body in bodies), key=_amount)
    reasons = dict.fromkeys(loss.unprotected for loss in losses if loss.unprotected)
    words = tuple(dict.fromkeys(in_words(loss) for loss in losses))
    finite = all(loss.finite for loss in losses)
    by_record = entry is not None and not finite and _by_record(entry)
    free = all(map(_is_free, bodies))
    return KindLine(
        kind, about(kind), parts, len(bodies), words, finite, tuple(reasons), by_record, free
    )


def _is_free(charge: dict[str, Any]) -> bool:
    """Whether a charge is of a reply without parts, which costs nothing and depends on no record."""
    if charge.get("mechanisms"):  # also of an answer that is repeated at no cost
        return False
    return replace(Loss.from_dict(charge["loss"]), basis=()) == Loss.free()


def _amount(loss: Loss) -> tuple[bool, Fraction, Fraction]:
    """Return a sort key of a loss; infinite ones are last."""
    value = loss.rho if loss.epsilon is None else loss.epsilon
    return not loss.finite, value or Fraction(0), loss.delta
