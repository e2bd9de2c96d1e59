"""What owners release of a model's errors: the share it takes, and the figures with their intervals."""

from __future__ import annotations

import json
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import roc_auc_score

from privfed.cli import BAD_INPUT, FINE, status
from privfed.engines.local import LocalDisclosure
from privfed.errors import StudyError
from privfed.exchange.messages import Release, ReleasedPart
from privfed.learners import GeneticTreeRegressor, RuleFitRegressor
from privfed.learners.evaluation import EDGES, ClassScores, RegressionErrors
from privfed.mechanisms.laplace import Laplace
from privfed.privacy.accountant import Budget
from privfed.privacy.laws import Law, Unknown
from privfed.privacy.noise import Noise
from privfed.privacy.policy import Guard, Policy
from privfed.questions.part import PartType
from privfed.questions.query import View
from privfed.reports.metrics import scores
from privfed.study.price import price
from privfed.study.private_evaluation import (
    SHARE,
    _metrics,
    _noisy_sums,
    evaluated,
    whole_plan,
    with_evaluation,
)
from privfed.tables.records import Records
from privfed.tables.schema import Column, Schema
from privfed.testing.hospitals import NUMERIC


@pytest.mark.parametrize("share", [None, Fraction(1, 20), Fraction(0)])
def test_the_share_is_taken_from_the_learners(share: Fraction | None) -> None:
    """The study costs its epsilon as before, in the accountant's own currency."""
    model = RuleFitRegressor()
    adopted = with_evaluation(model.private, Fraction(4), share, model, NUMERIC)
    priced = price(whole_plan(model, NUMERIC, adopted), NUMERIC, adopted)
    own = [priced.share(line) for line in priced.lines if line.kind == RegressionErrors.kind]
    assert priced.fits and Fraction(3999, 1000) < (priced.epsilon or 0) <= 4
    assert bool(own) == (share != 0)
    for taken in own:
        assert taken == pytest.approx(float(SHARE if share is None else share), rel=1e-9)


def test_personal_models_take_no_share() -> None:
    """Unless one is asked for, which is refused."""
    model = GeneticTreeRegressor()

    def propose(epsilon: Fraction) -> Policy:
        return model.private(epsilon, schema=NUMERIC)

    assert with_evaluation(propose, Fraction(4), None, model, NUMERIC) == propose(Fraction(4))
    with pytest.raises(Exception, match="one model for all"):
        with_evaluation(propose, Fraction(4), SHARE, model, NUMERIC)


def test_an_epsilon_too_small_for_a_share_says_so() -> None:
    """What is left beside the share converts to epsilon 0; the learner's budget was said to be no number above 0."""
    model = RuleFitRegressor()
    with pytest.raises(StudyError, match="epsilon 1e-7 is too small to keep a share"):
        with_evaluation(model.private, Fraction(1, 10**7), None, model, NUMERIC)


CLASSES = Schema(
    (Column("a", lower=0, upper=1),), Column("y", "category", categories=("no", "yes"))
)


class Leaning:
    """A classifier whose probability of ``yes`` is the feature itself."""

    schema_ = CLASSES


def released(
    schema: Schema, query: Any, mechanism: Any, x: np.ndarray, y: np.ndarray, seed: int
) -> LocalDisclosure:
    """A federation of two owners that answers one question about held-out records."""
    guards = {query.kind: (Guard.of(mechanism, spend="0.5"),)}
    budget = Budget.of("1", "0") if isinstance(mechanism, Laplace) else Budget.of("8", "1e-5")
    accountant = "pure" if isinstance(mechanism, Laplace) else "zcdp"
    policy = Policy(guards, accountant=accountant, budget=budget)
    frame = pd.DataFrame({"a": x, "y": y, "site": np.resize(["p", "q"], len(x))})
    return LocalDisclosure.from_frame(
        frame.head(4),
        target="y",
        client="site",
        schema=schema,
        policy=policy,
        seed=seed,
        held_out=frame,
    )


