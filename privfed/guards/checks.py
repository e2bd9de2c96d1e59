"""Checks of a guard. Each returns a finding: found, looked (with its power), or not looked.

Passing is no proof. The statistical checks share the significance level :data:`LEVEL` equally.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import binom, chi2, laplace, norm

from privfed.attacks.finding import POWER, Finding
from privfed.audits.bounds import verdict
from privfed.audits.noise import noise_tests, scale_found
from privfed.audits.paired_trials import SELECTION, Move, audit_moves
from privfed.audits.test_statistics import Statistic, lowest_bit
from privfed.audits.threshold_tests import (
    OTHERS,
    SUREST,
    ConfusionCounts,
    DecisionRule,
    PrivacyClaim,
    judge,
)
from privfed.errors import number_of
from privfed.guards.adapters import Given, rounds
from privfed.guards.trial import BIG, BIGGER, BIGGEST, GuardTrial, Pair
from privfed.owner.noise_monitor import NoiseSums
from privfed.privacy.conversion import gaussian_epsilon

#: Probability that all checks together wrongly reject a correct guard; each statistical one gets a fifth.
LEVEL, TESTS = 0.01, 5
SHARE = LEVEL / TESTS
#: New runs for testing the noise.
DRAWS = 400
#: New runs of two rounds for testing whether noise repeats.
REPEATS = 40
#: Records of a table that are also given as single inputs.
ALONE = 3
#: Repetitions of an input that seems distinguishable, and refusals after which the usual input is given up.
AGAIN, SILENT = 4, 8
#: Minimum fraction of integer noise with the grid's lowest bit: half of all integers are odd. For floats only the
#: values nearest to zero have the lowest bit, about one of all draws.
ODD, FEWEST = 0.1, 200
#: Standard deviations beyond which tails are counted.
TAILS = (2.0, 3.5)
#: Digits, relative to the noise scale, for detecting a grid. Grid steps of g times the scale change variances by g^2 /
#: 12, and tails of that many cells by a fraction of their standard deviation up to this g^2 sqrt(cells).
DIGITS, COARSE = 9, 8.0


def _finding(check: str, question: str, metric: str, value: float, **figures: Any) -> Finding:
    fields = {"baseline": 0.0, "simulation": False, **figures}
    return Finding(check, question, metric, value, **fields)


def _breach(wrong: object) -> str:
    return "breach" if wrong else "none"


def check_shapes(trial: GuardTrial) -> Finding:
    """Check that every release has the same shape and finite numbers, for any input.

    A correct guard may refuse, or choose the size, at random. So an input counts as distinguished if :data:`AGAIN` of
    its outputs have forms that the usual input never has in :data:`DRAWS` runs: if such a form has probability p for
    the usual input and e^3 p for the other, this happens by chance with (e^3 p)^4 (1 - p)^400 < 3e-5.
    """
    rng = np.random.default_rng(1)
    given = {"usual": trial.nothing}
    if trial.table is None:
        for name, flat in {
            "zero": np.zeros(trial.cells),
            "a common one": rng.normal(size=trial.cells),
            "a huge one": BIGGER * rng.normal(size=trial.cells),
            "one that is NaN": np.full(trial.cells, np.nan),
            "one with an infinity": np.where(np.arange(trial.cells) == 0, np.inf, 0.0),
        }.items():
            given[name] = trial.update(flat)
    else:
        given["one without a record"] = trial.table.iloc[1:]
    forms = {name: _form(trial, value) for name, value in given.items()}
    seen, wrong = {forms["usual"]}, []
    if any(form not in seen for form in forms.values()):
        seen |= _usual_forms(trial)
    for name, form in forms.items():
        apart = form not in seen
        if form.finite and apart:
            apart = seen.isdisjoint(_form(trial, given[name]) for _ in range(AGAIN - 1))
        if apart or not form.finite:
            wrong.append(f"{name}: {form}")
    return _finding(
        "shapes",
        "Do shape, refusal and finiteness depend on the update?",
        "inputs that the answers tell apart without noise",
        len(wrong),
        of=len(given),
        severity=_breach(wrong),
        detail={"told apart": wrong},
        detectable=1.0,
        partial="" if any(form.cells is not None for form in seen) else "the guard answers nothing",
    )


class Form(NamedTuple):
    """The form of an answer without its numbers: their count, None for a refusal."""

    cells: int | None
    finite: bool

    def __str__(self) -> str:
        if self.cells is None:
            return "nothing leaves"
        return number_of(self.cells, "cell") + ("" if self.finite else ", not finite")


def _form(trial: GuardTrial, given: Given) -> Form:
    row = rounds(trial.open(), [given])[0]
    if row is None:
        return Form(None, finite=True)
    return Form(row.size, bool(np.isfinite(row).all()))


def _usual_forms(trial: GuardTrial) -> set[Form]:
    """Return the forms of the usual input's outputs; stops early if nothing is released."""
    first = [_form(trial, trial.nothing) for _ in range(SILENT)]
    if all(form.cells is None for form in first):
        return set(first)
    return {*first, *(_form(trial, trial.nothing) for _ in range(DRAWS - SILENT))}


