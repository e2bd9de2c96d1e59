"""The maximum cost of a study, from its plan and policy: public, as no records are read."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING, Any

from privfed.errors import InputError, PluginError, PolicyError, UnsupportedLoss, number_of
from privfed.ledger.study_blocks import kept
from privfed.owner.guards import assign, bounded_under, stated_by
from privfed.owner.opendp_maps import checked
from privfed.privacy.accountant import Accountant, Amount, fraction_of, plus
from privfed.privacy.laws import BitFlips
from privfed.privacy.limit import Limit
from privfed.privacy.loss import COMPOSED, MASKED, Loss, basis_in_words, is_masked
from privfed.privacy.masked_sums import all_masked
from privfed.privacy.mechanism import Protection
from privfed.privacy.pairs import DominatingPair
from privfed.privacy.policy import Guard, Policy
from privfed.privacy.policy_objects import accountant_of, mechanism_of
from privfed.questions.exact import at_delta, shown, shown_delta, shown_down, shown_percent
from privfed.questions.part import Part
from privfed.questions.query import CohortQuery, LocalEffect
from privfed.reports.words import in_words
from privfed.tables.schema import Schema

if TYPE_CHECKING:
    from privfed.exchange.transcript import Transcript
    from privfed.learners.base import Planned

#: Note on masks among owners who are not known before the table is read.
UNNAMED = (
    "behind masks where its sums are masked; write names or count under [clients] to have what holds if they "
    "fail priced too, which depends on the number of owners"
)


@dataclass(frozen=True)
class KindPrice:
    """One planned guard of one kind of query."""

    kind: str  #: the kind of query
    parts: tuple[str, ...]  #: the parts it protects; empty if refused or withheld
    mechanism: str  #: its mechanism; ``"stays"`` for a local effect, empty without a guard
    times: int  #: maximum number of answers, as planned or as the guard allows
    loss: Loss | None  #: cost of one answer, or None if nothing is released
    together: bool = False  #: whether ``loss`` covers all answers, as many as it buys


@dataclass(frozen=True)
class Price:
    """One client's maximum cost under a policy."""

    policy: Policy
    lines: tuple[KindPrice, ...]  #: the planned lines
    amount: Amount  #: the total under the policy's accountant
    epsilon: Fraction | None  #: the guarantee's epsilon, nats; None if some release is unprotected
    delta: Fraction  #: the guarantee's delta
    fits: bool  #: whether the total is within the budget
    over: tuple[str, ...] = ()  #: the limits that it exceeds, in words
    shuffled: Fraction | None = None  #: epsilon if the shuffler that the policy trusts is honest
    deployed: bool = False  #: whether run on the owners' machines, not simulated
    unnamed: bool = False  #: whether sums are masked among owners who are not known yet
    #: another package's learner whose schedule the total assumes, as the policy allows more; or empty
    planner: str = ""

    @property
    def name(self) -> str:
        """The policy's name, and where it is run."""
        return f"{self.policy.name}, on the owners' machines" if self.deployed else self.policy.name

    @property
    def unprotected(self) -> int:
        """Number of releases without a finite guarantee."""
        return sum(line.times for line in self.lines if line.loss and not line.loss.finite)

    @property
    def losses(self) -> list[Loss]:
        """Cost of one answer of each planned line."""
        return [line.loss for line in self.lines if line.loss is not None]

    @property
    def basis(self) -> str:
        """The total's assumptions that are not derived here, in words; empty if there are none."""
        names = {name for line in self.lines if line.loss for name in line.loss.basis}
        text, masked = basis_in_words(names), self.policy.masked
        scheduled = f"on the schedule that {self.planner} states, not derived here"
        more = UNNAMED * self.unnamed, scheduled * bool(self.planner)
        text = "; ".join(filter(None, (text, *more)))
        return text + masked.in_words(self.unmasked) if masked and is_masked(names) else text

    @property
    def unmasked(self) -> Fraction | None:
        """Epsilon of the total if the masks of its sums fail; None without masks or budget."""
        masked, budget = self.policy.masked, self.policy.budget
        if masked is None or budget is None:
            return None
        accountant = accountant_of(self.policy)
        total = masked.at_most(self.amount, accountant)
        return accountant.guarantee(total, budget.delta)[0]

    @property
    def silent(self) -> bool:
        """Whether nothing is released: all queries are refused, or have local effects only."""
        return all(line.loss is None or line.mechanism == "stays" for line in self.lines)

    def share(self, line: KindPrice) -> Fraction | None:
        """Return a line's fraction of the budget in the accountant's currency, which is additive; or None."""
        if self.policy.budget is None or line.loss is None or not line.loss.finite:
            return None
        accountant = accountant_of(self.policy)
        taken = _times(accountant, accountant.nothing, line)
        return fraction_of(taken, accountant.ceiling(self.policy.budget))

    def percent(self, line: KindPrice) -> str:
        """Format a line's fraction of the budget, rounded up."""
        fraction = self.share(line)
        return "-" if fraction is None else shown_percent(fraction)

    @property
    def by_kind(self) -> str:
        """Each kind's fraction of the budget in words, without kinds that cost nothing."""
        fractions: dict[str, Fraction] = {}
        for line in self.lines:
            fractions[line.kind] = fractions.get(line.kind, Fraction(0)) + (self.share(line) or 0)
        taken = (
            f"{kind} {shown_percent(fraction)}" for kind, fraction in fractions.items() if fraction
        )
        return ", ".join(taken) or "nothing"

    def to_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return {
            "policy": self.name,
            "epsilon": None if self.epsilon is None else float(self.epsilon),
            "delta": float(self.delta),
            "unprotected": self.unprotected,
            "basis": self.basis,
            "unmasked": None if self.unmasked is None else float(self.unmasked),
            "shuffled": None if self.shuffled is None else float(self.shuffled),
            "fits": self.fits,
            "over": list(self.over),
            "lines": [
                {
                    **vars(line),
                    "parts": list(line.parts),
                    "loss": None if line.loss is None else line.loss.to_dict(),
                }
                for line in self.lines
            ],
        }


