"""Each tree's sample of a client's records, by secret draws that never leave the client."""

from dataclasses import dataclass
from math import exp, factorial

import numpy as np

from privfed.errors import QueryError
from privfed.questions.query import View

WAYS = ("bootstrap", "poisson", "split", "all")  #: Ways of sampling records for trees
CAP = 4  #: Maximum repeats of a record in one tree by its coin: Poisson(1) exceeds it with probability .0037


@dataclass(frozen=True, eq=False)
class Sampling:
    """How records are sampled for each tree.

    - ``bootstrap`` draws as many as there are, with replacement, from the client's secret stream: the
      client-stratified bootstrap of the paper's Section 4. A record more or less shifts every later
      draw, so that no sensitivity is finite.
    - ``poisson`` repeats a record by its own secret coin, 0 to :data:`CAP` times, as a truncated
      Poisson(1) count, the limit of a bootstrap: no other record's count depends on it.
    - ``split`` gives each record to one tree of the forest, by its own coin.
    - ``all`` gives every tree every record once.
    """

    way: str  #: one of :data:`WAYS`
    label: int  #: public name of the draw, so that two forests draw differently
    trees: np.ndarray  #: trees' indices in the forest, one per root of the query
    forest: int  #: number of trees of the forest

    def check(self, roots: int) -> None:
        """Check for a known way and one index per root (else QueryError)."""
        if self.way not in WAYS:
            raise QueryError("malformed", f"records are sampled by one of {', '.join(WAYS)}")
        if self.trees.shape != (roots,) or self.trees.dtype.kind != "i":
            raise QueryError("malformed", "every tree needs a number")
        if self.trees.min() < 0 or self.trees.max() >= self.forest:
            raise QueryError("malformed", "a tree's number is not below the forest's size")
        if (np.diff(self.trees) <= 0).any():
            raise QueryError("false-partition", "trees ascend, each listed once")

    def repeats(self, trees: int) -> int | None:
        """Return the maximum instances of a record in ``trees`` trees, if independent of other records; else None."""
        return {"bootstrap": None, "poisson": CAP * trees, "split": 1, "all": trees}[self.way]

    def rows(self, view: View, tree: int) -> np.ndarray:
        """Return the records of one tree, repeated as drawn, shape (instances,)."""
        records, number = len(view.table), int(self.trees[tree])
        if self.way == "all" or not records:
            return np.arange(records, dtype=np.int32)
        if self.way == "bootstrap":
            rng = view.rng(f"forest.bootstrap {self.label} {number}")
            return rng.integers(0, records, records, dtype=np.int32)
        if self.way == "split":
            coins = view.coins(f"forest.split {self.label}")
            return np.flatnonzero(coins % np.uint64(self.forest) == number).astype(np.int32)
        coins = view.coins(f"forest.poisson {self.label} {number}")
        repeats = np.searchsorted(_POISSON, coins, side="right")
        return np.repeat(np.arange(records, dtype=np.int32), repeats)


def instances(records: int, way: str) -> int:
    """Return the mean instances in one tree of ``records`` distinct ones: a drawn record occurs 1 / (1 - 1/e) times.

    Counts are of instances, scikit-learn's ``min_samples_leaf`` is of records.
    """
    repeated = way in ("bootstrap", "poisson") and records > 1
    return round(records / (1 - exp(-1))) if repeated else records


#: Coins from the k-th of these on have a count above k: P(count <= k) of 2^64.
_POISSON = np.array(
    [int(sum(exp(-1) / factorial(j) for j in range(k + 1)) * 2**64) for k in range(CAP)], np.uint64
)
