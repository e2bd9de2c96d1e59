"""A client's own tree: read off what was fitted, chosen, hung below a shared one, kept."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from privfed.learners.genetic_tree import local
from privfed.learners.genetic_tree.client import Client
from privfed.learners.genetic_tree.local_subtrees import (
    LocalSubtrees,
    Shared,
    choose_below,
    shrunk_firmly,
    shrunk_values,
)
from privfed.learners.genetic_tree.personal import Choice, PersonalTree, choose, succession
from privfed.learners.genetic_tree.population import Population, Scoring
from privfed.learners.genetic_tree.structures import random_structures
from privfed.questions.query import View
from privfed.questions.tree import Tree
from privfed.tables.records import Records
from privfed.tables.schema import Column, Schema

FEATURES = tuple(Column(name, "number", -4, 4) for name in "abc")
CLASSES = Schema(FEATURES, Column("y", "category", categories=("no", "yes")))
NUMBERS = Schema(FEATURES, Column("y", "number", -9, 9))
STUMP = Tree.binary(*(np.array(each) for each in ([0, -1, -1], [0.0, 0, 0], [1, 0, 0], [2, 0, 0])))


def _client(records: int = 120, classify: bool = True, secret: bytes = b"one") -> Client:
    rng = np.random.default_rng(records)
    x = rng.normal(size=(records, 3))
    signal = x[:, 0] * 2 + (x[:, 1] > 0) * x[:, 2] * 2
    schema = CLASSES if classify else NUMBERS
    y = (signal > 0).astype(float) if classify else signal
    return Client(View(Records(schema, x, y), schema, secret), classify)


def _population(depth: int = 3, count: int = 6) -> Population:
    rng = np.random.default_rng(0)
    return Population.of(random_structures(count, depth, 3, 0.1, rng), depth)


@pytest.mark.parametrize("classify", [True, False])
@pytest.mark.parametrize("held", ["share", "folds", "none"])
def test_the_chosen_tree_is_the_best_candidate_fitted(classify: bool, held: str) -> None:
    """It predicts what its leaves were fitted to, and scores what was told of it."""
    client, population = _client(classify=classify), _population()
    scoring = Scoring(classify, held)  # type: ignore[arg-type]
    found = choose(client, population, scoring, Choice())
    trie = client.trie(scoring, 3)
    fit, score = trie.roots[0] if held != "folds" else (np.arange(120),) * 2
    said = found.predict(client.x[fit])
    leaves = found.tree.reach(client.x[fit])
    for leaf in np.unique(leaves):
        here = client.y[fit][leaves == leaf]
        counts = np.bincount(here.astype(int), minlength=2) if classify else here
        expected = (counts + 1) / (counts.sum() + 2) if classify else here.mean()
        assert said[leaves == leaf][0] == pytest.approx(expected, abs=1e-9)
    assert found.source == "federation" and 0 < found.decisions <= 7
    if classify and held == "share":
        told = local.f1(client.y[score], found.predict(client.x[score]).argmax(axis=1), 2)
        assert told == pytest.approx(float(np.max(_scores(client, population, scoring))))


def _scores(client: Client, population: Population, scoring: Scoring) -> np.ndarray:
    from privfed.learners.genetic_tree.fitness import scores

    return scores(client.trie(scoring, population.depth), population.genes)


def test_leaves_tell_means_apart_wherever_they_lie() -> None:
    """Four digits of the target's width."""
    schema = Schema((Column("a", "number", 0, 1),), Column("y", "number", 1e9, 1e9 + 1))
    split = Tree.binary(
        np.array([0, -1, -1]), np.array([0.5, 0, 0]), np.array([1, -1, -1]), np.array([2, -1, -1])
    )
    own = PersonalTree(split, 1e9 + np.array([[0.5], [0.25], [0.75]]), "own")
    assert own.to_text(schema).splitlines() == ["a < 0.5: 1000000000.25", "a >= 0.5: 1000000000.75"]


def test_a_tree_is_read_back_the_same() -> None:
    """As plain data and back; its text names features and classes."""
    found = choose(_client(), _population(), Scoring(True), Choice())
    again = PersonalTree.from_dict(found.to_dict())
    x = np.random.default_rng(1).normal(size=(50, 3))
    assert np.array_equal(found.predict(x), again.predict(x))
    text = found.to_text(CLASSES, ("no", "yes"))
    assert "yes" in text and any(name in text for name in "abc")
    numbers = choose(_client(classify=False), _population(), Scoring(False), Choice())
    assert PersonalTree.from_dict(numbers.to_dict()).to_text(NUMBERS)


