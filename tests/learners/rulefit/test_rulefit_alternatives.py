"""What fits alike in the place of a term: by brute force, in words, saved, and wherever a list is read."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pytest

from privfed import Column, LocalDisclosure, Schema
from privfed.errors import InputError
from privfed.learners import RuleFitClassifier, RuleFitRegressor, private
from privfed.learners.privacy_text import SEE_OWNERS
from privfed.learners.rulefit.alternatives import (
    EXPLAINED,
    NONE,
    UNKNOWN,
    Alternatives,
    TermExchanges,
)
from privfed.learners.rulefit.cutoffs import Cutoffs
from privfed.learners.rulefit.description import STARRED
from privfed.learners.rulefit.model import RuleEnsemble
from privfed.learners.rulefit.rules import Condition, Rule, Terms
from privfed.learners.rulefit.scorecard import ScoreCard
from privfed.learners.rulefit.short import _Shortener, shortened
from privfed.learners.saved import from_dict
from privfed.testing.hospitals import BINARY, NUMERIC, gates, patients

SCHEMA = Schema(
    (
        Column("age", "number", 0, 100),
        Column("GCS", "integer", 3, 15),
        Column("sex", "category", categories=("female", "male")),
    ),
    Column("died", "integer", 0, 1),
)


def rule(**ends: tuple[float | None, float | None]) -> Rule:
    """A rule by its columns' ends."""
    return Rule.of(*(Condition(name, *own) for name, own in ends.items()))


@cache
def engine() -> private.PrivateModel:
    """The engine's model of the hospitals."""
    held = gates(patients(3000), RuleFitClassifier().private("4"), seed=3)
    return private.learn(held, private.Outcome.of(BINARY, number=False), np.random.default_rng(0))


def problem() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Ten related columns of norm near one, scores that all of them make, and the root of the errors' covariance."""
    rng = np.random.default_rng(2)
    columns = rng.normal(size=(300, 3)) @ rng.normal(size=(3, 10)) + rng.normal(size=(300, 10))
    columns = (columns - columns.mean(axis=0)) / np.sqrt(300)
    scores = columns @ rng.choice([-1.0, 1.0], 10)
    return columns, scores, columns @ rng.normal(size=(10, 4)) / 10


def compared(
    columns: np.ndarray, scores: np.ndarray, root: np.ndarray, **more: Any
) -> TermExchanges:
    """The comparison of some columns with the first three."""
    along = columns.T @ root
    given: dict[str, Any] = {
        "signs": np.zeros(len(along)),
        "usable": np.ones(len(along), bool),
        "chosen": (0, 1, 2),
    }
    given |= more
    return TermExchanges(
        columns.T @ columns,
        columns.T @ scores,
        variance=(along**2).sum(axis=1),
        covariance=along[list(given["chosen"])] @ along.T,
        **given,
    )


def test_a_chance_is_how_often_the_candidate_fits_drawn_scores_better() -> None:
    """By least squares on drawn scores, refitting all terms, with the candidate in the term's place and without."""
    columns, scores, root = problem()
    drawn = scores[:, None] + root @ np.random.default_rng(2).normal(size=(4, 20_000))

    def lack(chosen: list[int]) -> np.ndarray:
        basis = np.linalg.qr(columns[:, chosen])[0]
        return np.asarray((drawn**2).sum(axis=0) - ((basis.T @ drawn) ** 2).sum(axis=0))

    comparison, middling = compared(columns, scores, root), 0
    for place in range(3):
        chances = comparison.probabilities(place)
        assert np.isnan(chances[:3]).all()
        rest = [own for own in range(3) if own != place]
        for other in range(3, 10):
            often = np.mean(lack([*rest, other]) < lack([0, 1, 2]))
            assert chances[other] == pytest.approx(often, abs=0.02)
            middling += bool(0.03 < often < 0.97)
    assert middling >= 5


def test_fewer_terms_in_another_order_are_compared_as_if_chosen_so() -> None:
    """Rows follow the terms."""
    given = problem()
    own = compared(*given).among((2, 0)).probabilities(1)
    assert np.allclose(own, compared(*given, chosen=(2, 0)).probabilities(1), equal_nan=True)


