"""FedForest's tables beside each other, and sets beyond the paper's.

    python benchmarks/forest_tables.py public DATA [--seeds 10] [--sets banknote kin8nm] [--out NAME]
    python benchmarks/forest_tables.py others DATA [--seeds 3] [--sets wine abalone] [--out others]
    python benchmarks/forest_tables.py fragmented DATA [--seeds 5]
    python benchmarks/forest_tables.py outliers [--seeds 5]
    python benchmarks/forest_tables.py simulations [--seeds 5]
    python benchmarks/forest_tables.py shifts [--seeds 5]

DATA is a folder of CSV files whose last column is the target. What is measured and how:
:mod:`privfed.study.papers.forest`, which `privfed reproduce` runs too. `--methods` runs some methods of
`public` alone, and `--out` writes `results/forest_NAME.csv`.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from result_rows import PaperRows, arguments
from sklearn.datasets import load_diabetes, load_digits, load_iris, load_wine

from privfed import Schema
from privfed.study.papers import forest
from privfed.study.papers.forest import CLIENTS, SETS, Scores, compare, halves, methods

#: Other sets that nothing of the published forest was chosen on: target, and whether it is a class.
OTHERS: dict[str, tuple[str, bool]] = {
    "trauma": ("mortality", True),
    "exam_london_schools": ("normexam", False),
    "student_por": ("G3", False),
    "mortgage": ("30Y_CMortgageRate", False),
    "weather_izmir": ("Mean_temperature", False),
    "delta_elevators": ("Se", False),
    "california": ("medianHouseValue", False),
    "openfl_xai_5clients": ("y", False),
    "nursery": ("class", True),
    "electricity": ("class", True),
    "magic_telescope": ("class", True),
    "abalone": ("Rings", False),
    "sulfur": ("y1", False),
    "bank_marketing": ("subscribed", True),
    "default_credit_card": ("default", True),
}
#: scikit-learn's own, by how they are loaded.
OWN = {"wine": load_wine, "digits": load_digits, "iris": load_iris, "diabetes": load_diabetes}
#: Records of those sets that are learned from and held out, at most.
MOST = 3_000
OTHER_FORMS = {
    "sulfur": ["y2"],
    "trauma": ["hospital"],
    "exam_london_schools": ["school"],
    "student_por": ["school"],
    "openfl_xai_5clients": ["client", "split"],
}


def table(rows: dict[str, list[dict[str, float]]]) -> str:
    """Means over seeds as markdown, one line for each setting."""
    names = list(next(iter(rows.values()))[0])
    lines = [f"| setting | {' | '.join(names)} |", f"|---|{'---|' * len(names)}"]
    for setting, each in rows.items():
        means = [np.mean([one[name] for one in each]) for name in names]
        lines.append(f"| {setting} | {' | '.join(f'{mean:.3f}' for mean in means)} |")
    return "\n".join(lines)


def gathered(settings: Iterator[Scores]) -> dict[str, list[dict[str, float]]]:
    """Print the table as it grows to its end, and return its scores by setting."""
    rows: dict[str, list[dict[str, float]]] = {}
    for setting, found in settings:
        rows.setdefault(setting, []).append(found)
        print(setting, {name: round(value, 4) for name, value in found.items()}, flush=True)
    print(table(rows), flush=True)
    return rows


def write(rows: dict[str, list[dict[str, float]]], what: str, name: str) -> None:
    """The means and their deviations as a table of the paper, whose own figures are not at hand."""
    seeds = len(next(iter(rows.values())))
    cells = PaperRows("FedForest", f"0 to {seeds - 1}")
    title, note = TITLES[what]
    for setting, each in rows.items():
        for method in each[0]:
            values = [one[method] for one in each]
            spread = float(np.std(values, ddof=1)) if seeds > 1 else ""
            about = f"{note}; means over seeds"
            cells.add(title, setting, column=method, ours=float(np.mean(values)),
                      spread=spread, note=about)  # fmt: skip
    print(cells.write(name if Path(name).suffix else f"forest_{name}"))


def others(given: argparse.Namespace) -> Iterator[Scores]:
    """Sets beyond the paper's, dealt to the clients at random."""
    for name in given.sets or [*OTHERS, *OWN]:
        frame, target, classes = other(given.data, name)
        schema = Schema.infer(frame, target)
        for seed in range(given.seeds):
            rng = np.random.default_rng(seed)
            drawn = frame.sample(min(len(frame), MOST), random_state=seed)
            owned = drawn.assign(client=rng.integers(0, CLIENTS, len(drawn)))
            kind = "accuracy" if classes else "R^2"
            yield name, compare(*halves(owned, rng), schema, kind, methods(classes=classes), seed)


def other(folder: Path, name: str) -> tuple[pd.DataFrame, str, bool]:
    """A set of the folder or of scikit-learn, its target, and whether that is a class."""
    if name in OWN:
        loaded: Any = OWN[name](as_frame=True)
        frame, target, classes = loaded.frame.rename(columns=str), "target", name != "diabetes"
    else:
        target, classes = OTHERS[name]
        frame = pd.read_csv(folder / f"{name}.csv").dropna()
        frame = frame.drop(columns=OTHER_FORMS.get(name, []))
    return frame.astype({target: str}) if classes else frame, target, classes


def rerun(given: argparse.Namespace) -> Iterator[Scores]:
    """One of the paper's tables."""
    studies: dict[str, Callable[..., Iterator[Scores]]] = {
        "public": forest.public,
        "fragmented": forest.fragmented,
        "outliers": forest.outliers,
        "simulations": forest.simulations,
        "shifts": forest.shifts,
    }
    sets = {"public": given.sets or list(SETS), "fragmented": ["banknote"]}.get(given.what, [])
    data = {name: pd.read_csv(given.data / f"{name}.csv") for name in sets}
    chosen = {"selected": given.methods} if given.methods else {}
    return studies[given.what](data, given.seeds, **chosen)


#: What the tables are called in the paper, and what is to be known of ours.
TITLES = {
    "public": (
        "Table 2, public sets",
        "accuracy or R^2 on 30 % held out, by Dirichlet alpha; the paper's figures are not at hand",
    ),
    "others": (
        "Sets beyond the paper's",
        "accuracy or R^2 on 30 % held out of at most 3,000 records, dealt to five clients at random; none of these chose anything of the published forest",
    ),
    "fragmented": ("Table 3, banknote among K clients", "accuracy on 30 % held out"),
    "outliers": (
        "Table 7, outliers",
        "mean squared error, .25 of it noise; feature vectors of outliers times ten; a histogram's bins are laid anew at every node, where outliers have parted from the rest, unless it says once",
    ),
    "simulations": (
        "Figure 2 and Appendix F.2, simulations",
        "mean squared error, .25 of it noise; H: also splits on the client; the paper shows a picture",
    ),
    "shifts": (
        "Tables 5 and 6, covariate shift",
        "mean squared error, .25 of it noise; 500 records a client, 10 features; H: also splits on the client",
    ),
}


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("what", choices=TITLES)
    parser.add_argument("data", type=Path, nargs="?")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--sets", nargs="*", default=[])
    parser.add_argument("--methods", nargs="*", default=[])
    parser.add_argument("--out", help="write results/forest_OUT.csv")
    given = parser.parse_args()
    if given.what in ("public", "others", "fragmented") and given.data is None:
        parser.error("give the folder of the CSV files")
    rows = gathered(others(given) if given.what == "others" else rerun(given))
    if given.out:
        write(rows, given.what, given.out)


if __name__ == "__main__":
    main()
