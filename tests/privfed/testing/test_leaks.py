"""The leak assertion: silent about sums and noise, loud about raw values, never vacuous."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest

from privfed import Guard, LocalDisclosure, Policy, Query
from privfed.part import Part, PartType
from privfed.query import View
from privfed.release import Transcript
from privfed.schema import Schema
from privfed.testing.hospitals import NUMERIC, patients
from privfed.testing.leaks import assert_nothing_verbatim
from privfed.testing.queries import Histogram, LevelSums

FRAME = patients(200)
ROOT, AGES = LevelSums(((),)), Histogram(0, (0.0, 25.0, 50.0, 75.0, 100.0))


@dataclass(frozen=True)
class Oldest(Query):
    """A planted fault: the greatest ages, as they are."""

    kind: ClassVar[str] = "test.oldest"

    def parts(self, schema: Schema) -> Mapping[str, Part]:
        """Five values without a finite sensitivity."""
        return {"ages": Part(PartType.VALUES, ("rank",), (5,))}

    def evaluate(self, view: View) -> Mapping[str, np.ndarray]:
        """Sort and take."""
        return {"ages": np.sort(view.table.x[:, 0])[-5:]}


def asked(query: Query, guard: Guard) -> LocalDisclosure:
    """The three hospitals, after one question."""
    federation = LocalDisclosure.from_frame(
        FRAME,
        target="days",
        client="hospital",
        schema=NUMERIC,
        policy=Policy({query.kind: (guard,)}),
        seed=3,
        queries=[Oldest],
    )
    federation.ask(query)
    return federation


@pytest.mark.parametrize("query", [ROOT, AGES])
@pytest.mark.parametrize("guard", [Guard.of("open"), Guard.of("laplace", spend=1)])
def test_counts_and_sums_pass(query: Query, guard: Guard) -> None:
    """What is computed from many records is no raw value, with noise or without."""
    assert_nothing_verbatim(asked(query, guard).transcript(), FRAME, NUMERIC, "hospital")


def test_raw_values_are_caught_and_not_repeated() -> None:
    """The message says which kind leaked how much, and holds no age itself."""
    transcript = asked(Oldest(), Guard.of("open")).transcript()
    with pytest.raises(AssertionError, match=r"test\.oldest: 15 of \d+ cells") as caught:
        assert_nothing_verbatim(transcript, FRAME, NUMERIC, "hospital")
    assert f"{FRAME['age'].max():.3f}"[:5] not in str(caught.value)


def test_owners_are_named_as_the_gates_name_them() -> None:
    """Numbers and padded names stand for clients as text, as in a federation."""
    padded = FRAME.assign(hospital=" " + FRAME["hospital"] + " ")
    transcript = asked(Oldest(), Guard.of("open")).transcript()
    with pytest.raises(AssertionError, match=r"test\.oldest"):
        assert_nothing_verbatim(transcript, padded, NUMERIC, "hospital")


def strangers() -> Any:
    """The same records under the names of other owners."""
    return FRAME.assign(hospital="nobody")


@pytest.mark.parametrize(
    ("transcript", "frame", "message"),
    [
        (Transcript(), FRAME, "nothing was released"),
        (asked(ROOT, Guard.of("open")).transcript(), strangers(), "no release of these clients"),
    ],
)
def test_it_never_passes_vacuously(transcript: Transcript, frame: Any, message: str) -> None:
    """Nothing released, or another table's owners, is a failure and no proof."""
    with pytest.raises(AssertionError, match=message):
        assert_nothing_verbatim(transcript, frame, NUMERIC, "hospital")
