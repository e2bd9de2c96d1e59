"""Rényi curves of a schedule fixed in advance: for zCDP losses whose law is not known.

The Rényi divergence of order alpha of composed releases is the sum of theirs (Mironov 2017,
Proposition 1), converted to (epsilon, delta) by Canonne, Kamath and Steinke 2020, Proposition 12.
"""

from collections import Counter
from collections.abc import Iterable

import numpy as np

from privfed.errors import UnsupportedLoss
from privfed.privacy.laws import pure_renyi
from privfed.privacy.loss import Loss

ORDERS = 1 + np.geomspace(1e-2, 1e4, 400)  #: Orders of a curve; every order gives a valid bound


def curve(loss: Loss) -> np.ndarray:
    """Return the Rényi divergence of one release at every order (UnsupportedLoss: finite at none)."""
    if not loss.finite or loss.delta:
        raise UnsupportedLoss("a release with a delta of its own has no Rényi curve")
    stated = np.full(ORDERS.shape, np.inf)
    if loss.rho is not None:
        stated = float(loss.rho) * ORDERS
    if loss.epsilon is not None:
        stated = np.minimum(stated, pure_renyi(float(loss.epsilon), ORDERS))
    if loss.laws:
        stated = np.minimum(stated, sum(c.law.renyi(c.units, ORDERS) for c in loss.laws))
    return stated


def epsilon_at(losses: Iterable[Loss], delta: float) -> float:
    """Return the smallest epsilon at a delta over all orders; 0 for no releases."""
    total = np.zeros(ORDERS.shape)
    for loss, times in Counter(losses).items():
        total = total + times * curve(loss)
    if not total.any():
        return 0.0
    inner = np.log(1 / delta) - np.log(ORDERS)
    return max(0.0, float(np.min(total + inner / (ORDERS - 1) + np.log1p(-1 / ORDERS))))
