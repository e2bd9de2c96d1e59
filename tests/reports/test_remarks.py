"""Sentences beside the figures: each where it applies, on page, in text and in JSON alike."""

from __future__ import annotations

import re
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from privfed.accountants.zcdp import ZeroConcentrated
from privfed.attacks.finding import Finding
from privfed.privacy.accountant import Budget
from privfed.privacy.policy import Guard
from privfed.reports.account import KindLine
from privfed.reports.board import board_page
from privfed.reports.budget import PolicyReport, Report
from privfed.reports.page import page
from privfed.reports.regulator import regulator_page
from privfed.reports.remarks import remains, remarks, unspent
from privfed.reports.text import summary
from privfed.study import Study
from tests.reported import EXACT, HAD, NOISY, report_of

WHOLE = Finding(
    "verbatim", "Which?", "whole records found", 9, 9, releases=("own.rows",), severity="breach"
)
SCORED = {"measure": "accuracy", "better": "higher", "value": 0.8, "baseline": 0.6}


@pytest.fixture(autouse=True)
def _without_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sentences need none, and drawing takes its time."""
    monkeypatch.setattr("privfed.reports.charts.timeline", lambda clients, name: "<svg></svg>")


def told_everywhere(policy: PolicyReport, sentence: str) -> bool:
    """Whether page, text and JSON say it."""
    report = Report(Study.built_in(), (policy,))
    plain = report.to_dict()["policies"][0]["remarks"]
    assert [sentence in text for text in (page(report), summary(report))] == [True] * 2
    return any(sentence in text for text in plain)


def test_what_is_left_of_a_budget_is_told_with_what_it_may_pay() -> None:
    """Rounded down; the ceiling's rest in the accountant's own currency."""
    policy = report_of()
    accountant = ZeroConcentrated()
    left = accountant.left((Fraction(1, 10), Fraction(0)), Budget.of("8", "1e-5"))
    told = unspent(policy)
    assert "At most ε 2.5 of 8 is spent so far" in told
    shown = float(told.split("of up to ε ")[1])
    assert shown <= left < shown + 0.01
    assert told_everywhere(policy, "allows another study of the same data")


def test_failures_inside_gates_are_told_of_owners_who_had_any() -> None:
    """A count of 0 is none: studies of personal trees once stored one for each owner."""
    counts = {"north": {"own.rows": 2, "own.tree": 1}, "south": {"own.tree": 0}}
    told = [
        [text for text in remarks(policy) if "failed inside a gate" in text]
        for policy in (
            replace(report_of(), metrics={"faults": counts}),
            replace(report_of(), metrics={"faults": {"south": {"own.tree": 0}}}),
        )
    ]
    assert told[0][0].startswith("Answers that failed inside a gate: north 3. ") and not told[1]


def test_a_whole_budget_that_leaves_room_says_why() -> None:
    """A filter's bound of a part is no better than of the whole: both figures stand side by side."""
    (told, *_) = remains(Report(Study.built_in(), ()), report_of(epsilon=8.0, room=Fraction(1)))
    assert "at most epsilon 8 of 8 is spent (a loose bound" in told and "room for" in told
    (told, *_) = remains(Report(Study.built_in(), ()), report_of(epsilon=8.0, room=Fraction(0)))
    assert told.endswith("8 of 8 is spent; nothing is left.")


def test_each_owner_s_rest_stands_on_the_card_under_her_own_name() -> None:
    """An owner of whom another figure holds is not left out, and nobody's name gets a capital."""
    first, (other,) = report_of(), report_of(client="birch", room=Fraction(1)).clients
    both = replace(first.account, clients=(*first.clients, other))
    text = page(Report(Study.built_in(), (replace(first, account=both),)))
    assert "is spent; room for a study of epsilon 1.</dd>" in text
    assert "north: at most epsilon 2.5 of 8" in text and "birch: at most" in text


def test_a_kind_that_never_left_is_named_where_a_budget_is_left() -> None:
    """It may not have fitted, which is not the learner's choice."""
    policy = report_of()
    guards = {kind: (Guard.of("gaussian", spend="5"),) for kind in ("small.level", "small.leaves")}
    allowed = replace(policy.account, policy=replace(policy.account.policy, guards=guards))
    told = unspent(replace(policy, account=allowed))
    assert "(never released: small.leaves)" in told and "never released" not in unspent(policy)


@pytest.mark.parametrize(
    "changes",
    [{"epsilon": 7.95}, {"ceiling": None}, {"released": 0}, {"secure": False}],
)
def test_nothing_is_said_to_be_left_where_nothing_is_sure(changes: dict[str, Any]) -> None:
    """All but spent, amended, silent, or under test noise."""
    assert unspent(report_of(**changes)) == ""


