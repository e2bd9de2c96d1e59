"""Other candidates that fit as well as a term of a short rule list: post-processing of the model, at no cost.

Terms are chosen by their fit to scores F, and the posterior says how far F may be off: the true scores are F + e, with
e normal. Let u be a candidate's column without what the other chosen terms explain of it, of length one under the
weights of the fit. With these terms kept and refitted, a candidate c in the place of a term t changes the lack of fit
to scores G by <u_t, G>^2 - <u_c, G>^2. It fits the true scores better if |<u_c, F + e>| > |<u_t, F + e>|. Neither
product is taken to change its sign, so that the probability is Phi((|<u_c, F>| - |<u_t, F>|) / s), with s the std of
<u_c, e> - <u_t, e> (of their sum if the signs of the products differ).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import ndtr

from privfed.learners.rulefit.rules import Condition, Rule
from privfed.questions.tree import number_text
from privfed.tables.schema import Schema, shown

#: Probability of a better fit from which a candidate fits alike, that of being above a 90 % interval
ALIKE = 0.05
UNKNOWN, NONE = "not known", "none of"
EXPLAINED = (
    "candidates that noise and sampling cannot distinguish from a term: in its place, with all other terms "
    f"kept, each fits better with a probability of at least {100 * ALIKE:.0f} %; a cut-off of 8 divides values below 8 from "
    "8 and above"
)
#: A rule, or the name of a column for its linear term
Term = Rule | str


@dataclass(frozen=True)
class Alternatives:
    """Candidates that fit alike in the place of one term, the other terms kept."""

    #: of the same rule with other cut-offs: column, least and greatest cut-off, the rule's own included
    cutoffs: tuple[tuple[str, float, float], ...] = ()
    best: Term | None = None  #: the best of the other candidates
    others: int = 0  #: number of these other candidates
    compared: int = 0  #: number of all candidates compared with the term

    @classmethod
    def of(
        cls, own: Term, equivalent: Sequence[Term], compared: int, schema: Schema
    ) -> Alternatives:
        """Summarise the terms that fit alike in the place of a term, given best first."""
        forms = Forms(schema)
        return cls.of_forms(forms.of(own), [forms.of(term) for term in equivalent], compared)

    @classmethod
    def of_forms(cls, own: Formed, equivalent: Sequence[Formed], compared: int) -> Alternatives:
        """Summarise terms of the same :class:`Forms`, as :meth:`of`."""
        same = [other.ends for other in equivalent if other.form == own.form]
        unlike = {other.number: other.term for other in equivalent if other.form != own.form}
        others = list(unlike.values())
        cutoffs_by_column = [
            (each[0][0], [cut for _, cut in each]) for each in zip(own.ends, *same, strict=True)
        ]
        ranges = [(name, min(cuts), max(cuts)) for name, cuts in cutoffs_by_column]
        varied = tuple(one for one in ranges if one[1] < one[2])
        return cls(varied, others[0] if others else None, len(others), compared)

    def __bool__(self) -> bool:
        """Whether any candidate fits alike."""
        return bool(self.cutoffs) or self.best is not None

    def text(self, schema: Schema) -> str:
        """Format them: ``cut-off GCS 6 to 8; or sodium < 130 (and 3 more)``, or ``none of 700``.

        If they are most of the candidates, none is named, nor cut-offs: ``most of 700 other candidates``.
        """
        if not self:
            return f"{NONE} {self.compared}"
        if 0 < self.compared < 2 * self.others:
            return f"most of {self.compared} other candidates"
        parts = []
        if self.cutoffs:
            ends = ", ".join(
                f"{shown(name)} {number_text(low, high - low)} to {number_text(high, high - low)}"
                for name, low, high in self.cutoffs
            )
            parts.append(f"cut-off{'s' * (len(self.cutoffs) > 1)} {ends}")
        if self.best is not None:
            best = (
                self.best.text(schema)
                if isinstance(self.best, Rule)
                else f"a linear term of {shown(self.best)}"
            )
            parts.append(f"or {best}" + f" (and {self.others - 1} more)" * (self.others > 1))
        return "; ".join(parts)

    def to_dict(self) -> dict[str, Any]:
        """Return them as plain data."""
        best = self.best.to_dict() if isinstance(self.best, Rule) else self.best
        ends = [list(own) for own in self.cutoffs]
        return {"cutoffs": ends, "best": best, "others": self.others, "compared": self.compared}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], schema: Schema) -> Alternatives:
        """Read the output of :meth:`to_dict` (ValueError: it names a column that the schema lacks)."""
        cutoffs = tuple((name, float(low), float(high)) for name, low, high in data["cutoffs"])
        best = data["best"]
        if isinstance(best, list):
            best = Rule.of(*(Condition(**own) for own in best))
        named = best.features if isinstance(best, Rule) else (best,) if best is not None else ()
        if not {*named, *(name for name, *_ in cutoffs)} <= set(schema.names):
            raise ValueError("alternatives of columns")
        return cls(cutoffs, best, int(data["others"]), int(data["compared"]))


def marked(text: str) -> bool:
    """Whether :meth:`Alternatives.text` names any."""
    return text != UNKNOWN and not text.startswith(NONE)


def _conditions(term: Term) -> tuple[Condition, ...]:
    return term.conditions if isinstance(term, Rule) else ()


def form_of(term: Term, categories: set[str]) -> tuple[object, list[tuple[str, float]]]:
    """Return what a term shares with those that have other cut-offs only, and its cut-offs with their columns.

    A single threshold's two sides are one term, up to the sign of the coefficient; categories are no cut-offs.
    """
    form: list[object] = []
    ends: list[tuple[str, float]] = []
    for c in _conditions(term):
        thresholds = [(c.feature, end) for end in (c.lower, c.upper) if end is not None]
        sided = len(_conditions(term)) > 1 or len(thresholds) > 1
        if c.feature in categories:
            form.append(c)
        else:
            form.append((c.feature, sided and (c.lower is None, c.upper is None)))
            ends += thresholds
    return tuple(form) or term, ends


@dataclass(frozen=True, eq=False)
class Formed:
    """A term with its :func:`form_of`, and a number that equal terms share."""

    term: Term
    form: object
    ends: list[tuple[str, float]]
    number: int


class Forms:
    """Numbers terms, and finds their forms."""

    def __init__(self, schema: Schema) -> None:
        self._categories = {own.name for own in schema.features if own.kind == "category"}
        self._numbers: dict[Term, int] = {}

    def of(self, term: Term) -> Formed:
        """Return the term with its form and number."""
        number = self._numbers.setdefault(term, len(self._numbers))
        return Formed(term, *form_of(term, self._categories), number)


@dataclass(frozen=True, eq=False)
class TermExchanges:
    """What compares all candidates with chosen terms, by their columns, centred and weighted (sqrt of the weights)."""

    gram: np.ndarray  #: of all columns, shape (candidates, candidates)
    moment: np.ndarray  #: with the scores, shape (candidates,)
    signs: np.ndarray  #: required sign of each coefficient, 0 for any, shape (candidates,)
    usable: np.ndarray  #: which columns vary and may have a sign, shape (candidates,)
    chosen: Sequence[int]  #: indices of the terms
    variance: np.ndarray  #: of each column's product with the scores' errors, shape (candidates,)
    covariance: np.ndarray  #: of these products with the terms' own, shape (terms, candidates)

    def among(self, chosen: Sequence[int]) -> TermExchanges:
        """Return the comparison with some of the chosen terms only, in a given order."""
        rows = [list(self.chosen).index(index) for index in chosen]
        return replace(self, chosen=chosen, covariance=self.covariance[rows])

    def probabilities(self, position: int) -> np.ndarray:
        """Return each candidate's probability of a better fit in the place of a term; shape (candidates,).

        NaN for chosen terms, columns that the others explain or that are the term's own up to scale (a line of two
        values, for the step between them), and wrong signs.
        """
        others = [k for k in range(len(self.chosen)) if k != position]
        kept, replaced = [self.chosen[k] for k in others], self.chosen[position]
        cross, joint = self.gram[kept], self.covariance[others]
        system = cross[:, kept] + 1e-9 * np.eye(len(kept))
        coefficients = np.linalg.solve(system, cross)  # regression on the others
        residual = np.diag(self.gram) - (cross * coefficients).sum(axis=0)
        moment = self.moment - self.moment[kept] @ coefficients
        covariance_kept = joint[:, kept]
        variance = (
            self.variance
            - 2 * (coefficients * joint).sum(axis=0)
            + (coefficients * (covariance_kept @ coefficients)).sum(axis=0)
        )
        shared = self.covariance[position] - coefficients[:, replaced] @ joint
        shared = (
            shared
            + (coefficients[:, replaced] @ covariance_kept - joint[:, replaced]) @ coefficients
        )
        candidates = (
            self.usable & (residual > 1e-4 * np.diag(self.gram)) & ~(self.signs * moment < 0)
        )
        candidates[list(self.chosen)] = False
        sizes = np.diag(self.gram) * self.gram[replaced, replaced]
        candidates &= self.gram[replaced] ** 2 < (1 - 1e-9) * sizes
        length = np.sqrt(np.where(candidates, residual, 1.0))
        if self.signs[kept].any():
            weights = np.linalg.solve(system, self.moment[kept])[:, None]
            weights = weights - coefficients * (moment / length**2)
            candidates &= ~(self.signs[kept, None] * weights < 0).any(axis=0)
        replaced_length = float(np.sqrt(max(residual[replaced], 1e-300)))
        gains, gain = np.abs(moment) / length, abs(float(moment[replaced])) / replaced_length
        sign = np.where(moment * moment[replaced] < 0, -1.0, 1.0)
        noise = (
            variance / length**2
            + variance[replaced] / replaced_length**2
            - 2 * sign * shared / (length * replaced_length)
        )
        ratio = (gains - gain) / np.sqrt(np.maximum(noise, 1e-300))
        return np.where(candidates, ndtr(ratio), np.nan)
