"""The papers' data sets: bundled, from OpenML, or files of one's own, known by their contents."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import pandas as pd

from privfed.errors import InputError
from privfed.tables.sources import load, load_csv


@dataclass(frozen=True)
class PaperSet:
    """One data set of a paper."""

    digest: str  #: of the table that our figures were measured on, see :func:`digest`
    origin: str  #: where it comes from, in words
    source: str = ""  #: ``openml:NAME`` or a bundled set; nothing where a file is needed


SETS = {
    "trauma": PaperSet(
        "a4432fdc3e545484771916dd79e3c1077c4e241f619dc784a8580cfc1dc03e3e",
        "the R package BFI, data(trauma): columns sex, age, ISS, GCS, hospital, mortality",
    ),
    "mortgage": PaperSet(
        "155cad817b4e0e4bcd91fef913b9f5516629bfb1640925c6b45c5120c172a98e",
        "the KEEL repository's mortgage, target 30Y_CMortgageRate last",
    ),
    "weather_izmir": PaperSet(
        "7eff200ff91fd51265f9d8cd5206a12018f9e07cd18549ff6cf7277cf38fa486",
        "the KEEL repository's wizmir, target Mean_temperature last",
    ),
    "kin8nm": PaperSet(
        "871092801089fedab48c0448e5a72f39c768deae1d8d3c3ccd326bd481dfd7cb",
        "OpenML's kin8nm, target y last",
        "openml:kin8nm",
    ),
    "delta_elevators": PaperSet(
        "24279332a7a4971048d2afb4f2dabcfdea07babdbecdd35d143ee56c4014ad73",
        "OpenML's delta_elevators, target Se last",
        "openml:delta_elevators",
    ),
    "california": PaperSet(
        "88ddc64f3b81d59bae297bf9a98a1cda5490aff3e2dbc4f2cfff959ba7616b24",
        "the StatLib California housing table, medianHouseValue last",
    ),
}


def table(name: str, folder: Path | None) -> pd.DataFrame:
    """Return a paper's data set: NAME.csv of the folder, or where there is none its source's.

    InputError: there is neither.
    """
    about = SETS[name]
    path = None if folder is None else folder / f"{name}.csv"
    if path is not None and path.is_file():
        return load_csv(path).frame
    if about.source:
        return load(about.source).frame
    raise InputError(
        f"data set {name!r} is not bundled; get {about.origin}, save it as {name}.csv, and name its "
        "folder by --data"
    )


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
