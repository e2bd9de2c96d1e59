"""Totals of a score card that a record of the schema can have."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from privfed.learners.rulefit.rules import Condition, Rule
    from privfed.tables.schema import Column, Schema

MAX_CELLS = 200_000  #: Maximum combinations of values of columns that share rules
MAX_SECONDS = 5.0  #: Time limit for each of a card's minimum and maximum total


def attainable_totals(
    rules: Sequence[Rule], points: np.ndarray, schema: Schema
) -> np.ndarray | None:
    """Return all totals that a record can have, in order; None beyond :data:`MAX_CELLS` combinations.

    Columns that share no rule, directly or through others, add to the total independently.

    Args:
        rules: the card's.
        points: of each rule, integers, shape (rules,).
        schema: the public data dictionary.
    """
    from scipy.sparse.csgraph import connected_components

    terms = [condition for rule in rules for condition in rule.conditions]
    uses = np.array(
        [
            [any(c.feature == name for c in rule.conditions) for name in schema.names]
            for rule in rules
        ]
    )
    _, part_of = connected_components(uses.T @ uses)
    totals = np.zeros(1, int)
    for part in np.unique(part_of[uses.any(axis=0)]):
        columns = np.flatnonzero(part_of == part)
        inside = np.flatnonzero(uses[:, columns].any(axis=1))
        values = [values_between(schema.features[column], terms) for column in columns]
        if math.prod(map(len, values)) > MAX_CELLS:
            return None
        cells = np.array(np.meshgrid(*values, indexing="ij")).reshape(len(columns), -1)
        X = np.zeros((cells.shape[1], len(schema.names)))
        X[:, columns] = cells.T
        holds = np.array([rules[k].holds(X, schema.names) for k in inside.tolist()])
        totals = np.unique(np.add.outer(totals, np.unique(points[inside] @ holds)))
    return totals


def extreme_totals(rules: Sequence[Rule], points: np.ndarray, schema: Schema) -> tuple[int, int]:
    """Return the minimum and the maximum total that a record can have; arguments as above.

    They solve a mixed integer programme: a record has one of each column's values (one between any two ends of
    conditions), and a rule holds if each of its conditions has that value. If a card of hundreds of rules takes more
    than :data:`MAX_SECONDS`, the bounds proven by then are returned.
    """
    from scipy.optimize import Bounds, LinearConstraint, milp

    terms = [condition for rule in rules for condition in rule.conditions]
    owner = np.repeat(np.arange(len(rules)), [len(rule.conditions) for rule in rules])
    columns = {column.name: column for column in schema.features}
    values = {c.feature: values_between(columns[c.feature], terms) for c in terms}
    first = dict(zip(values, np.cumsum([len(rules), *map(len, values.values())]), strict=False))
    variables = len(rules) + sum(map(len, values.values()))
    once, met = np.zeros((len(values), variables)), np.zeros((len(terms), variables))
    for row, (name, options) in zip(once, values.items(), strict=True):
        row[first[name] : first[name] + len(options)] = 1
    for row, condition in zip(met, terms, strict=True):
        options, start = values[condition.feature], first[condition.feature]
        row[start : start + len(options)] = condition.holds(options)
    holds = np.eye(variables)[: len(rules)]
    sums = np.zeros((len(rules), variables))
    np.add.at(sums, owner, met)
    needed = np.bincount(owner) - 1
    limits = [
        LinearConstraint(once, 1, 1),
        LinearConstraint(holds[owner] - met, ub=0),
        LinearConstraint(sums - holds, ub=needed),
    ]
    costs = np.concatenate([points, np.zeros(variables - len(rules))])
    integral = (np.arange(variables) >= len(rules)).astype(int)
    ends = []
    for sign in (1, -1):
        result = milp(
            sign * costs,
            integrality=integral,
            bounds=Bounds(0, 1),
            constraints=limits,
            options={"time_limit": MAX_SECONDS},
        )
        alone = np.minimum(sign * points, 0).sum()  # ignoring exclusive rules
        proven = result.mip_dual_bound
        bound = alone if proven is None else max(alone, np.ceil(proven - 1e-6))
        ends.append(sign * int(bound))
    return ends[0], ends[1]


def values_between(column: Column, conditions: Iterable[Condition]) -> np.ndarray:
    """Return encoded values of a column, one between any two ends of conditions on it."""
    low, high = column.bounds
    chosen = [c for c in conditions if c.feature == column.name]
    ends = np.array([low, *(end for c in chosen for end in (c.lower, c.upper) if end is not None)])
    ends = ends if column.kind == "number" else np.ceil(ends)
    return np.unique(ends[(ends >= low) & (ends <= high)])
