"""Constants of the best-first search and of what it lists; docs/tuning.md says what chose them."""

from dataclasses import dataclass
from fractions import Fraction


@dataclass(frozen=True)
class SearchSettings:
    """How a best-first search spends its budget, predicts supports, and chooses what to list."""

    spread: int = 1000  #: a first query costs at most 1 / spread of the whole budget
    expected: int = 400  #: guessed valid structures while the tree is partly unexplored
    coarser: float = 4.0  #: a subtree put off is next looked for with so many times fewer
    stand_out: float = 2.33  #: std above 0 at which an estimate is worth following
    certain: float = 3.0  #: std above nu N at which a structure is not asked about again
    max_epsilon: Fraction = Fraction(10)  #: no query is asked above it, nats: noise is nearly gone
    operator: float = 1.0  #: prior relative support of an operator, of its parent's holders
    atom: float = 0.1  #: the same of an atom
    completion: float = 0.15  #: the same of one more symbol on the way to a complete structure
    prior_weight: float = 1.0  #: weight of these priors, in exact observations
    parent_weight: float = 0.3  #: the same of the prior of one parent's children
    half_std: float = 0.1  #: std of a relative support at which an observation weighs half
    empty: float = 0.85  #: prior fraction of the listed structures that nobody holds
    empty_weight: float = 5.0  #: weight of that prior, in structures
    worthwhile: float = 1.3  #: times more valid structures that a long list must hold


DEFAULT = SearchSettings()
