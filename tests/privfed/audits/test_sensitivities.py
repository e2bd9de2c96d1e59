"""What a query of another package states of one record is tried on made-up records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest

from privfed import Budget, Column, Guard, Policy, Schema
from privfed.audits.sensitivities import audit_sensitivities
from privfed.extend import Part, PartType, Planned, Query, Sensitivity, View
from privfed.testing.queries import Histogram

SCHEMA = Schema((Column("age", lower=0, upper=100),))


@dataclass(frozen=True)
class Twice(Query):
    """An honest one: each record is counted twice."""

    kind: ClassVar[str] = "test.twice"

    def parts(self, schema: Schema) -> Mapping[str, Part]:
        """One cell that a record moves by two."""
        return {"counts": Part(PartType.COUNTS, ("all",), (1,), Sensitivity.of(2))}

    def evaluate(self, view: View) -> Mapping[str, np.ndarray]:
        """Twice their number."""
        return {"counts": np.array([2 * len(view.table.x)])}


@dataclass(frozen=True)
class Halved(Twice):
    """A planted fault: states half of it."""

    kind: ClassVar[str] = "test.halved"

    def parts(self, schema: Schema) -> Mapping[str, Part]:
        """One cell that a record moves by one, as it says."""
        return {"counts": Part(PartType.COUNTS, ("all",), (1,), Sensitivity.of(1))}


@dataclass(frozen=True)
class Quoting(Twice):
    """A planted fault: its second part is a record's value, which it says that none moves."""

    kind: ClassVar[str] = "test.quoting"

    def parts(self, schema: Schema) -> Mapping[str, Part]:
        """The value is declared to cost nothing."""
        own = Part(PartType.COUNTS, ("one",), (1,), Sensitivity.of(0))
        return {**super().parts(schema), "seen": own}

    def evaluate(self, view: View) -> Mapping[str, np.ndarray]:
        """The first record's age."""
        return {**super().evaluate(view), "seen": view.table.x[:1, 0].sum(keepdims=True)}


@dataclass(frozen=True)
class Failing(Twice):
    """A planted fault: it fails where nobody is there."""

    kind: ClassVar[str] = "test.failing"

    def evaluate(self, view: View) -> Mapping[str, np.ndarray]:
        """The mean of nothing is none."""
        return {"counts": np.array([sum(view.table.x[:, 0]) // len(view.table.x[:, 0])])}


def audited(
    query: Query, mechanism: str = "laplace"
) -> list[tuple[str, dict[str, list[str]], str]]:
    """Severity, parts and what was not looked at, by finding."""
    guard = Guard.of(mechanism, **({} if mechanism == "open" else {"spend": 1}))
    policy = Policy({query.kind: (guard,)}, budget=None if mechanism == "open" else Budget.of(1))
    found = audit_sensitivities([Planned(query, 1)] * 2, SCHEMA, policy)
    assert all(one.releases == (query.kind,) for one in found)
    return [(one.severity, dict(one.detail), one.partial) for one in found]


def test_an_honest_sensitivity_is_not_contradicted() -> None:
    """One finding for a kind, however often it is planned."""
    assert audited(Twice()) == [("none", {"parts": []}, "")]


@pytest.mark.parametrize(
    ("false", "part"), [(Halved(), "counts"), (Quoting(), "seen")], ids=lambda each: str(each)
)
def test_a_false_sensitivity_is_disproved(false: Query, part: str) -> None:
    """Halved, or none at all for what is a record's own value."""
    assert audited(false) == [("breach", {"parts": [part]}, "")]


def test_a_query_that_fails_ends_no_study() -> None:
    """It is told that not all was looked at."""
    assert [partial for *_, partial in audited(Failing())] == [
        "it failed with ZeroDivisionError on made-up records"
    ]


def test_what_rests_on_no_such_statement_is_not_tried() -> None:
    """Questions of ours are proven, and what is released openly has no guarantee to break."""
    assert audited(Histogram(0, (0.0, 50.0, 100.0))) == []
    assert audited(Halved(), "open") == []
