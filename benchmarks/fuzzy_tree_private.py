"""Private regression: the fuzzy tree and the forest beside a constant, AdaSSP and DP-EBM.

    pip install interpret-core        # DP-EBM; a benchmark's dependency only
    PRIVFED_DATA=... python benchmarks/fuzzy_tree_private.py [--data california kin8nm] [--seeds 3]

RMSE over the target's deviation on held-out fifths, so that a constant which knows the truth has 1.
Delta 1e-5, the data's own smallest and largest values as public bounds, at most 8,000 rows of each set.
The tree and the forest (RuleFit's engine) have five clients and add five noises; AdaSSP and DP-EBM see the pooled
records and add one. ``linear`` is the tree that may not split; all of them
are methods of :mod:`league`. Writes results/OUT.csv, and to
results/OUT_pays.csv from which epsilon on rules are ahead of a linear model.

docs/tuning.md says which sets chose the settings of the tree's private way.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable

import numpy as np
import pandas as pd
from league import as_problem, load, predicted, schema_of
from result_rows import PaperRows, arguments, write_rows
from sklearn.datasets import make_friedman1, make_friedman2, make_friedman3
from sklearn.model_selection import train_test_split

CHOSEN_ON = ("california", "weather_izmir", "space_ga", "student_por", "abalone")
HELD_BACK = (
    "mortgage", "bodyfat", "kin8nm", "delta_elevators", "sulfur", "exam_london_schools",
    "openfl_xai_5clients", "heavy",
)  # fmt: skip
#: Made-up tables of a thousand rows, or fifty.
FRIEDMAN: dict[str, Callable[..., tuple[np.ndarray, np.ndarray]]] = {
    "friedman1": make_friedman1,
    "friedman2": make_friedman2,
    "friedman3": make_friedman3,
}
MADE_UP = (*FRIEDMAN, "t noise", "all noise", "two values", "fifty rows")
ROWS = 8_000


def table_of(name: str) -> pd.DataFrame:
    """A set, its rows cut down; ``heavy`` is a thousand of abalone's with a heavy-tailed target."""
    if name in MADE_UP:
        return made_up(name)
    frame, number = load("abalone" if name == "heavy" else name)
    if not number:
        raise SystemExit(f"{name} is no regression set")
    if name == "heavy":
        frame = frame.sample(1000, random_state=1)
        tail = np.random.default_rng(0).standard_t(3, len(frame))
        return frame.assign(y=np.exp(0.15 * frame["y"] + 0.7 * tail))
    return frame.sample(ROWS, random_state=0) if len(frame) > ROWS else frame


def made_up(name: str) -> pd.DataFrame:
    """A table that nobody measured."""
    rng = np.random.default_rng(0)
    if name in FRIEDMAN:
        x, y = FRIEDMAN[name](n_samples=1000, noise=0.1, random_state=0)
    else:
        x = rng.uniform(
            0, 1, (50 if name == "fifty rows" else 1000, 30 if name == "all noise" else 4)
        )
        line = 2 * x[:, 0] + x[:, 1]
        y = {
            "t noise": line + 0.3 * rng.standard_t(2, len(x)),
            "all noise": rng.normal(0, 1, len(x)),
            "two values": (line + rng.normal(0, 0.3, len(x)) > 1.5).astype(float) + 1e-9 * x[:, 0],
            "fifty rows": line,
        }[name]
    return pd.DataFrame(x, columns=[f"x{k}" for k in range(x.shape[1])]).assign(y=y)


#: What each is called in the league; the constant is the training mean, without noise.
LEARNERS = {
    "constant": "",
    "AdaSSP": "AdaSSP",
    "DP-EBM": "DP-EBM",
    "linear": "ours, line",
    "fuzzy tree": "ours, fuzzy tree",
    "forest": "ours",
}
#: Learners of rules, and what they are to be ahead of.
RULES, LINES = ("fuzzy tree", "forest"), ("AdaSSP", "linear")


def one(frame: pd.DataFrame, epsilon: str, seed: int, learners: list[str]) -> dict[str, float]:
    """RMSE over the target's deviation, by learner."""
    schema = schema_of(frame, True, 1.0)
    train, test = train_test_split(frame, test_size=0.2, random_state=seed)
    y = test["y"].to_numpy(float)
    problem = as_problem(train, test, schema, epsilon, seed)
    told = {
        name: predicted(problem, LEARNERS[name])[0] if LEARNERS[name] else float(train["y"].mean())
        for name in learners
    }
    return {name: float(np.sqrt(np.mean((own - y) ** 2)) / y.std()) for name, own in told.items()}


def ahead(means: pd.DataFrame, rules: str, line: str) -> str:
    """The least epsilon from which rules have the smaller error, at it and at all above.

    Args:
        means: errors by epsilon (rising) and learner.
    """
    better = (means[rules] < means[line]).to_numpy()[::-1]
    kept = len(better) if better.all() else int(np.argmin(better))
    return f"none up to {means.index[-1]}" if not kept else str(means.index[len(better) - kept])


def paying(found: dict[str, pd.DataFrame]) -> pd.DataFrame:
    """Where rules begin to pay, by set."""
    pairs = {f"{rules} ahead of {line} from": (rules, line) for line in LINES for rules in RULES}
    return pd.DataFrame(
        [
            {"set": name, **{label: ahead(means, *pair) for label, pair in pairs.items()}}
            for name, means in found.items()
        ]
    )


def main() -> None:
    data, epsilons = [*CHOSEN_ON, *HELD_BACK, *MADE_UP], ["1", "2", "4", "8"]
    parser = arguments(__doc__, seeds=3, first_seed=100, data=data, epsilons=epsilons)
    parser.add_argument("--learners", nargs="+", default=list(LEARNERS), choices=list(LEARNERS))
    parser.add_argument("--out", default="fuzzy_tree_private")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    seeds = range(given.first_seed, given.first_seed + given.seeds)
    rows = PaperRows("private regression", f"{seeds[0]} to {seeds[-1]}")
    found: dict[str, pd.DataFrame] = {}
    for name in given.data:
        frame, means = table_of(name), {}
        for epsilon in given.epsilons:
            each = pd.DataFrame([one(frame, epsilon, seed, given.learners) for seed in seeds])
            means[epsilon] = each.mean()
            print(f"{name:22}{epsilon:>4}  {each.mean().round(3).to_dict()}", flush=True)
            _add(rows, name, epsilon, each)
        found[name] = pd.DataFrame(means).T
    print(rows.write(given.out))
    if set(RULES) | set(LINES) <= set(given.learners):
        write_rows(paying(found), f"{given.out}_pays", ("set",), seed=rows.seed)


def _add(rows: PaperRows, name: str, epsilon: str, each: pd.DataFrame) -> None:
    note = "spread over splits"
    spread = each.std()
    for learner in map(str, each):
        rows.add(f"RMSE over the target's deviation, epsilon {epsilon}", name, column=learner, ours=float(each[learner].mean()),
                 spread=float(spread[learner]), note=note)  # fmt: skip


if __name__ == "__main__":
    main()
