"""A rule ensemble of one class's log-odds as a score card: integer points that add up to a risk.

After FasterRisk (Liu et al. 2022, Fast Interpretable Risk Score Models): log-odds are the intercept plus the total over
a common factor. A rule's points are its coefficient times the factor, rounded; a winsorised line has points for each of
five bands of equal width, the lowest one zero. Points of rules and lines on a single column are summed over its disjoint
ranges, so that a record has one line of each column.
"""

from __future__ import annotations

import itertools
import math
import re
import sys
from dataclasses import dataclass, replace
from functools import cached_property
from html import escape
from typing import TYPE_CHECKING, Any

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
from privfed.learners.rulefit.totals import attainable_totals, extreme_totals, values_between
from privfed.questions.tree import number_text, range_text
from privfed.tables.records import Records
from privfed.tables.schema import Column, Schema, shown

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from matplotlib.axes import Axes

_LATEX = {
    "\\": "\\textbackslash{}",
    "<=": "$\\le$",
    ">=": "$\\ge$",
    "≤": "$\\le$",
    "≥": "$\\ge$",
    "±": "$\\pm$",
    "µ": "$\\mu$",
    "μ": "$\\mu$",
    '"': "''",  # which babel's languages do not redefine
    "<": "$<$",
    ">": "$>$",
    "|": "$|$",
}
_LATEX |= {"^": "\\textasciicircum{}", "~": "\\textasciitilde{}"}
_LATEX |= {mark: f"\\{mark}" for mark in "&%$#{}"} | {"_": "\\_\\allowbreak{}"}
_LATEX["\u200b"] = "\\allowbreak{}"
#: Fraction of the variance about a total that is common to all with it, by simulation (docs/rulefit.md)
COMMON = 0.1
JOINT = "rules on several columns"
#: Bands of a line; the most of them on a card of one of several classes; and maximum rows of the table of risks
BANDS, MOST_BANDS, MOST_RISKS = 5, 12, 40
FEW = 3  #: Minimum records of a band whose value is their mean; of fewer it is the middle
MOST_NAMED = 5  #: Categories from which the largest group with equal points is "any other"
PAGE, WIDE = 40, 80  #: Maximum lines of a table on one page, and characters of a line


