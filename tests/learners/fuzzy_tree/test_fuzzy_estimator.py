"""The whole tree: federated equals centralized, noise, silence, rules and bad input."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.datasets import load_diabetes

from privfed import Column, Guard, LocalDisclosure, Policy, Schema
from privfed.errors import InputError, NobodyAnswered, SchemaError
from privfed.exchange.disclosure import ReplayDisclosure, ScriptedDisclosure
from privfed.exchange.ungated import UngatedDisclosure
from privfed.learners import FuzzyTreeRegressor
from privfed.learners.fuzzy_tree.linear import Moments, Residuals, ResidualsBySet
from privfed.learners.fuzzy_tree.queries import Activations, Leaves, Level, Scaling
from privfed.privacy.accountant import Budget

SCHEMA = Schema(
    tuple(Column(name, "number", 0, 10) for name in ("age", "dose", "weight")),
    Column("score", "number", -5, 25),
)
OPEN = Policy({q.kind: (Guard.of("open"),) for q in (Scaling, Level, Leaves, Activations)})


def table(rows: int = 400, seed: int = 0) -> pd.DataFrame:
    """Records with a fuzzy structure, spread over clients."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(0, 10, (rows, 3))
    score = np.where(x[:, 0] < 4, 2 * x[:, 1], 10 - x[:, 2]) + rng.normal(0, 0.3, rows)
    frame = pd.DataFrame(x, columns=["age", "dose", "weight"]).assign(score=score)
    return frame.assign(client=rng.integers(0, 4, rows))


def error(model: FuzzyTreeRegressor, frame: pd.DataFrame) -> float:
    """Root mean squared error."""
    return float(np.sqrt(np.mean((model.predict(frame) - frame["score"]) ** 2)))


def bare(frame: pd.DataFrame, client: str | None = "client") -> UngatedDisclosure:
    """The same records without gates."""
    return UngatedDisclosure.from_frame(frame, SCHEMA, client)


@settings(max_examples=8)
@given(seed=st.integers(0, 2**20), clients=st.integers(1, 7))
def test_federated_equals_centralized_to_the_bit(seed: int, clients: int) -> None:
    """Whatever the split over clients, tree, leaves and predictions are the pooled ones."""
    frame = table(150, seed)
    frame["client"] = np.random.default_rng(seed).integers(0, clients, len(frame))
    fed = LocalDisclosure.from_frame(frame, "score", client="client", schema=SCHEMA, policy=OPEN)
    federated, pooled = FuzzyTreeRegressor().fit(fed), FuzzyTreeRegressor().fit(bare(frame, None))
    assert [leaf.path for leaf in federated.leaves_] == [leaf.path for leaf in pooled.leaves_]
    assert np.array_equal(federated.models_.coefficients, pooled.models_.coefficients)
    assert np.array_equal(federated.predict(frame), pooled.predict(frame))


def test_the_tree_finds_the_structure() -> None:
    """It beats a linear model on data that change their slope with age."""
    train, test = table(2000), table(500, seed=1)
    tree = FuzzyTreeRegressor().fit(bare(train))
    line = FuzzyTreeRegressor(max_depth=0).fit(bare(train))
    assert any(0 in {feature for feature, _ in leaf.path} for leaf in tree.leaves_)
    assert error(tree, test) < 0.7 * error(line, test)
    assert line.n_leaves_ == 1 and line.n_nodes_ == 0


def test_published_learns_nearly_what_open_learns() -> None:
    """Nullification costs little on hundreds of records."""
    train, test = table(1000), table(500, seed=1)
    policy = FuzzyTreeRegressor().published()
    fed = LocalDisclosure.from_frame(train, "score", client="client", schema=SCHEMA, policy=policy)
    published = FuzzyTreeRegressor().fit(fed)
    assert error(published, test) < 1.2 * error(FuzzyTreeRegressor().fit(bare(train)), test)
    assert (fed.budget()["unprotected"] > 0).all()


