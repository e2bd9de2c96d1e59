"""The check of guards: right ones pass, each fault of its own is found, silence says what it means."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import guard_examples
import numpy as np
import pandas as pd
import pytest
from guard_examples import CLAIM, SIGMA

from privfed.attacks.finding import Finding
from privfed.audits.threshold_tests import PrivacyClaim
from privfed.cli import BAD_INPUT, BREACH, FINE, status
from privfed.errors import InputError
from privfed.guards import checks
from privfed.guards.adapters import ADAPTERS, Opening, open_guard, rounds
from privfed.guards.claim import GuardClaim
from privfed.guards.trial import GuardTrial
from privfed.guards.verdict import GuardVerdict, check_guard, says
from privfed.reports.guard import guard_page

FOUR = replace(CLAIM, rounds=4)


@pytest.fixture(autouse=True)
def _seeded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards draw the same noise in each run of a test: a right one is convicted once in a hundred times.

    A hundred draws show each planted fault as four hundred do.
    """
    monkeypatch.setattr(guard_examples, "SEEDS", [np.random.default_rng(1)])
    monkeypatch.setattr(checks, "DRAWS", 100)


def checked(
    name: str, claim: GuardClaim = CLAIM, stack: str = "python", **trial: object
) -> GuardVerdict:
    """The verdict on one of the examples."""
    return check_guard(f"{stack}:guard_examples:{name}", claim, **trial)  # type: ignore[arg-type]


@cache
def of_the_right_guard(claim: GuardClaim, check: Callable[[GuardTrial], Finding]) -> str:
    """What a check says of the guard that keeps the claim."""
    guard_examples.SEEDS.append(np.random.default_rng(1))
    name = "FourRounds" if claim == FOUR else "Right"
    return check(GuardTrial(open_guard(f"python:guard_examples:{name}"), claim)).severity


def named(found: list[Finding]) -> set[str]:
    """Names of the checks."""
    return {each.attack for each in found}


@pytest.mark.parametrize(("name", "claim"), [("Right", CLAIM), ("FourRounds", FOUR)])
def test_a_right_guard_passes_and_the_verdict_says_what_was_not_looked_at(
    name: str, claim: GuardClaim
) -> None:
    """No check convicts; those that looked say with which power."""
    verdict = checked(name, claim, runs=1000)
    assert not verdict.convicting
    silent = [each for each in verdict.findings if each.state == "not looked"]
    assert named(silent) == ({"all rounds"} if claim.rounds == 1 else set())
    assert all(each.why_not in says(each) for each in silent)


@pytest.mark.parametrize(
    ("name", "claim", "runs", "by"),
    [
        ("Unclipped", CLAIM, 1000, [checks.check_clipping, checks.check_one_round]),
        ("Half", CLAIM, 4000, [checks.check_law, checks.check_one_round]),
        ("Half", replace(CLAIM, scale=SIGMA), 1000, [checks.check_law]),
        ("Floats", CLAIM, 1000, [checks.check_low_bits]),
        ("Seeded", CLAIM, 1000, [checks.check_fresh]),
        ("EveryOther", CLAIM, 2500, [checks.check_spent]),
        ("Forgetful", FOUR, 2500, [checks.check_all_rounds]),
        ("ByLayer", CLAIM, 1000, [checks.check_one_round]),
        ("PassesScalars", CLAIM, 1000, [checks.check_untouched, checks.check_clipping]),
    ],
)
def test_each_fault_is_found_by_the_check_that_is_made_for_it(
    name: str, claim: GuardClaim, runs: int, by: list[Callable[[GuardTrial], Finding]]
) -> None:
    """A planted fault, and the checks that convict it; the right guard passes these."""
    case = GuardTrial(open_guard(f"python:guard_examples:{name}"), claim, runs=runs)
    assert [check(case).severity for check in by] == ["breach"] * len(by)
    assert [of_the_right_guard(claim, check) for check in by] == ["none"] * len(by)


def _doubled(given: Any) -> Any:
    """What a guard that writes into its input returns."""
    given[0 if isinstance(given, list) else "age"] *= 2
    return given


@pytest.mark.parametrize("given", [[np.ones(2), np.zeros(1)], pd.DataFrame({"age": [1.0, 1.0]})])
def test_a_guard_that_writes_into_its_input_gets_the_same_the_next_time(given: Any) -> None:
    """Each call has a copy of its own, of arrays and of a table."""
    first, second = rounds(ADAPTERS["python"](_doubled), [given, given])
    assert first is not None and second is not None
    assert np.array_equal(first, second) and first.max() == 2
    assert np.max(given[0] if isinstance(given, list) else given["age"]) == 1


