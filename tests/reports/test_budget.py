"""Budget reports: verdicts follow from ledgers and findings, and the page says them plainly."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from html import escape
from typing import Any

import numpy as np
import pytest

from privfed.accountants.pld import ComposedGuarantee
from privfed.accountants.risk import Risk, Tradeoff
from privfed.accountants.zcdp import ZeroConcentrated
from privfed.attacks.finding import Finding, Limit, Severity
from privfed.attacks.membership import between_draws
from privfed.exchange.messages import EXPLANATIONS, Reason
from privfed.privacy.policy import Guard, Policy
from privfed.questions.part import Relation, Unit
from privfed.reports.account import (
    BlockAccount,
    ChargedQuery,
    ClientAccount,
    KindLine,
    PolicyAccount,
)
from privfed.reports.board import answers, board_page, chosen
from privfed.reports.budget import PolicyReport, Report, findings
from privfed.reports.charts import timeline
from privfed.reports.page import (
    claim,
    cost,
    figure_of,
    number,
    page,
    percent,
    reach_of,
    size,
    verdict,
)
from privfed.reports.remarks import to_do
from privfed.reports.text import finding_lines, summary
from privfed.study import Study
from tests.reported import BUDGET, NOISY, client_of

SCARE = Finding("recovery", "Which records?", "records recovered", 7, 331, severity="breach")
SAFE = replace(SCARE, value=0, severity="none")


def _policy(
    client: ClientAccount,
    found: tuple[Finding, ...] = (),
    metrics: Mapping[str, Any] | None = None,
    unit: Unit = "record",
) -> PolicyReport:
    policy = Policy({}, unit, name="private", accountant="zcdp", budget=BUDGET)
    account = PolicyAccount(policy, ZeroConcentrated(), (client,), (NOISY,))
    return PolicyReport(account, found, metrics or {})


def _client(**changes: Any) -> ClientAccount:
    plain: dict[str, Any] = {
        "tight": ComposedGuarantee(2.0, 1e-5, "pld", "valid whatever was asked"),
        "steps": [ChargedQuery("small.level", True, 2.5)],
        "principals": {"server"},
    }
    return client_of(**(plain | changes))


def _block(epsilon: float) -> BlockAccount:
    risk = Risk({0.001: 0.02, 0.01: 0.1, 0.1: 0.3}, 0.2, 0.01, 0.1, 0.1)
    return BlockAccount(epsilon, 1e-5, "filter", 0.5, epsilon, risk)


def _page(*policies: PolicyReport) -> str:
    return page(Report(Study.built_in(), policies, "0"))


@pytest.fixture(autouse=True)
def _timelines_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """A page's picture of all releases is empty, but where it is what is tested."""
    monkeypatch.setattr("privfed.reports.charts.timeline", lambda clients, name: "<svg></svg>")


def test_releases_are_drawn_by_kind_and_order_and_alike_each_time() -> None:
    """Kinds by name, what is spent and the budget; without a charge no second panel."""
    told = timeline([_client(), _client(budget=None)], "private")
    assert told == timeline([_client(), _client(budget=None)], "private")
    assert told.startswith("<svg") and "<metadata>" not in told
    for word in ("Releases under private", "small.level", "epsilon spent", " budget"):
        assert word in told
    free = replace(_client(), steps=[ChargedQuery("small.level", False, None)])
    assert "epsilon spent" not in timeline([free], "published")


def test_a_line_that_meets_the_budget_early_is_explained() -> None:
    """Where two queries or more are at the budget, the page says what each step bounds; elsewhere, and beyond, nothing."""

    def said(*spent: float | None, **changes: Any) -> bool:
        steps = [ChargedQuery("small.level", True, each) for each in spent]
        return "even if the server stops" in _page(_policy(_client(steps=steps, **changes)))

    most = _client().budget
    assert most is not None
    assert said(1.0, most, most) and not said(1.0, most) and not said(most)
    assert not said(most, most, over=True) and not said(None, None, budget=None)


