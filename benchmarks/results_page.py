"""docs/results.md, made from the tables under benchmarks/results: python benchmarks/results_page.py

Three layouts are known by their heading. `paper,table,row,column,theirs,ours,spread,note` is a paper's
table beside ours, `set,epsilon,learner,metric,value,spread` a comparison of private learners, and
`learner,setting,value,sets,seeds,note` a setting that was chosen by measurement; any other table is
shown as it is. Columns `commit`,
`seed` and `machine` say where figures come from. What a file's name begins with decides its section,
and `SECTION.md` beside the tables, if there is one, is the section's text: words, no figures.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

mpl.use("Agg")
import matplotlib.pyplot as plt

ROOT = Path(__file__).resolve().parent.parent
TABLES = ROOT / "benchmarks" / "results"
#: Beginnings of file names, and what their sections are called; others go by their own names.
SECTIONS = {
    "rulefit": "Federated RuleFit",
    "fuzzy_tree": "Federated fuzzy regression tree",
    "forest": "FedForest",
    "genetic": "FedGA-Tree",
    "rule_search": "DP-RuL",
    "private": "Private learners side by side",
}
PAPERS = ["paper", "table", "row", "column", "theirs", "ours", "spread", "note"]
PRIVATE = ["set", "epsilon", "learner", "metric", "value", "spread"]
SETTINGS = ["learner", "setting", "value", "sets", "seeds", "note"]
#: Columns that say where figures come from.
SOURCES = ("commit", "seed", "machine", "note")
#: Of these scores less is better.
LOWER = ("rmse", "time", "loss", "brier", "mse", "error", "seconds")
INTRODUCTION = """# Results

Made by `python benchmarks/results_page.py` from the tables in `benchmarks/results`, which the
benchmarks wrote. Every figure of ours was measured at the commit, with the seeds and on the machine
that stand below its table; *not run* says that it was not. Where a cell has brackets, they hold the
paper's figure; where a paper shows a picture only, there is none to put there. Spreads are standard
deviations over seeds, splits or folds unless a note says otherwise. Hospitals' and phones' data of
the papers that are not public are stood in for as the notes say.
"""


def page(folder: Path) -> str:
    """The whole page, from whatever tables there are."""
    parts = [INTRODUCTION]
    for section, files in _sections(folder).items():
        title = SECTIONS.get(section, section.replace("_", " "))
        parts.append(f"## {title}\n")
        words = folder / f"{section}.md"
        if words.exists():
            parts.append(words.read_text(encoding="utf-8").strip() + "\n")
        parts += [f"![{title}: {p.stem}](results/{p.name})\n" for p in pictures(folder, section)]
        for data in _joined(files):
            parts += _tables(data)
    return "\n".join(parts)


def _sections(folder: Path) -> dict[str, list[Path]]:
    """Files by section: the known sections first, each file in the one of the longest name."""
    found: dict[str, list[Path]] = {section: [] for section in SECTIONS}
    for file in sorted(folder.glob("*.csv")):
        known = [section for section in SECTIONS if file.stem.startswith(section)]
        found.setdefault(max(known, key=len, default=file.stem), []).append(file)
    return {section: files for section, files in found.items() if files}


def _joined(files: Sequence[Path]) -> Iterable[pd.DataFrame]:
    """Tables of one layout together, so that a paper's table may lie in several files."""
    frames: dict[tuple[str, ...], list[pd.DataFrame]] = {}
    for file in files:
        data = pd.read_csv(file, dtype={"seed": str, "seeds": str, "commit": str})
        layouts = [own for own in (PAPERS, PRIVATE, SETTINGS) if set(own) <= set(data)]
        own = layouts[0] if layouts else list(map(str, data))
        frames.setdefault(tuple(own), []).append(data)
    return [pd.concat(own, ignore_index=True) for own in frames.values()]