def check_untouched(trial: GuardTrial) -> Finding:
    """Check that no number is released unmodified."""
    question = "Is a number released unchanged, without noise?"
    metric = "cells released unchanged"
    if trial.table is not None:
        return _not_looked(
            "untouched", question, metric, "the answer does not have the cells of the table"
        )
    small = np.random.default_rng(2).uniform(1e-7, 2e-7, trial.cells)
    same = np.ones(trial.cells, bool)
    for size in (small, BIG * small):
        row = rounds(trial.open(), [trial.update(size)])[0]
        if row is None or row.size != trial.cells:
            why = "the answer does not have the update's shape"
            return _not_looked("untouched", question, metric, why)
        same &= row == size
    return _finding(
        "untouched",
        question,
        metric,
        int(same.sum()),
        of=trial.cells,
        severity=_breach(same.any()),
        detectable=1.0,
    )


def _not_looked(check: str, question: str, metric: str, why: str) -> Finding:
    return _finding(check, question, metric, 0.0, partial=why)


def check_clipping(trial: GuardTrial) -> Finding:
    """Check that neighbours' answers differ by at most the claimed clip, or by any bound.

    The median of the answers along a direction is bounded by order statistics, exactly for any noise: the k-th smallest
    of n draws exceeds the median with probability P(Bin(n, 1/2) < k). Two bounds, at half of the level each, bound the
    shift of the noise's centre.
    """
    question = "How far apart, in L2, are the answers of neighbours, at least?"
    metric = "distance between neighbours, at least"
    if trial.table is not None:
        why = "a table's records are bounded by its schema, which the guard's claim does not name"
        return _not_looked("clipping", question, metric, why)
    level, best, name, endless, width = SHARE / len(trial.pairs), 0.0, "", False, 0.0
    for pair in trial.pairs:
        assert pair.direction is not None
        huge, more = (trial.pair(pair.name, pair.direction, n) for n in (BIGGER, BIGGEST))
        arms = [trial.rows(given, DRAWS) for given in (huge.present, huge.absent, more.present)]
        if any(rows.size == 0 or rows.shape[1] != trial.cells for rows in arms):
            why = "the guard refuses, or changes the shape"
            return _not_looked("clipping", question, metric, why)
        bounds = [_median(rows @ pair.direction, level / 3) for rows in arms]
        (low, before), (_, high), (last, _) = bounds
        width = max(width, *(top - bottom for bottom, top in bounds))
        endless |= last > 2 * max(before, 0.0) + width
        if low - high > best:
            best, name = low - high, pair.name
    allowed = None if trial.claim.clip is None else trial.claim.reach * trial.claim.clip
    return _finding(
        "clipping",
        question,
        metric,
        best,
        of=allowed,
        low=best,
        severity=_breach(endless or (allowed is not None and best > allowed * (1 + 1e-6))),
        detail={
            "direction": name,
            "grows with the update": bool(endless),
            "confidence": 1 - SHARE,
            "would have found, with chance .8, moves beyond the allowed by": 2 * width,
        },
        detectable=None if allowed else 2 * width,
    )


def _median(values: np.ndarray, level: float) -> tuple[float, float]:
    """Return bounds on a median, each failing with probability at most ``level``."""
    ordered = np.sort(values)
    rank = max(int(binom.ppf(level, len(values), 0.5)) - 1, 0)
    return float(ordered[rank]), float(ordered[-1 - rank])


