"""How far one tree is ahead of another on the same held-out records, and how sure that is."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from privfed.learners.genetic_tree.fitness import macro_f1


@dataclass(frozen=True)
class Lead:
    """What a tree is ahead by.

    Args:
        by: difference of macro F1, or of mean squared errors; above 0 the other one is better.
        error: its standard error.
        base: what the first tree has: its macro F1, or its mean squared error.
    """

    by: float
    error: float
    base: float


@dataclass(frozen=True)
class Doubt:
    """What a lead must overcome.

    Args:
        errors: standard errors that it must exceed (the one-standard-error rule of CART, Breiman et
            al. 1984, for a choice between two trees).
        favour: share of the first tree's score or error that the other one is given beforehand.
        behind: share of it by which the other one may be behind at most, however sure that is.
    """

    errors: float
    favour: float = 0.0
    behind: float = 0.0

    def allays(self, lead: Lead) -> bool:
        """Whether the lead is large enough."""
        wanted = self.errors * lead.error - self.favour * lead.base
        return lead.by > max(wanted, -self.behind * lead.base)


#: What a choice must overcome to take the own tree's place: with labels, and with numbers. With few records
#: the own tree stays, with many the choice; so small clients lose nothing, and large ones gain what they
#: would. Labels: among 1, 1.5 and 2 errors and a favour of 0, .02, .03 and .04, on wine, iris, digits, breast
#: cancer, diabetes_pima, trauma, wisconsin and banknote (10, 27 and 60 records a client, epsilon 1 and 4) and
#: electricity, magic_telescope and default_credit_card (1,200). Numbers: among 0.5, 0.75, 1, 1.25, 1.5 and 2
#: errors and a favour of 0, .01, .04 and .1, on bodyfat, abalone, space_ga, sulfur and mortgage (27, 60 and
#: 180 records).
LABELS, NUMBERS = Doubt(2.0, 0.04, 0.02), Doubt(1.0)


def of_labels(true: np.ndarray, one: np.ndarray, other: np.ndarray, classes: int) -> Lead:
    """How far the other's labels are ahead in macro F1.

    The error is the jackknife's (Efron and Stein 1981), over records: what leaving out each one
    changes. It counts two records more, of which each tree alone is right about one: as few records
    as are likely to agree by chance would else seem to prove that two trees are alike (Agresti and
    Min 2005, for shares of matched pairs).

    Args:
        true: class codes, shape (records,), at least one.
        one: the first tree's labels.
        other: the other tree's.
        classes: how many classes there are.
    """
    n = len(true)
    triples = [each.astype(np.int64) for each in (true, one, other)]
    kinds, counts = np.unique(np.column_stack(triples), axis=0, return_counts=True)
    scores = [_without(kinds[:, 0], kinds[:, at], counts, classes) for at in (1, 2)]
    changes = scores[1][1:] - scores[0][1:]
    spread = changes - counts @ changes / n
    squared = (n - 1) / n * float(counts @ spread**2) + 2 / n**2
    base = float(scores[0][0])
    return Lead(float(scores[1][0]) - base, float(np.sqrt(squared)), base)


def _without(true: np.ndarray, said: np.ndarray, counts: np.ndarray, classes: int) -> np.ndarray:
    """Macro F1 of all records, then without one of each kind."""
    cells = np.zeros((classes, classes))
    np.add.at(cells, (true, said), counts)
    each = np.repeat(cells[None], len(true) + 1, axis=0)
    each[np.arange(len(true)) + 1, true, said] -= 1
    return macro_f1(each)


def of_numbers(true: np.ndarray, one: np.ndarray, other: np.ndarray) -> Lead:
    """How far the other's squared errors are below the first one's, on average.

    Args:
        true: the target, shape (records,).
        one: what the first tree says.
        other: what the other one says.

    Returns:
        the lead; of fewer than two records nobody knows its error.
    """
    if len(true) < 2:
        return Lead(0.0, float("inf"), 0.0)
    errors = (true - one) ** 2
    gains = errors - (true - other) ** 2
    error = float(gains.std(ddof=1)) / float(np.sqrt(len(true)))
    return Lead(float(gains.mean()), error, float(errors.mean()))
