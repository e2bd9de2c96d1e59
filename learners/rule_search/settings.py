"""Fixed settings of the best-first search and of its lists; see docs/tuning.md."""

from dataclasses import dataclass
from fractions import Fraction


@dataclass(frozen=True)
class SearchSettings:
    """Settings of spending, of support prediction, and of the choice of listed structures."""

    spread: int = 1000  #: a first query costs at most 1 / spread of the whole budget
    expected: int = 400  #: prior number of valid structures while the tree is partly unexplored
    coarser: float = 4.0  #: factor by which a postponed subtree's required holders decrease
    stand_out: float = 2.33  #: std above 0 at which an estimate is significant
    certain: float = 3.0  #: std above nu N at which a structure is not queried again
    max_epsilon: Fraction = Fraction(10)  #: maximum of a query, nats: nearly without noise
    operator: float = 1.0  #: prior relative support of an operator, of its parent's holders
    atom: float = 0.1  #: the same of an atom
    completion: float = 0.15  #: the same of one more symbol on the way to a complete structure
    prior_weight: float = 1.0  #: weight of these priors, in exact observations
    parent_weight: float = 0.3  #: the same of the prior of one parent's children
    half_std: float = 0.1  #: std of a relative support at which an observation has half weight
    empty: float = 0.85  #: prior fraction of listed structures without holders
    empty_weight: float = 5.0  #: weight of that prior, in structures
    worthwhile: float = 1.3  #: required factor of valid structures in a long list


DEFAULT = SearchSettings()
