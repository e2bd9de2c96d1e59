"""Study blocks: a share is reserved once, never grows, and what is proved of it holds by enumeration."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from fractions import Fraction
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from ledger_trials import edited, objects

from privfed.accountants.zcdp import ZeroConcentrated
from privfed.errors import BudgetError, LedgerError
from privfed.exchange.messages import Reason
from privfed.ledger import Charge, Ledger, Spent
from privfed.privacy.accountant import Amount, Budget
from privfed.privacy.loss import Loss, pure_to_zcdp
from privfed.privacy.policy import Guard, Policy

ZCDP = ZeroConcentrated()
BUDGET = Budget.of("8", "1e-5")
CEILING = ZCDP.ceiling(BUDGET)
POLICY = Policy({"k": (Guard.of("gaussian", spend="0.1"),)}, budget=BUDGET, accountant="zcdp")


def part(share: str) -> Amount:
    """A fraction of the whole ceiling."""
    return Fraction(share) * CEILING[0], Fraction(0)


def begun(path: Path | None = None) -> Ledger:
    """A ledger under the budget, for two studies."""
    ledger = Ledger(path, "d")
    ledger.adopt(POLICY, "one")
    ledger.adopt(POLICY, "two")
    return ledger


def within(ceiling: Amount) -> Callable[[Spent], Reason | None]:
    """A gate's own check of the whole budget."""

    def refuse(after: Spent) -> Reason | None:
        return None if ZCDP.fits(after.total, ceiling) else Reason.BUDGET

    return refuse


def ask(ledger: Ledger, number: int, loss: Loss, study: str, ceiling: Amount = CEILING) -> bool:
    """Whether one more charge of a study is accepted."""
    charge = Charge("server", f"{study} {number}", "k", f"q{number}", loss, study)
    refuse = within(ceiling)
    assert ledger.would_refuse(charge, ZCDP, refuse) in (None, Reason.BUDGET)
    return ledger.reserve(charge, ZCDP, refuse).refused is None


def rho(share: str) -> Loss:
    """A concentrated loss of a fraction of the ceiling."""
    return Loss(rho=part(share)[0])


def test_a_study_never_takes_more_than_its_share(tmp_path: Path) -> None:
    """Its third charge is refused though the budget has room, in a ledger opened again as well."""
    path = tmp_path / "d.db"
    ledger = begun(path)
    ledger.reserve_share("one", part("0.5"), ZCDP)
    assert ask(ledger, 1, rho("0.3"), "one")
    assert not ask(ledger, 2, rho("0.3"), "one")
    ledger.close()
    again = Ledger(path, "d")
    assert ask(again, 3, rho("0.2"), "one")
    assert not ask(again, 4, Loss(rho=Fraction(1, 10**9)), "one")
    assert again.study_blocks()["one"].spent == part("0.5")
    assert again.verify() == again.head


def test_of_two_studies_begun_at_once_the_second_finds_what_is_left() -> None:
    """A share counts from its reservation, before anything was charged; the second gets a smaller one."""
    ledger = begun()
    ledger.reserve_share("one", part("0.7"), ZCDP)
    with pytest.raises(
        BudgetError, match="left than its share; part of the budget is kept for 'one'"
    ):
        ledger.reserve_share("two", part("0.7"), ZCDP)
    ledger.reserve_share("two", part("0.3"), ZCDP)
    assert ask(ledger, 1, rho("0.7"), "one")
    assert ask(ledger, 2, rho("0.3"), "two")
    ledger.verify()


def test_a_study_without_a_share_gets_only_what_no_other_has_reserved() -> None:
    """The whole budget's check counts what others have reserved and not charged yet."""
    ledger = begun()
    ledger.reserve_share("one", part("0.7"), ZCDP)
    assert not ask(ledger, 1, rho("0.4"), "two")
    assert ask(ledger, 2, rho("0.3"), "two")
    assert ask(ledger, 3, rho("0.7"), "one")


def test_a_sealed_study_gives_back_what_it_left_and_is_over() -> None:
    """Its charges remain, its rest goes to the budget, and neither it nor its share comes back."""
    ledger = begun()
    ledger.reserve_share("one", part("0.7"), ZCDP)
    assert ask(ledger, 1, rho("0.2"), "one")
    ledger.seal_study("one")
    assert not ask(ledger, 2, rho("0.1"), "one")
    with pytest.raises(BudgetError, match="is sealed"):
        ledger.reserve_share("one", part("0.1"), ZCDP)
    ledger.reserve_share("two", part("0.8"), ZCDP)
    assert [block.sealed for block in ledger.study_blocks().values()] == [True, False]
    ledger.verify()


