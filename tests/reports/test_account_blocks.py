"""Accounts of ledgers that reserved ahead, and of ledgers that hold more than their budget."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from privfed.accountants.zcdp import ZeroConcentrated
from privfed.engines.local import LocalDisclosure
from privfed.errors import LedgerError
from privfed.ledger import Ledger
from privfed.privacy.accountant import Budget
from privfed.privacy.policy import Guard, Policy
from privfed.reports.account import ClientAccount, read
from privfed.tables.schema import Column, Schema
from privfed.testing.queries import Histogram

SCHEMA = Schema((Column("age", lower=0, upper=100),), Column("risk", lower=0, upper=1))
COUNTS = Histogram(0, (0.0, 50.0, 100.0))


def _policy(budget: str | None, spend: str = "0.1") -> Policy:
    ceiling = None if budget is None else Budget.of(budget)
    return Policy({COUNTS.kind: (Guard.of("laplace", spend=spend),)}, budget=ceiling)


def _asked(policy: Policy, times: int, block: int, folder: Path | None = None) -> LocalDisclosure:
    """A federation of one client that was asked so often."""
    rng = np.random.default_rng(2)
    frame = pd.DataFrame({"age": rng.uniform(0, 100, 20), "risk": rng.random(20), "site": "a"})
    federation = LocalDisclosure.from_frame(
        frame, "risk", client="site", schema=SCHEMA, policy=policy, block=block, ledgers=folder
    )
    for _ in range(times):
        federation.ask(COUNTS)
    return federation


def _account(policy: Policy, federation: LocalDisclosure) -> ClientAccount:
    ledgers = {name: gate.ledger for name, gate in federation.gates.items()}
    return read(policy, ledgers, federation.heads).clients[0]


@pytest.mark.parametrize(
    ("times", "block", "spent"),
    [(1, 4, "0.4"), (3, 4, "0.4"), (4, 4, "0.4"), (5, 4, "0.8"), (3, 1, "0.3"), (1, 8, "0.8")],
)
def test_what_is_left_of_a_block_is_spent(times: int, block: int, spent: str) -> None:
    """The account states the whole block, drawn on or not, as the ledger's own total does."""
    policy = _policy("1")
    federation = _asked(policy, times, block)
    (gate,) = federation.gates.values()
    account = _account(policy, federation)
    assert account.epsilon == float(spent)
    assert Fraction(spent) == gate.ledger.spent(gate.accountant).total[0]
    assert (account.released, len(account.steps)) == (times, times)
    assert account.steps[-1].spent == float(spent)
    assert account.intact and not account.over


def test_a_block_left_behind_by_a_process_is_still_spent(tmp_path: Path) -> None:
    """Closed and opened again, the rest of a block is lost, and another block is charged on top."""
    policy = _policy("1")
    for spent in (0.4, 0.8):
        federation = _asked(policy, 1, 4, tmp_path)
        assert _account(policy, federation).epsilon == spent
        federation.close()
    account = read(policy, {"a": Ledger(tmp_path / "a.db", "a")}, {}).clients[0]
    assert (account.epsilon, account.released) == (0.8, 2)


def test_risk_is_that_of_all_that_may_still_be_asked() -> None:
    """However little was asked so far: who chooses when to stop may choose by what was seen."""
    policy = _policy("8", "1")
    accounts = [_account(policy, _asked(policy, asked, 1)) for asked in (1, 8)]
    assert accounts[0].detection == accounts[1].detection > 0.99
    assert [account.epsilon for account in accounts] == [1.0, 8.0]
    assert [account.ceiling for account in accounts] == [8.0, 8.0]


@pytest.mark.parametrize(
    ("budget", "over"),
    [("0.3", False), ("0.30000000000000001", False), ("0.29999999999999999", True), ("0.1", True)],
)
def test_a_total_above_its_budget_is_over(budget: str, over: bool) -> None:
    """Three tenths, held against other budgets than the one they were charged under, exactly."""
    federation = _asked(_policy("0.3"), 3, 1)
    account = _account(_policy(budget), federation)
    assert account.over == over
    assert account.epsilon == 0.3


def test_an_unfinished_block_can_be_over_its_budget() -> None:
    """One answer of a tenth fits two tenths; the block of four that was reserved does not."""
    federation = _asked(_policy("0.4"), 1, 4)
    assert _account(_policy("0.2"), federation).over
    assert not _account(_policy("0.4"), federation).over