def check_fresh(trial: GuardTrial) -> Finding:
    """Check that every answer has fresh noise: neither all runs nor all second rounds repeat the first.

    Coarse noise may repeat by chance: an answer of probability p in all of n runs with p^(n - 1), below 5e-6 for p =
    .73, which epsilon 1 allows.
    """
    question, metric = "Is noise repeated?", "answers that repeat the one before, at most"
    given = trial.nothing if trial.table is not None else trial.pairs[0].present
    runs = [rounds(trial.open(), [given, given]) for _ in range(REPEATS)]
    first = [run[0].tobytes() for run in runs if run[0] is not None]
    pairs = [(a.tobytes(), b.tobytes()) for a, b in runs if a is not None and b is not None]
    if len(first) < REPEATS:
        return _not_looked("fresh noise", question, metric, "the guard does not always answer")
    same = sum(current == previous for current, previous in zip(first[1:], first[:-1], strict=True))
    repeated = sum(current == previous for current, previous in pairs)
    all_same = len(set(first)) == 1 or (len(pairs) == REPEATS and repeated == REPEATS)
    if all_same and _is_constant(trial, first[0]):
        why = "all answers are the same constant"
        return _not_looked("fresh noise", question, metric, why)
    return _finding(
        "fresh noise",
        question,
        metric,
        max(same, repeated),
        of=REPEATS,
        severity=_breach(all_same),
        detail={"found where": "all runs, or all second rounds, repeat"},
    )


def _is_constant(trial: GuardTrial, release: bytes) -> bool:
    """Whether all neighbours, and a table's single records, have this same release, which needs no noise."""
    inputs = [given for pair in trial.pairs for given in (pair.present, pair.absent)]
    if trial.table is not None:
        inputs += [trial.table.iloc[[index]] for index in range(min(ALONE, len(trial.table)))]
    answers = [rounds(trial.open(), [given])[0] for given in inputs]
    return all(answer is not None and answer.tobytes() == release for answer in answers)


def check_law(trial: GuardTrial) -> Finding:
    """Check that noise on a zero update has the claimed distribution and scale, independent between cells."""
    question = "Is the answer minus the update noise of the claimed distribution and scale?"
    metric, claim = "tests that convict the noise", trial.claim
    scale = claim.min_scale
    why = "no table's exact answer is known" if trial.table is not None else ""
    if not claim.noise or scale is None:
        why = (
            why
            or "the claim lacks a distribution, or both scale and clip: write --noise, and --scale or --clip"
        )
    rows = np.zeros((0, 0)) if why else trial.rows(trial.nothing, DRAWS)
    if why or rows.size == 0 or rows.shape[1] != trial.cells:
        why = why or "the guard refuses, or changes the shape"
        return _not_looked("distribution of the noise", question, metric, why)
    assert scale is not None
    noise = rows / scale
    grid = float(np.diff(np.unique(noise.round(DIGITS))).min(initial=np.inf))
    scores = noise
    if claim.noise == "laplace":
        tail = np.minimum(laplace.sf(np.abs(noise)), 0.5)
        scores = np.sign(noise) * norm.isf(np.maximum(tail, 1e-300))
    if claim.scale is None:
        cells = scores.size
        p = float(chi2.cdf((scores**2).sum(), cells))
        tested = {"variance below what the claim needs": p}
    elif COARSE < grid**2 * math.sqrt(noise.size) < math.inf:
        why = f"its steps, of {grid:.2g} of the scale, are too wide for a continuous distribution"
        return _not_looked("distribution of the noise", question, metric, why)
    else:
        sums = _sums(trial, scores)
        for far in TAILS:
            _add_tail(sums, noise, claim.noise, far, min(grid, far))
        tested = {test.name: test.p for test in noise_tests(sums)}
    level = SHARE / len(tested)
    rejected = [name for name, p in tested.items() if p < level]
    return _finding(
        "distribution of the noise",
        question,
        metric,
        len(rejected),
        of=len(tested),
        severity=_breach(rejected),
        detail={
            "convicted": rejected,
            "least p": min(tested.values()),
            "level": level,
            "cells": scores.size,
            "scale": scale,
            "scale is": "claimed" if claim.scale is not None else "the least that the claim needs",
            "narrower noise found with chance .8, by": scale_found(scores.size, level),
        },
        detectable=1.0,
    )


def _sums(trial: GuardTrial, scores: np.ndarray) -> NoiseSums:
    """Return sums of normal scores over all cells and each array, and of products with preceding scores."""
    sums = NoiseSums()
    start = 0
    parts = {"all cells": scores}
    for number, shape in enumerate(trial.shapes):
        size = int(np.prod(shape))
        parts[f"array {number}"] = scores[:, start : start + size]
        start += size
    for name, part in parts.items():
        sums.add(f"score {name}", part.size, part.sum(), (part**2).sum())
    for name, values, earlier in (
        ("the cell before", scores[:, 1:], scores[:, :-1]),
        ("the run before", scores[1:], scores[:-1]),
    ):
        sums.add(f"sign {name}", values.size, (values * np.sign(earlier)).sum())
    return sums


