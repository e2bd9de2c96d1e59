"""Comparison of a paper's table with ours, with standard errors and differences."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any, TypeVar

import numpy as np
import pandas as pd
from tqdm.auto import tqdm

T = TypeVar("T")


@dataclass(frozen=True)
class Measured:
    """One figure."""

    row: str
    column: str
    paper: float | None  #: the paper's figure; None if it has only a plot
    ours: Sequence[float]  #: one for each repetition


@dataclass(frozen=True)
class PaperTable:
    """A table or figure of a paper that can be reproduced."""

    title: str  #: what it shows
    data: tuple[str, ...]  #: its data sets, by their names in :data:`.data.SETS`; none if simulated
    repetitions: int  #: the paper's, or as many as we measured
    run: Callable[..., Iterator[Measured]]  #: takes the data sets and the number of repetitions
    few: Mapping[str, Any] = field(default_factory=dict)  #: further arguments of a quick ``run``


def rows_of(file: str) -> Iterator[dict[str, str]]:
    """Read the rows of one of the papers' files."""
    text = (files("privfed.study.papers") / file).read_text(encoding="utf-8")
    return csv.DictReader(text.splitlines())


def repeated(items: Iterable[T], setting: str, count: int | None = None) -> Iterable[T]:
    """Return the items with a progress bar on a terminal: the setting, and the repetitions done of ``count``."""
    bar: Iterable[T] = tqdm(
        items, desc=setting, total=count, unit=" repetition", leave=False, disable=None
    )
    return bar


def compared(figures: Iterable[Measured]) -> pd.DataFrame:
    """Return the paper's figure, our mean and its standard error, the difference, and the repetitions.

    Repetitions that share records, such as folds, are not independent: their standard error is too small.
    """
    rows = []
    for figure in figures:
        ours, count = np.asarray(figure.ours, dtype=float), len(figure.ours)
        rows.append(
            {
                "row": figure.row,
                "column": figure.column,
                "paper": figure.paper,
                "ours": ours.mean(),
                "standard error": ours.std(ddof=1) / count**0.5 if count > 1 else None,
                "difference": None if figure.paper is None else ours.mean() - figure.paper,
                "repetitions": count,
            }
        )
    return pd.DataFrame(rows).astype(
        dict.fromkeys(("paper", "standard error", "difference"), float)
    )
