"""Conformance of a learner: scikit-learn's conventions, honest policies, and releases only.

scikit-learn's own ``check_estimator`` does not apply: a learner is fitted to a federation.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from unittest import TestCase

import numpy as np
import pandas as pd
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.exceptions import NotFittedError

from privfed.engines.local import LocalDisclosure
from privfed.errors import InputError, NobodyAnswered, PolicyError
from privfed.exchange.disclosure import Disclosure, ReplayDisclosure
from privfed.learners.base import FederatedLearner, PersonalLearner
from privfed.owner.gate import Gate
from privfed.privacy.policy import Policy
from privfed.questions.query import Query
from privfed.study.price import beyond_plan
from privfed.tables.records import Records
from privfed.testing.conformance import Check, checks_of, distinctive, numbers, run_checks

EPSILON = 4  #: Epsilon of the private policy that is tested
#: Largest training error allowed, as a fraction of the best constant's.
LEARNS = 0.95
EXAMPLES = 15  #: Neighbouring tables tried for each query and relation
#: A fitted learner, and the federation that it was fitted to.
Fitted = tuple[FederatedLearner, LocalDisclosure]


@dataclass(frozen=True)
class LearnerCase:
    """An unfitted learner under test, fresh federations by policy, and inputs to predict."""

    learner: FederatedLearner
    federate: Callable[[Policy], LocalDisclosure]
    x: pd.DataFrame
    _cache: dict[str, Fitted] = field(default_factory=dict)

    def fitted(self, policy: Policy | None = None) -> Fitted:
        """Return a clone fitted under a policy (by default the published one), and its federation; cached."""
        policy = policy or self.learner.published()
        if policy.digest not in self._cache:
            self._cache[policy.digest] = self.refitted(policy)
        return self._cache[policy.digest]

    def refitted(self, policy: Policy) -> Fitted:
        """Fit another clone to another federation."""
        federation = self.federate(policy)
        fitted = self.fresh().fit(federation)
        assert isinstance(fitted, FederatedLearner), f"fit gives {fitted!r}; write return self"
        return fitted, federation

    def fresh(self) -> FederatedLearner:
        """Return an unfitted clone with ``random_state`` set to 0, as in scikit-learn's checks."""
        learner: FederatedLearner = clone(self.learner)
        seeds = [name for name in learner.get_params() if name.split("__")[-1] == "random_state"]
        learner.set_params(**dict.fromkeys(seeds, 0))
        return learner

    def policies(self) -> list[Policy]:
        """Return the learner's own policies; baselines have no private one."""
        published = self.learner.published()
        if self.learner.baseline:
            return [published]
        schema = self.federate(published).schema
        return [published, self.learner.private(EPSILON, schema=schema)]

    @property
    def kinds(self) -> set[str]:
        """The kinds of query that the learner declares."""
        return {query.kind for query in self.learner.queries}


def check_learner(
    learner: FederatedLearner,
    federate: Callable[[Policy], LocalDisclosure],
    x: pd.DataFrame,
    *,
    skip: Mapping[str, str] | None = None,
) -> list[str]:
    """Run every check on an unfitted learner, which is cloned, never fitted; as :func:`.run_checks`.

    Args:
        federate: builds a fresh federation under a policy, always of the same data and seed.
        x: inputs to predict, a column for each feature.
    """
    return run_checks(CHECKS, LearnerCase(learner, federate, x), skip)


def check_fit_returns_self(case: LearnerCase) -> None:
    """``fit`` gives the learner back."""
    learner = case.fresh()
    assert learner.fit(case.federate(learner.published())) is learner, "write return self"


def check_parameters(case: LearnerCase) -> None:
    """Parameters are stored as they are: a clone has them, and fitting leaves them."""
    before = parameters(case.fresh())
    learner, _ = case.fitted()
    assert parameters(clone(learner)) == parameters(learner) == before, (
        f"{before} became {parameters(learner)}; store each argument of __init__ unchanged, and leave it"
    )
    fitted = [name for name in vars(case.fresh()) if name.endswith("_")]
    assert not fitted, f"__init__ sets {', '.join(fitted)}; set it in fit"


def check_parameter_limits(case: LearnerCase) -> None:
    """Every parameter says what it may be; anything else is told by its name, in one line."""
    schema = case.federate(case.learner.published()).schema
    for name in case.learner.get_params(deep=False):
        learner = case.fresh().set_params(**{name: object()})
        text = refusal(partial(learner.check, schema), f"{name} may be anything")
        assert f" {name} must be " in text, f"of {name} it says: {text}"


