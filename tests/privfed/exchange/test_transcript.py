"""What is printed of a federation and of what left it: one line each, and no value of a record."""

from __future__ import annotations

from privfed.engines.local import LocalDisclosure
from privfed.exchange.disclosure import ReplayDisclosure
from privfed.exchange.transcript import WIDTH, Transcript
from privfed.learners import FuzzyTreeRegressor
from privfed.tables.schema import Column, Schema
from privfed.testing.hospitals import NUMERIC, gates, patients


def federation(clients: int = 3) -> LocalDisclosure:
    """Hospitals under a tree's published policy."""
    frame = patients(200)
    if clients != 3:
        frame["hospital"] = [f"the hospital of\nplace {place % clients}" for place in range(200)]
    return gates(frame, FuzzyTreeRegressor().published(), NUMERIC)


def test_a_federation_is_printed_in_one_line() -> None:
    """Its kind, its clients, and what it is about."""
    assert repr(federation()) == (
        "LocalDisclosure(3 clients: C, A, B; 4 features, target days)"
    )  # fmt: skip
    replay = ReplayDisclosure(Schema((Column("a", lower=0, upper=1),)), Transcript())
    assert repr(replay) == "ReplayDisclosure(0 clients; 1 feature, no target)"


def test_a_transcript_is_printed_in_one_line() -> None:
    """How many answers there are to which questions."""
    fed = federation()
    assert repr(fed.transcript()) == "Transcript(0 clients; nothing)"
    FuzzyTreeRegressor(max_depth=1).fit(fed)
    printed = repr(fed.transcript())
    assert printed.startswith("Transcript(3 clients: ")
    assert "18 fuzzy_tree.scaling, 3 fuzzy_tree.level" in printed
    entry = next(iter(fed.transcript()))
    assert repr(entry).endswith(" to fuzzy_tree.scaling: counts, target)")
    assert all(len(repr(one)) <= WIDTH for one in fed.transcript())


def test_many_clients_with_long_names_still_fit() -> None:
    """The first few, and dots; a name's line break is none."""
    fed = federation(20)
    FuzzyTreeRegressor(max_depth=1).fit(fed)
    for printed in (repr(fed), repr(fed.transcript())):
        assert len(printed) <= WIDTH and "\n" not in printed
        assert printed.endswith("...)") and "20 clients" in printed
