"""A learner of another package that goes wrong: no study ends after its budget was spent, and one clear error before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import pandas as pd
import pytest

from privfed import LocalDisclosure
from privfed.audits.replay import alike, audit_replay
from privfed.cli import BAD_INPUT, BREACH, FAULT, FINE, status
from privfed.extend import (
    Budget,
    Constraints,
    Disclosure,
    FederatedRegressor,
    Guard,
    InputError,
    Number,
    Planned,
    Policy,
    Query,
    Schema,
    exact,
)
from privfed.questions import plugins
from privfed.study import LearnerChoice, Study
from privfed.study.output import Output
from privfed.testing.hospitals import NUMERIC, patients
from privfed.testing.queries import Histogram, LevelSums

pytestmark = pytest.mark.usefixtures("short_audits")


class Middle(FederatedRegressor):
    """Predicts the middle of the target's bounds, and asks for a count all the same."""

    queries: ClassVar[tuple[type[Query], ...]] = (Histogram,)
    _parameter_constraints: ClassVar[Constraints] = {}

    def fit(self, federation: Disclosure) -> Self:
        """Ask once."""
        self._start(federation)
        federation.ask(self._asked(federation.schema))
        assert federation.schema.target is not None
        self.middle_ = float(np.mean(federation.schema.target.bounds))
        return self

    def predict(self, x: pd.DataFrame | np.ndarray, *, client: str | None = None) -> np.ndarray:
        """The middle for each row."""
        return np.full(len(self._encode(x, client)), self.middle_)

    def published(self) -> Policy:
        """The exact count."""
        return Policy({Histogram.kind: (Guard.of("open"),)}, name="published")

    def private(
        self, epsilon: Number, delta: Number = "1e-5", *, schema: Schema | None = None
    ) -> Policy:
        """A noisy one."""
        guard = Guard.of("laplace", spend=exact(epsilon, "epsilon"), times=1)
        return Policy({Histogram.kind: (guard,)}, budget=Budget.of(epsilon), name="private")

    def plan(self, schema: Schema, policy: Policy) -> Sequence[Planned]:
        """One question."""
        return [Planned(self._asked(schema), times=1)]

    def _asked(self, schema: Schema) -> Histogram:
        return Histogram(0, tuple(schema.features[0].bounds))


@pytest.fixture
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The built-in study's file with that learner, installed as a plugin's entry point would, at epsilon 2."""
    known = plugins.available
    point = EntryPoint("Middle", f"{__name__}:Middle", "privfed.learners")
    monkeypatch.setattr(
        plugins, "available", lambda g: known(g) | ({"Middle": point} if g == "learners" else {})
    )
    built_in = Study.built_in()
    private = next(choice for choice in built_in.policies if choice.base == "private")
    own = replace(
        built_in,
        noise="test",
        learner=LearnerChoice("Middle"),
        attacks=("verbatim",),
        policies=(replace(private, epsilon="2", params={}),),
    )
    own.to_toml(tmp_path / "study.toml")
    return tmp_path / "study.toml"


def test_a_sound_one_is_carried_out(study: Path, tmp_path: Path) -> None:
    """What the other tests stand on."""
    assert status(["audit", str(study), "--out", str(tmp_path / "out")]) == FINE


def test_a_plan_that_is_not_kept_is_told_in_price_and_report(
    study: Study,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Where the policy allows more, the price stands on the learner's word; who asks more is told."""
    told = "on the schedule that Middle states, not derived here"
    assert status(["price", str(study)]) == FINE
    assert told not in capsys.readouterr().out  # its policy allows one answer, as planned

    def loose(self: Middle, epsilon: Number, *_: Any, **__: Any) -> Policy:
        guard = Guard.of("laplace", spend=exact(epsilon, "epsilon") / 2)
        return Policy({Histogram.kind: (guard,)}, budget=Budget.of(epsilon), name="private")

    def greedy(self: Middle, federation: Disclosure) -> Middle:
        federation.ask(Histogram(1, (0.0, 1.0)))
        return sound(self, federation)

    sound = Middle.fit
    monkeypatch.setattr(Middle, "private", loose)
    monkeypatch.setattr(Middle, "fit", greedy)
    assert status(["price", str(study)]) == FINE
    assert f"\n  this holds {told}" in capsys.readouterr().out
    assert status(["run", str(study), "--out", str(tmp_path / "out")]) == FINE
    beyond = f"{Histogram.kind} was answered 2 times, where the learner's plan states 1"
    assert beyond in capsys.readouterr().err
    assert beyond in (tmp_path / "out" / "report.html").read_text().replace("&#39;", "'")


