"""Real transcripts of small federations, and the raw tables that score the attacks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_diabetes

from privfed.attacks.finding import Finding
from privfed.engines.local import LocalDisclosure
from privfed.exchange.transcript import Transcript
from privfed.learners.fuzzy_tree import FuzzyTreeRegressor
from privfed.privacy.policy import Policy
from privfed.questions import plugins
from privfed.tables.records import Records
from privfed.tables.schema import Schema


@dataclass(frozen=True)
class Trained:
    """What a training released, and about what."""

    transcript: Transcript
    truth: Mapping[str, Records]
    schema: Schema


def train(
    frame: pd.DataFrame, target: str, schema: Schema, policy: str, clients: int = 5
) -> Trained:
    """Train a fuzzy tree over clients of equal size."""
    order = np.random.default_rng(0).permutation(len(frame))
    owners = np.array([f"clinic {i % clients}" for i in order])
    table = frame.assign(owner=owners)
    learner = FuzzyTreeRegressor(max_depth=2 if policy == "private" else None)
    policies: dict[str, Callable[[], Policy]] = {
        "published": learner.published,
        "strict": lambda: learner.published(strict=True),
        "private": lambda: learner.private(8),
    }
    if policy == "private":
        schema = replace(schema, inferred=False)  # as if it had been public
    federation = LocalDisclosure.from_frame(
        table, target, client="owner", schema=schema, policy=policies[policy](), seed=1
    )
    learner.fit(federation)
    truth = {
        str(name): Records.from_frame(part.drop(columns="owner"), schema)
        for name, part in table.groupby("owner")
    }
    return Trained(federation.transcript(), truth, schema)


@cache
def _diabetes(policy: str) -> Trained:
    frame = load_diabetes(as_frame=True, scaled=False).frame
    return train(frame, "target", Schema.infer(frame, "target"), policy)


@pytest.fixture(scope="session")
def diabetes() -> Callable[[str], Trained]:
    """The transcript of five clinics sharing scikit-learn's diabetes data, under a policy."""
    return _diabetes


@cache
def _findings(policy: str, attack: str) -> list[Finding]:
    trained = _diabetes(policy)
    found: list[Finding] = plugins.load("attacks", attack)().run(
        trained.transcript, trained.truth, trained.schema
    )
    return found


@pytest.fixture(scope="session")
def findings() -> Callable[[str, str], list[Finding]]:
    """What an attack finds in the diabetes transcript of a policy, worked out once."""
    return _findings


@pytest.fixture(scope="session")
def trained() -> Callable[..., Trained]:
    """Train on any table."""
    return train
