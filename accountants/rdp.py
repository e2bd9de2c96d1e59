"""Rényi curves of a schedule fixed in advance: for zCDP losses whose law is not known.

The Rényi divergence of order alpha of composed releases is the sum of theirs (Mironov 2017,
Proposition 1), and becomes (epsilon, delta) by Canonne, Kamath and Steinke 2020, Proposition 12.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from fractions import Fraction

import numpy as np

from privfed.errors import UnsupportedLoss
from privfed.privacy.loss import Law, Loss

#: Orders at which curves are added up; any order gives a valid figure.
ORDERS = 1 + np.geomspace(1e-2, 1e4, 400)


def curve(loss: Loss) -> np.ndarray:
    """The Rényi divergence of one release at every order, shape (orders,).

    Raises:
        UnsupportedLoss: no finite guarantee of any order.
    """
    if not loss.finite or loss.delta:
        raise UnsupportedLoss("a release with a delta of its own has no Rényi curve")
    stated = np.full(ORDERS.shape, np.inf)
    if loss.rho is not None:
        stated = float(loss.rho) * ORDERS
    if loss.epsilon is not None:
        stated = np.minimum(stated, _pure(float(loss.epsilon)))
    if loss.laws:
        stated = np.minimum(stated, sum(_of(law) for law in loss.laws))
    return stated


def _pure(epsilon: float) -> np.ndarray:
    """Of randomized response, which dominates every pure loss (Mironov 2017, Proposition 5)."""
    if epsilon == 0:
        return np.zeros(ORDERS.shape)
    truth, lie = -np.log1p(math.exp(-epsilon)), -np.log1p(math.exp(epsilon))
    one = ORDERS * truth + (1 - ORDERS) * lie
    other = ORDERS * lie + (1 - ORDERS) * truth
    return np.asarray(np.logaddexp(one, other) / (ORDERS - 1))


def _of(law: Law) -> np.ndarray:
    name, first, second = law
    if name == "gaussian":
        return ORDERS * float(Fraction(int(first)) / Fraction(second) ** 2 / 2)
    if name == "laplace":  # discrete noise of coarse steps may cost as much as any pure loss
        return _pure(int(first) / float(second))
    if name == "randomized-response":
        flip = Fraction(first)
        return int(second) * _pure(math.log((1 - flip) / flip))
    return np.full(ORDERS.shape, np.inf)


def epsilon_at(losses: Iterable[Loss], delta: float) -> float:
    """The least epsilon at a delta over all orders; zero for no releases.

    Raises:
        UnsupportedLoss: see :func:`curve`.
    """
    total = np.zeros(ORDERS.shape)
    for loss, times in Counter(losses).items():
        total = total + times * curve(loss)
    if not total.any():
        return 0.0
    inner = np.log(1 / delta) - np.log(ORDERS)
    return max(0.0, float(np.min(total + inner / (ORDERS - 1) + np.log1p(-1 / ORDERS))))
