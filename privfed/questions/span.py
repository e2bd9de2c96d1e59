"""A condition on one feature: the values between two ends, or among some categories."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from privfed.tables.schema import Column


@dataclass(frozen=True)
class Span:
    """``lower <= x < upper``, among the codes ``among`` (``None``: any) and not in ``besides``."""

    feature: int  #: its index in the schema
    lower: float = -np.inf  #: where the half-open interval begins; an infinite end is open
    upper: float = np.inf  #: where it ends
    among: frozenset[int] | None = None  #: codes of the only categories that meet it, or ``None``
    besides: frozenset[int] = frozenset()  #: codes of categories that do not meet it

    def __and__(self, other: Span) -> Span:
        both = [span.among for span in (self, other) if span.among is not None]
        return Span(
            self.feature,
            max(self.lower, other.lower),
            min(self.upper, other.upper),
            frozenset.intersection(*both) if both else None,
            self.besides | other.besides,
        )

    def holds(self, values: np.ndarray) -> np.ndarray:
        """Which values meet it."""
        met = (values >= self.lower) & (values < self.upper)
        if self.among is not None:
            met &= np.isin(values, list(self.among))
        return np.asarray(met & ~np.isin(values, list(self.besides)))

    def text(self, column: Column) -> str:
        """Write it as a clinician reads it: ``age < 57.2``, ``3 <= GCS < 8``, ``sex = female``."""
        if column.kind != "category":
            return interval_text(column.name, self.lower, self.upper)
        codes = np.arange(len(column.categories))
        return categories_text(column, self.holds(codes))


def interval_text(name: str, lower: float, upper: float) -> str:
    """``lower <= name < upper`` without the ends that are open."""
    if lower == -np.inf:
        return f"{name} < {_number(upper)}" if upper < np.inf else f"any {name}"
    if upper == np.inf:
        return f"{name} >= {_number(lower)}"
    return f"{_number(lower)} <= {name} < {_number(upper)}"


def categories_text(column: Column, met: np.ndarray) -> str:
    """The categories of a column that meet a condition, by name."""
    named = [name for name, in_ in zip(column.categories, met, strict=True) if in_]
    if len(named) == 1:
        return f"{column.name} = {named[0]}"
    return f"{column.name} in {{{', '.join(named)}}}"


def _number(value: float) -> str:
    return f"{value:.4g}" if abs(value) < 1e4 else f"{value:.6g}"
