"""Guards on their real groups: planted faults are convicted, honest noise is acquitted."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privfed.audits import groups
from privfed.audits.bounds import verdict
from privfed.audits.groups import (
    CELLS,
    GroupCase,
    _concentrated,
    _spread,
    audit_group,
    audit_guarded,
    narrow,
    widen,
)
from privfed.audits.mechanisms import Group, claim_of
from privfed.errors import InputError
from privfed.mechanisms.gaussian import Gaussian
from privfed.mechanisms.laplace import Laplace
from privfed.mechanisms.randomized_response import RandomizedResponse
from privfed.mechanisms.unprotected import Open
from privfed.privacy.mechanism import BoundedPart, Mechanism
from privfed.privacy.noise import TestNoise
from privfed.questions.part import GRID, Bound, Part, PartType
from privfed.testing.faulty import (
    AnswerScaledLaplace,
    FirstPartLaplace,
    FloatLaplace,
    NearLaplace,
    ParityLaplace,
    ReusedLaplace,
    RoundedLaplace,
    SeededLaplace,
    SharedBetweenCellsLaplace,
    SharedBetweenPartsLaplace,
    ThinCellLaplace,
    ThinnerGaussian,
    ThinnerLaplace,
    TruncatedLaplace,
    TwoAnswersLaplace,
    UnderstatingGaussian,
    UnderstatingLaplace,
    UnsharedResponse,
)
from tests.own_law import SilentStaircase, StaircaseNoise

#: One audit in ten thousand may convict an innocent mechanism.
ALPHA = 1e-4
#: Outputs on one cell and on the group: enough for faults that are not small.
TRIALS = (40_000, 4_000)
SUM = BoundedPart(Part(PartType.SUMS, ("cell",), (4,)), Bound(2**30, 2**60))
SUMS: Group = {"linear": SUM, "squares": SUM}
COUNTS: Group = {
    "counts": BoundedPart(Part(PartType.COUNTS, ("feature", "bin"), (3, 2)), Bound(3, 3))
}
ONE: Group = {"counts": BoundedPart(Part(PartType.COUNTS, ("bin",), (4,)), Bound(1, 1))}
#: Two grids, whose noise has two scales: a count, and a sum in units of 2^-30.
GRIDS: Group = {
    "counts": ONE["counts"],
    "sums": replace(SUM, part=replace(SUM.part, grid=GRID)),
}
BITS: Group = {"bits": BoundedPart(Part(PartType.BITS, ("bit", "unit"), (5, 9)), Bound(5, 5))}


def _spend(mechanism: Mechanism) -> tuple[Fraction, float]:
    """About epsilon 1: pure, or at delta 1e-5."""
    return (Fraction("0.036"), 1e-5) if mechanism.currency == "rho" else (Fraction(1), 0.0)


@pytest.mark.parametrize("build", [Laplace, Gaussian, RandomizedResponse])
@pytest.mark.parametrize(
    "group", [SUMS, COUNTS, ONE, GRIDS, BITS], ids=["sums", "counts", "one", "grids", "bits"]
)
def test_honest_mechanisms_are_acquitted(build: Callable[[], Mechanism], group: Group) -> None:
    """On whatever they support."""
    spend, delta = _spend(build())
    if not build().supports(group):
        return
    found = audit_guarded(
        build, group, spend, delta=delta, trials=TRIALS, alpha=ALPHA, noise=TestNoise(0)
    )
    assert found.severity == "none"
    assert found.of is not None and 0.5 * found.of < found.value <= found.of


@pytest.mark.parametrize(
    ("build", "group"),
    [
        (lambda: ThinnerLaplace(1.5), SUMS),
        (lambda: ThinnerGaussian(1.5), SUMS),
        (lambda: UnderstatingLaplace(math.sqrt(2)), SUMS),
        (lambda: UnderstatingGaussian(2), COUNTS),
        (FirstPartLaplace, SUMS),
        (SharedBetweenPartsLaplace, SUMS),
        (SharedBetweenCellsLaplace, SUMS),
        (SharedBetweenCellsLaplace, COUNTS),
        (SeededLaplace, SUMS),
        (ThinCellLaplace, SUMS),
        (ThinCellLaplace, GRIDS),
        (TwoAnswersLaplace, SUMS),
        (FloatLaplace, ONE),
        (RoundedLaplace, ONE),
        (TruncatedLaplace, SUMS),
        (UnsharedResponse, BITS),
    ],
)
def test_planted_faults_are_convicted(build: Callable[[], Mechanism], group: Group) -> None:
    """The power twin, at a level at which nobody innocent is."""
    spend, delta = _spend(build())
    found = audit_guarded(
        build, group, spend, delta=delta, trials=TRIALS, alpha=ALPHA, noise=TestNoise(1)
    )
    assert found.severity == "breach"


def test_a_conviction_is_not_hidden_by_a_larger_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a cell and its group claim different epsilons, the one that exceeds its claim counts."""
    for cell, group in (((1.2, 1.0), (1.5, 2.0)), ((0.9, 1.0), (1.5, 1.4))):
        alone, whole = (verdict("m", *each, {}) for each in (cell, group))
        monkeypatch.setattr(groups, "audit", lambda *_, of=alone, **__: of)
        monkeypatch.setattr(groups, "audit_group", lambda *_, of=whole, **__: of)
        assert audit_guarded(Laplace, COUNTS, Fraction(1)).severity == "breach"


