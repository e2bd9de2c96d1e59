"""Two runs side by side: what differs in study and policy, scores with intervals, findings that are new or gone."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from scipy.stats import ttest_ind

from privfed.accountants.zcdp import ZeroConcentrated
from privfed.attacks.finding import Finding
from privfed.privacy.accountant import Budget
from privfed.privacy.policy import Policy
from privfed.reports.account import KindLine, PolicyAccount
from privfed.reports.budget import PolicyReport, Report
from privfed.reports.comparison import NOT_THERE, Line, compared, comparison_lines, comparison_page
from privfed.reports.page import BROWSERS
from privfed.study import Study
from tests.reported import NOISY, client_of

FOUND = Finding(
    "pool", "Who?", "share of the used records on a list found", 0.4, 1.0, 0.3, 0.5, 0.01, severity="some"
)  # fmt: skip


def run(
    epsilon: str = "8",
    values: tuple[float, ...] = (),
    found: tuple[Finding, ...] = (),
    name: str = "one",
    depth: int = 2,
    kinds: tuple[KindLine, ...] = (NOISY,),
) -> Report:
    """A run of one policy, with a score for each draw of noise."""
    policy = Policy({}, name=name, accountant="zcdp", budget=Budget.of(epsilon, "1e-5"))
    spent = float(epsilon)
    client = client_of(epsilon=spent, budget=spent, ceiling=spent)
    metrics: dict[str, Any] = {"records": {"north": 9}}
    if values:
        mean = sum(values) / len(values)
        spread = sum((one - mean) ** 2 for one in values) / max(len(values) - 1, 1)
        repeated = {"count": len(values), "values": values, "mean": mean, "deviation": spread**0.5}
        metrics |= {"measure": "RMSE", "value": values[0], "baseline": 9.0, "better": "lower"}
        metrics |= {"runs": repeated} if len(values) > 1 else {}
    account = PolicyAccount(policy, ZeroConcentrated(), (client,), kinds)
    built_in = Study.built_in()
    study = replace(built_in, learner=replace(built_in.learner, params={"max_depth": depth}))
    return Report(study, (PolicyReport(account, found, metrics),), "0")


def line(lines: tuple[Line, ...], what: str) -> Line:
    """The line of one figure."""
    return next(one for one in lines if one.what == what)


def test_what_differs_is_named_by_its_key_and_nothing_else() -> None:
    """A learner's parameter and a budget; two equal runs differ in nothing."""
    told = compared(run("8", depth=2), run("2", depth=1))
    changed = {one.what: (one.before, one.now) for one in told.changed}
    assert changed == {
        "learner.params.max_depth": ("2", "1"),
        "adopted policy.one.budget.epsilon": ("8", "2"),
    }
    assert compared(run(), run()).changed == ()
    (policy,) = told.policies
    assert line(policy.lines, "guarantee").now == "epsilon 2 at delta 1e-05 for each record"
    assert line(policy.lines, "releases").same


def test_scores_differ_by_welch_s_interval() -> None:
    """The same as scipy's test of unequal variances; a difference inside the interval is not shown."""
    old, new = (5.0, 5.4, 4.8, 5.1), (4.1, 4.5, 3.9)
    (policy,) = compared(run(values=old), run(values=new)).policies
    low, high = ttest_ind(new, old, equal_var=False).confidence_interval(0.95)
    gap = sum(new) / 3 - sum(old) / 4
    assert line(policy.lines, "RMSE").change == f"{gap:+.4g}, {low:.4g} to {high:.4g}, better"
    (policy,) = compared(run(values=old), run(values=(4.0, 6.0))).policies
    assert line(policy.lines, "RMSE").change.endswith("no difference shown")
    (policy,) = compared(run(values=old), run(values=(4.0,))).policies
    assert (
        "; undecided: no interval without several runs of both" in line(policy.lines, "RMSE").change
    )


