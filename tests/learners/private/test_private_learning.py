"""Private learning end to end: it learns, keeps to its budget, and knows what it does not know."""

from __future__ import annotations

import warnings
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit
from sklearn.metrics import log_loss, roc_auc_score

from privfed import Column, LocalDisclosure, Schema
from privfed.errors import Note
from privfed.learners import RuleFitClassifier, RuleFitRegressor, private
from privfed.learners.private import training
from privfed.learners.private.posterior import WeightPosterior
from privfed.learners.private.settings import SETTINGS
from privfed.learners.private.training import _mean_var, _residual_clip
from privfed.learners.rulefit.private_way import as_rules
from privfed.privacy.conversion import largest_rho
from privfed.study.price import price

FEATURES = (
    Column("a", "number", -5, 5),
    Column("b", "number", -5, 5),
    Column("n", "integer", 0, 9),
    Column("c", "category", categories=("u", "v", "w")),
)
BINARY = Schema(FEATURES, Column("y", "integer", 0, 1))
NUMERIC = Schema(FEATURES, Column("y", "number", -40, 40))
CLASSES = Schema(FEATURES, Column("y", "category", categories=("low", "middle", "high")))


def frame(records: int, schema: Schema = BINARY, seed: int = 0) -> pd.DataFrame:
    """Records whose target hangs on a, on an interaction of a and b, and on one category."""
    rng = np.random.default_rng(seed)
    table = pd.DataFrame(
        {
            "a": rng.normal(size=records).clip(-5, 5),
            "b": rng.normal(size=records).clip(-5, 5),
            "n": rng.integers(0, 10, records),
            "c": rng.choice(["u", "v", "w"], records),
        }
    )
    score = 1.5 * table["a"] + 1.5 * np.sign(table["a"] * table["b"]) + 2.0 * (table["c"] == "w")
    if schema is NUMERIC:
        return table.assign(y=3 * score + rng.normal(size=records))
    if schema is CLASSES:
        return table.assign(y=np.select([score < -1, score < 1], ["low", "middle"], "high"))
    return table.assign(y=(rng.random(records) < expit(score)).astype(int))


def federation(
    table: pd.DataFrame, schema: Schema, epsilon: str, *, clients: int = 3, seed: int = 1
) -> LocalDisclosure:
    """Clients with repeatable noise under the private policy."""
    owner = np.arange(len(table)) % clients
    return LocalDisclosure.from_frame(
        table.assign(owner=[f"c{number}" for number in owner]),
        "y",
        client="owner",
        schema=schema,
        policy=private.private(epsilon, "1e-5"),
        seed=seed,
    )


@cache
def fitted(
    schema_name: str, epsilon: str = "4", records: int = 4000
) -> tuple[private.PrivateModel, LocalDisclosure]:
    """One fit for each kind of target."""
    schema = {"binary": BINARY, "number": NUMERIC, "classes": CLASSES}[schema_name]
    gates = federation(frame(records, schema), schema, epsilon)
    outcome = private.Outcome.of(schema, schema is NUMERIC)
    return private.learn(gates, outcome, np.random.default_rng(0)), gates


def encoded(table: pd.DataFrame) -> np.ndarray:
    """The features as a query sees them."""
    codes = table["c"].map({"u": 0, "v": 1, "w": 2})
    return table[["a", "b", "n"]].assign(c=codes).to_numpy(float)


@pytest.mark.parametrize("schema", ["binary", "number", "classes"])
def test_all_of_the_budget_is_spent_and_no_more(schema: str) -> None:
    """Up to a share of a millionth; nothing leaves unprotected."""
    _, gates = fitted(schema)
    rho = largest_rho(Fraction(4), Fraction(1, 10**5))
    for gate in gates.gates.values():
        spent = gate.ledger.spent(gate.accountant).total[0]
        assert rho * (1 - Fraction(1, 10**6)) < spent <= rho
    assert (gates.budget()["unprotected"] == 0).all()
    gates.verify()


@pytest.mark.parametrize("records", [30, 400])
def test_small_tables_spend_it_all_too(records: int) -> None:
    """Other settings, with other rounds and looks, and the same budget."""
    for epsilon in ("1", "8"):
        _, gates = fitted("binary", epsilon, records)
        rho = float(largest_rho(Fraction(epsilon), Fraction(1, 10**5)))
        for gate in gates.gates.values():
            assert float(gate.ledger.spent(gate.accountant).total[0]) == pytest.approx(
                rho, rel=1e-6
            )