def price(plan: Sequence[Planned], schema: Schema, policy: Policy) -> Price:
    """Price a plan under a policy (PolicyError: a mechanism cannot protect a planned query)."""
    for kind in {limit.where["kind"] for limit in policy.limits if "kind" in limit.where}:
        if kind not in policy.guards:
            raise PolicyError(
                f"policy {policy.name!r}: a limit's where names the kind {kind!r}, which no guard "
                f"answers; there are {', '.join(policy.guards)}"
            )
    accountant = accountant_of(policy)
    if policy.masked is not None:
        policy.masked.check_mechanisms(map(mechanism_of, items) for items in policy.guards.values())
    by_query = [_lines(planned, schema, policy) for planned in plan]
    lines = tuple(line for items in by_query for line in items)
    total = accountant.nothing
    for line in lines:
        total = _times(accountant, total, line)
    protected = all(line.loss is None or line.loss.finite for line in lines)
    budget_delta = Fraction(0) if policy.budget is None else policy.budget.delta
    epsilon, delta = _guarantee(policy, accountant, total) if protected else (None, budget_delta)
    fits = policy.budget is None or accountant.fits(total, accountant.ceiling(policy.budget))
    over = (*_exceeded(policy, lines, accountant), *_oversized(plan, schema, policy))
    shuffled = _shuffled(policy, list(zip(plan, by_query, strict=True))) if protected else None
    return Price(policy, lines, total, epsilon, delta, fits, over, shuffled)


def allows_more(policy: Policy, plan: Sequence[Planned]) -> bool:
    """Whether a policy answers a kind more often than planned, so that the price depends on the plan."""
    planned = _planned_times(plan)
    return any(
        all(guard.times is None or guard.times > planned[kind] for guard in guards)
        for kind, guards in policy.guards.items()
        if all(mechanism_of(guard).name != "refuse" for guard in guards)
    )


