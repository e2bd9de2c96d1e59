"""From the genetic benchmarks' raw outputs to the small tables under benchmarks/results.

    python benchmarks/genetic_results.py FOLDER

reads what of these the folder holds, and then `python benchmarks/results_page.py` shows it:

    iid.csv, dirichlet.csv, numbers.csv, tenth.csv    of genetic_tree.py: equal shares, --alpha 1, numbers,
                                                      --participation 0.1
    private*.csv                                      of genetic_private.py
    membership.csv                                    of genetic_membership.py
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pandas as pd
from result_rows import PaperRows, arguments

from privfed.study.papers.genetic import NUMBERS
from privfed.study.papers.genetic import PAPER as THEIRS

PAPER = "FedGA-Tree"
#: What the learners of genetic_tree.py are called, and of which clients and nodes are counted too.
LEARNERS = {
    "local": "own tree",
    "paper": "paper's way",
    "refit": "refitted",
    "folds": "scored by folds",
    "own+refit": "own tree in the choice, refitted",
    "folds+own": "folds and own tree",
    "bounded": "bounded scores",
    "central": "centralized tree",
    "IBM": "IBM tree",
    "IBM, secure sum": "IBM tree, secure sum",
}
COUNTED = ("local", "paper", "folds+own", "IBM, secure sum")
NOTE = (
    "{} of the paper's 10 splits, each run once (the paper: ten times); 20 clients, P = {}, G = 100{}; means "
    "over clients, after ± the deviation over splits; the mean over sets is of the splits that all have"
)


def gains(told: PaperRows, raw: pd.DataFrame, titles: dict[str, str], note: str) -> None:
    """For each figure a table: a line for each set, and one for the mean over sets."""
    sets = list(dict.fromkeys(raw["set"]))
    whole = raw.groupby("split")["set"].nunique()
    common = raw[raw["split"].isin(whole[whole == len(sets)].index)]
    parts = {name: raw[raw["set"] == name] for name in sets}
    if len(common) and len(sets) > 1:
        parts[f"mean of {len(sets)} sets"] = common
    for figure, title in titles.items():
        for row, own in parts.items():
            for learner, column in LEARNERS.items():
                if figure != "gain" and learner not in COUNTED:
                    continue
                found = own[own["learner"] == learner].dropna(subset=[figure])
                values = found.groupby("split")[figure].mean()
                if len(values):
                    theirs = own is common and title.startswith("Figure 3")
                    known = THEIRS.get((learner, figure), "") if theirs else ""
                    told.add(
                        title,
                        row,
                        column=column,
                        theirs=known,
                        note=note,
                        ours=float(values.mean()),
                        spread=_spread(values),
                    )


def _spread(values: pd.Series) -> float | str:
    return float(values.std()) if len(values) > 1 else ""


#: By file: what its tables are called by figure, P, and what else is to be said.
TREES = {
    "iid.csv": (
        {
            "gain": "Figure 3 (a), gain in macro F1 over each client's own tree, in %",
            "share": "Figure 3 (b), clients that gain, in %",
            "nodes": "Figure 4 (a), decision nodes of a client's tree",
        },
        20,
        "",
    ),
    "tenth.csv": (
        {"gain": "Figure 7, gain in macro F1 with a tenth of the clients active, in %"},
        20,
        ", one client in ten active in each generation",
    ),
    "numbers.csv": (
        {
            "gain": "Figure 8 (a), change of the mean squared error to each client's own tree, in %",
            "share": "Figure 8 (b), clients with a smaller error, in %",
            "nodes": "Figure 9 (a), decision nodes of a client's tree, for numbers",
        },
        40,
        "; a smaller error is better; of the paper's sets: abalone, houses and sulfur",
    ),
    "dirichlet.csv": (
        {
            "gain": "Gain in macro F1, classes divided by a Dirichlet(1) law, in %",
            "share": "Clients that gain, classes divided by a Dirichlet(1) law, in %",
        },
        20,
        ", clients with fewer than 10 records left out",
    ),
}


def trees(folder: Path) -> Iterable[tuple[str, PaperRows]]:
    """What genetic_tree.py found."""
    for file, (titles, population, more) in TREES.items():
        if not (folder / file).exists():
            continue
        raw = pd.read_csv(folder / file)
        splits = raw.groupby("set")["split"].nunique()
        few, many = splits.min(), splits.max()
        count = f"{many}" if few == many else f"{few} to {many}"
        told = _rows(raw)
        gains(told, raw, titles, NOTE.format(count, population, more))
        yield f"genetic_tree_{Path(file).stem}", told


def _rows(raw: pd.DataFrame) -> PaperRows:
    """An empty table, measured when and with what seeds the raw figures were."""
    splits = sorted(set(raw["split"]))
    seeds = f"{splits[0]}" if len(splits) == 1 else f"{splits[0]} to {splits[-1]}"
    return PaperRows(PAPER, seeds, ", ".join(dict.fromkeys(raw["commit"].astype(str))))


def private(folder: Path) -> Iterable[tuple[str, PaperRows]]:
    """What genetic_private.py found: by epsilon, then by depth."""
    files = sorted(folder.glob("private*.csv"))
    if not files:
        return
    raw = pd.concat([pd.read_csv(file) for file in files], ignore_index=True)
    raw = raw.sort_values("epsilon", kind="stable")
    numbers, four = raw["set"].isin(list(NUMBERS)), raw["learner"] == "shared, depth 4"
    if (~numbers & four).any():
        yield "genetic_private_classes", by_epsilon(raw[~numbers & four], numbers=False)
    if (numbers & four).any():
        yield "genetic_private_numbers", by_epsilon(raw[numbers & four], numbers=True)
    deep = raw[~numbers & (raw["records"] >= 27_000) & (raw["epsilon"] == 4)]
    if deep["learner"].nunique() > 1:
        yield "genetic_private_depths", by_depth(deep)


def by_epsilon(raw: pd.DataFrame, *, numbers: bool) -> PaperRows:
    """A line for each set and number of records."""
    told, what = _rows(raw), "change of the mean squared error" if numbers else "gain in macro F1"
    title = f"`private`, {what} to own trees by records and epsilon"
    gain, better = ("change of MSE, %", "better off") if numbers else ("gain, %", "that gain")
    note = "real gates, delta 1e-5, 20 clients, depth 4; classes as uncommon as they are; " + (
        "the shared tree's error is in % of the training mean's, less 100; less is better"
        if numbers
        else "labels alone: what weighing labels by the released shares of the classes gains, "
        "without anything else shared; log loss is less the constant's, below zero is better than it"
    )
    for (name, records), own in raw.groupby(["set", "records"], sort=False):
        row = f"{name}, {records:,} records"
        tried = own["split"].nunique()
        for epsilon, part in own.groupby("epsilon"):
            at = f"epsilon {epsilon:g}"
            figures = {f"{at}: {gain}": "gain"}
            if epsilon in (1, 4):
                figures[f"{at}: clients {better}, %"] = "share"
                shown = (
                    "error beside the constant's, %"
                    if numbers
                    else "log loss beside the constant's, nats"
                )
                figures[f"{at}: own trees' {shown}"] = "excess"
                figures[f"{at}: shared tree's {shown}"] = "shared excess"
            for column, figure in figures.items():
                told.add(
                    title,
                    row,
                    column=column,
                    note=note,
                    ours=float(part[figure].mean()),
                    spread=_spread(part[figure]),
                )
        if not numbers:
            alone = own[own["epsilon"] == own["epsilon"].max()]["labels alone"]
            told.add(
                title,
                row,
                column="labels alone: gain, %",
                note=note,
                ours=float(alone.mean()),
                spread=_spread(alone),
            )
        told.add(title, row, column="splits", ours=float(tried), note=note)
    return told


def by_depth(raw: pd.DataFrame) -> PaperRows:
    """A line for each set, a column for each depth of the shared tree."""
    title, told = "`private`, gain in macro F1 by depth of the shared tree", _rows(raw)
    note = "epsilon 4, delta 1e-5, real gates, 20 clients, 27,000 records"
    for (name, learner), own in raw.sort_values("learner").groupby(["set", "learner"], sort=False):
        told.add(
            title,
            str(name),
            column=f"{str(learner).removeprefix('shared, ')}: gain, %",
            note=note,
            ours=float(own["gain"].mean()),
            spread=_spread(own["gain"]),
        )
    return told


def membership(folder: Path) -> Iterable[tuple[str, PaperRows]]:
    """What genetic_membership.py found."""
    file = folder / "membership.csv"
    if not file.exists():
        return
    raw = pd.read_csv(file)
    told = PaperRows(PAPER, "0", str(raw["commit"].iloc[0]))
    for (title, row), own in raw.groupby(["table", "row"], sort=False):
        for column, values in own.groupby("column", sort=False)["value"]:
            told.add(
                str(title),
                str(row),
                column=str(column),
                note=str(own["note"].iloc[0]),
                ours=float(values.mean()),
                spread=_spread(values),
            )
    yield "genetic_membership", told


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("folder", type=Path, help="what the benchmarks wrote")
    folder = parser.parse_args().folder
    for made in (trees, private, membership):
        for name, told in made(folder):
            print(told.write(name))


if __name__ == "__main__":
    main()
