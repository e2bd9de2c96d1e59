"""Where ledgers last, pages leave out what the records' truth scored, unless it is asked for."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from privfed.attacks.finding import Finding
from privfed.cli import BAD_INPUT, BREACH, FINE, status

FOUND = Finding(
    "membership",
    "Was she there?",
    "share of pairs of a used and an unused record told apart by noisy numbers",
    0.6,
    of=1.0,
    low=0.55,
    high=0.7,
    baseline=0.5,
    severity="some",
    detail={"members": 100, "outsiders": 50},
)


@pytest.fixture
def lasting(write_study: Callable[..., Path], study_text: str, tmp_path: Path) -> Path:
    """A finished study over ledgers that last, with an attack's finding."""
    text = study_text.replace('noise = "test"', "").replace('[[policy]]\nname = "published"\n', "")
    text = text.replace(
        "[learner]", 'ledgers = "owners"\nbudget = { epsilon = "8", delta = "1e-5" }\n[learner]'
    )
    out = tmp_path / "out"
    assert status(["run", str(write_study(text)), "--out", str(out)]) == FINE
    told = {"findings": [FOUND.to_dict()], "inapplicable": {}}
    (out / "private" / "findings.json").write_text(json.dumps(told))
    return out


def test_scores_and_attacks_are_left_out(lasting: Path) -> None:
    """Of the engineer's page, its JSON, the board's page and the exports; what remains is the ledgers'."""
    assert status(["report", str(lasting)]) == FINE
    page, plain = (lasting / "report.html").read_text(), (lasting / "report.json").read_text()
    metrics = json.loads((lasting / "private" / "metrics.json").read_text())
    assert "are left out" in page and "4" in page and "root mean squared" not in page
    assert "told apart" not in page and "told apart" not in plain
    assert str(metrics["value"]) not in plain and json.loads(plain)["withheld"]
    assert status(["report", str(lasting), "--for", "board"]) == FINE
    assert "left out, because it is measured on the records" in (lasting / "board.html").read_text()
    assert "board.html" in (lasting / ".privfed").read_text().splitlines()
    assert status(["export", str(lasting), "--as", "sacroml"]) == BAD_INPUT


def test_what_failed_inside_a_gate_is_its_owners_to_know(lasting: Path) -> None:
    """Whether an owner's own tree failed follows from her records alone, and no reply tells of it."""
    file = lasting / "private" / "metrics.json"
    faults = {"faults": {"north": {"genetic_tree.keep": 1}}}
    file.write_text(json.dumps(json.loads(file.read_text()) | faults))
    for flags, told in (((), False), (("--simulation",), True)):
        assert status(["report", str(lasting), *flags]) == FINE
        assert ("failed inside a gate" in (lasting / "report.html").read_text()) is told


def test_all_is_there_when_it_is_asked_for(lasting: Path) -> None:
    """On pages and in exports."""
    assert status(["report", str(lasting), "--simulation"]) == FINE
    page = (lasting / "report.html").read_text()
    assert "told apart" in page and "root mean squared" in page and "are left out" not in page
    assert status(["export", str(lasting), "--as", "sacroml", "--simulation"]) == FINE


def test_a_violated_guarantee_is_never_left_out(lasting: Path) -> None:
    """The truth that scored it or not: the page is red, and the status is 1."""
    told = {"findings": [{**FOUND.to_dict(), "severity": "breach"}], "inapplicable": {}}
    (lasting / "private" / "findings.json").write_text(json.dumps(told))
    assert status(["report", str(lasting)]) == BREACH
    assert "A guarantee is violated" in (lasting / "report.html").read_text()
    assert "membership violates a finite guarantee" in (lasting / "report.json").read_text()