@pytest.mark.parametrize("mechanism", ["gaussian", Laplace()], ids=["gaussian", "laplace"])
def test_intervals_hold_what_the_noise_hides(
    mechanism: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 20 draws of the noise at least 17 have intervals that hold the exact figure, for each."""
    rng = np.random.default_rng(3)
    x = np.repeat((np.array([0.0, *EDGES]) + np.array([*EDGES, 1.0])) / 2, 25)
    y = np.where(rng.random(len(x)) < x, "yes", "no")
    monkeypatch.setattr(ClassScores, "about", classmethod(lambda cls, model: cls(b"")))
    monkeypatch.setattr(
        ClassScores, "_predict_row", lambda self, row, instead: np.array([1 - row[0], row[0]])
    )
    monkeypatch.setattr("privfed.study.private_evaluation.question_about", lambda _: ClassScores)
    truth = {
        "accuracy": np.mean((x > 0.5) == (y == "yes")),
        "area under the curve": roc_auc_score(y == "yes", x),
        "log loss": -np.log(np.maximum(np.where(y == "yes", x, 1 - x), 0.01)).mean(),
    }
    whole = ClassScores(b"").evaluate(
        View(Records(CLASSES, x[:, None], (y == "yes").astype(float)), CLASSES)
    )
    monkeypatch.setattr(ClassScores, "evaluate", lambda self, view: whole)  # at both owners
    held, bins = dict.fromkeys(truth, 0), [0, 0]
    for seed in range(20):
        told = evaluated(
            Leaning(),  # type: ignore[arg-type]
            released(CLASSES, ClassScores(b""), mechanism, x[:8], y[:8], seed),
        )
        for name, exact in truth.items():
            low, high = told["intervals"].get(name, (-np.inf, np.inf))
            held[name] += low <= exact <= high
        for one in told.get("calibration", ()):
            exact = np.mean(y[(one["low"] <= x) & (x < one["high"])] == "yes")
            bins[int(one["interval"][0] <= exact <= one["interval"][1])] += 1
            assert one["of"] == "yes"
        assert abs(told["value"] - truth["accuracy"]) < 0.15
    assert min(held.values()) >= 17
    assert sum(bins) > 100 and bins[1] > 0.85 * sum(bins)


class Outliers(Law):
    """Minus one half of the time, else plus three: a law that is neither a Laplace nor a Gaussian one."""

    name, measure = "outliers", "epsilon"

    def draw(self, noise: Noise, cells: int) -> np.ndarray:
        """Refused: nothing is drawn here."""
        raise NotImplementedError

    def log_mass(self, points: np.ndarray) -> np.ndarray:
        """ln 1/2 at each of the two."""
        return np.where(np.isin(points, [-1, 3]), -np.log(2), -np.inf)

    def loses(self, units: int) -> Fraction:
        """Refused: nothing is charged here."""
        raise NotImplementedError


def answer_under(law: Law) -> Any:
    """An answer of one part, with noise of a law on a grid of halves."""
    part = ReleasedPart(PartType.COUNTS, ("cell",), np.array([4]), grid=Fraction(1, 2), noise=law)
    release = Release("p", "1", "evaluation.errors", "", {"sums": part})
    return SimpleNamespace(releases={"p": release}, total=lambda name: part.values.data)


def test_draws_follow_the_noise_s_own_law() -> None:
    """Another package's law gives its own values, however unlike a Gaussian; one not installed gives no figure."""
    drawn = _noisy_sums(answer_under(Outliers()))["sums"][:, 0]
    assert drawn[0] == 2 and set(drawn[1:]) == {2.5, 0.5}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RegressionErrors, "about", classmethod(lambda cls, model: cls(b"")))
        asked: Any = SimpleNamespace(ask=lambda query: [answer_under(Unknown("staircase", "2"))])
        told = evaluated(RuleFitRegressor(), asked)
    assert told["value"] is None
    assert told["told"].startswith("performance not measured: the law 'staircase' is not installed")


