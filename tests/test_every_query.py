"""Every query that is installed keeps the queries' contract: neighbours, hostile fields, sums."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st

from privfed.errors import PolicyError, QueryError, WireError
from privfed.learners import FedForestClassifier, FedForestRegressor
from privfed.learners.base import FederatedLearner
from privfed.learners.baselines.bayesian import LocalPosterior
from privfed.learners.baselines.forest import LocalForest
from privfed.learners.baselines.fuzzy_rules import FuzzyRules
from privfed.learners.baselines.pooled import RawRecords
from privfed.learners.evaluation import ClassScores, RegressionErrors
from privfed.learners.fuzzy_tree.linear import Coordinates, Moments, Residuals, ResidualsBySet
from privfed.learners.fuzzy_tree.queries import Activations, Leaves, Level, Scaling
from privfed.learners.private.queries import Gradient
from privfed.learners.rule_search.patterns import PatternBit
from privfed.learners.rule_search.queries import (
    CohortSample,
    HashedRule,
    Parameters,
    SampledRule,
    TemplateBits,
)
from privfed.learners.rule_search.rule_index import RuleIndex
from privfed.learners.rulefit import queries as rulefit
from privfed.learners.rulefit.averaging import LocalStepParams
from privfed.learners.rulefit.boosting import Boosting
from privfed.learners.rulefit.cutoffs import Cutoffs
from privfed.learners.rulefit.rules import Terms
from privfed.learners.rulefit.spreads import Spreads
from privfed.learners.stl.grammar import Grammar, Symbols
from privfed.privacy.policy import Policy
from privfed.questions import plugins
from privfed.questions.query import LocalEffect, Query, View
from privfed.tables.records import Records
from privfed.tables.schema import Column, Schema
from privfed.testing import queries as small
from privfed.testing.check_query import CHECKS, check_query
from privfed.testing.rows import Rows, hostile_fields

FEATURES = (
    Column("a", lower=0, upper=8),
    Column("n", "integer", 0, 9),
    Column("c", "category", categories=("x", "y", "z")),
)
NUMERIC = Schema(FEATURES, Column("y", lower=-3, upper=7))
BINARY = Schema(FEATURES, Column("y", "integer", 0, 1))
CLASSES = Schema(FEATURES, Column("y", "category", categories=("u", "v", "w")))

LOWER, UPPER = np.array([1.0, 0.0, 0.0]), np.array([7.0, 9.0, 2.0])
NODES = (((0, 1),), ((0, 2), (1, 3)), ((0, 2), (1, 4)))
CUTOFFS = Cutoffs(
    ((0.5, 3.0), (5.0,), (1.0, 2.0)),
    np.array([0.05, 0.0, 0.0]),
    np.array([7.5, 9.0, 2.0]),
    np.array([0.2, 2.0, 1.0]),
)
BOXES = np.array([[[1, 3], [0, 2], [0, 3]], [[0, 1], [0, 2], [0, 3]], [[0, 3], [1, 2], [1, 2]]])
TERMS = Terms(CUTOFFS, BOXES.astype(np.uint8), (0, 1))
WEIGHTS = np.linspace(-1, 1, 1 + len(TERMS))

TABULAR: dict[str, tuple[Query, Schema]] = {
    "small histogram": (small.Histogram(0, (0.0, 1.0, 3.0, 8.0)), NUMERIC),
    "small level": (small.LevelSums((((0, 0),), ((0, 1), (1, 0)))), NUMERIC),
    "small bits": (small.AboveMiddle(0, 4), NUMERIC),
    "scaling": (Scaling(7), NUMERIC),
    "level of the root": (Level(((),), 3, LOWER, UPPER, (0, 1)), NUMERIC),
    "level": (Level(NODES, 5, LOWER, UPPER, (0, 2)), NUMERIC),
    "leaves": (Leaves(NODES, 5, LOWER, UPPER, (0, 1)), NUMERIC),
    "activations": (Activations(NODES, 5, LOWER, UPPER), NUMERIC),
    "moments": (Moments(((),), 5, LOWER, UPPER, Coordinates.public((0, 1, 2))), NUMERIC),
    "residuals": (
        Residuals(
            NODES, 5, LOWER, UPPER, Coordinates.public((0, 2)), np.array([9.0, -7.0, 0.3]), 0.5
        ),
        NUMERIC,
    ),
    "residuals by set": (
        ResidualsBySet(
            ((),),
            5,
            LOWER,
            UPPER,
            Coordinates.public((0, 2)),
            np.array([9.0, -7.0, 0.3]),
            0.5,
            (0, 1),
        ),
        NUMERIC,
    ),
    "histogram": (rulefit.CovariateHistogram((0, 2), 7), NUMERIC),
    "supports": (rulefit.Supports(TERMS), NUMERIC),
    "spreads": (Spreads(CUTOFFS, (0, 2)), NUMERIC),
    "curvature": (rulefit.SmoothnessBound(TERMS, 0 * WEIGHTS), NUMERIC),
    "boosted rules": (rulefit.BoostedRules(CUTOFFS, Boosting(3, 4.0, 0.1, 0.5, 1, True)), BINARY),
    "increment": (
        rulefit.Increment(TERMS, 0 * WEIGHTS, WEIGHTS, LocalStepParams(0.1, 0.1, 2, 0.01), True),
        BINARY,
    ),
    "objective": (rulefit.Objective(TERMS, WEIGHTS, False), NUMERIC),
    "boosted rules of a class": (
        rulefit.BoostedRules(CUTOFFS, Boosting(3, 4.0, 0.1, 0.5, 1, True), 2),
        CLASSES,
    ),
    "increment of a class": (
        rulefit.Increment(TERMS, 0 * WEIGHTS, WEIGHTS, LocalStepParams(0.1, 0.1, 2, 0.01), True, 0),
        CLASSES,
    ),
    "objective of a class": (rulefit.Objective(TERMS, WEIGHTS, True, 1), CLASSES),
    "posterior": (LocalPosterior(0.1), BINARY),
    "forest": (LocalForest(3, 1), BINARY),
    "records": (RawRecords(), NUMERIC),
    "fuzzy rules": (FuzzyRules(3, LOWER, UPPER), NUMERIC),
    "scaling again": (Scaling(3, ((0.0, 1.0, 1.0, 9.0),) * 4), NUMERIC),
    "level of a narrow target": (
        Level(NODES, 5, LOWER, UPPER, (0, 2), target=(-1.0, 2.0)),
        NUMERIC,
    ),
    "errors of a constant": (RegressionErrors(b""), NUMERIC),
    "scores of a constant": (ClassScores(b""), BINARY),
    "scores of three classes": (ClassScores(b""), CLASSES),
    "leaves of a narrow target": (Leaves(NODES, 5, LOWER, UPPER, (0,), target=(0.0, 0.5)), NUMERIC),
}

GRAMMAR = Grammar((("a", 0.0, 1.0), ("b", 0.0, 1.0)), ("&", "F"), most_operators=2, horizon=3)
PEOPLE = 3
WHO = CohortSample.everybody(PEOPLE)
#: A rule of a cohort: its holder, its structure, one value for all of its parameters.
Held = tuple[int, Symbols, float]


def width(structure: Symbols) -> int:
    """How many parameters it has."""
    return len(GRAMMAR.ranges(structure))


STRUCTURES = tuple(sorted(sorted(GRAMMAR.structures()), key=width)[::7])[:6]


def book(rules: Sequence[Held]) -> RuleIndex:
    """What the individuals of a cohort hold."""
    entries = [
        (structure, person, [value] * width(structure)) for person, structure, value in rules
    ]
    return RuleIndex.indexed(GRAMMAR, PEOPLE, sorted(entries, key=lambda entry: entry[:2]))


RULES = Rows(
    st.tuples(
        st.integers(0, PEOPLE - 1),
        st.sampled_from(STRUCTURES),
        st.sampled_from([0.0, 0.25, 1.0, 9.0]),
    ),
    [
        (0, STRUCTURES[0], 0.0),
        (0, STRUCTURES[-1], 1.0),
        (1, STRUCTURES[-1], 0.0),
        (2, STRUCTURES[1], 1.0),
    ],
    book,
    person=lambda rule: rule[0],
    instead=lambda rule, other: (rule[0], *other[1:]),
)
COHORT: dict[str, Query] = {
    "templates": TemplateBits(WHO, GRAMMAR.digest, STRUCTURES),
    "pattern": PatternBit(WHO, GRAMMAR.digest, "? & F[?](a <= ?)"),
    "sampled": SampledRule(WHO, GRAMMAR.digest, STRUCTURES, 2),
    "hashed": HashedRule(WHO, GRAMMAR.digest, STRUCTURES, 2),
    "parameters": Parameters(WHO, GRAMMAR.digest, STRUCTURES, tuple(map(width, STRUCTURES))),
}


@pytest.mark.parametrize(("query", "schema"), TABULAR.values(), ids=TABULAR)
def test_queries_of_tables(query: Query, schema: Schema) -> None:
    """All checks of the kit."""
    assert len(check_query(query, schema, examples=40)) == len(CHECKS)


@pytest.mark.parametrize("query", COHORT.values(), ids=COHORT)
def test_queries_of_cohorts(query: Query) -> None:
    """The same over rules: one more or less, in another's place at the same individual, or any others.

    Which of two equal structures with other parameters comes first shows in its parameters: an
    individual's own order of rules is part of what it holds.
    """
    skip = {"order": "an individual's rules have an order"} if isinstance(query, Parameters) else {}
    ran = check_query(query, book([]).schema, rows=RULES, examples=40, skip=skip)
    assert len(ran) == len(CHECKS) - len(skip)


#: Small learners whose plans name the questions of their kinds, in all the ways of sampling.
PLANNING: tuple[tuple[str, dict[str, Any]], ...] = (
    ("FedForestClassifier", {"n_estimators": 2, "top_k": 2}),
    ("GeneticTreeClassifier", {"population_size": 4, "generations": 2}),
    ("GeneticTreeRegressor", {"population_size": 4, "generations": 2}),
    ("RuleFitClassifier", {"n_estimators": 3}),
    ("RuleFitRegressor", {"n_estimators": 3}),
    ("FedAvgNetworkClassifier", {}),
    ("TruexTreeClassifier", {"max_depth": 2}),
    ("LocalTreeClassifier", {}),
    *(
        ("FedForestClassifier", {"n_estimators": 2, "sampling": way, "oob_score": way != "all"})
        for way in ("bootstrap", "poisson", "split", "all")
    ),
    ("FedForestRegressor", {"n_estimators": 2, "sampling": "poisson", "oob_score": True}),
    ("FedForestRegressor", {"n_estimators": 2, "gain_aggregation": "average"}),
)


def planned(numeric: Schema = NUMERIC, binary: Schema = BINARY) -> dict[str, tuple[Query, Schema]]:
    """The different questions that these plan for, named by kind, target and way."""
    found: dict[str, tuple[Query, Schema]] = {}
    known: set[tuple[str, bytes, str]] = set()
    for name, chosen in PLANNING:
        schema = binary if name.endswith("Classifier") else numeric
        target = "classes" if schema is BINARY else "numbers"
        ways = [value for value in chosen.values() if isinstance(value, str)]
        learner = plugins.load("learners", name)(**chosen)
        for policy in policies(learner):
            for line in learner.plan(schema, policy):
                asked = line.query.kind, line.query.fields, target
                if asked not in known:
                    found[" ".join([line.query.kind, target, *ways])] = (line.query, schema)
                known.add(asked)
    return found


def policies(learner: FederatedLearner) -> list[Policy]:
    """Whatever a learner proposes."""
    proposed = []
    for propose in (learner.published, partial(learner.private, 4)):
        with suppress(PolicyError):
            proposed.append(propose())
    return proposed


PLANNED = planned()


@pytest.mark.parametrize("name", sorted(PLANNED))
def test_queries_that_learners_plan(name: str) -> None:
    """All checks of the kit; of a local effect, that strangers' fields are refused."""
    query, schema = PLANNED[name]
    if not isinstance(query, LocalEffect):
        assert len(check_query(query, schema, examples=10)) == len(CHECKS)
        return
    for fields in hostile_fields(query):
        with suppress(QueryError, WireError):
            assert type(query).from_fields(fields).parts(schema) == {}


