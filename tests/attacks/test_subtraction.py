"""Withheld sums come back by each identity, and stay away where nothing determines them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from privfed.attacks import identities
from privfed.attacks.fuzzy import Cell
from privfed.attacks.identities import Equation, SumIdentities
from privfed.attacks.subtraction import Subtraction, _shuffled, derive_sums, known_sums
from privfed.exchange.transcript import Transcript
from privfed.learners.fuzzy_tree.queries import Leaves, Level
from privfed.tables.records import Records
from tests.attacks.test_membership import SCHEMA, released, table


def cell(*steps: tuple[int, int]) -> Cell:
    """A cell by its (feature, set) steps."""
    return frozenset(steps)


ROOT = cell()


def system(known: dict[Cell, float], sets: int = 3, signed: bool = False) -> SumIdentities:
    """A system without moments."""
    return SumIdentities(sets, signed, dict(known))


def test_parent_minus_siblings() -> None:
    """One unknown of three: the total minus the other two."""
    found = system({ROOT: 10.0, cell((0, 0)): 3.0, cell((0, 1)): 5.0}).solve({cell((0, 2))}, set())
    assert found == {cell((0, 2)): 2.0}


def test_any_feature_gives_the_total() -> None:
    """A withheld node total is the sum over any feature's sets."""
    known = {cell((1, 1), (0, j)): float(j + 1) for j in range(3)}
    assert system(known).solve({cell((1, 1))}, set()) == {cell((1, 1)): 6.0}


def test_order_of_steps_does_not_matter() -> None:
    """A cell of one branch is what the split node's own cell leaves of the other branches."""
    known = {cell((1, 2)): 9.0, cell((0, 0), (1, 2)): 4.0, cell((0, 1), (1, 2)): 3.0}
    assert system(known).solve({cell((0, 2), (1, 2))}, set()) == {cell((0, 2), (1, 2)): 2.0}


def test_two_unknowns_stay_unknown() -> None:
    """One equation for two cells determines neither (the power twin of the tests above)."""
    known = {ROOT: 10.0, cell((0, 0)): 3.0}
    assert system(known).solve({cell((0, 1)), cell((0, 2))}, set()) == {}


def test_nothing_left_means_zero() -> None:
    """Sums that cannot be negative and add up to zero are zero; signed ones need not be."""
    known, hidden = {ROOT: 3.0, cell((0, 0)): 3.0}, {cell((0, 1)), cell((0, 2))}
    zero: set[Cell] = set()
    assert system(known).solve(hidden, zero) == dict.fromkeys(hidden, 0.0)
    assert zero == hidden
    assert system(known, signed=True).solve(hidden, set()) == {}


def test_cells_never_asked_about_count_where_they_are_zero() -> None:
    """An empty branch is never opened; its cells still add nothing."""
    known = {cell((1, 2)): 9.0, cell((0, 0), (1, 2)): 4.0}
    hidden = {cell((0, 1), (1, 2))}
    assert system(known).solve(hidden, set()) == {}
    assert system(known).solve(hidden, {cell((0, 2))}) == {cell((0, 1), (1, 2)): 5.0}


def test_a_leafs_mean_gives_two_cells() -> None:
    """Total and first moment determine two cells together: elimination, not substitution."""
    hidden = {cell((0, 0)), cell((0, 2))}
    tied = system({ROOT: 6.0, cell((0, 1)): 1.0})
    tied.moments.append(Equation(tuple(cell((0, j)) for j in range(3)), (-0.5, 0.0, 0.5), 1.5))
    assert tied.solve(hidden, set()) == pytest.approx({cell((0, 0)): 1.0, cell((0, 2)): 4.0})


def test_margins_of_a_table_do_not_give_its_inside() -> None:
    """Two by two unknowns under known margins stay unknown; three of four known give the fourth."""
    inside = [cell((0, i), (1, j)) for i in range(2) for j in range(2)]
    margins = {cell((0, i)): 5.0 for i in range(2)} | {cell((1, j)): 5.0 for j in range(2)}
    assert system({ROOT: 10.0, **margins}, sets=2).solve(inside, set()) == {}
    known = {ROOT: 10.0, **margins, inside[0]: 1.0}
    found = system(known, sets=2).solve(inside[1:], set())
    assert found == pytest.approx({inside[1]: 4.0, inside[2]: 4.0, inside[3]: 1.0})


def test_published_diabetes(findings) -> None:  # type: ignore[no-untyped-def]
    """On the real transcript most withheld cells come back, and many patients' targets."""
    sums, targets = findings("published", "subtraction")
    assert sums.value > 0.4 * (sums.of or 0) > 400
    assert sums.detail["wrong"] <= 0.01 * sums.value
    assert sums.baseline is not None and sums.baseline < 0.01 * sums.value
    assert targets.value > 100
    assert targets.severity == sums.severity == "breach"


def test_strict_diabetes(findings) -> None:  # type: ignore[no-untyped-def]
    """Strictly nothing comes back."""
    sums, targets = findings("strict", "subtraction")
    assert sums.value == targets.value == 0
    assert (sums.of or 0) > 100
    assert sums.severity == "none"


def test_private_has_nothing_to_subtract(diabetes) -> None:  # type: ignore[no-untyped-def]
    """Noisy sums are not read as exact ones."""
    trained = diabetes("private")
    assert not Subtraction().attackable(trained.transcript)
    assert Subtraction().run(trained.transcript, trained.truth, trained.schema) == []
    client = trained.transcript.clients[0]
    assert known_sums(trained.transcript.of(client=client)) is None


