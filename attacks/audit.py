"""Audits of a mechanism from its outputs alone: what epsilon do they prove, at least?

An event is chosen on one part of the outputs and judged on the rest. Events are thresholds on a few
scores of an output: each cell's value, the direction in which the means differ, and the lowest set
bit of its binary form, for naive floating-point noise gives the input away there and nowhere else
(Mironov 2012). A passed audit proves nothing; a failed one convicts, wrongly at most with
probability alpha.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product

import numpy as np

from privfed.attacks.bounds import epsilon_from_event, gdp_epsilon, one_run_epsilon
from privfed.errors import InputError
from privfed.finding import Finding

#: Gives outputs of the mechanism on one fixed input, shape (runs,) or (runs, cells).
Sampler = Callable[[int], np.ndarray]

#: Share of the outputs on which the event is chosen; the rest judge it.
SELECTION = 0.25
#: Most cells of an output that are looked at one by one.
CELLS = 32
#: Shares of the canaries, the surest first, that one run guesses about; alpha is split among them.
GUESSES = (0.5, 1.0)
#: Thresholds tried for each score: quantiles of the pooled outputs.
THRESHOLDS = 400


@dataclass(frozen=True)
class Event:
    """A set of outputs: those whose score lies at or beyond a threshold.

    Args:
        score: names the score, ``"value 3"`` for the value of cell 3.
        threshold: where the event begins.
        above: whether it lies at or above the threshold, or at or below.
        swapped: whether it is likelier without the record than with it.
    """

    score: str
    threshold: float
    above: bool
    swapped: bool

    def count(self, scores: np.ndarray) -> int:
        """How many outputs fall into it."""
        side = scores >= self.threshold if self.above else scores <= self.threshold
        return int(side.sum())


@dataclass(frozen=True)
class Scores:
    """Turns outputs into named scalar scores; what it learns, it learns from a part of its own.

    Args:
        direction: in which the means differ, in units of the spread, shape (cells,).
        binary: whether the outputs are fractions, so that their low bits may say something.
    """

    direction: np.ndarray
    binary: bool

    @classmethod
    def learn(cls, one: np.ndarray, other: np.ndarray) -> Scores:
        """Learn from outputs on both inputs, shape (runs, cells) each."""
        spread = np.sqrt((one.var(axis=0) + other.var(axis=0)) / 2)
        safe = np.where(spread > 0, spread, 1.0)
        whole = all(bool((outputs == np.rint(outputs)).all()) for outputs in (one, other))
        return cls((one.mean(axis=0) - other.mean(axis=0)) / safe**2, not whole)

    def names(self) -> list[str]:
        """What it can score."""
        cells = range(min(len(self.direction), CELLS))
        named = [f"value {cell}" for cell in cells]
        if self.binary:
            named += [f"lowest bit {cell}" for cell in cells]
        return named if len(self.direction) == 1 else ["direction", *named]

    def score(self, name: str, outputs: np.ndarray) -> np.ndarray:
        """One score of every output, shape (runs,)."""
        if name == "direction":
            return np.asarray(outputs @ self.direction)
        kind, _, cell = name.rpartition(" ")
        values: np.ndarray = outputs[:, int(cell)]
        return values if kind == "value" else lowest_bit(values)


def lowest_bit(values: np.ndarray) -> np.ndarray:
    """Exponent of the lowest set bit of each number: the largest k such that 2^k divides it.

    Numbers on a dyadic grid of unit 2^-g have at least -g; zero counts as 1023.
    """
    mantissa, exponent = np.frexp(np.asarray(values, dtype=float))
    whole = np.abs(np.ldexp(mantissa, 53)).astype(np.int64)
    trailing = np.log2(np.maximum(whole & -whole, 1).astype(float))
    return np.where(whole == 0, 1023.0, exponent - 53 + trailing)


def audit_mechanism(
    with_record: Sampler,
    without_record: Sampler,
    claimed: float,
    *,
    delta: float = 0.0,
    trials: int = 100_000,
    alpha: float = 0.05,
    gaussian: bool = False,
    name: str = "mechanism",
) -> Finding:
    """Audit a mechanism on two neighbouring inputs.

    Args:
        with_record: gives outputs on one input.
        without_record: gives outputs on its neighbour.
        claimed: the epsilon that the mechanism claims, nats.
        delta: the claimed delta.
        trials: outputs in all, half of them under each input.
        alpha: how often an innocent mechanism may be convicted.
        gaussian: whether the noise is Gaussian, so that the far tighter Gaussian-DP inversion may be
            used (needs delta above 0, and means nothing for other noise).
        name: what the finding calls the mechanism.

    Returns:
        a finding whose value is the proven lower bound on epsilon, out of the claimed one;
        severity ``"breach"`` where the claim is refuted.
    """
    if not (claimed >= 0 and 0 <= delta < 1 and trials >= 100):
        raise InputError("an audit needs claimed >= 0, 0 <= delta < 1 and at least 100 trials")
    one, other = (_outputs(sample, trials // 2) for sample in (with_record, without_record))
    event, proven = prove(one, other, delta, alpha, gaussian)
    return _verdict(name, proven, claimed, delta, alpha, trials, event)


def prove(
    one: np.ndarray, other: np.ndarray, delta: float, alpha: float, gaussian: bool = False
) -> tuple[Event, float]:
    """The chosen event and the epsilon that the judging outputs prove by it.

    Outputs have shape (runs, cells). Outputs of one bit leave only the choice of a side: nothing
    need be held out for that, alpha is shared among the four choices and all outputs judge.
    """
    if one.dtype == bool and one.shape[1] == 1:
        return _single_bit(one, other, delta, alpha)
    parts = [_split(outputs) for outputs in (one, other)]
    scores = Scores.learn(*(chosen for chosen, _ in parts))
    event = max(
        (
            _choose(scores, name, [chosen for chosen, _ in parts], delta, alpha, gaussian)
            for name in scores.names()
        ),
        key=lambda candidate: candidate[1],
    )[0]
    judges = [scores.score(event.score, judging) for _, judging in parts]
    hits = [np.array([event.count(values)]) for values in judges]
    return event, float(_bound(event.swapped, hits, judges, delta, alpha, gaussian)[0])


def _split(outputs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    cut = max(1, int(len(outputs) * SELECTION))
    plain = outputs.astype(float)
    return plain[:cut], plain[cut:]


def _single_bit(
    one: np.ndarray, other: np.ndarray, delta: float, alpha: float
) -> tuple[Event, float]:
    choices = []
    for above, swapped in product((True, False), (False, True)):
        side = Event("value 0", 1.0 if above else 0.0, above, swapped)
        hits = [np.array([side.count(outputs[:, 0])]) for outputs in (one, other)]
        choices.append((side, float(_bound(swapped, hits, [one, other], delta, alpha / 4)[0])))
    return max(choices, key=lambda choice: choice[1])


def _choose(
    scores: Scores,
    name: str,
    outputs: list[np.ndarray],
    delta: float,
    alpha: float,
    gaussian: bool,
) -> tuple[Event, float]:
    """The event by one score with the greatest bound, each bound corrected for luck."""
    values = [scores.score(name, part) for part in outputs]
    tried = _thresholds(*values)
    luck = alpha / (4 * len(tried))
    choices = []
    for above, swapped in product((True, False), (False, True)):
        hits = [_counts(part, tried, above) for part in values]
        bounds = _bound(swapped, hits, values, delta, luck, gaussian)
        top = int(np.argmax(bounds))
        choices.append((Event(name, float(tried[top]), above, swapped), float(bounds[top])))
    return max(choices, key=lambda choice: choice[1])


def _thresholds(mine: np.ndarray, theirs: np.ndarray) -> np.ndarray:
    """Distinct quantiles of the pooled scores."""
    pooled = np.sort(np.concatenate([mine, theirs]))
    picked = np.linspace(0, len(pooled) - 1, min(len(pooled), THRESHOLDS)).astype(int)
    return np.unique(pooled[picked])


def _counts(values: np.ndarray, tried: np.ndarray, above: bool) -> np.ndarray:
    ordered = np.sort(values)
    if above:
        return np.asarray(len(ordered) - np.searchsorted(ordered, tried, side="left"))
    return np.asarray(np.searchsorted(ordered, tried, side="right"))


def _bound(
    swapped: bool,
    hits: list[np.ndarray],
    outputs: list[np.ndarray],
    delta: float,
    alpha: float,
    gaussian: bool = False,
) -> np.ndarray:
    """Bounds on epsilon by each of many events, from their counts among the two inputs' outputs."""
    order = (1, 0) if swapped else (0, 1)
    inside, outside = (hits[i] for i in order)
    trials, others = (len(outputs[i]) for i in order)
    if gaussian:
        return gdp_epsilon(outside, trials - inside, others, trials, delta, alpha)
    return epsilon_from_event(inside, outside, trials, others, delta, alpha)


