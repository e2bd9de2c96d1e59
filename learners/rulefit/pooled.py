"""Moments of the terms over all clients, released or guessed."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from privfed.exchange.disclosure import Disclosure
from privfed.learners.rulefit.histograms import PooledHistogram
from privfed.learners.rulefit.queries import Supports
from privfed.learners.rulefit.rules import Terms
from privfed.learners.rulefit.spreads import ask_spreads


@dataclass(frozen=True, eq=False)
class Pooled:
    """Moments of the terms, shape (terms,), variances pooled within clients; a withheld support is NaN."""

    sizes: Mapping[str, float]
    means: np.ndarray
    variances: np.ndarray
    supports: np.ndarray

    def average(self, each: Mapping[str, np.ma.MaskedArray]) -> np.ndarray:
        """Average clients' vectors by their sizes, so that the objective is the pooled one."""
        usual = float(np.mean(list(self.sizes.values()))) if self.sizes else 1.0
        weights = np.array([self.sizes.get(client, usual) for client in each])
        vectors = np.array([np.asarray(vector) for vector in each.values()])
        return np.asarray(weights @ vectors / weights.sum())


def moments(terms: Terms, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Means and variances of the terms' columns over some records, shape (1 + terms,) each."""
    design = terms.design(x)
    return design.mean(axis=0), design.var(axis=0)


def ask_pooled(
    federation: Disclosure, terms: Terms, marginal: PooledHistogram, synthetic: np.ndarray
) -> Pooled:
    """Ask for supports, sizes and spreads; withheld ones are read off synthetic records and histograms."""
    rules, linear = len(terms.boxes), list(terms.linear)
    told = [own[linear] for own in marginal.linear_moments(federation.schema, terms.cutoffs)]
    answers = federation.ask_offered(Supports(terms)).only
    if "counts" not in answers:
        guessed = [own[1 : 1 + rules] for own in moments(terms, synthetic)]
        means, variances = map(np.concatenate, zip(guessed, told, strict=True))
        return Pooled(marginal.sizes, means, variances, np.full(rules, np.nan))
    sizes = {client: float(own[0]) for client, own in answers.each("size").items()}
    total = max(sum(sizes.values()), 1.0)
    supports = answers.total("counts") / total
    spread = ask_spreads(federation, terms.cutoffs, terms.linear, sizes, told[0])
    shares = {c: np.asarray(own) / max(sizes[c], 1) for c, own in answers.each("counts").items()}
    within = _within(shares, sizes, supports)
    variances = np.concatenate([within, told[1] if spread is None else spread])
    means = np.concatenate([supports, told[0]])
    return Pooled(sizes, means, variances, supports)


def _within(
    shares: Mapping[str, np.ndarray], sizes: Mapping[str, float], supports: np.ndarray
) -> np.ndarray:
    """Variances of the rules, pooled within clients; of all records where none has two of them."""
    freedom = sum(max(size - 1, 0) for size in sizes.values())
    if not freedom:
        return np.asarray(supports * (1 - supports))
    each = [shares[c] * (1 - shares[c]) * sizes[c] for c in shares]
    return np.asarray(np.sum(each, axis=0) / freedom)