@pytest.mark.parametrize(
    "build", [SharedBetweenPartsLaplace, SharedBetweenCellsLaplace, SeededLaplace, ThinCellLaplace]
)
def test_some_faults_show_in_the_group_alone(build: Callable[[], Mechanism]) -> None:
    """On one cell they are as good as honest: the unit that is claimed is the one to audit."""
    found = audit_guarded(build, SUMS, Fraction(1), trials=TRIALS, alpha=ALPHA, noise=TestNoise(1))
    assert found.detail["proven"]["the group"] > 2
    if build is not ThinCellLaplace:  # which is thin in the last of many runs alone
        assert found.detail["proven"]["one cell"] < 1


def test_the_cell_of_the_least_noise_is_moved() -> None:
    """It is found wherever it lies, among as many cells as are run."""
    wide = {"sums": BoundedPart(Part(PartType.SUMS, ("cell",), (CELLS,)), SUM.bound)}
    case = GroupCase(ThinCellLaplace, wide, Fraction(1), TestNoise(1))
    assert case.least_noisy("sums")[0] == CELLS - 1
    found = audit_group(
        ThinCellLaplace, wide, Fraction(1), trials=4000, alpha=ALPHA, noise=TestNoise(2)
    )
    assert found.severity == "breach" and found.detail["cells_run"] == CELLS


@given(
    l1=st.integers(1, 2**34),
    share=st.fractions(0, 1),
    cells=st.integers(1, 300),
)
def test_moves_stay_within_both_norms(l1: int, share: Fraction, cells: int) -> None:
    """No move is farther than a bound allows, in L1 and in L2; and it does move."""
    bound = Bound(l1, max(1, int(l1**2 * share)))
    for sizes in (_concentrated, _spread):
        steps = [int(step) for step in sizes(bound, cells)]
        assert 1 <= len(steps) <= cells
        assert 0 < sum(steps) <= bound.l1
        assert sum(step**2 for step in steps) <= bound.l2_squared


def test_joint_moves_attain_the_declared_norms() -> None:
    """All parts at once, and spread over cells: as far as the group's bound in L1."""
    for group, l1 in ((SUMS, 2**31), (COUNTS, 3), (BITS, 5)):
        build = RandomizedResponse if group is BITS else Laplace
        moves = GroupCase(build, group, Fraction(1), TestNoise(1)).moves()
        far = []
        for move in moves:
            assert move.truths is not None
            shift = move.truths.present - move.truths.absent
            far.append(np.abs(shift).sum())
            assert min(move.truths.present.min(), move.truths.absent.min()) >= 0
        assert max(far) == l1


def test_wide_parts_are_run_on_fewer_cells() -> None:
    """The bound and the number of axes stay; a group of counts is widened for Gaussian noise."""
    wide = BoundedPart(Part(PartType.COUNTS, ("a", "b", "c"), (40, 30, 3)), Bound(40, 40))
    run = narrow(wide)
    assert len(run.part.shape) == 3 and 1 < run.part.size <= CELLS
    assert run.bound == wide.bound
    for group in (COUNTS, GRIDS):
        bound = widen(group)["counts"].bound
        assert bound is not None and math.isqrt(bound.l2_squared) >= 256
    bound = widen(COUNTS)["counts"].bound
    assert bound is not None and math.isqrt(bound.l2_squared) >= 256
    assert bound.l1**2 == 3 * bound.l2_squared


def test_what_claims_nothing_is_not_audited() -> None:
    """No guarantee, or a claim in rho without a delta: said at once."""
    with pytest.raises(InputError, match="no guarantee"):
        claim_of(Open().price(ONE, Fraction(0)), 0.0)
    with pytest.raises(InputError, match="delta"):
        claim_of(Gaussian().price(ONE, Fraction(1)), 0.0)


@pytest.mark.parametrize("build", [ParityLaplace, ReusedLaplace, AnswerScaledLaplace])
def test_what_any_cell_tells_is_learned(build: Callable[[], Mechanism]) -> None:
    """A bit in a cell that the record does not move, noise from the answer before, the scale of all cells."""
    apart: Group = {"first": SUM, "last": replace(SUM, bound=Bound(0, 0))}
    for group in (apart, SUMS):
        found = audit_group(
            build, group, Fraction(1), trials=8_000, alpha=ALPHA, noise=TestNoise(1)
        )
        assert found.severity == "breach"


@pytest.mark.parametrize("false", [StaircaseNoise, SilentStaircase])
def test_noise_that_is_right_for_one_cell_alone_is_caught(false: type[Mechanism]) -> None:
    """A staircase whose law is told, and one whose likelihood is learned: four cells tell four times."""
    four = BoundedPart(Part(PartType.COUNTS, ("cell",), (4,)), Bound(4, 16))
    found = audit_group(
        false, {"counts": four}, Fraction(1), trials=20_000, alpha=0.01, noise=TestNoise(5)
    )
    assert found.severity == "breach" and found.detail["event"] == "likelihood ratio"
    assert found.detail["move"] == "all parts, over as many cells as can be"


@pytest.mark.parametrize("group", [SUMS, COUNTS, GRIDS], ids=["sums", "counts", "grids"])
def test_answers_far_from_zero_are_tried(group: Group) -> None:
    """Noise that is absent there convicts, and nothing else does."""
    found = audit_group(
        NearLaplace, group, Fraction(1), trials=8_000, alpha=ALPHA, noise=TestNoise(1)
    )
    assert found.severity == "breach" and found.detail["move"].endswith("far from zero")
