"""Pages for a board and a regulator: the same figures as the engineer's, in sentences and by rule."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

from privfed.accountants.risk import Risk
from privfed.accountants.zcdp import ZeroConcentrated
from privfed.attacks.finding import Finding
from privfed.audits.sensitivities import NAME as SENSITIVITIES
from privfed.errors import InputError
from privfed.privacy.accountant import Budget
from privfed.reports.board import answers, board_page, chosen
from privfed.reports.budget import PolicyReport, Report
from privfed.reports.page import BROWSERS, verdict, write_pdf
from privfed.reports.regulator import pyramid, regulator_page
from privfed.study import Study
from privfed.study.choices import AboutChoice
from tests.reported import EXACT, HAD, NOISY, report_of

ABOUT = AboutChoice(
    "Plan beds", "Ashford Trust", "dpo@ashford.example", "Ethics board 12/24", "2024", "Stays", "A. Officer"
)  # fmt: skip


def report(*policies: PolicyReport, about: AboutChoice = ABOUT) -> Report:
    """A report of the built-in study under some policies."""
    return Report(replace(Study.built_in(), about=about), policies, "0")


def words(html: str) -> str:
    """A page's text."""
    return " ".join(re.sub(r"<style>.*?</style>|<[^>]+>", " ", html, flags=re.DOTALL).split())


def test_a_board_reads_what_left_the_odds_what_is_left_and_what_to_do() -> None:
    """In this order, with who answers for it above, and what is not covered below."""
    said = words(board_page(report(report_of())))
    headings = (
        "Purpose",
        "What was released, and to whom",
        "How risky",
        "What remains",
        "What to do",
        "What no figure",
    )
    assert [said.index(one) for one in headings] == sorted(said.index(one) for one in headings)
    assert "finds at most 20 on average" in said and "epsilon 2.5 of 8 is spent" in said
    assert "Ashford Trust" in said and "not stated" not in said and "[about]" not in said
    assert "Made on 20" in said and "opendp" in said


EVALUATED = {
    "measure": "root mean squared error", "value": 4.3, "better": "lower", "baseline": 3.9,
    "intervals": {"root mean squared error": [2.1, 5.7]}, "released": "released by the owners",
}  # fmt: skip


def test_what_owners_released_of_the_models_errors_is_on_the_pages() -> None:
    """With its interval; where the constant lies in it, neither page says that the model is better or worse."""
    policy = replace(report_of(), metrics=EVALUATED)
    whole = replace(report(policy), withheld=True)
    said = words(board_page(whole))
    assert "Root mean squared error 4.3 (2.1 to 5.7); predicting a constant: 3.9." in said
    assert "whether the model is better is not known" in said and "Do not use the model" not in said
    assert "What attacks achieved: left out" in said
    states = {block.name: block.state for block in pyramid(whole, policy)}
    assert states["Utility"] == "examined"
    worse = replace(policy, metrics=EVALUATED | {"baseline": 2.0})
    assert "Do not use the model" in words(board_page(replace(whole, policies=(worse,))))
    assert {b.name: b.state for b in pyramid(whole, worse)}["Utility"] == "not met"


def test_a_board_reads_of_a_cohort_whom_the_guarantee_does_not_cover() -> None:
    """A rule is no person; a search has found rules, and predicts for nobody held out."""
    found = {"measure": "coverage", "better": "higher", "value": 0.75, "baseline": 0.0}
    found |= {"told": "3 of 4 valid rules found", "individuals": 30, "records": {"cohort": 60}}
    one = report_of(
        replace(NOISY, about="Do you hold it?"),
        metrics=found,
        delta=0.0,
        risk=Risk({0.001: 1.0, 0.01: 1.0, 0.1: 1.0}, 1.0, 0.01, 0.5, 1.0),
    )
    account = replace(one.account, policy=replace(one.account.policy, unit="rule"))
    said = words(board_page(report(replace(one, account=account))))
    for share, told in (
        (0.020515, "at most 2.06 on"),
        (0.2, "at most 20 on"),
        (0.9999, "all 100 on"),
    ):
        risk = Risk({0.001: share, 0.01: share, 0.1: share}, share, 0.01, 0.5, 1.0)
        assert told in words(board_page(report(report_of(NOISY, risk=risk))))
    assert "Do you hold it? 1 time, with noise" in said and "finds up to all 100 on" in said
    assert "Persons are not protected" in said and "total ε of up to 16 on average" in said
    assert "Persons with several rules: k rules of one person" in said
    assert "3 of 4 valid rules found. Coverage 0.75. Measured" in said and "held out" not in said
    assert "measured in the simulation, against the truth" in words(regulator_page(report(one)))


def test_an_audit_has_one_figure_on_all_pages() -> None:
    """Of which kind and of how much, rounded as the engineer's page rounds it."""
    audit = Finding("audit gaussian", "?", "epsilon proven by outputs", 0.59949, of=0.75771)
    policy = replace(report_of(), findings=(replace(audit, releases=("small.level",)),))
    told = {block.name: block for block in pyramid(report(policy), policy)}
    evidence = told["Algorithms and correctness"].evidence
    assert evidence.startswith("audit gaussian of small.level: ") and verdict(audit) in evidence
    assert "delta 1e-05." in told["Privacy parameters"].claim


def test_what_disproves_a_sensitivity_is_evidence() -> None:
    """The regulator reads why an algorithm is not correct, whatever was wrong with it."""
    disproved = Finding(SENSITIVITIES, "?", "parts moved too far", 1, of=2, severity="breach")
    policy = replace(report_of(), findings=(replace(disproved, releases=("small.level",)),))
    told = {block.name: block for block in pyramid(report(policy), policy)}[
        "Algorithms and correctness"
    ]
    assert told.state == "not met" and told.evidence.startswith(
        f"{SENSITIVITIES} of small.level: 1 "
    )


