"""Audits of a mechanism from its outputs alone: what epsilon do they prove, at least?

Part of the outputs chooses the neighbouring inputs and a few rules that guess which of the two an
output came from; fresh outputs judge, and alpha is split among the rules. As many outputs come from
either input. A passed audit proves nothing; a failed one convicts, wrongly at most with probability
alpha.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from privfed.attacks.finding import Finding
from privfed.audits.test_statistics import Truths, scores
from privfed.audits.threshold_tests import Claim, Rule, choose, judge
from privfed.audits.verdict import verdict
from privfed.errors import InputError

#: Gives outputs of the mechanism on one fixed input, shape (runs,) or (runs, cells).
Sampler = Callable[[int], np.ndarray]

#: Share of the outputs that choose; the rest judge.
SELECTION = 0.2


@dataclass(frozen=True)
class Move:
    """Two neighbouring inputs of a mechanism.

    Args:
        name: says what one record moves.
        present: gives outputs on the input with the record.
        absent: gives outputs on the input without it.
        truths: what the two inputs hold, or none where nobody knows.
    """

    name: str
    present: Sampler
    absent: Sampler
    truths: Truths | None = None

    def outputs(self, runs: int) -> tuple[np.ndarray, np.ndarray]:
        """Outputs with and without the record, half of them each."""
        half = runs // 2
        return _outputs(self.present, half), _outputs(self.absent, half)


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
    moves = (Move("", with_record, without_record),)
    return audit_moves(
        moves, Claim(claimed, delta, gaussian), trials=trials, alpha=alpha, name=name
    )


def audit_moves(
    moves: Sequence[Move],
    claim: Claim,
    *,
    trials: int,
    alpha: float = 0.05,
    name: str = "mechanism",
) -> Finding:
    """Audit a mechanism on the worst of several pairs of neighbouring inputs.

    A fifth of the outputs is spread over the moves and chooses one of them, and the rules; all
    others are drawn under that move and judge. The first move is the one unless another already
    proves more than the claim, for what tells honest noise apart best is chance.

    Args:
        moves: pairs of neighbouring inputs, the worst for honest noise first.
        claim: what the mechanism claims of each of them.
        trials: outputs in all.
        alpha: how often an innocent mechanism may be convicted.
        name: what the finding calls the mechanism.
    """
    if not trials >= 100 or not moves:
        raise InputError("an audit needs a pair of neighbouring inputs and at least 100 trials")
    each = max(10, int(trials * SELECTION) // len(moves))
    drawn = [move.outputs(each) for move in moves]
    told = [
        choose(scores(*outputs, move.truths), *outputs, claim, alpha)
        for move, outputs in zip(moves, drawn, strict=True)
    ]
    best = int(np.argmax([strength for _, strength in told]))
    if claim.proven(told[best][1]) <= claim.epsilon:
        best = 0
    fresh = moves[best].outputs(trials - each * len(moves))
    rule, proven = judge(told[best][0], *fresh, claim, alpha)
    detail = _detail(claim, alpha, trials, rule, moves[best].name)
    return verdict(name, proven, claim.epsilon, detail)


def audit_outputs(
    present: np.ndarray,
    absent: np.ndarray,
    *,
    claim: Claim,
    alpha: float = 0.05,
    name: str = "mechanism",
) -> Finding:
    """Audit outputs that are there already, as many under either input, or each by a fair coin.

    Args:
        present: outputs with the record, shape (runs,) or (runs, cells).
        absent: outputs without it.
        claim: what the mechanism claims.
        alpha: how often an innocent mechanism may be convicted.
        name: what the finding calls the mechanism.
    """
    both = [_shaped(outputs) for outputs in (present, absent)]
    if min(map(len, both)) < 10:
        raise InputError("an audit needs at least 10 outputs under each input")
    cuts = [int(len(outputs) * SELECTION) for outputs in both]
    one, other = (outputs[:cut] for outputs, cut in zip(both, cuts, strict=True))
    rules, _ = choose(scores(one, other), one, other, claim, alpha)
    one, other = (outputs[cut:] for outputs, cut in zip(both, cuts, strict=True))
    rule, proven = judge(rules, one, other, claim, alpha)
    return verdict(name, proven, claim.epsilon, _detail(claim, alpha, sum(map(len, both)), rule))


def _outputs(sample: Sampler, runs: int) -> np.ndarray:
    outputs = np.asarray(sample(runs))
    if len(outputs) != runs:
        raise InputError(f"the sampler gave {len(outputs)} outputs where {runs} were asked for")
    return _shaped(outputs)


def _shaped(outputs: np.ndarray) -> np.ndarray:
    """Outputs as floats, shape (runs, cells)."""
    plain = np.asarray(outputs).reshape(len(outputs), -1).astype(float)
    if not np.isfinite(plain).all():
        raise InputError("the sampler gave outputs that are not finite numbers")
    return plain


def _detail(
    claim: Claim, alpha: float, trials: int, rule: Rule, move: str = ""
) -> dict[str, object]:
    return {
        **({"move": move} if move else {}),
        "delta": claim.delta,
        "confidence": 1 - alpha,
        "trials": trials,
        "event": rule.score.name,
        "threshold": rule.threshold,
    }