def test_calibration_tells_the_outcome_by_bin_of_the_prediction() -> None:
    """Exactly where there is no noise; a bin without records is left out."""
    schema = Schema((Column("a", lower=0, upper=1),), Column("y", lower=0, upper=20))
    x, y = np.array([0.0, 0.52, 0.54, 0.99, 1.0]), np.array([4.0, 10.0, 12.0, 20.0, 18.0])

    class Model:
        schema_ = schema

    query = RegressionErrors(b"")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RegressionErrors, "_predict_row", lambda self, row, instead: 20 * row)
        sums = query.evaluate(View(Records(schema, x[:, None], y), schema))
        policy = Policy({query.kind: (Guard.of("open"),)})
        frame = pd.DataFrame({"a": x, "y": y, "site": "p"})
        patch.setattr(RegressionErrors, "about", classmethod(lambda cls, model: cls(b"")))
        patch.setattr("privfed.study.private_evaluation.question_about", lambda _: RegressionErrors)
        federation = LocalDisclosure.from_frame(
            frame, target="y", client="site", schema=schema, policy=policy, held_out=frame
        )
        told = evaluated(Model(), federation)  # type: ignore[arg-type]
    assert sums["bins"][[0, 5, 9], 0].tolist() == [2**19, 2**20, 2**20]
    assert [(b["low"], b["high"], b["mean"]) for b in told["calibration"]] == [
        (10.0, 12.0, pytest.approx(11)),
        (18.0, 20.0, pytest.approx(19)),
    ]
    assert told["value"] == pytest.approx(np.sqrt(np.mean((20 * x - y) ** 2)), rel=1e-4)


def test_a_verdict_beside_a_constant_counts_the_noise_of_both() -> None:
    """A constant's own error may be noise alone; what the noise cut at zero is not told."""
    draws = np.r_[0.0, np.linspace(0, 3, 1000)]
    told = _metrics(
        {"root mean squared error": 1 + 0 * draws, "R squared": 0.5 + 0 * draws},
        {"root mean squared error": draws, "R squared": 0 * draws},
        {"sums": np.full((1001, 1), 50.0)},
    )
    assert told["baseline"] is None and told["constants"] == {"R squared": 0.0}
    score, r2 = scores(told)
    assert score.undecided and not score.useless and not r2.undecided and not r2.useless


def test_a_constant_that_noise_made_perfect_is_not_told() -> None:
    """Classes that the noise hides have the constant right on all records; a log loss of 2e-8 is no figure."""
    draws = np.r_[0.0, np.linspace(-0.3, 0.3, 1000)]
    told = _metrics(
        {"accuracy": 0.9 + 0 * draws, "log loss": 0.4 + 0 * draws},
        {"accuracy": np.minimum(1, 1 - 1e-9 + draws), "log loss": np.maximum(2e-8, draws)},
        {"sums": np.full((1001, 3), 60.0)},
    )
    assert told["baseline"] is None and told["constants"] == {}
    accuracy, loss = scores(told)
    assert accuracy.constant is loss.constant is None and accuracy.undecided


def test_too_few_records_are_called_so() -> None:
    """Where the noise may be all that there is, no figure is given."""
    schema = Schema((Column("a", lower=0, upper=1),), Column("y", lower=0, upper=2))
    x = np.linspace(0, 1, 6)
    federation = released(schema, RegressionErrors(b""), "gaussian", x, 2 * x, 1)
    view = View(Records(schema, x[:, None], 2 * x), schema)
    assert RegressionErrors(b"").evaluate(view)["sums"][0] == 6 * 2**20
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RegressionErrors, "about", classmethod(lambda cls, model: cls(b"")))
        told = evaluated(RuleFitRegressor(), federation)
    assert told["value"] is None or told["intervals"]["root mean squared error"][1] > 0.5


def test_pages_of_ledgers_that_last_show_what_was_released(
    write_study: Callable[..., Path], study_text: str, tmp_path: Path
) -> None:
    """And not what the records' truth scored; a share that leaves nothing is refused."""
    text = study_text.replace('noise = "test"', "").replace('[[policy]]\nname = "published"\n', "")
    text = text.replace("[learner]", 'ledgers = "owners"\n[learner]')
    text = text.replace('name = "private"', 'name = "private"\nevaluation = 0.1')
    out = tmp_path / "out"
    assert status(["run", str(write_study(text)), "--out", str(out)]) == FINE
    metrics = json.loads((out / "private" / "metrics.json").read_text())
    plain = json.loads((out / "report.json").read_text())
    shown = plain["policies"][0]["performance"]
    assert [one["value"] for one in shown[:1]] == [
        value for value in [metrics["evaluation"]["value"]] if value is not None
    ]
    wrong = text.replace("evaluation = 0.1", "evaluation = 1.5")
    assert status(["price", str(write_study(wrong))]) == BAD_INPUT
