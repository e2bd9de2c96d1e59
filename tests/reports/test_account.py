"""Accounts: what the ledgers say is what the gates did."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import ClassVar

import numpy as np
import pandas as pd
import pytest

from privfed.engines.local import LocalDisclosure
from privfed.errors import NobodyAnswered
from privfed.exchange.messages import EXPLANATIONS, Head, Reason
from privfed.learners.baselines.pooled import RawRecords
from privfed.privacy.accountant import Budget
from privfed.privacy.loss import Loss
from privfed.privacy.policy import Guard, Policy
from privfed.questions import plugins
from privfed.questions.query import LocalEffect, LocalView, Query
from privfed.reports.account import PolicyAccount, read
from privfed.reports.board import board_page
from privfed.reports.budget import PolicyReport, Report
from privfed.reports.text import summary
from privfed.reports.words import about, in_words, natural
from privfed.study import Study
from privfed.tables.schema import Column, Schema
from privfed.testing.queries import Histogram, LevelSums

SCHEMA = Schema((Column("age", lower=0, upper=100),), Column("risk", lower=0, upper=1))
COUNTS = Histogram(0, (0.0, 50.0, 100.0))
PRIVATE = Policy(
    {COUNTS.kind: (Guard.of("laplace", spend="0.1"),)}, budget=Budget.of("0.3"), name="private"
)
OPEN = Policy({COUNTS.kind: (Guard.of("open"),)}, name="published")


def _federation(
    policy: Policy, seed: int | None = None, queries: Iterable[type[Query]] = ()
) -> LocalDisclosure:
    rng = np.random.default_rng(2)
    frame = pd.DataFrame({"age": rng.uniform(0, 100, 40), "risk": rng.random(40)})
    frame["site"] = np.where(frame.index < 30, "north", "south")
    return LocalDisclosure.from_frame(
        frame, "risk", client="site", schema=SCHEMA, policy=policy, seed=seed, queries=queries
    )


def _account(federation: LocalDisclosure, policy: Policy) -> PolicyAccount:
    ledgers = {name: gate.ledger for name, gate in federation.gates.items()}
    return read(policy, ledgers, federation.heads)


def test_spending_adds_up_step_by_step() -> None:
    """Two questions of a tenth each: 0.1, 0.2, of 0.3; the third fits, the fourth is refused."""
    federation = _federation(PRIVATE)
    for _ in range(3):
        federation.ask(COUNTS)
    with pytest.raises(NobodyAnswered):
        federation.ask(COUNTS)
    account = _account(federation, PRIVATE)
    assert account.finite
    for client in account.clients:
        assert [step.spent for step in client.steps] == [0.1, 0.2, 0.3]
        assert (client.epsilon, client.ceiling, client.over) == (0.3, 0.3, False)
        assert client.refused == {EXPLANATIONS[Reason.BUDGET]: 1}
        assert client.released == 3 and client.bytes > 0 and client.secure and client.intact
        assert client.principals == {"server"}
        assert 0.01 < client.detection < 0.014


def test_each_owner_s_budget_is_the_one_in_force_in_her_ledger() -> None:
    """Not the study's own text, which an owner with a larger budget joins; and they may differ."""
    wide = replace(PRIVATE, budget=Budget.of(2))
    federation = _federation(PRIVATE)
    ledgers = {name: gate.ledger for name, gate in federation.gates.items()}
    federation.ask(COUNTS)
    ledgers["north"].adopt(wide, "joined", amend=True)
    written = replace(PRIVATE, budget=Budget.of("0.05"))
    north, south = read(written, ledgers, federation.heads, "joined").clients
    assert (north.budget, north.over, north.room) == (2.0, False, Fraction(19, 10))
    assert north.in_force == wide.budget
    assert (south.budget, south.over) == (0.3, False)  # of the study that her ledger knows


@dataclass(frozen=True)
class Keep(LocalEffect):
    """Keep a number."""

    kind: ClassVar[str] = "test.keep"

    def take_effect(self, view: LocalView) -> None:
        """Put it on the shelf."""
        view.shelf["kept"] = 1


def test_an_acknowledgement_is_no_release() -> None:
    """It is about no record: pages and console count it apart, and a policy that has nothing else is not silent."""
    policy = Policy({**PRIVATE.guards, Keep.kind: ()}, budget=Budget.of("0.3"))
    federation = _federation(policy, queries=(Keep,))
    federation.ask(Keep())
    alone = PolicyReport(_account(federation, policy), (), {}, {})
    assert not alone.silent and alone.released == 0
    for query in (Keep(), COUNTS, COUNTS):
        federation.ask(query)
    account = _account(federation, policy)
    for client in account.clients:
        assert (client.acknowledged, client.released, client.epsilon) == (2, 2, 0.2)
    assert [line.free for line in account.kinds] == [True, False]
    report = Report(Study.built_in(), (PolicyReport(account, (), {}, {}),))
    assert "4 releases, 4 replies about no record, 0 unprotected" in summary(report)
    board = board_page(report)
    assert "4 answers, " in board and "4 times, without a release." in board