def beyond_plan(plan: Sequence[Planned], transcript: Transcript) -> list[str]:
    """Return in words which kinds a client answered more often than planned."""
    planned, asked = _planned_times(plan), Counter[str]()
    for client in transcript.clients:
        asked |= Counter(entry.kind for entry in transcript.of(client=client))
    return [
        f"{kind} was answered {number_of(times, 'time')}, where the learner's plan states {planned[kind]:g}: "
        "the price holds for its plan alone; correct its plan(), with privfed.testing.check_learner"
        for kind, times in asked.items()
        if times > planned[kind]
    ]


def _planned_times(plan: Sequence[Planned]) -> Mapping[str, float]:
    """Return the planned number of answers of each kind; infinite where only their total cost is planned."""
    planned: dict[str, float] = defaultdict(float)
    for line in plan:
        planned[line.query.kind] += float("inf") if line.together else line.times
    return planned


def _shuffled(
    policy: Policy, planned: Sequence[tuple[Planned, Sequence[KindPrice]]]
) -> Fraction | None:
    """Return epsilon of all answers if the trusted shuffler shuffles each bit independently; or None.

    Shuffled are queries of one bit per individual, at an epsilon that the plan fixes. Bits hashed by
    individual need their senders; several bits of one individual, and the adaptive spending of a search,
    are bounded by their local total.
    """
    if policy.shuffled is None:
        return None
    from privfed.accountants.pld import pairs
    from privfed.accountants.shuffled import shuffled_total

    answers: Counter[float] = Counter()
    others: Counter[DominatingPair] = Counter()
    for question, lines in planned:
        query = question.query
        single = isinstance(query, CohortQuery) and query.unhashed() is None
        for line in lines:
            if line.loss is None or line.loss.nothing:
                continue
            laws = line.loss.laws
            bit = [charged.units for charged in laws if isinstance(charged.law, BitFlips)] == [1]
            for pair, times in pairs([line.loss]).items():
                if single and bit and len(laws) == 1 and not line.together:
                    answers[pair.size] += times * line.times
                else:
                    others[pair] += times * line.times
    if not answers:
        raise PolicyError(
            f"policy {policy.name!r}: shuffled, but no planned question asks each individual for one bit at an "
            'epsilon that is fixed in advance; leave shuffled out, or choose another strategy, such as "equal"'
        )
    people, delta = policy.shuffled.people, float(policy.shuffled.delta)
    return Fraction(shuffled_total(answers, people, delta, others))


def _guarantee(
    policy: Policy, accountant: Accountant, total: Amount
) -> tuple[Fraction | None, Fraction]:
    """Return epsilon and delta of a total; without a budget, the odometer's."""
    if policy.budget is not None:
        return accountant.guarantee(total, policy.budget.delta)[0], policy.budget.delta
    if total == accountant.nothing:
        return Fraction(0), Fraction(0)
    try:
        stated = accountant.stated(total, None)
    except PolicyError:  # the losses' deltas exceed the stated one
        return None, Fraction(0)
    return stated.epsilon, stated.delta


def _exceeded(policy: Policy, lines: Sequence[KindPrice], accountant: Accountant) -> Iterator[str]:
    """Yield the limits that one client's schedule is certain to exceed, in words.

    Limits for a study, client, principal, month or model may not apply and are skipped.
    """
    for limit in policy.limits:
        if set(limit.where) - {"kind"}:
            continue
        ceiling = accountant.ceiling(limit.budget)
        for scope, amount in _by_scope(limit, lines, accountant).items():
            if not accountant.fits(amount, ceiling):
                which = f" for {scope}" if scope else ""
                yield (
                    f"its limit of epsilon {float(limit.budget.epsilon):g} per "
                    f"{', '.join(limit.aspects)}{which}"
                )


def _oversized(plan: Sequence[Planned], schema: Schema, policy: Policy) -> Iterator[str]:
    """Yield the kinds whose largest planned answer has more cells than the policy allows, in words."""
    largest: dict[str, int] = {}
    for query in (planned.query for planned in plan if planned.query.kind in policy.guards):
        cells = sum(part.size for part in query.parts(schema).values())
        largest[query.kind] = max(cells, largest.get(query.kind, 0))
    for kind, cells in largest.items():
        if cells > policy.cells:
            yield f"its largest answer, {policy.cells:,} cells ({kind} has {cells:,})"


