"""A small public schema, fifty records and a gate over them, for the core's own tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from privfed import Budget, Column, Gate, Guard, Ledger, Policy, Records, Schema
from privfed.noise import TestNoise
from privfed.testing.gates import Watched

MakeGate = Callable[..., Gate]


@pytest.fixture(scope="session")
def schema() -> Schema:
    """Two features and a target, all in [0, 1]."""
    features = (Column("a", lower=0, upper=1), Column("b", lower=0, upper=1))
    return Schema(features, Column("y", lower=0, upper=1))


@pytest.fixture(scope="session")
def records(schema: Schema) -> Records:
    """Fifty records, two of each person."""
    rng = np.random.default_rng(20)
    people = np.repeat(np.arange(25), 2)
    return Records(schema, rng.uniform(0, 1, (50, 2)), rng.uniform(0, 1, 50), people)


@pytest.fixture
def make_gate(records: Records) -> MakeGate:
    """Build a gate over the records from guards by kind; everything else has a default."""

    def build(
        guards: dict[str, tuple[Guard, ...]] | None = None,
        budget: str | None = None,
        held: Any = records,
        queries: tuple[Any, ...] = (),
        ledger: Ledger | None = None,
        noise: Any = None,
        **policy: Any,
    ) -> Gate:
        if guards is None:
            guards = {"small.histogram": (Guard.of("laplace", spend="0.1"),)}
        ceiling = None if budget is None else Budget.of(budget)
        return Gate(
            "clinic",
            held,
            Policy(guards, budget=ceiling, **policy),
            ledger or Ledger(None),
            queries=queries,
            noise=noise or TestNoise(7),
            secret=b"secret",
        )

    return build


@pytest.fixture
def watched(make_gate: MakeGate, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Gate]:
    """A gate for the watched query; its behaviour is set by keyword."""
    monkeypatch.setattr(Watched, "evaluated", [])

    def build(behave: Any = None, declare: Any = None, **options: Any) -> Gate:
        if behave is not None:
            monkeypatch.setattr(Watched, "behave", behave)
        if declare is not None:
            monkeypatch.setattr(Watched, "declare", declare)
        guards = {Watched.kind: (Guard.of("laplace", spend="0.1"),)}
        return make_gate(**{"guards": guards, "queries": (Watched,)} | options)

    return build
