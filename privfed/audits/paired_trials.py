"""Audits of a mechanism from its outputs on two neighbouring inputs.

A fifth of the outputs chooses the neighbouring inputs and a few decision rules that guess an output's
input; the other outputs evaluate them, and alpha is split among the rules. A passed audit proves
nothing; a failed one rejects the claim, wrongly with probability at most alpha.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from privfed.attacks.finding import Finding
from privfed.audits.bounds import verdict
from privfed.audits.test_statistics import Truths, statistics
from privfed.audits.threshold_tests import (
    DecisionRule,
    PrivacyClaim,
    choose,
    judge,
    largest_strength,
)
from privfed.errors import InputError

#: Returns outputs of the mechanism on one fixed input, shape (runs,) or (runs, cells).
Sampler = Callable[[int], np.ndarray]

SELECTION = 0.2  #: Fraction of the outputs for choosing; the rest evaluate
FINALISTS = 4  #: Most moves that are compared on more outputs


@dataclass(frozen=True)
class Move:
    """Two neighbouring inputs: name of the move, samplers with and without the record, the exact values."""

    name: str
    present: Sampler
    absent: Sampler
    truths: Truths | None = None

    def outputs(self, runs: int) -> tuple[np.ndarray, np.ndarray]:
        """Outputs with and without the record, half of them each."""
        arms = []
        for sample in (self.present, self.absent):
            outputs = np.asarray(sample(runs // 2))
            if len(outputs) != runs // 2:
                given, half = len(outputs), runs // 2
                raise InputError(f"the sampler gave {given} outputs where {half} were asked for")
            arms.append(_as_cells(outputs))
        return arms[0], arms[1]


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
        with_record, without_record: return outputs on either input.
        claimed: the claimed epsilon, nats.
        delta: the claimed delta.
        trials: outputs in all, half of them under each input.
        alpha: probability of rejecting a correct mechanism's claim.
        gaussian: whether the noise is Gaussian, so that the far tighter Gaussian-DP inversion may be
            used (needs delta above 0, and is invalid for other noise).
        name: of the mechanism in the finding.

    Returns:
        a finding whose value is the proven lower bound on epsilon, out of the claimed one;
        severity ``"breach"`` if the claim is refuted.
    """
    moves = (Move("", with_record, without_record),)
    claim = PrivacyClaim(claimed, delta, gaussian)
    return audit_moves(moves, claim, trials=trials, alpha=alpha, name=name)


def audit_moves(
    moves: Sequence[Move],
    claim: PrivacyClaim,
    *,
    trials: int,
    alpha: float = 0.05,
    name: str = "mechanism",
) -> Finding:
    """Audit a mechanism on the worst of several pairs of neighbouring inputs.

    A fifth of the outputs is divided among the moves, and of many moves as much again among the first
    and the few that seem worst; all others are drawn under the chosen move. The first move is chosen
    unless another already proves more than the claim, since for correct noise the others' strengths are chance.

    Args:
        moves: pairs of neighbouring inputs, the worst for correct noise first.
        claim: the mechanism's claim, for each of them.
        trials, alpha, name: as in :func:`audit_mechanism`.
    """
    if not trials >= 100 or not moves:
        raise InputError("an audit needs a pair of neighbouring inputs and at least 100 trials")
    runs = max(20, int(trials * SELECTION) // len(moves))
    remaining, drawn = trials - runs * len(moves), [(move, move.outputs(runs)) for move in moves]
    if len(moves) > FINALISTS:
        others = 1 + np.argsort(-_strengths(drawn[1:], claim), kind="stable")[: FINALISTS - 1]
        runs = max(20, int(trials * SELECTION) // FINALISTS)
        remaining -= runs * FINALISTS
        drawn = [_extend(drawn[index], runs) for index in (0, *others)]
    strengths = _strengths(drawn, claim)
    best = int(np.argmax(strengths))
    worst, outputs = drawn[best if claim.proven(float(strengths[best])) > claim.epsilon else 0]
    rules = choose(statistics(*outputs, worst.truths), *outputs, claim, alpha)
    return _finding(rules, worst.outputs(remaining), claim, alpha, trials, name, worst.name)


#: A move, and outputs with and without the record.
Drawn = tuple[Move, tuple[np.ndarray, np.ndarray]]


def _extend(known: Drawn, runs: int) -> Drawn:
    move, outputs = known
    present, absent = (
        np.concatenate(arms) for arms in zip(outputs, move.outputs(runs), strict=True)
    )
    return move, (present, absent)


def _strengths(drawn: Sequence[Drawn], claim: PrivacyClaim) -> np.ndarray:
    """The strength of each move's best rule, at a level at which it is rarely above 0 by chance."""
    return np.array(
        [
            largest_strength(statistics(*outputs, move.truths), *outputs, claim, 1.0)
            for move, outputs in drawn
        ]
    )


def audit_outputs(
    present: np.ndarray,
    absent: np.ndarray,
    *,
    claim: PrivacyClaim,
    alpha: float = 0.05,
    name: str = "mechanism",
) -> Finding:
    """Audit given outputs, as many under either input, or each by a fair coin.

    Other arguments as in :func:`audit_moves`.

    Args:
        present, absent: outputs with and without the record, shape (runs,) or (runs, cells).
    """
    both = [_as_cells(outputs) for outputs in (present, absent)]
    if min(map(len, both)) < 10:
        raise InputError("an audit needs at least 10 outputs under each input")
    sizes = [int(len(outputs) * SELECTION) for outputs in both]
    first, second = (outputs[:size] for outputs, size in zip(both, sizes, strict=True))
    rules = choose(statistics(first, second), first, second, claim, alpha)
    first, second = (outputs[size:] for outputs, size in zip(both, sizes, strict=True))
    return _finding(rules, (first, second), claim, alpha, sum(map(len, both)), name)


def _as_cells(outputs: np.ndarray) -> np.ndarray:
    """Outputs as floats, shape (runs, cells)."""
    values = np.asarray(outputs).reshape(len(outputs), -1).astype(float)
    if not np.isfinite(values).all():
        raise InputError("the sampler gave outputs that are not finite numbers")
    return values


def _finding(
    rules: Sequence[DecisionRule],
    fresh: tuple[np.ndarray, np.ndarray],
    claim: PrivacyClaim,
    alpha: float,
    trials: int,
    name: str,
    move: str = "",
) -> Finding:
    rule, proven = judge(rules, *fresh, claim, alpha)
    detail: dict[str, object] = {
        **({"move": move} if move else {}),
        "delta": claim.delta,
        "confidence": 1 - alpha,
        "trials": trials,
        "event": rule.statistic.name,
        "threshold": rule.threshold,
    }
    return verdict(name, proven, claim.epsilon, detail)
