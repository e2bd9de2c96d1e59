"""Score cards: whole points that a person adds up from the printed text alone."""

from __future__ import annotations

import operator
import re
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pytest import approx
from scipy.special import expit, logit
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


def fits(text: str, value: float | str, others: list[str]) -> bool:
    """Whether a line of one column holds; ``others`` are the block's other lines."""
    if isinstance(value, str):
        named = [name for line in others for name in line.split(", ")]
        return value not in named if text == "any other" else value in text.split(", ")
    low, to, high = text.partition(" to ")
    if not to:
        number = float(re.findall(r"-?[\d.]+", text)[0]) if text != "any" else 0.0
        words = text.strip("-.0123456789 ")
        return {
            "any": True,
            "": value == number,
            "or less": value <= number,
            "below": value < number,
            "or more": value >= number,
            "above": value > number,
        }[words]
    begin, end = float(low.removeprefix("above ")), float(high.removeprefix("below "))
    above = value > begin if low.startswith("above") else value >= begin
    return above and (value < end if high.startswith("below") else value <= end)


SIGNS = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "=": operator.eq}


def holds(text: str, record: dict[str, Any]) -> bool:
    """Whether a rule on several columns holds."""
    held = []
    for part in text.split(" and "):
        listed = re.fullmatch(r"(\S+) (?:= |(not )?in \{)([^}]*)\}?", part)
        if listed and isinstance(record[listed[1]], str):
            held.append((record[listed[1]] in listed[3].split(", ")) != bool(listed[2]))
            continue
        words = part.split()
        numbers = [float(record.get(word, word)) for word in words[::2]]
        signs = [SIGNS[word] for word in words[1::2]]
        held += [sign(*pair) for sign, pair in zip(signs, pairwise(numbers), strict=True)]
    return all(held)


def added(card: str, record: dict[str, Any]) -> int:
    """The points of a record's lines, one of each column."""
    total, blocks = 0, re.split(r"^(?! *[+-]?\d+  if )(.+)$", card, flags=re.MULTILINE)[1:]
    for heading, body in zip(blocks[::2], blocks[1::2], strict=True):
        lines = re.findall(r"^ *([+-]?\d+)  if (.*)$", body, re.MULTILINE)
        if heading.startswith(("rules", "Add", "Score card")):
            total += sum(int(points) for points, line in lines if holds(line, record))
            continue
        value = record[heading.split(" (")[0]]
        texts = [line for _, line in lines]
        (own,) = [int(p) for p, line in lines if fits(line, value, [t for t in texts if t != line])]
        total += own
    return total


def by_hand(text: str, record: dict[str, Any]) -> tuple[int, dict[int, float]]:
    """A record's points, and the printed risks by total."""
    card, risks = text.split("Risk of died = 1 by total")
    printed = re.findall(r"^ *([+-]?\d+)  ([\d.]+) %(?: \(.*\))?$", risks, re.MULTILINE)
    return added(card, record), {int(t): float(r) / 100 for t, r in printed}


def as_read(encoded: np.ndarray, schema: Schema = SCHEMA) -> dict[str, Any]:
    """A record as a reader sees it, with the names of its categories."""
    return {
        column.name: column.categories[int(value)] if column.categories else float(value)
        for column, value in zip(schema.features, encoded, strict=True)
    }


def test_a_prediction_is_added_up_from_the_printed_text_alone() -> None:
    """Totals to the point, risks to the printed digit."""
    totals = CARD.totals(X)
    for record, total in zip(X, totals, strict=True):
        own, risks = by_hand(str(CARD), as_read(record))
        assert own == total
        if own in risks:
            assert risks[own] == pytest.approx(float(CARD.risk(np.array(own))), abs=6e-4)
    assert set(totals.tolist()) & set(by_hand(str(CARD), as_read(X[0]))[1])


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
    largest = max(map(abs, scorecard.in_bands(MODEL)[1]))
    assert CARD.factor * largest == pytest.approx(10)


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
    wanted = 100 * np.abs(expit(told) - expit(scores)).mean()
    assert f"differ by {wanted:.1f} percentage points on average" in str(card)
    assert "before rounding to points, may differ" in str(CARD)


def test_intervals_are_printed_beside_the_risks() -> None:
    """In text, HTML, LaTeX and the picture's heading; a card of a model without a posterior has none, and says so."""
    card = ScoreCard.from_ensemble(known())
    risks = card.risks()
    assert ((risks["low"] < risks["risk"]) & (risks["risk"] < risks["high"])).all()
    risk, low, high = 100 * risks.loc[0, ["risk", "low", "high"]]
    first = f"{risk:.1f} % ({low:.1f} to {high:.1f} %)"
    assert first in str(card) and first in card.to_html()
    assert first.replace(" %", "\\,\\%") in card.to_latex()
    assert "in brackets 90 % intervals" in str(card) and "bracket" not in str(CARD)
    assert by_hand(str(card), as_read(X[0]))[0] == card.totals(X[:1])[0]
    with pytest.raises(InputError, match="max_terms = 20"):
        CARD.risk_intervals(np.array([0]))