def test_why_there_is_no_model_is_told(
    study: Study,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A later query that every owner refused, of a kind that the learner forgot to declare."""

    def stray(self: Middle, federation: Disclosure) -> Middle:
        sound(self, federation)
        federation.ask(LevelSums(((),)))
        return self

    sound = Middle.fit
    monkeypatch.setattr(Middle, "fit", stray)
    assert status(["run", str(study), "--out", str(tmp_path / "out")]) == FINE
    assert f"no model: no client answered {LevelSums.kind}: the owner's policy does not name" in (
        capsys.readouterr().out
    )


def _raising(error: Exception) -> Any:
    def fail(*_: Any, **__: Any) -> Any:
        raise error

    return fail


@pytest.mark.parametrize(
    ("method", "does", "told"),
    [
        ("predict", _raising(ZeroDivisionError("age 41.7")), "ZeroDivisionError"),
        ("predict", _raising(InputError("write another")), "write another"),
        ("predict", lambda self, x, **_: np.full(len(x), np.nan), "no value for each row"),
        ("predict", lambda self, x, **_: np.zeros(3), "no value for each row"),
        ("state", lambda self: {"of": object()}, "no plain data"),
        (
            "predict",
            _raising(KeyError("age 41.7")),
            "KeyError, error in the plugin own 1.2: fail, line ",
        ),
    ],
)
def test_one_that_fails_after_its_answers_loses_no_report_of_them(
    study: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    method: str,
    does: Any,
    told: str,
) -> None:
    """What left is attacked and told, without a model; the error is named by its kind, for its text may hold data."""
    monkeypatch.setattr(Middle, method, does)
    monkeypatch.setattr(plugins, "packages", lambda: {"tests": ("own", "1.2")})
    out = tmp_path / "out"
    assert status(["audit", str(study), "--out", str(out)]) == FAULT
    said = capsys.readouterr().err
    assert "its learner failed (" in said and told in said
    assert "41.7" not in said
    output = Output.opened(out)
    assert (out / "report.html").exists() and output.read("private", "model.json") is None
    assert output.read("private", "findings.json")["findings"]


def _found(out: Path) -> dict[str, Any]:
    told = Output.opened(out).read("private", "findings.json")["findings"]
    return next(each for each in told if each["attack"] == "audit of the learner's replay")


def test_a_model_that_does_not_follow_from_what_left_is_told(
    study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A learner that reaches for the gates in this process breaks what is claimed of its model, whatever left."""
    assert status(["audit", str(study), "--out", str(tmp_path / "sound")]) == FINE
    sound = _found(tmp_path / "sound")
    assert (sound["value"], sound["severity"], sound["partial"]) == (0, "none", "")
    fit = Middle.fit

    def reading(self: Middle, federation: Any) -> Middle:
        fit(self, federation)
        around = getattr(federation, "gates", {})
        for gate in around.values():
            self.middle_ = float(gate._view.records.target.mean())
        return self

    monkeypatch.setattr(Middle, "fit", reading)
    assert status(["audit", str(study), "--out", str(tmp_path / "out")]) == BREACH
    assert (_found(tmp_path / "out")["value"], _found(tmp_path / "out")["severity"]) == (
        1,
        "breach",
    )


@pytest.mark.parametrize(
    ("does", "why"),
    [
        (lambda: np.random.default_rng().normal(), "its own random choices differ"),
        (_raising(KeyError("age 41.7")), "it failed with KeyError on the recorded answers"),
    ],
)
def test_what_a_replay_cannot_tell_was_not_looked_at(does: Any, why: str) -> None:
    """Random choices of its own, and errors, convict nobody."""

    class Drawing(Middle):
        def fit(self, federation: Disclosure) -> Self:
            super().fit(federation)
            self.middle_ = does()
            return self

    federation = LocalDisclosure.from_frame(
        patients(60),
        target="days",
        client="hospital",
        schema=NUMERIC,
        policy=Middle().published(),
        seed=1,
    )
    model = Middle().fit(federation)
    found = audit_replay(Drawing(), model, federation.transcript(), federation.clients)
    assert found.state == "not looked" and found.why_not.startswith(why)


@pytest.mark.parametrize(
    ("method", "does", "told"),
    [
        ("private", lambda self, *_, **__: None, "Middle proposes a NoneType, no Policy"),
        ("plan", lambda self, *_: None, "Middle: plan gives no list of Planned"),
        (
            "private",
            lambda self, epsilon, delta=0, schema=None: Policy(
                {}, budget=Budget(3 * Fraction(epsilon))
            ),
            "Middle proposes a budget of epsilon 6, not 2",
        ),
    ],
)
def test_what_is_no_proposal_is_told_before_anything_is_asked(
    study: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    method: str,
    does: Any,
    told: str,
) -> None:
    """A return that was forgotten was an internal error, and another budget than the study's was adopted."""
    monkeypatch.setattr(Middle, method, does)
    assert status(["audit", str(study), "--out", str(tmp_path / "out")]) == BAD_INPUT
    assert told in capsys.readouterr().err


def test_an_internal_error_names_the_plugin_and_the_line(
    study: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Whose author has to look at it; the error's own text may hold data."""

    def plan(self: Middle, *_: Any) -> Any:
        raise KeyError("age 41.7")

    monkeypatch.setattr(Middle, "plan", plan)
    monkeypatch.setattr(plugins, "packages", lambda: {"tests": ("own", "1.2")})
    assert status(["audit", str(study), "--out", str(tmp_path / "out")]) == FAULT
    said = capsys.readouterr().err
    assert "error in the plugin own 1.2: plan, line " in said
    assert "of test_own_learner.py (KeyError)" in said and "41.7" not in said


def test_rounding_errors_convict_no_learner() -> None:
    """Sums of several threads, or of another processor's, differ in their last bits; other values and forms are others."""
    model = {"of": [1.5, {"at": 0.1 + 0.2, "n": 3}], "name": "a"}
    assert alike(model, {"of": [1.5, {"at": 0.3, "n": 3}], "name": "a"})
    for other in (
        {"of": [1.5, {"at": 0.30001, "n": 3}], "name": "a"},
        {"of": [1.5, {"at": 0.3, "n": 4}], "name": "a"},
        {"of": [1.5], "name": "a"},
        {"of": [1.5, {"at": 0.3, "n": 3}], "name": "b"},
        {"of": [1.5, {"at": 0.3}], "name": "a"},
    ):
        assert not alike(model, other)