def test_open_releases_leave_no_epsilon() -> None:
    """One unprotected release, and neither epsilon nor a bound on detection is stated."""
    federation = _federation(OPEN)
    federation.ask(COUNTS)
    account = _account(federation, OPEN)
    assert not account.finite
    for client in account.clients:
        assert (client.unprotected, client.epsilon, client.detection) == (1, None, 1.0)
    (line,) = account.kinds
    assert (line.kind, line.released, line.protected) == (COUNTS.kind, 2, False)
    assert line.parts == {"counts": "open"}
    assert line.reasons == ("released exactly, by the owner's policy",)


def test_test_noise_is_marked() -> None:
    """A seed anywhere marks the client."""
    federation = _federation(PRIVATE, seed=3)
    federation.ask(COUNTS)
    assert not any(client.secure for client in _account(federation, PRIVATE).clients)


def test_a_chain_that_misses_the_servers_head_is_not_intact() -> None:
    """A ledger rolled back to before the last release does not pass through the seen head."""
    federation = _federation(PRIVATE)
    federation.ask(COUNTS)
    ledgers = {name: gate.ledger for name, gate in federation.gates.items()}
    heads = {**federation.heads, "south": Head(999, "0" * 64)}
    account = read(PRIVATE, ledgers, heads)
    assert {client.client: client.intact for client in account.clients} == {
        "north": True,
        "south": False,
    }


def test_an_inferred_schema_stands_among_the_releases() -> None:
    """Bounds that were read off the data are a line of their own, in red."""
    frame = pd.DataFrame(
        {"site": ["a", "a", "b", "b"], "age": [1.0, 2, 3, 4], "risk": [0, 1, 0, 1]}
    )
    federation = LocalDisclosure.from_frame(frame, "risk", client="site", policy=OPEN)
    account = _account(federation, OPEN)
    assert [line.kind for line in account.kinds] == ["schema.infer"]
    assert "inferred from the records" in account.kinds[0].about


def test_a_ledger_read_from_disk_says_the_same(tmp_path: Path) -> None:
    """Accounts come from rows alone, so a closed and reopened ledger gives them again."""
    from privfed.ledger import Ledger

    frame = pd.DataFrame({"site": ["a"] * 4, "age": [1.0, 2, 3, 4], "risk": [0, 1, 0, 1]})
    federation = LocalDisclosure.from_frame(
        frame, "risk", client="site", schema=SCHEMA, policy=PRIVATE, ledgers=tmp_path
    )
    federation.ask(COUNTS)
    before = _account(federation, PRIVATE)
    federation.close()
    again = read(PRIVATE, {"a": Ledger(tmp_path / "a.db", "a")}, federation.heads)
    assert again.clients == before.clients
    assert again.kinds == before.kinds


@pytest.mark.parametrize(
    ("loss", "told"),
    [
        (Loss.open("because"), "no finite guarantee"),
        (Loss.pure("0.5"), "ε 0.5"),
        (Loss.zcdp("0.125"), "rho 0.125"),
        (Loss(epsilon=Fraction(1), delta=Fraction(1, 10**6)), "ε 1, δ 1e-06"),
        (Loss.free(), "nothing"),
    ],
)
def test_losses_are_told_in_their_own_currency(loss: Loss, told: str) -> None:
    """Unprotected, pure, concentrated, approximate, and free."""
    assert in_words(loss) == told


def test_different_losses_are_told_from_the_least_to_the_most() -> None:
    """Whatever their order in the ledger: amounts are compared, not texts, and none bounded is last."""
    amounts = ("0.2", "1", "0.09")
    federation = _federation(
        Policy({COUNTS.kind: (Guard.of("laplace", spend="0.1", cap="1"),)}, name="counted")
    )
    for amount in amounts:
        federation.ask(COUNTS, spend=Fraction(amount))
    (line,) = _account(federation, PRIVATE).kinds
    assert line.losses == ("ε 0.09", "ε 0.2", "ε 1")


def test_names_are_sorted_as_people_do() -> None:
    """Clinic 2 before clinic 10; capitals beside small letters."""
    names = ["clinic 10", "Clinic 2", "10", "2", "b2x", "b10", "", "alpha"]
    assert sorted(names, key=natural) == [
        "",
        "2",
        "10",
        "alpha",
        "b2x",
        "b10",
        "Clinic 2",
        "clinic 10",
    ]


def test_kinds_are_told_in_a_sentence() -> None:
    """The first sentence of the class's docstring, without its source."""
    assert about(LevelSums.kind).startswith("Sums of the target over the nodes")
    assert about("unheard.of") == ""
    told = {kind: about(kind) for kind in plugins.available("queries")}
    assert not [kind for kind, text in told.items() if "`" in text or ". " in text or not text]
    assert "(" not in about("fuzzy_tree.level")


@pytest.mark.parametrize(
    ("kind", "by_record"), [("baselines.records", True), ("small.histogram", False)]
)
def test_a_row_for_each_record_is_told_by_what_left(kind: str, by_record: bool) -> None:
    """All records as they are, beside an exact table that has no row for each."""
    asked = {"baselines.records": RawRecords(), "small.histogram": COUNTS}[kind]
    policy = Policy({kind: (Guard.of("open"),)}, name="published")
    federation = _federation(policy)
    federation.ask(asked)
    (line,) = _account(federation, policy).kinds
    assert (line.kind, line.by_record) == (kind, by_record)
