"""Rule search at the scale of DP-RuL: coverage, scale, single questions and real trajectories.

    python benchmarks/rule_search.py coverage --profile icu --runs 3 --out DIR
    python benchmarks/rule_search.py scale
    python benchmarks/rule_search.py individual
    python benchmarks/rule_search.py plot --out DIR

Populations are simulated with the published marginals (``generator.py`` says which parts are
assumptions); noise is seeded, and the ledgers say so. ``coverage`` writes one CSV for each profile,
``plot`` draws curves like Figures 6 to 9 of the paper from them. ``least`` searches the smallest
epsilon at which the search by level reaches coverage 0.8 and precision 0.9.
"""

from __future__ import annotations

import argparse
import csv
import resource
import time
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from privfed.cohort import CohortDisclosure
from privfed.learners.rule_search import RuleSearch
from privfed.learners.rule_search.generator import PROFILES, generate
from privfed.learners.rule_search.individual_search import smallest_part
from privfed.learners.rule_search.population_rules import coverage
from privfed.learners.rule_search.queries import Asked, TemplateBits
from privfed.learners.rule_search.rule_book import RuleBook
from privfed.mechanisms.randomized_response import flip_probability
from privfed.noise import SecureNoise

FIELDS = (
    "profile", "method", "epsilon", "nu", "theta", "run",
    "coverage", "precision", "found", "questions", "seconds",
)  # fmt: skip
EPSILONS = ("1", "5", "10", "20", "50", "100", "300")


def learner(method: str, epsilon: str, nu: float, theta: float, seed: int) -> RuleSearch:
    common: dict[str, Any] = {"epsilon": epsilon, "threshold": nu, "error": theta, "seed": seed}
    common |= {"most_operators": 6, "horizon": 10}
    if method.startswith("equal"):
        return RuleSearch("equal", questions=int(method[5:]), **common)
    if method == "levels":
        return RuleSearch("levels", most_templates=8000, **common)
    return RuleSearch(method, **common)  # type: ignore[arg-type]


def run(
    book: RuleBook, method: str, epsilon: str, nu: float, theta: float, seed: int
) -> dict[str, Any]:
    model = learner(method, epsilon, nu, theta, seed)
    federation = CohortDisclosure.of(book, model.private(epsilon), seed=seed + 1)
    begun = time.perf_counter()
    try:
        model.fit(federation)
        found, steps = [one.structure for one in model.found_], len(model.steps_)
    except ValueError as error:
        raise SystemExit(f"{method} at {epsilon}: {error}") from None
    except Exception as error:  # an epsilon too small for any question finds nothing
        if "too small" not in str(error):
            raise
        found, steps = [], 0
    right, precise = coverage(found, book.valid(nu * book.people))
    return {
        "method": method, "epsilon": epsilon, "nu": nu, "theta": theta, "run": seed,
        "coverage": right, "precision": precise, "found": len(found), "questions": steps,
        "seconds": round(time.perf_counter() - begun, 2),
    }  # fmt: skip


def grid(
    methods: list[str], epsilons: list[str], runs: int
) -> Iterator[tuple[str, str, float, float, int]]:
    for seed in range(runs):
        for epsilon in epsilons:
            for method in methods:
                yield method, epsilon, 0.01, 0.05, seed