def test_ranges_of_whole_numbers_are_of_whole_numbers() -> None:
    """Nobody has half a year: each range says its first and last year."""
    columns = (Column("age", "integer", 0, 100), *SCHEMA.columns[1:])
    card = ScoreCard.from_ensemble(
        RuleEnsemble(Schema(columns[:-1], columns[-1]), MODEL.terms, WEIGHTS, NOTHING, np.ones(4))
    )
    ends = [end for rule in card.rules for c in rule.conditions for end in (c.lower, c.upper)]
    assert all(end is None or end.is_integer() for end in ends if end != 12.5)
    table = card.table()
    texts = table["if"][table["column"] == "age"].tolist()
    assert texts[0] == "24 or less" and texts[1] == "25 to 39" and texts[-1] == "75 or more"


def test_a_column_has_disjoint_ranges_with_unlike_neighbours() -> None:
    """A flat line has few lines on the card, a step across it one more range, and every total is what it was."""
    flat = replace(MODEL, weights=WEIGHTS * [1, 1, 1, 1, 0.2])
    card = ScoreCard.from_ensemble(flat)
    parts = scorecard._parts(SCHEMA.features[0], card.rules, card.points)
    assert all(a.upper == b.lower and one != two for (a, one), (b, two) in pairwise(parts))
    assert parts[0][0].lower is parts[-1][0].upper is None and 3 < len(parts) < 7
    told = card.intercept + card.totals(X) / card.factor
    band = 0.5 * 2 * flat.weights[4] / 5 * 1.2
    assert np.abs(told - flat.scores(X)).max() <= 4 * 0.5 / card.factor + band + 1e-9


WIDE = Schema(
    (
        Column("visits", "integer", 0, 9, fill=2),
        Column("flag", "integer", 0, 1),
        Column("dose", "number", -2, 2, description="mg"),
        Column("ward", categories=tuple("abcdefgh")),
    ),
    Column("died", "integer", 0, 1),
)


@st.composite
def terms(draw: st.DrawFn) -> tuple[list[Rule], list[int]]:
    """Rules on one or two columns, and their points."""
    rules = []
    for names in draw(
        st.lists(
            st.sets(st.sampled_from(WIDE.names), min_size=1, max_size=2), min_size=1, max_size=9
        )
    ):
        ends = {}
        for name in names:
            column = WIDE.column(name)
            step = 0.25 if column.kind == "number" else 0.5 if column.kind == "integer" else 1.0
            low, high = column.bounds
            cuts = np.arange(low + step, high + step / 2, step).tolist()
            pair = sorted(draw(st.tuples(st.sampled_from(cuts), st.sampled_from(cuts))))
            kind = draw(st.sampled_from(["below", "above", "between"]))
            lower = None if kind == "below" else pair[0]
            upper = None if kind == "above" or pair[0] == pair[1] else pair[1]
            ends[name] = Condition(name, lower, pair[1] if kind == "below" else upper)
        rules.append(Rule.of(*ends.values()))
    return rules, draw(st.lists(st.integers(-9, 9), min_size=len(rules), max_size=len(rules)))


@settings(deadline=None, max_examples=40)
@given(terms())
def test_disjoint_ranges_have_the_total_of_the_terms_for_every_record(
    given_terms: tuple[list[Rule], list[int]],
) -> None:
    """Integers, flags, numbers and categories; added by hand from the printed text alone."""
    given_rules, given_points = given_terms
    rules, points = scorecard.disjoint(given_rules, given_points, WIDE)
    card = replace(CARD, schema=WIDE, rules=tuple(rules), points=points)
    grid = (
        np.array(np.meshgrid(range(10), (0, 1), (-2, -0.25, 0, 0.1, 2), range(8))).reshape(4, -1).T
    )
    holding = np.array([rule.holds(grid, WIDE.names) for rule in given_rules])
    wanted = np.array(given_points) @ holding
    found = points @ np.array([rule.holds(grid, WIDE.names) for rule in rules]) if rules else 0
    assert np.array_equal(found * np.ones(len(grid)), wanted)
    alone = [rule.conditions[0] for rule in rules if len(rule.conditions) == 1]
    for name in WIDE.names:
        held = [c.holds(grid[:, WIDE.names.index(name)]) for c in alone if c.feature == name]
        assert not held or np.sum(held, axis=0).max() <= 1
    if rules:
        for record, total in list(zip(grid, wanted, strict=True))[::97]:
            assert by_hand(str(card), as_read(record, WIDE))[0] == total


def test_a_column_with_the_same_points_everywhere_keeps_them() -> None:
    """Both sides of a threshold; and nothing is left of points that cancel each other."""
    sides = [Rule.of(Condition("dose", None, 0.5)), Rule.of(Condition("dose", 0.5))]
    rules, points = scorecard.disjoint(sides, [2, 2], WIDE)
    card = replace(CARD, schema=WIDE, rules=tuple(rules), points=points)
    doses = np.array([[0, 0, dose, 0] for dose in (-2.0, 0.0, 0.5, 2.0)])
    assert card.totals(doses).tolist() == [2] * 4 and "dose (mg)\n  +2  if any\n" in str(card)
    assert scorecard.disjoint(sides[:1] * 2, [2, -2], WIDE)[0] == []