def test_a_study_s_own_cost_is_that_of_its_dearest_block() -> None:
    """Its card says so; the owner who can be found best, by other studies, may have a cheaper one."""
    first = _client(block=_block(3.0))
    other = _client(client="north", block=replace(_block(2.0), share=0.25), epsilon=6.0)
    for policy in (_policy(first), _policy(other)):
        assert "It reserved" in _page(policy)
    account = replace(_policy(first).account, clients=(first, other))
    text = _page(PolicyReport(account))
    assert PolicyReport(account).worst_off is other
    assert (
        "reserved 25 % to 50 % of the rho that each owner" in text
        and "study's block: ε 3 at" in text
    )


@pytest.mark.parametrize(("own", "said"), [(2.0, True), (3.0, False)])
def test_why_more_is_spent_so_far_than_a_study_s_own_epsilon_is_said(
    own: float, said: bool
) -> None:
    """Of all studies, and whenever somebody stops: the two figures stand on one page."""
    text = _page(_policy(_client(block=_block(own))))
    assert ("It can therefore exceed this study's own ε" in text) == said
    lasting = _policy(_client(block=_block(own)))
    assert "in all studies so far" in text and "in all studies" not in _page(_policy(_client()))
    assert "in all studies so far, of" in board_page(Report(Study.built_in(), (lasting,), "0"))
    shown = re.sub(r"<style>.*?</style>|</?(b|code)>", "", text, flags=re.DOTALL)
    shown = re.sub(r"<[^>]+>", " ", shown)
    assert "Spent so far: at most" in shown and not re.search(r"[a-z]{2}\.[A-Z]", shown)


def test_what_stays_with_a_client_is_not_called_unmodified_and_costs_no_bar() -> None:
    """A personal tree is grown and kept: nothing leaves, and nothing is spent, also without a budget."""
    report = _policy(_client(epsilon=0.0, budget=None, ceiling=None))
    (line,) = report.account.kinds
    kept = replace(line, parts={}, losses=("nothing",))
    text = _page(replace(report, account=replace(report.account, kinds=(kept,))))
    assert "nothing leaves" in text and "unmodified</span>" not in text
    assert '<i style="width:0.0%">' in text


def test_a_finite_guarantee_is_said_with_its_numbers() -> None:
    """Epsilon, delta in words, and the risk."""
    text = _page(_policy(_client()))
    assert "ε&nbsp;=&nbsp;8" in text
    assert "at most ε&nbsp;2.5" in text
    assert "Differential privacy at ε = " in text and ", δ = 1e-05 for each record" in text
    assert "a chance of 1 in" not in text
    assert "<b>20 %</b>" in text
    assert "Unprotected</p>" not in text
    assert (
        "Tight composition (PLD) of all that the policy allows:\nε 2 at" in text
        and "valid whatever was asked" in text
    )
    assert "flags 1 % of the records that were not used identifies at most 20 %" in text


def test_without_a_tighter_figure_the_page_says_why() -> None:
    """An adaptive training keeps its accountant's own figure."""
    own = ComposedGuarantee(8.0, 1e-5, "filter", "valid for adaptively chosen amounts")
    text = _page(_policy(_client(tight=own)))
    assert "Tight composition" not in text
    assert "valid for adaptively chosen amounts" in text
    assert "is answered give no tighter bound" in text
    counts = {"own.kind": (Guard.of("laplace", spend="1"),)}
    endless = _policy(_client(tight=own))
    account = replace(endless.account, policy=replace(endless.account.policy, guards=counts))
    assert "A tighter bound needs a policy that limits" in _page(replace(endless, account=account))


@pytest.mark.parametrize(("found", "strength"), [(0.5, "safe"), (0.51, "weak"), (0.999, "weak")])
def test_a_guarantee_that_hides_less_than_half_is_weak(found: float, strength: str) -> None:
    """A finite epsilon alone is no verdict: the card, the tag and the plain forms say what it is worth."""
    risk = Risk({0.001: found, 0.01: found, 0.1: found}, 0.4, 0.01, 0.17, 0.2)
    report = _policy(_client(risk=risk))
    text = _page(report)
    assert report.strength == strength
    assert f'<article class="card {strength}">' in text
    assert ("Finite, but weak: an attacker may identify" in text) == (strength == "weak")
    assert ("weak guarantee" in text) == (strength == "weak")
    whole = Report(Study.built_in(), (report,))
    advice = " ".join(to_do(whole, report))
    assert ("what is spent stays spent" in advice) == (strength == "weak")
    assert "take a smaller epsilon" not in advice
    assert whole.to_dict()["policies"][0]["strength"] == strength
    assert ("epsilon 8 at delta 1e-05, weak" in summary(whole)) == (strength == "weak")


