"""The estimators through gates: what leaves, what it costs, what stays, what is refused."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

from privfed import LocalDisclosure
from privfed.errors import InputError, NobodyAnswered, Note
from privfed.exchange.messages import Release
from privfed.exchange.ungated import UngatedDisclosure
from privfed.learners.base import FederatedLearner, PersonalLearner
from privfed.learners.genetic_tree import GeneticTreeClassifier, GeneticTreeRegressor
from privfed.learners.genetic_tree.counts import NodeTotals
from privfed.learners.genetic_tree.queries import SHELF, KeepBest
from privfed.privacy.policy import Policy
from privfed.testing.check_learner import CHECKS, check_learner
from privfed.testing.hospitals import BINARY, gates, patients

MakeGated = Callable[..., LocalDisclosure]
MakeUngated = Callable[..., UngatedDisclosure]
MakeTable = Callable[..., pd.DataFrame]
QUICK: dict[str, Any] = {"generations": 4, "max_depth": 5, "population_size": 6, "random_state": 0}
LEARNERS = [GeneticTreeClassifier(**QUICK), GeneticTreeRegressor(**QUICK)]
EACH = pytest.mark.parametrize("learner", LEARNERS, ids=["classes", "numbers"])


def _home(model: PersonalLearner, federation: LocalDisclosure) -> PersonalLearner:
    for client, shelf in federation.shelves.items():
        model.take_home(client, shelf)
    return model


def _fitted(
    learner: PersonalLearner, gated: MakeGated, policy: Policy, **table: object
) -> tuple[PersonalLearner, LocalDisclosure]:
    classify = not isinstance(learner, GeneticTreeRegressor)
    federation = gated(policy, classify=classify, **table)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Note)  # few records bear no split
        return _home(clone(learner).fit(federation), federation), federation


def _quality(model: PersonalLearner, frame: pd.DataFrame, client: str) -> float:
    said = model.predict(frame[list("abc")], client=client)
    if frame["y"].dtype.kind != "f":
        return float(np.mean(said == frame["y"]))
    return 1 - float(np.mean((said - frame["y"]) ** 2) / np.var(frame["y"]))


@EACH
@pytest.mark.parametrize("way", ["published", "private"])
def test_every_client_ends_with_a_good_tree(
    learner: PersonalLearner, way: str, gated: MakeGated, table: MakeTable
) -> None:
    """On other records of the same kind, far above a constant, either way."""
    policy = learner.published() if way == "published" else learner.private(8)
    model, federation = _fitted(learner, gated, policy, records=900)
    fresh = table(901, 3, not isinstance(learner, GeneticTreeRegressor))
    least = 0.8 if isinstance(learner, GeneticTreeClassifier) else 0.6
    for client in federation.clients:
        assert _quality(model, fresh, client) > least
        assert model.describe(client=client)
    assert model.private_ == (way == "private")


def test_the_published_way_has_no_finite_guarantee_and_says_what_left(gated: MakeGated) -> None:
    """Structures, scores and depths leave as they are; the tree that was kept is not among them."""
    model, federation = _fitted(LEARNERS[0], gated, LEARNERS[0].published())
    assert federation.budget()["unprotected"].all()
    kinds = {entry.kind for entry in federation.transcript()}
    assert kinds == {
        *("genetic_tree.size", "genetic_tree.depth", "genetic_tree.structure"),
        *("genetic_tree.fitness", "genetic_tree.keep"),
    }
    kept = [e for e in federation.transcript() if e.kind == KeepBest.kind]
    assert len(kept) == 3 and not any(entry.release.parts for entry in kept)
    assert model.candidates_ is not None and model.shared_ is None
    federation.verify()


@EACH
def test_the_private_way_spends_what_it_may_and_no_more(
    learner: PersonalLearner, gated: MakeGated
) -> None:
    """Nothing leaves but noisy counts, and the whole stays within epsilon."""
    _, federation = _fitted(learner, gated, learner.private("1.5"), records=600)
    budget = federation.budget()
    assert (budget["spent"] <= 1.5).all() and (budget["spent"] > 0.5).all()
    assert not budget["unprotected"].any()
    for entry in federation.transcript():
        assert isinstance(entry.release, Release)
        for part in entry.release.parts.values():
            assert part.noise is not None and part.noise.name == "gaussian"


@EACH
def test_the_shared_tree_is_as_good_as_a_constant(
    learner: PersonalLearner, gated: MakeGated, table: MakeTable
) -> None:
    """Log loss, or squared error, of 600 records at epsilon 2; raw noisy shares have .41 nats more."""
    model, _ = _fitted(learner, gated, learner.private(2), records=600)
    classify = isinstance(learner, GeneticTreeClassifier)
    frame = table(records=900, classify=classify)
    if isinstance(model, GeneticTreeClassifier):
        told = model.predict_proba(frame[list("abc")])
        true = (frame["y"] == "yes").to_numpy().astype(int)
        assert -np.log(told[np.arange(900), true]).mean() < np.log(2)
    else:
        error = np.mean((frame["y"] - model.predict(frame[list("abc")])) ** 2)
        assert error < np.var(frame["y"])


def test_an_owner_need_not_tell_the_leaves_counts(gated: MakeGated) -> None:
    """Without them the tree stands on the counts that chose its splits."""
    learner = GeneticTreeClassifier(**QUICK)
    policy = learner.private(4)
    guards = {kind: own for kind, own in policy.guards.items() if kind != NodeTotals.kind}
    model, federation = _fitted(learner, gated, replace(policy, guards=guards), records=600)
    assert NodeTotals.kind not in {entry.kind for entry in federation.transcript()}
    assert isinstance(model, GeneticTreeClassifier)
    assert model.shared_ is not None and np.allclose(model.shared_.values.sum(axis=1), 1)


@EACH
def test_a_second_run_finds_the_budget_spent(learner: PersonalLearner, gated: MakeGated) -> None:
    """The owner's guard counts how often a kind was answered."""
    _, federation = _fitted(learner, gated, learner.private(1), records=600)
    with pytest.raises(NobodyAnswered):
        clone(learner).fit(federation)


