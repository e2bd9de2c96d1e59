"""The results of every benchmark: one row format, one writer.

A row has all factors, what was measured, a note, and its source: commit, date, seed, machine, and a
digest of the learner's code. The
writer refuses two rows of the same factors, and to replace rows that the new ones do not cover.
"""

from __future__ import annotations

import argparse
import ast
import csv
import os
import platform
import subprocess
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeVar

import pandas as pd
from tqdm import tqdm

T = TypeVar("T")
ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results"
#: Where rows come from; ``code`` is :func:`code` of what was measured.
SOURCE = ("commit", "date", "seed", "machine", "code")
#: Codes that gave the same figures as later ones, noted by ``unchanged.py``.
UNCHANGED = ROOT / "benchmarks" / "published" / "unchanged.csv"
#: Beginnings of file names, and the learners' folders whose code their figures hang on.
CODE = {
    "rulefit": "rulefit",
    "fuzzy_tree": "fuzzy_tree",
    "forest": "forest",
    "genetic": "genetic_tree",
    "rule_search": "rule_search+stl",
    "private": "private",
    "league": "private",
}
#: Factors of a paper's tables beside ours, and of private learners side by side.
PAPER_KEYS = ("paper", "table", "row", "column")
PRIVATE_KEYS = ("set", "epsilon", "learner", "metric")


def arguments(
    doc: str | None,
    *,
    seeds: int | None = None,
    first_seed: int | None = None,
    parts: Iterable[str] = (),
    **lists: Sequence[Any],
) -> argparse.ArgumentParser:
    """Make a parser with the options that benchmarks share.

    Args:
        doc: the module's docstring; its first line is the description.
        seeds: default of ``--seeds``, if there is one.
        first_seed: default of ``--first-seed``, if there is one.
        parts: what may be run alone, each by its name; all of them if none is named.
        lists: defaults of options that take several values, such as ``data`` and ``epsilons``.
    """
    parser = argparse.ArgumentParser(description=(doc or "").splitlines()[0])
    for name, default in {"seeds": seeds, "first-seed": first_seed}.items():
        if default is not None:
            parser.add_argument(f"--{name}", type=int, default=default)
    if known := list(parts):

        def part(name: str) -> str:
            if name not in known:
                raise argparse.ArgumentTypeError(f"no {name!r} here: write {', '.join(known)}")
            return name

        parser.add_argument(
            "parts", nargs="*", type=part, default=known, help=f"all, or of {', '.join(known)}"
        )
    for name, values in lists.items():
        parser.add_argument(f"--{name}", nargs="+", type=type(values[0]), default=list(values))
    return parser


def seeds_of(given: argparse.Namespace) -> range:
    """As many seeds as ``--seeds`` says, from ``--first-seed`` on."""
    return range(given.first_seed, given.first_seed + given.seeds)


def progress(items: Iterable[T], name: str) -> Iterable[T]:
    """Show progress over some items on a terminal."""
    bar: Iterable[T] = tqdm(items, desc=name, disable=None)
    return bar


def write_rows(
    rows: pd.DataFrame | Sequence[dict[str, Any]] | Sequence[dict[str, str]],
    path: str | Path,
    keys: Sequence[str],
    *,
    seed: str,
    note: str | None = None,
    measured: str = "",
    float_format: str | None = None,
) -> Path:
    """Write tidy rows as a CSV file.

    Args:
        rows: their factors and what was measured.
        path: the file, or the name of a table in ``benchmarks/results``.
        keys: columns of the factors.
        seed: in words if there are several; a column ``seed`` of the rows is kept.
        note: for all rows.
        measured: the commit at which they were measured; default: the checked-out one.
        float_format: as for pandas.

    Raises:
        SystemExit: two rows of the same factors, or a file with rows that the new ones do not cover.
    """
    table = pd.DataFrame(rows).copy()
    path = Path(path) if Path(path).suffix else RESULTS / f"{path}.csv"
    check_rows(table, path, keys)
    made = {"commit": measured or commit(), "date": today(), "seed": seed, "machine": machine()}
    folders = next((own for begun, own in CODE.items() if path.stem.startswith(begun)), "")
    made["code"] = code(folders) if folders else ""
    if note is not None:
        table = table.assign(note=note)
    for name, text in made.items():
        table[name] = table[name].fillna(text) if name in table else text
    path.parent.mkdir(parents=True, exist_ok=True)
    table.to_csv(path, index=False, lineterminator="\n", float_format=float_format)
    return path


