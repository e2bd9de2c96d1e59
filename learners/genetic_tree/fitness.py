"""Scores of candidates at a client: macro F1, mean squared error, or a bounded score."""

from dataclasses import dataclass

import numpy as np

from privfed.learners.genetic_tree.trie import Trie


def confusions(trie: Trie, genes: np.ndarray) -> np.ndarray:
    """Return confusion matrices over the scored records, shape (candidates, true, predicted: first most frequent)."""
    classes = trie.table.classes
    cells = np.zeros(len(genes) * classes**2)
    for leaves in trie.walk(genes):
        rows = leaves.candidate * classes + trie.fitted(leaves.node).argmax(axis=1)
        rows = rows[:, None] * classes + np.arange(classes)
        cells += np.bincount(rows.ravel(), trie.scored(leaves.node).ravel(), minlength=len(cells))
    return cells.reshape(len(genes), classes, classes).transpose(0, 2, 1)


def macro_f1(confusion: np.ndarray) -> np.ndarray:
    """Return mean F1 over classes that occur or are predicted, by confusion matrix; 0 without records."""
    hits = np.diagonal(confusion, axis1=1, axis2=2)
    both = confusion.sum(axis=1) + confusion.sum(axis=2)
    f1 = np.divide(2 * hits, both, out=np.zeros_like(both), where=both > 0)
    return np.asarray(f1.sum(axis=1) / np.maximum((both > 0).sum(axis=1), 1))


def squared_errors(trie: Trie, genes: np.ndarray) -> tuple[np.ndarray, float, float]:
    """Return squared errors by candidate, in target units; that of the mean; and the number of records."""
    total, unit = np.zeros(len(genes)), trie.table.unit
    for leaves in trie.walk(genes):
        count, fitted = trie.fitted(leaves.node)[:, :2].T
        mean = fitted / np.maximum(count, 1)
        n, s, squares = trie.scored(leaves.node).T
        errors = squares - 2 * mean * s + n * mean**2
        total += np.bincount(leaves.candidate, errors, minlength=len(genes))
    n, s, squares = trie.scored(np.arange(len(trie.roots))).T
    constant = float((squares - s**2 / np.maximum(n, 1)).sum())
    return np.maximum(total, 0) * unit**2, max(constant, 0.0) * unit**2, float(n.sum())


def scores(trie: Trie, genes: np.ndarray, bounded: bool = False) -> np.ndarray:
    """Score candidates, higher is better, shape (candidates,); 0 without records to score on.

    Macro F1; for numbers the negative mean squared error, or, bounded, R^2 in [-1, 1] (the paper's future work).
    """
    if trie.table.classes:
        return macro_f1(confusions(trie, genes))
    errors, constant, count = squared_errors(trie, genes)
    if not bounded:
        return -errors / max(count, 1.0)
    fraction = errors / constant if constant > 0 else np.sign(errors)
    return np.asarray(np.clip(1 - fraction, -1, 1) if count else np.zeros(len(genes)))


# --- the score difference of two trees on the same held-out records, and its standard error


@dataclass(frozen=True)
class ScoreDifference:
    """The score difference of a second tree to a first."""

    #: difference of macro F1, or of mean squared errors; positive if the second one is better
    by: float
    error: float  #: its standard error
    base: float  #: the first tree's macro F1, or mean squared error


@dataclass(frozen=True)
class SelectionRule:
    """The rule by which a second tree replaces a first one."""

    #: standard errors that the difference must exceed (the one-standard-error rule of CART, Breiman
    #: et al. 1984, for two trees)
    errors: float
    favour: float = 0.0  #: fraction of the first tree's score or error added to the difference
    #: maximum fraction of it by which the second may be worse, at any standard error
    behind: float = 0.0

    def accepts(self, difference: ScoreDifference) -> bool:
        """Whether the difference is large enough."""
        required = self.errors * difference.error - self.favour * difference.base
        return difference.by > max(required, -self.behind * difference.base)


def of_labels(
    true: np.ndarray, first: np.ndarray, second: np.ndarray, classes: int
) -> ScoreDifference:
    """Return the difference in macro F1 of two trees' labels, over at least one record.

    The standard error is the jackknife's (Efron and Stein 1981), over records, plus two records, one correct for each
    tree only, as agreement on few records proves little (Agresti and Min 2005, for matched pairs).
    """
    n = len(true)
    triples = [labels.astype(np.int64) for labels in (true, first, second)]
    kinds, counts = np.unique(np.column_stack(triples), axis=0, return_counts=True)
    scores = [_jackknife(kinds[:, 0], kinds[:, column], counts, classes) for column in (1, 2)]
    changes = scores[1][1:] - scores[0][1:]
    residuals = changes - counts @ changes / n
    variance = (n - 1) / n * float(counts @ residuals**2) + 2 / n**2
    base = float(scores[0][0])
    return ScoreDifference(float(scores[1][0]) - base, float(np.sqrt(variance)), base)


def _jackknife(
    true: np.ndarray, predicted: np.ndarray, counts: np.ndarray, classes: int
) -> np.ndarray:
    """Return macro F1 of all records, then without one of each kind."""
    cells = np.zeros((classes, classes))
    np.add.at(cells, (true, predicted), counts)
    tables = np.repeat(cells[None], len(true) + 1, axis=0)
    tables[np.arange(len(true)) + 1, true, predicted] -= 1
    return macro_f1(tables)


def of_numbers(true: np.ndarray, first: np.ndarray, second: np.ndarray) -> ScoreDifference:
    """Return the first minus the second mean squared error; infinite standard error below two records."""
    if len(true) < 2:
        return ScoreDifference(0.0, float("inf"), 0.0)
    errors = (true - first) ** 2
    gains = errors - (true - second) ** 2
    error = float(gains.std(ddof=1)) / float(np.sqrt(len(true)))
    return ScoreDifference(float(gains.mean()), error, float(errors.mean()))
