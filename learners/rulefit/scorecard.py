"""A rule ensemble for two classes as a score card: integer points that add up to a risk.

After FasterRisk (Liu et al. 2022, Fast Interpretable Risk Score Models): log-odds are the intercept plus the total over
a common factor. A rule's points are its coefficient times the factor, rounded; a winsorised line has points for each of
five bands of equal width, the lowest one zero.
"""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass, replace
from functools import cached_property
from html import escape
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from scipy.special import expit

from privfed.errors import InputError
from privfed.learners.parameters import Integers, check_values
from privfed.learners.private.model import deviations_of
from privfed.learners.rulefit.alternatives import EXPLAINED, NONE, UNKNOWN
from privfed.learners.rulefit.model import RuleEnsemble
from privfed.learners.rulefit.rules import Condition, Rule
from privfed.learners.rulefit.short import roundest
from privfed.learners.rulefit.totals import attainable_totals, extreme_totals
from privfed.tables.records import Records
from privfed.tables.schema import Schema, shown

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from matplotlib.axes import Axes

_LATEX = {
    "\\": "\\textbackslash{}",
    "<=": "$\\le$",
    ">=": "$\\ge$",
    "<": "$<$",
    ">": "$>$",
    "|": "$|$",
}
_LATEX |= {"^": "\\textasciicircum{}", "~": "\\textasciitilde{}"}
_LATEX |= {mark: f"\\{mark}" for mark in "&%$#_{}"}
#: Fraction of the variance about a total that is common to all with it, by simulation (docs/rulefit.md)
COMMON = 0.1
ADD = "Add the points of every line that holds:"
BANDS, MOST_RISKS = 5, 40  #: Bands of a line, and maximum rows of the table of risks
PAGE, WIDE = 40, 80  #: Maximum lines of a table on one page, and characters of a line


