"""Groups of few and groups of one class are found in releases and in models, and told apart."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LinearRegression
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from privfed import Budget, Column, Guard, LocalDisclosure, Policy, Schema
from privfed.attacks.small_groups import Groups, SmallGroups, groups_of, model_groups, read_leaves
from privfed.errors import InputError
from privfed.exchange.messages import ReleasedPart
from privfed.exchange.transcript import Transcript
from privfed.questions.part import PartType
from privfed.testing.queries import Histogram

SCHEMA = Schema((Column("age", "number", 0, 100),))
AGES = pd.DataFrame({"age": [1.0, 2, 3, *range(20, 30), 95], "clinic": "A"})
TENS = Histogram(0, tuple(float(age) for age in range(0, 101, 10)))


def released(policy: Policy) -> Transcript:
    """Ages by tens: 3, 10 and 1 of them."""
    fed = LocalDisclosure.from_frame(
        AGES, None, client="clinic", schema=SCHEMA, policy=policy, seed=1
    )
    fed.ask(TENS)
    return fed.transcript()


OPEN = Policy({TENS.kind: (Guard.of("open"),)}, name="open")


def test_small_groups_are_counted() -> None:
    """Two of the three bins that hold anybody hold fewer than five; a threshold of two finds one."""
    for smallest, number in ((5, 2), (2, 1)):
        (found,) = SmallGroups(smallest=smallest).run(released(OPEN))
        assert (found.value, found.of, found.severity) == (number, 3, "some")
        assert not found.simulation


def test_a_group_of_as_many_as_are_enough_is_not_small() -> None:
    """Fewer than five is four; one class alone tells no class apart; and a client's own size is no group."""
    assert groups_of(np.array([4.0, 5, 6, 0])) == Groups(3, 1)
    assert groups_of(np.array([[4.0], [5], [0]])) == Groups(2, 1)
    (entry,) = released(OPEN)
    (name,) = entry.release.parts
    for axes, applies in (("client", False), ("all", False), ("bin", True)):
        parts = {name: replace(entry.release.parts[name], axes=(axes,))}
        sized = Transcript((replace(entry, release=replace(entry.release, parts=parts)),))
        assert SmallGroups().attackable(sized) == bool(SmallGroups().run(sized)) == applies


def test_noisy_counts_accuse_nobody() -> None:
    """They are not read, and the attack says that it does not apply."""
    guard = Guard.of("laplace", spend=1)
    noisy = released(Policy({TENS.kind: (guard,)}, budget=Budget.of(1), name="noisy"))
    assert not SmallGroups().attackable(noisy) and SmallGroups().run(noisy) == []


def test_classes_are_told_apart_from_sizes() -> None:
    """Ten of one class tell it though they are many; empty and withheld groups tell nothing."""
    counts = np.array([[10.0, 0], [1, 1], [8, 9], [0, 0], [np.nan, np.nan]])
    assert groups_of(counts) == Groups(3, 1, 3, 1)
    assert groups_of(counts.sum(axis=1)) == Groups(3, 1)
    assert groups_of(counts) + groups_of(np.array([2.0])) == Groups(4, 2, 3, 1)


def test_a_class_axis_is_found_wherever_it_stands() -> None:
    """The same counts, classes first."""
    (entry,) = released(OPEN)
    units = np.array([[10, 1, 0], [0, 1, 4]])
    part = ReleasedPart(PartType.COUNTS, ("class", "leaf"), units)
    told = Transcript((replace(entry, release=replace(entry.release, parts={"counts": part})),))
    small, alike = SmallGroups().run(told)
    assert (small.value, alike.value, alike.of) == (2, 2, 3)
    small, alike = SmallGroups().run(Transcript((*told.entries, entry)))
    assert (small.of, alike.of) == (6, 3), (
        "of groups whose classes nobody told, none is of one class"
    )


@pytest.mark.parametrize("classes", [True, False])
def test_leaves_of_a_model_are_those_of_its_training(classes: bool) -> None:
    """As many records in each leaf as end there, by class."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(80, 3)), rng.integers(0, 2, 80)
    kind = DecisionTreeClassifier if classes else DecisionTreeRegressor
    model = kind(min_samples_leaf=3, random_state=0).fit(x, y)
    leaves, place = np.unique(model.apply(x), return_inverse=True)
    expected = np.zeros((len(leaves), 2))
    np.add.at(expected, (place, y), 1)
    told = model_groups(model)
    assert np.allclose(told, expected if classes else expected.sum(axis=1))


def test_large_mixed_leaves_are_not_accused() -> None:
    """A forest of large leaves of noise passes; one of single records has both faults."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(200, 3)), rng.integers(0, 2, 200)
    small, alike = read_leaves(RandomForestClassifier(10, random_state=0).fit(x, y))
    assert small.value > 0 and alike.value > 0
    large = RandomForestClassifier(10, min_samples_leaf=30, random_state=0).fit(x, y)
    assert [found.severity for found in read_leaves(large)] == ["none", "none"]


def test_bad_input() -> None:
    """Empty transcripts, text, negative counts, models without trees, absurd thresholds."""
    assert SmallGroups().run(Transcript()) == [] and not SmallGroups().attackable(Transcript())
    (entry,) = released(OPEN)
    for units in (np.array(["few"] * 10), np.full(10, -3), np.full(10, np.inf)):
        part = replace(entry.release.parts["counts"], units=units)
        release = replace(entry.release, parts={"counts": part})
        assert SmallGroups().run(Transcript((replace(entry, release=release),))) == []
    with pytest.raises(InputError, match="trees and forests"):
        read_leaves(LinearRegression().fit([[0.0], [1.0]], [0.0, 1.0]))
    with pytest.raises(InputError, match="smallest"):
        SmallGroups(smallest=1)
    with pytest.raises(InputError, match="none negative"):
        groups_of(np.array([-1.0]))