@pytest.mark.parametrize("schema", [BINARY, NUMERIC, CLASSES])
def test_the_plan_prices_exactly_the_budget(schema: Schema) -> None:
    """The guards' own spends, asked as often as they may be, cost rho to the last digit."""
    policy = private.private(2, "1e-5")
    found = price(
        private.schedule(schema, private.Outcome.of(schema, schema is NUMERIC)), schema, policy
    )
    assert found.fits and not found.unprotected
    assert found.amount[0] == largest_rho(Fraction(2), Fraction(1, 10**5))


def test_it_ranks_and_its_chances_are_calibrated() -> None:
    """Close to the truth's own AUC, and the mean of its chances by decile is the share of ones."""
    model, _ = fitted("binary")
    test = frame(4000, seed=9)
    chance = model.predictions(encoded(test))[:, 0]
    score = 1.5 * test["a"] + 1.5 * np.sign(test["a"] * test["b"]) + 2.0 * (test["c"] == "w")
    assert roc_auc_score(test["y"], chance) > roc_auc_score(test["y"], score) - 0.06
    bins = pd.qcut(chance, 5, labels=False)
    told = pd.DataFrame({"chance": chance, "y": test["y"], "bin": bins}).groupby("bin").mean()
    assert (told["chance"] - told["y"]).abs().max() < 0.08


def test_interactions_are_learnt_not_only_main_effects() -> None:
    """Records whose a and b agree in sign score higher than others of the same a."""
    model, _ = fitted("binary")
    both = np.array([[1.0, 1.0, 5, 0], [1.0, -1.0, 5, 0], [-1.0, -1.0, 5, 0], [-1.0, 1.0, 5, 0]])
    high, low, high_too, low_too = model.scores(both)[:, 0]
    assert high > low + 0.5
    assert high_too > low_too + 0.5


@pytest.mark.parametrize(("side", "most"), [(1, 20), (-1, None)])
def test_a_step_at_a_3_percent_quantile_is_found(side: int, most: int | None) -> None:
    """By the engine and by its short form; without bins as narrow as that the error is .63 and .78 of the deviation."""
    table = frame(20_000, NUMERIC)
    rare = side * table["a"] > np.quantile(side * table["a"], 0.97)
    table["y"] = 20.0 * rare + 2.0 * table["b"] + np.random.default_rng(1).normal(0, 1, 20_000)
    schema = Schema(FEATURES, Column("y", "number", -15, 35))
    learner = RuleFitRegressor(max_terms=most, random_state=0)
    model = learner.fit(federation(table, schema, "4"))
    error = np.sqrt(np.mean((model.predict(table) - table["y"]) ** 2))
    assert error < 0.6 * table["y"].std()


def test_several_classes() -> None:
    """Chances add up to one, and the likeliest is mostly right."""
    model, _ = fitted("classes")
    test = frame(2000, CLASSES, seed=9)
    chances = model.predictions(encoded(test))
    assert chances.sum(axis=1) == pytest.approx(1)
    likeliest = np.array(["low", "middle", "high"])[chances.argmax(axis=1)]
    assert (likeliest == test["y"]).mean() > 0.7


def test_more_budget_is_no_worse_for_several_classes() -> None:
    """Twice the budget, the same splits: on the mean of seeds, accuracy falls by no more than a hundredth."""
    test, found = frame(2000, CLASSES, seed=9), []
    names = np.array(["low", "middle", "high"])
    for epsilon in ("1", "2", "4"):
        rates = []
        for seed in range(2):
            gates = federation(frame(1000, CLASSES), CLASSES, epsilon, seed=seed)
            outcome = private.Outcome.of(CLASSES, False)
            model = private.learn(gates, outcome, np.random.default_rng(seed))
            likeliest = names[model.predictions(encoded(test)).argmax(axis=1)]
            rates.append(float((likeliest == test["y"]).mean()))
        found.append(np.mean(rates))
    assert (np.diff(found) > -0.01).all()
    assert found[0] > 0.6


