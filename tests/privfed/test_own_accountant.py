"""An accountant of one's own from price to page: what it adds up is on its word, and what is no sum is refused."""

from __future__ import annotations

from fractions import Fraction
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from privfed import LocalDisclosure
from privfed.accountants.pure import PureEpsilon
from privfed.accountants.risk import Tradeoff
from privfed.errors import PluginError, PolicyError
from privfed.exchange.messages import Reason, Request
from privfed.extend import Accountant, Budget, Guard, Loss, Policy, to_epsilon
from privfed.learners.base import Planned
from privfed.privacy.policy_objects import accountant_of
from privfed.questions import plugins
from privfed.reports.account import read
from privfed.reports.composed import composed
from privfed.study import ledger_commands
from privfed.study.price import Balance, price, priced
from privfed.tables.schema import Schema
from privfed.testing.check_accountant import check_accountant
from privfed.testing.queries import Histogram
from tests.asked_gate import reason
from tests.own_accountant import Misstated, PureAndRho, PureOnly

FRAME = pd.DataFrame({"x": [0.1, 0.4, 0.6, 0.9], "y": [0.0, 1.0, 0.0, 1.0]})
SCHEMA = Schema.from_dict(
    {
        "target": "y",
        "column": [{"name": name, "kind": "number", "lower": 0, "upper": 1} for name in "xy"],
    }
)
ASKED = Histogram(0, (0.0, 0.5, 1.0))
HELD = Budget.of("2", "1e-5")
NORTH = Balance("north", PureAndRho().nothing)
WORD = "on the composition by pure_only, not derived here"


def policy(accountant: Accountant | str = "pure", spend: str = "1", **changes: Any) -> Policy:
    """Answers of one epsilon each, out of two."""
    guard = Guard.of("laplace", spend=spend)
    return Policy({Histogram.kind: (guard,)}, accountant=accountant, budget=HELD, **changes)


def federation(accountant: Accountant, spend: str = "1") -> LocalDisclosure:
    """One owner's four records, behind a gate with that accountant."""
    return LocalDisclosure.from_frame(
        FRAME.assign(site="north"),
        target="y",
        client="site",
        schema=SCHEMA,
        policy=policy(accountant, spend),
        seed=1,
    )


@pytest.mark.parametrize("accountant", [PureOnly(), PureAndRho()])
def test_an_honest_accountant_conforms(accountant: Accountant) -> None:
    """The kit passes what the other tests stand on."""
    assert len(check_accountant(accountant)) == 12


def test_what_another_package_adds_up_is_told_in_every_total() -> None:
    """Price, ledger, budget and page say on whose composition a figure stands; ours stand on nobody's."""
    planned = price([Planned(ASKED, 2)], SCHEMA, policy(PureOnly()))
    assert planned.basis == WORD
    assert priced(planned).count(WORD) == 1  # of the total: a single answer's loss is nobody's sum
    asked = federation(PureOnly())
    asked.ask(ASKED)
    assert asked.budget()["basis"].tolist() == [WORD]
    ledger = asked.gates["north"].ledger
    ledger.verify()
    (client,) = read(policy(PureOnly()), {"north": ledger}, {}).clients
    assert client.basis == ("accountant:pure_only",)
    (row,) = (row for row in ledger.entries() if row.event == "reserved")
    assert row.body["libraries"]["tests"] == "unknown"  # no distribution has the module
    assert price([Planned(ASKED, 2)], SCHEMA, policy()).basis == ""


@pytest.mark.parametrize(
    "told",
    [
        (1.0,),
        (Fraction(-1),),
        (float("nan"),),
        (),
        (Fraction(1), Fraction(0)),
        [Fraction(1)],
        Fraction(1),
        None,
        ZeroDivisionError(),
    ],
    ids=repr,
)
def test_an_amount_that_is_no_exact_sum_is_refused_before_anything_is_charged(told: Any) -> None:
    """A float once spoilt its ledger, a negative one paid for the next answer."""
    asked = federation(Misstated("amount", told))
    gate = asked.gates["north"]
    assert reason(gate, Request.of("1", ASKED)) is Reason.UNSOUND
    (why,) = (row.body["why"] for row in gate.ledger.entries() if "why" in row.body)
    assert why.startswith("accountant 'misstated': amount ")
    assert all(row.event != "reserved" for row in gate.ledger.entries())
    gate.ledger.verify()


@pytest.mark.parametrize("method", ["add", "cost", "fits", "left", "stated", "check", "nothing"])
def test_what_privfed_does_with_amounts_is_no_plugins(method: str) -> None:
    """One that calls every total fitting had its budget of 0.5 in the report of a study that spent 1."""
    lenient = type("Lenient", (PureOnly,), {method: lambda *_, **__: True})()
    with pytest.raises(
        PluginError, match=f"replaces {method}, which privfed does itself; write amount,"
    ):
        accountant_of(policy(lenient))


@pytest.mark.parametrize(
    ("method", "told"),
    [
        ("ceiling", (2.0,)),
        ("ceiling", (Fraction(6),)),
        ("ceiling", KeyError()),
        ("guarantee", (2.0, 0.0)),
        ("guarantee", (Fraction(2), Fraction(1, 2))),
        ("guarantee", (float("nan"), Fraction(0))),
        ("guarantee", Fraction(2)),
        ("guarantee", ZeroDivisionError()),
    ],
    ids=repr,
)
def test_an_accountant_that_does_not_keep_its_budget_is_refused(method: str, told: Any) -> None:
    """Its ceiling must guarantee the budget, in exact numbers, before a gate or a price is built on it."""
    with pytest.raises(PluginError, match="accountant 'misstated': "):
        accountant_of(policy(Misstated(method, told)))