def test_a_share_never_grows() -> None:
    """Beginning again needs no more than what is left of the share; more is refused by name."""
    ledger = begun()
    ledger.reserve_share("one", part("0.4"), ZCDP)
    ledger.reserve_share("one", part("0.4"), ZCDP)
    assert ask(ledger, 1, rho("0.1"), "one")
    for more in ("0.31", "0.5"):
        with pytest.raises(BudgetError, match="a share, which never grows"):
            ledger.reserve_share("one", part(more), ZCDP)
    assert ledger.study_blocks()["one"].share == part("0.4")


def test_a_block_of_charges_ahead_stays_within_the_share() -> None:
    """Eight charges are wanted at once and two fit: the share holds them too."""
    ledger = begun()
    ledger.reserve_share("one", part("0.3"), ZCDP)
    charge = Charge("server", "r", "k", "q", rho("0.1"), "one")
    assert ledger.reserve(charge, ZCDP, lambda spent: None, block=8).refused is None
    assert ledger.study_blocks()["one"].spent[0] <= part("0.3")[0]
    ledger.verify()


def test_a_study_that_another_process_sealed_draws_no_more_of_its_block(tmp_path: Path) -> None:
    """What was reserved ahead is spent, and nothing more is answered for it."""
    ledger = begun(tmp_path / "d.db")
    ledger.reserve_share("one", part("0.5"), ZCDP)
    charges = [Charge("server", str(n), "k", "q", rho("0.1"), "one") for n in range(3)]
    for charge in charges[:2]:
        assert ledger.reserve(charge, ZCDP, lambda spent: None, block=4).refused is None
    with closing(Ledger(tmp_path / "d.db", "d")) as owner:
        owner.seal_study("one")
    refused = ledger.reserve(charges[2], ZCDP, lambda spent: None, block=4).refused
    assert refused == Reason.BUDGET
    ledger.release(charges[1], b"")
    ledger.verify()


def test_the_end_of_one_study_costs_another_nothing() -> None:
    """It gave up what the other had reserved ahead, and the answer that this was computing."""
    ledger = begun()
    for study in ("one", "two"):
        ledger.reserve_share(study, part("0.4"), ZCDP)
    charges = [Charge("server", str(n), "k", "q", rho("0.1"), "two") for n in range(4)]
    for charge in charges:
        assert ledger.reserve(charge, ZCDP, lambda spent: None, block=4).refused is None
        ledger.seal_study("one")
        ledger.release(charge, b"")
    assert len(list(ledger.entries(events=("block",)))) == 1
    ledger.verify()


@pytest.mark.parametrize("event", ["share", "sealed"])
def test_a_share_that_was_edited_is_found(event: str, tmp_path: Path) -> None:
    """Another amount, or a study opened again, does not follow from the chain."""
    path = tmp_path / "d.db"
    ledger = begun(path)
    ledger.reserve_share("one", part("0.3"), ZCDP)
    ask(ledger, 1, rho("0.2"), "one")
    ledger.seal_study("one")
    ledger.close()
    assert not objects(path)
    edited(path, f"UPDATE entries SET body = CAST('{{}}' AS BLOB) WHERE event = '{event}'")
    assert objects(path)


