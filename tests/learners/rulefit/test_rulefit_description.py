"""What a person reads of a rule ensemble: text and pictures say what their numbers are of, and what they leave out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from privfed.errors import InputError
from privfed.learners import RuleFitClassifier, RuleFitRegressor
from privfed.learners.privacy_text import SEE_OWNERS
from privfed.learners.rulefit.cutoffs import Cutoffs
from privfed.learners.rulefit.model import LINKS, ClassEnsembles, RuleEnsemble
from privfed.learners.rulefit.rules import Terms
from privfed.tables.schema import Column, Schema

FEATURES = tuple(Column(name, "number", 0, 100) for name in ("age", "pulse", "still"))
TWO = Schema(FEATURES, Column("died", "category", categories=("no", " ")))
THREE = Schema(FEATURES, Column("grade", "category", categories=("a", "b", "c")))
NUMBER = Schema(FEATURES, Column("stay", "number", 0, 50, description="days in hospital"))
CUTOFFS = Cutoffs(((40.0,), (60.0,), (50.0,)), np.full(3, 10.0), np.full(3, 90.0), np.full(3, 16.0))
#: age alone, age and pulse, and a rule of the third column with no coefficient
BOXES = np.array(
    [[[1, 2], [0, 2], [0, 2]], [[1, 2], [1, 2], [0, 2]], [[0, 2], [0, 2], [1, 2]]], np.uint8
)
MODEL = RuleEnsemble(
    TWO,
    Terms(CUTOFFS, BOXES, (0,)),
    np.array([-0.7, 0.8, 1.5, 0.0, 1.1]),
    np.array([0.5, 0.2, 0.4]),
    np.ones(4),
    covariance=np.eye(5) / 100,
    error=np.eye(5) / 100,
)


def learned(ensemble: Any, kind: Any = RuleFitClassifier, limits: Any = (0.0, 1.0)) -> Any:
    """A learner that came to an ensemble in private."""
    own = kind()
    own.schema_ = (
        ensemble.schema if isinstance(ensemble, RuleEnsemble) else ensemble.models[0].schema
    )
    own.ensemble_, own.way_, own.target_limits_ = ensemble, "private", limits
    return own


def test_a_number_s_beginning_and_limits_are_told_wherever_it_lies() -> None:
    """Four digits of what lies between its limits, and thresholds and lines likewise."""
    far = tuple(Column(c.name, "number", 1e6, 1e6 + 100) if c.numeric else c for c in FEATURES)
    schema = Schema(far, Column("stay", "number", 1e9, 1e9 + 50))
    cuts = tuple(tuple(1e6 + cut for cut in own) for own in CUTOFFS.cuts)
    cutoffs = Cutoffs(cuts, CUTOFFS.lower + 1e6, CUTOFFS.upper + 1e6, CUTOFFS.scale)
    own = RuleEnsemble(
        schema,
        Terms(cutoffs, BOXES, (0,)),
        np.array([0.0, 0.5, 0.5, 0.0, 0.5]),
        np.ones(3),
        np.ones(4),
    )
    text = learned(own, RuleFitRegressor, (1e9, 1e9 + 50)).describe()
    assert "which is 1000000025 " in text
    assert "between 1000000000 and 1000000050." in text
    assert "age >= 1000040" in text and "from 1000010 to 1000090" in text


def test_a_description_says_of_which_class_its_numbers_are_and_where_they_begin() -> None:
    """With what the ends are, and no remark on terms where all are shown."""
    text = learned(MODEL).describe()
    assert text.startswith(
        'Coefficients add to the log-odds of died = " ", which are -0.7 where no rule holds'
    )
    assert "linear terms are midway" in text and "90 % interval for the coefficient" in text
    assert "if it includes 0, the term may have no effect" in text
    assert "below a counts as a, above b as b" in text and text.endswith(SEE_OWNERS)
    assert "shows all" not in text
    bare = learned(
        replace(
            MODEL,
            covariance=None,
            error=None,
            terms=Terms(CUTOFFS, BOXES, ()),
            weights=MODEL.weights[:4],
            deviations=np.ones(3),
        )
    )
    assert "90 %" not in bare.describe() and "middle" not in bare.describe()


def test_a_cut_table_says_how_many_terms_there_are_and_how_all_are_shown() -> None:
    """Text and picture."""
    own = learned(MODEL)
    assert own.describe(2).splitlines()[-2] == "2 of 3 terms; describe(3) shows all."
    assert own.describe(3).count("\n") == own.describe(2).count("\n")
    long = replace(
        MODEL,
        terms=Terms(CUTOFFS, np.tile(BOXES[:1], (25, 1, 1)), (0,)),
        weights=np.linspace(1, 2, 27),
        supports=np.full(25, 0.5),
        deviations=np.ones(26),
        covariance=None,
        error=None,
    )
    assert "(the first 20 of 26)" in learned(long).plot().get_xlabel()


def test_a_numbers_description_names_its_unit_and_its_limits() -> None:
    """Where the coefficients begin is in the unit, too."""
    own = learned(replace(MODEL, schema=NUMBER), RuleFitRegressor, (10.0, 30.0))
    first = own.describe().splitlines()[0]
    assert first.startswith(
        "Coefficients add to stay (days in hospital), in its unit, which is 13 where"
    )
    assert first.endswith("predictions lie between 10 and 30.")


def test_large_coefficients_are_written_without_powers_of_ten() -> None:
    """Three digits, in the target's unit."""
    own = learned(replace(MODEL, schema=NUMBER), RuleFitRegressor, (0.0, 500_000.0))
    text = own.describe()
    assert "e+" not in text and " 275000 " in text and " 375000 " in text