def test_private_is_finite_end_to_end_and_learns() -> None:
    """Everything released is charged, nothing is unprotected, the budget is kept, and it predicts."""
    train, test = table(8000), table(1000, seed=1)
    learner = FuzzyTreeRegressor(max_depth=1)
    policy = learner.private(epsilon=8, delta="1e-5")
    fed = LocalDisclosure.from_frame(
        train, "score", client="client", schema=SCHEMA, policy=policy, seed=0
    )
    model = learner.fit(fed)
    budget = fed.budget()
    assert (budget["unprotected"] == 0).all()
    assert (budget["spent"] <= budget["epsilon"]).all() and (budget["spent"] > 4).all()
    kinds = {query.kind for query in (Scaling, Level, Moments, Residuals, ResidualsBySet)}
    assert {e.kind for e in fed.transcript()} == kinds
    assert error(model, test) < 0.8 * float(test["score"].std())


def test_an_owner_who_offers_noisy_equations_alone_is_learned_from() -> None:
    """Laplace noise on the leaves' equations: one linear model, solved once."""
    guards = {
        Level.kind: (Guard.of("laplace", "weights", "linear", "squares", spend="2", times=1),),
        Leaves.kind: (Guard.of("laplace", "gram", "moment", spend="4", times=1),),
    }
    policy = Policy(guards, accountant="pure", budget=Budget.of("6", 0))
    fed = LocalDisclosure.from_frame(
        table(4000), "score", client="client", schema=SCHEMA, policy=policy, seed=0
    )
    model = FuzzyTreeRegressor(scaling="schema", max_depth=1).fit(fed)
    assert model.n_leaves_ == 1 and not model.models_.constant.any()
    test = table(500, seed=1)
    assert error(model, test) < 0.9 * float(test["score"].std())


def test_too_little_budget_falls_back_to_constants_and_says_so() -> None:
    """A hundred records at epsilon 0.1 mostly leave only a noisy mean inside the target's bounds."""
    learner = FuzzyTreeRegressor(max_depth=1)
    policy = learner.private(epsilon="0.1", delta="1e-5")
    constants = 0
    for seed in range(6):
        fed = LocalDisclosure.from_frame(
            table(100), "score", client="client", schema=SCHEMA, policy=policy, seed=seed
        )
        model = learner.fit(fed)
        assert ("constant" in model.describe()) == model.models_.constant.all()
        assert (np.abs(model.predict(table(50)) - 10) <= 15).all()
        constants += bool(model.models_.constant.all())
    assert constants >= 3


def test_the_plan_covers_what_is_asked() -> None:
    """No kind is asked more often than the longest public schedule says."""
    fed = LocalDisclosure.from_frame(
        table(600), "score", client="client", schema=SCHEMA, policy=OPEN
    )
    learner = FuzzyTreeRegressor().fit(fed)
    planned = {line.query.kind: line.times for line in learner.plan(SCHEMA, learner.published())}
    for client in fed.clients:
        kinds = pd.Series([e.kind for e in fed.transcript().of(client=client)]).value_counts()
        assert all(kinds[kind] <= planned[kind] for kind in kinds.index)


def test_replayed_answers_give_the_same_model() -> None:
    """The transcript is all that the learner used."""
    fed = LocalDisclosure.from_frame(table(), "score", client="client", schema=SCHEMA, policy=OPEN)
    first = FuzzyTreeRegressor().fit(fed)
    again = FuzzyTreeRegressor().fit(ReplayDisclosure(SCHEMA, fed.transcript()))
    assert np.array_equal(first.models_.coefficients, again.models_.coefficients)


def test_permuted_clients_and_records_change_nothing() -> None:
    """Sums on the grid do not depend on any order."""
    frame = table()
    shuffled = frame.sample(frac=1, random_state=1).assign(client=lambda f: 3 - f["client"])
    one, other = FuzzyTreeRegressor().fit(bare(frame)), FuzzyTreeRegressor().fit(bare(shuffled))
    assert np.array_equal(one.models_.coefficients, other.models_.coefficients)


def test_a_draw_of_clients_takes_part_in_each_round() -> None:
    """With two clients a round, each round's answers come from two, and the tree still learns."""
    fed = LocalDisclosure.from_frame(
        table(2000), "score", client="client", schema=SCHEMA, policy=OPEN
    )
    model = FuzzyTreeRegressor(clients_per_round=2, random_state=0).fit(fed)
    per_query = pd.Series([e.release.request for e in fed.transcript()]).value_counts()
    assert (per_query == 2).all()
    assert error(model, table(500, seed=1)) < 3


