"""Membership at federated RuleFit: what a record adds is what the query says, and no attack beats epsilon."""

from __future__ import annotations

from fractions import Fraction
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privfed import LocalDisclosure
from privfed.accountants.risk import Tradeoff
from privfed.attacks.finding import Finding
from privfed.attacks.membership import Membership
from privfed.learners import RuleFitClassifier
from privfed.learners.rulefit.cutoffs import Cutoffs
from privfed.learners.rulefit.queries import CovariateHistogram, Supports
from privfed.learners.rulefit.rules import Terms
from privfed.privacy.conversion import largest_rho
from privfed.questions.query import Query, View
from privfed.tables.records import Records
from privfed.tables.schema import Column, Schema
from privfed.tables.sources import load

FEATURES = (
    Column("age", "number", 0, 1),
    Column("visits", "integer", -1, 30),
    Column("site", "category", categories=("a", "b", "c")),
)
SCHEMA = Schema(FEATURES, Column("y", "number", -3, 5))
CUTS = ((0.25, 0.5, 0.75), (2.0, 5.0, 20.0), (1.0, 2.0))
RECORDS = 8


def records(rng: np.random.Generator) -> Records:
    """Records over the whole schema, many of them on bounds, edges and cut-offs."""
    x = np.column_stack(
        [
            rng.uniform(-0.2, 1.2, RECORDS),
            rng.integers(-1, 31, RECORDS),
            rng.integers(0, 3, RECORDS),
        ]
    )
    x[:, 0] = np.where(rng.random(RECORDS) < 0.5, np.round(4 * x[:, 0]) / 4, x[:, 0])
    return Records(SCHEMA, x, rng.uniform(-3, 5, RECORDS))


def terms(rng: np.random.Generator) -> Terms:
    """Random rules, and linear terms of some covariates."""
    sizes = [len(cuts) + 1 for cuts in CUTS]
    ends = [[sorted(rng.choice(size + 1, 2, replace=False)) for size in sizes] for _ in range(5)]
    cutoffs = Cutoffs(CUTS, np.array([0.1, 0, 0]), np.array([0.9, 25, 2]), np.array([0.3, 8, 1]))
    return Terms(cutoffs, np.array(ends, np.uint8), ((), (1,), (0, 1, 2))[rng.integers(3)])


def question(kind: str, rng: np.random.Generator) -> Query:
    """A random question of a kind."""
    if kind == CovariateHistogram.kind:
        asked = tuple(int(f) for f in rng.permutation(3)[: rng.integers(1, 4)])
        return CovariateHistogram(asked, int(rng.integers(2, 40)))
    return Supports(terms(rng))


@settings(max_examples=200)
@given(
    seed=st.integers(0, 2**32),
    kind=st.sampled_from([CovariateHistogram.kind, Supports.kind]),
)
def test_a_contribution_is_what_adding_the_record_changes(seed: int, kind: str) -> None:
    """To the last unit, and it is what the query gives of that record alone."""
    rng = np.random.default_rng(seed)
    query, held = question(kind, rng), records(rng)
    view = View(held, SCHEMA)
    parts, alone, exact = (
        query.contribution(view),
        Query.contribution(query, view),
        query.evaluate(view),
    )
    assert parts.keys() == alone.keys() == exact.keys()
    for record in range(RECORDS):
        others = held.take(np.delete(np.arange(RECORDS), record))
        fewer = query.evaluate(View(others, SCHEMA))
        for name, moved in parts.items():
            assert np.array_equal(moved[record], alone[name][record])
            assert np.array_equal(exact[name] - fewer[name], moved[record])


@cache
def attacked(policy: str, epsilon: str) -> tuple[Finding, ...]:
    """What membership finds at five clinics that share the breast cancer data."""
    data = load("breast_cancer")
    order = np.random.default_rng(0).permutation(len(data.frame)) % 5
    owned = data.frame.assign(owner=[f"clinic {number}" for number in order])
    model = RuleFitClassifier(n_estimators=5, n_rounds=5, max_terms=None, random_state=0)
    adopted = model.published(epsilon) if policy == "published" else model.private(epsilon)
    federation = LocalDisclosure.from_frame(
        owned, data.target, client="owner", schema=data.schema, policy=adopted, seed=0
    )
    model.fit(federation)
    truth = {
        str(name): Records.from_frame(part.drop(columns="owner"), federation.schema)
        for name, part in owned.groupby("owner")
    }
    return tuple(Membership().run(federation.transcript(), truth, federation.schema))


@pytest.mark.parametrize("epsilon", ["1", "8"])
def test_private_stays_below_what_epsilon_allows(epsilon: str) -> None:
    """All kinds are read, and the whole interval's lower end lies below the bound."""
    (found,) = attacked("private", epsilon)
    scores = ("scores",) if epsilon == "8" else ()  # asked about once enough can be told
    assert found.releases == tuple(
        f"private.{kind}" for kind in ("correlations", "gradient", "histogram", *scores, "target")
    )
    bound = Tradeoff.zcdp(float(largest_rho(Fraction(epsilon), Fraction(1, 10**5)))).area
    assert found.low is not None and 0.2 < found.low < bound < 0.95
    assert found.value < bound + 0.05


def test_little_noise_gives_members_away() -> None:
    """The power twin: at epsilon 200 the same attack knows nearly everybody."""
    (found,) = attacked("private", "200")
    assert found.value > 0.99 and found.severity == "some"


def test_published_hides_nobody() -> None:
    """Epsilon 1 for each of thirty covariates is 30 in all; supports and spreads leave as they are."""
    noisy, exact = attacked("published", "1")
    assert noisy.releases == ("rulefit.histogram",) and noisy.value > 0.99
    assert (
        exact.releases == ("rulefit.supports",) and exact.value == 1.0
    )  # and the rest was not needed