def test_a_heavy_tailed_number_is_predicted_better_than_by_its_mean() -> None:
    """Log-normal, under bounds a hundred deviations wide: no worse than a constant, at two budgets."""
    rng = np.random.default_rng(4)
    schema = Schema(FEATURES, Column("y", "number", 0, 400))

    def table(records: int) -> pd.DataFrame:
        inputs = frame(records, seed=int(rng.integers(1000)))
        noise = rng.normal(size=records)
        return inputs.assign(y=np.exp(1.2 * inputs["a"] + 0.5 * noise).clip(0, 400))

    test = table(3000)
    for epsilon in ("1", "4"):
        losses = []
        for seed in range(2):
            gates = federation(table(2000), schema, epsilon, seed=seed)
            outcome = private.Outcome.of(schema, True)
            model = private.learn(gates, outcome, np.random.default_rng(seed))
            values = model.outcome.values(model.predictions(encoded(test)))
            losses.append(float(np.sqrt(((values - test["y"]) ** 2).mean()) / test["y"].std()))
        assert np.mean(losses) < 1.0


@pytest.mark.parametrize("seed", range(3))
def test_a_number_in_the_lowest_hundredth_of_its_bounds_is_predicted_there(seed: int) -> None:
    """Epsilon .5, 400 records: about as well as by their mean, which a third of the bounds would miss by far."""
    rng = np.random.default_rng(seed)
    table = frame(1400, seed=seed).assign(y=np.exp(rng.normal(0, 0.5, 1400)))
    schema = Schema(FEATURES, Column("y", "number", 0, 100))
    gates = federation(table[:400], schema, "0.5", clients=2, seed=seed)
    outcome = private.Outcome.of(schema, True)
    model = private.learn(gates, outcome, np.random.default_rng(seed))
    values = model.outcome.values(model.predictions(encoded(table[400:])))
    assert np.mean((values - table["y"][400:]) ** 2) < 1.5 * table["y"].var()


@pytest.mark.parametrize(("high", "records"), [(15, 400), (15, 1500), (31, 400)])
def test_a_number_of_few_whole_values_is_none_of_classes(high: int, records: int) -> None:
    """Better than its mean, at epsilon 1, and nothing is said of classes."""
    table = frame(records + 1000, seed=high)
    counts = np.random.default_rng(high).poisson(np.exp(0.5 * table["a"] + 0.3))
    table = table.assign(y=counts.clip(0, high))
    schema = Schema(FEATURES, Column("y", "integer", 0, high))
    gates = federation(table[:records], schema, "1")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", Note)
        model = private.learn(gates, private.Outcome.of(schema, True), np.random.default_rng(0))
    assert not [each for each in caught if "class" in str(each.message)]
    test = table[records:]
    values = model.outcome.values(model.predictions(encoded(test)))
    assert np.mean((values - test["y"]) ** 2) < test["y"].var()


def test_a_number_that_is_often_zero_is_no_narrow_one() -> None:
    """Three fifths are 0, the others up to 100: better than the mean, where limits about 0 would be a fifth worse."""
    table = frame(1400, seed=6)
    rng = np.random.default_rng(6)
    some = rng.random(1400) < expit(2 * table["a"] - 0.5)
    table = table.assign(y=np.where(some, rng.uniform(0, 100, 1400), 0))
    schema = Schema(FEATURES, Column("y", "number", 0, 100))
    gates = federation(table[:400], schema, "1")
    model = private.learn(gates, private.Outcome.of(schema, True), np.random.default_rng(0))
    test = table[400:]
    values = model.outcome.values(model.predictions(encoded(test)))
    assert np.mean((values - test["y"]) ** 2) < test["y"].var()


def test_numbers_with_bounds_that_are_far_too_wide() -> None:
    """Limits move to where the mass is, and most of the variance is explained."""
    model, _ = fitted("number")
    test = frame(2000, NUMERIC, seed=9)
    assert -36 < model.outcome.lower < -5 and 5 < model.outcome.upper < 36
    values = model.outcome.values(model.predictions(encoded(test)))
    rest = float(((values - test["y"]) ** 2).mean() / test["y"].var())
    assert rest < 0.35


