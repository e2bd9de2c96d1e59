"""The privacy loss of DP-SGD (sampled records, clipped gradients, Gaussian noise), from its settings.

Each step takes every record with a probability q and adds Gaussian noise of sigma clips to the sum of their clipped
gradients (Abadi et al. 2016). Adding or removing a record is dominated by the pair P = (1 - q) N(0, sigma^2) + q N(1,
sigma^2) against Q = N(0, sigma^2), T steps by T independent ones (Zhu, Dong and Wang 2022).
"""

from fractions import Fraction
from functools import lru_cache

import numpy as np
from dp_accounting.pld.privacy_loss_distribution import from_gaussian_mechanism
from scipy.special import logsumexp

from privfed.errors import InputError
from privfed.questions.exact import round_up

#: Orders at which the divergence is computed. It increases with the order, so that the ratio between two orders is at
#: most the upper one's divergence over the lower order.
ORDERS = 1 + np.geomspace(1e-3, 1e5, 600)
STEPS, SPREADS = 30, 1000  #: Grid points per typical loss of one step, and of all steps
ROUNDING = 1e-12  #: Bound on the transforms' rounding error in a tail's total mass


@lru_cache(maxsize=64)
def sampled_gaussian(noise: float, rate: float, steps: int, delta: float) -> tuple[Fraction, float]:
    """Return T steps' rho of delta-approximate rho-zCDP, rounded up, and their epsilon at delta.

    Composed on a grid of losses that dominates the pair (Doroshenko et al. 2022). Let E be the losses from l to h, with
    P(L > h) <= delta / 2 and Q(L < l) <= delta / 2. As l <= 0 <= h, P(L < l) <= Q(L < l) and Q(L > h) <= P(L > h), so
    that E fails under either with at most delta, and rho is the largest divergence of order alpha over alpha, in either
    direction, of both given E: delta-approximate zCDP by definition (Bun and Steinke 2016, Definition 8.1), which
    post-processing preserves. Beyond the last order a divergence is at most the largest loss.

    Masses have an absolute error of about 1e-17. So P's are taken from P's composition where the loss is not negative,
    Q's from Q's where it is negative, and the other's are e^-|loss| times as large: both come from the same points of
    the same curve, as H(Q, P) at 1 / x is 1 - 1 / x + H(P, Q) at x, over x.
    """
    std = rate / noise
    width = max(1e-6, min(std / STEPS, std * np.sqrt(steps) / SPREADS))
    composed = from_gaussian_mechanism(
        noise, value_discretization_interval=width, sampling_prob=rate
    ).self_compose(steps)
    taken, added = composed._pmf_remove.to_dense_pmf(), composed._pmf_add.to_dense_pmf()
    gains, falls = (x._lower_loss + np.arange(x.size) for x in (taken, added))
    losses = width * np.append(-falls[falls > 0][::-1], gains[gains >= 0])
    larger = np.append(
        np.asarray(added._probs)[falls > 0][::-1], np.asarray(taken._probs)[gains >= 0]
    )
    p, q = larger * np.exp(np.minimum(losses, 0.0)), larger * np.exp(-np.maximum(losses, 0.0))
    above = taken._infinity_mass + np.append(np.cumsum(p[::-1])[::-1][1:], 0.0)
    below = added._infinity_mass + np.append(0.0, np.cumsum(q)[:-1])
    tail = delta / 2 - ROUNDING
    if not (below.min() <= tail and above.min() <= tail):
        raise InputError(
            f"training: delta {delta:g} is below the precision of this accounting; write 1e-9 or more"
        )
    low = min(np.flatnonzero(below <= tail)[-1], np.searchsorted(losses, 0.0))
    high = max(np.flatnonzero(above <= tail)[0], np.searchsorted(losses, 0.0))
    kept = np.arange(low, high + 1)[p[low : high + 1] > 0]
    one, other = np.log(p[kept] / p[kept].sum()), np.log(q[kept] / q[kept].sum())
    rho = max(_ratio(one, other), _ratio(other, one))
    return round_up(rho * (1 + 1e-6)), composed.get_epsilon_for_delta(delta)


def _ratio(log_p: np.ndarray, log_q: np.ndarray) -> float:
    """Return the largest Renyi divergence over its order, from log-masses on the same points."""
    divergences = np.array([logsumexp(a * log_p + (1 - a) * log_q) / (a - 1) for a in ORDERS])
    between = divergences[1:] / ORDERS[:-1]
    return float(max(divergences[0], between.max(), (log_p - log_q).max() / ORDERS[-1]))