def write_private(
    rows: pd.DataFrame | Sequence[dict[str, Any]],
    given: argparse.Namespace,
    note: str,
    seed: str | None = None,
) -> None:
    """Write rows of private learners side by side, where ``--results`` names a table."""
    seeds = seeds_of(given)
    told = f"{seeds[0]} to {seeds[-1]}" if seed is None else seed
    if given.results:
        write_rows(rows, given.results, PRIVATE_KEYS, seed=told, note=note)


def check_rows(table: pd.DataFrame, path: Path, keys: Sequence[str]) -> None:
    """Refuse duplicates, and a file with rows that the new ones do not cover; see :func:`write_rows`."""
    factors = _factors(table, keys)
    twice = [key for key, count in Counter(factors).items() if count > 1]
    if twice:
        raise SystemExit(f"{path}: two rows of {', '.join(twice[0])}; measure each once")
    if not path.exists():
        return
    known = pd.read_csv(path, dtype=str, keep_default_na=False)
    if not set(keys) <= set(known):
        raise SystemExit(f"{path}: holds another table; name another file")
    lost = set(_factors(known, keys)) - set(factors)
    if lost:
        raise SystemExit(
            f"{path}: {len(lost)} of its {len(known)} rows are not among the {len(table)} new ones; "
            "name another file, or remove it first"
        )


def _factors(table: pd.DataFrame, keys: Sequence[str]) -> list[tuple[str, ...]]:
    """Return each row's factors as text, equal numbers alike."""
    return list(zip(*(table[key].map(_text) for key in keys), strict=True)) if len(table) else []


def _text(value: object) -> str:
    try:
        return f"{float(str(value)):g}"
    except ValueError:
        return str(value)


@dataclass
class PaperRows:
    """Collects the cells of a paper's tables beside ours.

    Args:
        paper: which paper the tables are of.
        seed: in words if there are several.
        measured: the commit at which they were measured; default: the checked-out one.
    """

    paper: str
    seed: str
    measured: str = ""
    rows: list[dict[str, str]] = field(default_factory=list)

    def add(
        self,
        table: str,
        row: str,
        *,
        column: str,
        ours: float | str,
        theirs: float | str = "",
        spread: float | str = "",
        note: str = "",
    ) -> None:
        """Add a cell: the paper's figure, ours (or words), and its standard deviation."""
        numbers = {"theirs": theirs, "ours": ours, "spread": spread}
        written = {n: v if isinstance(v, str) else f"{v:.5g}" for n, v in numbers.items()}
        about = {"paper": self.paper, "table": table, "row": row, "column": column}
        self.rows.append({**about, **written, "note": note})

    def write(self, name: str) -> Path:
        """Write ``results/NAME.csv``."""
        return write_rows(self.rows, name, PAPER_KEYS, seed=self.seed, measured=self.measured)


def read_rows(path: Path) -> list[dict[str, str]]:
    """Read a file's rows; none if there is no such file."""
    if not path.exists():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def commit() -> str:
    """Return the checked-out commit, with a plus if files differ from it."""
    git = ["git", "-C", str(Path(__file__).parent)]
    besides = ["--", ":/", ":(top,exclude)benchmarks/results"]
    head, changed = (
        subprocess.run([*git, *words], capture_output=True, text=True, check=False).stdout.strip()
        for words in (
            ["rev-parse", "--short=12", "HEAD"],
            ["status", "--porcelain", "-uno", *besides],
        )
    )
    return (head or "unknown") + "+" * bool(changed)


@cache
def code(folders: str) -> str:
    """Return folders of ``learners`` or files from the root, joined by plus, and a digest of their code.

    Comments, docstrings and layout do not count.
    """
    found = sha256()
    for one in folders.split("+"):
        place = ROOT / (one if "/" in one else f"learners/{one}")
        for file in [place] if place.is_file() else sorted(place.glob("*.py")):
            found.update(f"{file.name} {meaning(file.read_text(encoding='utf-8'))}".encode())
    return f"{folders} {found.hexdigest()[:12]}"


def up_to_date(then: str) -> bool:
    """Whether a :func:`code` is today's, or one of which reruns have shown that today's gives the same figures."""
    if not then:
        return False
    same = {code(then.split()[0])}
    for row in reversed(read_rows(UNCHANGED)):  # newest first: from today's code back
        same |= {row["before"]} if row["after"] in same else set()
    return then in same


def meaning(text: str) -> str:
    """Return the syntax tree of a module, as text, without docstrings."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and node.body:
            first = node.body[0]
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                first.value.value = ""
    return ast.dump(tree)


def today() -> str:
    """Return the date (UTC)."""
    return datetime.now(UTC).date().isoformat()


def machine() -> str:
    """Return the machine's architecture and number of processors."""
    return f"{platform.machine()}, {os.cpu_count()} processors"
