"""Selection of terms by their exact gain in weighted least squares."""

from __future__ import annotations

import numpy as np
from scipy.linalg import cho_factor, cho_solve

SWAP_EVERY = 5  #: Number of terms after which all are swapped for better ones
MIN_GAIN = 1e-4  #: Gain of a swap, as a fraction of the lack of fit


class Selection:
    """Selects columns for weighted least squares, by the Gram matrix of centred columns and required signs."""

    def __init__(
        self, gram: np.ndarray, moment: np.ndarray, total: float, signs: np.ndarray
    ) -> None:
        self.gram, self.moment, self.total, self.signs = gram, moment, total, signs
        self.usable = (np.diag(gram) > 1e-9) & ~np.isnan(signs)

    def run(self, limit: int, tolerance: float) -> list[int]:
        """Return indices of at most ``limit`` columns, fewer if the lack of fit is within ``tolerance``."""
        chosen: list[int] = []
        for _ in range(2 * limit):  # with required signs, a term may be removed again
            if len(chosen) >= limit or not self.lack(chosen) > max(tolerance, 1e-9 * self.total):
                break
            best = self._best(chosen)
            if best is None:
                break
            chosen = self._drop_wrong([*chosen, best])
            if len(chosen) % SWAP_EVERY == 0:
                chosen = self._drop_wrong(self._swap(chosen))
        return self._drop_wrong(self._swap(chosen))

    def _drop_wrong(self, chosen: list[int]) -> list[int]:
        """Remove columns whose coefficients have the wrong sign, until none has."""
        while chosen and self.signs[chosen].any():
            root = cho_factor(self.gram[np.ix_(chosen, chosen)] + 1e-9 * np.eye(len(chosen)))
            right = self.signs[chosen] * cho_solve(root, self.moment[chosen]) >= 0
            if right.all():
                break
            chosen = [column for column, kept in zip(chosen, right, strict=True) if kept]
        return chosen

    def lack(self, chosen: list[int]) -> float:
        """Return the weighted mean square residual of the target given the chosen columns."""
        return self._residual(chosen)[0]

    def _residual(self, chosen: list[int]) -> tuple[float, np.ndarray]:
        """Return the lack of fit, and its decrease by each further column."""
        var, moment, residual = np.diag(self.gram).copy(), self.moment.copy(), self.total
        if chosen:
            cross = self.gram[chosen]
            root = cho_factor(cross[:, chosen] + 1e-9 * np.eye(len(chosen)))
            solved = cho_solve(root, np.column_stack([cross, self.moment[chosen]]))
            var -= (cross * solved[:, :-1]).sum(axis=0)
            moment -= solved[:, -1] @ cross
            residual -= float(self.moment[chosen] @ solved[:, -1])
        eligible = self.usable & (var > 1e-4 * np.diag(self.gram)) & ~(self.signs * moment < 0)
        gains = np.where(eligible, moment**2 / np.where(eligible, var, 1.0), 0.0)
        return residual, gains

    def _best(self, chosen: list[int]) -> int | None:
        gains = self._residual(chosen)[1]
        best = int(gains.argmax()) if len(gains) else 0
        return best if len(gains) and gains[best] > 0 else None

    def _swap(self, chosen: list[int]) -> list[int]:
        """Replace columns one by one by those that most lower the lack of fit, until none does."""
        chosen, improved, lack = list(chosen), bool(chosen), self.lack(chosen)
        while (
            improved and lack > 1e-9 * self.total
        ):  # the residual of an exact fit is rounding error, of either sign
            improved = False
            for index in range(len(chosen)):
                others = chosen[:index] + chosen[index + 1 :]
                residual, gains = self._residual(others)
                best = int(gains.argmax())
                if residual - gains[best] < lack * (1 - MIN_GAIN) and best not in others:
                    chosen[index], lack, improved = best, residual - float(gains[best]), True
        return chosen