def test_a_score_without_noise_is_one_draw_of_the_owners_secrets() -> None:
    """Bootstraps of a published forest are drawn by secret coins: two runs differ without any noise."""
    told = [run(values=(value,), kinds=()) for value in (4.0, 4.1)]
    assert not any(one.noisy for each in told for one in each.policies)
    (policy,) = compared(*told).policies
    assert (
        "; undecided: no interval without several runs of both" in line(policy.lines, "RMSE").change
    )


@pytest.mark.parametrize(
    ("before", "now", "change"),
    [
        ((), (FOUND,), "no comparison"),
        ((replace(FOUND, severity="none"),), (FOUND,), "new"),
        ((FOUND,), (replace(FOUND, severity="none"),), "gone"),
        ((FOUND,), (replace(FOUND, severity="none", partial="cut short"),), "no comparison"),
        ((FOUND,), (FOUND,), "in both"),
    ],
)
def test_findings_are_new_or_gone_only_where_both_runs_tried(
    before: tuple[Finding, ...], now: tuple[Finding, ...], change: str
) -> None:
    """An attack that was not tried, or was cut short, says nothing."""
    (policy,) = compared(run(found=before), run(found=now)).policies
    assert [one.change for one in policy.findings] == [change]
    shown = "40.0 % of the used records on a list found (30.0 % to 50.0 %)"
    assert shown in (policy.findings[0].before, policy.findings[0].now)


def test_what_one_page_leaves_out_is_not_called_absent() -> None:
    """Its attacks were tried and its model scored, whatever the page without the truth says of them."""
    known = run(values=(5.0, 5.4), found=(FOUND,))
    hidden = tuple(one.without_truth() for one in known.policies)
    (policy,) = compared(known, replace(known, policies=hidden, withheld=True)).policies
    assert [one.now for one in policy.findings] == ["left out"]
    assert (
        line(policy.lines, "RMSE").now == line(policy.lines, "attacked epsilon").now == "left out"
    )


def test_a_policy_of_one_run_alone_is_named_and_not_compared() -> None:
    """Neither its scores nor its findings: there is nothing beside them."""
    told = compared(run(name="old", found=(FOUND,)), run(name="new"))
    assert [(one.name, len(one.lines), one.findings) for one in told.policies] == [
        ("new", 1, ()),
        ("old", 1, ()),
    ]
    said = comparison_lines(told)
    assert f"epsilon 8 at delta 1e-05 for each record -> {NOT_THERE}" in said and "pool" not in said
    (open_,) = run().policies
    (client,) = open_.clients
    account = replace(open_.account, clients=(replace(client, unprotected=1),))
    unlimited = replace(run(), policies=(replace(open_, account=account),))
    said = comparison_lines(compared(run(name="old"), unlimited))
    assert f"{NOT_THERE} -> no finite one" in said


def test_page_and_console_say_the_same_in_a_real_browser(tmp_path: Path) -> None:
    """Every line of the text is in the page as a browser lays it out; a name is text, whatever it holds."""
    before, now = run("8", (5.0, 5.4), (FOUND,)), run("2", (6.1, 6.3))
    now = replace(now, study=replace(Study.built_in(), name="<script>alert(1)</script>"))
    told = compared(before, now)
    html, said = comparison_page(told), comparison_lines(told)
    assert "<script>" not in html and "&lt;script&gt;" in html
    for one in (*told.changed, *told.policies[0].lines, *told.policies[0].findings):
        assert one.what in said and one.what in html
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        pytest.skip("no browser")
    page = tmp_path / "comparison.html"
    page.write_text(html, encoding="utf-8")
    flags = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path}/profile"]
    seen = subprocess.run(
        [browser, *flags, "--dump-dom", page.as_uri()], capture_output=True, text=True, timeout=60, check=True
    ).stdout  # fmt: skip
    assert seen.count("<tbody>") == 3
    assert "no comparison" in seen and "<h1>&lt;script&gt;" in seen
