"""A data owner's eyes: every total less her own part, for any attack to read."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_array_equal

from privfed import Budget, Guard, LocalDisclosure, Policy, Schema
from privfed.attacks.base import HELD_OUT
from privfed.attacks.candidate_inference import CandidateInference
from privfed.attacks.membership import Membership
from privfed.attacks.viewpoint import run_as, seen_by
from privfed.errors import InputError
from privfed.exchange.transcript import Transcript
from privfed.privacy.laws import Unknown
from privfed.questions.query import View
from privfed.tables.records import Records
from privfed.tables.schema import Column
from privfed.testing.queries import Histogram

SCHEMA = Schema((Column("a", lower=0, upper=1),), Column("y", lower=0, upper=1))
OWNERS = ("ashford", "briar", "cedar")
BINS = Histogram(0, tuple(np.linspace(0, 1, 201)))
ELSEWHERE = Histogram(0, (0.0, 0.5, 1.0))


def told(policy: Policy, records: int = 60) -> tuple[Transcript, dict[str, Records]]:
    """One histogram of three owners, another of one alone, and their records with held-out ones."""
    rng = np.random.default_rng(5)
    frame = pd.DataFrame(rng.uniform(0, 1, (2 * records, 2)), columns=["a", "y"])
    owner = np.resize(OWNERS, len(frame))
    held = np.arange(len(frame)) >= records
    known = {
        name + ending: Records.from_frame(frame[(owner == name) & (held == late)], SCHEMA)
        for name in OWNERS
        for ending, late in (("", False), (HELD_OUT, True))
    }
    federation = LocalDisclosure.from_frame(
        frame.assign(owner=owner)[~held],
        target="y",
        client="owner",
        schema=SCHEMA,
        policy=policy,
        seed=3,
    )
    federation.ask(BINS)
    if policy.masked is None:
        federation.ask(ELSEWHERE, clients=["briar"])
    return federation.transcript(), known


def of(mechanism: str) -> Policy:
    """Histograms under one mechanism, as often as is asked."""
    return Policy({Histogram.kind: (Guard.of(mechanism, spend="0.05"),)}, accountant="zcdp")


def exact(known: Mapping[str, Records], names: tuple[str, ...]) -> np.ndarray:
    """The exact histogram of some owners together."""
    each = [BINS.evaluate(View(known[name], SCHEMA)) for name in names]
    return np.asarray(sum(next(iter(one.values())) for one in each))


def test_a_total_less_her_own_part_is_of_all_others() -> None:
    """Of questions that she was asked; the truth has the others' records together, and hers apart."""
    transcript, known = told(Policy({Histogram.kind: (Guard.of("open"),)}))
    seen, truth = seen_by("ashford", transcript, known)
    (entry,) = seen
    (part,) = entry.release.parts.values()
    assert entry.client == "all but ashford" and part.noise is None
    assert_array_equal(part.units, exact(known, ("briar", "cedar")))
    assert set(truth) == {"ashford", "all but ashford", "all but ashford" + HELD_OUT}
    assert len(truth["all but ashford"].x) == 40


def test_noise_of_others_adds_up_and_laplace_sums_have_no_known_law() -> None:
    """Two Gaussians are one, wider by the root of two; of two Laplace draws nobody is told a law."""
    (gaussian,) = seen_by("ashford", *told(of("gaussian")))[0]
    (part,) = gaussian.release.parts.values()
    one = next(iter(told(of("gaussian"))[0])).release.parts
    assert part.noise is not None
    assert part.noise.std == pytest.approx(2**0.5 * next(iter(one.values())).noise.std)  # type: ignore[union-attr]
    pure = Policy({Histogram.kind: (Guard.of("laplace", spend="0.5"),)})
    (laplace,) = seen_by("ashford", *told(pure))[0]
    assert isinstance(next(iter(laplace.release.parts.values())).noise, Unknown)


def test_of_a_masked_total_her_exact_part_is_subtracted() -> None:
    """What is left is the others' part, and everybody's noise."""
    pytest.importorskip("cryptography")
    plain = Policy(of("gaussian").guards, accountant="zcdp", budget=Budget.of("8", "1e-5"))
    masked, known = told(plain.masked_among(OWNERS, colluding=0), records=600)
    (entry,) = seen_by("ashford", masked, known)[0]
    (part,) = entry.release.parts.values()
    assert part.noise is not None
    rest = part.units - exact(known, ("briar", "cedar"))
    assert np.std(rest) == pytest.approx(part.noise.std, rel=0.3)


def test_attacks_find_everybody_elses_records_in_exact_totals_and_none_in_noise() -> None:
    """By their own names and questions, which say whose eyes they are."""
    transcript, known = told(Policy({Histogram.kind: (Guard.of("open"),)}))
    found = run_as("largest", CandidateInference(unknown=("",)), transcript, known, SCHEMA)
    assert found[0].attack == "pool (by an owner)" and found[0].value > 0.5
    assert found[0].question.startswith("Seen by a data owner who receives every total: Which")
    noisy, known = told(of("gaussian"))
    (blind,) = run_as("briar", CandidateInference(unknown=("",)), noisy, known, SCHEMA)
    assert blind.severity == "none"
    with pytest.raises(InputError, match=r"no owner 'brair'.*briar"):
        run_as("brair", Membership(), transcript, known, SCHEMA)