def test_prediction_is_by_maximum_matching() -> None:
    """Each row is predicted by the one rule with the largest normalised activation."""
    model = FuzzyTreeRegressor().fit(bare(table(600)))
    frame = table(40, seed=2)
    unit = (model._encode(frame) - model.lower_) / (model.upper_ - model.lower_)
    unit = np.clip(unit, 0, 1)
    for row, chosen in zip(unit, model.apply(frame), strict=True):
        strength = []
        for leaf, mean in zip(model.leaves_, model.mean_activation_, strict=True):
            degree = [max(0.0, 1 - abs(row[f] * 4 - s)) for f, s in leaf.path]
            strength.append(np.prod(degree) / mean)
        assert strength[chosen] == pytest.approx(max(strength))


def test_rules_say_what_the_model_predicts() -> None:
    """The rule's text model, in the data's own units, gives the prediction inside the scaling."""
    model = FuzzyTreeRegressor(scaling="schema").fit(bare(table(600)))
    frame = table(20, seed=3)
    rules = model.rules_
    for (_, row), chosen, predicted in zip(
        frame.iterrows(), model.apply(frame), model.predict(frame), strict=True
    ):
        rule = rules[chosen]
        by_hand = rule.intercept + sum(slope * row[name] for name, slope in rule.slopes.items())
        assert by_hand == pytest.approx(predicted, abs=1e-9)
    assert str(rules[0]).startswith("IF ") and " THEN score = " in str(rules[0])


@pytest.mark.parametrize(("dose", "score"), [(0, 0), (1e6, 0), (0, 1e9), (1e6, 1e6)])
def test_a_printed_equation_predicts_wherever_columns_lie(dose: float, score: float) -> None:
    """By hand, from its text: to a thousandth of the target's width, where terms cancel that are a million times larger."""
    columns = [replace(c, lower=c.lower + m, upper=c.upper + m)  # type: ignore[operator]
               for c, m in zip(SCHEMA.columns, (0, dose, 0, score), strict=True)]  # fmt: skip
    schema, frame = Schema(tuple(columns), "score"), table(300)
    frame[["dose", "score"]] += [dose, score]
    fed = UngatedDisclosure.from_frame(frame, schema, "client")
    model = FuzzyTreeRegressor(scaling="schema", max_depth=0).fit(fed)
    text = model.describe()
    terms = re.findall(
        r"([+-]?) ?(-?[\d.]+(?:e[+-]?\d+)?)(?: (\w+))?", text.split("\n")[0].split(" = ")[1]
    )
    by_hand = sum(
        float(sign + number) * (frame[name] if name else 1.0) for sign, number, name in terms
    )
    low, high = schema.columns[-1].bounds
    assert np.allclose(np.clip(by_hand, low, high), model.predict(frame), rtol=0, atol=0.03)
    for name, value in zip(schema.names, schema.upper, strict=True):
        assert f"{name} {value - 10:.15g} to {value:.15g}" in text
    assert f"lie between {low:.15g} and {high:.15g}." in text


