"""The trie gives what plain recursion gives, to the last threshold, and forgets in time."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import f1_score

from privfed.learners.genetic_tree.fitness import confusions, macro_f1, scores, squared_errors
from privfed.learners.genetic_tree.splits import Ranked, best_cuts
from privfed.learners.genetic_tree.structures import NIL, random_structures
from privfed.learners.genetic_tree.trie import Trie

DEPTH, FEATURES = 4, 3


@dataclass
class Node:
    """A fitted node of the naive twin: where it cuts, if it does, and its records to fit to and to score on."""

    fit: np.ndarray
    score: np.ndarray
    feature: int = NIL
    threshold: float = 0.0
    left: Node | None = None
    right: Node | None = None


def quality(table: Ranked, records: np.ndarray) -> float:
    """What a side adds to a cut's score."""
    if table.classes:
        counts = [int((table.target[records] == c).sum()) for c in range(table.classes)]
        return float(sum(float(c) ** 2 for c in counts))
    return float(int(table.target[records].sum())) ** 2


def best(table: Ranked, records: np.ndarray, feature: int) -> float | None:
    """The threshold of the first best cut; none where there is one value only."""
    values = np.unique(table.x[feature, records])
    found: list[tuple[float, float]] = []
    for low, high in pairwise(values):
        left = records[table.x[feature, records] <= low]
        right = records[table.x[feature, records] > low]
        middle = low / 2 + high / 2
        score = quality(table, left) / len(left) + quality(table, right) / len(right)
        found.append((score, middle if middle < high else low))
    if not found:
        return None
    greatest = max(score for score, _ in found)
    return next(threshold for score, threshold in found if score == greatest)


def fitted(
    table: Ranked, genes: np.ndarray, fit: np.ndarray, score: np.ndarray, at: int = 0
) -> Node:
    """One candidate at a time, by recursion and a scan of every threshold: fit a string, or the subtree of ``genes`` that it is at its position 0."""
    node = Node(fit, score)
    if not len(genes) or genes[0] == NIL or len(np.unique(table.target[fit])) < 2:
        return node
    threshold = best(table, fit, int(genes[0]))
    if threshold is None:
        return node
    half = len(genes) // 2
    node.feature, node.threshold = int(genes[0]), threshold
    sides = [
        [records[table.x[node.feature, records] <= threshold] for records in (fit, score)],
        [records[table.x[node.feature, records] > threshold] for records in (fit, score)],
    ]
    node.left = fitted(table, genes[1 : 1 + half], *sides[0])
    node.right = fitted(table, genes[1 + half :], *sides[1])
    return node


def predicted(table: Ranked, node: Node) -> tuple[np.ndarray, np.ndarray]:
    """True and predicted targets of the records to score on, in whole units."""
    if node.left is not None and node.right is not None:
        pairs = [predicted(table, node.left), predicted(table, node.right)]
        true, said = (np.concatenate(each) for each in zip(*pairs, strict=True))
        return true, said
    target = table.target[node.fit]
    if table.classes:
        value = float(np.bincount(target, minlength=table.classes).argmax())
    else:
        value = float(target.sum()) / max(len(target), 1)
    return table.target[node.score], np.full(len(node.score), value)


def _client(seed: int, records: int, classes: int, values: int) -> tuple[Ranked, np.ndarray]:
    """A client's records, few or many different values, and a few random candidates."""
    rng = np.random.default_rng(seed)
    x = np.round(rng.normal(size=(records, FEATURES)) * values) / values
    y = (
        rng.integers(0, classes, records)
        if classes
        else np.round(x[:, 0] + rng.normal(size=records), 2)
    )
    genes = random_structures(5, DEPTH, FEATURES, 0.15, rng)
    return Ranked.of(x, y, classes), genes


def _trie(table: Ranked, roots: int, seed: int, memory: int = 2**25) -> Trie:
    """Roots that hold out every so many-th record of a random order each."""
    order = np.random.default_rng(seed).permutation(len(table))
    folds = [np.sort(order[number::5]) for number in range(roots)]
    everyone = np.arange(len(table))
    return Trie(table, [(np.setdiff1d(everyone, fold), fold) for fold in folds], DEPTH, memory)


def _same(trie: Trie, node: int, twin: Node) -> int:
    """Hold a fitted node to its twin; how many thresholds were compared."""
    table = trie.table
    counted = table.target[twin.fit]
    if table.classes:
        assert trie.fitted(node).tolist() == np.bincount(counted, minlength=table.classes).tolist()
    else:
        assert trie.fitted(node)[:2].tolist() == [len(counted), counted.sum()]
    if twin.left is None or twin.right is None:
        return 0
    found = trie.children(node, twin.feature)
    assert found is not None
    left, right, threshold = found
    assert threshold == twin.threshold
    return 1 + _same(trie, left, twin.left) + _same(trie, right, twin.right)


@settings(max_examples=60)
@given(
    seed=st.integers(0, 10**6),
    records=st.integers(1, 60),
    classes=st.sampled_from([0, 2, 4]),
    values=st.sampled_from([1, 3, 1000]),
    memory=st.sampled_from([1, 2**25]),
)
def test_the_trie_is_plain_recursion_done_at_once(
    seed: int, records: int, classes: int, values: int, memory: int
) -> None:
    """Thresholds, leaves and scores of every candidate and root, whatever the memory allows."""
    table, genes = _client(seed, records, classes, values)
    trie = _trie(table, 2, seed, memory)
    said = scores(trie, genes)
    for number, string in enumerate(genes):
        pairs = []
        for root, (fit, score) in enumerate(trie.roots):
            twin = fitted(table, string, fit, score)
            _same(trie, root, twin)
            pairs.append(predicted(table, twin))
        true, guessed = (np.concatenate(each) for each in zip(*pairs, strict=True))
        if not len(true):
            assert said[number] == 0
        elif classes:
            expected = f1_score(true, guessed, average="macro", zero_division=0)
            assert said[number] == pytest.approx(expected)
        else:
            expected = -np.mean((true - guessed) ** 2) * table.unit**2
            assert said[number] == pytest.approx(expected, rel=1e-6, abs=1e-12)