def test_no_installed_query_is_left_out() -> None:
    """A new kind joins the lists above, or the plan of a learner there."""
    listed = [query for query, _ in (*TABULAR.values(), *PLANNED.values())]
    known = {query.kind for query in (*listed, *COHORT.values())}
    assert known == set(plugins.available("queries"))


def scattered(schema: Schema, records: int) -> Records:
    """Records of many digits over all of a schema, whose sums and norms round."""
    rng = np.random.default_rng(0)
    columns = []
    for column in schema.columns:
        low, high = column.bounds
        values = rng.uniform(low, high, records)
        columns.append(values if column.kind == "number" else np.rint(values))
    table = np.column_stack(columns)
    return Records(schema, table[:, :-1], table[:, -1])


def added(query: Query, records: Records) -> dict[str, np.ndarray]:
    """What each record adds to every part that adds up, by the query itself."""
    view = View(records, records.schema, b"secret")
    return {name: np.asarray(part) for name, part in query.contribution(view).items()}


#: Columns enough for sums over them to depend on a table's layout: numpy adds eight at a time.
MANY = (*(Column(f"x{place}", lower=-1, upper=2) for place in range(21)), *FEATURES)
WIDE, WIDE_CLASSES = (Schema(MANY, schema.target) for schema in (NUMERIC, BINARY))
_ENDS = 4, WIDE.lower, WIDE.upper
_FAR = Coordinates(
    tuple(range(22)), np.linspace(-0.3, 0.3, 22), np.linspace(0.1, 3.0, 22), np.sqrt(0.2)
)
_MODEL = np.linspace(-1, 1, 23)
TEN = Schema(MANY, Column("y", "category", categories=tuple("abcdefghij")))