def _add_tail(sums: NoiseSums, noise: np.ndarray, law: str, far: float, grid: float) -> None:
    """Count noise, in units of its scale, beyond ``far`` normal deviations; on a grid, beyond a midpoint.

    At a midpoint nearly half of a point's mass is on either side; at a point all of it is on one
    side.
    """
    beyond = laplace.isf(norm.sf(far)) if law == "laplace" else far
    edge = (math.floor(beyond / grid) + 0.5) * grid if grid > 0 else beyond
    expected = 2 * float((laplace if law == "laplace" else norm).sf(edge)) * noise.size
    sums.add(f"count beyond {far:g} deviations", noise.size, (np.abs(noise) > edge).sum(), expected)


def check_low_bits(trial: GuardTrial) -> Finding:
    """Check that noise is integer on a grid: floating-point noise reveals its input (Mironov 2012)."""
    question = "Is the noise drawn in whole numbers, or in floating point, which no theorem covers?"
    metric = "share of answers whose lowest bit is the grid's"
    rows = [rounds(trial.open(), [trial.nothing])[0] for _ in range(DRAWS)]
    if any(row is None for row in rows):
        return _not_looked("low bits", question, metric, "the guard refuses")
    arrays = list(zip(*(trial.open()(trial.nothing) or [] for _ in range(DRAWS)), strict=True))
    minimum, looked, narrow = 1.0, False, False
    for array in arrays:
        values = np.concatenate([np.ravel(row) for row in array])
        double = values.dtype == np.float64
        values = np.asarray(values[(values != 0) & np.isfinite(values.astype(float))], float)
        if len(np.unique(values)) < FEWEST:
            continue
        fraction = _on_a_grid(values)
        narrow |= not double and fraction < ODD
        if double or fraction >= ODD:
            looked, minimum = True, min(minimum, fraction)
    why = ""
    if narrow or not looked:
        why = "answers of single precision lack the bits that would show it"
        why = why if narrow else f"fewer than {FEWEST} different answers were seen"
    return _finding(
        "low bits",
        question,
        metric,
        minimum,
        severity=_breach(looked and minimum < ODD),
        partial=why,
        baseline=0.5,
        detail={"floating point below": ODD},
        detectable=ODD,
    )


def _on_a_grid(values: np.ndarray) -> float:
    """Return the fraction of values with the smallest lowest bit; 1 if all are multiples of the smallest gap."""
    bits = lowest_bit(values)
    gap = float(np.diff(np.unique(np.abs(values))).min())
    multiples = np.abs(values - values[0]) / gap
    if multiples.max() < 2**30 and np.abs(multiples - np.rint(multiples)).max() < 1e-3:
        return 1.0
    return float((bits == bits.min()).mean())


def _game(trial: GuardTrial, check: str, question: str, times: int) -> Finding:
    """Play the distinguishing game over rounds: compare the epsilon that the outputs prove with the claim.

    It is played twice, each at half the level: with the answers along the changed direction, most powerful for correct
    noise, and with refusals, sums and raw cells, which reveal faults.
    """
    finding = _play(trial, trial.claim.privacy, times)
    minimum = min_detectable(trial.claim.privacy, trial.runs, SHARE / 2)
    detail = {**finding.detail, "claimed": trial.claim.epsilon, "rounds": times}
    return replace(
        finding, attack=check, question=question, detail=detail, of=None, detectable=minimum
    )


