"""How well candidates do at a client: macro F1, mean squared error, or a bounded score."""

import numpy as np

from privfed.learners.genetic_tree.trie import Trie


def confusions(trie: Trie, genes: np.ndarray) -> np.ndarray:
    """Confusion matrices over the scored records, shape (candidates, true classes, predicted: first commonest)."""
    classes = trie.table.classes
    cells = np.zeros((len(genes) * classes, classes))
    for leaves in trie.walk(genes):
        at = leaves.candidate * classes + trie.fitted(leaves.node).argmax(axis=1)
        for number, counts in enumerate(trie.scored(leaves.node).T):
            cells[:, number] += np.bincount(at, counts, minlength=len(cells))
    return cells.reshape(len(genes), classes, classes).transpose(0, 2, 1)


def macro_f1(confusion: np.ndarray) -> np.ndarray:
    """Mean F1 over classes that occur or are predicted, by confusion matrix; 0 without records."""
    hits = np.diagonal(confusion, axis1=1, axis2=2)
    both = confusion.sum(axis=1) + confusion.sum(axis=2)
    each = np.divide(2 * hits, both, out=np.zeros_like(both), where=both > 0)
    return np.asarray(each.sum(axis=1) / np.maximum((both > 0).sum(axis=1), 1))


def squared_errors(trie: Trie, genes: np.ndarray) -> tuple[np.ndarray, float, float]:
    """Squared errors of the leaves' means by candidate, in target units; of the mean; number of records."""
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
    """Score candidates, the greater the better, shape (candidates,); 0 without records to score on.

    Macro F1; for numbers the negative mean squared error, or, bounded, R^2 in [-1, 1] (the paper's future work).
    """
    if trie.table.classes:
        return macro_f1(confusions(trie, genes))
    errors, constant, count = squared_errors(trie, genes)
    if not bounded:
        return -errors / max(count, 1.0)
    fraction = errors / constant if constant > 0 else np.sign(errors)
    return np.asarray(np.clip(1 - fraction, -1, 1) if count else np.zeros(len(genes)))