def test_a_leaf_says_how_sure_its_label_is() -> None:
    """The label that weights choose, with that class' own fraction; a number's mean."""
    leaf = Tree.binary(*(np.array([value]) for value in (-1, 0.0, -1, -1)))
    own = PersonalTree(leaf, np.array([[0.6, 0.4]]), "own", np.array([1.0, 3.0]))
    assert own.to_text(CLASSES, ("no", "yes")) == "yes (0.4)"
    assert replace(own, weights=None).leaf_text(0, ("no", "yes")) == "no (0.6)"
    assert replace(own, values=np.array([[2.5]])).leaf_text(0) == "2.5"
    assert (
        replace(own, values=np.array([[1e-5, 1 - 1e-5]])).leaf_text(0, ("no", "yes"))
        == "yes (> 0.999)"
    )


def test_the_own_tree_wins_where_candidates_are_useless() -> None:
    """All candidates nil: the own tree is chosen if it may be, and only then."""
    nothing = Population.of(np.full((2, 7), -1), 3)
    client = _client()
    for held in ("share", "folds"):
        scoring = Scoring(True, held)
        assert choose(client, nothing, scoring, Choice(own=True)).source == "own"
        assert choose(client, nothing, scoring, Choice()).decisions == 0


@pytest.mark.parametrize("held", ["share", "folds"])
def test_for_numbers_a_candidate_must_be_clearly_ahead_of_the_own_tree(held: str) -> None:
    """Useless ones never are; a good one is where the own tree may have one split alone."""
    client, scoring = _client(600, classify=False), Scoring(False, held)  # type: ignore[arg-type]
    nothing = Population.of(np.full((2, 7), -1), 3)
    assert choose(client, nothing, scoring, Choice(own=True)).source == "own"
    good = Population.of(local.structure(client.x, client.y, 0, 3)[None], 3)
    rule = Choice(own=True, lowest=1, deepest=1)
    assert choose(client, good, scoring, rule).source == "federation"
    same = Population.of(local.structure(client.x, client.y, 0, 1)[None], 1)
    assert choose(client, same, scoring, rule).source == "own"


def test_refitting_uses_all_records() -> None:
    """The same structure, fitted to all instead of four fifths."""
    client, population = _client(), _population()
    part = choose(client, population, Scoring(True), Choice())
    whole = choose(client, population, Scoring(True), Choice(refit=True))
    assert not np.array_equal(part.tree.cuts, whole.tree.cuts)
    assert part.tree.feature[0] == whole.tree.feature[0]


@pytest.mark.parametrize("records", [0, 1, 2, 3])
@pytest.mark.parametrize("classify", [True, False])
def test_hardly_any_records_are_enough(records: int, classify: bool) -> None:
    """Fewer records than folds, down to none: there is a tree, and it says something finite."""
    client, shared = (
        _client(records, classify),
        Shared(STUMP, np.full((3, 2 if classify else 1), 0.5)),
    )
    trees = [choose_below(client, shared, 5, 2, 4)]
    for held in ("share", "folds", "none"):
        for own in (False, True):
            scoring = Scoring(classify, held)
            trees.append(choose(client, _population(), scoring, Choice(own=own)))
    for tree in trees:
        assert np.isfinite(tree.predict(np.zeros((3, 3)))).all()


def test_a_client_without_records_says_the_middle_of_the_bounds() -> None:
    """0 may lie outside of them."""
    schema = Schema(FEATURES, Column("y", "number", 50, 70))
    view = View(Records(schema, np.empty((0, 3)), np.empty(0)), schema, b"empty")
    for held in ("share", "folds"):
        for rule in (Choice(), Choice(own=True)):
            scoring = Scoring(False, held)
            found = choose(Client(view, False), _population(), scoring, rule)
            assert (found.predict(np.zeros((2, 3))) == 60).all()


# --- below a shared tree -----------------------------------------------------------------------


def test_a_cut_at_the_root_is_the_own_tree() -> None:
    """At level 0 nothing of the shared tree is left."""
    client, shared = _client(), Shared(STUMP, np.full((3, 2), 0.5))
    planted = LocalSubtrees.grown(shared, 0, client.x, client.y, 2, 4).planted(4, 0.0)
    own = PersonalTree.of_nodes(local.cart(client.x, client.y, 2, 4), "own")
    same = planted.predict(client.x).argmax(axis=1) == own.predict(client.x).argmax(axis=1)
    assert same.all()
    assert planted.source == "own"


@pytest.mark.parametrize("classify", [True, False])
def test_what_is_planted_says_what_was_tried(classify: bool) -> None:
    """Each depth below each level predicts as the whole tree does that is kept of it."""
    client = _client(classify=classify)
    shared = Shared(STUMP, np.array([[0.2, 0.8]] * 3) if classify else np.ones((3, 1)))
    for level in (0, 1):
        grown = LocalSubtrees.grown(shared, level, client.x, client.y, 2 * classify, 5)
        said = grown.by_depth(client.x, range(6), (0.0, 9.0))
        for depth in range(6):
            for tried, prior in zip(said, (0.0, 9.0), strict=True):
                found = grown.planted(depth, prior).predict(client.x)
                assert tried[depth] == pytest.approx(found)
        right = [(row == client.y).mean() for row in local.labels(said[0, 1:])]
        assert (np.diff(right) >= 0).all() or not classify