def audit_one_run(
    included: np.ndarray,
    scores: np.ndarray,
    claimed: float,
    *,
    delta: float = 0.0,
    alpha: float = 0.05,
    name: str = "mechanism",
) -> Finding:
    """Audit one single release that holds many canaries (Steinke, Nasr and Jagielski 2023).

    Args:
        included: each canary's own fair coin: was it in? Shape (canaries,).
        scores: the auditor's score of each canary; larger says that it was in. Same shape.
        claimed: the epsilon that the mechanism claims, nats.
        delta: the claimed delta.
        alpha: how often an innocent mechanism may be convicted; shared among the numbers of guesses
            that are tried.
        name: what the finding calls the mechanism.
    """
    coins, values = np.asarray(included, bool), np.asarray(scores, float)
    if coins.ndim != 1 or coins.shape != values.shape or not np.isfinite(values).all():
        raise InputError("one run needs a coin and a finite score for each canary")
    canaries, levels = len(coins), np.unique(values)
    centred = values - (levels.mean() if len(levels) == 2 else np.median(values))
    surest = np.argsort(-np.abs(centred), kind="stable")
    right = np.cumsum((centred > 0)[surest] == coins[surest])
    shares = np.array([1.0] if len(levels) <= 2 else GUESSES)
    tried = np.unique(np.maximum(1, (canaries * shares).astype(int)))
    proven = [
        one_run_epsilon(canaries, int(r), int(right[r - 1]), delta, alpha / len(tried))
        for r in tried
    ]
    guesses = int(tried[int(np.argmax(proven))])
    found = _verdict(name, max(proven), claimed, delta, alpha, canaries, None)
    found.detail.update(canaries=canaries, guesses=guesses, right=int(right[guesses - 1]))
    return found


def _outputs(sample: Sampler, runs: int) -> np.ndarray:
    outputs = np.asarray(sample(runs))
    if len(outputs) != runs:
        raise InputError(f"the sampler gave {len(outputs)} outputs where {runs} were asked for")
    shaped = outputs.reshape(runs, -1)
    if shaped.dtype != bool and not np.isfinite(shaped.astype(float)).all():
        raise InputError("the sampler gave outputs that are not finite numbers")
    return shaped


def _verdict(
    name: str,
    proven: float,
    claimed: float,
    delta: float,
    alpha: float,
    trials: int,
    event: Event | None,
) -> Finding:
    detail: dict[str, object] = {"delta": delta, "confidence": 1 - alpha, "trials": trials}
    if event is not None:
        detail |= {"event": event.score, "threshold": event.threshold}
    return Finding(
        f"audit {name}",
        "Do the outputs contradict the epsilon that the mechanism claims?",
        "epsilon proven by the outputs, at least",
        proven,
        of=claimed,
        low=proven,
        baseline=0.0,
        severity="breach" if proven > claimed else "none",
        detail=detail,
        simulation=False,
    )