def weighted() -> dict[str, tuple[Query, Schema]]:
    """The planned queries that carry a model, with one that says something, of numbers and ten classes."""
    found: dict[str, tuple[Query, Schema]] = {}
    for learner, schema in ((FedForestRegressor(), WIDE), (FedForestClassifier(), TEN)):
        for line in learner.plan(schema, learner.private(4, schema=schema)):
            if isinstance(line.query, Gradient):
                drawn = np.random.default_rng(3).normal(size=line.query.weights.shape)
                name = f"weighted {line.query.kind} of {type(learner).__name__}"
                found[name] = replace(line.query, weights=drawn), schema
    return found


LINEAR = {
    **weighted(),
    **{name: found for name, found in TABULAR.items() if found[0].linear},
    **{
        f"wide {name}": found
        for name, found in planned(WIDE, WIDE_CLASSES).items()
        if found[0].linear and not isinstance(found[0], LocalEffect) and len(name.split()) < 3
    },
    "wide moments": (Moments(((),), *_ENDS, _FAR), WIDE),
    "wide residuals": (Residuals((((0, 1),), ((0, 2),)), *_ENDS, _FAR, _MODEL, 0.7), WIDE),
    "wide residuals by set": (ResidualsBySet(((),), *_ENDS, _FAR, _MODEL, 0.7, (0, 1)), WIDE),
    "wide leaves": (Leaves((((0, 1),), ((0, 2),)), *_ENDS, tuple(range(24))), WIDE),
    "wide level": (Level((((0, 1),), ((0, 2),)), *_ENDS, tuple(range(1, 24))), WIDE),
}


