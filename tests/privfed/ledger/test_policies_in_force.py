"""Policies and a ledger: what may change while a study runs, sub-budgets, and costs that lie."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ledger_trials import QUERY, SMALL

from privfed.accountants.pure import PureEpsilon
from privfed.errors import PolicyError
from privfed.exchange.messages import Reason, Refusal, Release, Request
from privfed.ledger import Ledger
from privfed.mechanisms.laplace import Laplace
from privfed.mechanisms.randomized_response import RandomizedResponse
from privfed.owner.gate import Gate
from privfed.privacy.accountant import Budget
from privfed.privacy.limit import Limit
from privfed.privacy.loss import Loss
from privfed.privacy.policy import Guard, Policy
from privfed.tables.records import Records
from privfed.testing.queries import AboveMiddle, Histogram

RECORDS = Records(SMALL, np.arange(0.0, 100.0, 10.0)[:, None], individual=np.arange(10))


def policy(
    spend: str = "0.1", budget: str | None = "1", mechanism: Any = "laplace", **rest: Any
) -> Policy:
    """A policy over histograms."""
    ceiling = None if budget is None else Budget.of(budget)
    return Policy({"small.histogram": (Guard.of(mechanism, spend=spend),)}, budget=ceiling, **rest)


def gate(
    ledger: Ledger, given: Policy, study: str = "s", owner: str = "clinic", **rest: Any
) -> Gate:
    """A gate over ten records."""
    return Gate(owner, RECORDS, given, ledger, queries=(Histogram,), study=study, **rest)


def outcome(asked: Gate, name: str, **rest: Any) -> str:
    """``release``, or the reason of the refusal."""
    reply = asked.answer(Request.of(name, QUERY, **rest)).open()
    return str(reply.reason) if isinstance(reply, Refusal) else type(reply).__name__.lower()


# --- policies in force ------------------------------------------------------------------------------


def test_a_loosened_policy_is_refused_or_recorded(tmp_path: Path) -> None:
    """The owner's choice: keep to what is in force, or put a new version into the ledger."""
    ledger = Ledger(tmp_path / "ledger.db", "d")
    first = gate(ledger, policy("0.1"))
    assert outcome(first, "a") == "release"
    with pytest.raises(PolicyError, match="study 's' runs under another policy"):
        gate(ledger, policy("0.5"))
    assert outcome(first, "b") == "release"
    second = gate(ledger, policy("0.5"), amend=True)
    assert outcome(second, "c") == "release"
    assert outcome(first, "d") == Reason.SUPERSEDED
    versions = [e.body["replaces"] for e in ledger.entries() if e.event == "policy"]
    assert versions == ["", policy("0.1").digest]
    assert ledger.spent(PureEpsilon()).total[0] == Fraction(7, 10)
    ledger.verify()


def test_what_was_reserved_ahead_under_a_superseded_policy_is_not_drawn(tmp_path: Path) -> None:
    """The charge is paid for, and its policy is no longer in force all the same."""
    ledger = Ledger(tmp_path / "ledger.db", "d")
    first = gate(ledger, policy("0.1"), block=4)
    assert outcome(first, "a") == outcome(first, "b") == "release"
    gate(ledger, policy("0.05"), amend=True)
    assert outcome(first, "c") == Reason.SUPERSEDED
    assert [e.event for e in ledger.entries(events=("block", "drawn"))] == [
        "block",
        "drawn",
        "drawn",
    ]
    ledger.verify()


def test_two_gates_with_different_budgets_cannot_share_a_ledger(tmp_path: Path) -> None:
    """One budget for one data set: the second gate is told, and the first goes on."""
    path = tmp_path / "ledger.db"
    first = gate(Ledger(path, "d"), policy(budget="1"), study="one")
    with pytest.raises(
        PolicyError,
        match=r"has another budget .epsilon 1 at delta 0, not epsilon 2 at delta 0.; keep",
    ):
        gate(Ledger(path, "d"), policy(budget="2"), study="two")
    assert outcome(first, "a") == "release"
    other = gate(Ledger(path, "d"), policy("0.9", budget="1"), study="two")
    assert outcome(other, "b") == "release"
    assert outcome(first, "c") == Reason.BUDGET