def test_a_candidate_that_needs_a_wrong_sign_is_no_alternative() -> None:
    """Its own coefficient's, or that of another chosen term after the refit."""
    columns, scores, root = problem()
    free = compared(columns, scores, root).probabilities(0)
    for other in range(3, 10):
        fit = np.linalg.lstsq(columns[:, [1, 2, other]], scores, rcond=None)[0]
        for at, index in enumerate((1, 2, other)):
            for sign in (1.0, -1.0):
                signs = np.zeros(10)
                signs[index] = sign
                chance = compared(columns, scores, root, signs=signs).probabilities(0)[other]
                assert np.isnan(chance) == (sign * fit[at] < 0)
                assert np.isnan(chance) or chance == free[other]


def test_what_repeats_the_other_terms_or_may_not_be_used_is_no_candidate() -> None:
    """A copy of another chosen column, a constant."""
    columns, scores, root = problem()
    columns = np.column_stack([columns, columns[:, 1], np.zeros(300)])
    chances = compared(columns, scores, root, usable=np.arange(12) != 11).probabilities(0)
    assert np.isnan(chances[[10, 11]]).all() and not np.isnan(chances[3:10]).any()


def test_without_noise_a_better_fit_is_certain() -> None:
    """And a worse one impossible; a copy of the term itself, to whatever scale, is no other term."""
    columns, scores, root = problem()
    columns = np.column_stack([columns, -3 * columns[:, 0]])
    chances = compared(columns, scores, 0 * root).probabilities(0)
    assert set(chances[3:10]) <= {0.0, 1.0} and np.isnan(chances[10])


@pytest.mark.parametrize("slopes", [(1.0,), (2 / 3, -1 / 3, -1 / 3)])
def test_errors_of_products_follow_the_posterior(slopes: tuple[float, ...]) -> None:
    """Of every output's scores: of three classes, those of one minus the mean of all."""
    held = _Shortener(engine(), np.random.default_rng(1), stable=True)
    assert held.fitted.covariance is not None
    spread = held.fitted.covariance[0] * np.arange(1, 1 + len(slopes))[:, None, None]
    held.fitted = replace(held.fitted, covariance=spread)
    held.outputs = len(slopes)
    columns = [held.codes[0] > 4, held.codes[1] > 4, held.codes[0] > 8]
    order, comparison = held._select(columns, np.zeros(3), 2)[0]
    assert comparison is not None and len(order) == 2
    weights = held.weights / held.weights.sum()
    along = np.array([(own - weights @ own) * weights for own in columns]) @ held.directions
    wanted = np.einsum("ci,kij,dj,k->cd", along, spread, along, np.square(slopes))
    assert np.allclose(comparison.variance, np.diag(wanted), rtol=1e-4)
    unit = np.sqrt(np.diag(wanted))
    assert np.allclose(
        comparison.covariance / unit[order, None] / unit,
        (wanted / unit[:, None] / unit)[order],
        atol=1e-4,
    )


def test_other_cut_offs_become_a_range_and_other_rules_a_name_and_a_number() -> None:
    """Either side of one threshold is one term; another column, side or form is another rule."""
    own = rule(age=(60, None))
    alike: list[Rule | str] = [
        rule(age=(None, 55)),
        rule(GCS=(None, 7)),
        rule(age=(66, None)),
        "age",
        rule(age=(55, 70)),
        rule(GCS=(None, 7)),
    ]
    found = Alternatives.of(own, alike, 40, SCHEMA)
    assert found == Alternatives((("age", 55, 66),), rule(GCS=(None, 7)), 3, 40)
    assert found.text(SCHEMA) == "cut-off age 55 to 66; or GCS <= 6 (and 2 more)"
    most = Alternatives.of(own, alike, 5, SCHEMA)
    assert most.text(SCHEMA) == "most of 5 other candidates"


def test_each_cut_off_of_a_rule_has_its_range() -> None:
    """Sides of several conditions count; categories are no cut-offs."""
    own = rule(age=(20, 60), GCS=(None, 7), sex=(1, None))
    near = rule(age=(20, 50), GCS=(None, 9), sex=(1, None))
    side = rule(age=(20, 50), GCS=(9, None), sex=(1, None))
    woman = rule(age=(20, 60), GCS=(None, 7), sex=(None, 1))
    found = Alternatives.of(own, [near, side, woman], 40, SCHEMA)
    assert found.cutoffs == (("GCS", 7, 9), ("age", 50, 60)) and found.others == 2
    assert found.text(SCHEMA).startswith("cut-offs GCS 7 to 9, age 50 to 60; or GCS >= 9 and")