def test_wide_bounds_cost_little() -> None:
    """Bounds eleven times as wide: the cut-offs find the mass, and the AUC stays."""
    wide = Schema(
        (Column("a", "number", -55, 55), Column("b", "number", -55, 55), *FEATURES[2:]),
        BINARY.target,
    )
    gates = federation(frame(4000), wide, "4")
    model = private.learn(gates, private.Outcome.of(wide, False), np.random.default_rng(0))
    test = frame(4000, seed=9)
    near, far = (
        roc_auc_score(test["y"], found.predictions(encoded(test))[:, 0])
        for found in (fitted("binary")[0], model)
    )
    assert far > near - 0.02


@pytest.mark.filterwarnings("ignore:the noise of all")
@pytest.mark.parametrize("seed", [0, 5])
def test_noise_does_not_multiply_the_odds_of_a_rare_class(seed: int) -> None:
    """Log loss over that of the true share, where nothing can be learned: 1.21 and 1.65 if the counts do not set the mean."""
    rng, rate = np.random.default_rng(seed), 0.03
    names = [f"x{k}" for k in range(8)]
    table = pd.DataFrame(rng.normal(size=(2_000, 8)).clip(-3, 3), columns=names)
    train = table[:1_000].assign(y=(rng.random(1_000) < rate).astype(int))
    columns = tuple(Column(name, lower=-3, upper=3) for name in names)
    schema = Schema(columns, Column("y", "integer", 0, 1))
    model = RuleFitClassifier(random_state=seed)
    model.fit(federation(train, schema, "0.5", clients=5, seed=seed))
    losses = [
        -(rate * np.log(p) + (1 - rate) * np.log1p(-p)).mean()
        for p in (model.predict_proba(table[1_000:])[:, 1], rate)
    ]
    assert losses[0] < 1.15 * losses[1]


def test_a_share_that_stays_uncertain_is_said_and_even_classes_are_no_such_case() -> None:
    """A note for twenty records of a class at epsilon .5, none for even classes."""
    rare = frame(2_000).assign(y=(np.arange(2_000) < 20).astype(int))
    with pytest.warns(Note, match="leaves the odds of a class uncertain by a factor of"):
        RuleFitClassifier(max_terms=None).fit(federation(rare, BINARY, "0.5"))
    with warnings.catch_warnings():
        warnings.simplefilter("error", Note)
        RuleFitClassifier().fit(federation(frame(2_000), BINARY, "0.5"))


@pytest.mark.filterwarnings("ignore:the noise of all histograms")
@pytest.mark.parametrize("records", [0, 1, 20])
def test_hardly_any_records_give_hardly_more_than_a_constant(records: int) -> None:
    """A model knows its own noise: on the mean of three seeds, no loss above a fair coin's by much."""
    table, test = frame(20).head(records), frame(2000, seed=9)
    losses = []
    for seed in range(3):
        gates = federation(table, BINARY, "1", clients=1, seed=seed) if records else _empty(seed)
        outcome = private.Outcome.of(BINARY, False)
        model = private.learn(gates, outcome, np.random.default_rng(seed))
        chance = model.predictions(encoded(test))[:, 0]
        assert np.isfinite(chance).all()
        losses.append(log_loss(test["y"], chance))
    assert np.mean(losses) < np.log(2) + 0.15


@pytest.mark.filterwarnings("ignore:the noise of all histograms")
def test_a_mean_is_not_read_out_of_the_noise() -> None:
    """Where noise alone may be all records that are counted, a number's mean comes first (15 away else)."""
    names = ["a", "b", "c"]
    features = tuple(Column(name, "number", 0, 1) for name in names)
    schema = Schema(features, Column("y", "number", -40, 40))
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.uniform(size=(300, 3)), columns=names)
    table["y"] = 20 + rng.normal(size=len(table))
    away = []
    for seed in range(13):
        gates = federation(table, schema, "0.1", clients=5, seed=seed)
        outcome = private.Outcome.of(schema, True)
        model = private.learn(gates, outcome, np.random.default_rng(0))
        values = model.outcome.values(model.predictions(table[names].to_numpy()))
        away.append(values - table["y"].to_numpy())
    assert np.sqrt(np.mean(np.square(away))) < 13


def _empty(seed: int) -> LocalDisclosure:
    """Two clients, one of whom holds a single record."""
    table = frame(1).assign(owner="c0")
    return LocalDisclosure.from_frame(
        table,
        "y",
        client="owner",
        schema=BINARY,
        policy=private.private(1, "1e-5"),
        seed=seed,
    )


