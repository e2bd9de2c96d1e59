"""The papers' data sets: bundled, from OpenML, or the user's files, identified by a digest."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd

from privfed.errors import InputError
from privfed.study.papers.table import rows_of
from privfed.tables.sources import load


@dataclass(frozen=True)
class PaperSet:
    """One data set of a paper."""

    digest: str  #: of the table that our figures were measured on, see :func:`digest`
    target: str  #: the column to predict, in our tables the last one
    origin: str  #: where it comes from, in words
    source: str = ""  #: ``openml:NAME``, a bundled set or sktime; empty if a file is needed


SETS = {row.pop("name"): PaperSet(**row) for row in rows_of("sets.csv")}


def table(name: str, folder: Path | None) -> pd.DataFrame:
    """Return a paper's data set, its target last, from NAME.csv in the folder, or else from its source.

    InputError: there is neither, or the file has no such target.
    """
    about, path = SETS[name], None if folder is None else folder / f"{name}.csv"
    source = str(path) if path is not None and path.is_file() else about.source
    if source == "sktime" and find_spec("sktime"):
        return motions()
    if source and source != "sktime":
        frame = load(source, about.target).frame
        return frame[[*frame.columns.drop(about.target), about.target]]
    lacks = "is not bundled" if path is None else f"is not bundled, and there is no {path}"
    raise InputError(
        f"data set {name!r} {lacks}; get {about.origin}, save it as {name}.csv with the target "
        f"{about.target}, and name its folder by --data"
    )


def motions() -> pd.DataFrame:
    """Return sktime's BasicMotions: one row per trajectory and step, with whether the motion is vigorous."""
    from sktime.datasets import load_basic_motions

    signals, labels = load_basic_motions(return_type="numpy3d")
    count, sensors, steps = signals.shape
    frame = pd.DataFrame(signals.transpose(0, 2, 1).reshape(-1, sensors)).add_prefix("x")
    columns = {
        "trajectory": np.repeat(np.arange(count), steps),
        "step": np.tile(np.arange(steps), count),
    }
    vigorous = np.isin(labels, ["running", "badminton"]).astype(int)
    return frame.assign(**columns, vigorous=np.repeat(vigorous, steps))


def digest(frame: pd.DataFrame) -> str:
    """Return a SHA-256 of a table's contents: columns by name, rows in any order, six significant digits."""
    names = sorted(map(str, frame.columns))
    ordered = frame[names]
    lines = sorted(",".join(map(_text, row)) for row in ordered.itertuples(index=False))
    return sha256("\n".join([",".join(names), *lines]).encode()).hexdigest()


def _text(value: object) -> str:
    try:
        return f"{float(str(value)):.6g}"
    except ValueError:
        return str(value)