def test_a_linear_term_has_other_terms_only() -> None:
    """No cut-offs; nothing at all is told with the number compared."""
    assert Alternatives.of("age", ["GCS"], 40, SCHEMA).text(SCHEMA) == "or a linear term of GCS"
    assert Alternatives.of("age", [], 40, SCHEMA).text(SCHEMA) == "none of 40"


@pytest.mark.parametrize(
    "kept",
    [
        Alternatives(),
        Alternatives((("age", 5.0, 9.5),), rule(GCS=(None, 7.0), sex=(1.0, None)), 3, 8),
        Alternatives((), "age", 1, 8),
    ],
)
def test_alternatives_are_plain_data_and_come_back(kept: Alternatives) -> None:
    """Through JSON, to the bit."""
    assert Alternatives.from_dict(json.loads(json.dumps(kept.to_dict())), SCHEMA) == kept


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("cutoffs", [["weight", 1.0, 2.0]]),
        ("best", "weight"),
        ("best", [{"feature": "weight", "lower": 1.0, "upper": None}]),
    ],
)
def test_columns_that_the_schema_lacks_are_refused(name: str, value: object) -> None:
    """As by everything that is loaded."""
    with pytest.raises(ValueError, match="columns"):
        Alternatives.from_dict(Alternatives().to_dict() | {name: value}, SCHEMA)


def twins(seed: int = 0) -> LocalDisclosure:
    """A target of one threshold of a column that another follows closely, and of a third column alone."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"first": rng.normal(size=4000), "lone": rng.normal(size=4000)})
    table["second"] = table["first"] + rng.normal(0, 0.1, 4000)
    log_odds = 3.0 * (table["lone"] > 0.5) + 1.0 * (table["first"] > 0) - 1.5
    table["y"] = (rng.random(4000) < 1 / (1 + np.exp(-log_odds))).astype(int)
    table["owner"] = "a"
    features = tuple(Column(name, "number", -4, 4) for name in ("first", "second", "lone"))
    policy = RuleFitClassifier().private("4")
    schema = Schema(features, Column("y", "integer", 0, 1))
    return LocalDisclosure.from_frame(
        table, "y", client="owner", schema=schema, policy=policy, seed=seed
    )


def test_a_column_that_another_follows_is_told_from_one_that_none_does() -> None:
    """The other's name stands with it; the lone column's own terms name at most its own."""
    model = RuleFitClassifier(max_terms=4, stable=True, random_state=0).fit(twins()).model_
    names = [model.schema.names[k] for k in model.terms.linear]
    terms = [*(own.features for own in model.rules), *((name,) for name in names)]
    assert model.alternatives is not None
    best = {own: alike.best for own, alike in zip(terms, model.alternatives, strict=True)}
    followed = best.get(("first",)) or best.get(("second",))
    assert followed is not None
    lone = best["lone",]
    assert lone is None or "lone" in (lone, *getattr(lone, "features", ()))


@cache
def fitted() -> RuleFitClassifier:
    """One list of the hospitals."""
    frame = patients(3000)
    model = RuleFitClassifier(random_state=0)
    return model.fit(gates(frame, model.private("4"), seed=3))


def test_every_term_has_its_alternatives_and_none_is_a_term_of_the_list() -> None:
    """A range holds the rule's own cut-off, and reaches beyond; a term is compared with all others."""
    model = fitted().model_
    assert model.alternatives is not None and len(model.alternatives) == len(model.terms)
    own = [*model.rules, *(model.schema.names[k] for k in model.terms.linear)]
    for term, alike in zip(own, model.alternatives, strict=True):
        assert alike.best not in own and alike.compared > 50
        assert (alike.best is None) == (alike.others == 0)
        for name, low, high in alike.cutoffs:
            assert isinstance(term, Rule)
            ends = [c for c in term.conditions if c.feature == name]
            assert any(low <= end <= high for c in ends for end in (c.lower, c.upper) if end)
    assert any(model.alternatives)


