"""Records ranked by how exposed they are: for the holder of the truth alone."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from privfed.attacks.finding import Finding
from privfed.cli import FINE, status
from privfed.study import simulation
from privfed.study.exposed import exposed, rows_of
from privfed.study.output import Output

pytestmark = pytest.mark.usefixtures("short_audits")


def test_records_are_ranked_by_the_least_rate_of_any_attack() -> None:
    """Owner by owner, with the lines of the table; who was never judged is left out."""
    one = Finding("one", "q", "m", 1, exposed={"A": [0.5, math.nan, math.nan], "B": [0.2]})
    two = Finding("two", "q", "m", 1, exposed={"A": [0.1, 0.3, math.nan]})
    silent = Finding("three", "q", "m", 1)
    rows = {"": np.arange(2, 6), "A": np.array([2, 4, 5]), "B": np.array([3])}
    told = exposed([one, two, silent], rows)
    assert told["owner"] == ["A", "B", "A"] and told["row"] == [2, 3, 4]
    assert told["least"] == [0.1, 0.2, 0.3] and told["by"] == ["two", "one", "two"]
    assert list(told)[4:] == ["one: m", "two: m"]
    assert exposed([silent], rows) == {}
    whole = exposed([Finding("one", "q", "m", 1, exposed={"total": [0.1, 0.2, 0.3, 0.4]})], rows)
    assert whole["row"] == [2, 3, 4, 5]


def test_a_study_s_findings_hold_records_where_asked(finished: Path) -> None:
    """Every record of every owner stands there once, its line in the table told rightly; the page shows none."""
    assert status(["attack", str(finished), "--scores"]) == FINE
    output = Output.opened(finished)
    prepared = simulation.prepare(output.study)
    assert isinstance(prepared, simulation.Prepared)
    rows = rows_of(prepared)
    for name in output.policies:
        told = output.read(name, "findings.json")["records"]
        assert sorted(zip(told["owner"], told["row"], strict=True)) == sorted(
            (owner, row) for owner in prepared.owners for row in rows[owner].tolist()
        )
        assert all(0 < rate <= 1 for rate in told["least"])
        judged = {column.split(":")[0] for column in list(told)[4:]}
        assert judged >= {"membership"} if name == "private" else judged >= {"pool"}
    assert "exposed" not in (finished / "report.json").read_text()