@EACH
def test_a_plan_covers_all_that_is_asked(learner: PersonalLearner, gated: MakeGated) -> None:
    """No kind is asked that the plan lacks, and none more often."""
    for policy in (learner.published(), learner.private(2)):
        _, federation = _fitted(learner, gated, policy)
        planned: dict[str, int] = {}
        for line in learner.plan(federation.schema, policy):
            line.query.parts(federation.schema)
            planned[line.query.kind] = planned.get(line.query.kind, 0) + line.times
        asked = [entry.kind for entry in federation.transcript() if entry.client == "c0"]
        assert asked
        for kind in set(asked):
            assert asked.count(kind) <= planned[kind], kind


def test_one_tree_for_all_exists_only_where_it_was_released(
    gated: MakeGated, table: MakeTable
) -> None:
    """Privately there is a shared tree to predict by; else a client must be named."""
    x = table(30)[list("abc")]
    private, _ = _fitted(LEARNERS[0], gated, LEARNERS[0].private(8), records=900)
    assert set(private.predict(x)) <= {"no", "yes"}
    published, _ = _fitted(LEARNERS[0], gated, LEARNERS[0].published())
    with pytest.raises(InputError, match=r"predict\(X, client='c0'\)"):
        published.predict(x)
    assert private.describe().startswith("the tree that all share; ")
    for model in (private, published):
        told = model.describe()
        assert "describe(client='c0') shows one of those read: c0, c1, c2.\nPrivacy: " in told
        assert model.describe(client="c0").startswith("the tree of client 'c0', ")
    strange = GeneticTreeClassifier.from_dict(published.to_dict())
    assert "not read yet: c0, c1, c2." in strange.describe() and "<pre>" in strange.to_html()
    assert private.to_html().startswith("<figure>") and "c0" not in private.plot().get_title(
        loc="left"
    )


def test_a_model_without_its_shelf_knows_no_personal_tree(gated: MakeGated) -> None:
    """Saved and read again, it predicts only where a client takes it home."""
    model, federation = _fitted(LEARNERS[0], gated, LEARNERS[0].published())
    told = json.loads(json.dumps(model.to_dict()))
    assert "cuts" not in json.dumps(told)
    again = GeneticTreeClassifier.from_dict(told)
    with pytest.raises(InputError, match="take_home"):
        again.describe(client="c0")
    again.take_home("c0", federation.shelves["c0"])
    assert again.describe(client="c0") == model.describe(client="c0")
    assert again.candidates_ is not None and model.candidates_ is not None
    assert again.candidates_.genes.tolist() == model.candidates_.genes.tolist()


