"""Score cards: whole points that a person adds up from the printed text alone."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
import pytest
from pytest import approx
from scipy.special import logit
from scipy.stats import norm

from privfed.errors import InputError, SchemaError
from privfed.learners.rulefit import scorecard
from privfed.learners.rulefit import totals as rulefit_totals
from privfed.learners.rulefit.cutoffs import Cutoffs
from privfed.learners.rulefit.model import RuleEnsemble
from privfed.learners.rulefit.rules import Condition, Rule, Terms, rule_of
from privfed.learners.rulefit.scorecard import COMMON, PAGE, ScoreCard, _latex
from privfed.learners.rulefit.totals import attainable_totals, extreme_totals
from privfed.tables.schema import Column, Schema

SCHEMA = Schema(
    (
        Column("age", "number", 0, 100),
        Column("rate_%", "number", 0, 50),
        Column("sex", "category", categories=("female", "male")),
    ),
    Column("died", "integer", 0, 1),
)
CUTOFFS = Cutoffs(
    ((40.0, 65.0), (12.5,), (1.0,)),
    np.array([10.0, 0.0, 0.0]),
    np.array([90.0, 50.0, 1.0]),
    np.array([16.0, 10.0, 0.2]),
)
BOXES = np.array(
    [[[1, 2], [0, 2], [0, 2]], [[2, 3], [1, 2], [0, 2]], [[0, 3], [0, 2], [1, 2]]], np.uint8
)
WEIGHTS = np.array([-0.7, 0.8, 1.5, -0.4, 1.1])
NOTHING = np.full(3, np.nan)
MODEL = RuleEnsemble(SCHEMA, Terms(CUTOFFS, BOXES, (0,)), WEIGHTS, NOTHING, np.ones(4))
CARD = ScoreCard.from_ensemble(MODEL)
X = np.column_stack([np.linspace(0, 100, 101), np.tile([5.0, 20.0], 51)[:101], np.arange(101) % 2])


def by_hand(text: str, record: np.ndarray) -> tuple[int, dict[int, float]]:
    """The points of the lines that hold, and the printed risks by total."""
    card, risks = text.split("Risk of died = 1 by total")
    named = dict(zip(("age", "rate_%"), record[:2].tolist(), strict=True))
    named_sex, total = ("female", "male")[int(record[2])], 0
    for points, condition in re.findall(r"^ *([+-]\d+)  if (.*)$", card, re.MULTILINE):
        held = []
        for part in condition.split(" and "):
            words = part.split()
            if words[0] == "sex":
                held.append(words[2] == named_sex)
            elif len(words) == 5:
                held.append(float(words[0]) <= named[words[2]] < float(words[4]))
            elif words[1] == "<":
                held.append(named[words[0]] < float(words[2]))
            else:
                held.append(named[words[0]] >= float(words[2]))
        total += int(points) * all(held)
    printed = re.findall(r"^ *([+-]?\d+)  ([\d.]+) %(?: \(.*\))?$", risks, re.MULTILINE)
    return total, {int(t): float(r) / 100 for t, r in printed}


def test_a_prediction_is_added_up_from_the_printed_text_alone() -> None:
    """Totals to the point, risks to the printed digit."""
    totals = CARD.totals(X)
    for record, total in zip(X, totals, strict=True):
        added, risks = by_hand(str(CARD), record)
        assert added == total
        if added in risks:
            assert risks[added] == pytest.approx(float(CARD.risk(np.array(added))), abs=6e-4)
    assert set(totals.tolist()) & set(by_hand(str(CARD), X[0])[1])


def test_a_table_s_rows_have_the_totals_of_their_records() -> None:
    """Whatever the order of its columns; what the schema does not know is refused."""
    sexes = np.array(["female", "male"])[X[:, 2].astype(int)]
    frame = pd.DataFrame({"sex": sexes, "rate_%": X[:, 1], "age": X[:, 0]})
    assert np.array_equal(CARD.totals(frame), CARD.totals(X))
    with pytest.raises(SchemaError, match="does not list"):
        CARD.totals(frame.assign(sex="unknown"))


def test_log_odds_are_the_model_s_up_to_rounding() -> None:
    """Half a point for each rule that holds, and half a band of the line."""
    told = CARD.intercept + CARD.totals(X) / CARD.factor
    band = 0.5 * 2 * WEIGHTS[4] / 5 * 1.2
    assert np.abs(told - MODEL.scores(X)).max() <= 4 * 0.5 / CARD.factor + band + 1e-9
    assert np.abs(CARD.points).max() == 10


def known() -> RuleEnsemble:
    """The same model with a posterior and synthetic records."""
    root = np.random.default_rng(0).normal(0, 0.2, (5, 5))
    return replace(MODEL, covariance=root @ root.T, synthetic=X, residual_variance=0.5)


def test_a_risks_interval_is_that_of_all_who_have_the_total() -> None:
    """Scores of other coefficients, drawn from the posterior and regressed on totals, spread as much; and a tenth of the rest."""
    model, rng = known(), np.random.default_rng(1)
    assert model.covariance is not None
    card, every = ScoreCard.from_ensemble(model), model.terms.design(X)
    drawn = rng.multivariate_normal(WEIGHTS, model.covariance, 20_000)
    at, totals = card.totals(X), np.array([-5, 0, 9])
    slopes, levels = np.polyfit(at, every @ drawn.T, 1)
    slope, level = np.polyfit(at, every @ WEIGHTS, 1)
    missed = (every @ WEIGHTS - slope * at - level).var()
    spread = (np.multiply.outer(totals, slopes) + levels).var(axis=1) + COMMON * (missed + 0.5)
    wanted = norm.ppf(0.95) * np.sqrt(spread)
    assert np.allclose(np.diff(logit(card.risk_intervals(totals)))[:, 0] / 2, wanted, rtol=0.03)
    assert (np.diff(card.risk_intervals(totals, 0.99)) > np.diff(card.risk_intervals(totals))).all()


def test_a_card_is_held_to_the_models_own_scores() -> None:
    """Rounding and bands move its log-odds; over the synthetic records they are the model's on average."""
    card, scores = ScoreCard.from_ensemble(known()), MODEL.scores(X)
    told, alone = (one.intercept + one.totals(X) / one.factor for one in (card, CARD))
    assert np.array_equal(card.points, CARD.points)
    assert (
        np.mean(told - scores) == pytest.approx(0, abs=1e-9) and abs(np.mean(alone - scores)) > 1e-3
    )
    assert np.std(told - scores) <= np.std(alone - scores)