def test_a_gate_that_forgot_the_share_is_found_by_verifying(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The planted fault: its rows chain and its totals add up, but one study has more than its share."""
    ledger = begun()
    ledger.reserve_share("one", part("0.3"), ZCDP)
    ledger.verify()
    monkeypatch.setattr("privfed.ledger.ledger.within_share", lambda *given: given[-1])
    assert ask(ledger, 1, rho("0.4"), "one")
    with pytest.raises(LedgerError, match="more than its share"):
        ledger.verify()


#: A randomized response: its epsilon, and what it answers a question with, by the record's bit.
EPSILON = Fraction(1, 2)
RHO = pure_to_zcdp(EPSILON)
ONE = Loss(EPSILON, RHO)
ORDERS = np.array([1.001, 1.5, 2, 4, 16, 64])
History = tuple[int, ...]


def outcomes(
    accepts: Callable[[Ledger, int, str], bool], depth: int
) -> dict[History, tuple[float, float]]:
    """Every history of two studies with its probability under the two neighbours.

    The adversary begins the second study, and chooses its share, by what the first one answered: a
    large one after two equal answers, else a small one; it asks as long as it is answered.
    """
    found: dict[History, tuple[float, float]] = {}
    for answers in product((0, 1), repeat=depth):
        ledger, total = begun(), (4 * RHO, Fraction(0))
        ledger.reserve_share("one", (2 * RHO, Fraction(0)), ZCDP)
        history: list[int] = []
        for answer in answers:
            study = "one" if len(history) < 2 else "two"
            if len(history) == 2 and "two" not in ledger.study_blocks():
                share = 2 if history[0] == history[1] else 1
                assert ZCDP.fits((share * RHO, Fraction(0)), total)
                ledger.reserve_share("two", (share * RHO, Fraction(0)), ZCDP)
            if not accepts(ledger, len(history), study):
                break
            history.append(answer)
        right = 1 / (1 + np.exp(-float(EPSILON)))
        ones = sum(history)
        rest = len(history) - ones
        found[tuple(history)] = (
            right**ones * (1 - right) ** rest,
            right**rest * (1 - right) ** ones,
        )
    return found


def divergences(found: dict[History, tuple[float, float]], known: History = ()) -> np.ndarray:
    """Renyi divergences between the neighbours' laws of what follows a history, shape (orders,)."""
    p, q = np.array([x for h, x in found.items() if h[: len(known)] == known]).T
    p, q = p / p.sum(), q / q.sum()
    sums = (p[:, None] ** ORDERS * q[:, None] ** (1 - ORDERS)).sum(axis=0)
    return np.asarray(np.log(sums) / (ORDERS - 1))


def test_adaptive_blocks_lose_their_shares_and_no_more_by_enumeration() -> None:
    """The second block given any history loses its share; all of it the ceiling, at every order."""
    found = outcomes(lambda ledger, number, study: ask(ledger, number, ONE, study), 5)
    assert sum(p for p, _ in found.values()) == pytest.approx(1)
    one = float(RHO)
    for history in product((0, 1), repeat=2):
        share = 2 if history[0] == history[1] else 1
        told = divergences(found, history)
        assert (told <= share * one * ORDERS * (1 + 1e-9)).all()
        assert told[0] > 0.99 * share * one, "the share is not given away"
    assert (divergences(found) <= 4 * one * ORDERS * (1 + 1e-9)).all()


def test_a_ledger_that_forgets_shares_is_convicted_by_enumeration() -> None:
    """The planted fault: answers go on beyond the share, and the second block loses more."""
    found = outcomes(lambda ledger, number, study: number < 4, 5)
    assert divergences(found, (0, 1))[0] > 1.9 * float(RHO)


def test_a_ledger_begun_without_shares_asks_for_a_new_name() -> None:
    """Charges before a share cannot be bounded by it afterwards."""
    ledger = begun()
    assert ask(ledger, 1, rho("0.1"), "one")
    with pytest.raises(BudgetError, match="before it had a share"):
        ledger.reserve_share("one", part("0.2"), ZCDP)


def test_blocks_and_amendments_read_back_in_order(tmp_path: Path) -> None:
    """A larger budget leaves shares as they are, and makes room for the next."""
    path = tmp_path / "d.db"
    ledger = begun(path)
    ledger.reserve_share("one", part("0.9"), ZCDP)
    assert ask(ledger, 1, rho("0.9"), "one")
    more = Policy(POLICY.guards, budget=Budget.of("12", "1e-5"), accountant="zcdp")
    with pytest.raises(BudgetError):
        ledger.reserve_share("two", part("0.5"), ZCDP)
    ledger.adopt(more, "two", amend=True)
    ledger.reserve_share("two", part("0.5"), ZCDP)
    assert list(ledger.study_blocks()) == ["one", "two"]
    assert ledger.fixed_totals(ZCDP) == (part("0.9"), CEILING)
    ledger.verify()


def test_an_odometers_first_total_is_the_first_studys_share() -> None:
    """As its page says, whatever other studies reserved before the first charge."""
    ledger = begun()
    for study, share in (("one", "0.2"), ("two", "0.7")):
        ledger.reserve_share(study, part(share), ZCDP)
    assert ask(ledger, 1, rho("0.1"), "two")
    assert ledger.fixed_totals(ZCDP) == (part("0.2"), CEILING)


def test_a_study_is_stated_by_its_share_and_not_by_what_everything_adds_up_to() -> None:
    """By study, each block has its own guarantee for ever; the total alone is the odometer's."""
    ledger = begun()
    ledger.reserve_share("one", part("0.6"), ZCDP)
    assert ask(ledger, 1, rho("0.6"), "one")
    before = ledger.budget("study")
    ledger.seal_study("one")
    ledger.reserve_share("two", part("0.3"), ZCDP)
    assert ask(ledger, 2, rho("0.2"), "two")
    whole, one, two = ledger.budget("study")
    assert (one.epsilon, one.share) == (ZCDP.guarantee(part("0.6"), BUDGET.delta)[0], part("0.6"))
    assert two.epsilon == ZCDP.guarantee(part("0.3"), BUDGET.delta)[0]
    assert before[1].epsilon == one.epsilon and one.basis_in_words == ""
    assert one.epsilon is not None and whole.epsilon is not None
    assert one.epsilon < whole.epsilon <= BUDGET.epsilon
    assert not any(line.share for line in ledger.budget("kind"))
