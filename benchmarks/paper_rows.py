"""Rows of a paper's tables beside ours, in one small CSV: who made them, from which code, and where."""

from __future__ import annotations

import csv
import os
import platform
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

RESULTS = Path(__file__).parent / "results"
FIELDS = (
    "paper", "table", "row", "column", "theirs", "ours", "spread", "note",
    "commit", "seed", "machine",
)  # fmt: skip


@dataclass
class PaperRows:
    """Collects cells and writes them.

    Args:
        paper: which paper the tables are of.
        seed: that the cells were computed with, in words where there are several.
        measured: the commit at which; none for the one that is checked out.
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
        """One cell: what the paper has, what was found here (or words), and its standard deviation."""
        numbers = {"theirs": theirs, "ours": ours, "spread": spread}
        written = {n: v if isinstance(v, str) else f"{v:.5g}" for n, v in numbers.items()}
        about = {"paper": self.paper, "table": table, "row": row, "column": column, "note": note}
        self.rows.append({**about, **written})

    def write(self, name: str) -> Path:
        """Write ``results/NAME.csv``."""
        RESULTS.mkdir(exist_ok=True)
        path = RESULTS / f"{name}.csv"
        made = {"commit": self.measured or commit(), "seed": self.seed, "machine": machine()}
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
            writer.writeheader()
            writer.writerows({**row, **made} for row in self.rows)
        return path


def commit() -> str:
    """The checked-out commit, with a plus where files differ from it."""
    git = ["git", "-C", str(Path(__file__).parent)]
    head = subprocess.run(
        [*git, "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True, check=False
    )
    besides = ["--", ":/", ":(top,exclude)benchmarks/results"]
    changed = subprocess.run(
        [*git, "status", "--porcelain", "-uno", *besides],
        capture_output=True,
        text=True,
        check=False,
    )
    return (head.stdout.strip() or "unknown") + "+" * bool(changed.stdout.strip())


def machine() -> str:
    """The class of the machine: its architecture and how many processors it has."""
    return f"{platform.machine()}, {os.cpu_count()} processors"