FOREIGN: dict[str, Callable[[dict[str, Any]], Any]] = {
    "nothing": lambda kept: None,
    "text": lambda kept: "text",
    "a field alone": lambda kept: {"feature": kept["feature"]},
    "an unknown feature": lambda kept: {**kept, "feature": [77, *kept["feature"][1:]]},
    "another number of classes": lambda kept: {**kept, "values": [[0.2] * 5] * len(kept["values"])},
    "no number": lambda kept: {**kept, "values": (np.array(kept["values"]) * np.nan).tolist()},
    "a loop": lambda kept: {**kept, "children": [[0, 0]] * len(kept["children"])},
    "a huge number": lambda kept: {**kept, "feature": [2**70] * len(kept["feature"])},
    "weights of other classes": lambda kept: {**kept, "weights": [1.0] * 7},
}


@EACH
def test_a_foreign_or_damaged_shelf_is_told(learner: PersonalLearner, gated: MakeGated) -> None:
    """When it is taken home, not when it predicts; nothing of it is in the message."""
    model, federation = _fitted(learner, gated, learner.private(8), records=60)
    (kept,) = dict(federation.shelves["c0"]).values()
    for name, bend in FOREIGN.items():
        with pytest.raises(InputError, match="no tree over this model's schema"):
            model.take_home("c0", {SHELF: bend(dict(kept))})
            pytest.fail(name)
    assert model.take_home("c0", {SHELF: kept}).describe(client="c0")  # the power twin


def test_a_shared_tree_is_saved_to_the_bit(gated: MakeGated, table: MakeTable) -> None:
    """The private model predicts the same after it was read back; a damaged one is told."""
    model, _ = _fitted(LEARNERS[1], gated, LEARNERS[1].private(8), records=900)
    plain = json.loads(json.dumps(model.to_dict()))
    x = table(50)[list("abc")]
    assert np.array_equal(GeneticTreeRegressor.from_dict(plain).predict(x), model.predict(x))
    plain["state"]["shared"]["feature"][0] = 77
    with pytest.raises(InputError, match="damaged"):
        GeneticTreeRegressor.from_dict(plain)


@pytest.mark.parametrize(
    "changes",
    [
        {"client_fraction": 0.34},
        {"population_size": 1, "generations": 1},
        {"fitness": "folds", "include_local_tree": True, "refit": True},
        {"depth": 1},
        {"leaf_share": 1.0},
    ],
)
@EACH
def test_options_and_extremes_work(
    learner: PersonalLearner, changes: dict[str, object], gated: MakeGated
) -> None:
    """Few clients a round, one candidate, folds, stumps, nothing but nil."""
    changed = clone(learner).set_params(**changes)
    model, federation = _fitted(changed, gated, changed.published())
    assert set(model.homes) == set(federation.clients)


def test_bounded_scores_lie_between_minus_one_and_one(ungated: MakeUngated) -> None:
    """R squared instead of an error in squared units."""
    model = clone(LEARNERS[1]).set_params(bounded=True).fit(ungated(classify=False))
    assert all(-1 <= best <= 1 for best, _ in model.history_)
    plain = clone(LEARNERS[1]).fit(ungated(classify=False))
    assert plain.history_[-1][0] < 0 < model.history_[-1][0]


@pytest.mark.parametrize("records", [3, 6, 12])
@EACH
def test_tiny_clients_learn(learner: PersonalLearner, records: int, gated: MakeGated) -> None:
    """One, two, four records a client: fewer than folds, classes absent."""
    for policy in (learner.published(), learner.private(1)):
        model, federation = _fitted(learner, gated, policy, records=records)
        x = np.zeros((2, 3))
        for client in federation.clients:
            assert len(model.predict(x, client=client)) == 2


BAD: dict[str, tuple[dict[str, object], str]] = {
    "too deep": ({"max_depth": 16}, "max_depth"),
    "upside down": ({"min_depth": 6, "max_depth": 5}, "above max_depth"),
    "nobody": ({"population_size": 0}, "population_size"),
    "never": ({"generations": 0}, "generations"),
    "no fold": ({"cv": 1}, "cv"),
    "strings without end": ({"max_depth": 15, "population_size": 1000}, "too large"),
    "no share": ({"train_size": float("nan")}, "train_size"),
    "an unknown fitness": ({"fitness": "best"}, "fitness"),
    "no participation": ({"client_fraction": 0.0}, "client_fraction"),
    "text": ({"include_local_tree": "yes"}, "include_local_tree"),
}