def test_a_rule_s_epsilon_stands_beside_the_person_s() -> None:
    """Rules held times epsilon, where a simulation knows how many are held; not under a delta."""
    metrics = {"individuals": 4, "records": {"cohort": 40}}
    for delta, told in ((0.0, True), (1e-5, False)):
        report = _policy(_client(delta=delta), metrics=metrics, unit="rule")
        text = _page(report)
        assert " for each rule" in summary(Report(Study.built_in(), (report,)))
        assert ("A person holds 10 rules here on average" in text) == told
        assert ("up to 80 on average" in text) == told


@pytest.mark.parametrize(
    ("unit", "asked", "claimed"),
    [
        ("record", "a record was used?", "for each record at each owner"),
        ("rule", "a rule was used?", "for each rule at each owner"),
        ("individual", "a person took part?", "for each person at each owner"),
        ("client", "a data owner took part?", "for each data owner, for any later queries"),
    ],
)
def test_the_page_speaks_of_the_policy_s_unit(unit: Unit, asked: str, claimed: str) -> None:
    """Of records only where records are protected; of rules with what that leaves open."""
    text = _page(_policy(_client(), unit=unit))
    assert asked in text and claimed in text
    assert ("record" in text.split("<h2>Verification")[0].split("<main>")[1]) == (unit == "record")
    assert ("Persons are not protected" in text) == (unit == "rule")


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({}, "1 data owner answered"),
        ({"people": 1}, "1 individual answered"),
        ({"people": 60}, "60 individuals answered"),
    ],
)
def test_who_answered_is_counted(changes: dict[str, Any], told: str) -> None:
    """A cohort is its individuals, whoever keeps their ledger."""
    text = _page(_policy(_client(**changes)))
    assert told in text
    assert ("figures of the one with the highest cost" in text) == ("people" in changes)


@pytest.mark.parametrize(
    ("losses", "told"),
    [
        (("ε 4",), "ε\u00a04"),
        (("ε 1", "ε 2"), "ε\u00a01 or ε\u00a02"),
        (("ε 0.5", "ε 0.7", "ε 1.1", "ε 5.6"), "ε\u00a00.5 to ε\u00a05.6"),
        (("ε 1 (by a word)", "ε 2 (by a word)"), "ε\u00a01 or ε\u00a02 (by a word)"),
        (("ε 1 (by a word)", "ε 2 (by two)"), "ε\u00a01 (by a word) or ε\u00a02 (by two)"),
    ],
)
def test_the_cost_names_the_largest(losses: tuple[str, ...], told: str) -> None:
    """From the least to the most, however many there are."""
    assert cost(KindLine("k", "", {}, 1, losses, True, ())) == told


def test_one_unprotected_release_is_loud() -> None:
    """No epsilon is shown beside it, whatever the rest cost."""
    text = _page(_policy(_client(unprotected=1, epsilon=None, risk=None, tight=None)))
    assert '<p class="big">Unprotected</p>' in text
    assert "no bound" in text
    assert "ε&nbsp;=" not in text


def test_test_noise_is_no_guarantee() -> None:
    """A finite sum of losses with seeded noise protects nobody, and the page says so."""
    report = _policy(_client(secure=False))
    assert not report.finite and report.detection == 1.0
    assert "Test noise" in _page(report)


@pytest.mark.parametrize(
    ("changes", "found", "told"),
    [
        (
            {},
            (SCARE, SCARE),
            "private: recovery violates a finite guarantee (all releases)",
        ),
        ({"over": True}, (), "private: north spent more than its budget"),
        ({"intact": False}, (), "private: the ledger of north does not verify"),
    ],
)
def test_a_broken_claim_is_a_breach(
    changes: dict[str, Any], found: tuple[Finding, ...], told: str
) -> None:
    """A convicting finding, an overspent budget, a rewritten ledger."""
    report = Report(Study.built_in(), (_policy(_client(**changes), found),))
    assert report.breaches == (told,)
    assert told in page(report)
    assert '<p class="big">Guarantee violated</p>' in page(report)