def _by_scope(
    limit: Limit, lines: Sequence[KindPrice], accountant: Accountant
) -> dict[str, Amount]:
    """Return the spending in each scope of a limit that a plan distinguishes."""
    spent: dict[str, Amount] = {}
    for line in (line for line in lines if limit.applies({"kind": line.kind})):
        scope = line.kind if "kind" in limit.aspects else ""
        before = spent.get(scope, accountant.nothing)
        if "round" in limit.aspects:
            # a plan does not state the queries of a round; at least one is certain
            once = _times(accountant, accountant.nothing, replace(line, times=1))
            spent[scope] = max(before, once)
        else:
            spent[scope] = _times(accountant, before, line)
    return spent


def _lines(planned: Planned, schema: Schema, policy: Policy) -> list[KindPrice]:
    query, times = planned.query, planned.times
    if query.kind not in policy.guards:
        return [KindPrice(query.kind, (), "", times, None)]
    parts, guards = query.parts(schema), policy.guards[query.kind]
    if isinstance(query, LocalEffect):
        return [KindPrice(query.kind, (), "stays", times, Loss.free())]
    unknown = sorted({name for guard in guards for name in guard.parts} - {*parts, "*"})
    if unknown:
        raise PolicyError(
            f"policy {policy.name!r}: a guard of {query.kind!r} names the part {unknown[0]!r}; "
            f"its parts are {', '.join(parts) or 'none'}"
        )
    stated = partial(stated_by, type(query), accountant_of(policy))
    lines, protections = [], []
    for guard, names in zip(guards, assign(guards, parts), strict=True):
        if names:
            line, protection = _line(planned, guard, {name: parts[name] for name in names}, policy)
            lines.append(line if line.loss is None else replace(line, loss=stated(line.loss)))
            protections.append(protection)
    known = [item for item in protections if item is not None]
    shared = all_masked(known, policy.masked) if len(known) == len(lines) else ()
    if shared:
        return [
            replace(
                original, loss=stated(masked.total.loss), mechanism=f"{original.mechanism}, masked"
            )
            for original, masked in zip(lines, shared, strict=True)
        ]
    return lines


def _line(
    planned: Planned, guard: Guard, parts: dict[str, Part], policy: Policy
) -> tuple[KindPrice, Protection | None]:
    kind, times = planned.query.kind, planned.times
    mechanism, amount = mechanism_of(guard), guard.amount(planned.spend)
    times = times if guard.times is None else min(times, guard.times)
    group = {name: bounded_under(part, policy) for name, part in parts.items()}
    if mechanism.name == "refuse":
        return KindPrice(kind, (), mechanism.name, times, None), None
    if not mechanism.supports(group):
        raise PolicyError(
            f"policy {policy.name!r}: mechanism {mechanism.name!r} cannot protect "
            f"{', '.join(parts)} of {kind!r}; choose another mechanism for these parts"
        )
    try:
        protection = checked(mechanism, group, amount)
    except PluginError as error:
        raise PolicyError(
            f"policy {policy.name!r}: mechanism {mechanism.name!r} {error}; a gate refuses that"
        ) from None
    except InputError as error:
        raise PolicyError(
            f"policy {policy.name!r}: mechanism {mechanism.name!r}: {error}"
        ) from None
    except (ValueError, ArithmeticError):
        raise PolicyError(
            f"policy {policy.name!r}: mechanism {mechanism.name!r} has no noise for {kind!r} at such a "
            "spend; write a larger one, of 0.01 say"
        ) from None
    line = KindPrice(kind, tuple(parts), mechanism.name, times, protection.loss, planned.together)
    return line, protection


def _times(accountant: Accountant, total: Amount, line: KindPrice) -> Amount:
    if line.loss is None or not line.loss.finite:
        return total
    try:
        cost = accountant.cost(line.loss)
    except UnsupportedLoss as error:
        raise PolicyError(f"{line.kind!r}, mechanism {line.mechanism!r}: {error}") from None
    return plus(total, cost, line.times)


