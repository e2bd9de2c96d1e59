"""From the benchmarks' raw outputs to the small tables under benchmarks/results.

    python benchmarks/rule_search_curves.py curves --profiles icu --out curves
    python benchmarks/results_tables.py curves curves            # rule_search_curves.csv
    python benchmarks/results_tables.py simulations simulations  # rulefit_simulations.py's folder
    python benchmarks/results_tables.py trauma trauma            # rulefit_trauma.py's folder
    python benchmarks/results_tables.py cutoffs cutoffs          # a folder of rulefit_cutoffs.py's tables

Then `python benchmarks/results_page.py`. The commit is the checkout's, unless it is given.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import astuple, dataclass
from pathlib import Path

import pandas as pd
from result_rows import PAPER_KEYS, arguments, write_rows
from results_page import PAPERS, TABLES

from privfed.study.papers.trauma import SCHEMA, TABLE_1

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Row:
    """One cell of a table; none stands for what is not known."""

    paper: str
    table: str
    row: str
    column: str
    theirs: float | str | None
    ours: float | str | None
    spread: float | None = None
    note: str | None = None


def _mean(values: pd.Series) -> tuple[float, float | None]:
    spread = float(values.std()) if len(values.dropna()) > 1 else None
    return float(values.mean()), spread


# --- DP-RuL ------------------------------------------------------------------------------------

DP_RUL = "DP-RuL"
PROTOCOLS = {
    "equal1000": "baseline, Q = 1000",
    "equal5000": "baseline, Q = 5000",
    "uct": "paper's adaptive (UCT), C = 0.1",
    "uct-sqrt2": "paper's adaptive (UCT), C = sqrt 2",
    "adaptive1000": "ours, best first",
    "adaptive5000": "ours, best first, wide",
    "levels": "ours, by level (unit: one rule)",
}
NOTHING = "no precision where no run found a rule"
SIMULATED = "simulated populations with the published marginals, number 11; the hospitals' data are not public"


def curves(folder: Path) -> Iterator[Row]:
    """Figures 6, 8 and 9: coverage and precision; Figure 7: epsilon of the questions."""
    kinds = {
        "epsilon": ("Figure 6", "epsilon"), "nu": ("Figure 8", "nu"), "theta": ("Figure 9", "theta"),
    }  # fmt: skip
    for kind, (table, along) in kinds.items():
        for file in sorted(folder.glob(f"{kind}-*.csv")):
            profile = file.stem.removeprefix(f"{kind}-")
            data = pd.read_csv(file)
            for (method, at), own in data.groupby(["method", along], sort=False):
                note = f"{SIMULATED}; {own['run'].nunique()} runs; {NOTHING}"
                for score in ("coverage", "precision"):
                    name, row = f"{table}, {profile}, {score}", PROTOCOLS[str(method)]
                    if method == "levels":
                        name, row = f"{table}, by level (unit: one rule)", f"{profile}, {score}"
                    mean, spread = _mean(own[score])
                    if not math.isnan(mean):
                        yield Row(DP_RUL, name, row, f"{along} {at:,g}", None, mean, spread, note)

    for file in sorted(folder.glob("queries-*.csv")):
        profile = file.stem.removeprefix("queries-")
        note = f"{profile}: one search of 3,000 nats; {SIMULATED}; the paper shows each question as a dot"
        for method, own in pd.read_csv(file).groupby("method", sort=False):
            each = own["epsilon"]
            told = {"questions": float(len(own)), "least epsilon": float(each.min()),
                    "median epsilon": float(each.median()),
                    "largest epsilon": float(each.max())}  # fmt: skip
            for column, value in told.items():
                yield Row(DP_RUL, f"Figure 7, {profile}", PROTOCOLS[str(method)], column, None,
                          value, None, note)  # fmt: skip


# --- RuleFit -----------------------------------------------------------------------------------

RULEFIT = "federated RuleFit"
METRICS = {"auc": "AUC", "accuracy": "accuracy", "f1": "F1"}
METHODS = {
    "federated": "federated",
    "independent": "independent",
    "local": "local",
    "bfi": "BFI",
    "forest": "forests",
}
MODELS = {
    "settings": "the paper's settings, Algorithm 1 to the letter",
    "subsamples": "the paper's settings, subsamples and leaves of five",
    "defaults": "our defaults",
}
UNEVEN = {"moderate": "moderately uneven", "severe": "very uneven", "balanced": "even"}


def simulations(folder: Path) -> Iterator[Row]:
    """Figure 2: differences to centralized RuleFit by the same code."""
    data = pd.read_csv(folder / "scores.csv")
    keys = ["model", "scenario", "setting"]
    for (model, scenario, setting), cell in data.groupby(keys, sort=False):
        runs = cell["repetition"].nunique()
        note = (
            f"medians of {runs} repetitions (the paper: 20), each one's records drawn anew; the paper "
            "has pictures of differences to the federated model, here they are to centralized RuleFit "
            'by the same code; "independent" is centralized RuleFit by scikit-learn and liblinear '
            "alone; local is the mean over clients, forests the federated random forest"
        )
        row = (
            f"{str(setting).removeprefix('M=')} clients"
            if scenario == "clients"
            else f"{scenario} {UNEVEN[str(setting)]}"
        )
        for metric, name in METRICS.items():
            table = (
                f"Figure 2, Model {model}, {name}: centralized, and the others' differences to it"
            )
            central = cell.groupby("repetition")[f"central_{metric}"].first()
            for method, values in {
                "centralized": central,
                **{METHODS[str(m)]: own[metric] for m, own in cell.groupby("method", sort=False)},
            }.items():
                spread = float(values.std()) if runs > 1 else None
                yield Row(RULEFIT, table, row, method, None, float(values.median()), spread, note)


def trauma(folder: Path) -> Iterator[Row]:
    """Table 1, Figures 3 and 4."""
    own = pd.read_csv(folder / "rules-paper.csv", index_col="rule")
    note = (
        "the paper's five rules, held against the 371 patients; importance and exp(coef.) are its "
        'model\'s; support is of all patients, as its Eq. 2 has it, "hospitals" the mean of the three '
        "hospitals' supports"
    )
    measured = {"support": "support", "hospitals": "support, mean of hospitals",
                "inside": "mortality inside", "outside": "mortality outside"}  # fmt: skip
    for text, (coefficient, importance, support) in TABLE_1.items():
        for column, known in (("exp(coef.)", coefficient), ("importance", importance)):
            yield Row(RULEFIT, "Table 1 and Figure 3, the paper's rules", text, column, known, "-",
                      None, note)  # fmt: skip
        for name, column in measured.items():
            yield Row(RULEFIT, "Table 1 and Figure 3, the paper's rules", text, column,
                      support if "support" in column else None, float(str(own.loc[text, name])),
                      None, note)  # fmt: skip
    for kind, name in MODELS.items():
        top = pd.read_csv(folder / f"rules-{kind}.csv", index_col="rule").head(5)
        note = "all 371 patients, three hospitals; mortality inside and outside is Figure 3's"
        for text in top.index:
            for column in map(str, top):
                yield Row(RULEFIT, f"Table 1 and Figure 3, {name}", str(text), measured.get(column, column), None,
                          float(str(top.loc[text, column])), None, note)  # fmt: skip
        model = pd.read_csv(folder / f"model-{kind}.csv", header=None, index_col=0)[1]
        note = "gap: how far the pooled objective is above that of 300 rounds of proximal gradient"
        for column, value in zip(map(str, model.index), model, strict=True):
            theirs = 82 if column == "rules" and kind != "defaults" else None
            shown = f"importance of {column}" if column in SCHEMA.names else column
            yield Row(RULEFIT, "The model of all patients", name, shown, theirs,
                      float(value), None, note)  # fmt: skip
    yield from _counts(folder / "counts.csv")
    yield from _splits(pd.read_csv(folder / "splits.csv"))


def _counts(file: Path) -> Iterator[Row]:
    """How many rules Section 4.1 counts, by reading of what it does not print."""
    if not file.exists():
        return
    for reading, own in pd.read_csv(file).groupby("reading", sort=False):
        note = f"all 371 patients; otherwise the paper's settings, four leaves on average; {len(own)} seeds"
        for column in ("candidates", "rules"):
            printed = 82 if column == "rules" else None
            label = {"candidates": "candidate rules", "rules": "rules with a coefficient"}[column]
            yield Row(RULEFIT, "How many rules the model of all patients has", str(reading), label,
                      printed, *_mean(own[column]), note)  # fmt: skip


def _splits(splits: pd.DataFrame) -> Iterator[Row]:
    note = (
        f"{len(splits)} splits, 70/30 in each hospital; seeds 0 to {len(splits) - 1}; importances "
        "are relative to the largest; BFI's are |coefficient| times standard deviation"
    )
    for learner, name in (
        ("rulefit", "our defaults"),
        ("paper", "the paper's settings"),
        ("bfi", "BFI"),
    ):
        own = [
            column
            for column in map(str, splits)
            if column == learner or column.startswith(f"{learner} ")
        ]
        for column in own:
            if column == "bfi rules":
                continue
            shown = "AUC" if column == learner else column.removeprefix(f"{learner} ")
            yield Row(RULEFIT, "Figure 4", name, shown, None, *_mean(splits[column]), note)


def cutoffs(folder: Path) -> Iterator[Row]:
    """Appendix B."""
    data = pd.concat([pd.read_csv(file) for file in sorted(folder.glob("*.csv"))])
    for (model, bins, levels), own in data.groupby(["model", "n_bins", "n_quantiles"], sort=False):
        row = f"{bins} bins, {levels} cut-offs" if int(str(bins)) else "no histogram"
        note = (
            f"means of {len(own)} repetitions; five clients of 200 records; all rules kept; processor "
            "seconds on a busy machine, with gates and ledgers but for the row without a histogram"
        )
        for column in ("auc", "accuracy", "f1", "seconds", "candidates", "rules"):
            yield Row(
                RULEFIT, f"Appendix B, Model {model}", row, column, None, *_mean(own[column]), note
            )


WHAT: dict[str, tuple[str, Callable[[Path], Iterator[Row]], str]] = {
    "curves": ("rule_search_curves.csv", curves, "0 up"),
    "simulations": ("rulefit_simulations.csv", simulations, "0 up"),
    "trauma": ("rulefit_trauma.csv", trauma, "0 up"),
    "cutoffs": ("rulefit_cutoffs.csv", cutoffs, "0 up"),
}


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("what", choices=sorted(WHAT))
    parser.add_argument("folder", type=Path, help="what the benchmark wrote")
    parser.add_argument("--commit", help="at which it ran, if not at the checkout's")
    chosen = parser.parse_args()
    name, made, seed = WHAT[chosen.what]
    table = pd.DataFrame([astuple(row) for row in made(chosen.folder)], columns=PAPERS)
    measured = chosen.commit or ""
    write_rows(table, TABLES / name, PAPER_KEYS, seed=seed, measured=measured, float_format="%.5g")
    print(f"{TABLES / name}: {len(table)} figures")


if __name__ == "__main__":
    main()