def test_refusals_at_random_convict_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who takes part is drawn, not told by the update; one that tells it is convicted."""
    monkeypatch.setattr(checks, "DRAWS", 50)
    for _ in range(5):
        found = checks.check_shapes(GuardTrial(open_guard("python:guard_examples:Sampled"), CLAIM))
        assert found.severity == "none" and not found.detail["told apart"]
    assert (
        checks.check_one_round(
            GuardTrial(open_guard("python:guard_examples:Sampled"), CLAIM, runs=1000)
        ).severity
        == "none"
    )


def test_a_right_mod_of_flower_passes_and_flower_s_own_is_convicted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """LocalDpMod draws floats, tells an update of zero by failing, and lets scalars through."""
    pytest.importorskip("flwr")
    monkeypatch.setattr(checks, "DRAWS", 40)
    quick = [checks.check_shapes, checks.check_untouched, checks.check_low_bits]
    case = GuardTrial(open_guard("flower:guard_examples:flower_mod", {"of": "Right"}), CLAIM)
    assert [check(case).severity for check in (*quick, checks.check_clipping)] == ["none"] * 4
    options = {"clipping_norm": 1.0, "sensitivity": 1.0, "epsilon": 0.9, "delta": 1e-5}
    case = GuardTrial(open_guard("flower:flwr.clientapp.mod:LocalDpMod", options), CLAIM)
    assert [check(case).severity for check in quick] == ["breach"] * 3


@pytest.mark.parametrize(
    ("name", "by"),
    [
        ("svt_privacy:SVTPrivacy", "low bits"),
        ("percentile_privacy:PercentilePrivacy", "fresh noise"),
    ],
)
def test_flare_s_stock_filters_are_convicted(
    name: str, by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One never ends on an update that is NaN, one has no noise at all; the game convicts both."""
    pytest.importorskip("nvflare")
    monkeypatch.setattr("privfed.guards.adapters.PATIENCE", 0.5)
    guard = f"flare:nvflare.app_common.filters.{name}"
    verdict = check_guard(guard, GuardClaim(0.1), runs=1000)
    assert {"shapes", "untouched", "one round", by} <= named(verdict.convicting)


def test_a_function_of_a_table_is_tried_on_the_table_without_its_outlying_records() -> None:
    """A noisy count passes at its epsilon and not below it; exact means do not at any."""
    table = pd.DataFrame({"age": [30.0, 40.0, 50.0, 95.0], "ward": list("abca")})
    claim = GuardClaim(1.0, unit="record")
    assert not checked("noisy_count", claim, table=table, runs=1000).convicting
    low = checked("noisy_count", replace(claim, epsilon=0.5), table=table, runs=8000)
    assert named(low.convicting) == {"one round"}
    assert "one round" in named(checked("mean_of_table", claim, table=table, runs=1000).convicting)


OF_PAY = """
def always(table):
    return 1.0

def to_thousands(table):
    return table["pay"].mean().round(-3)

def exact(table):
    return table.set_index("id")["pay"].mean()
"""
SEMICOLONS = "id;pay\n" + "".join(f"{at};{at * 1000},50\n" for at in range(50))


def test_a_guard_of_a_table_is_judged_and_told_of_as_what_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A constant needs no noise, a coarse mean does; semicolons are seen, and a fault has the guard's own line."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "of_pay.py").write_text(OF_PAY)
    table, other = tmp_path / "pay.csv", tmp_path / "other.csv"
    table.write_text(SEMICOLONS)
    other.write_text(SEMICOLONS.replace("pay", "wage"))
    given = [*("--epsilon", "1", "--unit", "record", "--runs", "1000"), "--table"]
    for function, csv, expected, hint in (
        ("always", table, FINE, "all answers are the same constant"),
        ("to_thousands", table, BREACH, "convicted by fresh noise"),
        ("exact", table, BREACH, "convicted by fresh noise, one round"),
        ("exact", other, BAD_INPUT, "(KeyError, of_pay.py:9)"),
    ):
        assert status(["check-guard", f"python:of_pay:{function}", *given, str(csv)]) == expected
        told = capsys.readouterr()
        assert hint in told.out + told.err


def test_replacing_a_clients_update_reaches_twice_as_far_as_removing_it() -> None:
    """Noise for one clip is too little where the claim is of replacing, or of a record."""
    assert CLAIM.reach == 1
    for other in (replace(CLAIM, relation="replace-one"), replace(CLAIM, unit="record")):
        assert other.reach == 2
        assert other.min_scale == pytest.approx(2 * SIGMA)
        case = GuardTrial(open_guard("python:guard_examples:Right"), other, runs=4000)
        assert checks.check_one_round(case).severity == "breach"


