"""From the genetic benchmarks' raw outputs to the small tables under benchmarks/results.

    python benchmarks/genetic_results.py FOLDER

reads what of these the folder holds, and then `python benchmarks/results_page.py` shows it:

    trees.csv         of genetic_tree.py: base --runs 10; sizes shares
    ways.csv          of genetic_tree.py base --ways all
    dirichlet.csv     of genetic_tree.py base --alpha 1
    private*.csv      of genetic_private.py
    membership.csv    of genetic_membership.py
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
from result_rows import PaperRows, arguments

from privfed.study.papers.genetic import CLIENTS, NUMBERS, SHARES, SIZES
from privfed.study.papers.genetic import PAPER as THEIRS

PAPER = "FedGA-Tree"
#: What the learners of genetic_tree.py are called.
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
BASE = ((CLIENTS, 1.0),)


@dataclass(frozen=True)
class FigureRows:
    """What a figure shows of genetic_tree.py's rows: columns are its learners, or several settings of one."""

    title: str
    shows: str  #: a column of the rows
    settings: Sequence[tuple[int, float]] = BASE
    learners: Sequence[str] = tuple(LEARNERS)
    numbers: bool = False
    sets: Sequence[str] = ()  #: all, where none is named
    over: str = "split"  #: what the deviation is over
    first: int | None = None  #: how many splits, if not all

    def own(self, raw: pd.DataFrame) -> pd.DataFrame:
        """Its rows, each with ``row`` and ``column`` of the table, and its ``value``."""
        settings = pd.Series(list(zip(raw["clients"], raw["active"], strict=True)), raw.index)
        kept = settings.isin(self.settings) & raw["learner"].isin(self.learners)
        kept &= raw["set"].isin(list(NUMBERS)) == self.numbers
        kept &= raw["set"].isin(self.sets or set(raw["set"]))
        kept &= raw["split"].isin(sorted(set(raw["split"]))[: self.first])
        columns = raw["learner"].map(LEARNERS)
        if len(self.settings) > 1:
            alike = len({active for _, active in self.settings}) == 1
            columns = settings.map(
                lambda one: f"{one[0]} clients" if alike else f"{100 * one[1]:g} % active"
            )
        table = raw.assign(column=columns, value=raw[self.shows])[kept]
        return table.dropna(subset=["value"])

    def add(self, told: PaperRows, raw: pd.DataFrame) -> None:
        """A line for each set, and one for the mean over sets, of the splits that all have."""
        table = self.own(raw)
        sets, columns = list(dict.fromkeys(table["set"])), dict.fromkeys(table["column"])
        whole = table.groupby("split").apply(lambda one: len(set(zip(one["set"], one["column"], strict=True))))  # fmt: skip
        full = whole[whole == len(sets) * len(columns)].index
        if len(self.settings) > 1:
            table = table[table["split"].isin(full)]
        splits, runs = table.groupby("set")["split"], table.groupby(["set", "split"])["run"]
        note = self.note(_range(splits.nunique()), _range(runs.nunique()))
        parts = {name: table[table["set"] == name] for name in sets}
        if len(full) and len(sets) > 1:
            parts[f"mean of {len(sets)} sets"] = table[table["split"].isin(full)]
        for row, own in parts.items():
            for column, cell in own.groupby("column", sort=False):
                values = cell.groupby(self.over)["value"].mean()
                known = THEIRS.get((str(cell["learner"].iloc[0]), self.shows), "")
                told.add(
                    self.title,
                    row,
                    column=str(column),
                    theirs=known if row not in sets and self.title.startswith("Figure 3") else "",
                    note=note,
                    ours=float(values.mean()),
                    spread=_spread(values),
                )

    def note(self, splits: str, runs: str) -> str:
        """How much was run."""
        ran = f"{splits} of the paper's 10 splits, {runs} of its 10 runs of each"
        better = "; a smaller error is better" * (self.numbers and self.shows == "gain")
        return (
            f"{ran}; P = {40 if self.numbers else 20}, G = 100{better}; means over clients, after ± the "
            f"deviation over {self.over}s; the mean over sets is of the splits that all have"
        )


