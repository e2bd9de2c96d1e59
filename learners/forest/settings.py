"""Fixed settings of the forest; see docs/tuning.md."""

from dataclasses import dataclass


@dataclass(frozen=True)
class ForestSettings:
    """FedForest's settings; limits of memory and rounding are where they are used."""

    max_quantiles: int = 64  #: maximum quantiles of a pair if a level has few pairs
    #: maximum total quantiles of a level with more than the requested ones
    max_quantile_cells: int = 80_000
    min_shown: int = 5  #: minimum records of a cell, or of a score, that nullification releases
    #: minimum records of a node per value of its sketch that nullification releases
    sparse_ratio: int = 4


SETTINGS = ForestSettings()