@pytest.mark.parametrize(
    ("limit", "low", "beyond"),
    [
        ("found at 1 %", 0.21, True),  # the ledger allows 0.2
        ("found at 1 %", 0.19, False),
        ("area", 0.83, True),  # an advantage of 0.4 allows 1/2 + 0.4 - 0.08
        ("area", 0.81, False),
        ("", 0.99, False),
    ],
)
def test_what_exceeds_the_ledgers_bound_is_a_broken_claim(
    limit: Limit, low: float, beyond: bool
) -> None:
    """However an attack grades itself: what it surely got is held to what was charged."""
    told = replace(SAFE, of=1.0, value=low, low=low, high=1.0, limit=limit)
    assert bool(_policy(_client(), (told,)).breaches) == beyond
    assert _policy(_client(risk=None, unprotected=1), (told,)).breaches == ()


@pytest.mark.parametrize(("low", "beyond"), [(0.86, False), (0.88, True)])
def test_a_lower_limit_beyond_the_bound_by_chance_breaks_no_claim(low: float, beyond: bool) -> None:
    """At 95 % every fortieth honest policy would seem broken: four half intervals must lie beyond."""
    told = replace(SAFE, of=1.0, value=0.89, low=low, high=0.99, limit="area")
    assert bool(_policy(_client(), (told,)).breaches) == beyond


@pytest.mark.parametrize(
    ("value", "low", "allowed"),
    [(0.8, None, True), (0.83, None, False), (0.85, 0.81, True), (0.85, 0.83, False)],
)
def test_what_the_guarantee_allows_is_no_alarm(
    value: float, low: float | None, allowed: bool
) -> None:
    """An advantage of .4 bounds the area by .82: up to it, or by chance beyond, the page is calm."""
    told = replace(SCARE, of=1.0, value=value, severity="some", measure="area", harm="it tells")
    told = replace(told, low=low, high=None if low is None else 0.95)
    report = _policy(_client(), (told,))
    assert report.above == (told,) and report.broken == (() if allowed else (told,))
    assert report.attacks.allowed == (("recovery",) if allowed else ())
    assert report.attacks.found == (() if allowed else ("recovery",))
    assert ("Consistent with the guarantee: " in _page(report)) == allowed
    open_ = _policy(_client(unprotected=1, epsilon=None), (told,))
    assert open_.broken == (told,), "nothing is allowed where nothing is guaranteed"


def test_what_a_clients_own_model_tells_is_not_said_to_be_within_the_guarantee() -> None:
    """It never left, so that no charge bounds it; nor does it contradict one."""
    own = replace(SCARE, of=1.0, value=0.7, severity="some", at_home=True)
    report = _policy(_client(), (own,))
    assert report.above == report.broken == () and report.at_home == (own,)
    assert report.attacks.at_home == ("recovery",) and report.attacks.allowed == ()
    assert not report.breaches
    said = "in clients' own models, which stay with them and which no guarantee covers"
    for text in (summary(Report(Study.built_in(), (report,))), _page(report)):
        assert (
            said in text.lower().replace("&#39;", "'")
            and "consistent with the guarantee" not in text.lower()
        )


def test_a_hundred_clients_of_an_honest_policy_are_hardly_ever_convicted() -> None:
    """Noisy scores at a hundred clients, a draw each: the area errs, and that convicts nobody."""
    rng, distance, clients = np.random.default_rng(0), 0.02, 100
    risk = Risk.of(Tradeoff.zcdp(distance**2 / 2))
    seemed = convicted = 0
    for _ in range(200):
        drawn = distance * rng.normal(size=(2, clients))
        members, others = drawn + np.array([[1], [-1]]) * distance**2 / 2
        areas = np.array([(members > other).mean() for other in others])
        half = between_draws(areas)
        low = float(areas.mean() - half)
        told = replace(SAFE, of=1.0, value=low + half, low=low, high=1.0, limit="area")
        seemed += low > 0.5 + risk.advantage - risk.advantage**2 / 2
        convicted += bool(_policy(_client(risk=risk), (told,)).breaches)
    assert seemed > 3
    assert convicted == 0


