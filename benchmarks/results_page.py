"""docs/results.md and a page for each section, from the tables under benchmarks/results:

    python benchmarks/results_page.py

A section's page has its text, which of the paper's tables and figures were run (``published/coverage.csv``),
its headline tables, its command, and the names of the files that hold the rest; at most :data:`LARGEST` bytes.
Six layouts are known by their heading. `paper,table,row,column,theirs,ours,spread,note` is a paper's
table beside ours, `set,epsilon,learner,metric,value,spread` a comparison of private learners, `set,chosen by
the others,over the default` what settings owe to sets, `set,task,method,epsilon,split` the league, `learner,setting,value,sets,seeds,note` a setting that
was chosen by measurement, and `part,attack,on,measure,goal,reached` what attacks are to reach; any other table
is shown as it is. Columns `commit`, `seed` and `machine` say where figures come from. What a file's name
begins with decides its section, and `SECTION.md` beside the tables, if there is one, is the section's text:
words, no figures. Its paragraphs that begin with "Reproduced:" and "Not reproduced:" (or "Ahead:" and
"Behind:") make the section's line of the summary. Rows of single clients stand in the files alone.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import pandas as pd
from result_rows import CODE, PAPER_KEYS, SOURCE, up_to_date
from results_numbers import number, with_spread
from results_pictures import draw, pictures
from results_private import LEAGUE, LEFT_OUT, LEFT_OUT_TITLE, PRIVATE, left_out, side_by_side, title
from results_private import league as league_tables

ROOT = Path(__file__).resolve().parent.parent
TABLES = ROOT / "benchmarks" / "results"
#: Beginnings of file names, and what their sections are called; others go by their own names.
SECTIONS = {
    "rulefit": "Federated RuleFit",
    "fuzzy_tree": "Federated fuzzy regression tree",
    "forest": "FedForest",
    "genetic": "FedGA-Tree",
    "rule_search": "DP-RuL",
    "private": "Private learners on small tables and in wide bounds",
    "league": "A league of private learners",
    "attacks": "Attacks and audits",
    "faults": "Planted faults",
}
FILE = "(file)"  #: Where a row stands
PAPERS = ["paper", "table", "row", "column", "theirs", "ours", "spread", "note"]
SETTINGS = ["learner", "setting", "value", "sets", "seeds", "note"]
GOALS = ["part", "attack", "on", "measure", "goal", "reached"]
#: Headings of tables of no paper's, by their first two columns.
TITLES = {
    ("cost", "goal"): "What learning costs, goal by goal",
    ("fault", "convicted of 10"): "Planted faults, and the audits that find them",
    ("epsilon", "records in the likeliest table"): "Reconstruction of a private forest's records",
}
COSTS = ["learner", "rows", "attack", "seconds", "gigabytes", "states", "why"]
#: Columns that say where figures come from.
SOURCES = (*SOURCE, "note")
LARGEST = 10_000  #: Bytes of a page
STALE = "- **Stale:**"  #: How the line below a table begins whose learner's code has changed since
#: The tables that a section's page shows; the others stand in its files. All, where none is named.
HEADLINES = {
    "rulefit": r"Table 1 and Figure 3, the paper's rules|Figure 2, (federated|Model 2, AUC)|Figure 4",
    "fuzzy_tree": r"Tables? [3457]",
    "forest": r"Tables? [257]\b",
    "genetic": r"Figure (3|7|8(?! \(b)|11)",
    "rule_search": r"Figure 6, (icu, coverage|by level)|Figure 10",
    "private": r"(Classes|Numbers) of tables",
}
#: How a section's figures are measured anew.
COMMANDS = {
    "rulefit": "    privfed reproduce rulefit/table-1 --quick --data FOLDER\n    privfed reproduce rulefit/figure-2",
    "fuzzy_tree": "    privfed reproduce fuzzy-tree/table-3 --quick --data FOLDER",
    "forest": "    privfed reproduce forest/table-2 --quick --data FOLDER",
    "genetic": "    privfed reproduce genetic/figure-3 --quick --data FOLDER",
    "rule_search": "    privfed reproduce rule-search/figure-6 --quick",
    "private": "`python benchmarks/private_small.py`, `private_wide.py`, `private_intervals.py`, `private_leave_one_out.py`, `rulefit_alternatives.py` and `masked_sums.py`",
    "league": "`python benchmarks/league.py`",
    "attacks": "`python benchmarks/attack_goals.py`, `python benchmarks/attack_speed.py` and `python benchmarks/reconstruction.py private_forests`",
    "faults": "`python benchmarks/faults.py`",
}
COVERAGE = ROOT / "benchmarks" / "published" / "coverage.csv"
CLIENT = r", client \d+$"  #: Rows of single clients
INTRODUCTION = """# Results