def test_alternatives_obey_the_directions() -> None:
    """No term is offered that falls where the model has to rise."""
    signs = [1, -1, 0, 0]
    (model,) = shortened(engine(), 6, np.random.default_rng(0), monotonic=signs)
    assert model.alternatives is not None
    offered = [own.best for own in model.alternatives if isinstance(own.best, Rule)]
    for one in offered:
        ends = {c.feature: (c.lower is None, c.upper is None) for c in one.conditions}
        age, gcs = ends.get("age"), ends.get("GCS")
        assert not (age == (True, False) and gcs == (True, False))
        assert not (age == (False, True) and gcs == (False, True))
        assert (False, False) not in (age, gcs)


def test_each_class_and_a_number_have_alternatives() -> None:
    """Several classes each their own; the tables have a column of them."""
    three = Schema(BINARY.features, Column("grade", "category", categories=("a", "b", "c")))
    frame = patients(400)
    frame["grade"] = np.select([frame["GCS"] < 7, frame["age"] > 60], ["a", "b"], "c")
    classes = RuleFitClassifier(max_terms=3, stable=True, random_state=0)
    classes.fit(gates(frame, classes.private("8"), three))
    number = RuleFitRegressor(max_terms=3, stable=True, random_state=0)
    number.fit(gates(frame, number.private("8"), NUMERIC))
    for learner in (classes, number):
        for model in learner.models_:
            assert model.alternatives is not None and len(model.alternatives) == len(model.terms)
        texts = learner.table()["alternatives"]
        assert len(texts) and not (texts == UNKNOWN).any()


def test_saved_alternatives_come_back_and_an_older_file_says_not_known() -> None:
    """In the table, the text, the card; the model is the same otherwise."""
    model = fitted()
    data = json.loads(json.dumps(model.to_dict()))
    assert from_dict(data).model_.alternatives == model.model_.alternatives
    assert all("alternatives" in own for own in data["rules"])
    del data["state"]["alternatives"]
    old = from_dict(data)
    assert (old.table()["alternatives"] == UNKNOWN).all()
    assert "None" not in old.describe() and NONE not in old.describe()
    assert UNKNOWN in old.describe() and UNKNOWN in str(old.scorecard())
    bare = old.table().drop(columns="alternatives")
    assert bare.equals(model.table().drop(columns="alternatives"))


@pytest.mark.parametrize("cut", [0, 1])
def test_a_file_with_alternatives_of_some_terms_only_is_refused(cut: int) -> None:
    """One for each term."""
    data = json.loads(json.dumps(fitted().to_dict()))
    del data["state"]["alternatives"][cut]
    with pytest.raises(InputError):
        from_dict(data)


def test_a_long_model_has_no_column_of_them() -> None:
    """There was no choice among candidates."""
    long = RuleFitClassifier(max_terms=None, random_state=0)
    long.fit(gates(patients(300), long.private("4"), seed=3))
    assert "alternatives" not in long.table() and "alternatives" not in long.describe()


def test_a_list_whose_errors_are_unknown_has_none() -> None:
    """Nothing was released after the histograms, say."""
    bare = replace(engine(), covariance=None)
    assert shortened(bare, 5, np.random.default_rng(0))[0].alternatives is None


CUTOFFS = Cutoffs(
    ((40.0,), (7.0,), (1.0,)),
    np.array([10.0, 3, 0]),
    np.array([90.0, 15, 1]),
    np.array([16.0, 3, 1]),
)
BOXES = np.array([[[1, 2], [0, 2], [0, 2]], [[0, 2], [0, 1], [0, 2]]], np.uint8)
LIST = RuleEnsemble(
    SCHEMA,
    Terms(CUTOFFS, BOXES, (0,)),
    np.array([-0.7, 0.8, 1.5, 1.1]),
    np.array([0.5, 0.2]),
    np.ones(3),
    covariance=np.eye(4) / 100,
    error=np.eye(4) / 100,
    alternatives=(
        Alternatives((("age", 35.0, 45.0),), None, 0, 90),
        Alternatives((), None, 0, 80),
        Alternatives((), rule(age=(50, None)), 1, 90),
    ),
)


def learned(ensemble: RuleEnsemble) -> RuleFitClassifier:
    """A learner that came to a list in private."""
    own = RuleFitClassifier()
    own.schema_, own.ensemble_, own.way_ = ensemble.schema, ensemble, "private"
    own.target_limits_ = (0.0, 1.0)
    return own