def test_intervals_are_printed_beside_the_risks() -> None:
    """In text, HTML, LaTeX and the picture's heading; a card of a model without a posterior has none, and says so."""
    card = ScoreCard.from_ensemble(known())
    risks = card.risks()
    assert ((risks["low"] < risks["risk"]) & (risks["risk"] < risks["high"])).all()
    risk, low, high = 100 * risks.loc[0, ["risk", "low", "high"]]
    first = f"{risk:.1f} % ({low:.1f} to {high:.1f} %)"
    assert first in str(card) and first in card.to_html()
    assert first.replace(" %", "\\,\\%") in card.to_latex()
    assert "90 % intervals in brackets" in str(card) and "bracket" not in str(CARD)
    assert by_hand(str(card), X[0])[0] == card.totals(X[:1])[0]
    with pytest.raises(InputError, match="max_terms = 20"):
        CARD.risk_intervals(np.array([0]))


def test_bands_of_whole_numbers_begin_at_whole_numbers() -> None:
    """Nobody has half a year."""
    columns = (Column("age", "integer", 0, 100), *SCHEMA.columns[1:])
    card = ScoreCard.from_ensemble(
        RuleEnsemble(Schema(columns[:-1], columns[-1]), MODEL.terms, WEIGHTS, NOTHING, np.ones(4))
    )
    ends = [c.lower for rule in card.rules for c in rule.conditions if c.feature == "age"]
    assert len(ends) >= 4 and all(end is None or end.is_integer() for end in ends)