@dataclass(frozen=True, eq=False)
class ScoreCard:
    """A score card: integer points of rules, which add up to a total."""

    schema: Schema  #: the public data dictionary
    rules: tuple[Rule, ...]  #: rules with points
    points: np.ndarray  #: of each rule, nonzero integers, shape (rules,)
    intercept: float  #: log-odds at a total of zero
    factor: float  #: points of one unit of log-odds
    #: v0, v1, v2: v0 + v1 t + v2 t^2 is the variance of the log-odds at a total t; None if unknown
    variance: tuple[float, float, float] | None = None
    #: what noise does not tell from the model's terms; empty if it has no intervals
    footnotes: tuple[str, ...] = ()

    @classmethod
    def from_ensemble(cls, model: RuleEnsemble, max_points: int = 10) -> ScoreCard:
        """Round an ensemble of log-odds to points of at most ``max_points`` in absolute value.

        Raises:
            InputError: all coefficients are zero, or ``max_points`` is not an integer of at least 1.
        """
        given = {"max_points": max_points}
        check_values("scorecard", given, {"max_points": [Integers(at_least=1)]}, {"max_points": 10})
        rules, values, intercept = _in_bands(model)
        largest = max(map(abs, values), default=0.0)
        if not largest > 0:
            raise InputError("the model is a constant: no score card can be made of it")
        factor = max_points / largest
        points = np.rint(np.array(values) * factor).astype(int)
        notes = _footnotes(model, [rule for rule, own in zip(rules, points, strict=True) if own])
        rules, points = _merge(rules, points)
        card = cls(model.schema, tuple(rules), points, intercept, factor, footnotes=notes)
        return card if model.synthetic is None else card._fitted_to(model, model.synthetic)

    def _fitted_to(self, model: RuleEnsemble, X: np.ndarray) -> ScoreCard:
        """Return the card with intercept and factor fitted to the model's scores of records, and the variance.

        Scores and terms are regressed on the totals by least squares: records with a total t have mean terms d(t), so
        that their mean log-odds has the mean square error d C d'. A fraction :data:`COMMON` of the residual variances,
        of scores given terms (:attr:`.RuleEnsemble.residual_variance`) and of terms given the total, is added to it.
        """
        design, totals = model.terms.design(X), self.totals(X)
        if not totals.std() > 0:
            return self
        basis = np.column_stack([np.ones(len(X)), totals])
        fitted = np.linalg.lstsq(basis, design, rcond=None)[0]
        intercept, slope = (fitted @ model.weights).tolist()
        if not slope > 0:
            return self
        variance = None
        if model.covariance is not None:
            residuals = design @ model.weights - basis @ fitted @ model.weights
            v0, v01, _, v2 = (fitted @ model.covariance @ fitted.T).ravel().tolist()
            common = COMMON * (float(residuals.var()) + model.residual_variance)
            variance = (v0 + common, 2 * v01, v2)
        return replace(self, intercept=intercept, factor=1 / slope, variance=variance)

    def totals(self, X: pd.DataFrame | np.ndarray) -> np.ndarray:
        """Return total points of a table's rows or of encoded records, integers, shape (records,)."""
        if isinstance(X, pd.DataFrame):
            X = Records.from_frame(X, Schema(self.schema.features)).x
        members = [rule.holds(X, self.schema.names) for rule in self.rules]
        return np.asarray(self.points @ np.array(members), int)

    def risk(self, totals: np.ndarray) -> np.ndarray:
        """Return the probability of the second class at some totals."""
        return np.asarray(expit(self.intercept + np.asarray(totals) / self.factor))

    def risk_intervals(self, totals: np.ndarray, level: float = 0.9) -> np.ndarray:
        """Return intervals of the true risk of all with some total, shape (totals, 2).

        Raises:
            InputError: unknown, as they are for all cards except short private models'.
        """
        if self.variance is None:
            raise InputError(
                "intervals are available for cards of short private models only; write max_terms = 20, and a "
                "private policy"
            )
        t = np.asarray(totals, float)
        variances = np.maximum(np.polynomial.polynomial.polyval(t, self.variance), 0)
        half_width = deviations_of(level) * np.sqrt(variances)
        centre = self.intercept + t / self.factor
        return np.asarray(expit(np.column_stack([centre - half_width, centre + half_width])))

    def table(self) -> pd.DataFrame:
        """Return columns points and condition, one row per rule."""
        texts = [rule.text(self.schema) for rule in self.rules]
        return pd.DataFrame({"points": self.points, "if": texts})

    def risks(self) -> pd.DataFrame:
        """Return columns total and risk, and low and high of its 90 % interval if known, for risks of 1 to 99 %.

        Totals that no record can have are left out, and beyond :data:`MOST_RISKS` more of them, evenly.
        """
        totals = self._totals[:: -(-len(self._totals) // MOST_RISKS)]
        risks = pd.DataFrame({"total": totals, "risk": self.risk(totals)})
        if self.variance is not None:
            risks[["low", "high"]] = self.risk_intervals(totals)
        return risks

    @cached_property
    def _totals(self) -> np.ndarray:
        """Totals with risks of 1 to 99 %, or the nearest to them."""
        log_odds = np.array([-1, 1]) * np.log(99) - self.intercept
        low, high = np.clip(np.rint(log_odds * self.factor), *self._ends).astype(int)
        if self._attainable is None:
            return np.arange(low, high + 1)
        inside = (self._attainable >= low) & (self._attainable <= high)
        nearest = np.abs(self._attainable - low).argmin()
        return self._attainable[inside] if inside.any() else self._attainable[[nearest]]

    @cached_property
    def _attainable(self) -> np.ndarray | None:
        """Totals that records of the schema can have, in order; None if there are too many combinations."""
        return attainable_totals(self.rules, self.points, self.schema)

    @cached_property
    def _ends(self) -> tuple[int, int]:
        """The minimum and the maximum total of all records that the schema allows."""
        if self._attainable is not None:
            return int(self._attainable[0]), int(self._attainable[-1])
        return extreme_totals(self.rules, self.points, self.schema)

    def _rows(self) -> list[tuple[str, str]]:
        """Return totals and risks, with their intervals if known, as text."""
        return [
            (
                _signed(total),
                f"{100 * risk:.1f} %"
                + (f" ({100 * low:.1f} to {100 * high:.1f} %)" if ends else ""),
            )
            for total, risk, *ends in self.risks().itertuples(index=False)
            for low, high in [ends or (0, 0)]
        ]

    @property
    def _of(self) -> str:
        target = self.schema.target
        assert target is not None
        return (
            f"of {shown(target.name)} = {shown(target.categories[1]) if target.categories else 1}"
        )

    @property
    def _risk(self) -> str:
        """Return the heading of the column of risks."""
        return f"risk {self._of}" + ("" if self.variance is None else " (90 % interval)")

    @property
    def _notes(self) -> str:
        """Return notes for readers of the risks."""
        totals, (minimum, maximum) = self.risks()["total"], self._ends
        every = -(-len(self._totals) // MOST_RISKS)
        gaps = every == 1 and len(totals) <= totals.iloc[-1] - totals.iloc[0]
        below, above = totals.iloc[0] > minimum, totals.iloc[-1] < maximum
        notes = [
            (every > 1, f"one in {every} is shown: a total between two has a risk between theirs"),
            (gaps, "no record can have a total between these"),
            (below and not above, "a lower total has a lower risk"),
            (above and not below, "a higher total has a higher risk"),
            (below and above, "a total below these has a lower risk, one above a higher"),
            (self.variance is not None, "90 % intervals in brackets"),
        ]
        return "; ".join(
            ["the sum of points of all lines that hold", *(text for when, text in notes if when)]
        )

    def _lines(self) -> list[tuple[str, str]]:
        """Return points and conditions, as text."""
        return [(_signed(points), text) for points, text in self.table().itertuples(index=False)]

    @property
    def _sentence(self) -> str:
        """Return the sentence above the risks."""
        return f"Risk {self._of} by total ({self._notes}):"

    def __str__(self) -> str:
        lines = [ADD, *(f"{points:>4}  if {text}" for points, text in self._lines())]
        lines += [self._sentence, *(f"{total:>4}  {risk}" for total, risk in self._rows())]
        lines += self.footnotes
        return "\n".join(lines)

    def plot(self, *, ax: Axes | None = None) -> Axes:
        """Plot points by condition, and below them the risk of every total."""
        from matplotlib.transforms import Bbox

        from privfed.learners.pictures import axes_of, literal, wrapped

        rows = self._lines()
        shown = [*rows, ("total", self._risk), *self._rows()]
        cells = [(literal(points), wrapped(text, 90)) for points, text in shown]
        lines = [text.split("\n") for _, text in cells]
        width = max(6.0, 1.0 + 0.08 * max(len(line) for parts in lines for line in parts))
        notes = wrapped("\n".join(self.footnotes), int(14 * width))
        height = 0.2 * sum(map(len, lines)) + 0.15 * len(notes.splitlines())
        ax = axes_of(ax, width, 1.1 + height)
        grid = ax.table(
            cells,
            colLabels=("points", "if"),
            colWidths=(0.8 / width, 1 - 0.8 / width),
            cellLoc="left",
            colLoc="left",
            bbox=Bbox.unit(),
        )
        grid.auto_set_font_size(value=False)
        grid.set_fontsize(9)
        for (row, column), cell in grid.get_celld().items():
            heading = row in (0, len(rows) + 1)
            cell.set_height(cell.get_height() * (len(lines[row - 1]) if row else 1))
            cell.PAD = 0.02 if column else 0.15
            cell.set_edgecolor("#d9dee4")
            cell.set_facecolor("#eef2f6" if heading else "white")
        title = f"{ADD}\n{self._sentence}"
        ax.set_title(wrapped(title, int(12 * width)), fontsize=9, loc="left")
        ax.axis("off")
        ax.text(0, -0.01, notes, fontsize=8, va="top", transform=ax.transAxes)
        return ax

    def to_html(self) -> str:
        """Return both tables as HTML, with instructions."""
        points = pd.DataFrame(self._lines(), columns=["points", "if"])
        risks = pd.DataFrame(self._rows(), columns=["total", self._risk])
        parts = ((ADD, points), (self._sentence, risks))
        tables = [
            f"<p>{escape(intro)}</p>\n{table.to_html(index=False, justify='left')}"
            for intro, table in parts
        ]
        notes = [f"<p>{'<br>'.join(map(escape, self.footnotes))}</p>"] * bool(self.footnotes)
        return "\n".join([*tables, *notes])

    _repr_html_ = to_html

    def to_latex(self) -> str:
        """Return both tables as LaTeX tabulars of at most :data:`PAGE` lines, with instructions."""
        rows = [f"${points}$ & {_latex(text)} \\\\" for points, text in self._lines()]
        risks = [f"${total}$ & {risk} \\\\".replace(" %", "\\,\\%") for total, risk in self._rows()]
        parts = (
            (ADD, "Points & Condition", rows),
            (_latex(self._sentence), f"Total & {_latex('R' + self._risk[1:])}", risks),
        )
        begin, end = "\\begin{tabular}{rp{0.8\\linewidth}}", "\\end{tabular}"
        blocks = []
        for intro, heading, table in parts:
            lines = itertools.accumulate(1 + len(row) // WIDE for row in table)
            pages = itertools.groupby(zip(table, lines, strict=True), lambda item: item[1] // PAGE)
            tabulars = (
                [begin, f"{heading} \\\\ \\hline", *(row for row, _ in page), end]
                for _, page in pages
            )
            blocks += [f"{intro}\\nopagebreak", *map("\n".join, tabulars)]
        notes = ["\\\\\n".join(map(_latex, self.footnotes))] * bool(self.footnotes)
        return "\n\n".join([*blocks, *notes])


def _footnotes(model: RuleEnsemble, rules: Sequence[Rule]) -> tuple[str, ...]:
    """Return what noise does not tell from the terms with points, after an explanation; see :attr:`footnotes`."""
    if model.error is None:
        return ()
    if model.alternatives is None:
        return (f"Alternatives to these lines: {UNKNOWN}.",)
    names = [rule.text(model.schema) for rule in model.rules]
    kept = [rule in rules for rule in model.rules]
    for feature in model.terms.linear:
        name = model.schema.names[feature]
        names.append(shown(name))
        kept.append(any(rule.features == (name,) and rule not in model.rules for rule in rules))
    notes = [
        f"{name}: {own.text(model.schema)}"
        for name, own, there in zip(names, model.alternatives, kept, strict=True)
        if own and there
    ]
    compared = max((own.compared for own in model.alternatives), default=0)
    return (f"Alternatives to these lines: {EXPLAINED}.", *(notes or [f"{NONE} {compared}"]))


def _signed(points: int) -> str:
    return f"{points:+d}" if points else "0"


def _latex(text: str) -> str:
    """Escape LaTeX's special characters, with comparisons and minus signs in math mode."""
    marks = "|".join(map(re.escape, _LATEX))
    return re.sub(rf"{marks}|(?<!\S)-(?=\d)", lambda mark: _LATEX.get(mark[0], "$-$"), text)


def _merge(rules: Iterable[Rule], points: Iterable[int]) -> tuple[list[Rule], np.ndarray]:
    """Return rules with points, joining neighbouring intervals of one column with equal points."""
    merged: list[tuple[Rule, int]] = []
    for rule, value in zip(rules, points, strict=True):
        if not value:
            continue
        joined = _union(merged[-1][0], rule) if merged and merged[-1][1] == value else None
        merged[-1 if joined else len(merged) :] = [(joined or rule, value)]
    return [rule for rule, _ in merged], np.array([value for _, value in merged], int)


def _union(below: Rule, above: Rule) -> Rule | None:
    """Return the union of two neighbouring intervals of one column with a lower end, else None."""
    if len(below.conditions) != 1 or len(above.conditions) != 1:
        return None
    (low,), (high,) = below.conditions, above.conditions
    touching = low.upper is not None and low.upper == high.lower and low.lower is not None
    if low.feature != high.feature or not touching:
        return None
    return Rule.of(Condition(low.feature, low.lower, high.upper))


def _in_bands(model: RuleEnsemble) -> tuple[list[Rule], list[float], float]:
    count, cutoffs = len(model.terms.boxes), model.terms.cutoffs
    rules = list(model.rules)
    values, intercept = model.weights[1 : 1 + count].tolist(), float(model.weights[0])
    for feature, weight in zip(model.terms.linear, model.weights[1 + count :], strict=True):
        low, high = float(cutoffs.lower[feature]), float(cutoffs.upper[feature])
        slope, name = float(0.4 * weight / cutoffs.scale[feature]), model.schema.names[feature]
        if model.schema.features[feature].kind == "category":
            first, second = np.clip([0, 1], low, high).tolist()
            intercept += slope * (first - (low + high) / 2)
            rules.append(Rule.of(Condition(name, 1.0)))
            values.append(slope * (second - first))
            continue
        width = (high - low) / BANDS
        ends = [low + k * width for k in range(1, BANDS)]
        edges = [roundest(end - width / 10, end + width / 10, end) for end in ends]
        if model.schema.features[feature].kind == "integer":
            edges = np.unique(np.ceil(edges)).tolist()
        bounds = [low, *edges, high]
        middles = [(a + b) / 2 for a, b in itertools.pairwise(bounds)]
        intercept += slope * (middles[0] - (low + high) / 2)
        for a, b, middle in zip(edges, [*edges[1:], None], middles[1:], strict=True):
            rules.append(Rule.of(Condition(name, a, b)))
            values.append(slope * (middle - middles[0]))
    return rules, values, intercept