def test_what_claims_nothing_cannot_be_broken() -> None:
    """The same finding against an unprotected policy is told, and is no breach."""
    report = _policy(_client(unprotected=1, epsilon=None), (SCARE, SAFE))
    assert report.breaches == ()
    assert report.broken == (SCARE,)
    assert report.worst == "breach"
    assert "7 of 331 records recovered" in _page(report)


def test_a_model_that_is_worth_nothing_and_values_that_were_cut_are_told() -> None:
    """In words, beside the figures."""
    scores = {"measure": "RMSE", "better": "lower", "value": 76.0, "baseline": 75.6}
    text = _page(_policy(_client(), (), {**scores, "clipped": {"north": 81}}))
    assert "no better than the constant baseline" in text
    assert "sim</span> 81 values of north were outside the public bounds" in text
    alone = _page(_policy(_client(), (), {**scores, "clipped": {"<b>": 1}}))
    assert "1 value of &lt;b&gt; was outside" in alone
    noted = _page(_policy(_client(), (), {"warnings": ["the budget is too small"]}))
    assert "Note from training: the budget is too small." in noted
    better = _page(_policy(_client(), (), {**scores, "value": 60.0}))
    assert "no better than" not in better and "lay beyond" not in better


def test_the_constant_baseline_has_a_row_where_it_is_one_for_all() -> None:
    """Personal models are compared with constants of their own, beside each figure; a row would hold dashes."""
    scores = {"measure": "RMSE", "better": "lower", "value": 60.0, "baseline": 75.6}
    for baseline, row in ((75.6, True), (75.5, False)):
        policies = [_policy(_client(), (), {**scores, "baseline": own}) for own in (75.6, baseline)]
        text = _page(*policies)
        assert ("<th>constant baseline</th>" in text) == row
        assert ("constant 75.5</span>" in text) != row


def test_an_attack_that_does_not_apply_is_named() -> None:
    """In the table and in the plain form, so that its silence is not read as a pass."""
    idle = {"membership": "Was this record there?"}
    for found in ((), (SAFE,)):
        report = replace(_policy(_client(), found), inapplicable=idle)
        text = _page(report)
        assert (
            "Was this record there?" in text
            and "Not applicable: no release of the kind it reads" in text
        )
        assert "none was run" not in text
        (plain,) = Report(Study.built_in(), (report,)).to_dict()["policies"]
        assert plain["inapplicable"] == idle


def test_only_what_was_found_out_is_marked_a_simulation() -> None:
    """Where no attack was run, as over owners' own machines, a card says so without the mark."""
    mark = 'Attacks <span class="mark" title="simulation">'
    assert mark in _page(_policy(_client(), (SAFE,)))
    assert mark not in _page(_policy(_client()))


def test_names_and_texts_are_escaped() -> None:
    """A client's name is text, whatever it holds."""
    text = _page(_policy(_client(client="<script>alert(1)</script>")))
    assert "<script>" not in text
    assert "&lt;script&gt;" in text


def test_a_run_without_a_model_says_so() -> None:
    """A learner that got no answer leaves its reason."""
    text = _page(_policy(_client(), (), {"stopped": "no client answered"}))
    assert "no model: no client answered" in text


def test_equal_reports_are_equal_pages() -> None:
    """No counter and no random identifier; the second in which each was made may differ."""
    one, other = (re.sub(r"Made on \S+", "", _page(_policy(_client()))) for _ in range(2))
    assert one == other


def test_findings_survive_their_file() -> None:
    """Plain data and back, lists for tuples as JSON has them."""
    plain = {**SCARE.to_dict(), "releases": ["a", "b"]}
    (again,) = findings([plain])
    assert again == replace(SCARE, releases=("a", "b"))
    assert findings(None) == ()


def test_the_plain_form_says_the_same() -> None:
    """Verdicts, guarantees and findings are in the JSON report too."""
    plain = Report(Study.built_in(), (_policy(_client(), (SCARE,)),)).to_dict()
    (policy,) = plain["policies"]
    assert policy["guarantee"] == "finite"
    assert (policy["epsilon"], policy["epsilon_so_far"]) == (8.0, 2.5)
    assert policy["findings"][0]["value"] == 7
    assert plain["simulation"] is True and plain["breaches"]


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (None, "none"),
        (3, "3"),
        (12345.0, "12,345"),
        (float("inf"), "∞"),
        (1234.567, "1,235"),
        (0.0123, "0.0123"),
        ("p", "p"),
    ],
)
def test_numbers_are_for_people(value: object, told: str) -> None:
    """Separators for large ones, four digits for small ones."""
    assert number(value) == told


