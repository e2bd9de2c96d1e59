"""From real trajectories to a population's rules: python benchmarks/rule_search_real.py

Three public sets that come with sktime (the ``dev`` extra): ItalyPowerDemand (1,096 days of 24
hours, October to March or not), GunPoint (200 hand movements, gun drawn or pointed) and BasicMotions
(80 recordings of six sensors, vigorous motion or not). The trajectories and labels are REAL; who
they belong to is not known, so that they are dealt out to individuals at random: the individuals are
SIMULATED. Every third individual is held out. Each row is the mean (and deviation) over five deals.

Beside the population's rules: the majority's answer; each individual's own rules, used alone; a
search without noise; the noisy search in a cohort of a hundred copies of each individual, which is
simulated and shows what more people of the same kind would bring; the same genetic learner over everybody's pooled trajectories, which is what
no one would release; and a random forest over the pooled trajectories, as a peer from elsewhere.
Epsilon is for one rule of one individual (unit ``rule``), thresholds and intervals included.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from sklearn.ensemble import RandomForestClassifier
from sktime import datasets

from privfed.engines.cohort import CohortDisclosure
from privfed.learners import RuleSearch
from privfed.learners.rule_search.local_rules import learn_rules
from privfed.learners.rule_search.population_rules import (
    PopulationRules,
    WeightedRule,
    utility,
)
from privfed.learners.rule_search.rule_index import RuleIndex
from privfed.learners.stl.grammar import Grammar
from privfed.learners.stl.learner import GeneticRules

EPSILONS = (4, 8, 16, 32)
COPIES = 100


@dataclass(frozen=True)
class Task:
    """Trajectories (samples, steps, variables), labels, each variable's public bound, and a deal."""

    name: str
    signals: np.ndarray
    labels: np.ndarray
    bound: float
    each: int

    @property
    def grammar(self) -> Grammar:
        names = tuple((f"x{i}", -self.bound, self.bound) for i in range(self.signals.shape[2]))
        return Grammar(names, most_operators=1, horizon=self.signals.shape[1] - 1)


def tasks() -> list[Task]:
    power, winter = datasets.load_italy_power_demand(return_type="numpy3d")
    gun, drawn = datasets.load_gunpoint(return_type="numpy3d")
    motion, doing = datasets.load_basic_motions(return_type="numpy3d")
    vigorous = np.isin(doing, ["running", "badminton"])
    return [
        Task("ItalyPowerDemand", power.transpose(0, 2, 1), winter == "1", 4.0, 8),
        Task("GunPoint", gun.transpose(0, 2, 1)[:, ::6], drawn == "1", 3.0, 8),
        Task("BasicMotions", motion.transpose(0, 2, 1)[:, ::5], vigorous, 20.0, 4),
    ]


def deal(task: Task, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Whose each trajectory is (-1 for what is left over), and which individuals are held out."""
    people = len(task.signals) // task.each
    whose = np.full(len(task.signals), -1)
    order = np.random.default_rng(seed).permutation(len(task.signals))[: people * task.each]
    whose[order] = np.repeat(np.arange(people), task.each)
    return whose, whose % 3 == 0


def search(task: Task, epsilon: float, threshold: float = 0.1) -> RuleSearch:
    """Half for structures, half for their parameters; infinity stands for no noise to speak of."""
    half = "60000" if np.isinf(epsilon) else str(epsilon / 2)
    return RuleSearch(
        "levels", epsilon=half, parameter_epsilon=half, min_support=threshold, levels=3,
        horizon=task.grammar.horizon, max_operators=1,
    )  # fmt: skip


def population(task: Task, seed: int) -> dict[str, dict[str, float]]:
    whose, held = deal(task, seed)
    own = ~held & (whose >= 0)
    truth, names = task.labels[held], task.grammar.names
    settings = GeneticRules(task.grammar, rules=3, population=16, generations=4, seed=1000 * seed)
    book = learn_rules(task.signals[own], task.labels[own], whose[own], settings)
    scores = {"majority": utility(np.full(len(truth), task.labels[own].mean() >= 0.5), truth)}
    scores["own rules alone"] = alone(task, own, held, whose, settings)
    for epsilon in EPSILONS:
        scores[f"epsilon {epsilon}"] = searched(task, book, epsilon, held, seed)
    many = copied(book, COPIES)
    for epsilon in EPSILONS[:3]:
        scores[f"{epsilon}, {COPIES} copies"] = searched(task, many, epsilon, held, seed)
    scores["no noise"] = searched(task, book, np.inf, held, seed)
    pooled = replace(settings, population=40, generations=10)
    best = pooled.learn(task.signals[own], task.labels[own])[:1]
    rules = PopulationRules(tuple(WeightedRule(one.rule, 1.0) for one in best), names)
    scores["pooled, genetic"] = utility(rules.predict(task.signals[held]), truth)
    scores["pooled, forest"] = utility(forest(task, own, held, seed), truth)
    return scores


def searched(
    task: Task, book: RuleIndex, epsilon: float, held: np.ndarray, seed: int
) -> dict[str, float]:
    model = search(task, epsilon)
    model.fit(CohortDisclosure.of(book, model.private("120000"), seed=seed))
    return utility(model.predict(task.signals[held]), task.labels[held])


def copied(book: RuleIndex, times: int) -> RuleIndex:
    """So many individuals in the place of each, who all hold its rules."""
    entries = [
        (structure, person + book.people * copy, values)
        for structure, person, values in book.entries()
        for copy in range(times)
    ]
    return RuleIndex.indexed(
        book.grammar, book.people * times, sorted(entries, key=lambda one: one[:2])
    )


def alone(
    task: Task, own: np.ndarray, held: np.ndarray, whose: np.ndarray, settings: GeneticRules
) -> dict[str, float]:
    """Mean over the individuals of what each one's own rules would do for strangers."""
    each = []
    for number, person in enumerate(np.unique(whose[own])):
        seeded = replace(settings, seed=settings.seed + number)
        mine = whose == person
        found = seeded.learn(task.signals[mine], task.labels[mine])
        rules = PopulationRules(
            tuple(WeightedRule(one.rule, 1.0) for one in found), task.grammar.names
        )
        each.append(utility(rules.predict(task.signals[held]), task.labels[held]))
    return {key: float(np.mean([one[key] for one in each])) for key in each[0]}


def forest(task: Task, own: np.ndarray, held: np.ndarray, seed: int) -> np.ndarray:
    flat = task.signals.reshape(len(task.signals), -1)
    model = RandomForestClassifier(200, random_state=seed).fit(flat[own], task.labels[own])
    return np.asarray(model.predict(flat[held]))


def table(task: Task, runs: Callable[[Task, int], dict[str, dict[str, float]]], seeds: int) -> None:
    scored = [runs(task, seed) for seed in range(1, seeds + 1)]
    people = len(task.signals) // task.each
    print(f"{task.name}: {people} individuals of {task.each} trajectories, a third held out")
    for name in scored[0]:
        balanced, f1 = (
            np.array([one[name][key] for one in scored]) for key in ("balanced_accuracy", "f1")
        )
        print(
            f"  {name:16} balanced accuracy {balanced.mean():.3f} ({balanced.std():.3f})  "
            f"F1 {f1.mean():.3f} ({f1.std():.3f})"
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    for one in tasks():
        table(one, population, parser.parse_args().seeds)
