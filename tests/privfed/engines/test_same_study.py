"""The same study over every engine: the same releases, ledger lines and model, to the bit."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from privfed.cli import BAD_INPUT, FINE, status
from privfed.engines.local import LocalDisclosure
from privfed.engines.named import ENGINES, Engine, engine
from privfed.engines.simulated import behind_sockets, remote_over
from privfed.errors import InputError
from privfed.exchange.channel import ChannelDisclosure
from privfed.learners import FuzzyTreeRegressor, GeneticTreeClassifier, RuleFitClassifier
from privfed.learners.base import FederatedLearner, PersonalLearner
from privfed.questions import wire
from privfed.testing.hospitals import BINARY, NUMERIC, QUICK, gates, patients

LEARNERS: Mapping[str, tuple[Callable[[], FederatedLearner], Any]] = {
    "rounds of one question": (
        lambda: FuzzyTreeRegressor(n_fuzzy_sets=3, max_depth=2, random_state=0),
        NUMERIC,
    ),
    "what is offered": (lambda: RuleFitClassifier(**QUICK), BINARY),
    "personal models": (
        lambda: GeneticTreeClassifier(generations=2, population_size=6, random_state=0),
        BINARY,
    ),
}


def in_process() -> Engine:
    """Flower's apps on a grid of this process: no other process, and no wait."""
    pytest.importorskip("flwr")
    from flower_grid import InProcess

    from privfed.engines.flower import FlowerDisclosure

    def run(federation: LocalDisclosure, job: Callable[[ChannelDisclosure], Any]) -> Any:
        with behind_sockets(federation) as paths:
            grid = InProcess(dict(enumerate(paths.values(), 1)))
            return job(remote_over(federation, partial(FlowerDisclosure, grid)))

    return run


def lines(federation: LocalDisclosure, session: str) -> dict[str, list[Any]]:
    """Every ledger's rows without their times and hashes, the session's name left out."""
    told = {}
    for name, gate in federation.gates.items():
        rows = [
            (entry.event, entry.principal, entry.request, json.dumps(entry.body), entry.payload)
            for entry in gate.ledger.entries()
        ]
        told[name] = [
            [
                x.replace(session, "S") if isinstance(x, str) else x.replace(b(session), b"S")
                for x in r
            ]
            for r in rows
        ]
    return told


def b(text: str) -> bytes:
    """A text as bytes."""
    return text.encode()


def learned(carried: Engine, learner: FederatedLearner, federation: LocalDisclosure) -> bytes:
    """A model, of a federation that is closed then."""
    model: bytes = carried(federation, lambda asking: wire.encode(learner.fit(asking).to_dict()))
    federation.close()
    return model


def carried_out(
    carried: Engine, learner: FederatedLearner, schema: Any
) -> tuple[bytes, dict[str, list[Any]], list[bytes], dict[str, bytes]]:
    """A study over one engine: model, ledger lines, releases, and what stayed with each client."""
    policy = learner.published()
    federation = gates(patients(300), policy, schema)
    names: list[str] = []

    def job(asking: ChannelDisclosure) -> bytes:
        names.append(asking.session)
        model: bytes = wire.encode(learner.fit(asking).to_dict())
        return model

    model = carried(federation, job)
    assert isinstance(model, bytes)
    releases = [wire.encode(one.release.parts) for one in federation.transcript()]
    kept = {name: wire.encode(dict(shelf)) for name, shelf in federation.shelves.items()}
    found = lines(federation, names[0])
    federation.close()
    return model, found, sorted(releases), kept


def of_name(name: str) -> Engine:
    """An engine by its name; the test is skipped where it is not installed."""
    if name == "flower, in this process":
        return in_process()
    for needed in {"flower": ("flwr", "ray"), "flare": ("nvflare",)}.get(name, ()):
        pytest.importorskip(needed)
    return engine(name)


@pytest.mark.parametrize("learner", LEARNERS)
@pytest.mark.parametrize("name", ["sockets", "flower, in this process"])
def test_every_style_of_learner_learns_the_same(name: str, learner: str) -> None:
    """Rounds of one question, of what is offered, and local effects."""
    carried, (make, schema) = of_name(name), LEARNERS[learner]
    told = carried_out(carried, make(), schema)
    assert told == carried_out(engine("local"), make(), schema)
    assert told[1]["A"] and told[2]
    assert bool(told[3]["A"] != wire.encode({})) == isinstance(make(), PersonalLearner)


@pytest.mark.parametrize("name", ["flower", "flare"])
def test_the_engines_own_simulation_learns_the_same(name: str) -> None:
    """Nodes that are processes of the engine's, which call the gates' sockets."""
    carried, (make, schema) = of_name(name), LEARNERS["what is offered"]
    assert carried_out(carried, make(), schema) == carried_out(engine("local"), make(), schema)


@pytest.mark.parametrize("name", ["sockets", "flower, in this process", "flower", "flare"])
def test_masked_totals_teach_the_same_over_every_engine(name: str) -> None:
    """Masks differ from session to session and cancel: the model is the same to the bit."""
    pytest.importorskip("cryptography")
    carried, learner = of_name(name), FuzzyTreeRegressor(max_depth=1, random_state=0)
    policy = learner.private("4", "1e-5").masked_among("ABC", colluding=1)
    told = [
        learned(each, learner, gates(patients(300), policy, NUMERIC))
        for each in (carried, engine("local"))
    ]
    assert told[0] == told[1]


def test_a_study_names_its_engine(
    write_study: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """``privfed run STUDY --engine sockets`` writes the same model as without."""
    study = str(write_study())
    for name in ("local", "sockets"):
        command = ["run", study, "--engine", name, "--out", str(tmp_path / name)]
        assert status(command) == FINE
    models = [(tmp_path / n / "private" / "model.json").read_bytes() for n in ("local", "sockets")]
    assert models[0] == models[1]
    capsys.readouterr()
    command = ["run", study, "--engine", "floral", "--out", str(tmp_path / "x")]
    assert status(command) == BAD_INPUT
    assert "there are local, sockets, flower, flare" in capsys.readouterr().err


def test_an_engine_that_is_not_installed_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The error names the extra."""
    monkeypatch.setitem(ENGINES, "flower", ("privfed.engines.no_such", "simulate", "flower"))
    with pytest.raises(InputError, match=r"install privfed\[flower\]"):
        engine("flower")