def test_levels_share_the_subtrees_of_their_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    """As grown level by level; root, its sides, and those of the right one alone: five subtrees instead of nine."""
    links = ([0, -1, 1, -1, -1], [0.0, 0, 0.5, 0, 0], [1, 0, 3, 0, 0], [2, 0, 4, 0, 0])
    tree, client = Tree.binary(*map(np.array, links)), _client()
    shared = Shared(tree, np.full((5, 2), 0.5))
    data = client.x, client.y, 2, 4
    alone = [LocalSubtrees.grown(shared, level, *data) for level in range(4)]
    cart, calls = local.cart, list[int]()
    monkeypatch.setattr(local, "cart", lambda X, *a: calls.append(len(X)) or cart(X, *a))
    for level, model in enumerate(LocalSubtrees.by_level(shared, range(4), *data)):
        assert model.level == level and list(model.below) == list(alone[level].below)
        for node, nodes in model.below.items():
            assert nodes.tobytes() == alone[level].below[node].tobytes()
    assert len(calls) == 5 and sum(len(model.below) for model in alone) == 9


def test_no_class_is_impossible_and_labels_stay() -> None:
    """A record of each class more: by hand, and the same commonest class, ties included."""
    counts = np.array([[3.0, 0, 0], [2, 2, 1], [0, 0, 0]])
    told = succession(counts)
    assert told == pytest.approx(np.array([[4, 1, 1], [3, 3, 2], [1, 1, 1]]) / [[6], [8], [3]])
    assert (told.argmax(axis=1) == counts.argmax(axis=1)).all()


def test_small_leaves_are_drawn_to_what_all_have_found() -> None:
    """By hand: a leaf of n records and a prior of w say (n own + w expected) / (n + w)."""
    x = np.array([[-2.0, 0, 0], [-1, 0, 0], [1, 0, 0], [2, 0, 0], [3, 0, 0]])
    y = np.array([1.0, 1, 0, 0, 0])
    shared = Shared(STUMP, np.array([[0.5, 0.5], [0.9, 0.1], [0.3, 0.7]]))
    found = LocalSubtrees.grown(shared, 0, x, y, 2, 1).planted(1, 4.0).predict(x[[0, 4]])
    wanted = [(2 * np.eye(2)[1] + 4 * shared.values[1]) / 6]
    wanted += [(3 * np.eye(2)[0] + 4 * shared.values[2]) / 7]
    assert found == pytest.approx(np.array(wanted))


def test_shares_of_an_own_tree_are_drawn_as_far_as_labels_stay() -> None:
    """Whatever the prior; by hand where none overtakes; no share is ever 0 where all have some."""
    rng = np.random.default_rng(0)
    nodes = local.cart(rng.normal(size=(90, 3)), rng.integers(0, 3, 90), 3, 4, rng.random((90, 3)))
    nodes["expected"] = rng.dirichlet([1, 1, 1], len(nodes))
    for prior in (1.0, 16.0, 1e6):
        told = shrunk_firmly(nodes, prior)
        assert (told.argmax(axis=1) == nodes["values"].argmax(axis=1)).all()
        assert np.allclose(told.sum(axis=1), 1) and (told >= 0).all()
        plain = shrunk_values(nodes, prior)
        same = plain.argmax(axis=1) == nodes["values"].argmax(axis=1)
        clear = same & (np.sort(plain)[:, -1] - np.sort(plain)[:, -2] > 0.02)
        assert told[clear] == pytest.approx(plain[clear]) and (clear.any() or prior > 99)


def test_an_own_tree_that_is_kept_is_the_own_tree() -> None:
    """The labels, or means, of the tree that the client would have grown alone, to the last one."""
    x = np.random.default_rng(5).normal(size=(400, 3))
    for classify in (True, False):
        shared = Shared(STUMP, np.array([[0.2, 0.8]] * 3) if classify else np.full((3, 1), 5.0))
        for records in (5, 12, 30):
            client = _client(records, classify)
            found = choose_below(client, shared, 5, 2, 6)
            nodes = local.cart(
                client.x, client.y, client.classes, client.local_depth(5, range(2, 7))
            )
            if found.source == "own":
                said = local.labels(found.weighed(found.predict(x)))
                assert np.array_equal(said, local.predictions(nodes, x))
        assert found.source == "own"