One page per paper lists all of its tables and figures, whether each was run, reduced or not run, and our repetitions
beside the paper's. `privfed reproduce --list` names what one command reruns. `python benchmarks/results_page.py` makes
these pages from the tables in `benchmarks/results`, which the benchmarks wrote.

- Every figure of ours was measured at the commit, with the seeds and on the machine below its table. This also covers the
  tables before it that have no such line. A plus after a commit means that some file differed from it.
- **Stale** means that the learner's code has changed since.
- Brackets hold the paper's figure; a picture in the paper has none.
- After ± are standard deviations over seeds, splits or folds, unless a note says otherwise.
- Substitutes for hospitals' and phones' data that are not public are described in the notes.
"""
#: How a paragraph of a section's text begins that stands in the summary: what holds, what does not.
HOLDS, FAILS = ("Reproduced:", "Ahead:"), ("Not reproduced:", "Behind:")


def pages(folder: Path) -> dict[str, str]:
    """Each page by its file's name, from whatever tables there are."""
    sections = _sections(folder)
    names = "\n".join(map(_file, sections)).replace(".md", "")
    toctree = f"```{{toctree}}\n:hidden:\n\n{names}\n```\n"
    made = {"results.md": "\n".join([INTRODUCTION, _contents(folder, sections), toctree])}
    return made | {
        _file(section): _page(folder, section, sections[section]) for section in sections
    }


def _file(section: str) -> str:
    return f"results-{section.replace('_', '-')}.md"


def _page(folder: Path, section: str, files: Sequence[Path]) -> str:
    """A section: text, coverage, headline tables, command, and where the rest is."""
    words = _words(folder, section)
    parts = [f"# {_title(section)}\n"]
    parts += [_under(words, begun) for begun in (HOLDS, FAILS) if _paragraph(words, begun)]
    parts += [_covered(section), *(f"{one}\n" for one in words if not _summed_up(one))]
    parts += [f"![{shown}](results/{name}.png)\n" for name, shown in pictures(folder, section)]
    tables = [table for data in _joined(files) for table in _tables(data)]
    shown = [t for t in tables if re.match(f"### ({HEADLINES.get(section, '')})", t[0])] or tables
    parts += _once(shown)
    stems = ", ".join(f"`{file.name}`{_age(file)}" for file in files)
    left = len(tables) - len(shown)
    parts.append(f"{left} further tables are in the files" if left else "The tables are in files")
    parts.append(f"of `benchmarks/results`: {stems}.\n")
    if section in COMMANDS:
        parts.append(f"Measured anew by\n\n{COMMANDS[section]}\n")
    return "\n".join(parts).replace("\n### ", "\n## ")


def _under(words: Iterable[str], begun: tuple[str, ...]) -> str:
    return "".join(
        f"**{one.partition(':')[0]}:**{one.partition(':')[2]}\n"
        for one in words
        if one.startswith(begun)
    )


