"""What a query of another package states of one record is tried on synthetic records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest

from privfed import Budget, Column, Guard, Policy, Schema
from privfed.attacks.finding import FAILED
from privfed.audits.sensitivities import LARGEST, QUESTIONS, audit_sensitivities
from privfed.extend import Bound, Part, PartType, Planned, Query, Sensitivity, View
from privfed.questions.query import CohortQuery
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
class Spread(Twice):
    """A planted fault: its L1 norm is right, and the squared L2 norm is that of two cells moved by one each."""

    kind: ClassVar[str] = "test.spread"

    def parts(self, schema: Schema) -> Mapping[str, Part]:
        """A record moves one cell by two."""
        moved = Sensitivity(Bound(2, 2), Bound(4, 16))
        return {"counts": Part(PartType.COUNTS, ("all",), (1,), moved)}


@dataclass(frozen=True)
class Stating(Twice):
    """States of another change than a record more or less what it is made to state."""

    replaced: int | None = None
    anything: int | None = None
    client: int | None = None
    kind: ClassVar[str] = "test.stating"

    def parts(self, schema: Schema) -> Mapping[str, Part]:
        """A count of the old, and its bounds."""
        also = [
            None if most is None else Bound(most, most**2)
            for most in (self.replaced, self.anything, self.client)
        ]
        return {
            "old": Part(PartType.COUNTS, ("all",), (1,), Sensitivity(Bound(1, 1), *also)),
        }

    def evaluate(self, view: View) -> Mapping[str, np.ndarray]:
        """Those above fifty."""
        return {"old": np.array([(view.table.x[:, 0] > 50).sum()])}


@dataclass(frozen=True)
class Sized(Twice):
    """So many cells, of which a record moves the first by a number of its own."""

    cells: int = 1
    moves: int = 1
    kind: ClassVar[str] = "test.sized"

    def parts(self, schema: Schema) -> Mapping[str, Part]:
        """By one, as it says."""
        return {"counts": Part(PartType.COUNTS, ("cell",), (self.cells,), Sensitivity.of(1))}

    def evaluate(self, view: View) -> Mapping[str, np.ndarray]:
        """All but the first are empty."""
        counts = np.zeros(self.cells, np.int64)
        counts[0] = self.moves * len(view.table.x)
        return {"counts": counts}


@dataclass(frozen=True)
class OfSome(CohortQuery):
    """Asks somebody."""

    kind: ClassVar[str] = "test.of_some"

    def parts(self, schema: Schema) -> Mapping[str, Part]:
        """One bit."""
        return {"bits": Part(PartType.BITS, ("individual",), (1,), Sensitivity.of(1))}

    def asked(self, people: int) -> np.ndarray:
        """The first."""
        return np.arange(1)

    def evaluate(self, view: View) -> Mapping[str, np.ndarray]:
        """No."""
        return {"bits": np.zeros(1, bool)}


@dataclass(frozen=True)
class Failing(Twice):
    """A planted fault: it fails where nobody is there."""

    kind: ClassVar[str] = "test.failing"

    def evaluate(self, view: View) -> Mapping[str, np.ndarray]:
        """The mean of nothing is none."""
        return {"counts": np.array([sum(view.table.x[:, 0]) // len(view.table.x[:, 0])])}


def audited(
    *queries: Query, mechanism: str = "laplace"
) -> list[tuple[str, dict[str, list[str]], str]]:
    """Severity, parts and what was not looked at, by finding."""
    query = queries[0]
    guard = Guard.of(mechanism, **({} if mechanism == "open" else {"spend": 1}))
    policy = Policy({query.kind: (guard,)}, budget=None if mechanism == "open" else Budget.of(1))
    found = audit_sensitivities([Planned(one, 1) for one in queries] * 2, SCHEMA, policy)
    assert all(one.releases == (query.kind,) and not one.simulation for one in found)
    return [(one.severity, {"parts": one.detail["parts"]}, one.partial) for one in found]


def test_an_honest_sensitivity_is_not_contradicted() -> None:
    """One finding for a kind, however often it is planned."""
    assert audited(Twice()) == [("none", {"parts": []}, "")]


@pytest.mark.parametrize(
    ("false", "part"),
    [(Halved(), "counts"), (Spread(), "counts"), (Quoting(), "seen")],
    ids=lambda each: str(each),
)
def test_a_false_sensitivity_is_disproved(false: Query, part: str) -> None:
    """Halved, in one of its norms, or none at all for what is a record's own value."""
    assert audited(false) == [("breach", {"parts": [part]}, "")]


def test_a_query_that_fails_is_disproved() -> None:
    """A gate would answer with noise around zeros instead, and close; the error is told, as the records are made up."""
    policy = Policy({Failing.kind: (Guard.of("laplace", spend=1),)}, budget=Budget.of(1))
    (found,) = audit_sensitivities([Planned(Failing(), 1)], SCHEMA, policy)
    assert (found.severity, found.value, found.of) == ("breach", 1, 1)
    (told,) = found.detail["errors"]
    assert FAILED not in found.detail  # the audit itself did not
    assert told.startswith("ZeroDivisionError: ") and "zero" in told


def test_what_rests_on_no_such_statement_is_not_tried() -> None:
    """Questions of ours are proven, and what is released openly has no guarantee to break."""
    assert audited(Histogram(0, (0.0, 50.0, 100.0))) == []
    assert audited(Halved(), mechanism="open") == []


@pytest.mark.parametrize(
    ("stated", "severity"),
    [
        (Stating(), "none"),
        (Stating(replaced=1, anything=1), "none"),
        (Stating(replaced=0), "breach"),
        (Stating(anything=0), "breach"),
        (Stating(client=20), "breach"),
        (Stating(client=31), "none"),
    ],
    ids=str,
)
def test_every_stated_bound_is_tried(stated: Query, severity: str) -> None:
    """Of a record replaced, of all that an individual holds, and of all of a client's records."""
    assert [severity for severity, *_ in audited(stated)] == [severity]


def test_every_question_of_a_kind_is_tried() -> None:
    """A false one hides behind no honest one that is planned before it."""
    honest = [Sized(cells) for cells in range(1, 20)]
    assert audited(*honest, Sized(20, 2)) == [("breach", {"parts": ["counts"]}, "")]
    assert audited(*honest) == [("none", {"parts": []}, "")]


def test_what_is_not_tried_is_said() -> None:
    """Answers of many cells, more questions than are tried, and what a cohort is asked."""
    assert audited(Sized(LARGEST + 1), Sized(2)) == [
        ("none", {"parts": []}, "answers of more than 1,048,576 cells were not tried")
    ]
    many = [Sized(cells) for cells in range(1, QUESTIONS + 2)]
    assert [partial for *_, partial in audited(*many)] == ["more than 64 questions are planned"]
    (cohort,) = audited(OfSome(), mechanism="randomized_response")
    assert cohort == (
        "none",
        {"parts": []},
        "no synthetic individuals of a cohort are drawn",
    )