def refusal(call: Callable[[], object], accepted: str) -> str:
    """Return the line of the InputError that a call raises; AssertionError if it raises none."""
    try:
        call()
    except InputError as error:
        assert "\n" not in str(error), f"more than one line: {error}"
        return str(error)
    except Exception as error:
        raise AssertionError(f"{type(error).__name__} instead of an InputError") from error
    raise AssertionError(accepted)


def check_unfitted(case: LearnerCase) -> None:
    """An unfitted learner says that it is."""
    with TestCase().assertRaises(NotFittedError, msg="it predicted"):
        case.fresh().predict(case.x)


def check_predictions(case: LearnerCase) -> None:
    """One value for each row, none missing, the same for a table and its copy."""
    learner, _ = case.fitted()
    predicted = np.asarray(learner.predict(case.x))
    assert predicted.shape[:1] == (len(case.x),), (
        f"predicts shape {predicted.shape} for {len(case.x)} rows"
    )
    assert not pd.isna(predicted).any(), "a prediction is missing, or NaN"
    assert np.array_equal(predicted, learner.predict(case.x.copy())), (
        "the same rows get other predictions the second time; draw nothing in predict"
    )
    if is_classifier(learner):
        scores = np.asarray(learner.predict_proba(case.x))
        assert scores.shape == (len(case.x), len(learner.classes_)), (
            "one probability for each class"
        )
        assert (scores >= 0).all() and np.allclose(scores.sum(axis=1), 1), (
            "probabilities add up to 1"
        )


def check_manners(case: LearnerCase) -> None:
    """It knows its features, refuses tables and strangers, and is a regressor or a classifier."""
    learner, federation = case.fitted()
    assert list(learner.feature_names_in_) == list(federation.schema.names), (
        f"feature_names_in_ is {list(learner.feature_names_in_)}; leave it to the base class"
    )
    assert learner.n_features_in_ == len(federation.schema.features), (
        f"n_features_in_ is {learner.n_features_in_}; leave it to the base class"
    )
    assert is_regressor(learner) != is_classifier(learner), "neither a regressor nor a classifier"
    refusal(lambda: case.fresh().fit(case.x), "it fits a table")  # type: ignore[arg-type]
    refusal(
        lambda: learner.predict(case.x, client="an unknown client"),
        "it predicts for an unknown client",
    )


def check_saves(case: LearnerCase) -> None:
    """A model read back from JSON predicts the same to the bit, and is refused where damaged."""
    learner, _ = case.fitted()
    text = model_text(learner)
    restored = type(learner).from_dict(json.loads(text))
    same = np.array_equal(np.asarray(restored.predict(case.x)), np.asarray(learner.predict(case.x)))
    assert same, (
        "predict uses what is not saved: name it with an underscore at its end, or write state"
    )
    assert model_text(restored) == text, "what is saved again differs"
    damaged: list[dict[str, object]] = [{"format": "2"}, {"learner": "Another"}, {"schema": {}}]
    for damage in damaged:
        model = json.loads(text) | damage
        refusal(partial(type(learner).from_dict, model), f"it reads a model with {damage}")


def check_policies(case: LearnerCase) -> None:
    """Both policies name the learner's own kinds and none else, and repeat."""
    for policy, again in zip(case.policies(), case.policies(), strict=True):
        assert set(policy.guards) <= case.kinds, "a guard of a foreign kind"
        assert policy.digest == again.digest, f"{policy.name!r} is another one the second time"


def check_private_is_finite(case: LearnerCase) -> None:
    """Under the private policy, if it is no baseline, releases are protected and the epsilon kept."""
    for policy in case.policies()[1:]:
        _, federation = case.fitted(policy)
        assert len(federation.transcript()), "nothing was released at all"
        for gate in federation.gates.values():
            spent, budget = gate.ledger.spent(gate.accountant), gate.policy.budget
            assert not spent.unprotected, "an unprotected release"
            assert budget is not None, "no budget"
            assert budget.epsilon <= EPSILON, (
                f"private({EPSILON}) proposes a budget of epsilon {float(budget.epsilon):g}"
            )
            assert gate.accountant.fits(spent.total, gate.accountant.ceiling(budget)), (
                "more is spent than the budget"
            )


def check_asks_its_own_kinds(case: LearnerCase) -> None:
    """Every question asked is of a declared kind."""
    _, federation = case.fitted()
    foreign = {entry.kind for entry in federation.transcript()} - case.kinds
    assert not foreign, f"asked {', '.join(sorted(foreign))}"


def check_plan(case: LearnerCase) -> None:
    """No kind is asked of a client more often than the longest public schedule says."""
    for policy in case.policies():
        _, federation = case.fitted(policy)
        plan = case.learner.plan(federation.schema, policy)
        beyond = beyond_plan(plan, federation.transcript())
        assert not beyond, "; ".join(beyond)


