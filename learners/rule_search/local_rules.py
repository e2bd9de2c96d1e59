"""Each individual's rules, learned from its own trajectories: the records of a rule search."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
from tqdm.auto import tqdm

from privfed.errors import InputError
from privfed.learners.rule_search.rule_index import RuleIndex
from privfed.learners.stl.formula import Formula
from privfed.learners.stl.learner import GeneticRules
from privfed.learners.stl.rule_file import write_rules


def learn_each(
    signals: np.ndarray, labels: np.ndarray, people: np.ndarray, settings: GeneticRules
) -> dict[str, list[Formula]]:
    """Learn each individual's rules from its own trajectories only, with its own seed.

    Trajectories have the shape (samples, steps, variables in the grammar's order); labels (true for
    the positive class) and people (samples,). Returns canonical rules by individual, empty if one
    class is missing. InputError: arrays of different lengths.
    """
    if not len(signals) == len(labels) == len(people):
        raise InputError("trajectories, labels and people need one entry for each trajectory")
    rules: dict[str, list[Formula]] = {}
    bar = tqdm(np.unique(people), desc="local rules", unit=" individual", disable=None)
    for number, person in enumerate(bar):
        rows = np.asarray(people) == person
        seeded = replace(settings, seed=settings.seed + number)
        rules[str(person)] = [scored.rule for scored in seeded.learn(signals[rows], labels[rows])]
    return rules


def learn_rules(
    signals: np.ndarray, labels: np.ndarray, people: np.ndarray, settings: GeneticRules
) -> RuleIndex:
    """Learn each individual's rules, and index them; see :func:`learn_each`."""
    return RuleIndex.of(learn_each(signals, labels, people, settings), settings.grammar)


def write_cohort(folder: str | Path, rules: Mapping[str, Iterable[Formula]]) -> None:
    """Write one file of rules per individual (InputError: a name is no file name, or other rules are there)."""
    for name in rules:
        if not name or Path(name).name != name or name.startswith("."):
            raise InputError(f"an individual called {name!r} cannot name a file; rename it")
    others = {path.stem for path in Path(folder).glob("*.stl")} - rules.keys()
    if others:
        raise InputError(
            f"folder {folder}: holds the rules of {len(others)} who are not of this cohort, and would count "
            "among it; write to a new folder"
        )
    Path(folder).mkdir(parents=True, exist_ok=True)
    for name, formulas in rules.items():
        write_rules(Path(folder) / f"{name}.stl", formulas)
