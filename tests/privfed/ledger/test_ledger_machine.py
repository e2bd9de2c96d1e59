"""Queries, retries, crashes, clock jumps and policy edits, played against a model of the budget."""

from __future__ import annotations

import tempfile
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from ledger_trials import QUERY, SMALL

from privfed.accountants.pure import PureEpsilon
from privfed.errors import PolicyError
from privfed.exchange.messages import Head, Reason, Refusal, Request
from privfed.ledger import Ledger
from privfed.owner.gate import Gate
from privfed.privacy.accountant import Budget
from privfed.privacy.limit import Limit
from privfed.privacy.policy import Guard, Policy
from privfed.tables.records import Records
from privfed.testing.queries import Histogram

MONTHLY = Fraction(4, 10)
UNIT = Fraction(1, 10)


class Crash(BaseException):
    """The process dies between the charge and the reply."""


class Model:
    """What the budget must be: the sum of all charges, in all and by month."""

    def __init__(self) -> None:
        self.budget, self.month = Fraction(1), "2026-01"
        self.charges: list[tuple[str, Fraction]] = []
        self.done: dict[str, bytes | None] = {}
        self.cut: dict[str, Fraction] = {}

    @property
    def spent(self) -> Fraction:
        """The sum of all charges."""
        return sum((amount for _, amount in self.charges), Fraction(0))

    @property
    def monthly(self) -> Fraction:
        """The sum of this month's charges."""
        return sum((amount for m, amount in self.charges if m == self.month), Fraction(0))

    def expects(self, name: str, amount: Fraction) -> str:
        """What a gate must answer."""
        if name in self.done:
            if self.done[name] is not None:
                return "again"
            return "completed" if amount == self.cut[name] else "interrupted"
        fits = self.spent + amount <= self.budget and self.monthly + amount <= MONTHLY
        return "release" if fits else "budget"

    def charge(self, name: str, amount: Fraction, reply: bytes | None) -> None:
        """Count a charge; without a reply, it is for the same request at the same price."""
        self.charges.append((self.month, amount))
        self.done[name], self.cut[name] = reply, amount

    def moves(self, month: str) -> None:
        """Time only goes forward."""
        self.month = max(self.month, month)


class LedgerMachine(RuleBasedStateMachine):
    """A gate on a ledger's file, beside the model."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.clock, self.asked = datetime(2026, 1, 1, tzinfo=UTC), 0
        self.head: Head | None = None
        self.model = Model()
        self.open(amend=False)

    def open(self, amend: bool) -> None:
        """Open the file, as a new process would."""
        self.ledger = Ledger(Path(self.folder.name) / "l.db", "d", clock=lambda: self.clock)
        guard = Guard.of("laplace", spend=UNIT, cap="0.3")
        policy = Policy(
            {QUERY.kind: (guard,)},
            budget=Budget.of(self.model.budget),
            limits=(Limit(("month",), Budget.of(MONTHLY)),),
        )
        records = Records(SMALL, np.array([[1.0], [60.0]]))
        self.gate = Gate("c", records, policy, self.ledger, queries=(Histogram,), amend=amend)

    def ask(self, name: str, amount: Fraction) -> None:
        """Ask the gate, and hold its answer against the model."""
        expected = self.model.expects(name, amount)
        envelope = self.gate.answer(Request.of(name, QUERY, spend=amount))
        reply = envelope.open()
        if expected == "again":
            assert envelope.body == self.model.done[name]
        elif expected == "completed":
            assert envelope.status == "release"
            self.model.done[name] = envelope.body
        elif expected == "release":
            assert envelope.status == "release"
            self.model.charge(name, amount, envelope.body)
        else:
            assert isinstance(reply, Refusal) and reply.reason == Reason(expected)
        self.head = self.ledger.head

    @rule(tenths=st.integers(1, 3))
    def query(self, tenths: int) -> None:
        """A new question."""
        self.asked += 1
        self.ask(f"r{self.asked}", tenths * UNIT)

    @rule(data=st.data(), tenths=st.integers(1, 3))
    @precondition(lambda self: self.model.done)
    def retry(self, data: st.DataObject, tenths: int) -> None:
        """An old question, whatever it proposes to spend now."""
        self.ask(data.draw(st.sampled_from(sorted(self.model.done))), tenths * UNIT)

    @rule(tenths=st.integers(1, 3))
    def crash(self, tenths: int) -> None:
        """A question whose process dies after the charge."""
        self.asked += 1
        name, amount = f"r{self.asked}", tenths * UNIT

        def dies(*args: object) -> None:
            raise Crash

        self.gate._evaluate = dies  # type: ignore[method-assign, assignment]
        fits = self.model.expects(name, amount) == "release"
        try:
            self.gate.answer(Request.of(name, QUERY, spend=amount))
        except Crash:
            assert fits
            self.model.charge(name, amount, None)
        else:
            assert not fits
        self.ledger.close()
        self.open(amend=False)

    @rule(days=st.integers(-70, 70))
    def jump(self, days: int) -> None:
        """The clock jumps, either way."""
        self.clock += timedelta(days=days)
        self.model.moves(f"{self.clock:%Y-%m}")
        self.ledger.note("clock", {})

    @rule(tenths=st.integers(1, 20))
    def edit(self, tenths: int) -> None:
        """The owner changes the budget, to no less than what is spent."""
        before, self.model.budget = self.model.budget, tenths * UNIT
        if self.model.budget >= self.model.spent:
            return self.open(amend=True)
        with pytest.raises(PolicyError, match="has spent more"):
            self.open(amend=True)
        self.model.budget = before
        self.open(amend=False)

    @invariant()
    def agrees(self) -> None:
        """The totals are those of the model, and the chain is sound."""
        assert self.ledger.spent(PureEpsilon()).total[0] == self.model.spent
        assert self.ledger.verify(self.head).seq >= 1

    def teardown(self) -> None:
        """Remove the file."""
        self.ledger.close()
        self.folder.cleanup()


LedgerMachine.TestCase.settings = settings(
    max_examples=20,
    stateful_step_count=16,
    derandomize=True,
)
TestLedgerMachine = LedgerMachine.TestCase