@dataclass(frozen=True, eq=False)
class ScoreCard:
    """A score card: integer points of rules, which add up to a total."""

    schema: Schema  #: the public data dictionary
    #: rules with points: ranges of single columns, which are disjoint, and rules on several columns
    rules: tuple[Rule, ...]
    points: np.ndarray  #: of each rule, nonzero integers, shape (rules,)
    intercept: float  #: log-odds at a total of zero
    factor: float  #: points of one unit of log-odds
    #: v0, v1, v2: v0 + v1 t + v2 t^2 is the variance of the log-odds at a total t; None if unknown
    variance: tuple[float, float, float] | None = None
    #: mean absolute difference of risks to the model's, on its synthetic records; None without such
    difference: float | None = None
    #: what noise does not tell from the model's terms; empty if it has no intervals
    footnotes: tuple[str, ...] = ()
    label: str = ""  #: the class whose risk it is; empty: the second of two

    @classmethod
    def from_ensemble(cls, model: RuleEnsemble, max_points: int = 10, label: str = "") -> ScoreCard:
        """Round an ensemble of log-odds to points of at most ``max_points`` in absolute value for each of its terms.

        Of several classes, the log-odds are of ``label`` against the rest.

        Raises:
            InputError: all coefficients are zero, or ``max_points`` is not an integer of at least 1.
        """
        given = {"max_points": max_points}
        check_values("scorecard", given, {"max_points": [Integers(at_least=1)]}, {"max_points": 10})
        rules, values, intercept = in_bands(model)
        largest = max(map(abs, values), default=0.0)
        factor = max_points / largest if largest > 0 else 0.0
        points: list[int] = np.rint(np.array(values) * factor).astype(int).tolist()
        notes = footnotes(model, [rule for rule, own in zip(rules, points, strict=True) if own])
        lines, sums = disjoint(rules, points, model.schema)
        if not lines:
            raise InputError(
                f"the model{f' of {label!r}' if label else ''} is a constant: no score card can be made of it"
            )
        card = cls(
            *(model.schema, tuple(lines), sums, intercept, factor), footnotes=notes, label=label
        )
        return card if model.synthetic is None else card._fitted_to(model, model.synthetic)

    def _fitted_to(self, model: RuleEnsemble, X: np.ndarray) -> ScoreCard:
        """Return the card with intercept and factor fitted to the model's scores of records, variance and difference.

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
        card = replace(self, intercept=intercept, factor=1 / slope, variance=variance)
        differences = np.abs(card.risk(totals) - expit(design @ model.weights))
        return replace(card, difference=float(differences.mean()))

    def totals(self, X: pd.DataFrame | np.ndarray) -> np.ndarray:
        """Return total points of a table's rows or of encoded records, integers, shape (records,)."""
        if isinstance(X, pd.DataFrame):
            X = Records.from_frame(X, Schema(self.schema.features)).x
        return np.asarray(self.points @ members(self.rules, X, self.schema), int)

    def risk(self, totals: np.ndarray) -> np.ndarray:
        """Return the probability of the second class, or of :attr:`label` against the rest, at some totals."""
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
        """Return columns points, column and if: one row for each printed line.

        Exactly one row of each column holds, with zero points too. Rules on several columns have no column.
        """
        rows: list[tuple[int, str, str]] = []
        for column in self.schema.features:
            parts = _parts(column, self.rules, self.points)
            rows += [(total, column.name, text) for total, text in _texts(column, parts)]
        joint = [
            (int(own), "", rule.text(self.schema, most=sys.maxsize))
            for rule, own in zip(self.rules, self.points, strict=True)
            if len(rule.conditions) > 1
        ]
        rows += sorted(joint, key=lambda row: -abs(row[0]))
        return pd.DataFrame(rows, columns=["points", "column", "if"])

    def to_dict(self) -> dict[str, Any]:
        """Return what is printed as plain data: lines, risks and notes."""
        return {
            "instruction": self._instruction,
            "lines": self.table().to_dict("records"),
            "heading": self._sentence,
            "risks": self.risks().to_dict("records"),
            "footnotes": list(self.footnotes),
        }

    def risks(self) -> pd.DataFrame:
        """Return columns total and risk, and low and high of its 90 % interval if known, for risks of 1 to 99 %.

        Totals that no record can have are left out, and beyond :data:`MOST_RISKS` more of them, evenly.
        """
        totals = self._totals[:: self._every]
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

    @property
    def _every(self) -> int:
        """One in how many totals has a row of the table of risks."""
        return -(-len(self._totals) // MOST_RISKS)

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
        label = self.label or (target.categories[1] if target.categories else "1")
        against = " against all other classes" if self.label else ""
        return f"of {shown(target.name)} = {shown(label)}{against}"

    @property
    def _heads(self) -> tuple[str, str]:
        """Return the headings of totals and risks."""
        known = "" if self.variance is None else " (90 % interval)"
        return "total", f"risk {self._of}{known}"

    @property
    def _sentence(self) -> str:
        """Return the sentence above the risks, with notes for their readers."""
        totals, (minimum, maximum) = self.risks()["total"], self._ends
        every = self._every
        gaps = every == 1 and len(totals) <= totals.iloc[-1] - totals.iloc[0]
        below, above = totals.iloc[0] > minimum, totals.iloc[-1] < maximum
        differ = "may differ"
        if self.difference is not None:
            differ = f"differ by {100 * self.difference:.1f} percentage points on average"
        notes = [
            (every > 1, f"one in {every} is shown: a total between two has a risk between theirs"),
            (gaps, "no record can have a total between these"),
            (below and not above, "a lower total has a lower risk"),
            (above and not below, "a higher total has a higher risk"),
            (below and above, "a total below these has a lower risk, one above a higher"),
            (self.variance is not None, "in brackets 90 % intervals for all with that total"),
            (True, f"the model's own risks, before rounding to points, {differ}"),
        ]
        return f"Risk {self._of} by total ({'; '.join(text for when, text in notes if when)}):"

    @property
    def _instruction(self) -> str:
        """Return the sentence above the points."""
        joint = [len(rule.conditions) > 1 for rule in self.rules]
        parts = ["one line for each column"] * (not all(joint)) + ["every rule that holds"] * any(
            joint
        )
        return f"Add the points of {' and of '.join(parts)}:"

    def _lines(self) -> list[tuple[str, str]]:
        """Return points and text of each line; without points, the heading of a column or of the rules."""
        lines: list[tuple[str, str]] = []
        for name, block in self.table().groupby("column", sort=False):
            lines.append(("", _heading(self.schema.column(str(name))) if name else JOINT))
            lines += [
                (_signed(own), text) for own, text in zip(block["points"], block["if"], strict=True)
            ]
        return lines

    def __str__(self) -> str:
        lines = [f"{points:>4}  if {text}" if points else text for points, text in self._lines()]
        risks = [f"{total:>4}  {risk}" for total, risk in self._rows()]
        return "\n".join([self._instruction, *lines, self._sentence, *risks, *self.footnotes])

    def plot(self, *, ax: Axes | None = None) -> Axes:
        """Plot points by condition, and below them the risk of every total."""
        from matplotlib.transforms import Bbox

        from privfed.learners.pictures import axes_of, literal, wrapped

        rows = self._lines()
        shown = [*rows, self._heads, *self._rows()]
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
            heading = row in (0, len(rows) + 1) or not shown[row - 1][0]
            cell.set_height(cell.get_height() * (len(lines[row - 1]) if row else 1))
            cell.PAD = 0.02 if column else 0.15
            cell.set_edgecolor("#d9dee4")
            cell.set_facecolor("#eef2f6" if heading else "white")
            cell.get_text().set_fontweight("bold" if heading else "normal")
        title = f"{self._instruction}\n{self._sentence}"
        ax.set_title(wrapped(title, int(12 * width)), fontsize=9, loc="left")
        ax.axis("off")
        ax.text(0, -0.01, notes, fontsize=8, va="top", transform=ax.transAxes)
        return ax

    def to_html(self) -> str:
        """Return both tables as HTML, with instructions."""
        parts = (
            (self._instruction, ("points", "if"), self._lines()),
            (self._sentence, self._heads, self._rows()),
        )
        tables = [f"<p>{escape(intro)}</p>\n{_html(heads, rows)}" for intro, heads, rows in parts]
        notes = [f"<p>{'<br>'.join(map(escape, self.footnotes))}</p>"] * bool(self.footnotes)
        return "\n".join([*tables, *notes])

    _repr_html_ = to_html

    def to_latex(self) -> str:
        """Return both tables as LaTeX tabulars of at most :data:`PAGE` lines, with instructions."""
        rows = [
            f"${points}$ & {_latex(text)} \\\\" if points else f" & \\textbf{{{_latex(text)}}} \\\\"
            for points, text in self._lines()
        ]
        risks = [f"${total}$ & {risk} \\\\".replace(" %", "\\,\\%") for total, risk in self._rows()]
        heads = " & ".join(_latex(head[:1].upper() + head[1:]) for head in self._heads)
        parts = (
            (_latex(self._instruction), "Points & If", rows),
            (_latex(self._sentence), heads, risks),
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
        # braces, because a name that begins with a bracket would be an argument of the line break
        notes = ["\\\\{}\n".join(map(_latex, self.footnotes))] * bool(self.footnotes)
        return "\n\n".join([*blocks, *notes])


def footnotes(model: RuleEnsemble, rules: Sequence[Rule]) -> tuple[str, ...]:
    """Return what noise does not tell from the terms with points, after an explanation; terms with the same together."""
    if model.error is None:
        return ()
    names = [rule.text(model.schema) for rule in model.rules]
    kept = [rule in rules for rule in model.rules]
    for k, feature in enumerate(model.terms.linear):
        name = model.schema.names[feature]
        names.append(shown(name) + ", linear part" * (not model.switched(k)))
        kept.append(any(rule.features == (name,) and rule not in model.rules for rule in rules))
    known = model.alternatives
    alike = [own.text(model.schema) if own else "" for own in known or ()] or [""] * len(names)
    zero = [low <= 0 <= high for low, high in model.intervals()[1:].tolist()]
    by_text: dict[str, list[str]] = {}
    for name, text, none, there in zip(names, alike, zero, kept, strict=True):
        if there and (text or none):
            told = "; ".join([text] * bool(text) + ["or no effect"] * none)
            by_text.setdefault(told, []).append(name)
    notes = [f"{'; '.join(names)}: {told}" for told, names in by_text.items()]
    compared = max((own.compared for own in known or ()), default=0)
    none = [] if notes or known is None else [f"{NONE} {compared}"]
    explained = UNKNOWN if known is None else EXPLAINED
    heading = (
        f"Alternatives to the terms that these points add up: {explained}; or no effect, if the 90 % interval of a "
        "coefficient includes 0."
    )
    return (heading, *notes, *none)


def _signed(points: int) -> str:
    return f"{points:+d}" if points else "0"


def _latex(text: str) -> str:
    """Escape LaTeX's special characters, with comparisons and minus signs in math mode; long words may break."""
    text = re.sub(r"\S{30,}", lambda word: re.sub(r"(.{10})(?=.)", "\\1\u200b", word[0]), text)
    marks = "|".join(map(re.escape, _LATEX))
    return re.sub(rf"{marks}|(?<!\S)-(?=\d)", lambda mark: _LATEX.get(mark[0], "$-$"), text)


def _html(heads: Sequence[str], rows: Iterable[tuple[str, str]]) -> str:
    """Return a table of two columns as HTML; a row without its first cell is a heading."""
    lines = [f"<tr>{''.join(f'<th>{escape(head)}</th>' for head in heads)}</tr>"]
    lines += [
        f"<tr><td>{first}</td><td>{escape(text)}</td></tr>"
        if first
        else f'<tr><th colspan="2">{escape(text)}</th></tr>'
        for first, text in rows
    ]
    table = '<table border="1" class="dataframe" style="text-align: left">'
    return "\n".join([table, *lines, "</table>"])


def _heading(column: Column) -> str:
    """Format a column with its description, and what a missing value counts as."""
    notes = [" ".join(column.description.split())] * bool(column.description)
    if column.fill is not None:
        fill = shown(column.fill) if isinstance(column.fill, str) else number_text(column.fill)
        notes.append(f"a missing value counts as {fill}")
    return shown(column.name) + f" ({'; '.join(notes)})" * bool(notes)


def _parts(
    column: Column, rules: Iterable[Rule], points: Iterable[int]
) -> list[tuple[Condition, int]]:
    """Return the consecutive ranges of a column, all its values together, and the sum of the points of each.

    The sums are of rules on this column alone; without such rules there are no ranges.
    """
    pairs = zip(rules, points, strict=True)
    alone = [(rule.conditions[0], own) for rule, own in pairs if rule.features == (column.name,)]
    if not alone:
        return []
    starts = values_between(column, [condition for condition, _ in alone])
    sums = np.sum([own * condition.holds(starts) for condition, own in alone], axis=0)
    first = np.flatnonzero(np.diff(sums, prepend=np.nan))
    ends = [None, *starts[first[1:]].tolist(), None]
    ranges = itertools.starmap(
        Condition, ((column.name, *pair) for pair in itertools.pairwise(ends))
    )
    return list(zip(ranges, sums[first].tolist(), strict=True))


def disjoint(
    rules: Sequence[Rule], points: Sequence[int], schema: Schema
) -> tuple[list[Rule], np.ndarray]:
    """Return rules with points and the same total of every record, those on one column being disjoint ranges."""
    lines: list[tuple[Rule, int]] = []
    for column in schema.features:
        always = Condition(column.name, column.bounds[0])
        parts = _parts(column, rules, points)
        lines += [(Rule.of(part if len(parts) > 1 else always), own) for part, own in parts]
    lines += [pair for pair in zip(rules, points, strict=True) if len(pair[0].conditions) > 1]
    kept = [(rule, own) for rule, own in lines if own]
    return [rule for rule, _ in kept], np.array([own for _, own in kept], int)


def _texts(column: Column, parts: Sequence[tuple[Condition, int]]) -> list[tuple[int, str]]:
    """Format ranges, or groups of categories with equal points, of which a large one is "any other"."""
    if column.kind != "category":
        return [(own, range_text(*part.ends, column)) for part, own in parts]
    groups: dict[int, list[str]] = {}
    for part, own in parts:
        held = part.holds(np.arange(len(column.categories), dtype=float))
        groups.setdefault(own, []).extend(
            shown(column.categories[code]) for code in np.flatnonzero(held)
        )
    largest = max(groups, key=lambda own: len(groups[own]), default=0)
    if len(groups) > 1 and len(groups[largest]) >= MOST_NAMED:
        del groups[largest]
        groups[largest] = ["any other"]  # the last
    return [(own, ", ".join(names)) for own, names in groups.items()]


def members(rules: Sequence[Rule], X: np.ndarray, schema: Schema) -> np.ndarray:
    """Return whether each rule holds for encoded records, shape (rules, records)."""
    held = [rule.holds(X, schema.names) for rule in rules]
    return np.array(held, bool).reshape(len(rules), len(X))


def in_bands(
    model: RuleEnsemble, step: float | None = None, X: np.ndarray | None = None
) -> tuple[list[Rule], list[float], float]:
    """Return rules, their coefficients and the intercept, with each line in bands of equal width.

    Args:
        model: of scores or log-odds.
        step: the most that a line may rise in one of 5 to 12 bands; None for five bands.
        X: encoded records, whose mean in a band is its value; None for its middle.
    """
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
        rise = abs(slope) * (high - low)
        bands = BANDS if step is None else min(max(BANDS, math.ceil(rise / step)), MOST_BANDS)
        width = (high - low) / bands
        ends = [low + k * width for k in range(1, bands)]
        edges = [roundest(end - width / 10, end + width / 10, end) for end in ends]
        if model.schema.features[feature].kind == "integer":
            edges = np.unique(np.ceil(edges)).tolist()
        bounds = [low, *edges, high]
        middles = [(a + b) / 2 for a, b in itertools.pairwise(bounds)]
        if X is not None:
            middles = _means(X[:, feature], np.array(bounds), middles)
        intercept += slope * (middles[0] - (low + high) / 2)
        for a, b, middle in zip(edges, [*edges[1:], None], middles[1:], strict=True):
            rules.append(Rule.of(Condition(name, a, b)))
            values.append(slope * (middle - middles[0]))
    return rules, values, intercept


def _means(x: np.ndarray, bounds: np.ndarray, middles: Sequence[float]) -> list[float]:
    """Return the mean of values, clipped to the bounds, in each band between them; of too few, its middle."""
    own, clipped = np.searchsorted(bounds[1:-1], x, side="right"), np.clip(x, bounds[0], bounds[-1])
    counts = np.bincount(own, minlength=len(middles))
    sums = np.bincount(own, clipped, minlength=len(middles))
    pairs = zip(counts.tolist(), sums.tolist(), middles, strict=True)
    return [total / n if n >= FEW else middle for n, total, middle in pairs]