def test_numbers_of_a_column_have_the_same_decimals() -> None:
    """Three digits of the largest coefficient, at least two decimals below 100; nothing has a sign of nothing."""
    small = replace(MODEL, weights=np.array([-0.7, 12.3456, -0.001, 0.0, 1.1]))
    rows = [line.split() for line in learned(small).describe().splitlines()[5:8]]
    assert [row[-8:-2] for row in rows] == [
        ["12.35", "12.18", "12.51", "230000", "100", "0.50"],
        ["1.10", "0.94", "1.26", "3", "9", "1.00"],
        ["0.00", "-0.17", "0.16", "0.999", "0", "0.20"],
    ]


def test_a_line_on_integers_has_those_between_its_limits_and_what_others_count_as() -> None:
    """As the model has it for each of them."""
    features = (Column("visits", "integer", 0, 30), *FEATURES[1:])
    for lower, upper, text in (
        (
            0.2,
            8.5,
            "linear: visits per 40, from 1 (less: 0.2) to 8 (more: 8.5)",
        ),
        (0.0, 8.5, "linear: visits per 40, from 0 to 8 (more: 8.5)"),
        (2.0, 9.0, "linear: visits per 40, from 2 to 9"),
        (0.2, 0.7, "linear: visits per 40, from 0.2 to 0.7"),
    ):
        ends = np.array([[lower, 10, 10], [upper, 90, 90]])
        cutoffs = replace(CUTOFFS, lower=ends[0], upper=ends[1])
        model = replace(MODEL, schema=Schema(features, TWO.target))
        model = replace(model, terms=Terms(cutoffs, BOXES, (0,)))
        assert text in model.table()["term"].tolist()
        assert ("counts as c" in learned(model).describe()) == ("(more: " in text)


def test_plain_data_have_every_interval_that_the_text_has() -> None:
    """Of rules and of lines, whose coefficients are for one unit there; none where none is known."""
    table, plain = MODEL.table().set_index("term"), MODEL.to_dict("logit")
    line = table.loc["linear: age per 40, from 10 to 90"]
    assert 40 * plain["linear"]["age"] == pytest.approx(line["coefficient"])
    ends = 40 * np.array(plain["linear_intervals"]["age"])
    assert ends == pytest.approx(line[["low", "high"]].to_numpy(float))
    assert plain["rules"][0]["interval"] == pytest.approx(
        table.loc["age >= 40", ["low", "high"]].to_numpy(float)
    )
    assert "linear_intervals" not in replace(MODEL, covariance=None, error=None).to_dict("logit")


