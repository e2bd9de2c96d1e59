"""Records are pieced together from small nodes of many trees, and not from one's alone."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pytest

from privfed import Column, LocalDisclosure, Policy, Schema
from privfed.attacks import forest_records
from privfed.attacks.finding import Finding
from privfed.attacks.forest_records import PiecedRecords, ReleasedNode, Scored, pieced
from privfed.attacks.sketches import NEAR
from privfed.exchange.transcript import Transcript
from privfed.learners import FedForestClassifier
from privfed.tables.records import Records


def schema_of(columns: str) -> Schema:
    """Numbers from 0 to 100, and two classes."""
    features = tuple(Column(name, "number", 0, 100) for name in columns)
    return Schema(features, Column("y", "integer", 0, 1))


def table(columns: str, clients: str, records: int) -> pd.DataFrame:
    """Columns of values that hardly ever repeat, divided among clients."""
    rng = np.random.default_rng(5)
    frame = pd.DataFrame(rng.uniform(0, 100, (records, len(columns))), columns=list(columns))
    return frame.assign(
        y=(frame["a"] + rng.normal(0, 20, records) > 50).astype(int),
        client=rng.choice(list(clients), records),
    )


def released(
    frame: pd.DataFrame, schema: Schema, policy: Policy | None = None, **ways: Any
) -> tuple[Transcript, dict[str, Records]]:
    """The transcript of a small forest, and the truth."""
    learner = FedForestClassifier(**({"n_estimators": 25, "random_state": 0} | ways))
    fed = LocalDisclosure.from_frame(
        frame, "y", client="client", schema=schema, policy=policy or learner.published(), seed=0
    )
    learner.fit(fed)
    truth = {str(name): Records.from_frame(own, schema) for name, own in frame.groupby("client")}
    return fed.transcript(), truth


TABLE, SCHEMA = table("abcd", "AB", 150), schema_of("abcd")


def attack(policy: Policy | None = None) -> list[Finding]:
    """What the attack finds."""
    return PiecedRecords().run(*released(TABLE, SCHEMA, policy))


def test_a_published_forest_hands_whole_records_over() -> None:
    """Nearly every record, with nearly all its values; guesses fit none."""
    (found,) = attack()
    assert found.share is not None and found.share > 0.95
    assert found.baseline is not None and found.baseline < 0.1 and found.severity == "breach"
    assert found.detail["values of a claim"] > 3.5


def test_suppression_and_noise_hand_over_none() -> None:
    """Nodes whose values are not all told, and private ones, are not pieced together."""
    learner = FedForestClassifier()
    assert attack(learner.nullified()) == []
    assert (
        attack(FedForestClassifier(n_estimators=25, random_state=0).private("8", schema=SCHEMA))
        == []
    )


def test_values_that_share_their_nodes_belong_together() -> None:
    """Three records in pairs: the overlap tells whose is whose; one pair alone tells nothing."""
    records = np.array([[1.0, 30.0], [2.0, 10.0], [3.0, 20.0]])
    pairs = [
        ReleasedNode({f: np.sort(records[[i, j], f]) for f in (0, 1)}) for i, j in ((0, 1), (1, 2))
    ]
    told = pieced(pairs, (0, 1))
    assert sorted(map(tuple, told)) == sorted(map(tuple, records))
    assert len(pieced(pairs[:1], (0, 1))) == 0
    assert pieced([], (0, 1)).shape == (0, 2)


def test_a_claim_is_right_where_all_its_values_are_one_record_s() -> None:
    """A value of another record spoils it, a missing one does not."""
    records = np.array([[1.0, 5.0, 9.0], [2.0, 6.0, 8.0]])
    claims = np.array([[1.0, np.nan, 9.0], [2.0, 5.0, np.nan], [2.0, np.nan, np.nan]])
    assert Scored.of(claims, records, []).right.tolist() == [True, False]


def test_nothing_to_read() -> None:
    """Empty transcripts, no truth, no time, and knots that are no numbers."""
    transcript, truth = released(TABLE, SCHEMA, n_estimators=3)
    assert PiecedRecords().run(Transcript()) == []
    assert PiecedRecords(time_limit=1e-9).run(transcript, truth) == []
    assert all(not finding.simulation for finding in PiecedRecords().run(transcript))

    def spoiled(value: object) -> Transcript:
        entries = []
        for entry in transcript:
            parts = dict(entry.release.parts)
            if "knots" in parts:
                units = np.full(parts["knots"].units.shape, value)
                parts["knots"] = replace(parts["knots"], units=units, mask=None)
            entries.append(replace(entry, release=replace(entry.release, parts=parts)))
        return Transcript(tuple(entries))

    for value in ("text", np.nan, np.inf):
        assert PiecedRecords().run(spoiled(value), truth) == []


@pytest.mark.parametrize("kind", ["forest.bins"])
def test_other_kinds_are_not_for_it(kind: str) -> None:
    """It reads sketches."""
    transcript, _ = released(TABLE, SCHEMA, n_estimators=2)
    assert not PiecedRecords().attackable(transcript.of(kind=kind))


def test_claims_are_compared_as_by_hand() -> None:
    """Every claim with every record: ties, gaps, single values, and none at all."""
    rng = np.random.default_rng(3)
    records = np.column_stack([rng.integers(0, 2, 60), np.round(rng.normal(size=(60, 2)), 1)])
    claims = records[rng.integers(0, 60, 40)] + rng.choice([0.0, 1e-9, 0.05], (40, 3))
    claims[rng.random(claims.shape) < 0.3] = np.nan
    single = records.astype(np.float32).astype(float)
    reach = NEAR * np.ptp(single, axis=0)
    fits = (np.abs(single[None] - claims[:, None]) <= reach) | np.isnan(claims)[:, None]
    told = (~np.isnan(claims)).sum(axis=1) > 1
    by_hand = fits.all(axis=2).any(axis=1)[told]
    assert Scored.of(claims, records, []).right.tolist() == by_hand.tolist()
    assert by_hand.sum() > 5
    for nothing in (Scored.of(np.empty((0, 0)), records, []), Scored.of(claims, records[:0], [])):
        assert (len(nothing.right), nothing.recovered) == (0, 0)


@cache
def small() -> Transcript:
    """One client's, of two trees."""
    return released(TABLE, SCHEMA, n_estimators=2)[0].of(client="A")


