"""What several policies over the same records come to, together."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import Any

import pytest

from privfed.accountants.pure import PureEpsilon
from privfed.accountants.zcdp import ZeroConcentrated
from privfed.privacy.accountant import Budget
from privfed.privacy.masked_sums import MaskedSums
from privfed.privacy.policy import Policy
from privfed.reports.account import ClientAccount, PolicyAccount
from privfed.reports.budget import PolicyReport, Report
from privfed.reports.composed import composed
from privfed.reports.page import page
from privfed.reports.text import summary
from privfed.study import Study

EPSILON = Budget.of("1", "1e-5")


def policy(name: str = "private", **changes: Any) -> PolicyAccount:
    """An account of one data owner who spent the whole of epsilon 1 under zCDP."""
    total = ZeroConcentrated().ceiling(EPSILON)
    client = ClientAccount(
        "north", released=3, epsilon=1.0, ceiling=1.0, budget=1.0, delta=1e-5, total=total
    )
    own = Policy({}, name=name, accountant="zcdp", budget=EPSILON)
    fields = {k: changes.pop(k) for k in ("relation", "unit", "cap") if k in changes}
    return PolicyAccount(
        replace(own, **fields), ZeroConcentrated(), (replace(client, **changes),), ()
    )


def pure(epsilon: str, delta: str = "0") -> PolicyAccount:
    """An account of one data owner who spent an epsilon, pure unless a delta goes with it."""
    budget = Budget.of(epsilon, delta)
    value, small = float(budget.epsilon), float(budget.delta)
    total = (budget.epsilon, budget.delta)
    client = ClientAccount(
        "north", released=1, epsilon=value, ceiling=value, delta=small, total=total
    )
    own = Policy({}, name=f"pure {epsilon}", budget=budget)
    return PolicyAccount(own, PureEpsilon(), (client,), ())


def test_six_policies_at_epsilon_one_are_no_epsilon_one() -> None:
    """Concentrated losses add up in their own currency: 2.68, and a risk of 5.2 %."""
    one = composed([policy(f"p{n}") for n in range(6)])
    assert one is not None and one.epsilon is not None
    assert one.epsilon == pytest.approx(2.68, abs=0.01)
    assert one.detection == pytest.approx(0.052, abs=0.002)


def test_pure_policies_add_up_exactly() -> None:
    """A half and a half are one, without any delta."""
    one = composed([pure("0.5"), pure("0.5")])
    assert one is not None and (one.epsilon, one.delta) == (1.0, 0.0)


def test_figures_are_of_any_owner_not_of_the_one_found_best() -> None:
    """Who has no ceiling is found better at a smaller epsilon; both figures stand beside "each record at each owner"."""
    parts = [policy(f"p{n}") for n in range(2)]
    small = tuple(part / 4 for part in ZeroConcentrated().ceiling(EPSILON))
    running = [
        replace(
            one,
            clients=(
                *one.clients,
                replace(one.clients[0], client="south", ceiling=None, total=small),
            ),
        )
        for one in parts
    ]
    both, north = composed(running), composed(parts)
    south = composed([replace(one, clients=one.clients[1:]) for one in running])
    assert both is not None and north is not None and south is not None
    for figure in ("epsilon", "delta", "detection"):
        own = (getattr(north, figure), getattr(south, figure))
        assert getattr(both, figure) == max(own)


def test_deltas_of_their_own_add_up_too() -> None:
    """Twice a half at delta 0.01 is one at delta 0.02: either may fail."""
    one = composed([pure("0.5", "0.01"), pure("0.5", "0.01")])
    assert one is not None and (one.epsilon, one.delta) == (1.0, 0.02)
    grown = composed([pure("0.5", "0.01"), replaced("0.5", "0.01")])
    assert grown is not None
    assert grown.epsilon == 1.5
    assert grown.delta == pytest.approx(0.01 * (2 + math.exp(0.5)))


def replaced(epsilon: str, delta: str) -> PolicyAccount:
    """The same under the other relation, of which each step is two."""
    own = pure(epsilon, delta)
    return replace(own, policy=replace(own.policy, relation="replace-one"))


def test_a_delta_beside_concentrated_losses_is_not_forgotten() -> None:
    """Rhos add up as if it were pure, and its delta beside the one that converts them."""
    plain, failing = composed([policy(), pure("1")]), composed([policy(), pure("1", "0.01")])
    assert plain is not None and failing is not None
    assert failing.epsilon == plain.epsilon
    assert failing.delta >= 0.01 + 1e-5 and failing.detection >= plain.detection + 0.009


def test_pure_and_concentrated_ones_add_up_as_concentrated() -> None:
    """More than either alone, less than the sum of the epsilons."""
    one = composed([policy(), pure("1")])
    assert one is not None and one.epsilon is not None
    assert 1 < one.epsilon < 5 and one.delta == 1e-5


def test_replacing_a_record_counts_twice_where_another_policy_replaces() -> None:
    """Each is restated for the coarsest neighbours among them."""
    same = composed([policy(), policy("other")])
    mixed = composed([policy(), policy("other", relation="replace-one")])
    assert same is not None and mixed is not None
    assert "replace-one" in mixed.unit and "add-or-remove" in same.unit
    assert (mixed.epsilon or 0) > (same.epsilon or 0)


def with_larger_budget(account: PolicyAccount) -> PolicyAccount:
    """The same with a second owner, in whose ledger epsilon 4 is in force."""
    larger = Budget.of("4", "1e-5")
    south = replace(account.clients[0], client="south", in_force=larger, budget=4.0, ceiling=4.0)
    return replace(account, clients=(*account.clients, south))


def test_each_owner_enters_with_the_budget_in_her_own_ledger() -> None:
    """Joining, an owner may bring a larger one than the first owner's: all of it may be spent."""
    one = composed([with_larger_budget(policy(name)) for name in ("a", "b")])
    alone = composed([policy(), policy("other")])
    assert one is not None and one.epsilon is not None and alone is not None
    assert one.epsilon > 4 > (alone.epsilon or 9)