def _covered(section: str) -> str:
    """Each table and figure of the paper: run, reduced or not, repetitions beside the paper's."""
    data = pd.read_csv(COVERAGE, dtype=str, keep_default_na=False)
    own = data[data["section"] == section].drop(columns="section")
    if not len(own):
        return ""
    heading = ["of the paper", "what it shows", "state", "ours", "paper's", "remark"]
    return _markdown(heading, own.to_numpy().tolist())


def _title(section: str) -> str:
    return SECTIONS.get(section, section.replace("_", " "))


def _contents(folder: Path, sections: Iterable[str]) -> str:
    """A line for each section, with a link: what holds there, what does not."""
    lines = []
    for section in sections:
        link = f"[{_title(section)}]({_file(section)})"
        words = _words(folder, section)
        lines.append([link, *(_paragraph(words, begun) for begun in (HOLDS, FAILS))])
    return _markdown(
        ["section", "what comes out as published, or ahead", "what does not, and why"], lines
    )


def _words(folder: Path, section: str) -> list[str]:
    """The paragraphs of a section's text."""
    file = folder / f"{section}.md"
    return file.read_text(encoding="utf-8").strip().split("\n\n") if file.exists() else []


def _summed_up(paragraph: str) -> bool:
    return paragraph.startswith(HOLDS + FAILS)


def _paragraph(words: Iterable[str], begun: tuple[str, ...]) -> str:
    return " ".join(one.partition(": ")[2] for one in words if one.startswith(begun))


def _once(tables: Sequence[tuple[str, str]]) -> Iterable[str]:
    """In the paper's order; what stands below several tables in a row, below the last of them."""
    ordered = sorted(tables, key=lambda table: _place(table[0]))
    for (text, below), (_, following) in zip(ordered, [*ordered[1:], ("", "")], strict=True):
        yield text
        if below != following:
            yield below


def _place(text: str) -> tuple[int, int]:
    """Tables by number, then figures, then appendices, then what has no number in the paper."""
    heading = text.partition("\n")[0].removeprefix("### ")
    found = re.match(r"(Table|Figure|Appendix)s? (\w+)", heading)
    if not found:
        return (3, 0)
    kinds = ["Table", "Figure", "Appendix"]
    return kinds.index(found[1]), int(found[2]) if found[2].isdigit() else 0


def _sections(folder: Path) -> dict[str, list[Path]]:
    """Files by section: the known sections first, each file in the one of the longest name."""
    found: dict[str, list[Path]] = {section: [] for section in SECTIONS}
    for file in sorted(folder.glob("*.csv")):
        known = [section for section in SECTIONS if file.stem.startswith(section)]
        found.setdefault(max(known, key=len, default=file.stem), []).append(file)
    return {section: files for section, files in found.items() if files}


def _joined(files: Sequence[Path]) -> Iterable[pd.DataFrame]:
    """Tables of one layout together, so that a paper's table may lie in several files, but no cell in two."""
    frames: dict[tuple[str, ...], list[pd.DataFrame]] = {}
    for file in files:
        data = pd.read_csv(file, dtype={"seed": str, "seeds": str, "commit": str})
        layouts = [own for own in (PAPERS, PRIVATE, SETTINGS) if set(own) <= set(data)]
        own = layouts[0] if layouts else list(map(str, data))
        frames.setdefault(tuple(own), []).append(data.assign(**{FILE: file.name}))
    joined = [pd.concat(own, ignore_index=True) for own in frames.values()]
    for data in (own for own in joined if set(PAPER_KEYS) <= set(own)):
        twice = data[data.duplicated(list(PAPER_KEYS), keep=False)]
        if len(twice) and twice[FILE].nunique() > 1:
            raise SystemExit(
                f"{', '.join(sorted(set(twice[FILE])))}: both have {twice['table'].iloc[0]}, {twice['row'].iloc[0]}, "
                f"{twice['column'].iloc[0]}, and a mean of the two would be shown; keep one of them"
            )
    return [own.drop(columns=FILE) for own in joined]