@dataclass(frozen=True)
class Balance:
    """One owner's ledger before a study."""

    owner: str  #: the owner's name
    spent: Amount  #: all charges, under the ledger's accountant
    #: number of charges of each kind in this study
    times: Mapping[str, int] = field(default_factory=dict)
    #: other studies that have not ended and have an unspent share
    holding: tuple[str, ...] = ()


def lacking(price: Price, balances: Sequence[Balance]) -> list[Balance]:
    """Return the owners whose budget a study would exceed."""
    budget, accountant = price.policy.budget, accountant_of(price.policy)
    if budget is None:
        return []
    ceiling = accountant.ceiling(budget)
    return [
        balance
        for balance in balances
        if not accountant.fits(plus(balance.spent, price.amount), ceiling)
    ]


def remaining(balance: Balance, policy: Policy) -> str:
    """Format an owner's remaining epsilon for a further study, rounded down; 0 below 0.001 % of the budget."""
    budget, accountant = policy.budget, accountant_of(policy)
    if budget is None:
        return "no bound"
    return shown_down(accountant.left(balance.spent, budget))


def percent_of(part: Amount, whole: Amount, *, rest: bool = False) -> str:
    """Format the largest fraction of a whole in a part, rounded up; or the rest, rounded down, 0 below 0.001 %."""
    taken = fraction_of(part, whole)
    if rest:
        percent = 100 * (1 - taken)
        return f"{shown_down(percent if percent >= Fraction(1, 1000) else Fraction(0), 3)} %"
    return shown_percent(taken)


def any_fits(prices: Sequence[Price], balances: Mapping[str, Sequence[Balance]]) -> bool:
    """Whether any policy with a budget (if none has one: any policy) fits the remaining budgets."""
    bounded = [price for price in prices if price.policy.budget is not None]
    return any(
        price.fits
        and not price.over
        and not lacking(price, balances.get(price.name, ()))
        and not price.silent
        for price in bounded or prices
    )


NAMED = 20  #: Maximum owners with the same balance that a price names


def priced(price: Price, balances: Sequence[Balance] = ()) -> str:
    """Format a price as a table: kinds, number of answers, fraction of each owner's budget."""
    budget = price.policy.budget
    total = _total(price)
    exceeded = (() if price.fits else (_exceeded_part(price),)) + price.over
    over = "".join(f"; OVER {what}: queries will be refused" for what in exceeded)
    limit = "" if budget is None else f", of a budget of epsilon {shown(budget.epsilon)}"
    where = "" if price.policy.unit == "client" else " of each client"
    lines = [f"{price.name}: {total}{limit}, for each {price.policy.unit}{where}{over}"]
    lines += [f"  this holds {price.basis}"] if price.basis and price.epsilon is not None else []
    lines += _person_lines(price) + _shuffler_lines(price)
    lines.append(
        f"  {'budget':>8}  {'kind':24} {'times':5} {'mechanism':20} cost per answer, parts"
    )
    for line in price.lines:
        what = line.mechanism or "not in the policy"
        cost = "refused" if line.loss is None else in_words(_without_shared_basis(line.loss))
        cost = f"up to {cost} in total, for any number of queries" if line.together else cost
        times = "any" if line.together else f"x{line.times}"
        lines.append(
            f"  {price.percent(line):>8}  {line.kind:24} {times:<5} {what:20} {cost}"
            f"  {', '.join(line.parts)}"
        )
    lines += _caps_lines(price)
    by_text: dict[str, list[str]] = {}
    for balance in balances if budget is not None else ():
        by_text.setdefault(_owner_line(price, balance), []).append(balance.owner)
    for text, owners in by_text.items():
        more = f" and {len(owners) - NAMED} more owners" if len(owners) > NAMED else ""
        lines.append(f"  {', '.join(owners[:NAMED])}{more}: {text}")
    return "\n".join(lines)