def test_an_accountant_has_a_name_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """By another's name its ledgers would be read as if the other had added them up."""

    class Cheap(PureOnly):
        name = "pure"

    with pytest.raises(PluginError, match="'pure': another one is installed by this name"):
        accountant_of(policy(Cheap()))
    monkeypatch.setattr(Cheap, "name", None)
    with pytest.raises(PolicyError, match="an accountant's name is text"):
        policy(Cheap())


def _install(monkeypatch: pytest.MonkeyPatch) -> None:
    """The honest ones are installed, as a plugin's entry points would."""
    known = plugins.available
    own = {
        name: EntryPoint(name, f"tests.own_accountant:{value}", "privfed.accountants")
        for name, value in {"pure_only": "PureOnly", "pure_and_rho": "PureAndRho"}.items()
    }
    monkeypatch.setattr(
        plugins, "available", lambda g: known(g) | (own if g == "accountants" else {})
    )


@pytest.mark.parametrize("own", [PureOnly(), PureAndRho()], ids=lambda a: a.name)
@pytest.mark.parametrize("other", [PureOnly(), PureEpsilon()], ids=lambda a: a.name)
def test_policies_of_another_accountant_add_up_by_what_it_guarantees(
    own: Accountant, other: Accountant
) -> None:
    """Of one component there was an error, and of a second one that is no delta it was told as one."""
    accounts = []
    for accountant in (own, other):
        asked = federation(accountant, "0.2")
        asked.ask(ASKED)
        account = read(policy(accountant), {"north": asked.gates["north"].ledger}, {})
        for client in account.clients:
            client.secure = True  # the noise of a test, counted as if it were not
        accounts.append(account)
    together = composed(accounts)
    assert together is not None and together.why == ""
    assert together.epsilon == pytest.approx(4)  # the two ceilings
    assert together.delta <= 2e-5


def test_a_ledger_says_of_which_version_a_plugin_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of one version and the next stand in one ledger; ours name no other package."""
    for version in ("1.0", "1.1"):
        monkeypatch.setattr(plugins, "packages", lambda v=version: {"tests": ("own", v)})
        for accountant in (PureOnly(), PureEpsilon()):
            asked = federation(accountant)
            asked.ask(ASKED)
            rows = asked.gates["north"].ledger.entries()
            (row,) = (row for row in rows if row.event == "reserved")
            own = {"own": version} if isinstance(accountant, PureOnly) else {}
            ours = {"privfed", "opendp"}
            assert {k: v for k, v in row.body["libraries"].items() if k not in ours} == own


def test_a_ledger_outlives_the_package_of_its_accountant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is verified, shown and stated; what its sums prove its accountant alone can say, which is told."""
    with monkeypatch.context() as installed:
        _install(installed)
        asked = LocalDisclosure.from_frame(
            FRAME.assign(site="north"),
            target="y",
            client="site",
            schema=SCHEMA,
            policy=policy("pure_only"),
            seed=1,
            ledgers=tmp_path,
        )
        asked.ask(ASKED)
        asked.close()
        with ledger_commands.opened(tmp_path / "north.db") as ledger:
            assert "at most epsilon 1 so far" in ledger_commands.budget(ledger, None)
    with ledger_commands.opened(tmp_path / "north.db") as ledger:
        ledger.verify()
        told = ledger_commands.budget(ledger, None)
    assert "1 charge; amount 1 1 spent" in told and "at most epsilon" not in told
    assert "accountant 'pure_only' is not installed here" in told


def test_a_price_names_the_component_that_it_exceeds() -> None:
    """Epsilon 1.5 of 2 was "over the budget" by "881 % of its epsilon", where rho is what does not fit."""
    told = priced(price([Planned(ASKED, 1)], SCHEMA, policy(PureAndRho(), "1.5")), [NORTH])
    assert "at most epsilon 1.5 at delta 1e-05, of a budget of epsilon 2" in told
    assert "OVER the budget's rho: queries will be refused" in told
    assert "(it needs 881 % of the budget's rho, and 100 % remains)" in told


def test_a_rho_has_no_epsilon_at_delta_zero() -> None:
    """Curves and reports ask an accountant at delta 0, too: where it has no figure it says so, by one clear error."""
    with pytest.raises(PolicyError, match="delta 0"):
        to_epsilon(0.1, 0.0)


def test_a_curve_of_foreign_amounts_is_its_guarantees() -> None:
    """Components that are called rho and delta mean what their accountant says, not what ours does."""

    class Tenths(PureOnly):
        name, components = "tenths", ("rho", "delta")

        def amount(self, loss: Loss) -> tuple[Fraction, ...]:
            """A tenth of epsilon, called rho."""
            return super().amount(loss)[0] / 10, Fraction(0)

        def ceiling(self, budget: Budget) -> tuple[Fraction, ...]:
            """The same."""
            return budget.epsilon / 10, Fraction(0)

        def guarantee(
            self, total: tuple[Fraction, ...], delta: Fraction
        ) -> tuple[Fraction, Fraction]:
            """Ten of them."""
            return total[0] * 10, Fraction(0)

    found = Tradeoff.of_total(Tenths(), (Fraction(1, 10), Fraction(0))).found(0.01)
    assert found == pytest.approx(Tradeoff.approximate(1.0, 0.0).found(0.01), rel=1e-6)