def _tables(data: pd.DataFrame) -> Iterable[tuple[str, str]]:
    """Each table with its heading, and what stands below it."""
    if set(PAPERS) <= set(data):
        for (paper, table), own in data.groupby(["paper", "table"], sort=False):
            yield f"### {table} ({paper})\n\n{_paper_table(own)}", _told(own)
    elif set(PRIVATE) <= set(data):
        for metric, own in data.groupby("metric", sort=False):
            columns, lines, said = side_by_side(own)
            text = f"### {title(str(metric))}\n\n{_markdown(columns, lines)}\n{said}\n"
            yield text, _told(own)
    elif set(LEAGUE) <= set(data):
        for name, columns, lines, said in league_tables(data):
            yield f"### {name}\n\n{_markdown(columns, lines)}\n{said}\n", _told(data)
    elif set(LEFT_OUT) <= set(data):
        yield f"### {LEFT_OUT_TITLE}\n\n{_markdown(*left_out(data))}", _told(data)
    elif set(SETTINGS) <= set(data):
        lines = data[SETTINGS].fillna("").astype(str).to_numpy().tolist()
        yield f"### Settings that were chosen by measurement\n\n{_markdown(SETTINGS, lines)}", ""
    elif set(GOALS) <= set(data):
        lines = [[number(value) for value in line] for line in _goals(data.fillna(""))]
        named = "### What each is to reach, and what it reaches"
        yield f"{named}\n\n{_markdown(GOALS[1:], lines)}", _told(data.drop(columns="note"))
    elif set(COSTS) <= set(data):
        yield f"### What each default attack costs\n\n{_costs(data)}", _told(data)
    else:
        shown = data[[name for name in data if name not in SOURCES]].fillna("")
        first, second = map(str, shown.columns[:2])
        named = f"### {TITLES.get((first, second), f'{first} by {second}')}"
        lines = [[number(value) for value in line] for line in shown.to_numpy().tolist()]
        yield f"{named}\n\n{_markdown(list(map(str, shown)), lines)}", _told(data)


def _goals(data: pd.DataFrame) -> Iterator[list[str]]:
    """Rows of the table of goals; those that differ in nothing but what stands after "planted: " share one."""
    kind = data["on"].map(lambda on: str(on).partition(": ")[0])
    for _, own in data.groupby([kind, "attack", "measure", "goal", "reached", "note"], sort=False):
        first, *others = own["on"]
        on = "; ".join([first, *(other.partition(": ")[2] for other in others)])
        note = f" ({own['note'].iloc[0]})" if own["note"].iloc[0] else ""
        yield [own["attack"].iloc[0], on + note, *own[["measure", "goal", "reached"]].iloc[0]]


def _costs(data: pd.DataFrame) -> str:
    """Seconds and memory of attacks that read anything, by number of records; and what was not looked at."""
    data = data.fillna("")
    sizes, lines = sorted(set(data["rows"])), []
    short: dict[tuple[str, str], list[str]] = {}
    for (attack, learner), own in data.groupby(["attack", "learner"]):
        cells = dict.fromkeys(sizes, "not measured")
        for row in own.itertuples():
            idle = row.states in ("not looked", "nothing to read")
            told = row.states if idle else f"{row.seconds:g} s, {row.gigabytes:g} GB"
            cells[row.rows] = str(told)
            if row.why:
                why = re.sub(r"^.*list takes; ", "too many records; ", str(row.why))
                short.setdefault((str(attack), why), []).append(f"{learner} {row.rows:,}")
        if set(own["states"]) != {"nothing to read"}:
            lines.append([f"`{attack}`", str(learner), *cells.values()])
    heading = ["attack", "releases of", *(f"{rows:,} records" for rows in sizes)]
    reasons = [f"- `{attack}`, {_few(at)}: {why}" for (attack, why), at in short.items()]
    return "\n".join([_markdown(heading, lines), "Not looked, or in part:\n", *reasons, ""])