def test_neighbouring_bands_of_as_many_points_are_one() -> None:
    """A flat line has few lines on the card, and every total is what it was."""
    flat = replace(MODEL, weights=WEIGHTS * [1, 1, 1, 1, 0.2])
    card = ScoreCard.from_ensemble(flat)
    bands = [rule for rule in card.rules if rule.features == ("age",)][1:]  # after the rule
    points = [int(own) for own, rule in zip(card.points, card.rules, strict=True) if rule in bands]
    assert 1 < len(bands) < 4 and all(a != b for a, b in pairwise(points))
    told = card.intercept + card.totals(X) / card.factor
    band = 0.5 * 2 * flat.weights[4] / 5 * 1.2
    assert np.abs(told - flat.scores(X)).max() <= 4 * 0.5 / card.factor + band + 1e-9


def test_a_printed_card_is_whole() -> None:
    """In LaTeX long conditions go over lines and long tables over pages; a picture has one size of letters and no empty foot."""
    latex = ScoreCard.from_ensemble(known()).to_latex()
    assert "{rp{0.8\\linewidth}}" in latex and latex.count("\\begin{tabular}") == 2
    rules = tuple(
        Rule.of(Condition("age", float(k)), Condition("rate_%", k / 2)) for k in range(95)
    )
    long = replace(CARD, rules=rules, points=np.full(95, -1)).to_latex()
    pages = [part.split("\\end")[0] for part in long.split("\\begin{tabular}")[1:]]
    assert max(page.count("\\\\") for page in pages) <= PAGE + 1
    assert sum(page.count("$-1$ &") for page in pages) >= 95
    named = Column("a long name " * 10, "number", 0, 100)
    wide = replace(CARD, schema=Schema((named,), SCHEMA.target), points=np.full(50, -1))
    rules = tuple(Rule.of(Condition(named.name, float(k), k + 0.5)) for k in range(50))
    pages = replace(wide, rules=rules).to_latex().split("\\nopagebreak")[1].split("\\end")
    assert max(page.count("\\\\") for page in pages) <= PAGE // 2 + 1  # a condition has two lines
    axes = CARD.plot()
    figure = axes.get_figure(root=True)
    assert figure is not None
    figure.draw_without_rendering()
    (grid,) = axes.tables
    cells = grid.get_celld().values()
    assert {cell.get_fontsize() for cell in cells} == {9}
    assert grid.get_window_extent().height == pytest.approx(
        axes.get_window_extent().height, rel=0.01
    )
    assert all(
        cell.get_text().get_window_extent().width < cell.get_window_extent().width for cell in cells
    )


def test_risks_rise_with_the_total() -> None:
    """Strictly, between no and full risk."""
    risks = CARD.risks()
    assert (np.diff(risks["total"]) > 0).all()
    assert (np.diff(risks["risk"]) > 0).all()
    assert 0 < risks["risk"].min() < risks["risk"].max() < 1


def test_html_and_latex_have_every_line_and_no_raw_mark() -> None:
    """Comparisons are escaped, percent signs and underscores of a column's name too."""
    html, latex = CARD.to_html(), CARD.to_latex()
    assert html.count("<tr") == len(CARD.rules) + len(CARD.risks()) + 2
    assert "age &lt; 65" in html or "&lt;= age &lt; 65" in html
    assert "rate\\_\\%" in latex
    assert latex.count("\\\\") == len(CARD.rules) + len(CARD.risks()) + 2


def test_every_form_says_what_is_added_up_and_of_which_class_the_risk_is() -> None:
    """Text, HTML, LaTeX and picture have the same two sentences and the points' signs."""
    card = ScoreCard.from_ensemble(known())
    title, html, latex = card.plot().get_title(loc="left"), card.to_html(), card.to_latex()
    for sentence in (
        "Add the points of every line",
        "Risk of died = 1 by total (the sum of points",
    ):
        assert all(sentence in form for form in (str(card), html, latex, " ".join(title.split())))
    assert (
        "<td>+10</td>" in html
        and "text-align: right" not in html
        and "risk of died = 1 (90 % interval)" in html
    )


