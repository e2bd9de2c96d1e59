"""The papers' data sets: bundled, from OpenML, or files of one's own, known by their contents."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd

from privfed.errors import InputError
from privfed.tables.sources import load


@dataclass(frozen=True)
class PaperSet:
    """One data set of a paper."""

    digest: str  #: of the table that our figures were measured on, see :func:`digest`
    target: str  #: the column to predict, in our tables the last one
    origin: str  #: where it comes from, in words
    source: str = ""  #: ``openml:NAME``, a bundled set or sktime; nothing where a file is needed


SETS = {
    "trauma": PaperSet(
        "a4432fdc3e545484771916dd79e3c1077c4e241f619dc784a8580cfc1dc03e3e",
        "mortality",
        "the R package BFI, data(trauma): columns sex, age, ISS, GCS, hospital, mortality",
    ),
    "mortgage": PaperSet(
        "155cad817b4e0e4bcd91fef913b9f5516629bfb1640925c6b45c5120c172a98e",
        "30Y_CMortgageRate",
        "the KEEL repository's mortgage",
    ),
    "weather_izmir": PaperSet(
        "7eff200ff91fd51265f9d8cd5206a12018f9e07cd18549ff6cf7277cf38fa486",
        "Mean_temperature",
        "the KEEL repository's wizmir",
    ),
    "kin8nm": PaperSet(
        "871092801089fedab48c0448e5a72f39c768deae1d8d3c3ccd326bd481dfd7cb",
        "y",
        "OpenML's kin8nm",
        "openml:kin8nm",
    ),
    "delta_elevators": PaperSet(
        "24279332a7a4971048d2afb4f2dabcfdea07babdbecdd35d143ee56c4014ad73",
        "Se",
        "OpenML's delta_elevators",
        "openml:delta_elevators",
    ),
    "california": PaperSet(
        "88ddc64f3b81d59bae297bf9a98a1cda5490aff3e2dbc4f2cfff959ba7616b24",
        "medianHouseValue",
        "the StatLib California housing table",
    ),
    "diabetes_pima": PaperSet(
        "2089091792b4a517286e71353ee1b61adf6ad5a13e805898b8059f400b53ad17",
        "diabetes",
        "the Pima Indians' diabetes table",
    ),
    "breast_cancer_wdbc": PaperSet(
        "fd866ed746b89f20e040ac47219aa2f3ffe6554b2ecb6e7d9bd537af71ef34cd",
        "malignant",
        "UCI's Breast Cancer Wisconsin (Diagnostic), classes 0 and 1",
    ),
    "banknote": PaperSet(
        "7894df9b0bb94b12123e630bca9b3e9c6e4cce4d179adf87d65422bd9a77ae18",
        "class",
        "UCI's banknote authentication",
    ),
    "wisconsin": PaperSet(
        "ced64f8a3c372c95eca9b43605b364d51b379b2ded25d1ffcbe5106cb34c9e2a",
        "class",
        "UCI's Breast Cancer Wisconsin (Original), classes benign and malignant",
    ),
    "bodyfat": PaperSet(
        "92dd9f6e3505405ffd6efb992f6467d48296932a07fe65899cf1e66fece72ef6",
        "bodyfat",
        "StatLib's bodyfat",
    ),
    "space_ga": PaperSet(
        "37118d98632535963393f6bb0c2bbe8944767d330280a44ab805fa4189748a26",
        "ln_votes_pop",
        "StatLib's space_ga",
    ),
    "nursery": PaperSet(
        "0e1d4a4c35db607c2c57cbe8e527c416dbacf51e8c4bf0d6d875e809379d26e6",
        "class",
        "UCI's Nursery",
    ),
    "magic_telescope": PaperSet(
        "8ab371caf96025db7773602608b9819ab4cf63f39c7e8277a1bc94f846ee98af",
        "class",
        "UCI's MAGIC gamma telescope, classes g and h",
    ),
    "electricity": PaperSet(
        "95f732a09f2c63989623affab547eb74c298ba480b99f06703125c07365e8859",
        "class",
        "ELEC2, normalised, without date and day",
    ),
    "bank_marketing": PaperSet(
        "e4bb68fa799b938931e6cf50706c5282b763c9e287f1b83511827033898ed6e7",
        "subscribed",
        "UCI's Bank Marketing (bank-full)",
    ),
    "default_credit_card": PaperSet(
        "6f0f8e1e97e76cc0fbab6569c76940475a75ff53100eb3206a7dc6de9a124d78",
        "default",
        "UCI's default of credit card clients",
    ),
    "abalone": PaperSet(
        "40d6ba8872ce2d85c725d565df25e080ca00d0d8e1977dda2cb0fbfe55e4120f",
        "Rings",
        "UCI's Abalone",
    ),
    "sulfur": PaperSet(
        "93d85d07fdecde547330e655fb085025727a2c0c5c5939648f066d7fc48a5108",
        "y1",
        "the sulfur recovery unit's table (Fortuna et al. 2007)",
    ),
    "basic_motions": PaperSet(
        "9a4a3c784a73c2a32cc2f2f6897388fc96c656ba4a0696c6c6ab2617a74f3dd1",
        "vigorous",
        "UEA's BasicMotions (it comes with `pip install sktime`), a line for each trajectory and step",
        "sktime",
    ),
}


def table(name: str, folder: Path | None) -> pd.DataFrame:
    """Return a paper's data set, its target last: NAME.csv of the folder, or where there is none its source's.

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
    """BasicMotions as sktime has it: a line for each trajectory and step, and whether the motion is vigorous."""
    from sktime.datasets import load_basic_motions

    signals, doing = load_basic_motions(return_type="numpy3d")
    count, sensors, steps = signals.shape
    frame = pd.DataFrame(signals.transpose(0, 2, 1).reshape(-1, sensors)).add_prefix("x")
    places = {
        "trajectory": np.repeat(np.arange(count), steps),
        "step": np.tile(np.arange(steps), count),
    }
    vigorous = np.isin(doing, ["running", "badminton"]).astype(int)
    return frame.assign(**places, vigorous=np.repeat(vigorous, steps))


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