def check_repeats(case: LearnerCase) -> None:
    """The same data and seed give the same model."""
    (first, _), (second, _) = case.fitted(), case.refitted(case.learner.published())
    assert model_text(first) == model_text(second), (
        "the models differ; draw from a random_state, and read nothing but the answers"
    )


def check_replay(case: LearnerCase) -> None:
    """The recorded answers alone give the same model, and answers with noise another one."""
    learner, federation = case.fitted()
    recorded = ReplayDisclosure(federation.schema, federation.transcript(), federation.clients)
    assert model_text(case.fresh().fit(recorded)) == model_text(learner), (
        "the recorded answers give another model: it has something from elsewhere"
    )
    for policy in case.policies()[1:]:
        noisy, _ = case.fitted(policy)
        assert model_text(noisy) != model_text(learner), (
            "the model is the same under noise: it has it from elsewhere"
        )


def check_silence(case: LearnerCase) -> None:
    """Where every client refuses, a typed error that says so, and no model of nothing."""
    with TestCase().assertRaises(NobodyAnswered, msg="it learned from nothing at all") as caught:
        case.fresh().fit(case.federate(Policy({})))
    assert str(caught.exception), "its text is empty"


def check_model_is_plain(case: LearnerCase) -> None:
    """The model is plain data that can be read without privfed."""
    learner, _ = case.fitted()
    assert isinstance(learner.to_dict(), dict), "to_dict gives no dictionary"
    assert model_text(learner), "to_dict gives nothing"


def check_holds_no_records(case: LearnerCase) -> None:
    """After fitting, no attribute is a federation, a gate or records; a private model tells no raw value."""
    learner, _ = case.fitted()
    kinds = Disclosure | Gate | Records
    forbidden = [name for name, value in vars(learner).items() if isinstance(value, kinds)]
    assert not forbidden, f"it holds {', '.join(forbidden)}"
    for policy in case.policies()[1:]:
        learner, federation = case.fitted(policy)
        public = set(numbers(federation.schema.to_dict()))
        values = set(numbers(json.loads(model_text(learner)))) - public
        for client, gate in federation.gates.items():
            common = values & set(distinctive(gate._view.records))
            assert not common, f"the private model has {len(common)} raw values of {client}"


def check_learns(case: LearnerCase) -> None:
    """On the very records it learnt from it errs less than the best constant, by a twentieth.

    Mean squared error, or the share of wrong classes; each client's own model where there is one.
    """
    learner, federation = case.fitted()
    target, predictions = [], []
    for client, gate in federation.gates.items():
        records = gate._view.records
        if isinstance(learner, PersonalLearner):
            learner.take_home(client, federation.shelves[client])
        predictions.append(np.asarray(learner.predict(records.x, client=client)))
        target.append(records.target)
    y, predicted = np.concatenate(target), np.concatenate(predictions)
    if is_classifier(learner):
        error = np.mean(predicted != np.asarray(learner.classes_)[y.astype(int)])
        constant = 1 - np.bincount(y.astype(int)).max() / len(y)
    else:
        error, constant = np.mean((predicted - y) ** 2), np.var(y)
    assert error <= LEARNS * constant, (
        f"it errs by {error:.3g}, a constant by {constant:.3g}; give records of which it can learn, or "
        'skip={"learns": why}'
    )


def check_queries(case: LearnerCase) -> None:
    """Every kind of question that it asks keeps the queries' contract (this needs hypothesis)."""
    from privfed.testing.check_query import check_query  # the other checks do without hypothesis

    kinds = {query.kind: query for query in case.learner.queries}
    queries: dict[str, Query] = {}
    try:
        policies = case.policies()
    except PolicyError:  # it has no private mode; another check reports that
        policies = [case.learner.published()]
    for policy in policies:
        _, federation = case.fitted(policy)
        for entry in federation.transcript():
            queries[entry.kind] = kinds[entry.kind].from_fields(entry.fields)
    for query in queries.values():
        if query.parts(federation.schema):
            check_query(query, federation.schema, examples=EXAMPLES)


def parameters(learner: FederatedLearner) -> dict[str, object]:
    """Return the parameters, including those of a nested learner but not that learner itself."""
    params = learner.get_params(deep=True)
    return {name: value for name, value in params.items() if not hasattr(value, "get_params")}


def model_text(learner: FederatedLearner) -> str:
    """Return the model as JSON text; AssertionError if it holds NaN or objects."""
    try:
        return json.dumps(learner.to_dict(), sort_keys=True, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise AssertionError(f"the model is not plain data: {error}") from None


CHECKS: tuple[Check[LearnerCase], ...] = checks_of(__name__)
