"""Audits of other packages' accountants: what they state of many releases, against exact composition; no data are read."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext, suppress
from fractions import Fraction
from functools import reduce
from itertools import combinations

import numpy as np
from scipy import stats

from privfed.attacks.finding import Finding
from privfed.errors import PolicyError, UnsupportedLoss
from privfed.privacy.accountant import STATED, Accountant, Amount
from privfed.privacy.conversion import gaussian_delta
from privfed.privacy.loss import Loss, foreign, pure_to_zcdp
from privfed.privacy.policy import Policy
from privfed.privacy.policy_objects import accountant_of

NAME = "audit of the stated composition"  #: Name of this audit's findings
#: Losses that an accountant may be given: pure, zCDP, approximate.
LOSSES = (
    Loss.pure("0.1"),
    Loss.pure("0.7"),
    Loss.zcdp("0.01"),
    Loss.zcdp("0.3"),
    Loss(epsilon=Fraction(1, 10), delta=Fraction(1, 10**7)),
    Loss(rho=Fraction(1, 100), delta=Fraction(1, 10**7)),
)
TIMES = (1, 2, 10, 100)  #: Numbers of releases for which guarantees are compared with the truth
#: Another delta at which odometers are tested, large enough for violations to show
STOPPED = Fraction(1, 100)
MOST = 8  #: Most losses of a plan that are tried beside :data:`LOSSES`
#: By which a stated delta may fall below the exact one: rounding, relative, and absolute near zero
RELATIVE, ABSOLUTE = 1e-6, 1e-12
#: Losses, each with a number of releases.
Composition = Sequence[tuple[Loss, int]]


def audit_composition(policy: Policy, losses: Iterable[Loss] = ()) -> list[Finding]:
    """Compare what another package's accountant states of many releases with their exact composition.

    Releases may have any mechanism of their losses, so a total that randomized response or Gaussian noise of these
    losses exceeds is false, whatever mechanisms a policy names.

    Args:
        policy: names the accountant.
        losses: of a plan's answers, tried beside :data:`LOSSES`.

    Returns:
        one finding, the number of false totals; none for an accountant of privfed's own.
    """
    accountant = accountant_of(policy)
    if not foreign(type(accountant)):
        return []
    budget = policy.budget
    delta = STATED if budget is None else budget.delta
    fixed = () if budget is None else (accountant.ceiling(budget),)
    tried, untrue, partial = 0, [], ""
    try:
        known = _composable(accountant, [*LOSSES, *_worst(losses)])
        for composition in compositions(known):
            tried += 1
            untrue += list(too_strong(accountant, composition, delta))[:1]
        for loss in known:
            told = stopped_too_strong(accountant, loss, delta, fixed)
            tried, untrue = tried + 1, untrue + [told] * bool(told)
    except Exception as error:  # noqa: BLE001  # a plugin's own, on constants: it ends no study
        partial = f"it failed with {type(error).__name__}"
    return [
        Finding(
            NAME,
            "Do the accountant's totals cover what its losses allow together?",
            "totals of releases that are stated too small",
            len(untrue),
            of=max(tried, 1),
            baseline=0.0,
            severity="breach" if untrue else "none",
            simulation=False,
            detail={"accountant": accountant.name, "untrue": untrue},
            partial=partial,
        )
    ]


def _worst(losses: Iterable[Loss]) -> list[Loss]:
    """Different losses as those of their worst mechanisms, without laws; the first :data:`MOST`."""
    worst = (
        Loss(
            loss.epsilon,
            loss.rho and pure_to_zcdp(loss.epsilon) if loss.epsilon is not None else loss.rho,
            loss.delta,
        )
        for loss in losses
        if loss.finite and not loss.nothing
    )
    return list(dict.fromkeys(worst))[:MOST]


def _composable(accountant: Accountant, losses: Sequence[Loss]) -> list[Loss]:
    known = []
    for loss in losses:
        with suppress(UnsupportedLoss):
            accountant.cost(loss)
            known.append(loss)
    return known


def compositions(losses: Sequence[Loss]) -> Iterator[Composition]:
    """Yield releases of one loss, and of two different ones, in several numbers."""
    for number in (1, 2):
        for times in TIMES:
            yield from ([(loss, times) for loss in each] for each in combinations(losses, number))


def total(accountant: Accountant, composition: Composition) -> Amount:
    """Sum of the releases' amounts."""
    each = (loss for loss, times in composition for _ in range(times))
    return reduce(accountant.add, each, accountant.nothing)


