"""The private engine's settings, each set judged by what the others would have chosen.

    PRIVFED_DATA=... python benchmarks/private_leave_one_out.py --epsilon 1

For every choice of a setting all sets are learned over five clients (classes: AUC; numbers: minus RMSE
over a constant's). For each set left out, the choice of the best mean rank over the others is taken, and
what it scores there is set beside the default. A loss near zero on every set says that the default is
nobody's special case.

The default rows were chosen on the sets that docs/tuning.md names. On 1,500 records at most
of abalone, banknote, breast_cancer_wdbc, diabetes_pima, electricity, kin8nm, magic_telescope, space_ga,
trauma and wisconsin, seeds 300 to 302: results/private_leave_one_out.csv.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from league import TARGETS, forest, load, schema_of, scores
from result_rows import arguments, write_rows
from sklearn.model_selection import train_test_split

from privfed.learners.private import settings

SETS = (
    *("abalone", "banknote", "breast_cancer_wdbc", "diabetes_pima", "electricity"),
    *("kin8nm", "magic_telescope", "space_ga", "trauma", "wisconsin"),
)
#: Changes to every row of the table of settings.
CHOICES: Mapping[str, Mapping[str, Any]] = {
    "default": {},
    "half the prior": {"prior": 0.5, "spread": 0.5},
    "twice the prior": {"prior": 2.0, "spread": 2.0},
    "half the look": {"look": 0.5},
    "half the directions": {"directions": 0.5},
    "half the linear terms": {"linear": 0.5},
    "twice the linear terms": {"linear": 1.5},
}
#: Fields that stay whole numbers.
WHOLE = ("directions", "rounds", "bins")


def changed(row: settings.ModelParams, factors: Mapping[str, Any]) -> settings.ModelParams:
    """A row with some fields multiplied; what linear terms gain or lose, bins lose or gain."""
    new = {name: getattr(row, name) * factor for name, factor in factors.items()}
    new = {name: int(value) if name in WHOLE else value for name, value in new.items()}
    if "linear" in new:
        new["linear"] = min(new["linear"], row.linear + row.binned / 2)
        new["binned"] = row.binned + row.linear - new["linear"]
    return replace(row, **new)


def adopt(factors: Mapping[str, Any], rows: tuple[tuple[float, settings.ModelParams], ...]) -> None:
    """Let the engine choose among changed rows."""
    settings._ROWS = tuple((most, changed(row, factors)) for most, row in rows)


def score(frame: pd.DataFrame, number: bool, epsilon: str, seed: int) -> float:
    """One split: AUC, or minus RMSE over the target's deviation."""
    train, test = train_test_split(frame, test_size=0.25, random_state=seed)
    told = forest(train, test, schema_of(frame, number, 1.0), epsilon, seed, 5)
    found = scores(test["y"].to_numpy(float), told, number, float(train["y"].mean()))
    return -found["rmse"] if number else found["auc"]


def left_out(table: pd.DataFrame) -> pd.DataFrame:
    """For each set, the choice of the others' best mean rank, and what it loses here.

    Args:
        table: scores, a row for each set and a column for each choice.
    """
    ranks, rows = table.rank(axis=1, ascending=False), []
    for name in table.index:
        chosen = str(ranks.drop(index=name).mean().idxmin())
        loss = float(table.loc[name, chosen] - table.loc[name, "default"])
        rows.append(
            {"set": name, "chosen by the others": chosen, "over the default": round(loss, 4)}
        )
    return pd.DataFrame(rows)


def main() -> None:
    parser = arguments(__doc__, seeds=3)
    parser.add_argument("--data", nargs="+", default=list(SETS), choices=sorted(TARGETS))
    parser.add_argument("--epsilon", default="1")
    parser.add_argument("--most", type=int, default=1500, help="records of a set at most")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    chosen = parser.parse_args()
    warnings.simplefilter("ignore")
    rows, found = settings._ROWS, {}
    frames = {name: load(name) for name in chosen.data}
    for choice, factors in CHOICES.items():
        adopt(factors, rows)
        found[choice] = {
            name: np.mean(
                [
                    score(
                        frame.sample(min(len(frame), chosen.most), random_state=0),
                        number,
                        chosen.epsilon,
                        seed,
                    )
                    for seed in range(300, 300 + chosen.seeds)
                ]
            )
            for name, (frame, number) in frames.items()
        }
        print(choice, flush=True)
    adopt({}, rows)
    table = pd.DataFrame(found)
    told = left_out(table).merge(table.round(4), left_on="set", right_index=True)
    note = (
        f"each set's changes ranked; of the mean rank over the other {len(table) - 1} sets the best is taken, "
        "and what it gains over the settings as they are is this set's; AUC, or minus RMSE over the target's "
        f"deviation; {chosen.most} records at most, 25 % held out, five clients, epsilon {chosen.epsilon}"
    )
    seed, path = f"300 to {299 + chosen.seeds}", chosen.out / "private_leave_one_out.csv"
    write_rows(told, path, ("set",), seed=seed, note=note)
    print(told.to_string(index=False))
    print("mean rank", table.rank(axis=1, ascending=False).mean().round(2).to_dict())


if __name__ == "__main__":
    main()