def test_without_masks_the_largest_budget_is_stated() -> None:
    """It counts once for each share of the noise."""
    own = policy()
    masked = replace(own, policy=replace(own.policy, masked=MaskedSums({"north": "", "south": ""})))
    first, both = (PolicyReport(one).unmasked for one in (masked, with_larger_budget(masked)))
    assert first is not None and both is not None and both > 4 > first


def test_a_cap_holds_for_the_policy_that_it_stands_in() -> None:
    """A record's policy leaves none of a person's records out: of twenty, not of the other policy's three, she loses."""
    one = composed([policy(), policy("other", unit="individual", cap=3)])
    assert one is not None and one.epsilon is None and one.unit.startswith("individual at each")
    assert "private released answers about all records of one individual" in one.why
    both = composed([policy(n, unit="individual", cap=3) for n in ("a", "b")])
    alone = composed([policy(), policy("other")])
    assert both is not None and alone is not None and both.epsilon == alone.epsilon


def test_of_a_person_replaced_nothing_follows_from_records_added() -> None:
    """Nor from records replaced: another person may have another number of them."""
    for relation in ("add-or-remove", "replace-one"):
        record = policy(relation=relation)
        one = composed([record, policy("other", unit="individual", cap=3, relation="replace-one")])
        assert one is not None and one.epsilon is None


@pytest.mark.parametrize(
    ("other", "why"),
    [
        (policy("published", unprotected=2, epsilon=None, ceiling=None), "published released"),
        (policy("test", secure=False), "test released without any finite guarantee"),
        (policy("client", unit="client"), "no theorem leads"),
    ],
)
def test_what_cannot_be_composed_is_said(other: PolicyAccount, why: str) -> None:
    """One open policy undoes the arithmetic for all; so do units that no theorem relates."""
    one = composed([policy(), other])
    assert one is not None and one.epsilon is None
    assert why in one.why
    three = composed([replace(other, policy=replace(other.policy, name=name)) for name in "abc"])
    assert three is not None and (
        "released" not in why or three.why.startswith("a, b and c released")
    )


def test_without_a_certified_ceiling_only_the_odometer_holds_of_the_sum() -> None:
    """A budget that was changed on the way certifies nothing, alone or together."""
    held = composed([policy(), policy("other")])
    amended = composed([policy(), policy("other", ceiling=None, amended=True)])
    assert held is not None and amended is not None
    assert (amended.epsilon or 0) > (held.epsilon or 0)


def test_a_data_owner_is_at_no_owner_s() -> None:
    """The unit is she herself."""
    both = composed([policy(unit="client", cap=1), policy("other", unit="client", cap=1)])
    assert both is not None and both.unit == "client (add-or-remove)"


def test_one_policy_needs_no_composing() -> None:
    """Its own card says all."""
    assert composed([policy()]) is None


@pytest.mark.parametrize("together", [True, False])
def test_page_text_and_plain_form_tell_the_sum_and_whether_it_happened(together: bool) -> None:
    """Alternatives in a simulation, or all carried out: each page says which."""
    study = replace(Study.built_in(), together=together)
    report = Report(study, tuple(PolicyReport(policy(f"p{n}")) for n in range(6)))
    html, plain = page(report), report.to_dict()
    assert "All 6 policies together" in html and "2.68" in html
    assert re.search(r"finds at most 5\.2\d %", html)
    assert ("alternatives in a simulation" in html) != together
    assert plain["composed"]["epsilon"] == pytest.approx(2.68, abs=0.01)
    assert plain["together"] is together
    assert "all together     epsilon 2.68" in summary(report)
    assert ("if all were carried out" in summary(report)) != together


def test_whose_word_a_total_rests_on() -> None:
    """One policy's claimed mechanism is told of in all policies' total, on the page and the console."""
    accounts = [policy(), policy("other", basis=("claimed:mine", "opendp:theirs"))]
    told = "by OpenDP's map of theirs; on the word of mine, not derived here"
    one = composed(accounts)
    assert one is not None and one.basis == told
    report = Report(Study.built_in(), tuple(map(PolicyReport, accounts)))
    assert f"({told})" in summary(report).splitlines()[-1]
    assert told.replace("'", "&#39;") in page(report)