def test_a_text_numbers_the_notes_of_the_terms_it_shows() -> None:
    """Others are marked as having none."""
    lines = learned(LIST).describe().splitlines()
    assert lines[-3:] == ["1: or age >= 50", "2: cut-off age 35 to 45", SEE_OWNERS]
    assert [line.split()[-1] for line in lines[5:8]] == ["80", "1", "2"]
    assert "probability of at least 5 %" in lines[-4]
    assert learned(LIST).describe(2).splitlines()[-3] == "1: or age >= 50"


def test_a_picture_stars_terms_with_alternatives_and_says_so() -> None:
    """Not a list without any."""
    ax = learned(LIST).plot()
    names = [one.get_text() for one in ax.get_yticklabels()]
    assert [name.endswith(" *") for name in names] == [False, True, True]
    assert STARRED.split(";")[0] in " ".join(ax.get_title(loc="left").split())
    plain = learned(replace(LIST, alternatives=(Alternatives(compared=9),) * 3)).plot()
    assert "*" not in plain.get_title(loc="left")
    assert not any("*" in one.get_text() for one in plain.get_yticklabels())


def test_a_card_has_a_footnote_for_each_line_with_alternatives() -> None:
    """In print, HTML, LaTeX and the picture; not for lines whose points round to nothing."""
    card = ScoreCard.from_ensemble(LIST)
    assert card.footnotes[1:] == (
        "age >= 40: cut-off age 35 to 45",
        "age, linear part: or age >= 50",
    )
    assert EXPLAINED in card.footnotes[0]
    assert learned(LIST).scorecard().footnotes == (*card.footnotes, SEE_OWNERS)
    for text in (str(card), card.to_html(), card.to_latex()):
        assert "cut-off age 35 to 45" in text
    drawn = [one.get_text() for one in card.plot().texts]
    assert any("cut-off age 35 to 45" in one for one in drawn)
    small = ScoreCard.from_ensemble(replace(LIST, weights=np.array([-0.7, 1e-3, 1.5, 1e-3])))
    assert small.footnotes[1:] == ("none of 90",)
    wide = ScoreCard.from_ensemble(replace(LIST, error=np.eye(4)))
    assert wide.footnotes[1:] == (
        "age >= 40: cut-off age 35 to 45; or no effect",
        "GCS <= 6: or no effect",
        "age, linear part: or age >= 50; or no effect",
    )
    assert ScoreCard.from_ensemble(replace(LIST, error=None)).footnotes == ()


def test_terms_with_the_same_alternatives_have_one_note() -> None:
    """Of a score card, and of a description, whose rows have its number."""
    vague = replace(LIST, alternatives=(Alternatives(best="GCS", others=70, compared=90),) * 3)
    told = "most of 90 other candidates"
    assert ScoreCard.from_ensemble(vague).footnotes[1:] == (
        f"age >= 40; GCS <= 6; age, linear part: {told}",
    )
    text = learned(vague).describe()
    assert text.count(told) == 1 and f"\n1: {told}\n" in text and "\n2: " not in text


def test_thresholds_are_the_rules_own_where_rounding_cannot_tell_them_apart() -> None:
    """Else round; of categories exact; exact too where nothing would be left between two."""
    held = _Shortener(engine(), np.random.default_rng(1), stable=True)
    below = np.concatenate([[0.0], np.cumsum(held.fitted.shares[0])])
    box = np.column_stack([np.zeros_like(held.sizes), held.sizes])
    box[0, 0] = 5
    ends = held._numbers(box[None], (0,), [rule(age=(17.3, None))], 0)
    size, cuts = int(held.sizes[0]), held.fitted.basis.grid.cuts[0]
    assert ends(0, size) == (None, None) and ends(5, size) == (17.3, None)
    far = [code for code in range(1, size) if abs(below[code] - below[5]) > 0.02]
    numbers = [ends(code, size)[0] for code in far]
    assert 17.3 not in numbers and all(n == float(f"{n:.3g}") for n in numbers if n is not None)
    crossed = held._numbers(box[None], (0,), [rule(age=(99.9, None))], 0)
    assert crossed(5, far[-1]) == (cuts[4], cuts[far[-1] - 1])
    sex = held._numbers(box[None], (), [], 3)
    assert sex(1, 2) == (held.fitted.basis.grid.cuts[3][0], None)