def test_nearly_all_is_never_called_all() -> None:
    """99.99 per cent are not 100, sizes have units, counts without a whole have a colon."""
    assert percent(0.99999) == "99.9 %"
    assert percent(1.0) == "100 %"
    assert (size(999), size(2048), size(3_000_000)) == ("999 bytes", "2.0 kB", "3.0 MB")
    assert verdict(replace(SCARE, of=None)) == "records recovered: 7"


def test_shares_are_read_as_per_cent() -> None:
    """What an attack got and what a guesser gets, in one measure."""
    found = replace(SCARE, metric="share of members found", value=0.5801, of=1.0, baseline=0.01)
    assert verdict(found) == "58.0 % of members found"
    assert figure_of(found, found.baseline) == "1.0 %"
    assert figure_of(SCARE, None) == "none"


def test_the_console_marks_each_score_that_is_no_better_than_a_constant() -> None:
    """As the page does in red: the headline may be better by a hair, and another worse."""
    scores = {"measure": "RMSE", "better": "lower", "value": 8.3, "baseline": 8.4}
    for value, said in ((6.7, True), (5.0, False)):
        others = {
            "scores": {"MAE": value},
            "constants": {"MAE": 6.6},
            "score_better": {"MAE": "lower"},
        }
        policy = _policy(_client(), metrics=scores | others)
        whole = Report(Study.built_in(), (policy,), "0")
        told = summary(whole)
        assert whole._repr_html_() == f'<pre style="font-family:monospace">{escape(told)}</pre>'
        assert (f"MAE {value:g} (constant 6.6, no better)" in told) == said


def test_counts_are_whole() -> None:
    """What chance or an interval comes to is no more exact than a count; few have two digits."""
    found = replace(SCARE, value=7.0, of=36_970.0)
    assert figure_of(found, 28_040.1) == "28,040" and figure_of(found, 5.912) == "5.9"
    assert figure_of(replace(found, value=0.4, of=0.5), 12.5) == "12.5"
    assert reach_of(replace(found, detectable=3.682)) == "4"  # cells that would have been found
    assert reach_of(replace(found, value=0.4, of=0.5, detectable=0.482)) == "0.482"


def test_an_attack_that_did_not_look_has_no_figure() -> None:
    """A share of nothing that was tried would read as a result."""
    blind = Finding("pool", "Who?", "share of members found", 0.0, of=1.0, partial="1 of 1 large")
    text = _page(_policy(_client(), (blind,)))
    assert "not looked: 1 of 1 large" in text and "members found" not in text
    assert "not looked" not in _page(_policy(_client(), (replace(blind, partial=""),)))


def test_a_figure_of_an_attack_that_was_cut_short_is_a_lower_bound_everywhere() -> None:
    """With the extra `lattice` it may be far larger: a card without that would be read as all there is to find."""
    missing = "no lattices were reduced"
    found = Finding(
        "pool", "Who?", "share of members found", 0.37, of=1.0, severity=Severity.BREACH
    )
    found = replace(found, baseline=0.01, harm="someone can tell")
    exact = replace(found, metric="share of members named", value=0.01)
    for partial in ("", missing):
        for both in (
            (replace(found, partial=partial),),
            (found, replace(exact, partial=partial)),
        ):
            policy = _policy(_client(), both)
            report = Report(Study.built_in(), (policy,), "0")
            card = _page(policy).split("all attacks")[0]
            pages = card, board_page(report), summary(report), finding_lines(both)
            for text in pages:
                assert (f"more may be found: {missing}" in text) == bool(partial)


def test_of_all_that_was_tried_no_more_can_be_found() -> None:
    """All records of an owner were found, and another owner's were not tried."""
    found = Finding("pool", "Who?", "share", 1.0, of=1.0, severity=Severity.BREACH, partial="large")
    for value, told in ((1.0, "not everything was tried"), (0.99, "more may be found")):
        policy = _policy(_client(), (replace(found, value=value),))
        report = Report(Study.built_in(), (policy,), "0")
        for text in (_page(policy), board_page(report), summary(report)):
            assert f"{told}: large" in text
            assert (told == "more may be found") == ("more may be found" in text)