def test_no_share_is_zero_where_something_was_released() -> None:
    """However few records a client has: what it has not seen happens elsewhere."""
    for records in (2, 3, 20):
        shared = Shared(STUMP, np.array([[0.9, 0.1]] * 3))
        client = _client(records)
        client.y = np.zeros(records)
        told = choose_below(client, shared, 5, 2, 4).predict(client.x)
        assert (told[:, 1] >= 0.1 / (records + 1)).all()


def test_the_best_level_is_chosen() -> None:
    """A shared tree that knows all is taken; one that splits by chance is left for the own tree."""
    client = _client(300)
    x, y = client.x, client.y
    rows = [(0, 0.0, 1, 2), (-1, 0.0, 0, 0), (-1, 0.0, 0, 0)]
    good = Shared(
        Tree.binary(*(np.array(each) for each in zip(*rows, strict=True))), np.eye(2)[[0, 0, 1]]
    )
    client.y = (x[:, 0] > 0).astype(float)
    assert (
        choose_below(client, good, 5, 2, 4).predict(x).argmax(axis=1).tolist() == client.y.tolist()
    )
    client.y = y
    wrong = Shared(
        Tree.binary(
            np.array([2, -1, -1]), np.array([3.9, 0, 0]), np.array([1, 0, 0]), np.array([2, 0, 0])
        ),
        np.eye(2)[[0, 1, 0]],
    )
    assert choose_below(client, wrong, 5, 1, 6).source == "own"


def test_the_order_of_records_is_the_client_s_secret() -> None:
    """Another secret holds out other records; the same one the same."""
    one, same, other = (_client(secret=secret) for secret in (b"one", b"one", b"other"))
    assert np.array_equal(one.order, same.order)
    assert not np.array_equal(one.order, other.order)
    fit, score = one.roots(Scoring(True))[0]
    assert len(fit) == 96 and not set(fit) & set(score)


def test_rare_classes_are_labelled_where_that_scores_better() -> None:
    """One in ten is a yes, never the commonest in a leaf of noise: weighed labels find some."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(600, 3))
    y = (rng.random(600) < np.where(x[:, 0] > 0.8, 0.4, 0.02)).astype(float)
    client = Client(View(Records(CLASSES, x, y), CLASSES, b"rare"), True)
    shared = Shared(STUMP, np.array([[0.9, 0.1]] * 3))
    found = choose_below(client, shared, 5, 2, 3)
    assert found.weights is not None and found.weights[1] > found.weights[0]
    plain = found.values[found.tree.reach(x)].argmax(axis=1)
    weighed = found.weighed(found.predict(x)).argmax(axis=1)
    assert local.f1(y, weighed, 2) > local.f1(y, plain, 2) + 0.05
    again = PersonalTree.from_dict(found.to_dict())
    assert again.weights is not None and found.weights is not None
    assert np.array_equal(again.weights, found.weights)
    even = Client(View(Records(CLASSES, x, (x[:, 0] > 0).astype(float)), CLASSES, b"even"), True)
    assert choose_below(even, Shared(STUMP, np.full((3, 2), 0.5)), 5, 2, 3).weights is None


@pytest.mark.parametrize("classify", [True, False])
@pytest.mark.parametrize("leaves", [2, 5, 8, 1000])
def test_a_pruned_tree_has_no_more_leaves_and_means_of_them(classify: bool, leaves: int) -> None:
    """A joined leaf says the weighted mean of what the whole tree said of its records; others stay."""
    client = _client(400, classify=classify)
    whole = PersonalTree.of_nodes(local.cart(client.x, client.y, 2 * classify, 7), "own")
    found = whole.pruned(client.x, leaves)
    before = whole.predict(client.x)
    assert len(found.tree.leaves) == min(leaves, len(whole.tree.leaves))
    reached = found.tree.reach(client.x)
    for leaf in np.unique(reached):
        here = reached == leaf
        assert found.predict(client.x[here])[0] == pytest.approx(
            before[here].mean(axis=0), abs=1e-6
        )
    if leaves == 1000:
        assert np.array_equal(found.predict(client.x), before)


def test_the_leaves_that_differ_least_are_joined_first() -> None:
    """By brute force: of every pair of sister leaves, the one whose joining moves predictions least."""
    client = _client(400, classify=False)
    whole = PersonalTree.of_nodes(local.cart(client.x, client.y, 0, 4), "own")
    count, before = len(whole.tree.leaves), whole.predict(client.x)[:, 0]
    reached, rises = whole.tree.reach(client.x), []
    for pair in whole.tree.children[whole.tree.feature >= 0]:
        if (whole.tree.feature[pair] < 0).all():
            here = np.isin(reached, pair)
            rises.append(((before[here] - before[here].mean()) ** 2).sum())
    found = whole.pruned(client.x, count - 1).predict(client.x)[:, 0]
    assert ((found - before) ** 2).sum() == pytest.approx(min(rises), rel=1e-4)