# --- a paper's table ---------------------------------------------------------------------------


def _paper_table(data: pd.DataFrame) -> str:
    """Rows and columns as in the paper; columns "X, 3 of 25" become their mean."""
    data = data[~data["row"].str.contains(CLIENT)]
    own = data.assign(column=[re.sub(r", \d+ of \d+$", " (mean)", str(c)) for c in data["column"]])
    cells = {key: _cell(part) for key, part in own.groupby(["row", "column"], sort=False)}
    rows, columns = list(dict.fromkeys(own["row"])), list(dict.fromkeys(own["column"]))
    lines = [[str(row), *(cells.get((row, column), "") for column in columns)] for row in rows]
    return _markdown(["", *map(str, columns)], lines)


def _cell(part: pd.DataFrame) -> str:
    """Ours, or the mean of several, with the spread; the paper's in brackets."""
    ours, theirs = part["ours"], number(part["theirs"].iloc[0])
    if len(part) > 1:
        values = pd.to_numeric(ours)
        shown = with_spread(values.mean(), values.std())
    else:
        shown = with_spread(ours.iloc[0], part["spread"].iloc[0]) or "not run"
    return shown + (f" ({theirs})" if theirs else "")


# --- both --------------------------------------------------------------------------------------


def _told(data: pd.DataFrame) -> str:
    """Notes, and where the figures come from."""
    notes = list(dict.fromkeys(str(n) for n in data.get("note", pd.Series()).dropna()))
    lines = [f"- {note}" for note in notes]
    sources = [
        f"{name} {_few(dict.fromkeys(map(_short, data[name].dropna().astype(str))))}"
        for name in SOURCE
        if name != "code" and name in data and data[name].notna().any()
    ]
    told = f"- Measured at {'; '.join(sources)}." if sources else ""
    return "\n".join([*lines, told, *_stale(data), ""])


def _age(file: Path) -> str:
    """What the list of a page's files says of one with stale rows, or of which nobody knows the code."""
    data = pd.read_csv(file, dtype=str)
    learners = any(file.stem.startswith(section) for section in CODE)
    unknown = learners and "commit" in data and ("code" not in data or data["code"].isna().any())
    return " (stale)" if _stale(data) else " (code not recorded)" if unknown else ""


def _stale(data: pd.DataFrame) -> list[str]:
    """Return a line if the code that any row was measured with is not today's."""
    then = {str(one) for one in data.get("code", pd.Series()).dropna()}
    folders = sorted({one.split()[0] for one in then if not up_to_date(one)})
    names = [one for each in folders for one in each.split("+")]
    changed = ", ".join(f"`{one}`" if "/" in one else f"`learners/{one}`" for one in names)
    return [f"{STALE} {changed} changed since."] if changed else []


def _short(source: str) -> str:
    """A commit by its first eight digits; anything else as it is."""
    return re.sub(r"^([0-9a-f]{8})[0-9a-f]{4}", r"\1", source)


def _few(values: Iterable[str]) -> str:
    return ", ".join(values)


def _markdown(heading: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    shown = [list(heading), ["---"] * len(heading), *lines]
    return "\n".join(f"| {' | '.join(_plain(cell) for cell in line)} |" for line in shown) + "\n"


def _plain(cell: str) -> str:
    return cell.replace("|", "\\|").replace("\n", " ")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--tables", type=Path, default=TABLES)
    parser.add_argument("--out", type=Path, default=ROOT / "docs", help="folder of the pages")
    chosen = parser.parse_args()
    chosen.out.mkdir(parents=True, exist_ok=True)
    for name, text in pages(chosen.tables).items():
        (chosen.out / name).write_text(text, encoding="utf-8")
        print(f"{chosen.out / name}: {len(text.encode())} bytes")
    draw(chosen.tables, chosen.out / "results")


if __name__ == "__main__":
    main()