def test_an_attack_that_looked_in_part_is_told_as_both() -> None:
    """One owner's releases were searched in vain, another's were too many."""
    seen = Finding("pool", "Who?", "share of members found", 0.0, of=1.0)
    attacks = _policy(_client(), (seen, replace(seen, partial="too large"))).attacks
    assert attacks.looked == ("pool",) and attacks.not_looked == {"part of pool": "too large"}
    alone = _policy(_client(), (replace(seen, partial="too large"),)).attacks
    assert alone.looked == () and alone.not_looked == {"pool": "too large"}


def test_an_attack_without_a_finding_is_not_said_to_read_nothing() -> None:
    """It may read these releases and have nobody to compare with, as of a single owner."""
    alone = replace(
        _policy(_client()), inapplicable={"membership": "Was this person's record there?"}
    )
    (why,) = alone.attacks.not_looked.values()
    assert why == "it has nothing to read in these releases, or no records to compare with"


def test_the_worst_record_is_not_called_hidden_by_chance() -> None:
    """It is found in 4.7 % of draws, with 1 % accused wrongly: as was charged, and so above chance."""
    rate = Finding("worst_record", "How far?", "share of draws", 0.047, of=1.0, baseline=0.01)
    attacks = _policy(_client(), (rate,)).attacks
    assert attacks.looked == () and attacks.audited == ("worst_record",)
    text = _page(_policy(_client(), (rate,)))
    assert "above chance" not in text and "none on records was run" in text


def test_what_attacks_found_of_each_sort_stands_in_a_line_of_its_own() -> None:
    """Found against a policy, within its guarantee, and in models that stay with their owners."""
    own = Finding("reader", "Who?", "share told", 0.9, of=1.0, severity=Severity.SOME, at_home=True)
    text = _page(_policy(_client(), (SCARE, own)), _policy(_client()))
    (cell,) = re.findall(r"<td class=.listed.>recovery(.*?)</td>", text)
    assert cell.count("<br>") == 1


@pytest.mark.parametrize(
    ("personal", "said"), [((), "one model together"), ((0,), "models ("), ((0, 1), "a model for")]
)
def test_the_page_says_whose_model_is_trained(personal: tuple[int, ...], said: str) -> None:
    """One of all owners, one for each of them, or some of both."""
    own: dict[str, Any] = {"personal": {"clients": {}}}
    pair = [_policy(_client(), metrics=own if n in personal else {}) for n in range(2)]
    assert said in _page(*pair).split("</header>")[0]


def test_a_model_is_shown_only_under_a_finite_guarantee() -> None:
    """Elsewhere the page says why not, whatever it is given."""
    told, study = {"private": "<figure>MODEL</figure>"}, Study.built_in()
    open_ = _policy(_client(unprotected=1, epsilon=None, risk=None, tight=None))
    shown = page(Report(study, (_policy(_client()),), "0"), told)
    assert "<figure>MODEL</figure>" in shown and "The model is not shown" not in shown
    assert "The model is not shown" in page(Report(study, (open_,), "0"))


def test_ten_thousand_queries_are_listed_in_a_page_of_less_than_two_megabytes() -> None:
    """Each on a row of its owner, kind and guarantee, by which rows are chosen without a script."""
    steps = [ChargedQuery("small.level", number % 2 == 0, number / 5000) for number in range(5000)]
    owners = tuple(_client(client=name, steps=steps) for name in ("north", "south"))
    one = _policy(owners[0])
    text = _page(replace(one, account=replace(one.account, clients=owners)))
    assert len(text.encode()) < 2_000_000
    listed = text[text.index('<details class="all">') : text.index("</details>")]
    assert "All 10,000 charged queries" in listed
    rows = re.findall(r'<tr class="(o\d) k0 (g\d)"><td>(\w+)</td>', listed)
    assert len(rows) == 10_000
    assert set(rows) == {
        (owner, guard, name)
        for owner, name in (("o0", "north"), ("o1", "south"))
        for guard in ("g0", "g1")
    }
    assert ".pick:has(option[value=o1]:checked) + .wide tbody tr:not(.o1)" in listed


