"""Protocols over *learned* rules, and what their rules are worth: like DP-RuL's figures 6 and 10 to 12.

    python benchmarks/rule_search_learned.py --task BasicMotions --people 400 --out DIR

The generator draws symbols with the same frequencies at each position of a rule, which is what the
best-first search assumes. Here every individual's rules are learned by the genetic learner from real
trajectories (public sets that come with sktime), so that nothing is assumed. Who the trajectories
belong to is not known: an individual is SIMULATED as a draw of a few training trajectories, and
trajectories may belong to several. A third of the trajectories is held out, and no individual sees
any of it.

Every search goes through a gate. Three quarters of epsilon are for structures, a quarter for
thresholds and intervals. ``all rules`` stands for every valid structure with the median of its
holders' parameters, without noise: the black line of figures 10 and 11.
"""

from __future__ import annotations

import argparse
import time
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from rule_search_real import Task, tasks

from privfed.engines.cohort import CohortDisclosure
from privfed.errors import InputError
from privfed.learners import RuleSearch
from privfed.learners.rule_search.local_rules import write_cohort
from privfed.learners.rule_search.population_rules import (
    PopulationRules,
    WeightedRule,
    coverage,
    utility,
)
from privfed.learners.rule_search.rule_index import RuleIndex
from privfed.learners.stl.formula import Formula
from privfed.learners.stl.grammar import Grammar
from privfed.learners.stl.learner import GeneticRules
from privfed.learners.stl.rule_file import read_rules, rule_files

EPSILONS = (30, 300, 3000)
#: Where nu is varied, and epsilon of the searches where it is.
NU, NUS, FIXED = 0.02, (0.01, 0.02, 0.05, 0.1), 300
#: The strategy, and parameters of its own.
PROTOCOLS: dict[str, tuple[Any, dict[str, Any]]] = {
    "equal1000": ("equal", {"questions": 1000}),
    "uct": ("uct", {}),
    "adaptive": ("adaptive", {}),
}
LEVELS = (2, 8)


def grammar_of(task: Task) -> Grammar:
    names = tuple((f"x{i}", -task.bound, task.bound) for i in range(task.signals.shape[2]))
    return Grammar(names, most_operators=2, horizon=task.signals.shape[1] - 1)


def learned(task: Task, people: int, own: np.ndarray, seed: int, folder: Path) -> RuleIndex:
    """Each individual's rules, from its own draw of the training trajectories; kept as files."""
    grammar = grammar_of(task)
    if not folder.exists():
        write_cohort(folder, learned_rules(task, people, own, seed))
    return RuleIndex.of({p.stem: read_rules(p, grammar) for p in rule_files(folder)}, grammar)


def learned_rules(task: Task, people: int, own: np.ndarray, seed: int) -> dict[str, list[Formula]]:
    rng = np.random.default_rng(seed)
    classes = [own[task.labels[own] == label] for label in (True, False)]
    rules: dict[str, list[Formula]] = {}
    for person in range(people):
        mine = np.concatenate([rng.choice(one, task.each // 2, replace=False) for one in classes])
        settings = GeneticRules(
            grammar_of(task), rules=8, population=10, generations=2, seed=10**6 * seed + person
        )
        found = settings.learn(task.signals[mine], task.labels[mine])
        rules[f"{person:05d}"] = [one.rule for one in found]
    return rules


def every_rule(book: RuleIndex, nu: float) -> PopulationRules:
    """Every valid structure with the median of its holders' parameters."""
    rules = []
    for structure, holders in book.valid(nu * book.people).items():
        ranges = np.array(book.grammar.ranges(structure))
        held = book.parameters(structure, len(ranges))[:, book.answers(structure)]
        values = ranges[:, 0] + np.median(held, axis=1) * (ranges[:, 1] - ranges[:, 0])
        rule = book.grammar.formula(structure, values.tolist())
        rules.append(WeightedRule(rule, holders / book.people))
    return PopulationRules(tuple(rules), book.grammar.names)


def searched(book: RuleIndex, protocol: str, epsilon: int, nu: float, seed: int) -> RuleSearch:
    strategy, own = PROTOCOLS.get(protocol, (protocol, {}))
    total = Fraction(epsilon)
    model = RuleSearch(
        strategy, epsilon=total * 3 / 4, parameter_epsilon=total / 4, min_support=nu, random_state=seed,
        max_operators=book.grammar.most_operators, horizon=book.grammar.horizon, **own,
    )  # fmt: skip
    try:
        return model.fit(CohortDisclosure.of(book, model.private(total), seed=seed + 1))
    except InputError as error:
        if "too small" not in str(error):
            raise
        model.found_, model.rules_ = [], PopulationRules((), book.grammar.names)
        return model


def scored(
    task: Task, held: np.ndarray, book: RuleIndex, model: RuleSearch, nu: float
) -> dict[str, float]:
    right, precise = coverage([one.structure for one in model.found_], book.valid(nu * book.people))
    worth = utility(model.rules_.predict(task.signals[held]), task.labels[held])
    return {"coverage": right, "precision": precise, "found": len(model.found_), **worth}


def measure(task: Task, people: int, protocols: list[str], runs: int, folder: Path) -> None:
    seed = 1
    order = np.random.default_rng(seed).permutation(len(task.signals))
    held, own = order[: len(order) // 3], order[len(order) // 3 :]
    begun = time.perf_counter()
    book = learned(task, people, own, seed, folder / f"{task.name}-{people}")
    print(f"{task.name}: {people} individuals, {book.rules} rules, {len(book.structures)} structures, "
          f"{time.perf_counter() - begun:.0f} s", flush=True)  # fmt: skip
    rows: list[dict[str, Any]] = []
    for nu in NUS:
        worth = utility(every_rule(book, nu).predict(task.signals[held]), task.labels[held])
        valid = len(book.valid(nu * people))
        rows.append({"protocol": "all rules", "epsilon": np.inf, "nu": nu, "run": 0,
                     "coverage": 1.0, "precision": 1.0, "found": valid, **worth})  # fmt: skip
    cells = [(p, e, NU) for p in protocols for e in (LEVELS if p == "levels" else EPSILONS)]
    cells += [(p, FIXED, nu) for p in protocols for nu in NUS if nu != NU and p != "levels"]
    for name, epsilon, nu in cells:
        for run in range(runs):
            model = searched(book, name, epsilon, nu, run)
            row: dict[str, Any] = {"protocol": name, "epsilon": epsilon, "nu": nu, "run": run}
            rows.append(row | scored(task, held, book, model, nu))
        kept = pd.DataFrame(rows).assign(task=task.name, people=people)
        kept.to_csv(folder / f"learned-{task.name}-{'-'.join(protocols)}.csv", index=False)
        print(kept.iloc[-1].to_dict(), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--task", choices=[task.name for task in tasks()], default="BasicMotions")
    parser.add_argument("--people", type=int, default=400)
    parser.add_argument("--protocols", default=",".join((*PROTOCOLS, "levels")))
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("rule_search_learned"))
    args = parser.parse_args()
    task = next(task for task in tasks() if task.name == args.task)
    args.out.mkdir(parents=True, exist_ok=True)
    protocols = args.protocols.split(",")
    measure(task, args.people, protocols, args.runs, args.out)


if __name__ == "__main__":
    main()
