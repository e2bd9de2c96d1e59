"""How far one tree is ahead of another on the same held-out records, and how sure that is."""

from dataclasses import dataclass

import numpy as np

from privfed.learners.genetic_tree.fitness import macro_f1


@dataclass(frozen=True)
class ScoreDifference:
    """How far a second tree is ahead of a first."""

    #: difference of macro F1, or of mean squared errors; above 0 the second one is better
    by: float
    error: float  #: its standard error
    base: float  #: the first tree's macro F1, or mean squared error


@dataclass(frozen=True)
class SelectionRule:
    """When a second tree replaces a first one."""

    #: standard errors that its lead must exceed (the one-standard-error rule of CART, Breiman et
    #: al. 1984, for two trees)
    errors: float
    favour: float = 0.0  #: fraction of the first tree's score or error added to its lead
    #: largest fraction of it by which the second may be behind, however sure that is
    behind: float = 0.0

    def accepts(self, lead: ScoreDifference) -> bool:
        """Whether the lead is large enough."""
        required = self.errors * lead.error - self.favour * lead.base
        return lead.by > max(required, -self.behind * lead.base)


def of_labels(
    true: np.ndarray, one: np.ndarray, other: np.ndarray, classes: int
) -> ScoreDifference:
    """How far the second tree's labels are ahead in macro F1, of at least one record.

    The error is the jackknife's (Efron and Stein 1981), over records. It counts two records more, one right
    by each tree alone, as agreement of few records proves little (Agresti and Min 2005, for matched pairs).
    """
    n = len(true)
    triples = [each.astype(np.int64) for each in (true, one, other)]
    kinds, counts = np.unique(np.column_stack(triples), axis=0, return_counts=True)
    scores = [_jackknife(kinds[:, 0], kinds[:, at], counts, classes) for at in (1, 2)]
    changes = scores[1][1:] - scores[0][1:]
    residuals = changes - counts @ changes / n
    variance = (n - 1) / n * float(counts @ residuals**2) + 2 / n**2
    base = float(scores[0][0])
    return ScoreDifference(float(scores[1][0]) - base, float(np.sqrt(variance)), base)


def _jackknife(
    true: np.ndarray, predicted: np.ndarray, counts: np.ndarray, classes: int
) -> np.ndarray:
    """Macro F1 of all records, then without one of each kind."""
    cells = np.zeros((classes, classes))
    np.add.at(cells, (true, predicted), counts)
    each = np.repeat(cells[None], len(true) + 1, axis=0)
    each[np.arange(len(true)) + 1, true, predicted] -= 1
    return macro_f1(each)


def of_numbers(true: np.ndarray, one: np.ndarray, other: np.ndarray) -> ScoreDifference:
    """How far the second tree's mean squared error is below the first's; infinite error below two records."""
    if len(true) < 2:
        return ScoreDifference(0.0, float("inf"), 0.0)
    errors = (true - one) ** 2
    gains = errors - (true - other) ** 2
    error = float(gains.std(ddof=1)) / float(np.sqrt(len(true)))
    return ScoreDifference(float(gains.mean()), error, float(errors.mean()))