def test_the_least_noise_is_that_of_the_gaussian_trade_off() -> None:
    """Sigma of the analytic Gaussian mechanism (Balle and Wang 2018) at epsilon 1, delta 1e-5; sqrt(T) more."""
    assert pytest.approx(3.7306, abs=1e-3) == SIGMA
    assert FOUR.min_scale == pytest.approx(2 * SIGMA)


def test_whoever_never_answers_is_not_looked_at() -> None:
    """A guard that fails always convicts itself of nothing, and nobody calls that a pass."""
    case = GuardTrial(lambda: lambda given: None, CLAIM)
    found = [check(case) for check in checks.CHECKS[:6]]
    assert {each.state for each in found} == {"not looked"}


def test_the_power_of_a_game_grows_with_its_runs_and_is_never_below_the_claim() -> None:
    """What would be found lies above the claim for each kind of claim, and comes nearer to it."""
    for claim in (
        PrivacyClaim(1.0),
        PrivacyClaim(1.0, 1e-5),
        PrivacyClaim(1.0, 1e-5, gaussian=True),
    ):
        few, many = (checks.min_detectable(claim, runs, 0.001) for runs in (2000, 20000))
        assert 1.0 < many < few < math.inf


def test_whole_numbers_times_a_decimal_scale_are_on_a_grid_and_floats_are_not() -> None:
    """The lowest bit alone would take the first for floats."""
    rng = np.random.default_rng(1)
    whole = np.rint(rng.normal(size=2000) * 50)
    assert checks._on_a_grid(whole * 0.1) == 1.0
    assert checks._on_a_grid(whole * 2.0**-30) > checks.ODD
    assert checks._on_a_grid(rng.normal(size=2000)) < checks.ODD
    assert checks._on_a_grid(rng.laplace(size=2000)) < checks.ODD


def _whole_numbers(clip: float, scale: float, grid: float, seed: int = 1) -> Opening:
    """A guard that clips as it says, and adds discrete Gaussian noise on a grid."""
    rng = np.random.default_rng(seed)

    def answer(update: list[np.ndarray]) -> list[np.ndarray]:
        size = math.sqrt(sum(float((each**2).sum()) for each in update))
        kept = [each * min(1.0, clip / max(size, 1e-300)) for each in update]
        if scale > 100 * grid:
            drawn = [np.rint(rng.normal(0, scale / grid, each.shape)) for each in kept]
        else:
            reach = np.arange(-round(10 * scale / grid), round(10 * scale / grid) + 1)
            chances = np.exp(-((reach * grid / scale) ** 2) / 2)
            drawn = [rng.choice(reach, each.shape, p=chances / chances.sum()) for each in kept]
        return [(np.fix(k / grid) + z) * grid for k, z in zip(kept, drawn, strict=True)]

    return lambda: answer


@pytest.mark.parametrize("clip", [3e4, 1e6])
@pytest.mark.parametrize("claimed", [True, False])
def test_a_wide_clip_is_a_clip(clip: float, claimed: bool) -> None:
    """A guard that clips beyond the norms of most updates was told to clip nothing."""
    claim = GuardClaim(200.0, 1e-5, clip=clip if claimed else None)
    found = checks.check_clipping(GuardTrial(_whole_numbers(clip, clip / 20, 2.0**-10), claim))
    assert found.severity == "none" and not found.detail["grows with the update"]
    assert 0.9 * clip < found.value <= clip
    wide = GuardTrial(_whole_numbers(math.inf, clip / 20, 2.0**-10), claim)
    assert checks.check_clipping(wide).detail["grows with the update"]


@pytest.mark.parametrize(("clip", "severity"), [(1.0, "none"), (3.0, "breach")])
def test_a_clip_beyond_the_claimed_one_is_found(clip: float, severity: str) -> None:
    """Nothing grows without end, and neighbours are further apart than the claim lets them be."""
    claim = GuardClaim(8.0, 1e-5, clip=1.0)
    found = checks.check_clipping(GuardTrial(_whole_numbers(clip, 0.1, 2.0**-20), claim))
    assert (found.severity, found.of) == (severity, 1.0)
    assert not found.detail["grows with the update"] and 0.9 * clip < found.value <= clip