def test_noise_alone_is_not_learnt() -> None:
    """The power twin: where the target is a coin, no more than a coin is told of it."""
    rng = np.random.default_rng(0)
    table = frame(2000).assign(y=rng.integers(0, 2, 2000))
    gates = federation(table, BINARY, "0.5")
    model = private.learn(gates, private.Outcome.of(BINARY, False), np.random.default_rng(0))
    chance = model.predictions(encoded(frame(2000, seed=9)))[:, 0]
    coins = rng.integers(0, 2, 2000)
    assert log_loss(coins, chance) < np.log(2) + 0.03


def test_constant_columns_and_one_column_alone() -> None:
    """Neither columns without any spread nor a missing correlation is an obstacle."""
    alone = Schema(FEATURES[:1], BINARY.target)
    table = frame(1500)[["a", "y"]]
    model = private.learn(
        federation(table, alone, "4"), private.Outcome.of(alone, False), np.random.default_rng(0)
    )
    assert roc_auc_score(table["y"], model.predictions(table[["a"]].to_numpy())[:, 0]) > 0.65
    still = frame(1500).assign(b=0.0, n=3, c="u")
    gates = federation(still, BINARY, "4")
    model = private.learn(gates, private.Outcome.of(BINARY, False), np.random.default_rng(0))
    assert roc_auc_score(still["y"], model.predictions(encoded(still))[:, 0]) > 0.65


@pytest.mark.parametrize(
    ("schema", "records"), [("binary", 4000), ("number", 4000), ("binary", 400)]
)
def test_rules_say_what_the_model_says(schema: str, records: int) -> None:
    """The rule ensemble's scores are the model's; where a linear term is a line, up to a bin's width."""
    model, _ = fitted(schema, "4", records)
    rules, x = as_rules(model), encoded(frame(500, seed=3))
    scale = 2.0 if schema == "number" else 1.0
    own, told = scale * model.scores(x)[:, 0], rules.scores(x)
    if model.ranked:
        assert told == pytest.approx(own, abs=1e-9)
    assert np.abs(told - own).mean() < 0.05 * own.std()
    assert len({box.tobytes() for box in rules.terms.boxes}) == len(rules.terms.boxes)
    assert ((rules.supports >= 0) & (rules.supports <= 1)).all()


@pytest.mark.parametrize(("linear", "most"), [(True, None), (False, 20)])
def test_linear_terms_can_be_left_out(linear: bool, most: int | None) -> None:
    """RuleFit's own switch holds in private too, of the engine and of its short form."""
    table = frame(4000)
    model = RuleFitClassifier(include_linear=linear, max_terms=most, random_state=0).fit(
        federation(table, BINARY, "4")
    )
    assert bool(model.model_.terms.linear) is linear
    assert roc_auc_score(table["y"], model.decision_function(table)) > 0.8


def test_the_regressor_predicts_in_the_targets_unit() -> None:
    """Its export names the limits that its scale goes by."""
    table = frame(4000, NUMERIC)
    model = RuleFitRegressor(random_state=0).fit(federation(table, NUMERIC, "4"))
    rest = float(((model.predict(table) - table["y"]) ** 2).mean() / table["y"].var())
    assert rest < 0.35
    plain = model.to_dict()
    assert plain["target_bounds"] == pytest.approx(model.target_limits_)
    assert -40 < plain["target_bounds"][0] < plain["target_bounds"][1] < 40


@pytest.mark.parametrize("schema", ["binary", "classes"])
def test_trees_and_steps_add_up_to_the_scores(schema: str) -> None:
    """A forest made of them, by a naive walk, says what the model says to the last bits."""
    model, _ = fitted(schema)
    x = encoded(frame(200, seed=3))
    total = np.tile(model.start, (len(x), 1))
    for column in range(len(FEATURES)):
        cuts, values = model.steps(column)
        total += values[(x[:, [column]] >= cuts).sum(axis=1)]
    for features, cuts, leaves in model.trees():
        total += leaves[(x[:, features] >= cuts) @ (1 << np.arange(len(cuts)))]
    assert total == pytest.approx(model.scores(x), abs=1e-9)


