"""Score cards of several classes: whole points that a person adds up and compares, from the printed text alone."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.special import softmax

from privfed.errors import InputError
from privfed.learners.rulefit.class_scorecards import (
    ClassScoreCard,
    _doubling,
    _starts,
    class_scorecards,
)
from privfed.learners.rulefit.model import RuleEnsemble
from privfed.learners.rulefit.scorecard import in_bands
from privfed.tables.schema import Column, Schema
from tests.learners.rulefit.test_rulefit_scorecard import MODEL, SCHEMA, WEIGHTS, X, added, as_read

THREE = Schema(SCHEMA.features, Column("grade", "category", categories=("a", "b", "c")))
FACTORS = np.array([[1.0] * 5, [1.5, -1, 0.3, 1, -0.5], [-0.5, 0, -1.2, 0, 0]])


def models(factors: np.ndarray = FACTORS) -> list[RuleEnsemble]:
    """A model for each class, with terms in common and others that it has alone."""
    own = replace(MODEL, schema=THREE, synthetic=X)
    return [replace(own, weights=WEIGHTS * factor) for factor in factors]


def wanted() -> np.ndarray:
    """The models' own probabilities of the records."""
    return softmax(np.column_stack([model.scores(X) for model in models()]), axis=1)


CARDS = class_scorecards(models(), "abc")


def by_hand(texts: list[str], record: dict[str, Any]) -> tuple[list[int], list[float]]:
    """A record's totals by the printed cards, and its probabilities by the printed weights."""
    cards = [text.split("A total alone is no probability")[0] for text in texts]
    starts = [re.search(r"(?:Start with|Always) (\d+) points?\.", card) for card in cards]
    totals = [int(own[1]) + added(c, record) for own, c in zip(starts, cards, strict=True) if own]
    below, weights = np.array(re.findall(r"^ *(\d+)  (\d\.\d+)$", texts[0], re.MULTILINE), float).T
    step = re.search(
        r"every further (?:(\d+) )?points? (?:halves? them|divides them by (\d+)) ", texts[0]
    )
    assert step is not None
    points, factor = int(step[1] or 1), float(step[2] or 2)
    times, left = np.divmod(np.array([max(totals) - own for own in totals]), points)
    found = np.interp(left, below, weights) / factor**times
    return totals, (found / found.sum()).tolist()


def test_probabilities_are_added_up_from_the_printed_cards_alone() -> None:
    """Totals to the point; probabilities are nearly the models', and the likeliest class nearly always."""
    texts, totals = [str(card) for card in CARDS], np.array([card.totals(X) for card in CARDS]).T
    told, alike = CARDS[0].probabilities(totals), 0
    for record, own, exact, model in zip(X, totals, told, wanted(), strict=True):
        points, probabilities = by_hand(texts, as_read(record))
        assert points == own.tolist()
        assert probabilities == pytest.approx(exact, abs=0.001)
        assert probabilities == pytest.approx(model, abs=0.06)
        alike += int(np.argmax(points) == np.argmax(model))
    assert alike >= 96
    assert CARDS[0].agreement == alike / len(X)
    assert CARDS[0].difference == pytest.approx(np.abs(told - wanted()).mean())


@pytest.mark.parametrize("most", [1, 3, 300])
def test_any_number_of_points_can_be_added_up_by_hand(most: int) -> None:
    """Of which few divide a weight by more than two, and of many not every weight is printed."""
    cards = class_scorecards(models(), "abc", most)
    exact = cards[0].probabilities(np.array([card.totals(X) for card in cards]).T)
    for record, told in zip(X, exact, strict=True):
        found = by_hand([str(card) for card in cards], as_read(record))[1]
        assert found == pytest.approx(told, abs=0.001)


def test_a_card_says_what_its_total_alone_cannot() -> None:
    """Whose it is and of how many; its example is right; without the other totals there is no risk."""
    text = str(CARDS[1])
    assert text.startswith("Score card of grade = b, one of 3 classes. Start with ")
    assert "add up the score cards of all 3 classes" in text and "risk" not in text.lower()
    assert "every 10 points more than another class double the odds" in text
    numbers = re.search(
        r"of totals (.*) weights are (.*), and probabilities (.*) %\. Weights", text
    )
    assert numbers is not None
    totals, weights, chances = (
        [float(own) for own in re.findall(r"[\d.]+", part.rstrip("."))] for part in numbers.groups()
    )
    assert CARDS[1].probabilities(np.array([totals]))[0] == pytest.approx(
        np.array(chances) / 100, abs=5e-3
    )
    assert np.array(weights) / sum(weights) == pytest.approx(np.array(chances) / 100, abs=5e-3)
    for asked in (CARDS[1].risks, lambda: CARDS[1].risk(X), lambda: CARDS[1].risk_intervals(X)):
        with pytest.raises(InputError, match="alone is no probability"):
            asked()