def _range(counts: pd.Series) -> str:
    few, many = int(counts.min()), int(counts.max())
    return f"{many}" if few == many else f"{few} to {many}"


def _spread(values: pd.Series) -> float | str:
    return float(values.std()) if len(values) > 1 else ""


GAIN = "gain in macro F1 over each client's own tree, in %"
CHANGE = "change of the mean squared error to each client's own tree, in %"
APART = "edit distance of a client's tree to its own structure"
SECURE = ("IBM, secure sum",)
GROWN = ("local", "paper", *SECURE)
#: By file of genetic_tree.py's rows: what is told of them.
TREES = {
    "trees.csv": (
        FigureRows(f"Figure 3 (a), {GAIN}", "gain"),
        FigureRows("Figure 3 (b), clients that gain, in %", "share", learners=("paper", *SECURE)),
        FigureRows("Figure 4 (a), decision nodes of a client's tree", "nodes", learners=GROWN),
        FigureRows(f"Figure 4 (b), {APART}", "distance"),
        FigureRows(
            "Figure 5 (a), macro F1 on one split of nursery",
            "score",
            learners=GROWN,
            sets=("nursery",),
            over="run",
            first=1,
        ),
        FigureRows("Figure 5 (b), macro F1 on nursery", "score", sets=("nursery",)),
        FigureRows("Figure 6 (a), gain in macro F1, in %", "gain", SIZES, ("paper",)),
        FigureRows("Figure 6 (b), gain of IBM trees, in %", "gain", SIZES, SECURE),
        FigureRows("Figure 7 (a), gain in macro F1, in %", "gain", SHARES, ("paper",)),
        FigureRows("Figure 7 (b), gain of IBM trees, in %", "gain", SHARES, SECURE),
        FigureRows(f"Figure 8 (a), {CHANGE}", "gain", numbers=True),
        FigureRows(
            "Figure 8 (b), clients with a smaller error, in %",
            "share",
            learners=("paper",),
            numbers=True,
        ),
        FigureRows(
            "Figure 9 (a), decision nodes of a client's tree, for numbers",
            "nodes",
            learners=GROWN,
            numbers=True,
        ),
        FigureRows(f"Figure 9 (b), {APART}, for numbers", "distance", numbers=True),
        FigureRows(
            "Figure 10 (a), change of the mean squared error, in %",
            "gain",
            SIZES,
            ("paper",),
            numbers=True,
        ),
        FigureRows(
            "Figure 10 (b), change of the mean squared error, in %",
            "gain",
            SHARES,
            ("paper",),
            numbers=True,
        ),
    ),
    "ways.csv": (
        FigureRows("Gain in macro F1 by what the clients choose by, in %", "gain"),
        FigureRows(
            "Change of the mean squared error by what the clients choose by, in %",
            "gain",
            numbers=True,
        ),
        FigureRows(
            "Gain in macro F1 by what the clients choose by, a tenth of them active, in %",
            "gain",
            SHARES[-1:],
        ),
    ),
    "dirichlet.csv": (
        FigureRows("Gain in macro F1, classes divided by a Dirichlet(1) law, in %", "gain"),
        FigureRows("Clients that gain, classes divided by a Dirichlet(1) law, in %", "share"),
    ),
}


def trees(folder: Path) -> Iterable[tuple[str, PaperRows]]:
    """What genetic_tree.py found."""
    for file, figures in TREES.items():
        if not (folder / file).exists():
            continue
        raw = pd.read_csv(folder / file)
        told = _rows(raw)
        for figure in figures:
            if len(figure.own(raw)):
                figure.add(told, raw)
        yield f"genetic_{Path(file).stem}", told


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
