"""Score cards of several classes in one unit of points: differences of totals are the classes' odds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, NoReturn

import numpy as np
import pandas as pd
from scipy.special import softmax

from privfed.errors import InputError
from privfed.learners.parameters import Integers, check_values
from privfed.learners.rulefit.model import RuleEnsemble
from privfed.learners.rulefit.scorecard import (
    MOST_RISKS,
    ScoreCard,
    disjoint,
    footnotes,
    in_bands,
    members,
)
from privfed.questions.tree import digits_text
from privfed.tables.schema import shown

DOUBLING = 10.0  #: Points that double the odds, if no most points of a term are given
RISE = 0.15  #: The most that a line rises within a band, in scores, up to :data:`.MOST_BANDS`
STEPS = 30  #: Newton steps of the starting points


@dataclass(frozen=True, eq=False)
class ClassScoreCard(ScoreCard):
    """The score card of one of several classes; all classes' totals together give probabilities.

    A class's probability is 2^(total / doubling), divided by the sum over all classes.
    """

    start: int = 0  #: points of everybody
    doubling: float = DOUBLING  #: points that double the odds against another class
    classes: int = 3  #: number of all classes
    #: fraction of the model's synthetic records with the same likeliest class as the model's
    agreement: float = 1.0

    def totals(self, X: pd.DataFrame | np.ndarray) -> np.ndarray:
        """Return total points of a table's rows or of encoded records, integers, shape (records,)."""
        return np.asarray(self.start + super().totals(X))

    def probabilities(self, totals: np.ndarray) -> np.ndarray:
        """Return probabilities for the totals by all classes' cards, both of shape (records, classes)."""
        return _probabilities(np.asarray(totals), self.doubling)

    def risk(self, totals: np.ndarray) -> np.ndarray:
        """Raise InputError: one class's total alone is no probability."""
        self._alone()

    def risk_intervals(self, totals: np.ndarray, level: float = 0.9) -> np.ndarray:
        """Raise InputError, as :meth:`risk`."""
        self._alone()

    def risks(self) -> pd.DataFrame:
        """Raise InputError, as :meth:`risk`."""
        self._alone()

    def _alone(self) -> NoReturn:
        raise InputError(
            "one class's total alone is no probability; pass the totals by all classes' score cards to probabilities()"
        )

    def weights(self) -> pd.DataFrame:
        """Return columns below and weight: of a class's number of points below the highest total, within a doubling."""
        below = np.arange(max(1, int(self.doubling)))[:: self._every]
        return pd.DataFrame({"below": below, "weight": 2.0 ** (-below / self.doubling)})

    def to_dict(self) -> dict[str, Any]:
        """Return what is printed as plain data: start, lines, weights and notes."""
        return {
            "instruction": self._instruction,
            "start": self.start,
            "lines": self.table().to_dict("records"),
            "heading": self._sentence,
            "doubling": self.doubling,
            "weights": self.weights().to_dict("records"),
            "footnotes": list(self.footnotes),
        }

    @property
    def _every(self) -> int:
        """One in how many numbers of points below has a row of the table of weights."""
        return max(1, -(-int(self.doubling) // MOST_RISKS))

    def _rows(self) -> list[tuple[str, str]]:
        """Return points below and weights as text."""
        rows = self.weights().itertuples(index=False)
        return [(f"{below:.0f}", f"{weight:.3f}") for below, weight in rows]

    @property
    def _heads(self) -> tuple[str, str]:
        """Return the headings of points below and weights."""
        return "below", "weight of a class with so many points below the highest total"

    @property
    def _instruction(self) -> str:
        """Return the sentences above the points."""
        target = self.schema.target
        assert target is not None
        of = f"{shown(target.name)} = {shown(self.label)}"
        own = f"{self.start} point{'s' * (self.start != 1)}"
        rest = f"Start with {own}. {super()._instruction}" if self.rules else f"Always {own}."
        return f"Score card of {of}, one of {self.classes} classes. {rest}"

    @property
    def _sentence(self) -> str:
        """Return the sentences above the weights, with notes for their readers."""
        points, factor = max(1.0, self.doubling), 2 ** max(1.0, 1 / self.doubling)
        if points > 1:
            more, further = f"{points:g} points more than another class double", "halve"
        elif factor == 2:
            more, further = "point more than another class doubles", "halves"
        else:
            more, further = "point more than another class multiplies", "divides"
        by = f" by {factor:g}" * (factor > 2)
        further = (
            f"every further {f'{points:g} points' if points > 1 else 'point'} {further} them{by}"
        )
        totals = [2 * points, points, 0]
        told = self.probabilities(np.array([totals]))[0]
        weights = [digits_text(1 / factor**k, 3) for k in range(3)]
        far = ", and other classes far below" * (self.classes > 3)
        differ = f"{100 * (self.difference or 0.0):.1f} percentage points on average"
        every = f"one in {self._every} is shown: a weight between is between theirs"
        notes = [every] * (self._every > 1)
        notes.append(
            f"the model's own probabilities, before rounding to points, differ by {differ}, and its likeliest class is "
            f"the same for {100 * self.agreement:.0f} % of synthetic records"
        )
        return (
            f"A total alone is no probability: add up the score cards of all {self.classes} classes. The class with the "
            f"highest total is the likeliest; every {more} the odds{by} against it. A "
            "class's probability is its weight, by how many points its total is below the highest, divided by the sum of "
            f"all classes' weights. Example: of totals {totals[0]:g}, {totals[1]:g} and {totals[2]:g}{far}, weights are "
            f"{weights[0]}, {weights[1]} and {weights[2]}, and probabilities {100 * told[0]:.0f} %, {100 * told[1]:.0f} % and "
            f"{100 * told[2]:.0f} %. Weights by points below the highest total; {further} ({'; '.join(notes)}):"
        )


def class_scorecards(
    models: Sequence[RuleEnsemble], labels: Sequence[str], max_points: int | None = None
) -> list[ClassScoreCard]:
    """Round short models of all classes' scores, whose softmax are probabilities, to points.

    A rule's points are its coefficient in units of a doubling of the odds, times the points of a doubling, rounded; a
    line has bands, whose values are means over the synthetic records. Starting points are fitted to the models'
    probabilities of these records, and the least are zero.

    Args:
        models: one for each class, with the same synthetic records.
        labels: of the classes.
        max_points: of a rule or band, in absolute value; None if :data:`DOUBLING` points double the odds.

    Raises:
        InputError: all coefficients are zero, or ``max_points`` is not an integer of at least 1.
    """
    if max_points is not None:
        allowed = {"max_points": [Integers(at_least=1)]}
        check_values("scorecard", {"max_points": max_points}, allowed, {"max_points": 10})
    return list(_rounded(tuple(models), tuple(labels), max_points))


@lru_cache(maxsize=1)  # all of a model's cards are asked for one by one
def _rounded(
    models: tuple[RuleEnsemble, ...], labels: tuple[str, ...], max_points: int | None
) -> tuple[ClassScoreCard, ...]:
    X, schema = models[0].synthetic, models[0].schema
    assert X is not None
    parts = [in_bands(model, RISE, X) for model in models]
    largest = max((abs(value) for _, values, _ in parts for value in values), default=0.0)
    if not largest > 0:
        raise InputError("the model is a constant: no score card can be made of it")
    doubling = DOUBLING if max_points is None else _doubling(max_points / largest)
    unit = math.log(2) / doubling
    points = [np.rint(np.array(values) / unit).astype(int) for _, values, _ in parts]
    added = [
        own @ members(rules, X, schema) for own, (rules, *_) in zip(points, parts, strict=True)
    ]
    wanted = softmax(np.column_stack([model.scores(X) for model in models]), axis=1)
    starts = _starts(np.column_stack(added), wanted, unit)
    totals = np.column_stack(added) + starts
    told = _probabilities(totals, doubling)
    alike = told.argmax(axis=1) == wanted.argmax(axis=1)
    common = ClassScoreCard(
        *(schema, (), np.zeros(0, int), 0.0, 1 / unit),
        difference=float(np.abs(told - wanted).mean()),
        doubling=doubling,
        classes=len(models),
        agreement=float(alike.mean()),
    )
    cards = []
    for k, (rules, *_) in enumerate(parts):
        lines, sums = disjoint(rules, points[k].tolist(), schema)
        notes = footnotes(
            models[k], [rule for rule, own in zip(rules, points[k], strict=True) if own]
        )
        card = replace(common, rules=tuple(lines), points=sums, footnotes=notes, label=labels[k])
        cards.append(replace(card, start=int(starts[k])))
    return tuple(cards)


def _probabilities(totals: np.ndarray, doubling: float) -> np.ndarray:
    return np.asarray(softmax(math.log(2) / doubling * totals, axis=1))


def _doubling(most: float) -> float:
    """Return the whole points that double the odds, or one over a whole number, for so many points per score at most."""
    points = most * math.log(2)
    return float(math.floor(points)) if points >= 1 else 1 / math.ceil(1 / points)


def _starts(added: np.ndarray, wanted: np.ndarray, unit: float) -> np.ndarray:
    """Return whole points of each class, least zero, that make mean probabilities nearest those wanted.

    Args:
        added: points of the records' lines, shape (records, classes).
        wanted: probabilities, shape (records, classes).
        unit: score of one point.
    """
    starts, classes = np.zeros(added.shape[1]), added.shape[1]
    for _ in range(STEPS):
        p = softmax(unit * added + starts, axis=1)
        system = np.diag(p.mean(axis=0) + 1e-9) - p.T @ p / len(p) + 1 / classes
        starts = starts + np.clip(np.linalg.solve(system, (wanted - p).mean(axis=0)), -2, 2)
    points = starts / unit
    return np.asarray(np.rint(points - points.min()).astype(int))