@pytest.mark.parametrize("records", [3, 300, 2**13 - 1, 2**13])
@pytest.mark.parametrize("runs", [2, 40])
def test_the_best_cut_is_the_best_of_all(records: int, runs: int) -> None:
    """Cuts within a run of one class are not looked at, which changes no threshold."""
    rng = np.random.default_rng(records)
    x = rng.permutation(records).astype(float)[:, None]
    label = np.cumsum(rng.random(records) < runs / records) % 2
    label[0], label[-1] = 0, 1
    table = Ranked.of(x, label[x[:, 0].astype(int)], 2)
    sizes = np.array([records])
    found = best_cuts(table, np.arange(records), sizes, np.zeros(1, np.int64))
    left, ones = np.arange(1.0, records), np.cumsum(label)[:-1].astype(float)
    right, others = records - left, label.sum() - ones
    score = (ones**2 + (left - ones) ** 2) / left + (others**2 + (right - others) ** 2) / right
    assert found.thresholds.tolist() == [int(score.argmax()) + 0.5]


def test_the_comparison_reaches_many_thresholds() -> None:
    """The power twin: trees are not all roots, and another target is noticed."""
    table, genes = _client(0, 60, 2, 1000)
    trie = _trie(table, 1, 0)
    twins = [fitted(table, string, *trie.roots[0]) for string in genes]
    assert sum(_same(trie, 0, twin) for twin in twins) > 15
    other = Ranked.of(table.x.T, table.target[::-1], 2)
    with pytest.raises(AssertionError):
        for twin in twins:
            _same(Trie(other, trie.roots, DEPTH), 0, twin)


def test_what_is_kept_changes_nothing_later() -> None:
    """A generation's scores are the same on a trie that has seen others before, or forgot them."""
    table, genes = _client(3, 60, 3, 10)
    more = random_structures(40, DEPTH, FEATURES, 0.15, np.random.default_rng(9))
    fresh = scores(_trie(table, 3, 1), genes)
    used, small = _trie(table, 3, 1), _trie(table, 3, 1, memory=20_000)
    for trie in (used, small):
        scores(trie, more)
        assert np.array_equal(scores(trie, genes), fresh)


def test_memory_is_bounded_whatever_is_asked() -> None:
    """Thousands of random candidates: the trie starts anew and keeps to its limit, but for a block."""
    table, _ = _client(4, 500, 2, 1000)
    trie = _trie(table, 1, 1, memory=2**18)
    most = 0
    for seed in range(20):
        genes = random_structures(100, DEPTH, FEATURES, 0.0, np.random.default_rng(seed))
        scores(trie, genes)
        most = max(most, trie.bytes)
    assert 2**16 < most < 2**20


def test_classes_that_nobody_has_do_not_count() -> None:
    """Macro F1 is the mean over classes that occur or are predicted; without records it is 0."""
    confusion = np.zeros((2, 3, 3))
    confusion[0, 0, 0], confusion[0, 1, 0] = 3, 1
    assert macro_f1(confusion).tolist() == [pytest.approx((6 / 7 + 0) / 2), 0.0]


def test_a_client_with_nothing_to_score_on_says_nothing_of_use() -> None:
    """Without records to fit to or to score on every score is 0, never NaN."""
    empty = np.empty(0, dtype=np.int64)
    for classes in (0, 2):
        table, genes = _client(1, 10, classes, 3)
        for roots in ([(np.arange(10), empty)], [(empty, empty)]):
            for bounded in (False, True):
                said = scores(Trie(table, roots, DEPTH), genes, bounded)
                assert np.isfinite(said).all() and not said.any()


def test_the_bounded_score_is_r_squared() -> None:
    """1 - error / spread of the records scored, cut to [-1, 1]."""
    table, genes = _client(5, 60, 0, 1000)
    trie = _trie(table, 2, 5)
    errors, spread, _ = squared_errors(trie, genes)
    expected = np.clip(1 - errors / spread, -1, 1)
    assert scores(trie, genes, bounded=True) == pytest.approx(expected)
    assert confusions(_trie(*_client(5, 60, 2, 9)[:1], 2, 5), genes).sum() == 5 * 24


def test_a_feature_that_cuts_nothing_has_no_children() -> None:
    """Nor where nothing else was cut yet."""
    table = Ranked.of(np.zeros((2, 1)), np.array([0, 1]), classes=2)
    records = np.arange(2)
    assert Trie(table, [(records, records)], DEPTH).children(0, 0) is None


def test_branches_for_numbers_end_in_one_order() -> None:
    """Of each level first those at nil, then those that no cut splits: squared errors are added up in this order."""
    x = np.array([[0, 0, 1, 1], [0, 0, 0, 0]], float).T
    table = Ranked.of(x, np.array([0.0, 1.0, 5.0, 5.0]), classes=0)
    records = np.arange(4)
    trie = Trie(table, [(records, records)], depth=2)
    (leaves,) = trie.walk(np.array([[0, 1, NIL]]))
    left, right, _ = trie.children(0, 0) or (0, 0, 0)
    assert leaves.node.tolist() == [right, left]
