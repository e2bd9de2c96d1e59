"""Numbers that the forest's behaviour depends on and that nobody has to choose; see docs/tuning.md."""

from dataclasses import dataclass


@dataclass(frozen=True)
class ForestSettings:
    """FedForest's settings; limits of memory and rounding stand where they are used."""

    max_quantiles: int = 64  #: most quantiles of a pair where a level has few pairs
    #: most quantiles in all of a level that gets more than the user asked for
    max_quantile_cells: int = 80_000
    min_shown: int = 5  #: fewest records of a cell, or of a score, that nullification lets out
    #: fewest records of a node for each value of its sketch that nullification lets out
    sparse_ratio: int = 4


SETTINGS = ForestSettings()