def told(
    rows: np.ndarray,
    records: np.ndarray,
    monkeypatch: pytest.MonkeyPatch,
    others: np.ndarray | None = None,
) -> Finding:
    """What is found of a client's records by these claims, beside those of others."""
    width = 4 - records.shape[1]
    truth = {
        name: Records(SCHEMA, np.pad(table, ((0, 0), (0, width))), np.zeros(len(table)))
        for name, table in (("A", records), ("B", others))
        if table is not None
    }
    monkeypatch.setattr(forest_records, "_claims", lambda nodes: rows)
    (found,) = PiecedRecords().run(small(), truth, SCHEMA)
    return found


def test_a_single_claim_that_is_right_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three values that one of sixty people has each: a guess of the two others is hardly ever right."""
    records = np.random.default_rng(0).uniform(0, 100, (60, 3))
    found = told(records[:1], records, monkeypatch)
    assert (found.value, found.severity) == (1, "breach")
    assert found.baseline == pytest.approx(1 / 3600)


def test_values_that_are_joined_by_accident_are_found_by_chance(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Claims of few different values fit some record whatever is joined: hardly ever more than guesses do."""
    rng, runs, accused = np.random.default_rng(0), 200, 0
    for _ in range(runs):
        records = rng.integers(0, 12, (60, 2)).astype(float)
        claims = rng.integers(0, 12, (20, 2)).astype(float)
        accused += told(claims, records, monkeypatch).severity != "none"
    assert accused / runs <= 0.01


def test_values_that_people_alike_have_together_are_no_disclosure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Ages and their decades: whoever knows other people has the decade by the age."""
    rng = np.random.default_rng(0)
    ages = rng.permutation(80)[:40].astype(float)
    records = np.column_stack([ages, ages // 10])
    others = np.column_stack([np.arange(80.0), np.arange(80) // 10])
    found = told(records, records, monkeypatch, others)
    assert (found.value, found.severity) == (0, "none")
    found = told(records, records, monkeypatch, rng.permuted(others, axis=0))
    assert (found.value, found.severity) == (40, "breach")


def test_rare_values_rightly_joined_are_found_among_common_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Three whole records stand out, however many claims of a sex are right by a coin's toss."""
    rng, number = np.random.default_rng(2), 200
    records = np.column_stack([rng.permutation(number), rng.integers(0, 2, number)]).astype(float)
    records = np.column_stack([records, rng.uniform(0, 1, (number, 2))])
    coins = np.column_stack([records[:100, 0], rng.integers(0, 2, 100), np.full((100, 2), np.nan)])
    assert told(coins, records, monkeypatch).severity == "none"
    found = told(np.concatenate([coins, records[-3:]]), records, monkeypatch)
    assert found.severity == "breach"


def test_what_guesses_do_as_well_is_bounded_from_above() -> None:
    """Beside guesses that are drawn: no smaller than the share of draws that weigh as much."""
    rng, guess = np.random.default_rng(0), np.array([0.5, 0.5, 0.3, 0.1, 0.1, 0.02])
    drawn = rng.random((20_000, len(guess))) < guess
    weights = drawn @ -np.log(guess)
    for right in drawn[:50]:
        as_well = float((weights >= right @ -np.log(guess) - 1e-9).mean())
        assert forest_records.chernoff_bound(right, guess) >= as_well - 0.01
    assert forest_records.chernoff_bound(np.array([True]), np.array([0.004])) == 0.004