def test_an_amended_budget_binds_every_gate(tmp_path: Path) -> None:
    """Lowering the budget stops gates that know the old one, in whichever study."""
    path = tmp_path / "ledger.db"
    first = gate(Ledger(path, "d"), policy(budget="1"), study="one")
    lowered = gate(Ledger(path, "d"), policy(budget="0.1"), study="two", amend=True)
    assert outcome(first, "a") == Reason.SUPERSEDED
    assert [outcome(lowered, name) for name in "bc"] == ["release", Reason.BUDGET]


@pytest.mark.parametrize(
    ("key", "change"),
    [
        ("accountant", {"accountant": "zcdp", "budget": "1"}),
        ("unit", {"unit": "individual", "cap": 2}),
        ("relation", {"relation": "replace-one"}),
    ],
)
def test_past_charges_keep_their_meaning(key: str, change: dict[str, Any]) -> None:
    """Unit, relation and accountant of a ledger with charges cannot be amended."""
    ledger = Ledger()
    assert outcome(gate(ledger, policy()), "a") == "release"
    changed = Policy.from_dict(
        {**policy().to_dict(), **change, "budget": {"epsilon": "1", "delta": "1e-5"}}
    )
    with pytest.raises(PolicyError, match=f"counts under {key}"):
        gate(ledger, changed, amend=True)


def test_the_same_policy_again_is_no_new_version() -> None:
    """Restarting a gate changes nothing."""
    ledger = Ledger()
    gate(ledger, policy())
    head = ledger.head
    gate(ledger, policy())
    assert ledger.head == head


# --- sub-budgets ------------------------------------------------------------------------------------


def test_each_round_and_each_study_has_its_own_budget() -> None:
    """Nested ceilings: a round's within a study's within the data set's."""
    limits = (
        Limit(("study", "round"), Budget.of("0.2")),
        Limit(("study",), Budget.of("0.5")),
    )
    ledger = Ledger()
    one = gate(ledger, policy(limits=limits), "one")
    two = gate(ledger, policy(limits=limits), "two")
    assert [outcome(one, f"a{i}", round="1") for i in range(3)] == ["release"] * 2 + ["budget"]
    assert [outcome(one, f"b{i}", round="2") for i in range(3)] == ["release"] * 2 + ["budget"]
    assert [outcome(one, f"c{i}", round="3") for i in range(2)] == ["release", "budget"]
    assert [outcome(two, f"d{i}", round="1") for i in range(3)] == ["release"] * 2 + ["budget"]
    assert [outcome(two, f"e{i}", round="2") for i in range(3)] == ["release"] * 2 + ["budget"]
    ledger.verify()


def test_each_month_has_its_own_budget() -> None:
    """The ledger's own clock tells the month."""
    now = [datetime(2026, 1, 31, tzinfo=UTC)]
    ledger = Ledger(clock=lambda: now[0])
    asked = gate(ledger, policy(limits=(Limit(("month",), Budget.of("0.1")),)))
    assert [outcome(asked, name) for name in "ab"] == ["release", "budget"]
    now[0] = datetime(2026, 2, 1, tzinfo=UTC)
    assert [outcome(asked, name) for name in "cd"] == ["release", "budget"]
    now[0] = datetime(2026, 1, 1, tzinfo=UTC)
    assert outcome(asked, "e") == "budget"


def test_clients_and_principals_are_told_apart() -> None:
    """Two owners on one data set, two servers asking one owner."""
    limits = (
        Limit(("client",), Budget.of("0.2")),
        Limit(("principal",), Budget.of("0.1"), {"kind": "small.histogram"}),
    )
    ledger = Ledger()
    north = gate(ledger, policy(limits=limits), owner="north")
    south = gate(ledger, policy(limits=limits), owner="south")
    assert outcome(north, "a", principal="p") == "release"
    assert outcome(south, "b", principal="p") == "budget"
    assert outcome(south, "c", principal="q") == "release"
    assert outcome(north, "d", principal="r") == "release"
    assert outcome(north, "e", principal="t") == "budget"