def _owners(*clients: ClientAccount) -> PolicyReport:
    one = _policy(clients[0])
    return replace(one, account=replace(one.account, clients=clients))


def test_the_largest_delta_of_any_owner_stands_beside_the_largest_epsilon() -> None:
    """Owners may set deltas of their own: the first one's is no other's."""
    report = _owners(_client(delta=1e-9, ceiling=1.0), _client(client="south"))
    assert report.delta == 1e-5
    assert "at ε = 8, δ = 1e-05 for each record at each owner" in claim(report)
    text = _page(report, replace(report))
    assert "ε 8, δ 1e-05</span>" in text and "ε 8, δ 1e-09</span>" not in text


def test_bounds_are_of_the_owner_whose_records_can_be_found_best() -> None:
    """Who spent most so far may have the smaller budget, and a page's bounds are of all owners."""
    safe = Risk({0.001: 0.002, 0.01: 0.02, 0.1: 0.2}, 0.1, 0.01, 0.02, 0.02)
    spent = _client(client="south", budget=3.0, ceiling=3.0, epsilon=3.0, risk=safe)
    report = _owners(spent, _client())
    assert report.worst_off is not None and report.worst_off.client == "north"
    assert "records that were not used identifies at most 20 %" in _page(report)


@pytest.mark.parametrize(
    ("relations", "said"),
    [
        (("add-or-remove",), "Adding or removing one record changes"),
        (("replace-one",), "Putting any other record in the place of one changes"),
        (("add-or-remove", "replace-one"), "in its place under replace-one, changes"),
    ],
)
def test_epsilon_is_explained_by_the_policies_own_relation(
    relations: tuple[Relation, ...], said: str
) -> None:
    """Nothing is promised of adding a record where one is replaced."""
    each = []
    for place, relation in enumerate(relations):
        own = _policy(_client())
        policy = replace(own.account.policy, relation=relation, name=f"policy {place}")
        each.append(replace(own, account=replace(own.account, policy=policy)))
    assert said in _page(*each)


def test_a_gate_that_closed_violates_the_guarantee_by_its_ledger_alone() -> None:
    """On owners' machines no simulation tells that a protected query failed; a refusal in the copy does."""
    closed = _client(refused={EXPLANATIONS[Reason.CLOSED]: 2})
    (told,) = _policy(closed).breaches
    assert "the gate of north closed" in told and "no epsilon covers" in told
    (once,) = _policy(closed, metrics={"breaches": {"north": {"small.level": 1}}}).breaches
    assert "small.level" in once
    assert _policy(_client(refused={EXPLANATIONS[Reason.BUDGET]: 1})).breaches == ()


def test_policies_that_read_the_same_records_stand_at_their_total_for_whoever_decides() -> None:
    """A board, a regulator and a register decide on one of them: beside an open one it protects nobody."""
    own, other = _policy(_client()), _policy(_client(unprotected=1, epsilon=None, ceiling=None))
    both = [
        replace(each, account=replace(each.account, policy=replace(each.account.policy, name=name)))
        for each, name in ((own, "private"), (other, "published"))
    ]
    alone = Report(Study.built_in(), tuple(both))
    together = replace(alone, study=replace(Study.built_in(), together=True))
    assert chosen(alone, "private") is both[0] and chosen(alone, "private").finite
    told = chosen(together, "private")
    assert not told.finite and answers(together, told).verdict == "Not protected"
    twice = replace(together, policies=(both[0], replace(both[0], metrics={})))
    summed, whole = chosen(twice, "private"), twice.composed
    assert whole is not None and whole.epsilon is not None
    assert (summed.epsilon, summed.delta) == (whole.epsilon, whole.delta)
    assert summed.detection >= whole.detection and whole.epsilon > 8


def test_the_console_says_why_an_attack_did_not_look() -> None:
    """Those with one reason together; those with nothing to read need none."""
    missing = "extra lattice is not installed"
    some = Finding("pool (by an owner)", "Who?", "share of members found", 0.0, of=1.0)
    blind = replace(some, partial=missing)
    policy = replace(
        _policy(_client(), (some, blind)), inapplicable={"verbatim": "nothing to read"}
    )
    text = summary(Report(Study.built_in(), (policy,), "0"))
    assert f"not looked     part of pool (by an owner) ({missing}), verbatim" in text