def test_every_form_of_a_card_has_its_start_and_its_weights() -> None:
    """HTML, LaTeX, plain data, and a picture."""
    card = CARDS[0]
    data, start = card.to_dict(), f"Start with {card.start} points"
    assert start in card.to_html() and start in card.to_latex() and data["start"] == card.start
    assert "<td>0.707</td>" in card.to_html() and "& 0.707" in card.to_latex()
    assert [own["below"] for own in data["weights"]] == list(range(10)) and data["lines"]
    assert data["weights"][5]["weight"] == 0.5**0.5
    assert "Below & Weight of a class" in card.to_latex()
    assert start in card.plot().get_title(loc="left").replace("\n", " ")
    with_more = replace(card, classes=5)
    assert ", and other classes far below," in str(with_more)


def test_a_class_without_terms_has_its_start_alone() -> None:
    """And all of them, no card; nor have points of nothing."""
    cards = class_scorecards(models(FACTORS * [[1.0] * 5, [1, 0, 0, 0, 0], [1.0] * 5]), "abc")
    assert f"Always {cards[1].start} point" in str(cards[1]) and not len(cards[1].table())
    assert (cards[1].totals(X) == cards[1].start).all()
    assert cards[1].to_html() and cards[1].plot().get_title(loc="left")
    with pytest.raises(InputError, match="constant"):
        class_scorecards(models(FACTORS * [[1, 0, 0, 0, 0]]), "abc")
    with pytest.raises(InputError, match="max_points"):
        class_scorecards(models(), "abc", max_points=0)


@pytest.mark.parametrize("most", [1, 3, 12, 40])
def test_points_are_at_most_those_asked_for(most: int) -> None:
    """Of a rule or band; and no whole number of points for a doubling would use more of them."""
    cards = class_scorecards(models(), "abc", most)
    values = np.concatenate([in_bands(model, 0.15, X)[1] for model in models()])
    largest = np.abs(values).max()
    points = cards[0].factor * largest
    assert cards[0].factor == pytest.approx(cards[0].doubling / np.log(2))
    assert points <= most + 1e-9
    following = cards[0].doubling + 1 if cards[0].doubling >= 1 else 1 / (1 / cards[0].doubling - 1)
    assert following / np.log(2) * largest > most
    text = str(cards[0])
    assert ("every point more" in text) == (cards[0].doubling <= 1)


def test_few_points_multiply_the_odds_by_more_than_two() -> None:
    """A third of a point cannot be added: one point multiplies by eight."""
    assert [_doubling(most / np.log(2)) for most in (0.34, 0.5, 1.0, 7.9)] == [1 / 3, 0.5, 1, 7]
    text = str(replace(CARDS[0], doubling=1 / 3))
    assert "every point more than another class multiplies the odds by 8 against it" in text


def test_starting_points_give_every_class_its_mean_probability() -> None:
    """Up to the rounding to whole points, of which one is small here; the least is none."""
    rng = np.random.default_rng(0)
    points, unit = rng.integers(-400, 400, (500, 4)), 0.002
    goal = softmax(unit * points + np.array([1.0, -2.0, 0.5, 3.0]), axis=1)
    starts = _starts(points, goal, unit)
    assert starts.min() == 0 and starts.dtype.kind == "i"
    assert unit * (starts - starts[1]) == pytest.approx([3, 0, 2.5, 5], abs=0.01)


def test_bands_are_as_many_as_a_line_is_steep_and_have_the_mean_of_their_records() -> None:
    """Of five at least and twelve at most; a band with few records has its middle."""
    model = models()[0]
    steep = replace(model, weights=model.weights * [1, 1, 1, 1, 9])
    for own, bands in ((model, 12), (steep, 12), (replace(model, weights=model.weights * 0.1), 5)):
        rules, values, _ = in_bands(own, 0.15, X)
        assert len(rules) - 3 == bands - 1
    few = np.tile([[17.0, 5, 0], [18.0, 5, 0], [19.0, 5, 0]], (5, 1))
    rules, values, intercept = in_bands(model, 0.15, few)
    slope = 0.4 * model.weights[4] / 16.0
    edges = [float(rule.conditions[0].lower or 0) for rule in rules[3:]]
    assert edges[:2] == pytest.approx([16.5, 23.5], abs=0.5)
    first = (10 + edges[0]) / 2
    assert intercept == pytest.approx(model.weights[0] + slope * (first - 50))
    assert values[3] == pytest.approx(slope * (18 - first))


def test_a_card_of_a_class_is_a_score_card() -> None:
    """With lines, totals and notes as of two classes."""
    for card, label in zip(CARDS, "abc", strict=True):
        assert isinstance(card, ClassScoreCard) and card.label == label
        assert list(card.table().columns) == ["points", "column", "if"]
        assert np.array_equal(card.points, card.points.astype(int)) and card.points.all()
    assert min(card.start for card in CARDS) == 0
