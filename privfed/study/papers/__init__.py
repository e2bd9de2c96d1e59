"""Tables and figures of the learners' papers, rerun by one command; the benchmarks use the same code."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

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
from privfed.study.papers.table import PaperTable, compared

MEASURED = "the table that docs/results were measured on"
QUICK = 2  #: Repetitions of a quick run
TABLES: Mapping[str, PaperTable] = {
    "rulefit/table-1": PaperTable(
        "supports of the five rules of trauma patients, and the number of rules",
        ("trauma",),
        10,
        trauma.table_1,
    ),
    "rulefit/figure-2": PaperTable(
        "federated less centralized AUC by the paper's settings in nine simulated scenarios of two models",
        (),
        20,
        simulations.figure_2,
        {"scenarios": 2},
    ),
    "rulefit/figure-4": PaperTable(
        "AUC and importances of variables beside Bayesian federated inference, trauma patients",
        ("trauma",),
        20,
        trauma.figure_4,
    ),
    "fuzzy-tree/table-3": PaperTable(
        "errors of local, federated and centralized trees on five sets",
        tuple(fuzzy_trees.PAPER),
        1,
        fuzzy_trees.table_3,
    ),
    "fuzzy-tree/table-5": PaperTable(
        "sizes of the same trees", tuple(fuzzy_trees.PAPER), 1, fuzzy_trees.table_5
    ),
    "forest/table-2": PaperTable(
        "accuracy or R^2 of public sets by Dirichlet division (the paper's cells are not at hand)",
        tuple(forest.SETS),
        10,
        forest.table(forest.public),
    ),
    "forest/table-3": PaperTable(
        "accuracy on banknote among 1 to 100 clients",
        ("banknote",),
        5,
        forest.table(forest.fragmented),
        {"counts": (1, 5)},
    ),
    "forest/table-5": PaperTable(
        "mean squared error under disjoint covariate shift (simulated)",
        (),
        5,
        forest.table(forest.shifts, kinds=("disjoint",)),
    ),
    "forest/table-6": PaperTable(
        "mean squared error under overlapping covariate shift (simulated)",
        (),
        5,
        forest.table(forest.shifts, kinds=("overlapping",)),
    ),
    "forest/table-7": PaperTable(
        "mean squared error by share of outliers (simulated)",
        (),
        5,
        forest.table(forest.outliers),
        {"shares": (0.0, 0.1)},
    ),
    "forest/figure-2": PaperTable(
        "mean squared error with clients alike, covariates shifted, outcomes shifted (simulated)",
        (),
        150,
        forest.table(forest.simulations, regimes=tuple(forest.REGIMES)[:3]),
        {"regimes": ("covariate shift",)},
    ),
    "forest/appendix-f2": PaperTable(
        "mean squared error with both covariates and outcomes shifted (simulated)",
        (),
        5,
        forest.table(forest.simulations, regimes=tuple(forest.REGIMES)[3:]),
    ),
    "genetic/figure-3": PaperTable(
        "gain in macro F1 over each client's own tree, and clients that gain",
        genetic.CLASSES,
        10,
        genetic.table(["gain", "share"]),
    ),
    "genetic/figure-4": PaperTable(
        "decision nodes, and edit distance to the client's structure",
        genetic.CLASSES,
        10,
        genetic.table(["nodes", "distance"]),
    ),
    "genetic/figure-5": PaperTable(
        "macro F1 of each method on nursery", ("nursery",), 10, genetic.table(["score"])
    ),
    "genetic/figure-6": PaperTable(
        "gain in macro F1 by number of clients",
        genetic.CLASSES,
        10,
        genetic.table(["gain"], genetic.SIZES),
    ),
    "genetic/figure-7": PaperTable(
        "gain in macro F1 by active share of the clients",
        genetic.CLASSES,
        10,
        genetic.table(["gain"], genetic.SHARES),
    ),
    "genetic/figure-8": PaperTable(
        "change of the mean squared error, and clients with a smaller one",
        genetic.NUMBER_FILES,
        10,
        genetic.table(["gain", "share"], numbers=True),
    ),
    "genetic/figure-9": PaperTable(
        "decision nodes and edit distance, for numbers",
        genetic.NUMBER_FILES,
        10,
        genetic.table(["nodes", "distance"], numbers=True),
    ),
    "genetic/figure-10": PaperTable(
        "change of the mean squared error by number of clients and active share",
        genetic.NUMBER_FILES,
        10,
        genetic.table(["gain"], genetic.SIZES + genetic.SHARES, numbers=True),
    ),
    "genetic/figure-11": PaperTable(
        "gain of IBM trees in macro F1 by how their depth is chosen",
        genetic.CLASSES,
        10,
        genetic.depths,
    ),
    "rule-search/figure-6": PaperTable(
        "coverage and precision by epsilon (simulated patients)",
        (),
        3,
        rule_search.table("epsilon"),
    ),
    "rule-search/figure-7": PaperTable(
        "epsilon of each question of a search (simulated patients)", (), 3, rule_search.questions
    ),
    "rule-search/figure-8": PaperTable(
        "coverage and precision by nu (simulated patients)", (), 3, rule_search.table("nu")
    ),
    "rule-search/figure-9": PaperTable(
        "coverage and precision by theta (simulated patients)", (), 3, rule_search.table("theta")
    ),
    "rule-search/figure-10": PaperTable(
        "balanced accuracy and F1 of learned rules by epsilon, beside coverage and precision",
        (learned_rules.SET,),
        10,
        learned_rules.table(learned_rules.by_epsilon, (learned_rules.NU,)),
    ),
    "rule-search/figure-11": PaperTable(
        "balanced accuracy and F1 of learned rules by nu, beside coverage and precision",
        (learned_rules.SET,),
        10,
        learned_rules.table(learned_rules.by_nu, learned_rules.NUS),
    ),
    "rule-search/figure-12": PaperTable(
        "number of learned rules by the share of the population that holds them",
        (learned_rules.SET,),
        1,
        learned_rules.figure_12,
    ),
}


def find(name: str) -> PaperTable:
    """Return a table by its name, such as ``rulefit/table-1``; InputError: there is none."""
    if name not in TABLES:
        raise InputError(
            f"no table {name!r} can be rerun; write one of {', '.join(TABLES)}"
            f"{did_you_mean(name, TABLES)}"
        )
    return TABLES[name]


def reproduce(
    name: str, folder: Path | None = None, *, quick: bool = False
) -> tuple[pd.DataFrame, list[str]]:
    """Rerun a paper's table; ``quick``: on the first data set, at most :data:`QUICK` repetitions, few settings.

    Returns:
        the paper's figures beside ours; a line for each data set, whether it is the one that our
        results were measured on; and one that says how quick a quick run was.

    Raises:
        InputError: there is no such table, its data are not at hand, or another table in their place cannot
            be learned from.
    """
    chosen = find(name)
    frames = {one: data.table(one, folder) for one in chosen.data[: 1 if quick else None]}
    found = {one: data.digest(frame) for one, frame in frames.items()}
    others = [one for one in found if found[one] != data.SETS[one].digest]
    told = [
        f"{one}: {len(frames[one])} rows, digest {digest[:16]}, "
        + (f"NOT {MEASURED}" if one in others else "as in docs/results")
        for one, digest in found.items()
    ]
    repetitions = min(chosen.repetitions, QUICK) if quick else chosen.repetitions
    if quick:
        rows = ", and a few rows of the table" if chosen.few else ""
        told.append(f"quick: {repetitions} of {chosen.repetitions} repetitions{rows}")
    try:
        return compared(chosen.run(frames, repetitions, **(chosen.few if quick else {}))), told
    except Exception as error:
        if not others:
            raise
        why = error if isinstance(error, InputError) else type(error).__name__
        raise InputError(
            f"{', '.join(others)}: is NOT {MEASURED}, and cannot be rerun ({why}); get "
            + "; ".join(data.SETS[one].origin for one in others)
        ) from error