def _play(trial: GuardTrial, claim: PrivacyClaim, times: int, before: int = 0) -> Finding:
    along, others = (
        [_move(trial, pair, times, before, columns) for pair in trial.pairs]
        for columns in (slice(1), slice(1, None))
    )
    if claim.gaussian or not claim.epsilon:
        first = _split_at_median(along[0], claim, trial.runs)
    else:
        first = audit_moves(along, claim, trials=trial.runs, alpha=SHARE / 2)
    second = audit_moves(others, claim, trials=trial.runs // 2, alpha=SHARE / 2)
    return max(first, second, key=lambda f: (f.severity == "breach", f.value))


def _split_at_median(move: Move, claim: PrivacyClaim, runs: int) -> Finding:
    """Assign the upper half of the outputs to one input, the best rule for symmetric noise."""
    present, absent = move.outputs(runs)
    chosen = int(len(present) * SELECTION)
    median = float(np.median(np.concatenate([present[:chosen], absent[:chosen]])))
    along = Statistic("the answer along the move", "value", lambda outputs: outputs[:, 0])
    rule = DecisionRule(along, median, float(np.nextafter(median, -np.inf)))
    _, proven = judge([rule], present[chosen:], absent[chosen:], claim, SHARE / 2)
    detail = {
        "move": move.name,
        "delta": claim.delta,
        "confidence": 1 - SHARE / 2,
        "trials": runs,
        "event": along.name,
        "threshold": median,
    }
    return verdict("guard", proven, claim.epsilon, detail)


def _move(trial: GuardTrial, pair: Pair, times: int, before: int, columns: slice) -> Move:
    """Return a pair of neighbours in ``times`` rounds, after ``before`` rounds with a zero update."""

    def sampler(given: Given) -> Callable[[int], np.ndarray]:
        updates = [trial.nothing] * before + [given] * times
        return lambda runs: trial.play(pair, updates, runs, first=before)[:, columns]

    return Move(pair.name, sampler(pair.present), sampler(pair.absent))


def min_detectable(claim: PrivacyClaim, runs: int, alpha: float) -> float:
    """Return the smallest epsilon, nats, that a game detects with power .8; infinite if none.

    For a Gaussian claim: of narrower noise, tested at its best threshold. For others: of an answer that is correct with
    odds e^epsilon, or, with a delta, an event with probabilities (1, e^-epsilon) / 2 under the two inputs. Counts are
    those reached, or not exceeded, with total probability .8.
    """
    size = int(runs * (1 - SELECTION)) // 2
    alpha = (SUREST + OTHERS) * alpha

    def rejects(strength: float) -> bool:
        if claim.gaussian:
            right = binom.ppf(1 - POWER, 2 * size, norm.cdf(strength / 2))
        elif not claim.delta:
            right = binom.ppf(1 - POWER, 2 * size, 1 / (1 + math.exp(-strength)))
        else:
            hits = binom.ppf((1 - POWER) / 2, size, 0.5)
            false = binom.ppf((1 + POWER) / 2, size, 0.5 * math.exp(-strength))
            return _proven(claim, hits, false, size - hits, 0.0, size, alpha) > claim.epsilon
        half = right / 2
        return _proven(claim, half, size - half, size - half, half, size, alpha) > claim.epsilon

    strengths = np.geomspace(0.02, 60, 400)
    smallest = next((float(s) for s in strengths if rejects(float(s))), math.inf)
    if claim.gaussian and math.isfinite(smallest):
        return gaussian_epsilon(smallest, claim.delta)
    return smallest


def _proven(
    claim: PrivacyClaim, tp: float, fp: float, fn: float, tn: float, size: int, alpha: float
) -> float:
    numbers = [np.asarray(number) for number in (tp, fp, fn, tn)]
    counts = ConfusionCounts(numbers[0], numbers[1], numbers[2], numbers[3], size, size)
    return claim.proven(float(claim.strength(counts, alpha)))


def check_one_round(trial: GuardTrial) -> Finding:
    """Check that one round distinguishes neighbours no better than the whole claim allows."""
    return _game(trial, "one round", "Do answers of one round contradict the claim?", 1)


def check_all_rounds(trial: GuardTrial) -> Finding:
    """Check that all rounds together distinguish neighbours no better than the claim allows."""
    question = "Do the answers of all rounds together contradict the claim?"
    times = trial.claim.rounds or 1
    if times == 1:
        why = "one round is claimed" if trial.claim.rounds else "no number of rounds is claimed"
        metric = "epsilon proven by the outputs, at least"
        return _not_looked("all rounds", question, metric, f"{why}: write --rounds N")
    return _game(trial, "all rounds", question, times)


def check_spent(trial: GuardTrial) -> Finding:
    """Check that once the rounds are spent, releases do not depend on the update."""
    question = "After its budget is spent, does any answer depend on the update?"
    metric, times = "epsilon proven by answers after the last round, at least", trial.claim.rounds
    if times is None:
        why = "no number of rounds is claimed: write --rounds N"
        return _not_looked("budget when spent", question, metric, why)
    nothing = PrivacyClaim(0.0)
    finding = _play(trial, nothing, 2, before=times)
    return replace(
        finding,
        attack="budget when spent",
        question=question,
        metric=metric,
        of=None,
        detectable=min_detectable(nothing, trial.runs, SHARE / 2),
        detail={**finding.detail, "claimed": 0.0},
    )


CHECKS: tuple[Callable[[GuardTrial], Finding], ...] = (
    check_shapes,
    check_untouched,
    check_clipping,
    check_fresh,
    check_law,
    check_low_bits,
    check_one_round,
    check_all_rounds,
    check_spent,
)