@pytest.mark.parametrize("link", LINKS)
def test_several_classes_begin_at_scores_of_their_own(link: str) -> None:
    """The heading says against what a class' score is held."""
    models = tuple(replace(MODEL, schema=THREE, covariance=None, error=None) for _ in range(3))
    text = learned(ClassEnsembles(models, link)).describe()
    assert ("softmax" if link == "softmax" else "against all others") in text.splitlines()[0]
    assert ": a -0.7, b -0.7, c -0.7." in text
    blank = Schema(FEATURES, Column("grade", "category", categories=("a", "", "c")))
    text = learned(
        ClassEnsembles(tuple(replace(one, schema=blank) for one in models), link)
    ).describe()
    assert text.count('""') == 1 + 3  # where it begins, and its terms


def test_one_rule_has_one_support_whatever_its_class() -> None:
    """Each class' model estimates it on records of its own: the table has the mean, and leaves out by it."""
    bare = replace(MODEL, schema=THREE, covariance=None, error=None)
    models = [
        replace(bare, supports=np.array([share, 0.2, 0.4])) for share in (0.333, 0.334, 0.338)
    ]
    table = ClassEnsembles(tuple(models), "one-vs-rest").table(least_support=0.3349)
    assert table.groupby("term")["support"].nunique().max() == 1
    assert table.loc[table["term"] == "age >= 40", "support"].to_numpy() == pytest.approx(
        np.full(3, 0.335)
    )


def test_a_model_without_terms_says_that_it_is_a_constant() -> None:
    """In text and picture."""
    own = learned(replace(MODEL, weights=MODEL.weights * [1, 0, 0, 0, 0]))
    assert "No term has a coefficient" in own.describe() and "low and high" not in own.describe()
    assert "no term has a coefficient" in own.plot().get_title(loc="left")


def test_a_picture_of_one_column_says_what_it_leaves_out() -> None:
    """Joint rules; a column of joint rules alone, and one of none, which are flat lines."""
    for ensemble in (MODEL, ClassEnsembles((replace(MODEL, schema=THREE),) * 3, "one-vs-rest")):
        age, pulse, still = (
            learned(ensemble).plot(name).get_title(loc="left") for name in ("age", "pulse", "still")
        )
        assert age.startswith("not drawn here: ") and "of age together with other columns" in age
        assert pulse.startswith("the model uses pulse only together with other columns")
        assert still == "no term of the model uses still"


def test_numbers_that_are_classes_are_told_what_to_write() -> None:
    """The very line of the schema, where they are few."""
    schema = Schema(FEATURES, Column("grade", "integer", 3, 5))
    with pytest.raises(
        InputError,
        match=r'for \'grade\' write kind = "category" and categories = \["3", "4", "5"\]',
    ):
        RuleFitClassifier().check(schema)


def test_a_line_of_two_values_is_the_second_rather_than_the_first() -> None:
    """Flags and categories: with the whole difference of scores, also if limits are within it; the text begins at the first."""
    columns = (
        Column("flag", "integer", 0, 1),
        Column("sex", categories=("female", "male")),
        Column("beds", "integer", 0, 9),
    )
    schema = Schema(columns, Column("died", "category", categories=("no", "yes")))
    lower, upper, scale = np.array([0.0, 0.25, 1.0]), np.array([1.0, 1.0, 8.0]), np.full(3, 0.3)
    own = RuleEnsemble(
        schema,
        Terms(Cutoffs(((), (), ()), lower, upper, scale), np.zeros((0, 3, 2), np.uint8), (0, 1, 2)),
        np.array([-0.7, 0.3, -0.2, 0.1]),
        np.zeros(0),
        np.ones(3),
        covariance=np.eye(4) / 100,
        error=np.eye(4) / 100,
    )
    table = own.table().set_index("term")["coefficient"]
    scores = own.scores(np.array([[0, 0, 4.5], [1, 0, 4.5], [0, 1, 4.5]]))
    assert own.start == pytest.approx(scores[0])
    assert table["flag = 1 rather than 0"] == pytest.approx(scores[1] - scores[0])
    assert table["sex = male rather than female"] == pytest.approx(scores[2] - scores[0])
    told = own.table().set_index("term")
    assert (told["high"] - told["low"])["flag = 1 rather than 0"] == pytest.approx(
        0.4 / 0.3 * 2 * 1.6448536 * 0.1
    )
    text = learned(own).describe()
    assert "-0.8 where no rule holds and linear terms are midway" in text
    assert "linear: flag" not in text and "linear: sex" not in text and "linear: beds" in text
