"""The attack on quantile sketches: everything under `published`, and what suppression leaves."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from privfed import Policy
from privfed.attacks.finding import Finding
from privfed.attacks.sketches import ClientSketches, SketchedValues, unmixing
from privfed.learners import FedForestClassifier
from privfed.tables.records import Records
from tests.attacks.test_forest_records import released, schema_of, table

TABLE, SCHEMA = table("ab", "ABC", 240), schema_of("ab")


def attack(policy: Policy | None = None, **ways: Any) -> list[Finding]:
    """What the attack finds in the transcript of a small forest."""
    return SketchedValues().run(*released(TABLE, SCHEMA, policy, **ways), SCHEMA)


def shares(findings: list[Finding]) -> list[float]:
    """Found cells as shares."""
    return [finding.share or 0.0 for finding in findings]


def test_published_sketches_are_the_raw_data() -> None:
    """Order statistics of a few trees hold every cell, and by chance few would match."""
    findings = attack()
    assert min(shares(findings)) > 0.99
    assert all(finding.severity == "breach" for finding in findings)
    assert all((finding.baseline or 0) < 0.1 * (finding.of or 0) for finding in findings)


def test_least_squares_undoes_interpolation() -> None:
    """Interpolated quantiles of one tree hide cells verbatim, and equations give them back."""
    verbatim, solved = attack(
        n_estimators=4, interpolate=True, sampling="all", max_depth=7, min_samples_leaf=1
    )
    assert shares([solved])[0] > 0.95
    assert shares([solved])[0] > shares([verbatim])[0] + 0.1


def test_suppression_hands_over_less_of_one_tree() -> None:
    """Under `nullified` a tree tells fewer cells, and still some: it is no guarantee."""
    learner = FedForestClassifier()
    open_, few = (shares(attack(policy, n_estimators=1)) for policy in (None, learner.nullified()))
    assert 0 < few[0] < open_[0] - 0.2


def test_without_truth_or_sketches_there_is_nothing_to_say() -> None:
    """No findings."""
    transcript, _ = released(table("ab", "ABC", 60), SCHEMA, n_estimators=2, max_depth=1)
    assert SketchedValues().run(transcript, None, SCHEMA) == []
    assert not SketchedValues().attackable(transcript.of(kind="forest.bins"))


@pytest.mark.parametrize(("records", "levels"), [(2, 2), (5, 5), (7, 9), (11, 10)])
def test_unmixing_inverts_interpolated_quantiles(records: int, levels: int) -> None:
    """With at least as many levels as records less one, numpy's quantiles give the values back."""
    values = np.sort(np.random.default_rng(records).normal(size=records))
    told = np.quantile(values, np.arange(levels + 1) / levels)
    assert np.allclose(unmixing(records, levels) @ told, values)


@pytest.mark.parametrize("others", [0, 4])
def test_whole_numbers_meet_whole_numbers_by_chance(others: int) -> None:
    """Values of other people stand in a column of ages, of a single client and beside few others."""
    rng, runs, accused = np.random.default_rng(0), 60, 0
    for _ in range(runs):
        truth = {
            name: Records(
                SCHEMA, np.column_stack([rng.integers(1, 90, size), np.zeros(size)]), None
            )
            for name, size in (("A", 8), ("B", others))
            if size
        }
        heard = {"A": ClientSketches({0: np.unique(rng.integers(1, 90, 20)).astype(float)}, {})}
        told = SketchedValues()._scored("cells", truth, heard, lambda one: one.sketched, 0.0, "")
        accused += told.severity != "none"
    assert accused / runs <= 0.05
