"""Every installed attack keeps the contract of its base class."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pytest

from privfed.engines.cohort import CohortDisclosure
from privfed.engines.local import LocalDisclosure
from privfed.errors import InputError
from privfed.exchange.messages import ReleasedPart
from privfed.exchange.transcript import Transcript
from privfed.learners import FedForestClassifier, FuzzyTreeRegressor, RuleSearch
from privfed.learners.baselines import CentralTreeClassifier
from privfed.learners.rule_search.generator import Profile, generate
from privfed.privacy.policy import Policy
from privfed.questions import plugins
from privfed.tables.records import Records
from privfed.tables.schema import Column, Schema
from privfed.testing.check_attack import CHECKS, check_attack

FEATURES = tuple(Column(name, "number", 0, 100) for name in "abcd")
SCHEMA = Schema(FEATURES, Column("y", "integer", 0, 1))
NUMERIC = Schema(FEATURES, Column("y", "number", 0, 1))
#: A transcript, what is scored by, and the public data dictionary.
Told = tuple[Transcript, Any, Schema | None]


def shared(learner: Any, policy: Policy, schema: Schema = SCHEMA) -> Told:
    """What a learner's policy released of two clients' made-up records."""
    rng = np.random.default_rng(5)
    frame = pd.DataFrame(rng.uniform(0, 100, (150, 4)), columns=list("abcd"))
    frame["y"] = (frame["a"] + rng.normal(0, 20, 150) > 50).astype(int)
    frame["client"] = ["A", "B"] * 75
    federation = LocalDisclosure.from_frame(
        frame, "y", client="client", schema=schema, policy=policy, seed=0
    )
    learner.fit(federation)
    truth = {str(name): Records.from_frame(own, schema) for name, own in frame.groupby("client")}
    return federation.transcript(), truth, schema


@cache
def tree() -> Told:
    """A published fuzzy tree."""
    learner = FuzzyTreeRegressor(n_fuzzy_sets=3, max_depth=2)
    return shared(learner, learner.published(), NUMERIC)


@cache
def forest() -> Told:
    """A published forest."""
    learner = FedForestClassifier(n_estimators=25, random_state=0)
    return shared(learner, learner.published())


@cache
def pooled() -> Told:
    """All records as they are, for a tree over everybody's."""
    learner = CentralTreeClassifier()
    return shared(learner, learner.published())


@cache
def cohort() -> Told:
    """The noisy bits of individuals who hold rules."""
    books = generate(Profile(120, 7_200, 2_000, 12, 2.0, 3, top=0.5, stems=30), 5)
    search = RuleSearch("levels", epsilon="8", min_support=0.05, max_operators=3, questions=10)
    told = CohortDisclosure.of(books, search.private("8"), seed=1)
    search.fit(told)
    return told.transcript(), {"cohort": books}, None


#: What an attack needs where counts and sums are not enough.
TOLD = {
    "recovery": tree,
    "subtraction": tree,
    "sketches": forest,
    "pieced_records": forest,
    "linkage": cohort,
    "leave_one_out": pooled,
}
#: Checks that do not apply, and why.
SKIPPED = {"linkage": {"no_raw_values": "rules are no numbers"}}


@pytest.mark.parametrize("name", sorted(plugins.available("attacks")))
def test_ours_conform(name: str) -> None:
    """Every installed attack passes the kit, on a transcript that it applies to."""
    attack, skip = plugins.load("attacks", name)(), SKIPPED.get(name, {})
    assert attack.name == name
    if name not in TOLD:
        ran = check_attack(attack)
    else:
        transcript, truth, schema = TOLD[name]()
        ran = check_attack(attack, transcript, truth=truth, schema=schema, skip=skip)
    assert len(ran) == len(CHECKS) - len(skip)


def reshaped(part: ReleasedPart, units: np.ndarray) -> ReleasedPart:
    """A part whose numbers stand otherwise."""
    return replace(part, units=units, mask=None)


ODD = {
    "flat": lambda part: reshaped(part, part.units.ravel()[1:]),
    "one number": lambda part: reshaped(part, np.array(3)),
    "an axis more": lambda part: reshaped(part, part.units[None]),
    "nothing": lambda part: reshaped(part, part.units.ravel()[:0]),
}


@pytest.mark.parametrize("odd", list(ODD))
@pytest.mark.parametrize("name", ["recovery", "subtraction", "pieced_records"])
def test_odd_shapes_without_a_schema_are_one_clear_error(name: str, odd: str) -> None:
    """Nobody can tell which answers to leave out; with the schema they are left out."""
    transcript, truth, schema = TOLD[name]()
    heard = Transcript(
        tuple(
            replace(
                e,
                release=replace(
                    e.release, parts={n: ODD[odd](p) for n, p in e.release.parts.items()}
                ),
            )
            for e in transcript
        )
    )
    attack = plugins.load("attacks", name)()
    attack.run(heard, truth, schema)
    try:
        attack.run(heard)
    except InputError as error:
        assert name in str(error) and "without a schema" in str(error)
        assert "Schema.from_toml" in str(error)
    else:
        assert odd == "nothing" and name == "pieced_records"
