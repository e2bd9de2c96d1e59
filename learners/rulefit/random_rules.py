"""Rules that no record had a say in: random trees over cut-offs that are already released.

They cost no budget. What they mean together is guessed from the released marginals alone, as if the
covariates were independent; a wrong guess slows learning down and changes no guarantee.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from privfed.learners.rulefit.cutoffs import Cutoffs
from privfed.learners.rulefit.rules import Terms

#: Records drawn from the product of the marginals.
SURROGATES = 4_000


def random_boxes(
    cutoffs: Cutoffs, trees: int, depth: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Grow completely random trees; every node but the root is a rule.

    Returns:
        boxes of cut-off codes without duplicates, uint8, shape (rules, features, 2), and the depth
        of each.
    """
    sizes = cutoffs.sizes
    whole = np.column_stack([np.zeros_like(sizes), sizes]).astype(np.uint8)
    grown: dict[bytes, tuple[np.ndarray, int]] = {}
    for _ in range(trees):
        level = [whole]
        for deep in range(1, depth + 1):
            level = [child for box in level for child in _split(box, rng)]
            grown.update({box.tobytes(): (box, deep) for box in level})
    boxes = [box for box, _ in grown.values()]
    depths = np.array([deep for _, deep in grown.values()], dtype=np.int64)
    return np.array(boxes, np.uint8).reshape(-1, len(sizes), 2), depths


def _split(box: np.ndarray, rng: np.random.Generator) -> list[np.ndarray]:
    """Cut a box at a random cut-off of a random covariate that still has one inside."""
    open_ = np.flatnonzero(box[:, 1].astype(int) - box[:, 0] > 1)
    if not len(open_):
        return []
    feature = int(rng.choice(open_))
    cut = int(rng.integers(int(box[feature, 0]) + 1, int(box[feature, 1])))
    left, right = box.copy(), box.copy()
    left[feature, 1], right[feature, 0] = cut, cut
    return [left, right]


@dataclass(frozen=True, eq=False)
class Surrogate:
    """Records made up from the marginals, for second moments that cost nothing.

    Args:
        x: made-up covariates, shape (records, features).
    """

    x: np.ndarray

    @classmethod
    def draw(
        cls,
        marginals: np.ndarray,
        values: tuple[np.ndarray, ...],
        rng: np.random.Generator,
        records: int = SURROGATES,
    ) -> Surrogate:
        """Draw each covariate on its own.

        Args:
            marginals: shares of each covariate's bins, rows adding up to one.
            values: the value that stands for each bin, by covariate.
            rng: the server's randomness.
            records: how many to make up.
        """
        columns = [
            own[np.searchsorted(np.cumsum(row[: len(own)])[:-1], rng.random(records))]
            for row, own in zip(marginals, values, strict=True)
        ]
        return cls(np.column_stack(columns))

    def moments(self, terms: Terms) -> tuple[np.ndarray, np.ndarray]:
        """Means and variances of the terms' columns, shape (1 + terms,) each."""
        design = terms.design(self.x)
        return design.mean(axis=0), design.var(axis=0)

    def curvature(self, terms: Terms, scales: np.ndarray, clip: float) -> np.ndarray:
        """Second moments of the scaled, clipped columns, shape (1 + terms, 1 + terms)."""
        design = terms.design(self.x) * scales
        norms = np.sqrt((design**2).sum(axis=1))
        factor = np.minimum(1, clip / np.maximum(norms, clip / 2))
        weighted = (design * np.sqrt(factor)[:, None]).astype(np.float32)
        moments: np.ndarray = (weighted.T @ weighted / len(design)).astype(float)
        return moments