def _tables(data: pd.DataFrame) -> Iterable[str]:
    if set(PAPERS) <= set(data):
        for (paper, table), own in data.groupby(["paper", "table"], sort=False):
            yield f"### {table} ({paper})\n"
            yield _paper_table(own)
            yield _told(own)
    elif set(PRIVATE) <= set(data):
        for metric, own in data.groupby("metric", sort=False):
            yield f"### {metric}, {'lower' if _lower(str(metric)) else 'higher'} is better\n"
            yield _private_table(own, _lower(str(metric)))
            yield _told(own)
    elif set(SETTINGS) <= set(data):
        yield "### Settings that were chosen by measurement\n"
        yield _markdown(SETTINGS, data[SETTINGS].fillna("").astype(str).to_numpy().tolist())
    else:
        shown = data[[name for name in data if name not in SOURCES]]
        yield f"### {shown.columns[0]} by {shown.columns[1]}\n"
        lines = [[_number(value) for value in line] for line in shown.to_numpy().tolist()]
        yield _markdown(list(map(str, shown)), lines)
        yield _told(data)


# --- a paper's table ---------------------------------------------------------------------------


def _paper_table(data: pd.DataFrame) -> str:
    """Rows and columns as in the paper; columns "X, 3 of 25" become their mean."""
    own = data.assign(column=[re.sub(r", \d+ of \d+$", " (mean)", str(c)) for c in data["column"]])
    cells = {key: _cell(part) for key, part in own.groupby(["row", "column"], sort=False)}
    rows, columns = list(dict.fromkeys(own["row"])), list(dict.fromkeys(own["column"]))
    lines = [[str(row), *(cells.get((row, column), "") for column in columns)] for row in rows]
    return _markdown(["", *map(str, columns)], lines)


def _cell(part: pd.DataFrame) -> str:
    ours, theirs = part["ours"], part["theirs"].iloc[0]
    spread = part["spread"].iloc[0] if len(part) == 1 else _deviation(ours)
    if len(part) > 1:
        own = _number(pd.to_numeric(ours).mean())
    else:
        own = _number(ours.iloc[0]) or "not run"
    shown = own + (f" ± {_number(spread, 2)}" if _number(spread) else "")
    return shown + (f" ({_number(theirs)})" if _number(theirs) else "")


def _deviation(values: pd.Series) -> float:
    return float(pd.to_numeric(values).std())


def _number(value: object, digits: int = 4) -> str:
    """To so many significant digits; text as it is, nothing for what is missing."""
    if value is None or value is pd.NA or (isinstance(value, float) and np.isnan(value)):
        return ""
    try:
        return f"{float(str(value)):.{digits}g}"
    except ValueError:
        return str(value)


# --- private learners --------------------------------------------------------------------------


def _lower(metric: str) -> bool:
    return any(word in metric.lower() for word in LOWER)


def _private_table(data: pd.DataFrame, lower: bool) -> str:
    """A line for each set and epsilon, the best in bold; and how often each learner is best."""
    learners = [str(name) for name in dict.fromkeys(data["learner"])]
    wins = dict.fromkeys(learners, 0)
    lines = []
    for (name, epsilon), own in data.groupby(["set", "epsilon"], sort=False):
        means = own.groupby("learner")["value"].mean()
        best = means.idxmin() if lower else means.idxmax()
        wins[str(best)] += 1
        spreads = own.groupby("learner")["spread"].first()
        cells = [_private_cell(means, spreads, learner, str(best)) for learner in learners]
        lines.append([str(name), _number(epsilon), *cells])
    counted = ", ".join(f"{learner} {number}" for learner, number in wins.items())
    table = _markdown(["set", "epsilon", *learners], lines)
    return f"{table}\nBest of {len(lines)} lines: {counted}.\n"


def _private_cell(means: pd.Series, spreads: pd.Series, learner: str, best: str) -> str:
    if learner not in means:
        return "not run"
    shown = _number(means[learner])
    spread = _number(spreads[learner], 2)
    return (f"**{shown}**" if learner == best else shown) + (f" ± {spread}" if spread else "")


# --- both --------------------------------------------------------------------------------------


def _told(data: pd.DataFrame) -> str:
    """Notes, and where the figures come from."""
    notes = list(dict.fromkeys(str(n) for n in data.get("note", pd.Series()).dropna()))
    lines = [f"- {note}" for note in notes]
    sources = [
        f"{name} {_few(dict.fromkeys(data[name].dropna().astype(str)))}"
        for name in ("commit", "seed", "machine")
        if name in data and data[name].notna().any()
    ]
    return "\n".join([*lines, f"- Measured at {'; '.join(sources)}." if sources else "", ""])


def _few(values: Iterable[str]) -> str:
    return ", ".join(values)