@pytest.mark.parametrize(
    ("line", "found"), [(replace(EXACT, kind="own.rows", by_record=True), ()), (EXACT, (WHOLE,))]
)
def test_records_that_left_are_a_breach_in_red(line: KindLine, found: tuple[Finding, ...]) -> None:
    """By the form of what left or as attacks found; an attack that does not apply is not needed."""
    policy = report_of(line, found, epsilon=None, ceiling=None, risk=None)
    text = page(Report(Study.built_in(), (policy,)))
    assert (policy.strength, policy.handed_over) == ("breach", ("own.rows",))
    assert '<article class="card breach">' in text and '<p class="big">Breach</p>' in text
    assert "Not needed: unmodified records" in text and "no records to compare with" not in text
    assert "BREACH, NO GUARANTEE" in summary(Report(Study.built_in(), (policy,)))
    assert told_everywhere(policy, "in answers to own.rows")
    for told in (text, board_page(Report(Study.built_in(), (policy,)))):
        assert "not in full" not in told and "not tried in full" not in told
    assert policy.breaches == ()


def test_records_that_were_worked_out_are_a_breach_too() -> None:
    """An unprotected policy whose records were recovered; a protected one has its claim broken."""
    policy = report_of(EXACT, (HAD,), epsilon=None, ceiling=None, risk=None)
    text = page(Report(Study.built_in(), (policy,)))
    assert policy.strength == "breach" and policy.handed_over == ()
    assert ">7 of 331 records recovered</span>" in text
    assert report_of(NOISY, (HAD,)).strength == "broken"


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"refused": {"the budget is spent": 3}}, "every query was refused, for the budget is"),
        ({"failed": 2}, "2 charged queries failed"),
        ({}, "no owner answers any of the queries"),
    ],
)
def test_nothing_released_is_no_guarantee_and_says_why(changes: dict[str, Any], why: str) -> None:
    """Refused, failed or never asked."""
    policy = report_of(released=0, **changes)
    plain = Report(Study.built_in(), (policy,)).to_dict()["policies"][0]
    assert (plain["guarantee"], plain["silent"]) == ("none", True)
    assert told_everywhere(policy, why)


def test_a_record_s_guarantee_is_no_person_s() -> None:
    """Where persons have several records; and nothing of it where each has one."""
    several = {
        "persons": {"north": {"persons": 10, "several": 4}, "south": {"persons": 5, "several": 0}}
    }
    policy = report_of(metrics=several)
    assert told_everywhere(policy, "4 of 15 persons, counted at each owner, have several")
    one = {"persons": {"north": {"persons": 10, "several": 4}}}
    assert "4 of 10 persons have several records, " in " ".join(remarks(report_of(metrics=one)))
    assert any("at k times the ε" in text for text in remarks(policy))
    alone = {"persons": {"north": {"persons": 10, "several": 0}}}
    assert not any("persons" in text for text in remarks(report_of(metrics=alone)))


def test_one_run_is_called_one_draw_and_several_have_a_spread() -> None:
    """On the card, in the text and in the plain form."""
    once = report_of(metrics=SCORED)
    assert told_everywhere(once, "single noise draw")
    runs = {"count": 3, "without": 1, "values": [0.8, 0.5], "mean": 0.65, "deviation": 0.2}
    often = report_of(metrics={**SCORED, "runs": runs})
    assert told_everywhere(often, "3 runs, each with fresh noise and secrets; 1 gave no model")
    report = Report(Study.built_in(), (often,))
    assert "0.65\u00a0±\u00a00.20" in page(report) and "0.65\u00a0±\u00a00.20" in summary(report)
    assert not often.useless


def test_an_attack_that_finds_more_than_the_bound_without_any_release_is_said_to() -> None:
    """Beside a bound of 20 %: what an attacker knows of people beforehand is no release's doing."""
    listed = Finding("pool", "Who?", "share found", 0.49, 1.0, 0.43, 0.55, 0.396, severity="some")
    listed = replace(listed, measure="found at 1 %")
    said = "pool finds 39.6 % of the records from what it knows already"
    assert told_everywhere(report_of(found=(listed,)), said)
    assert not any(
        said[:10] in text for text in remarks(report_of(found=(replace(listed, baseline=0.01),)))
    )


def test_figures_in_the_targets_unit_are_rounded_alike_everywhere() -> None:
    """An error in a currency is a number with separators, on every page and line; no power of ten."""
    wages = {**SCORED, "value": 8492.63, "baseline": 16945.3, "better": "lower"}
    wages["beyond"] = {"limits": [24250.4, 83060.1], "records": 0.07, "variance": 0.3} | {
        "inside": 8203.2,
        "constant": 14980.7,
        "r2": -0.0012,
        "outside": 11540.9,
    }
    report = Report(Study.built_in(), (report_of(metrics=wages),))
    for told in (page(report), board_page(report), regulator_page(report), summary(report)):
        assert "8,493" in told and "16,945" in told and not re.search(r"\de\+\d", told)
    assert "7 % of the held-out records, with 30 % of" in summary(report)
    assert "between 24,250 and 83,060" in summary(report) and "R squared -0.0012)" in summary(
        report
    )