def too_strong(accountant: Accountant, composition: Composition, delta: Fraction) -> Iterator[str]:
    """Yield each guarantee of a composition that is false, in words: at a delta, and at 0.

    PolicyError, at 0 or for losses with a delta: the accountant states none there.
    """
    spent = total(accountant, composition)
    failing = any(loss.delta for loss, _ in composition)
    for requested in (Fraction(0), delta):
        with suppress(PolicyError) if failing or not requested else nullcontext():
            epsilon, stated = map(float, accountant.guarantee(spent, requested))
            true = composed_delta(composition, epsilon)
            if true > stated * (1 + RELATIVE) + ABSOLUTE:
                yield (
                    f"{in_words(composition)}: at epsilon {epsilon:.4g} delta is {true:.4g}, not {stated:.4g}: "
                    "the guarantee is too strong"
                )


def in_words(composition: Composition) -> str:
    """Format numbers of releases and their losses."""
    return " and ".join(
        f"{times} of {'rho' if loss.epsilon is None else 'epsilon'} "
        f"{float(loss.rho if loss.epsilon is None else loss.epsilon):g}"  # type: ignore[arg-type]
        + (f" at delta {float(loss.delta):g}" if loss.delta else "")
        for loss, times in composition
    )


def composed_delta(composition: Composition, epsilon: float) -> float:
    """Smallest delta at which releases of the worst mechanisms of their losses are (epsilon, delta)-DP together.

    Of an epsilon, randomized response (Kairouz et al. 2015, with a delta: it fails openly with that probability); of
    a rho, Gaussian noise. Randomized responses of one epsilon are true in a binomial number; the privacy losses of
    independent releases add up.
    """
    losses, probabilities = np.zeros(1), np.ones(1)
    rho = log_kept = 0.0
    for loss, times in composition:
        log_kept += times * math.log1p(-float(loss.delta))
        if loss.epsilon is None:
            rho += times * float(loss.rho or 0)
            continue
        single, truths = float(loss.epsilon), np.arange(times + 1)
        true = stats.binom.pmf(truths, times, 1 / (1 + math.exp(-single)))
        losses = np.add.outer(losses, single * (2 * truths - times)).ravel()
        probabilities = np.multiply.outer(probabilities, true).ravel()
    if rho:
        mu = math.sqrt(2 * rho)
        excess = np.array([gaussian_delta(mu, epsilon - each) for each in losses])
    else:
        excess = -np.expm1(np.minimum(epsilon - losses, 0))
    return float(-math.expm1(log_kept) + math.exp(log_kept) * (probabilities @ excess))


def stopped_too_strong(
    accountant: Accountant, loss: Loss, delta: Fraction, fixed: Sequence[Amount]
) -> str:
    """Return what is false of running totals of randomized responses, in words; empty if nothing is found.

    A server may stop by what it saw: with adaptive stopping, no composition better than the sum of epsilons holds in
    general (Rogers et al. 2016). The optimal stopping rule is computed.
    """
    if loss.epsilon is None or loss.delta:
        return ""
    totals = [total(accountant, [(loss, times)]) for times in range(1, TIMES[-1] + 1)]
    for checkpoints in dict.fromkeys([(), tuple(fixed)]):
        for requested in {delta or STATED, STOPPED}:
            pairs = [accountant.odometer(each, requested, checkpoints) for each in totals]
            stated = float(max(requested, *(at for _, at in pairs)))
            true = stopped_delta(float(loss.epsilon), [float(epsilon) for epsilon, _ in pairs])
            if true > stated * (1 + RELATIVE) + ABSOLUTE:
                return (
                    f"epsilon {float(pairs[-1][0]):.4g} of {TIMES[-1]} releases of epsilon {float(loss.epsilon):g} that "
                    f"may depend on each other is, of some rule for stopping, untrue at delta {true:.4g}, where "
                    f"{stated:.4g} is stated"
                )
    return ""


def stopped_delta(single: float, epsilons: Sequence[float]) -> float:
    """Smallest delta at which the epsilons stated after 1, 2, ... randomized responses hold under any stopping rule.

    E max(0, 1 - exp(stated - loss)) under the optimal stopping rule, by backward induction.

    Args:
        single: epsilon of one response.
        epsilons: stated after each response, in nats.
    """
    truth, gains = 1 / (1 + math.exp(-single)), [np.zeros(1)]
    for times, epsilon in enumerate(epsilons, 1):
        loss = single * (2 * np.arange(times + 1) - times)
        gains.append(-np.expm1(np.minimum(epsilon - loss, 0)))
    best = gains.pop()
    for gain in reversed(gains):
        best = np.maximum(gain, (1 - truth) * best[:-1] + truth * best[1:])
    return float(best[0])