def measure_coverage(args: argparse.Namespace) -> None:
    folder = Path(args.out)
    folder.mkdir(parents=True, exist_ok=True)
    book = generate(PROFILES[args.profile], 1)
    with (folder / f"{args.profile}{args.suffix}.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, FIELDS)
        writer.writeheader()
        for cell in grid(args.methods.split(","), args.epsilons.split(","), args.runs):
            row = {"profile": args.profile, **run(book, *cell)}
            writer.writerow(row)
            file.flush()
            print(row, flush=True)


def measure_scale(args: argparse.Namespace) -> None:
    """5,000 templates in level vectors, and 500 single questions, over the sepsis population."""
    book = generate(PROFILES["sepsis"], 1)
    begun = time.perf_counter()
    model = RuleSearch("levels", epsilon="10", most_templates=2000, levels=4, most_operators=6)
    federation = CohortDisclosure.of(book, model.private("10"))
    model.fit(federation)
    templates = sum(step.templates for step in model.steps_)
    print(f"levels: {templates} templates, {time.perf_counter() - begun:.1f} s, secure noise")
    begun = time.perf_counter()
    single = RuleSearch("equal", epsilon="500", questions=args.questions, most_operators=6)
    federation = CohortDisclosure.of(book, single.private("500"))
    single.fit(federation)
    print(f"questions: {len(single.steps_)}, {time.perf_counter() - begun:.1f} s, secure noise")
    print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.2f} GiB")
    flip, noise = flip_probability(Fraction(1)), SecureNoise()
    times = []
    for _ in range(200):
        begun = time.perf_counter()
        noise.bits(40_000, flip)
        times.append(time.perf_counter() - begun)
    print(f"noise of 40,000 bits: median {1000 * float(np.median(times)):.3f} ms")


def measure_growth(args: argparse.Namespace) -> None:
    """Time to evaluate one question against the number of matching rules."""
    book = generate(PROFILES["sepsis"], 1)
    grammar = book.grammar
    templates = [(), *grammar.continuations(())]
    from privfed.query import View

    for template in sorted(templates, key=lambda t: -len(book.matching(t)))[
        :: max(1, len(templates) // 8)
    ]:
        query = TemplateBits(Asked.everybody(book.people), grammar.digest, (template,))
        view = View(book, book.schema)
        query.evaluate(view)
        begun = time.perf_counter()
        for _ in range(5):
            query.evaluate(view)
        print(
            f"{len(book.matching(template)):9d} matching rules {(time.perf_counter() - begun) / 5 * 1e3:8.2f} ms"
        )


def measure_individual(args: argparse.Namespace) -> None:
    """What fits under epsilon 8 for whole individuals."""
    for name, profile in PROFILES.items():
        part = smallest_part(profile.people, 8.0, 0.01, 1.0, 0.05)
        print(
            f"{name}: at epsilon 8 a question needs {part} people: {profile.people // part} questions"
        )


def plot(args: argparse.Namespace) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt
    import pandas as pd

    folder = Path(args.out)
    frames = [pd.read_csv(path) for path in sorted(folder.glob("*.csv"))]
    table = pd.concat(frames)
    for name, rows in table.groupby("profile"):
        figure, axes = plt.subplots(1, 2, figsize=(11, 4), sharex=True)
        for method, curve in rows.groupby("method"):
            for axis, score in zip(axes, ("coverage", "precision"), strict=True):
                spread = curve.groupby("epsilon")[score].agg(["mean", "std"]).fillna(0)
                axis.errorbar(spread.index, spread["mean"], spread["std"], label=method, capsize=3)
                axis.set(xscale="log", xlabel="epsilon (nats, whole search)", ylabel=score)
        axes[0].legend()
        figure.suptitle(f"{name}: simulated population with the published marginals")
        figure.tight_layout()
        figure.savefig(folder / f"{name}.png", dpi=120)
        plt.close(figure)
    print(
        table.groupby(["profile", "method", "epsilon"])[["coverage", "precision"]].agg(
            ["mean", "std"]
        )
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("what", choices=sorted(WHAT))
    parser.add_argument("--profile", choices=sorted(PROFILES), default="sepsis")
    parser.add_argument("--methods", default="equal1000,equal5000,adaptive,levels,parts,sampled")
    parser.add_argument("--epsilons", default=",".join(EPSILONS))
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--questions", type=int, default=500)
    parser.add_argument("--suffix", default="")
    parser.add_argument("--out", default="rule_search")
    args = parser.parse_args()
    WHAT[args.what](args)


WHAT = {
    "coverage": measure_coverage,
    "scale": measure_scale,
    "growth": measure_growth,
    "individual": measure_individual,
    "plot": plot,
}

if __name__ == "__main__":
    main()
