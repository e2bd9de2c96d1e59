"""Exact integer sums decide lists; nothing is decided that another list with the same sums denies."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privfed.attacks import candidate_inference, lattice
from privfed.attacks.candidate_inference import NAMED, CandidateInference
from privfed.attacks.deadline import Deadline
from privfed.attacks.lattice import Embedding, ExactSums, bits_of, entropy

reducing = pytest.mark.skipif(not lattice.AVAILABLE, reason="fpylll is an extra")


def planted(
    candidates: int, sums: int, bits: int, seed: int = 0, share: float = 0.3
) -> tuple[ExactSums, np.ndarray]:
    """Random sums of so many bits over a list, and who is on it."""
    rng = np.random.default_rng(seed)
    added = rng.integers(0, 2**bits, (sums, candidates))
    member = (rng.random(candidates) < share).astype(int)
    prior = np.full(candidates, share)
    return ExactSums(added, added @ member, np.ones(candidates, int), prior), member


@reducing
def test_twelve_sums_of_thirty_bits_decide_a_list_of_a_hundred() -> None:
    """Of rank 12 beside 100 unknowns, and every entry is right."""
    exact, member = planted(100, 12, 30)
    exact.solve(Deadline())
    assert exact.decided.all() and (exact.low == member).all()


@reducing
@pytest.mark.parametrize("sums", [2, 4, 8, 12])
def test_a_proof_that_is_out_of_reach_is_foretold(sums: int) -> None:
    """The nodes expected before a reduction are no more than a reduced basis has, but for the slack."""
    exact, _ = planted(40, sums, 30)
    embedded = Embedding(exact.added, exact.released, exact.upper, exact.prior)
    found = lattice.nodes(lattice.log_lengths(lattice.kernel(exact.added)), embedded.reach)
    assert embedded.proof <= lattice.SLACK * found
    assert (embedded.proof > 1e6) == (sums == 2)


@reducing
def test_what_cannot_be_proven_is_not_reduced() -> None:
    """Three sums of fifty bits single out a list of eighty, which nothing proves: no work is done."""
    exact, _ = planted(80, 3, 50)
    deadline = Deadline()
    exact.solve(deadline)
    assert exact.bits[0] > exact.bits[1] + 10 and deadline.work == 0.0


def test_too_few_bits_decide_nothing() -> None:
    """Twelve sums of three bits are less than the list is."""
    exact, _ = planted(100, 12, 3)
    told, needed = exact.bits
    exact.solve(Deadline())
    assert told < needed and not exact.decided.any()


@given(
    seed=st.integers(0, 10_000),
    candidates=st.integers(1, 11),
    sums=st.integers(0, 4),
    top=st.sampled_from([2, 4, 30, 1000, 2**30]),
    signed=st.booleans(),
    most=st.integers(1, 2),
)
def test_what_is_decided_holds_for_every_list_with_these_sums(
    seed: int, candidates: int, sums: int, top: int, signed: bool, most: int
) -> None:
    """All lists are enumerated: a decided entry is the same in each of those with the sums."""
    rng = np.random.default_rng(seed)
    added = rng.integers(-top // 2 if signed else 0, top, (sums, candidates))
    added *= rng.random(added.shape) < 0.7
    copies = rng.integers(0, most + 1, candidates)
    exact = ExactSums(added, added @ copies, np.full(candidates, most), np.full(candidates, 0.5))
    exact.solve(Deadline())
    lists = np.array(list(product(range(most + 1), repeat=candidates)))
    possible = lists[(lists @ added.T == added @ copies).all(axis=1)]
    assert exact.consistent
    assert (possible[:, exact.decided] == exact.low[exact.decided]).all()


def test_bounds_and_full_rank_need_no_lattice(monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty cell, a full one, and as many sums as unknowns."""
    monkeypatch.setattr(lattice, "AVAILABLE", False)
    added = np.array([[1, 1, 0, 0, 0, 0], [0, 0, 1, 1, 0, 0]])
    exact = ExactSums(added, np.array([0, 2]), np.ones(6, int), np.full(6, 0.5))
    exact.solve(Deadline())
    assert (
        exact.low[:4].tolist() == [0, 0, 1, 1]
        and exact.decided.tolist() == [True] * 4 + [False] * 2
    )
    exact, member = planted(20, 20, 30)
    exact.solve(Deadline())
    assert exact.decided.all() and (exact.low == member).all()


def test_sums_of_no_list_decide_nothing() -> None:
    """Records that stand on no list, or a rounding that hides what was added."""
    exact = ExactSums(np.array([[4, 6]]), np.array([-1]), np.ones(2, int), np.full(2, 0.5))
    exact.solve(Deadline())
    assert not exact.consistent


@reducing
def test_equal_candidates_are_not_told_apart() -> None:
    """Two that add alike everywhere stay undecided, unless both or neither are members."""
    exact, member = planted(40, 6, 30)
    one, other = np.flatnonzero(member == 0)[0], np.flatnonzero(member == 1)[0]
    added = exact.added.copy()
    added[:, one] = added[:, other]
    alike = ExactSums(added, added @ member, exact.upper, exact.prior)
    alike.solve(Deadline())
    assert np.flatnonzero(~alike.decided).tolist() == sorted([one, other])


@reducing
def test_no_work_decides_nothing_by_lattices() -> None:
    """Work is counted before it is done."""
    exact, _ = planted(60, 8, 30)
    deadline = Deadline(max_work=1.0)
    exact.solve(deadline)
    assert not exact.decided.any() and deadline.over


def test_bits_count_steps_and_dependent_sums_once() -> None:
    """A sum told twice, or in steps of 8, holds no more."""
    added = np.random.default_rng(0).integers(0, 2**20, (3, 50))
    most, prior = np.ones(50), np.full(50, 0.5)
    assert entropy(most, prior) == 50
    once = bits_of(added, most, prior)
    assert bits_of(np.vstack([added, added[0] + added[1]]), most, prior) == pytest.approx(
        once, abs=1e-3
    )
    assert bits_of(added * 8, most, prior) == pytest.approx(once)


@pytest.fixture(scope="module")
def strict_tree(diabetes: Callable[[str], Any]) -> tuple[object, ...]:
    """What a suppressing tree releases about five clinics."""
    told = diabetes("strict")
    return told.transcript, told.truth, told.schema


@reducing
def test_suppression_does_not_protect_members(strict_tree: tuple[object, ...]) -> None:
    """Every member of a list of 178 is named, where least squares find a share; none falsely."""
    found, named = CandidateInference(unknown=[""], max_candidates=178).run(*strict_tree)  # type: ignore[arg-type]
    assert (named.metric, named.value, named.severity) == (NAMED, 1.0, "breach")
    assert named.detail["named, but no members"] == 0 and found.value == 1.0
    assert min(named.detail["bits of the sums"]) > max(named.detail["bits of the list"])


def test_without_lattices_the_finding_says_so(
    strict_tree: tuple[object, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was not looked at is no pass."""
    monkeypatch.setattr(lattice, "AVAILABLE", False)
    monkeypatch.setattr(candidate_inference, "AVAILABLE", False)
    found, named = CandidateInference(unknown=[""], max_candidates=178).run(*strict_tree)  # type: ignore[arg-type]
    assert named.value < 0.5 < found.value and "pip install privfed[lattice]" in named.partial