def test_a_new_limit_counts_what_was_spent_before() -> None:
    """A limit that is put in force later holds past charges against itself."""
    ledger = Ledger()
    asked = gate(ledger, policy())
    assert [outcome(asked, f"a{i}") for i in range(3)] == ["release"] * 3
    limited = policy(limits=(Limit(("kind",), Budget.of("0.4")),))
    later = gate(ledger, limited, amend=True)
    assert [outcome(later, name) for name in "bc"] == ["release", "budget"]
    ledger.verify()


def test_the_dry_run_says_what_would_happen_and_changes_nothing() -> None:
    """No row is written, and the answer afterwards is as foretold."""
    ledger = Ledger()
    asked = gate(ledger, policy(budget="0.1"))
    head = ledger.head
    assert asked.dry_run(Request.of("a", QUERY)) is None
    assert ledger.head == head
    assert outcome(asked, "a") == "release"
    head = ledger.head
    assert asked.dry_run(Request.of("b", QUERY)) == Reason.BUDGET
    assert asked.dry_run(Request.of("a", QUERY)) is None
    assert ledger.head == head


def test_limits_are_read_and_written_with_a_policy(tmp_path: Path) -> None:
    """A policy file's [[limit]] tables; a misspelt one is one clear error."""
    given = policy(limits=(Limit(("study", "round"), Budget.of("0.2"), {"study": "x"}),))
    given.to_toml(tmp_path / "policy.toml")
    assert Policy.from_toml(tmp_path / "policy.toml").digest == given.digest
    for wrong, message in (
        ({"per": "week", "epsilon": "1"}, "a limit is per one or more of"),
        ({"per": "month"}, "epsilon = "),
        ({"per": "month", "epsilon": "1", "dleta": "0"}, "unknown key 'dleta'"),
        ({"epsilon": "1"}, "not nothing"),
        ({"per": -1, "epsilon": "1"}, "per is a list of aspects"),
        ({"per": [["month"]], "epsilon": "1"}, "per is a list of aspects"),
        ({"per": "month", "epsilon": "1", "where": [3]}, "where a table of texts"),
        (3, "must be a table of keys"),
    ):
        with pytest.raises(PolicyError, match=message):
            Policy.from_dict({**given.to_dict(), "limit": [wrong]})


# --- what a line says -------------------------------------------------------------------------------


def test_a_line_names_relation_unit_mechanism_map_and_versions() -> None:
    """OpenDP's own word stands beside the exact charge, and exceeds it by a hair at most."""
    ledger = Ledger()
    outcome(gate(ledger, policy(), data="2026-11"), "a")
    (line,) = [entry.body for entry in ledger.entries() if entry.event == "reserved"]
    assert (line["relation"], line["unit"], line["data"]) == ("add-or-remove", "record", "2026-11")
    assert line["mechanisms"] == {"counts": "laplace"}
    ((currency, stated),) = line["maps"]
    assert currency == "epsilon" and 0.1 <= stated <= 0.1 * (1 + 1e-6)
    assert line["libraries"]["opendp"].startswith("0.")
    assert line["schedule"] == "fixed"


def test_a_line_says_whether_the_amount_was_the_asker_s_proposal() -> None:
    """Else it is the policy's own, however often it is asked."""
    ledger = Ledger()
    asked = gate(ledger, policy())
    for name, spend in {"own": None, "proposed": Fraction(1, 100)}.items():
        asked.answer(Request.of(name, QUERY, spend=spend))
    told = [entry.body["schedule"] for entry in ledger.entries() if entry.event == "reserved"]
    assert told == ["fixed", "proposed"]