@pytest.mark.parametrize(("rounds", "severity"), [(1, "breach"), (2, "none")])
def test_noise_that_comes_again_in_a_run_is_found(rounds: int, severity: str) -> None:
    """Each run draws its own, in the first so many rounds alone."""
    rng = np.random.default_rng(1)

    def opening() -> Callable[[list[np.ndarray]], list[np.ndarray]]:
        kept: list[np.ndarray] = []

        def answer(update: list[np.ndarray]) -> list[np.ndarray]:
            if len(kept) < rounds:
                kept.append(rng.normal(size=40))
            return [kept[-1]]

        return answer

    found = checks.check_fresh(GuardTrial(opening, CLAIM))
    assert (found.severity, found.value) == (severity, checks.REPEATS * (rounds == 1))


@pytest.mark.parametrize("step", [1 / 5, 1 / 8, 1 / 32])
def test_noise_in_few_whole_numbers_is_of_its_law(
    step: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At a grid point all of its mass lies on one side of a threshold: tails are counted between two of them."""
    monkeypatch.setattr(checks, "DRAWS", 400)
    claim = GuardClaim(1.0, 1e-5, clip=1.0, noise="gaussian", scale=4.0)
    for seed in range(4):
        right = GuardTrial(_whole_numbers(1.0, 4.0, 4 * step, seed), claim)
        assert checks.check_law(right).state == "looked"
    narrow = GuardTrial(_whole_numbers(1.0, 3.6, 4 * step), claim)
    assert "variance of all cells" in checks.check_law(narrow).detail["convicted"]
    coarse = checks.check_law(GuardTrial(_whole_numbers(1.0, 4.0, 4.0), claim))
    assert coarse.state == "not looked" and "steps, of 1 of the scale" in coarse.partial


def test_the_command_prints_and_writes_the_verdict_as_text_data_and_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One exit status for each verdict; a page without references to elsewhere."""
    monkeypatch.chdir(Path(guard_examples.__file__).parent)
    common = [
        "--epsilon",
        "1",
        "--delta",
        "1e-5",
        "--clip",
        "1",
        "--noise",
        "gaussian",
        "--runs",
        "1000",
    ]
    for name, expected in (("Right", FINE), ("Unclipped", BREACH)):
        out = tmp_path / name
        guard = f"python:guard_examples:{name}"
        assert (
            status(["check-guard", guard, *common, "--rounds", "1", "--out", str(out)]) == expected
        )
        told, page = capsys.readouterr().out, (out / "guard.html").read_text()
        plain = json.loads((out / "guard.json").read_text())
        assert plain["convicted"] == (expected == BREACH)
        assert plain["verdict"] in told and plain["verdict"] in page
        assert page == guard_page(plain) and "http" not in page
        assert all(each["says"] in told for each in plain["findings"])
        again = ["check-guard", guard, *common, "--rounds", "1", "--out", str(out)]
        assert status(again) == BAD_INPUT
        assert "add --overwrite" in capsys.readouterr().err
    assert status([*again, "--overwrite"]) == expected


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["guard_examples:Right", "--epsilon", "1"], "python:MODULE:CALLABLE"),
        (["python:guard_examples:Nobody", "--epsilon", "1"], "has no 'Nobody'"),
        (["python:no_such:Guard", "--epsilon", "1"], "'no_such' cannot be imported here"),
        (["python:guard_examples:Right", "--epsilon", "nan"], "--epsilon 1"),
        (["python:guard_examples:Right", "--epsilon", "1", "--noise", "gaussian"], "--delta"),
        (["python:guard_examples:Right", "--epsilon", "1", "--unit", "rule"], "--unit client"),
        (["python:guard_examples:Right", "--epsilon", "1", "--shape", "2y"], "20x4"),
        (["python:guard_examples:Right", "--epsilon", "1", "--options", "[]"], "JSON"),
        (["python:guard_examples:Right", "--epsilon", "1", "--runs", "10"], "--runs 4000"),
        (
            ["python:guard_examples:Right", "--epsilon", "1", "--table", "no.csv"],
            "no.csv: cannot be read (no such file",
        ),
        (["python:guard_examples:flower_mod", "--epsilon", "1"], "(TypeError, guard_examples.py:1"),
        (["python:guard_examples:seed", "--epsilon", "1"], "(TypeError); correct that, or"),
    ],
)
def test_bad_input_is_one_line_that_says_what_to_write(
    arguments: list[str], hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """No traceback, no verdict."""
    assert status(["check-guard", *arguments]) == BAD_INPUT
    told = capsys.readouterr().err
    assert hint in told and len(told.splitlines()) == 1


def test_a_name_is_of_a_known_stack() -> None:
    """Anything else is refused before anything is imported."""
    with pytest.raises(InputError, match="flower:MODULE:NAME"):
        open_guard("tff:a:b")
