"""Tables and figures of the learners' papers, reproduced by one command; the benchmarks use the same code."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from privfed.errors import InputError, did_you_mean
from privfed.study.papers import (
    data,
    forest,
    fuzzy_trees,
    genetic,
    learned_rules,
    rule_search,
    simulations,
    trauma,
)
from privfed.study.papers.table import Measured, PaperTable, compared, rows_of

MEASURED = "the table that docs/results were measured on"
QUICK = 2  #: Repetitions of a quick run
#: The function that runs each table. Titles, sets and repetitions (the paper's, or ours) are in ``tables.csv``.
RUNS: Mapping[str, Callable[..., Iterator[Measured]]] = {
    "rulefit/table-1": trauma.table_1,
    "rulefit/figure-2": simulations.figure_2,
    "rulefit/figure-4": trauma.figure_4,
    "fuzzy-tree/table-3": fuzzy_trees.table_3,
    "fuzzy-tree/table-5": fuzzy_trees.table_5,
    "forest/table-2": forest.table(forest.public),
    "forest/table-3": forest.table(forest.fragmented),
    "forest/table-5": forest.table(forest.shifts, kinds=("disjoint",)),
    "forest/table-6": forest.table(forest.shifts, kinds=("overlapping",)),
    "forest/table-7": forest.table(forest.outliers),
    "forest/figure-2": forest.table(forest.simulations, regimes=tuple(forest.REGIMES)[:3]),
    "forest/appendix-f2": forest.table(forest.simulations, regimes=tuple(forest.REGIMES)[3:]),
    "genetic/figure-3": genetic.table(["gain", "share"]),
    "genetic/figure-4": genetic.table(["nodes", "distance"]),
    "genetic/figure-5": genetic.table(["score"]),
    "genetic/figure-6": genetic.table(["gain"], genetic.SIZES),
    "genetic/figure-7": genetic.table(["gain"], genetic.SHARES),
    "genetic/figure-8": genetic.table(["gain", "share"], numbers=True),
    "genetic/figure-9": genetic.table(["nodes", "distance"], numbers=True),
    "genetic/figure-10": genetic.table(["gain"], genetic.SIZES + genetic.SHARES, numbers=True),
    "genetic/figure-11": genetic.depths,
    "rule-search/figure-6": rule_search.table("epsilon"),
    "rule-search/figure-7": rule_search.questions,
    "rule-search/figure-8": rule_search.table("nu"),
    "rule-search/figure-9": rule_search.table("theta"),
    "rule-search/figure-10": learned_rules.table(learned_rules.by_epsilon, (learned_rules.NU,)),
    "rule-search/figure-11": learned_rules.table(learned_rules.by_nu, learned_rules.NUS),
    "rule-search/figure-12": learned_rules.figure_12,
}
#: Settings of a quick run of long tables, as arguments of their functions.
FEW: Mapping[str, Mapping[str, Any]] = {
    "rulefit/figure-2": {"scenarios": 2},
    "forest/table-3": {"counts": (1, 5)},
    "forest/table-7": {"fractions": (0.0, 0.1)},
    "forest/figure-2": {"regimes": ("covariate shift",)},
}
TABLES: Mapping[str, PaperTable] = {
    (name := row["name"]): PaperTable(
        row["title"],
        tuple(row["data"].split()),
        int(row["repetitions"]),
        RUNS[name],
        FEW.get(name, {}),
    )
    for row in rows_of("tables.csv")
}


def find(name: str) -> PaperTable:
    """Return a table by its name, such as ``rulefit/table-1`` (InputError: there is none)."""
    if name not in TABLES:
        raise InputError(
            f"no table {name!r} can be rerun; write one of {', '.join(TABLES)}"
            f"{did_you_mean(name, TABLES)}"
        )
    return TABLES[name]


def reproduce(
    name: str, folder: Path | None = None, *, quick: bool = False
) -> tuple[pd.DataFrame, list[str]]:
    """Reproduce a paper's table; ``quick``: on the first data set, at most :data:`QUICK` repetitions, few settings.

    Returns:
        the paper's figures and ours; and lines: for each data set, whether it is the one that our results
        were measured on, and for a quick run, its repetitions.

    Raises:
        InputError: there is no such table, its data are not available, or training fails on another
            table given instead.
    """
    entry = find(name)
    frames = {item: data.table(item, folder) for item in entry.data[: 1 if quick else None]}
    digests = {item: data.digest(frame) for item, frame in frames.items()}
    others = [item for item in digests if digests[item] != data.SETS[item].digest]
    lines = [
        f"{item}: {len(frames[item])} rows, digest {digest[:16]}, "
        + (f"NOT {MEASURED}" if item in others else "as in docs/results")
        for item, digest in digests.items()
    ]
    repetitions = min(entry.repetitions, QUICK) if quick else entry.repetitions
    if quick:
        rows = ", and a few rows of the table" if entry.few else ""
        lines.append(f"quick: {repetitions} of {entry.repetitions} repetitions{rows}")
    try:
        return compared(entry.run(frames, repetitions, **(entry.few if quick else {}))), lines
    except Exception as error:
        if not others:
            raise
        reason = error if isinstance(error, InputError) else type(error).__name__
        raise InputError(
            f"{', '.join(others)}: is NOT {MEASURED}, and cannot be rerun ({reason}); get "
            + "; ".join(data.SETS[item].origin for item in others)
        ) from error