def test_local_privacy_is_accounted_apart() -> None:
    """Each individual's own bits hold for any input against any other, and the line says so."""
    guards = {
        "small.histogram": (Guard.of("laplace", spend="0.1"),),
        "small.bit": (Guard.of("randomized_response", spend="1"),),
    }
    ledger = Ledger()
    asked = Gate(
        "clinic",
        RECORDS,
        Policy(guards, unit="individual", cap=1),
        ledger,
        queries=(Histogram, AboveMiddle),
    )
    asked.answer(Request.of("a", AboveMiddle(0, 10)))
    asked.answer(Request.of("b", QUERY))
    lines = {line.name: line for line in ledger.budget("model")[1:]}
    assert set(lines) == {"local", "central"}
    relations = [e.body["relation"] for e in ledger.entries() if e.event == "reserved"]
    assert relations == ["any-input", "add-or-remove"]


# --- plugins whose costs lie ------------------------------------------------------------------------


class Raising(Laplace):
    """Its cost raises, with a raw value in the text."""

    name = "raising"

    def price(self, group: Any, spend: Any) -> Any:
        """Raise."""
        raise ZeroDivisionError("record 12345")


class Negative(Laplace):
    """Pays itself."""

    name = "negative"

    def price(self, group: Any, spend: Any) -> Any:
        """A negative epsilon, past the constructor's check."""
        loss = Loss.pure(spend)
        object.__setattr__(loss, "epsilon", Fraction(-1))
        return replace(super().price(group, spend), stated=loss)


class NotANumber(Laplace):
    """States a loss in floats."""

    name = "nan"

    def price(self, group: Any, spend: Any) -> Any:
        """Not a number."""
        loss = Loss.pure(spend)
        object.__setattr__(loss, "epsilon", float("nan"))
        return replace(super().price(group, spend), stated=loss)


class Nothing(Laplace):
    """Forgets to say."""

    name = "nothing"

    def price(self, group: Any, spend: Any) -> Any:
        """No loss at all."""
        return


class Cheap(Laplace):
    """Charges half of what its noise costs."""

    name = "cheap"

    def loss(self, bound: Any, spend: Any, scale: Any) -> Any:
        """Half."""
        return Loss.pure(spend / 2)


class Forgetful(Laplace):
    """Adds noise for a smaller sensitivity than the query's."""

    name = "forgetful"

    def scale(self, bound: Any, spend: Any) -> Any:
        """For half the sensitivity."""
        return super().scale(bound, spend) / 2


@pytest.mark.parametrize("lying", [Raising, Negative, NotANumber, Nothing, Cheap, Forgetful])
def test_a_cost_that_cannot_be_right_is_refused(
    lying: type[Laplace], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One reason for the asker, one clear line for the owner; nothing read, charged or lost."""
    monkeypatch.setattr(Histogram, "evaluate", lambda self, view: pytest.fail("data were read"))
    ledger = Ledger()
    asked = gate(ledger, policy(mechanism=lying(), relation="replace-one"))
    assert outcome(asked, "a") == Reason.UNSOUND
    (line,) = [entry.body for entry in ledger.entries() if entry.event == "refused"]
    assert f"mechanism '{lying.name}'" in line["why"]
    assert "12345" not in str(line)
    assert ledger.spent(PureEpsilon()).total[0] == 0


def test_an_honest_mechanism_agrees_with_its_map() -> None:
    """No false alarm, for every mechanism of ours at many spends."""
    for spend in ("0.000001", "0.1", "1", "3.7", "20"):
        for name, unit in (("laplace", "record"), ("gaussian", "record")):
            given = policy(spend, None, name, accountant="zcdp")
            assert outcome(gate(Ledger(), given), "a") == "release", (name, unit, spend)
        bits = Policy({"small.bit": (Guard.of(RandomizedResponse(), spend=spend),)})
        asked = Gate("clinic", RECORDS, bits, Ledger(), queries=(AboveMiddle,))
        reply = asked.answer(Request.of("a", AboveMiddle(0, 10))).open()
        assert isinstance(reply, Release), spend
