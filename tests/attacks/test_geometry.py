"""The public geometry of fuzzy trees is the learner's own, with as many sets as each feature has."""

from __future__ import annotations

import numpy as np
import pandas as pd

from privfed import Column, LocalDisclosure, Schema
from privfed.attacks.fuzzy import Geometry
from privfed.attacks.subtraction import Subtraction
from privfed.learners.fuzzy_tree import FuzzyTreeRegressor
from privfed.learners.fuzzy_tree.fuzzy import Memberships
from privfed.tables.records import Records

SCHEMA = Schema(tuple(Column(name, "number", 0, 1) for name in "abc"), Column("y", "number", -1, 1))


def test_memberships_are_the_learners() -> None:
    """Sum to one, and equal the degrees by which the tree grows, for even and uneven sets."""
    unit = np.random.default_rng(0).uniform(0, 1, (50, 3))
    for partition in ((), (2, 5, 3)):
        geometry = Geometry(5, np.zeros(3), np.ones(3), partition)
        degrees = geometry.degrees(geometry.unit(unit))
        own = Memberships.from_unit(unit, partition or 5)
        assert np.allclose(degrees.sum(axis=2), 1)
        for feature in range(3):
            for fuzzy_set in range(5):
                expected = own.degree(np.arange(50), feature, fuzzy_set)
                assert np.allclose(degrees[:, feature, fuzzy_set], expected)
    assert geometry.only([2, 0]).n_sets.tolist() == [3, 2]


def test_memberships_in_sets_with_peaks_anywhere_are_the_learners() -> None:
    """As many sets as each feature has peaks, for all features and for some."""
    unit, peaks = np.random.default_rng(0).uniform(0, 1, (50, 2)), ((0.1, 0.2), (0.0, 0.7, 1.0))
    geometry = Geometry(3, np.zeros(2), np.ones(2), (2, 3), peaks)
    own = Memberships.from_peaks(unit, peaks)
    for feature in range(2):
        for fuzzy_set in range(3):
            expected = own.degree(np.arange(50), feature, fuzzy_set)
            assert np.allclose(geometry.degrees(unit)[:, feature, fuzzy_set], expected)
    assert np.array_equal(
        geometry.only([1]).degrees(unit[:, 1:])[:, 0], geometry.degrees(unit)[:, 1]
    )


def test_subtraction_works_out_uneven_sets_too() -> None:
    """Withheld sums of a tree with two, three and four sets come back as they truly were."""
    rng = np.random.default_rng(1)
    frame = pd.DataFrame(rng.uniform(0, 1, (40, 3)), columns=list("abc"))
    frame = frame.assign(y=lambda f: f["a"] - f["b"], client=rng.integers(0, 2, 40))
    learner = FuzzyTreeRegressor(n_fuzzy_sets={"a": 2, "b": 3, "c": 4}, min_samples_split=0.01)
    fed = LocalDisclosure.from_frame(
        frame, "y", client="client", schema=SCHEMA, policy=learner.published()
    )
    learner.fit(fed)
    truth = {
        str(name): Records.from_frame(part.drop(columns="client"), SCHEMA)
        for name, part in frame.groupby("client")
    }
    (found, *_) = Subtraction().run(fed.transcript(), truth, SCHEMA)
    assert found.value > 10 and found.detail["wrong"] == 0