def test_which_rule_predicts_a_case_is_told_by_the_text_alone() -> None:
    """The product of degrees between printed peaks over printed means; where no means were released, over halves."""
    grown: dict[str, Any] = {
        "scaling": "schema",
        "max_depth": 2,
        "n_fuzzy_sets": 3,
        "min_samples_split": 0.3,
    }
    model, frame = FuzzyTreeRegressor(**grown).fit(bare(table(600))), table(100, seed=3)
    for means in ("rule by rule", "doubled for each condition", ""):
        if means != "rule by rule":
            depths = np.array([len(leaf.path) for leaf in model.leaves_])
            model.mean_activation_ = 0.5 ** (depths if means else np.full(len(depths), 2))
        text = model.describe()
        ifs = re.findall(r"^IF (.*) THEN", text, re.MULTILINE)
        assert {len(one.split(" AND ")) for one in ifs} == {1, 2}
        (told,) = re.findall(
            r"^One rule predicts each case: .*next set's\)(.*)\.$", text, re.MULTILINE
        )
        assert (means in told) if means else not told
        over = [1.0] * len(ifs)
        if means:
            over = [0.5 ** len(one.split(" AND ")) for one in ifs]
        if means == "rule by rule":
            over = [float(one) for one in told.split(means)[1].split(",")]
        peaks = {
            name: {one.split(" at ")[0]: float(one.split(" at ")[1]) for one in row.split(", ")}
            for name, row in re.findall(
                r"^Peaks of the sets of (\w+), .*: (.*)\.$", text, re.MULTILINE
            )
        }

        def degree(condition: str, own: Any, peaks: Any = peaks) -> np.ndarray:
            name, wanted = condition.split(" is ")
            order = sorted(peaks[name].values())
            at = np.eye(len(order))[order.index(peaks[name][wanted])]
            return np.asarray(np.interp(own[name], order, at))

        strength = [
            np.prod([degree(each, frame) for each in one.split(" AND ")], axis=0) / mean
            for one, mean in zip(ifs, over, strict=True)
        ]
        assert np.mean(np.argmax(strength, axis=0) == model.apply(frame)) > 0.98
    model.mean_activation_ = 0.5**depths + 0.01 * np.arange(len(depths))  # one was withheld
    assert (
        "over cases that meet the rule (0.5 for each condition where that was withheld), rule by rule"
        in model.describe()
    )


def test_a_description_names_categories_and_says_where_sets_peak() -> None:
    """In conditions, in equations and in pictures; numbers have their sets' peaks, ends and limits."""
    kinds = Column("kind", "category", categories=("a", "b", ""))
    schema = Schema((*SCHEMA.features, kinds), SCHEMA.target)
    frame = table(300).assign(kind=lambda f: np.array(["a", "b", ""])[np.arange(len(f)) % 3])
    frame["score"] += np.where(frame["kind"] == "a", 5, 0)
    fed = UngatedDisclosure.from_frame(frame, schema, "client")
    model = FuzzyTreeRegressor(
        n_fuzzy_sets={"kind": 2, "age": 3}, features=["kind", "age"], scaling="schema"
    )
    text = model.fit(fed).describe()
    assert "kind is Low (a, b by 0.5)" in text and 'kind is High (b by 0.5, "")' in text
    assert 'Codes in equations: kind 0 for a, 1 for b, 2 for "".' in text
    assert (
        "Peaks of the sets of age, which overlap between them: Low at 0, Medium at 5, High at 10."
        in text
    )
    assert "dose 0 to 10" in text and "Predictions of score lie between -5 and 25." in text
    assert "is Low (a, b by 0.5)" in {
        one.get_text().replace("\n", " ") for one in model.plot().texts
    }
    assert model.from_dict(json.loads(json.dumps(model.to_dict()))).describe() == text


def test_many_categories_are_described_by_the_ends_of_their_runs() -> None:
    """In conditions and equations; by what is printed a case is predicted all the same."""
    names = tuple(f"w{k:03}" for k in range(300))
    schema = Schema((Column("ward", categories=names), SCHEMA.features[0]), SCHEMA.target)
    code = np.random.default_rng(3).integers(0, 300, 900)
    frame = table(900).assign(ward=np.array(names)[code])
    frame["score"] = 3 + code / 30 + frame["age"]
    fed = UngatedDisclosure.from_frame(frame, schema, "client")
    model = FuzzyTreeRegressor(scaling="schema", max_depth=0).fit(fed)
    model.lower_, model.upper_ = np.array([20.5, 0.0]), np.array([280.0, 10.0])
    equation, told = model.describe().splitlines()[:2]
    read = re.fullmatch(
        r"Codes in equations: ward 0 for w000, ..., w020, (\S+) for w021 and (\S+) more for each further one "
        r"up to w279, 299 for w280, ..., w299\.",
        told,
    )
    assert read is not None
    numbers = [float(one) for one in re.findall(r"\d[\d.]*", equation.replace("ward", ""))]
    ward = np.where(code > 20, float(read[1]) + float(read[2]) * (code - 21), 0.0)
    ward = np.where(code >= 280, 299.0, ward)
    by_hand = numbers[0] + numbers[1] * ward + numbers[2] * frame["age"]
    assert np.allclose(by_hand, model.predict(frame), atol=0.02)
    model = FuzzyTreeRegressor(
        n_fuzzy_sets=3, max_depth=1, features=["ward"], scaling="schema"
    ).fit(fed)
    assert "ward is Low (w000, ..., w148; the nearer to w000 the more)" in model.describe()