def test_without_truth(diabetes) -> None:  # type: ignore[no-untyped-def]
    """Claims are counted, and the finding says that no truth was used."""
    trained = diabetes("published")
    one = trained.transcript.of(client=trained.transcript.clients[0])
    (found,) = Subtraction().run(one)
    assert found.value > 200 and not found.simulation
    assert Subtraction().run(Transcript()) == []


def test_a_system_that_is_too_large_is_told(monkeypatch: pytest.MonkeyPatch, diabetes) -> None:  # type: ignore[no-untyped-def]
    """What is left to substitution alone was not looked at in full: the strict policy's sums, here."""
    trained = diabetes("strict")
    one = trained.transcript.of(client=trained.transcript.clients[0])
    (found,) = Subtraction().run(one)
    assert found.state == "looked"
    monkeypatch.setattr(identities, "LARGEST", 10)
    (short,) = Subtraction().run(one)
    assert short.state == "not looked" and "sums left in systems of more than" in short.partial


def test_a_single_levels_cells_nulled_alone_all_come_back(diabetes) -> None:  # type: ignore[no-untyped-def]
    """Where one set of a feature is withheld alone, parent minus siblings always gives it back."""
    trained = diabetes("published")
    for client in trained.transcript.clients[:2]:
        worked = derive_sums(trained.transcript.of(client=client))
        assert worked is not None
        nulled = alone = 0
        for entry in trained.transcript.of("fuzzy_tree.level", client):
            silent = np.ma.getmaskarray(entry.release["weights"])
            lonely = silent & (silent.sum(axis=2, keepdims=True) == 1)
            for n, column, j in np.argwhere(lonely):
                path = [tuple(step) for step in entry.query["nodes"][n]]
                feature = entry.query["features"][column]
                if all(feature != used for used, _ in path):
                    nulled += 1
                    alone += frozenset([*path, (feature, int(j))]) in worked.derived["weights"]
        assert alone == nulled > 20


def withheld(own: dict[str, Records], column: int, places: list[int]) -> Transcript:
    """The root's level of one client, without the cells of some sets of one feature."""
    query = Level(((),), 5, np.array([1.0, -0.5]), np.array([7.0, 0.9]), (0, 1))
    (entry,) = released(query, own, "open", None)
    parts = dict(entry.release.parts)
    for name in ("weights", "linear", "squares"):
        mask = np.zeros(parts[name].units.shape, bool)
        mask[0, column, places] = True
        parts[name] = replace(parts[name], mask=mask, units=np.where(mask, 0, parts[name].units))
    return Transcript((replace(entry, release=replace(entry.release, parts=parts)),))


def test_targets_that_cancel_are_not_taken_for_none() -> None:
    """Two withheld cells whose sums of y w add up to zero: what cannot be negative would be zero in both."""
    x = np.array([[1.0, 0.0], [2.5, 0.1], [7.0, 0.3], [7.0, 0.9]])  # at the sets' peaks
    own = {"one": Records(SCHEMA, x, np.array([8.0, 2.0, 5.0, 5.0]))}
    worked = derive_sums(withheld(own, 0, [0, 1]))
    assert worked is not None and worked.sums.hidden == {cell((0, 0)), cell((0, 1))}
    assert all(not found for found in worked.derived.values())


@pytest.mark.parametrize(("column", "place"), [(0, 0), (0, 4), (1, 2), (1, 3)])
def test_a_single_withheld_cell_that_comes_back_is_found(column: int, place: int) -> None:
    """There is no other result to hold it to, and none is needed: a parent less its siblings is a proof."""
    own = {"one": table(6, 1)}
    sums, targets = Subtraction().run(withheld(own, column, [place]), own, SCHEMA)
    assert (sums.value, sums.of, sums.baseline, sums.severity) == (1, 1, 0, "breach")
    alone = column == 1  # of its two cells, each holds one record, whose target comes along
    assert (targets.value, targets.of) == (alone, alone)
    assert targets.severity == ("breach" if alone else "none")


@pytest.mark.parametrize("hidden", [False, True])
def test_withheld_equations_of_a_leaf_say_nothing(hidden: bool) -> None:
    """Zeros stand where entries were withheld; a leaf's sums are read where all of a row was told."""
    query = Leaves((((0, 1),),), 5, np.array([1.0, -0.5]), np.array([7.0, 0.9]), (0, 1))
    (entry,) = released(query, {"one": table(6, 1)}, "open", None)
    parts = {
        name: replace(
            part,
            mask=np.full(part.units.shape, hidden),
            units=np.where(hidden, 0, part.units),
        )
        for name, part in entry.release.parts.items()
    }
    told = replace(entry, release=replace(entry.release, parts=parts))
    heard = known_sums(Transcript((told,)))
    assert heard is not None
    assert (cell((0, 1)) in heard.known["weights"]) is not hidden
    assert bool(heard.moments["linear"]) is not hidden


def test_results_are_right_elsewhere_by_chance() -> None:
    """By hand: two of three results agree, so that each of these is right in one of two other places."""
    told = np.array([1.0, 1.0, 2.0])
    assert _shuffled(told, told, 1e-6) == 1.0
    assert _shuffled(told[:1], told[:1], 1e-6) == _shuffled(told[:0], told[:0], 1e-6) == 0.0
    assert _shuffled(told, np.array([2.0, 2.0, 2.0]), 1e-6) == 1.0