LINEAR = {
    name: (query, schema)
    for name, (query, schema) in LINEAR.items()
    if any(part.sensitivity is not None for part in query.parts(schema).values())
}


@pytest.mark.parametrize("name", sorted(LINEAR))
def test_a_record_adds_the_same_whoever_stands_beside_it(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Alone, in another order, twice and among all: to the bit, or one more record moves all others.

    A sum over a record's columns that the machine adds in another order where the table has another
    layout (``np.linalg.norm(axis=1)``, a matrix product) is caught here: truncation to the grid, which
    would hide all but the rare difference that crosses a unit, is left out.
    """
    query, schema = LINEAR[name]
    records, truncated = scattered(schema, 200), np.trunc
    whole = query.evaluate(View(records, schema, b"secret"))
    for part, terms in added(query, records).items():
        assert np.array_equal(np.asarray(whole[part]), terms.sum(axis=0)), part
    monkeypatch.setattr(np, "trunc", lambda values, out=None: np.asarray(values, float))
    among = added(query, records)
    order, twice = np.random.default_rng(1).permutation(200), np.repeat(np.arange(200), 2)
    for rows in (order, twice, np.arange(7), np.arange(0)):
        for part, terms in added(query, records.take(rows)).items():
            assert np.array_equal(terms, among[part][rows]), f"{part} of {len(rows)} records"
    # sums over records are whole numbers: for those of one record the grid is so fine that products fit 64 bits
    monkeypatch.setattr(np, "trunc", lambda values: truncated(np.asarray(values, float) * 2.0**16))
    among = added(query, records)
    for row in range(30):
        alone = query.evaluate(View(records.take(np.array([row])), schema, b"secret"))
        for part, terms in among.items():
            assert np.array_equal(np.asarray(alone[part]), terms[row]), f"{part}, record {row}"