@pytest.mark.parametrize(("changes", "named"), BAD.values(), ids=BAD)
def test_bad_parameters_are_told_before_anything_is_asked(
    changes: dict[str, object], named: str, ungated: MakeUngated
) -> None:
    """One error that names the parameter."""
    for learner, classify in ((LEARNERS[0], True), (LEARNERS[1], False)):
        with pytest.raises(InputError, match=named):
            clone(learner).set_params(**changes).fit(ungated(classify=classify))


def test_targets_of_the_wrong_kind_are_told(ungated: MakeUngated) -> None:
    """Classes for numbers, and the other way round."""
    with pytest.raises(InputError, match="classes"):
        clone(LEARNERS[0]).fit(ungated(classify=False))
    with pytest.raises(InputError, match="numeric"):
        clone(LEARNERS[1]).fit(ungated(classify=True))


def test_every_learner_is_a_federated_one() -> None:
    """And says which questions it asks, each once."""
    for learner in (GeneticTreeClassifier, GeneticTreeRegressor):
        assert issubclass(learner, FederatedLearner)
        assert len({query.kind for query in learner.queries}) == len(learner.queries)


@EACH
def test_learners_pass_the_kit(
    learner: PersonalLearner, gated: MakeGated, table: MakeTable
) -> None:
    """All but two checks, which need a model for everybody (`published` has none), and that of its questions."""
    classify = isinstance(learner, GeneticTreeClassifier)
    nobody = "published has no model for everybody: a client must be named"
    ran = check_learner(
        clone(learner).set_params(generations=2),
        lambda policy: gated(policy, records=600, classify=classify),
        table(20, 3, classify)[list("abc")],
        skip={"predictions": nobody, "saves": nobody, "queries": "test_every_query has them"},
    )
    assert len(ran) == len(CHECKS) - 3


@EACH
def test_in_a_simulation_it_scores_without_taking_home(
    learner: PersonalLearner, gated: MakeGated, table: MakeTable
) -> None:
    """By a client, by one for each row, and by all: where no tree is shared, the mean over theirs."""
    classify = not isinstance(learner, GeneticTreeRegressor)
    model: Any = clone(learner).fit(gated(learner.published(), classify=classify))
    frame = table(100, 3, classify)
    x, y = frame[list("abc")], frame["y"]
    each = [model.score(x, y, client=client) for client in model.clients_]
    assert model.score(x, y) == pytest.approx(np.mean(each))
    assert model.homes == ()
    by_row = model.predict(x, client=frame["client"])
    for client in model.clients_:
        own = (frame["client"] == client).to_numpy()
        assert np.array_equal(by_row[own], model.predict(x[own], client=client))
    with pytest.raises(InputError, match="client="):
        type(model).from_dict(model.to_dict()).score(x, y)


@pytest.mark.parametrize("private", [False, True])
def test_own_trees_have_at_most_so_many_leaves(private: bool) -> None:
    """8 leaves are 15 nodes, in either way; without a limit there are more."""
    sizes = []
    for most in (8, None):
        learner = GeneticTreeClassifier(
            4, generations=1, depth=6, include_local_tree=True, max_leaf_nodes=most, random_state=0
        )
        policy = learner.private("8") if private else learner.published()
        learner.fit(gates(patients(900), policy, BINARY))
        sizes.append(max(learner.at_home(name).decisions for name in learner.clients_))
    assert sizes[0] <= 7 < sizes[1]
    with pytest.raises(InputError, match="max_leaf_nodes"):
        GeneticTreeClassifier(max_leaf_nodes=1).check_parameters()


def test_noise_alone_makes_no_mean(gated: MakeGated, table: MakeTable) -> None:
    """Where the records that seem to be there could be noise, a number is the middle of its bounds; with more budget a tree."""
    frame = table(60, 3, classify=False)
    for epsilon, guessed in (("0.02", True), ("1000", False)):
        learner = GeneticTreeRegressor(**QUICK)
        model, _ = _fitted(learner, gated, learner.private(epsilon), records=60)
        said = model.predict(frame[list("abc")])
        assert np.allclose(said, 0.0) == guessed