def test_a_column_s_heading_has_its_unit_and_what_a_missing_value_counts_as() -> None:
    """And the largest of many groups of categories is any other, unless it is the only one."""
    rule = Rule.of(Condition("visits", 3.0)), Rule.of(Condition("dose", None, 0.5))
    icu = Rule.of(Condition("ward", 2.0, 3.0))
    text = str(replace(CARD, schema=WIDE, rules=(*rule, icu), points=np.array([1, 2, 3])))
    assert "visits (a missing value counts as 2)\n   0  if 2 or less\n  +1  if 3 or more\n" in text
    assert "dose (mg)\n  +2  if below 0.5\n   0  if 0.5 or more\n" in text
    assert "ward\n  +3  if c\n   0  if any other\nRisk" in text
    always = Rule.of(Condition("ward", 0.0))
    text = str(replace(CARD, schema=WIDE, rules=(always,), points=np.array([1])))
    assert "ward\n  +1  if a, b, c, d, e, f, g, h\n" in text


def test_a_rule_on_many_categories_lists_them_all() -> None:
    """A reader of the card does not know which are between two."""
    many = Column("ward", categories=tuple(f"w{k:02}" for k in range(40)))
    rule = Rule.of(Condition("ward", 2.0, 20.0), Condition("age", 40.0))
    card = replace(CARD, schema=Schema((many, SCHEMA.features[0]), SCHEMA.target), rules=(rule,))
    text = str(replace(card, points=np.array([1])))
    assert "..." in rule.text(card.schema) and "..." not in text
    for code in (0, 2, 19, 20):
        record = {"age": 50.0, "ward": f"w{code:02}"}
        assert by_hand(text, record)[0] == (2 <= code < 20)


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
    pair = Schema((named, SCHEMA.features[0]), SCHEMA.target)
    wide = replace(CARD, schema=pair, points=np.full(50, -1))
    rules = tuple(
        Rule.of(Condition(named.name, float(k), k + 0.5), Condition("age", 3.0)) for k in range(50)
    )
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
    lines = len(CARD.table()) + 3  # three headings
    assert html.count("<tr") == lines + len(CARD.risks()) + 2
    assert "age &gt;= 65" in html and "<td>58 to below 65</td>" in html
    assert "rate\\_\\allowbreak{}\\%" in latex
    assert latex.count("\\\\") == lines + len(CARD.risks()) + 2


def test_every_form_says_what_is_added_up_and_of_which_class_the_risk_is() -> None:
    """Text, HTML, LaTeX and picture have the same two sentences and the points' signs."""
    card = ScoreCard.from_ensemble(known())
    title, html, latex = card.plot().get_title(loc="left"), card.to_html(), card.to_latex()
    for sentence in (
        "Add the points of one line for each column and of every rule that holds:",
        "Risk of died = 1 by total (",
    ):
        assert all(sentence in form for form in (str(card), html, latex, " ".join(title.split())))
    assert (
        "<td>+10</td>" in html
        and "text-align: right" not in html
        and '<th colspan="2">age</th>' in html
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
    assert "sex\n   0  if female\n +10  if male\n" in str(card)
    assert "sex = male rather than female" in model.table()["term"].tolist()


def test_latex_escapes_every_mark_of_a_name() -> None:
    """A caret, a tilde, a bar and a greater-than sign print as they are; a quotation mark is no accent of German."""
    assert _latex("a^b~c|<d> \\") == (
        "a\\textasciicircum{}b\\textasciitilde{}c$|$$<$d$>$ \\textbackslash{}"
    )
    assert _latex('"a_b" ≥ 5 µ') == "''a\\_\\allowbreak{}b'' $\\ge$ 5 $\\mu$"


def test_latex_may_break_a_long_word_and_prints_it_whole() -> None:
    """One of thirty letters or more, after every ten of them."""
    name = "x" * 34
    assert _latex(f"{name} < 5").split("\\allowbreak{}") == [*["x" * 10] * 3, "xxxx $<$ 5"]
    assert _latex("x" * 29) == "x" * 29


def test_latex_takes_no_note_as_an_argument_of_a_line_break() -> None:
    r"""After ``\\`` a bracket or an asterisk would not be printed."""
    card = replace(CARD, footnotes=("Alternatives:", "[dose] mg: or no effect", "*: or no effect"))
    latex = card.to_latex()
    assert "\\\\{}\n[dose]" in latex and "\\\\{}\n*" in latex


def test_a_constant_has_no_card() -> None:
    """It says so."""
    still = RuleEnsemble(SCHEMA, MODEL.terms, np.zeros(5), NOTHING, np.ones(4))
    with pytest.raises(InputError, match="constant"):
        ScoreCard.from_ensemble(still)
    given: Any
    for given in (0, 2.5, "ten"):
        with pytest.raises(InputError, match=r"at least 1.*; write for example max_points = 10"):
            ScoreCard.from_ensemble(MODEL, given)
