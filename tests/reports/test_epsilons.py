"""Claimed, audited and attacked epsilon: each figure is a bound of its own kind, and what is missing is said."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure
from scipy.special import expit

from privfed.accountants.zcdp import ZeroConcentrated
from privfed.attacks.finding import Finding, Limit
from privfed.privacy.conversion import gaussian_epsilon
from privfed.privacy.policy import Policy
from privfed.questions.exact import shown
from privfed.reports.account import ChargedQuery, ClientAccount, PolicyAccount
from privfed.reports.board import board_page
from privfed.reports.budget import PolicyReport, Report
from privfed.reports.epsilons import AT_MOST, attained, drawn_rows, epsilons, plot
from privfed.reports.page import page
from privfed.study import Study

DELTA = 1e-5


def _report(*found: Finding, owners: int = 2, **changes: Any) -> Report:
    plain: dict[str, Any] = {
        "released": 1,
        "delta": DELTA,
        "steps": [ChargedQuery("a.kind", True, 2.0)],
    }
    clients = tuple(
        ClientAccount(f"owner {i}", **(plain | {"epsilon": 4.0} | changes)) for i in range(owners)
    )
    account = PolicyAccount(Policy({}, name="private"), ZeroConcentrated(), clients, ())
    return Report(Study.built_in(), (PolicyReport(account, found),))


def _finding(
    name: str, value: float, limit: Limit = "", detail: dict[str, Any] | None = None
) -> Finding:
    metric = "epsilon proven by the outputs, at least" if "audit" in name else "share"
    of = 2 * value if "audit" in name else 1
    return Finding(name, "Which?", metric, value, of, limit=limit, detail=detail or {})


def test_each_figure_is_the_strongest_of_its_kind() -> None:
    """The largest proof; the owner's own distance, whose attack's rate over all owners is then not read."""
    found = (
        _finding("audit gaussian", 0.5, detail={"delta": DELTA}),
        _finding("audit gaussian", 0.7, detail={"delta": DELTA}),
        _finding("worst_record", 1.0, detail={"by client": {"owner 0": {"mu": 1.0}}}),
        _finding("worst_record", 0.9, "found at 1 %"),
    )
    one, other = epsilons(_report(*found))
    assert (one.claimed, one.audited, one.audit_claim) == (4.0, 0.7, 1.4)
    assert one.attacked == pytest.approx(gaussian_epsilon(1.0, DELTA))
    assert other.attacked is None


def test_where_nothing_was_found_the_pages_say_what_the_picture_shows() -> None:
    """The best test of the most exposed record, beside attacks that found nothing; none without such a figure."""
    looked = _finding("pool", 0.5)
    distance = _finding("worst_record", 0.0, detail={"by client": {"owner 0": {"mu": 1.0}}})
    report, without = _report(looked, distance), _report(looked)
    best = attained(report.policies[0])
    assert best is not None and best == pytest.approx(gaussian_epsilon(1.0, DELTA))
    assert attained(without.policies[0]) is None
    said = f"found nothing above chance; the best test of the most exposed record attains ε&nbsp;{shown(best)}"
    assert said in page(report) and "the best test" not in page(without)
    assert f"most exposed record attains ε = {shown(best)}." in board_page(report)


def test_an_audit_at_a_smaller_delta_or_of_another_question_proves_nothing_here() -> None:
    """A bound at a smaller delta is larger than the truth at the claim's."""
    stricter = _finding("audit gaussian", 3.0, detail={"delta": DELTA / 2})
    elsewhere = Finding(
        "audit laplace", "?", "epsilon proven by outputs", 3.0, releases=("another.kind",)
    )
    assert [row.audited for row in epsilons(_report(stricter, elsewhere))] == [None, None]


@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_rates_stand_for_the_epsilon_that_allows_them(epsilon: float) -> None:
    """Of randomized response, whose rates are the largest that an epsilon allows."""
    area = _finding("membership", float(expit(epsilon)), "area")
    found = _finding("membership", 0.01 * math.exp(epsilon), "found at 1 %")
    for each in (area, found):
        (row, _) = epsilons(_report(each, delta=0.0))
        assert row.attacked == pytest.approx(epsilon)
    assert epsilons(_report(_finding("pool", 0.9)))[0].attacked is None


def test_without_a_finite_guarantee_the_claim_is_infinite() -> None:
    """Exact numbers tell everybody apart; test noise claims nothing."""
    (row, _) = epsilons(_report(_finding("membership", 1.0, "area"), unprotected=1, epsilon=None))
    assert row.claimed == row.attacked == math.inf
    assert epsilons(_report(secure=False))[0].claimed == math.inf


def test_the_picture_names_owners_and_what_was_not_looked_at() -> None:
    """On the page, and on axes of one's own; nothing is drawn where nobody looked."""
    audited = _finding("audit gaussian", 0.5, detail={"delta": DELTA})
    text = page(_report(audited))
    assert "private, owner 1" in text and text.count("no attacked figure") == 2
    axes = Figure().subplots()
    assert plot(_report(audited), ax=axes) is axes
    marks = [np.asarray(collection.get_offsets()) for collection in axes.collections]
    assert [float(each[0, 0]) for each in marks[:3]] == [4.0, 0.5, 1.0]
    assert len(marks[3]) == 0
    assert drawn_rows(_report()) == [] and "Claimed, audited" not in page(_report())
    many = _report(audited, owners=AT_MOST + 3)
    assert len(drawn_rows(many)) == AT_MOST
    assert f"the figure shows the {AT_MOST} owners from whom" in page(many)
    assert "owners from whom attacks learned" not in text