@pytest.mark.parametrize(("share", "over"), [(Fraction(1), False), (Fraction(99, 100), True)])
def test_over_is_told_in_the_accountants_own_currency(share: Fraction, over: bool) -> None:
    """A total in rho is held against the ceiling in rho."""
    spend = ZeroConcentrated().ceiling(Budget.of("2", "1e-5"))[0]
    kinds = {COUNTS.kind: (Guard.of("gaussian", spend=spend),)}
    policy = Policy(kinds, accountant="zcdp", budget=Budget.of("2", "1e-5"))
    federation = _asked(policy, 1, 1)
    held = Policy(kinds, accountant="zcdp", budget=Budget.of(2 * share, "1e-5"))
    assert _account(held, federation).over == over


def test_without_a_budget_nothing_is_over() -> None:
    """There is no ceiling to exceed, and none is stated."""
    policy = _policy(None, "5")
    account = _account(policy, _asked(policy, 3, 1))
    assert (account.over, account.ceiling, account.epsilon) == (False, None, 15.0)


def _gaussian(spend: str, budget: str) -> Policy:
    guard = Guard.of("gaussian", spend=spend, times=2)
    return Policy({COUNTS.kind: (guard,)}, budget=Budget.of(budget, "1e-5"), accountant="zcdp")


def test_a_study_block_is_stated_apart_and_never_changes() -> None:
    """A later study, charged in the same ledger, changes neither the first one's figures nor its risk."""
    policy = _gaussian("0.05", "8")
    federation = _asked(policy, 0, 1)
    (gate,) = federation.gates.values()
    ledger, share = gate.ledger, (Fraction(1, 10), Fraction(0))
    ledger.reserve_share(gate.study, share, gate.accountant)
    federation.ask(COUNTS)

    def block() -> ClientAccount:
        return read(policy, {"a": ledger}, {}, gate.study).clients[0]

    before = block()
    ledger.adopt(policy, "another")
    ledger.reserve_share("another", (Fraction(1, 2), Fraction(0)), gate.accountant)
    after = block()
    assert before.block == after.block
    assert before.block is not None and before.risk is not None
    assert before.block.epsilon <= float(gate.accountant.guarantee(share, Fraction("1e-5"))[0])
    assert before.block.risk.found[0.01] < before.risk.found[0.01]
    assert after.risk == before.risk, "the risk is that of the budget in force from the first"
    assert before.ceiling == 8


def test_without_a_block_nothing_is_stated_of_one() -> None:
    """Ephemeral ledgers have no blocks, and a study that is not in the ledger has none."""
    policy = _gaussian("0.05", "8")
    federation = _asked(policy, 1, 1)
    ledgers = {name: gate.ledger for name, gate in federation.gates.items()}
    assert read(policy, ledgers, federation.heads, "nobody's").clients[0].block is None


def _of_study(unit: dict[str, Any], guard: str = "0.1") -> Ledger:
    """A ledger in which a study's policy is in force."""
    ledger = Ledger()
    ledger.adopt(replace(_policy("1", guard), **unit), "study")
    return ledger


def test_an_edited_policy_file_changes_nothing_that_the_ledger_says() -> None:
    """Written as of persons, of one release or of another budget, a page stated what no gate had held."""
    true = replace(_policy("1"), name="true")
    written = [
        replace(true, unit="individual", cap=1),
        replace(true, budget=Budget.of("0.5")),
        _policy("1", "0.001").renamed("true"),
    ]
    for edited in written:
        for name in ("study", "an edited name"):
            account = read(edited, {"a": _of_study({})}, {}, name)
            assert account.policy == true and account.clients[0].ceiling == 1
    assert read(written[0], {"a": Ledger()}, {}, "study").policy == written[0]  # none in force


def test_owners_of_other_units_share_no_sentence() -> None:
    """One page's unit would be that of the first."""
    ledgers = {"a": _of_study({}), "b": _of_study({"unit": "individual", "cap": 2})}
    with pytest.raises(LedgerError, match="different units"):
        read(_policy("1"), ledgers, {}, "study")
    ledgers["b"] = _of_study({}, "0.2")
    assert len(read(_policy("1"), ledgers, {}, "study").clients) == 2