def _markdown(heading: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    shown = [list(heading), ["---"] * len(heading), *lines]
    return "\n".join(f"| {' | '.join(_plain(cell) for cell in line)} |" for line in shown) + "\n"


def _plain(cell: str) -> str:
    return cell.replace("|", "\\|").replace("\n", " ")


# --- pictures ----------------------------------------------------------------------------------

#: Section, file, and which scores to draw of it: none for differences in AUC.
PICTURES: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "dp-rul-simulated": ("rule_search", "rule_search_curves.csv", ("coverage", "precision")),
    "dp-rul-learned": (
        "rule_search", "rule_search_learned.csv", ("coverage", "precision", "balanced accuracy"),
    ),
    "rulefit-figure-2": ("rulefit", "rulefit_simulations.csv", ()),
}  # fmt: skip


def pictures(folder: Path, section: str) -> list[Path]:
    """Where the pictures of a section lie."""
    return [
        ROOT / "docs" / "results" / f"{name}.png"
        for name, (own, file, _) in PICTURES.items()
        if own == section and (folder / file).exists()
    ]


def draw(folder: Path, target: Path) -> None:
    """All pictures that there are tables for."""
    target.mkdir(parents=True, exist_ok=True)
    for name, (_, file, scores) in PICTURES.items():
        if not (folder / file).exists():
            continue
        data = pd.read_csv(folder / file)
        figure = _lines(data, scores) if scores else _dots(data)
        figure.savefig(target / f"{name}.png", dpi=90, metadata={"Software": None})
        plt.close(figure)


def _lines(data: pd.DataFrame, scores: Sequence[str]) -> Figure:
    """An axis for each score of each population of Figures 6 and 10, a line for each protocol."""
    drawn = []
    for score in scores:
        own = data[data["column"].str.fullmatch(rf"{score} at [\d,.]+")]
        own = own[own["table"].str.match("Figure (6|10),") & ~own["table"].str.contains("level")]
        drawn += [(str(table), score, part) for table, part in own.groupby("table", sort=False)]
    figure, axes = plt.subplots(1, len(drawn), figsize=(4.8 * len(drawn), 4.2), squeeze=False)
    for axis, (table, score, part) in zip(axes[0], drawn, strict=True):
        for row, line in part.groupby("row", sort=False):
            epsilon = (
                line["column"].str.extract(r"([\d,.]+)$")[0].str.replace(",", "").astype(float)
            )
            axis.errorbar(epsilon, line["ours"].astype(float), line["spread"].astype(float).fillna(0),
                          marker="o", capsize=3, label=row)  # fmt: skip
        axis.set(xscale="log", xlabel="epsilon of an individual (nats)", ylabel=score, title=table)
        axis.set_ylim(bottom=0)
        axis.grid(alpha=0.3)
    axes[0, 0].legend(fontsize=8)
    figure.tight_layout()
    return figure


def _dots(data: pd.DataFrame) -> Figure:
    """Differences in AUC: an axis for each table, a column of dots for each learner."""
    own = data[data["table"].str.contains("AUC") & (data["column"] != "centralized twin")]
    tables = list(dict.fromkeys(own["table"]))
    figure, axes = plt.subplots(1, len(tables), figsize=(6.2 * len(tables), 4.4), squeeze=False)
    for axis, table in zip(axes[0], tables, strict=True):
        part = own[own["table"] == table]
        rows = list(dict.fromkeys(part["row"]))
        for place, (column, line) in enumerate(part.groupby("column", sort=False)):
            at = np.array([rows.index(row) for row in line["row"]]) + 0.1 * (place - 2)
            spread = line["spread"].astype(float).fillna(0)
            axis.errorbar(at, line["ours"].astype(float), spread, fmt="o", capsize=2, label=column)
        axis.axhline(0, color="grey", linewidth=1, linestyle="--")
        axis.set_xticks(range(len(rows)), rows, rotation=40, ha="right", fontsize=8)
        axis.set(ylabel="AUC minus the centralized twin's", title=table)
        axis.grid(alpha=0.3)
    axes[0, 0].legend(fontsize=8)
    figure.tight_layout()
    return figure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--tables", type=Path, default=TABLES)
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "results.md")
    chosen = parser.parse_args()
    chosen.out.write_text(page(chosen.tables), encoding="utf-8")
    draw(chosen.tables, chosen.out.parent / "results")
    print(f"{chosen.out}: {len(list(chosen.tables.glob('*.csv')))} tables")


if __name__ == "__main__":
    main()