def test_equations_count_categories_as_the_scalings_ends_leave_them_apart() -> None:
    """Within narrow ends, as noise leaves them, a slope is steep: by what is printed a case is predicted all the same."""
    kinds = Column("kind", "category", categories=("a", "b", "c"))
    schema = Schema((kinds, Column("falls", "integer", 0, 3), SCHEMA.features[0]), SCHEMA.target)
    frame = table(300).assign(kind=lambda f: np.array(list("abc"))[np.arange(len(f)) % 3])
    frame["falls"] = np.arange(len(frame)) % 4
    fed = UngatedDisclosure.from_frame(frame, schema, "client")
    model = FuzzyTreeRegressor(scaling="schema", max_depth=0).fit(fed)
    model.lower_, model.upper_ = np.array([0.9, 0.0, 0.0]), np.array([1.1, 0.01, 10.0])
    equation, told = model.describe().splitlines()[:2]
    assert (
        told == "Codes in equations: kind 0 for a, 1 for b, 2 for c; falls 0 up to 0, 1 from 1 on."
    )
    numbers = [
        float(one) for one in re.findall(r"-?\d[\d.]*(?:e-?\d+)?", equation.replace("- ", "-"))
    ]
    code = frame["kind"].map({"a": 0, "b": 1, "c": 2})
    by_hand = (
        numbers[0]
        + numbers[1] * code
        + numbers[2] * (frame["falls"] > 0)
        + numbers[3] * frame["age"]
    )
    assert np.allclose(by_hand, model.predict(frame), atol=0.02)


def test_the_model_is_plain_data() -> None:
    """It survives JSON and holds one rule for each leaf."""
    model = FuzzyTreeRegressor().fit(bare(table()))
    plain = json.loads(json.dumps(model.to_dict()))
    assert len(plain["rules"]) == model.n_leaves_


def test_a_row_that_activates_no_leaf_gets_a_mean() -> None:
    """Empty branches are no leaves; rows that fall there are predicted by the node above."""
    frame = table(600)
    hole = frame[(frame["age"] < 2) | (frame["age"] > 8)]
    model = FuzzyTreeRegressor(scaling="schema").fit(bare(hole))
    middle = pd.DataFrame({"age": [5.0], "dose": [5.0], "weight": [5.0]})
    predicted = model.predict(middle)
    assert np.isfinite(predicted).all() and -5 <= predicted[0] <= 25


@pytest.mark.parametrize(
    "frame", [table(5).iloc[:1], table(40).assign(dose=3.0), table(40).assign(score=1.0)]
)
def test_odd_data_are_learned_without_fuss(frame: pd.DataFrame) -> None:
    """One record, a constant feature, a constant target."""
    model = FuzzyTreeRegressor().fit(bare(frame))
    assert np.isfinite(model.predict(frame)).all()
    published = FuzzyTreeRegressor().published()
    fed = LocalDisclosure.from_frame(
        frame, "score", client="client", schema=SCHEMA, policy=published
    )
    assert np.isfinite(FuzzyTreeRegressor().fit(fed).predict(frame)).all()


def test_an_empty_client_changes_nothing() -> None:
    """A client without records answers with zeros."""
    frame = table(200)
    full = bare(frame)
    from privfed.tables.records import Records

    groups = {str(n): Records.from_frame(p, SCHEMA) for n, p in frame.groupby("client")}
    groups["nobody"] = Records.from_frame(frame.iloc[:0], SCHEMA)
    one, other = FuzzyTreeRegressor().fit(full), FuzzyTreeRegressor().fit(UngatedDisclosure(groups))
    assert np.array_equal(one.models_.coefficients, other.models_.coefficients)