def test_residuals_are_clipped_the_later_the_more_of_the_variance_giants_hold() -> None:
    """A uniform target at the lesser limit, a Laplace one later, one whose variance is a few giants' at the greater."""
    rng = np.random.default_rng(0)
    giants = np.where(rng.random(10**5) < 0.01, 30.0, 0.0)
    found = []
    for values in (rng.uniform(size=10**5), rng.laplace(size=10**5), giants):
        away = np.abs(values - values.mean()) / values.std()
        reach = _residual_clip(np.full(len(away), 1 / len(away)), away)
        over = np.maximum(away - np.array([[reach], [reach - 0.125]]), 0) ** 2
        cut_off, earlier = over.mean(axis=1)
        assert cut_off <= SETTINGS.clipped_variance or reach == SETTINGS.residual_clips[1]
        assert earlier > SETTINGS.clipped_variance or reach == SETTINGS.residual_clips[0]
        found.append(reach)
    assert found[0] == 1.5 < found[1] < found[2] == 3.0


def test_what_a_histogram_leaves_open_of_a_mean() -> None:
    """By simulation: independent noise of each share, shares moved on purpose, values within bins."""
    rng = np.random.default_rng(0)
    edges = np.array([-0.5, -0.1, 0.0, 0.05, 0.5])
    shares, moved = np.array([0.1, 0.4, 0.3, 0.2]), np.array([0.03, -0.02, -0.02, 0.01])
    middles = (edges[:-1] + edges[1:]) / 2
    noisy = shares + rng.normal(0, 0.01, (200_000, 4))
    means = noisy @ middles / noisy.sum(axis=1)
    still = _mean_var(shares, 0 * moved, edges, 0.0)
    assert _mean_var(shares, 0 * moved, edges, 0.01) - still == pytest.approx(means.var(), rel=0.02)
    assert _mean_var(shares, moved, edges, 0.0) - still == pytest.approx((moved @ middles) ** 2)
    assert still == pytest.approx(shares @ np.diff(edges) ** 2 / 12)


def line(seed: int, records: int = 2000, columns: int = 8) -> tuple[pd.DataFrame, Schema]:
    """A number that follows eight correlated columns, a fifth of its variance noise."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(records, columns)) + 0.5 * rng.normal(size=(records, 1))
    y = x @ ((-1.0) ** np.arange(columns) / np.sqrt(1 + np.arange(columns)))
    names = [f"x{number}" for number in range(columns)]
    table = pd.DataFrame(x, columns=names).assign(y=y / y.std() + 0.5 * rng.normal(size=records))
    schema = Schema(tuple(Column(n, "number", -5, 5) for n in names), Column("y", "number", -5, 5))
    return table.clip(-5, 5), schema


def line_learned(seed: int, epsilon: str) -> tuple[private.PrivateModel, float]:
    """A model of such a table, and the fraction of the variance that it leaves unexplained."""
    table, schema = line(seed)
    gates = federation(table, schema, epsilon, seed=seed)
    model = private.learn(gates, private.Outcome.of(schema, True), np.random.default_rng(0))
    low, high = model.outcome.lower, model.outcome.upper
    told = model.predictions(table.drop(columns="y").to_numpy())[:, 0]
    missed = (told * (high - low) + (low + high) / 2 - table["y"]) ** 2
    return model, float(missed.mean() / table["y"].var())


def test_a_line_is_learned_of_a_small_budget() -> None:
    """Four tables at epsilon 0.5: .31 on average, where a fifth is noise; .38 with linear terms no longer than one."""
    assert np.mean([line_learned(seed, "0.5")[1] for seed in range(4)]) < 0.34


def test_synthetic_records_count_as_real_ones_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where functions are longer than one, expected sums are weighed like the released ones."""
    found: list[WeightPosterior] = []

    def kept(*given: Any) -> WeightPosterior:
        found.append(WeightPosterior(*given))
        return found[-1]

    monkeypatch.setattr(training, "WeightPosterior", kept)
    line_learned(0, "0.5")
    lengths = np.linalg.norm(found[0].leading.functions, axis=1)
    assert (lengths > 1.1).mean() > 0.2
    assert found[0].shares == pytest.approx(1 / np.maximum(1, lengths), rel=1e-5)