def test_no_total_is_told_that_nobody_can_have() -> None:
    """All totals are those of a record of the schema, whatever excludes what, and so are the ends by programming."""
    rng = np.random.default_rng(0)
    ages, rates = np.array([0, 39.9, 40, 64.9, 65, 100]), np.array([0, 12.4, 12.5, 50])
    grid = np.array([[a, r, s] for a in ages for r in rates for s in (0, 1)], float)
    boxes = rng.integers(0, 2, (40, 12, 3))
    for points, low in zip(rng.integers(-9, 10, (40, 12)), boxes, strict=True):
        sizes = np.array([3, 2, 2])
        box = np.stack([low, np.where(low, sizes, rng.integers(1, sizes + 1))], axis=-1)
        rules = [
            rule_of(one, CUTOFFS.cuts, SCHEMA.names)
            for one in box
            if (one[:, 1] - one[:, 0] < sizes).any()
        ]
        card = replace(CARD, rules=tuple(rules), points=points[: len(rules)], intercept=0.0)
        totals = card.totals(grid)
        assert attainable_totals(card.rules, card.points, SCHEMA) == approx(np.unique(totals))
        assert extreme_totals(card.rules, card.points, SCHEMA) == (totals.min(), totals.max())
        assert set(card.risks()["total"]) <= set(totals)


def test_totals_between_the_rows_are_shown_or_impossible_as_the_card_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Gaps are named; many totals are thinned; too many combinations to look at leave the range between both ends."""
    wide = replace(CARD, points=np.array([3] + [6] * (len(CARD.rules) - 1)), intercept=0.0)
    assert "no record can have a total between these" in str(wide) and "one in" not in str(wide)
    assert (wide.risks()["total"] % 3 == 0).all()
    monkeypatch.setattr(scorecard, "MOST_RISKS", 2)
    few = replace(wide)
    assert len(few.risks()) <= 2 and "is shown: a total between two has a risk between" in str(few)
    monkeypatch.setattr(scorecard, "MOST_RISKS", 40)
    monkeypatch.setattr(rulefit_totals, "MAX_CELLS", 1)
    blind = replace(wide)
    assert blind._ends == wide._ends and (blind.risks()["total"].diff().dropna() == 1).all()
    assert "no record can have" not in str(blind)


def test_a_category_with_a_line_has_one_line_of_points() -> None:
    """It has two values and no bands: the card's log-odds are the model's up to rounding, and the term tells its codes."""
    model = replace(MODEL, terms=Terms(CUTOFFS, BOXES[:2], (2,)), weights=WEIGHTS[[0, 1, 2, 4]])
    model = replace(model, supports=NOTHING[:2], deviations=np.ones(3))
    card = ScoreCard.from_ensemble(model)
    told = card.intercept + card.totals(X) / card.factor
    assert np.abs(told - model.scores(X)).max() <= 3 * 0.5 / card.factor
    assert str(card).count("sex = male") == 1 and "{}" not in str(card)
    assert "linear: sex per 0.5, female 0 and male 1" in model.table()["term"].tolist()


def test_latex_escapes_every_mark_of_a_name() -> None:
    """A caret, a tilde, a bar and a greater-than sign print as they are."""
    assert _latex("a^b~c|<d> \\") == (
        "a\\textasciicircum{}b\\textasciitilde{}c$|$$<$d$>$ \\textbackslash{}"
    )


def test_a_constant_has_no_card() -> None:
    """It says so."""
    still = RuleEnsemble(SCHEMA, MODEL.terms, np.zeros(5), NOTHING, np.ones(4))
    with pytest.raises(InputError, match="constant"):
        ScoreCard.from_ensemble(still)
    given: Any
    for given in (0, 2.5, "ten"):
        with pytest.raises(InputError, match=r"at least 1.*; write for example max_points = 10"):
            ScoreCard.from_ensemble(MODEL, given)