@pytest.mark.parametrize(
    ("parameters", "word"),
    [
        ({"n_fuzzy_sets": 1}, "n_fuzzy_sets"),
        ({"scaling": "magic"}, "scaling"),
        ({"min_gain": float("nan")}, "min_gain"),
        ({"min_samples_split": 1.0}, "min_samples_split"),
        ({"max_depth": -1}, "max_depth"),
        ({"clients_per_round": 9}, "clients_per_round"),
        ({"features": ["height"]}, "height"),
        ({"leaf_features": ["height"]}, "height"),
    ],
)
def test_bad_parameters_are_named(parameters: dict[str, object], word: str) -> None:
    """One error that names the parameter."""
    with pytest.raises((InputError, SchemaError), match=word):
        FuzzyTreeRegressor(**parameters).fit(bare(table(50)))  # type: ignore[arg-type]


@pytest.mark.parametrize("epsilon", ["0", "-1", "nan", "1,0", float("nan"), 0])
def test_bad_epsilons_are_named(epsilon: object) -> None:
    """Zero, negative, NaN and a comma are each one clear error."""
    with pytest.raises(InputError, match="epsilon"):
        FuzzyTreeRegressor().private(epsilon=epsilon)  # type: ignore[arg-type]


def test_nobody_answering_at_all_is_an_error() -> None:
    """A constant that nobody told is no model: an error that says what to do."""

    def silent(client: str, query: object) -> dict[str, np.ndarray]:
        raise KeyError

    with pytest.raises(NobodyAnswered, match=r"could be reached; see federation.budget\(\)"):
        FuzzyTreeRegressor().fit(ScriptedDisclosure(SCHEMA, silent))


def test_scikit_learns_manners() -> None:
    """Parameters survive a clone, and predicting before fitting is an error that says so."""
    model = clone(FuzzyTreeRegressor(n_fuzzy_sets=3, min_gain=0.01))
    assert model.get_params()["n_fuzzy_sets"] == 3
    with pytest.raises(Exception, match="not fitted"):
        model.predict(table(2))
    fitted = model.fit(bare(table()))
    with pytest.raises(SchemaError, match="columns"):
        fitted.predict(np.zeros((2, 2)))