def _exceeded_part(price: Price) -> str:
    """Return the budget, or the component that a price exceeds while its epsilon does not, in words."""
    budget = price.policy.budget
    if budget is None or price.epsilon is None or price.epsilon > budget.epsilon:
        return "the budget"
    accountant = accountant_of(price.policy)
    return (
        f"the budget's {_largest_component(accountant, price.amount, accountant.ceiling(budget))}"
    )


def _largest_component(accountant: Accountant, part: Amount, whole: Amount) -> str:
    """Return the component of which a part takes the largest fraction; the first of ties."""
    triples = zip(accountant.components, part, whole, strict=True)
    fractions = {name: a / b if b else Fraction(0) for name, a, b in triples}
    return max(fractions, key=fractions.__getitem__)


def _caps_lines(price: Price) -> list[str]:
    """Format the kinds that may be charged more than their lines, from budget that others do not use."""
    caps = [
        f"{kind} {mechanism_of(guard).currency} {shown(guard.cap)}"
        for kind in {
            line.kind: None for line in price.lines if line.loss is not None and not line.together
        }
        for guard in price.policy.guards[kind]
        if guard.cap is not None and guard.spend is not None and guard.cap > guard.spend
    ]
    if not caps or price.policy.budget is None:
        return []
    text = "a kind may use what others leave over, within the total; one answer then costs at most"
    return [f"  {text}: {', '.join(caps)}"]


def _without_shared_basis(loss: Loss) -> Loss:
    """Return a loss without the notes on masks and composition, which the total has."""
    return replace(
        loss, basis=tuple(name for name in loss.basis if not name.startswith((MASKED, COMPOSED)))
    )


def _owner_line(price: Price, balance: Balance) -> str:
    """Format what remains of one owner's budget, or why a study does not fit it."""
    budget = price.policy.budget
    assert budget is not None
    epsilon, before = shown(budget.epsilon), remaining(balance, price.policy)
    accountant = accountant_of(price.policy)
    ceiling, spent = accountant.ceiling(budget), plus(balance.spent, price.amount)
    unit = _largest_component(accountant, spent, ceiling)
    if lacking(price, [balance]):
        needed = percent_of(price.amount, ceiling)
        unspent = percent_of(balance.spent, ceiling, rest=True)
        return (
            f"DOES NOT FIT: {price.by_kind} of epsilon {epsilon}, of which {before} remains (it needs {needed} "
            f"of the budget's {unit}, and {unspent} remains){kept(balance.holding)}"
        )
    after = remaining(Balance(balance.owner, spent), price.policy)
    rests = " and ".join(
        percent_of(amount, ceiling, rest=True) for amount in (balance.spent, spent)
    )
    return f"epsilon {before} of {epsilon} remains before, {after} after ({rests} of the budget's {unit})"


def _total(price: Price) -> str:
    if price.silent:
        return "NOTHING WOULD BE RELEASED (the policy answers no query)"
    if price.epsilon is None:
        why = number_of(price.unprotected, "unprotected release")
        return (
            f"NO FINITE GUARANTEE ({why if price.unprotected else 'by the deltas of the losses'})"
        )
    caveat = "" if price.policy.budget else ", if queried as planned: no budget enforces it"
    return f"at most epsilon {shown(price.epsilon)}{at_delta(price.delta)}{caveat}"


def _shuffler_lines(price: Price) -> list[str]:
    """Format the guarantee if the shuffler that the policy trusts is honest."""
    trusted = price.policy.shuffled
    if trusted is None or price.shuffled is None:
        return []
    text = (
        f"  epsilon {shown(price.shuffled)} at delta {shown_delta(trusted.delta)} if a shuffler outside privfed passes "
        f"each answer on without its sender, among {trusted.people} people or more who are honest; the budget is "
        "charged as if there were none"
    )
    return [text]


def _person_lines(price: Price) -> list[str]:
    """Format the group privacy of a person with many rules."""
    if price.policy.unit != "rule" or price.epsilon is None or price.delta:
        return []
    ten = float(10 * price.epsilon)
    return [f"  persons are not protected: 10 rules of one person cost at most epsilon {ten:.4g}"]
