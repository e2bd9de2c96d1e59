"""Fixed settings of genetic trees; see docs/tuning.md."""

from dataclasses import dataclass
from fractions import Fraction

from privfed.learners.genetic_tree.fitness import SelectionRule


@dataclass(frozen=True)
class GeneticTreeSettings:
    """The genetic tree's settings; limits of memory and rounding are where they are used."""

    #: fraction of rho for all rounds of feature cells, for classes
    cells_budget: Fraction = Fraction(15, 100)
    number_cells_budget: Fraction = Fraction(10, 100)  #: the same for a numeric target
    #: fraction of rho for all rounds of a numeric target's cells
    target_budget: Fraction = Fraction(10, 100)
    root_budget: Fraction = Fraction(20, 100)  #: fraction of rho for the root's counts
    #: fraction of rho for the leaves' totals; the levels between share the rest
    leaves_budget: Fraction = Fraction(10, 100)
    max_distinct: int = 256  #: maximum values of a column with a bin each
    parent_weight: float = 8.0  #: weight of the parent's fractions in a node's, in records
    #: fraction of the best candidate's F1 by which a client's own tree must be better, as its depth
    #: was chosen on the records of the comparison
    own_margin: float = 0.02
    #: rule for replacing the own tree, by labels
    label_rule: SelectionRule = SelectionRule(2.0, 0.04, 0.02)  # noqa: RUF009 - frozen
    #: the same by numbers
    number_rule: SelectionRule = SelectionRule(1.0)  # noqa: RUF009 - frozen
    #: powers of the root's class fractions tried as label weights
    label_powers: tuple[float, ...] = (0.0, 0.5, 1.0)
    min_fraction: float = 0.01  #: least such fraction
    #: weights, in records, of the shared tree's values in nodes below it, that are tried
    priors: tuple[float, ...] = (1.0, 4.0, 16.0, 64.0)
    #: the same for numbers: for an almost noiseless target, any weight adds bias
    number_priors: tuple[float, ...] = (0.0, 1.0, 4.0, 16.0, 64.0)
    #: fraction of the way to where another label would replace the own one
    overtaking: float = 0.99


SETTINGS = GeneticTreeSettings()