def test_what_others_state_is_not_said_to_be_derived() -> None:
    """Beside the sensitivity of another author's query, that of privfed's own queries alone is."""
    for basis, said in (
        ((), "Sensitivities are derived in each"),
        (("query:my.mean",), "of privfed's own queries"),
    ):
        policy = report_of(basis=basis)
        told = {block.name: block for block in pyramid(report(policy), policy)}
        claim = told["Algorithms and correctness"].claim
        assert said in claim and ("my.mean" in claim) == bool(basis)
        assert ("in each query" in claim) == (not basis)


def test_a_remainder_that_no_study_can_use_is_no_room() -> None:
    """A page does not offer 2e-5 of a budget, and what rounding leaves is nothing."""
    budget, accountant = Budget.of("8", "1e-5"), ZeroConcentrated()
    for part, told in (("0.00002", "less than 1 % is left"), ("0.000001", "nothing is left")):
        total = (accountant.ceiling(budget)[0] * (1 - Fraction(part)), Fraction(0))
        room = accountant.left(total, budget)
        assert told in words(board_page(report(report_of(epsilon=8.0, total=total, room=room))))
    assert "room for a study of epsilon " in words(board_page(report(report_of())))


def test_what_is_not_stated_is_named() -> None:
    """Both where it should stand, and as something to do."""
    said = words(board_page(report(report_of(), about=AboutChoice(purpose="Plan beds"))))
    missing = "controller, contact, legal basis, period, data description, approver"
    assert (
        f"Not stated {missing}" in said
        and missing.replace(" b", "_b").replace("a d", "a_d") in said
    )


def test_a_board_is_never_told_that_what_is_open_is_protected() -> None:
    """Neither verdict nor odds: there is no bound to state."""
    policy = report_of(EXACT, (HAD,), epsilon=None, ceiling=None, risk=None)
    said = answers(report(policy), policy)
    assert not said.good and said.verdict == "Not protected, and an attack succeeded"
    audit = Finding("audit gaussian", "?", "epsilon proven by outputs", 0.6, of=0.8)
    states = {b.name: b.state for b in pyramid(report(policy), replace(policy, findings=(audit,)))}
    assert states["Algorithms and correctness"] == "not met"
    assert not any("on average" in text for text in said.risk)
    had = replace(
        policy, findings=(replace(HAD, metric="whole records", releases=("small.level",)),)
    )
    assert answers(report(had), had).verdict == "Not protected: unmodified records were released"
    assert any("Do not pass on this model" in text for text in said.to_do)


def test_a_board_decides_on_one_policy() -> None:
    """The first with a guarantee unless named; the others in one sentence; an unknown name is an error."""
    policy = report_of(EXACT, (HAD,), epsilon=None, ceiling=None, risk=None)
    account = replace(policy.account, policy=policy.account.policy.renamed("open"))
    both = report(replace(policy, account=account), report_of())
    assert chosen(both).name == "one" and chosen(both, "open").name == "open"
    assert "Also tried" in words(board_page(both))
    with pytest.raises(InputError, match="no policy 'other'"):
        board_page(both, "other")


def test_blocks_are_met_by_rule() -> None:
    """Parameters by epsilon and delta; persons by the unit; what nobody looked at is not met by that."""
    states = {block.name: block.state for block in pyramid(report(report_of()), report_of())}
    assert states["Privacy parameters"] == "met" and states["Unit of privacy"] == "not met"
    assert (
        states["Utility"] == "not examined" and states["Data collection exposure"] == "not examined"
    )
    assert states["Data security and access control"] == "outside"
    weak = report_of(epsilon=30.0, ceiling=30.0)
    assert {b.name: b.state for b in pyramid(report(weak), weak)}["Privacy parameters"] == "not met"
    assert "2 of 11 blocks met, 1 not met, 1 examined" in words(regulator_page(report(report_of())))


def test_groups_that_are_reported_are_examined_and_groups_apart_are_not_met() -> None:
    """A report of error by group is no proof of equality; two intervals without a common point are a difference."""
    far = {"group": "men", "held_out": 9, "value": 3.0, "low": 2.5, "high": 3.5}
    for low, high, state in ((2.0, 2.6, "examined"), (1.0, 2.4, "not met")):
        near = {"group": "women", "held_out": 9, "value": 2.2, "low": low, "high": high}
        alone = {"group": "other", "held_out": 1, "value": 9.0, "low": None, "high": None}
        metrics = {"measure": "RMSE", "groups": {"sex": [far, near, alone]}}
        policy = replace(report_of(), metrics=metrics)
        (bias,) = (block for block in pyramid(report(policy), policy) if block.name == "Bias")
        assert bias.state == state
        assert ("men and women (sex)" in bias.claim) == (state == "not met")


def test_a_board_s_pages_are_two(tmp_path: Path) -> None:
    """Printed on A4 by a real browser, where there is one."""
    if not any(map(shutil.which, BROWSERS)) or not shutil.which("pdfinfo"):
        pytest.skip("no browser, or no pdfinfo")
    page, pdf = tmp_path / "board.html", tmp_path / "board.pdf"
    page.write_text(board_page(report(report_of())), encoding="utf-8")
    write_pdf(page, pdf)
    told = subprocess.run(["pdfinfo", str(pdf)], capture_output=True, text=True, check=True).stdout
    assert int(re.findall(r"Pages:\s+(\d+)", told)[0]) <= 2


def test_without_a_browser_a_pdf_is_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With what to do instead."""
    monkeypatch.setattr("privfed.reports.page.which", lambda name: None)
    with pytest.raises(InputError, match="install Chromium, or open"):
        write_pdf(tmp_path / "board.html", tmp_path / "board.pdf")