def test_the_papers_sizes_and_error_on_kin8nm(data_folder) -> None:  # type: ignore[no-untyped-def]
    """Table 3 and 5: RMSE 0.196, 30 nodes, 25 leaves, depth 2 (one split of five)."""
    frame = pd.read_csv(data_folder / "kin8nm.csv")
    target = str(frame.columns[-1])
    rng = np.random.default_rng(0)
    frame = frame.iloc[rng.permutation(len(frame))].assign(client=np.arange(len(frame)) % 5)
    train, test = frame.iloc[: len(frame) * 4 // 5], frame.iloc[len(frame) * 4 // 5 :]
    schema = Schema.infer(frame.drop(columns="client"), target)
    policy = FuzzyTreeRegressor().published()
    fed = LocalDisclosure.from_frame(train, target, client="client", schema=schema, policy=policy)
    model = FuzzyTreeRegressor().fit(fed)
    assert (model.n_nodes_, model.n_leaves_, model.depth_) == (30, 25, 2)
    found = float(np.sqrt(np.mean((model.predict(test) - test[target]) ** 2)))
    assert found == pytest.approx(0.196, rel=0.03)


def test_the_embedded_patients_are_learned() -> None:
    """Diabetes over five clinics: the published tree beats the mean."""
    frame = load_diabetes(as_frame=True, scaled=False).frame
    frame["clinic"] = np.random.default_rng(0).integers(0, 5, len(frame))
    train, test = frame.iloc[:350], frame.iloc[350:]
    learner = FuzzyTreeRegressor(max_depth=1)
    fed = LocalDisclosure.from_frame(train, "target", client="clinic", policy=learner.published())
    found = np.sqrt(np.mean((learner.fit(fed).predict(test) - test["target"]) ** 2))
    assert found < 0.9 * test["target"].std()


def test_a_refused_first_question_is_reported() -> None:
    """A policy that names none of the learner's kinds leaves nobody to ask."""
    fed = LocalDisclosure.from_frame(
        table(), "score", client="client", schema=SCHEMA, policy=Policy({})
    )
    with pytest.raises(NobodyAnswered, match="policy does not name"):
        fed.ask(Scaling(8))


def test_a_spent_budget_is_no_model() -> None:
    """A second fit finds nothing left: an error that says what to do, and not one rule for all."""
    learner = FuzzyTreeRegressor(max_depth=1)
    fed = LocalDisclosure.from_frame(
        table(), "score", client="client", schema=SCHEMA, policy=learner.private(1), seed=1
    )
    learner.fit(fed)
    with pytest.raises(NobodyAnswered, match=r"FuzzyTreeRegressor.*budgets are spent"):
        FuzzyTreeRegressor(max_depth=1).fit(fed)
    refused = [e for g in fed.gates.values() for e in g.ledger.entries() if e.event == "refused"]
    assert not refused


def test_each_feature_may_have_sets_of_its_own() -> None:
    """By a table, a list or one number; branches, labels and predictions follow, over gates too."""
    frame = table(600)
    by_name = FuzzyTreeRegressor(n_fuzzy_sets={"age": 2, "dose": 3}).fit(bare(frame))
    listed = FuzzyTreeRegressor(n_fuzzy_sets=[2, 3, 5])
    fed = LocalDisclosure.from_frame(frame, "score", client="client", schema=SCHEMA, policy=OPEN)
    listed.fit(fed)
    assert [leaf.path for leaf in by_name.leaves_] == [leaf.path for leaf in listed.leaves_]
    assert np.array_equal(by_name.predict(frame), listed.predict(frame))
    sets = np.array([2, 3, 5])
    assert all(branch < sets[feature] for leaf in by_name.leaves_ for feature, branch in leaf.path)
    assert {f for leaf in by_name.leaves_ for f, _ in leaf.path} == {0, 1, 2}
    assert by_name.readable()["sets"]["age"] == ["Low", "High"]
    even, one = FuzzyTreeRegressor(n_fuzzy_sets=[3] * 3), FuzzyTreeRegressor(n_fuzzy_sets=3)
    assert np.array_equal(even.fit(bare(frame)).predict(frame), one.fit(bare(frame)).predict(frame))


def test_a_private_tree_may_have_uneven_sets() -> None:
    """The questions carry them, and the model survives being saved."""
    learner = FuzzyTreeRegressor(n_fuzzy_sets={"age": 2})
    fed = LocalDisclosure.from_frame(
        table(), "score", client="client", schema=SCHEMA, policy=learner.private(8), seed=0
    )
    model = learner.fit(fed)
    again = FuzzyTreeRegressor.from_dict(json.loads(json.dumps(model.to_dict())))
    assert np.array_equal(model.predict(table(20)), again.predict(table(20)))


def test_a_private_tree_without_a_level_is_a_line_all_the_same() -> None:
    """The number of records is then that of the second moments."""
    learner, frame = FuzzyTreeRegressor(), table(600)
    policy = learner.private(16)
    kept = {kind: own for kind, own in policy.guards.items() if kind != Level.kind}
    fed = LocalDisclosure.from_frame(
        frame,
        "score",
        client="client",
        schema=SCHEMA,
        policy=replace(policy, guards=kept),
        seed=0,
    )
    error = frame["score"] - learner.fit(fed).predict(frame)
    assert learner.n_leaves_ == 1 and error.std() < 0.9 * frame["score"].std()


@pytest.mark.parametrize("sets", [[3, 3], {"height": 3}, {"age": 1}, [3, 3, 100], "five", []])
def test_sets_that_fit_no_schema_are_named(sets: object) -> None:
    """A wrong length, an unknown feature and absurd numbers each give one error."""
    with pytest.raises((InputError, SchemaError), match=r"sets|height"):
        FuzzyTreeRegressor(n_fuzzy_sets=sets).fit(bare(table(50)))  # type: ignore[arg-type]


def test_a_saved_tree_predicts_what_reaches_no_leaf_the_same() -> None:
    """Models of inner nodes are saved with the tree."""
    frame = table(600)
    hole = frame[(frame["age"] < 2) | (frame["age"] > 8)]
    model = FuzzyTreeRegressor(scaling="schema").fit(bare(hole))
    again = FuzzyTreeRegressor.from_dict(json.loads(json.dumps(model.to_dict())))
    middle = pd.DataFrame({"age": [5.0], "dose": [5.0], "weight": [5.0]})
    assert again.apply(middle) == [-1]
    assert np.array_equal(model.predict(middle), again.predict(middle))


def test_matches_are_normalised_by_their_mean_activation() -> None:
    """Eq. 22: a leaf's strength over the mean strength of the records that activate it at all."""
    frame = table(600)
    model = FuzzyTreeRegressor(scaling="schema").fit(bare(frame))
    unit = frame[["age", "dose", "weight"]].to_numpy() / 10
    strengths = []
    for leaf, mean in zip(model.leaves_, model.mean_activation_, strict=True):
        degrees = [np.maximum(0.0, 1 - np.abs(unit[:, f] * 4 - s)) for f, s in leaf.path]
        strength = np.prod(degrees, axis=0)
        assert mean == pytest.approx(strength[strength > 0].mean(), rel=1e-6)
        strengths.append(strength)
    raw = np.argmax(strengths, axis=0)
    normal = np.argmax(np.array(strengths) / model.mean_activation_[:, None], axis=0)
    assert (raw != normal).any()
    assert np.array_equal(model.apply(frame), normal)


@pytest.mark.parametrize("depth", [0, 1, 2])
def test_a_private_plan_covers_what_is_asked_and_spends_it(depth: int) -> None:
    """All rounds of histograms, moments and residuals; nothing is left for another fit."""
    learner = FuzzyTreeRegressor(max_depth=depth)
    policy = learner.private(2)
    fed = LocalDisclosure.from_frame(
        table(500), "score", client="client", schema=SCHEMA, policy=policy, seed=0
    )
    learner.fit(fed)
    planned = {line.query.kind: line.times for line in learner.plan(SCHEMA, policy)}
    for client in fed.clients:
        kinds = pd.Series([e.kind for e in fed.transcript().of(client=client)]).value_counts()
        assert kinds[Scaling.kind] == kinds[Moments.kind] == 2 and kinds[Residuals.kind] == 4
        assert kinds.get(ResidualsBySet.kind, 0) == (depth > 0)
        assert all(kinds[kind] <= planned[kind] for kind in kinds.index)
    assert (fed.budget()["spent"] <= 2).all()
    if depth < 2:
        assert (fed.budget()["spent"] > 1.99).all()


def test_importances_tell_what_the_tree_and_its_leaves_use() -> None:
    """Splits and slopes, of what was released; a column of noise has almost none, a constant tree none."""
    frame = table(1500)
    schema = Schema((*SCHEMA.features, Column("noise", lower=0, upper=1)), SCHEMA.target)
    noise = np.random.default_rng(5).uniform(size=len(frame))
    federation = UngatedDisclosure.from_frame(frame.assign(noise=noise), schema, "client")
    for learner in (FuzzyTreeRegressor(), FuzzyTreeRegressor(max_depth=0)):
        shares = learner.fit(federation).feature_importances_
        assert shares.shape == (4,) and shares.sum() == pytest.approx(1)
        assert (shares >= 0).all() and shares[3] < 0.05 < shares[:2].min()
    again = FuzzyTreeRegressor.from_dict(learner.to_dict())
    assert np.array_equal(again.feature_importances_, learner.feature_importances_)
    constant = FuzzyTreeRegressor(max_depth=0, leaf_features=[]).fit(federation)
    assert not constant.feature_importances_.any()


@pytest.mark.filterwarnings("ignore:.*only one value")
@pytest.mark.parametrize(("value", "bounds"), [(0.3, (0, 1)), (5.0, (0, 100)), (0.0, (-1, 7))])
def test_a_column_of_one_value_has_no_slope(value: float, bounds: tuple[float, float]) -> None:
    """Between its ends lies rounding alone, by whose width a slope in its own units would be divided."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.uniform(0, 10, 300), "still": value})
    frame["y"] = 3 * frame["a"] + rng.normal(0, 1, 300)
    features = Column("a", lower=0, upper=10), Column("still", lower=bounds[0], upper=bounds[1])
    learner = FuzzyTreeRegressor(max_depth=1)
    learner.fit(
        LocalDisclosure.from_frame(
            frame.assign(owner=[f"c{k % 3}" for k in range(300)]),
            target="y",
            client="owner",
            schema=Schema(features, Column("y", lower=0, upper=50)),
            policy=learner.published(),
        )
    )
    assert {rule.slopes["still"] for rule in learner.rules_} == {0.0}
    assert max(abs(rule.intercept) for rule in learner.rules_) < 50