@pytest.mark.parametrize("changes", [{}, {"line": EXACT}])
def test_one_is_told_as_one(changes: dict[str, Any]) -> None:
    """One owner, one answer of one kind: no page and no line tells of one in the plural."""
    report = Report(Study.built_in(), (report_of(**changes),))
    for told in (page(report), board_page(report), regulator_page(report), summary(report)):
        words = re.sub(r"<svg.*?</svg>|<style.*?</style>|<[^>]+>", " ", told, flags=re.DOTALL)
        assert not re.findall(r"(?<![\d.,-])1 (?!is\b|has\b|was\b)[a-z]+s\b", words)
    assert "1 release, " in summary(report) and "1 answer, " in board_page(report)


def test_a_model_of_a_rare_class_that_it_never_predicts_is_judged_by_its_losses_too() -> None:
    """Accuracy is the constant's, log loss is better: told on every page, and nobody is told to discard it."""
    rare = {**SCORED, "value": 0.8, "baseline": 0.8, "scores": {"log loss": 0.46}}
    rare |= {"constants": {"log loss": 0.5}, "score_better": {"log loss": "lower"}}
    policy = report_of(metrics=rare)
    report = Report(Study.built_in(), (policy,))
    assert not policy.useless and [one.name for one in policy.saving] == ["log loss"]
    assert "0.8 (constant 0.8, no better), log loss 0.46 (constant 0.50)" in summary(report)
    for told in (page(report), board_page(report), regulator_page(report)):
        assert "Do not use the model" not in told and "og loss 0.46" in told
    assert "on the held-out records they were better than a constant" in board_page(report)
    worse = report_of(metrics={**rare, "scores": {"log loss": 0.6}})
    assert worse.useless and not worse.saving


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({}, "3 runs gave the same scores. A simulation"),
        (
            {"scores": {"log loss": {"mean": 1.0, "deviation": 0.3}}},
            "scores are mean ± one standard",
        ),
        ({"without": 1, "values": [0.8, 0.8]}, "1 gave no model: scores are mean ±"),
        ({"without": 2, "values": [0.8], "deviation": None}, "scores are of one run only"),
        ({"without": 3, "values": [], "deviation": None}, "there are no scores"),
    ],
)
def test_runs_are_the_same_only_where_all_their_figures_are(
    changes: dict[str, Any], told: str
) -> None:
    """And always a simulation, of which the ledgers hold the first run alone."""
    runs = {"count": 3, "without": 0, "values": [0.8] * 3, "mean": 0.8, "deviation": 0.0}
    said = remarks(report_of(metrics={**SCORED, "runs": {**runs, **changes}}))
    assert any(told in text and "the ledgers hold only the first run" in text for text in said)


def test_exact_numbers_are_no_draw() -> None:
    """Another run would come out alike."""
    exact = report_of(EXACT, metrics=SCORED)
    assert not any("draw" in text for text in remarks(exact))


def test_answers_that_came_to_nothing_are_counted_by_owner() -> None:
    """In a simulation, which can look into every gate."""
    policy = report_of(metrics={"faults": {"north": {"small.level": 3}}})
    assert told_everywhere(policy, "failed inside a gate: north 3")
    assert not any("gate" in text for text in remarks(report_of(metrics={"faults": {}})))


def test_heavy_tails_are_told_with_both_errors() -> None:
    """Within the limits and beyond, with the shares of records and of variance; nothing without them."""
    told = {
        "limits": [-8.0, 28.0], "records": 0.0095, "variance": 0.99,
        "inside": 1.0, "constant": 4.6, "r2": 0.95, "outside": 493.4,
    }  # fmt: skip
    report = report_of(metrics={**SCORED, "beyond": told})
    (found,) = (text for text in remarks(report) if "variance" in text)
    for figure in (
        "0.95 % of",
        "99 % of",
        "-8 and 28",
        "within the limits: 1 (constant 4.6",
        "beyond: 493.4",
    ):
        assert figure in found
    assert not any("variance" in text for text in remarks(report_of(metrics=SCORED)))


def test_a_summary_is_broken_at_the_terminal_s_width() -> None:
    """No line is longer, a continued line is indented below its text, and no word is lost."""
    report = Report(Study.built_in(), (report_of(metrics=SCORED),))
    broken = summary(report, 60)
    assert max(map(len, broken.splitlines())) <= 60 < max(map(len, summary(report).splitlines()))
    assert broken.split() == summary(report).split()
