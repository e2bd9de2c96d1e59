"""Audits of a mechanism from its outputs on two neighbouring inputs.

A fifth of the outputs chooses the neighbouring inputs and a few decision rules that guess which of
the two an output came from; the other outputs judge, and alpha is split among the rules. A passed
audit proves nothing; a failed one convicts, wrongly at most with probability alpha.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from privfed.attacks.finding import Finding
from privfed.audits.bounds import verdict
from privfed.audits.test_statistics import Truths, statistics
from privfed.audits.threshold_tests import DecisionRule, PrivacyClaim, choose, judge
from privfed.errors import InputError

#: Gives outputs of the mechanism on one fixed input, shape (runs,) or (runs, cells).
Sampler = Callable[[int], np.ndarray]

SELECTION = 0.2  #: Fraction of the outputs that choose; the rest judge
FINALISTS = 4  #: Most moves among which more outputs choose


@dataclass(frozen=True)
class Move:
    """Two neighbouring inputs: what one record moves, samplers with and without it, their truths."""

    name: str
    present: Sampler
    absent: Sampler
    truths: Truths | None = None

    def outputs(self, runs: int) -> tuple[np.ndarray, np.ndarray]:
        """Outputs with and without the record, half of them each."""
        found = []
        for sample in (self.present, self.absent):
            outputs = np.asarray(sample(runs // 2))
            if len(outputs) != runs // 2:
                given, wanted = len(outputs), runs // 2
                raise InputError(f"the sampler gave {given} outputs where {wanted} were asked for")
            found.append(_shaped(outputs))
        return found[0], found[1]


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
        with_record, without_record: give outputs on either input.
        claimed: the claimed epsilon, nats.
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

    A fifth of the outputs is spread over the moves, and where these are many as much again over the first
    and the few that seem worst; all others are drawn under the chosen move. The first move is chosen
    unless another already proves more than the claim, for what tells honest noise apart best is chance.

    Args:
        moves: pairs of neighbouring inputs, the worst for honest noise first.
        claim: what the mechanism claims of each of them.
        trials, alpha, name: as in :func:`audit_mechanism`.
    """
    if not trials >= 100 or not moves:
        raise InputError("an audit needs a pair of neighbouring inputs and at least 100 trials")
    each = max(20, int(trials * SELECTION) // len(moves))
    left, drawn = trials - each * len(moves), [(move, move.outputs(each)) for move in moves]
    if len(moves) > FINALISTS:
        others = 1 + np.argsort(-_hopes(drawn[1:], claim), kind="stable")[: FINALISTS - 1]
        each = max(20, int(trials * SELECTION) // FINALISTS)
        left -= each * FINALISTS
        drawn = [_more(drawn[at], each) for at in (0, *others)]
    hopes = _hopes(drawn, claim)
    best = int(np.argmax(hopes))
    worst, outputs = drawn[best if claim.proven(float(hopes[best])) > claim.epsilon else 0]
    rules, _ = choose(statistics(*outputs, worst.truths), *outputs, claim, alpha)
    return _judged(rules, worst.outputs(left), claim, alpha, trials, name, worst.name)


#: A move, and outputs with and without the record.
Drawn = tuple[Move, tuple[np.ndarray, np.ndarray]]


def _more(known: Drawn, each: int) -> Drawn:
    move, outputs = known
    one, other = (np.concatenate(arms) for arms in zip(outputs, move.outputs(each), strict=True))
    return move, (one, other)


def _hopes(drawn: Sequence[Drawn], claim: PrivacyClaim) -> np.ndarray:
    """The strength of each move's best rule, at a level at which chance alone rarely has any."""
    each = (
        choose(statistics(*outputs, move.truths), *outputs, claim, 1.0) for move, outputs in drawn
    )
    return np.array([strength for _, strength in each])


def audit_outputs(
    present: np.ndarray,
    absent: np.ndarray,
    *,
    claim: PrivacyClaim,
    alpha: float = 0.05,
    name: str = "mechanism",
) -> Finding:
    """Audit outputs that are there already, as many under either input, or each by a fair coin.

    Other arguments as in :func:`audit_moves`.

    Args:
        present, absent: outputs with and without the record, shape (runs,) or (runs, cells).
    """
    both = [_shaped(outputs) for outputs in (present, absent)]
    if min(map(len, both)) < 10:
        raise InputError("an audit needs at least 10 outputs under each input")
    sizes = [int(len(outputs) * SELECTION) for outputs in both]
    one, other = (outputs[:size] for outputs, size in zip(both, sizes, strict=True))
    rules, _ = choose(statistics(one, other), one, other, claim, alpha)
    one, other = (outputs[size:] for outputs, size in zip(both, sizes, strict=True))
    return _judged(rules, (one, other), claim, alpha, sum(map(len, both)), name)


def _shaped(outputs: np.ndarray) -> np.ndarray:
    """Outputs as floats, shape (runs, cells)."""
    values = np.asarray(outputs).reshape(len(outputs), -1).astype(float)
    if not np.isfinite(values).all():
        raise InputError("the sampler gave outputs that are not finite numbers")
    return values


def _judged(
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
