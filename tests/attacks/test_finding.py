"""Findings hold only figures that mean something, and survive a round through plain data."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from privfed.attacks.finding import Finding, corrected
from privfed.errors import InputError
from privfed.questions import plugins


def test_round_trip_through_json() -> None:
    """What was written reads back equal."""
    finding = Finding(
        "a", "does it?", "records", 3, of=7, baseline=0.5, releases=("k",), detail={"n": 1}
    )
    assert Finding.from_dict(json.loads(json.dumps(finding.to_dict()))) == finding
    assert finding.share == 3 / 7
    assert Finding("a", "q", "m", 0, of=0).share is None


@pytest.mark.parametrize("name", ["value", "of", "low", "high", "baseline", "detectable", "chance"])
def test_not_a_number_is_refused(name: str) -> None:
    """No figure may be NaN."""
    figures: dict[str, Any] = {"value": 1.0, name: math.nan}
    with pytest.raises(InputError, match=name):
        Finding("a", "q", "m", **figures)


def test_nonsense_is_refused() -> None:
    """An interval upside down or beside its value, an unknown severity, an unknown key."""
    for low, high in [(2, 1), (2, 3), (-1, 0.5), (2, None), (None, 0.5)]:
        with pytest.raises(InputError, match="value must lie between low and high"):
            Finding("a", "q", "m", 1, low=low, high=high)
    with pytest.raises(InputError, match="severity"):
        Finding("a", "q", "m", 1, severity="bad")
    with pytest.raises(InputError, match="atack"):
        Finding.from_dict({"atack": "a"})


def measured(value: float, low: float, high: float, **figures: Any) -> Finding:
    """A finding with an interval, above a baseline of a half."""
    severity = "some" if low > 0.5 else "none"
    told: dict[str, Any] = {"of": 1.0, "baseline": 0.5, "severity": severity} | figures
    return Finding("a", "q?", "m", value, low=low, high=high, **told)


def test_silence_has_three_states() -> None:
    """Found; looked, with what would have been found; cut short or too blind is not looked."""
    sharp, blind = corrected([measured(0.5, 0.45, 0.55), measured(0.5, 0.0, 1.0)])
    assert sharp.state == "looked" and sharp.detectable == pytest.approx(
        0.5 + (1.96 + 0.842) * 0.05 / 1.96, rel=1e-3
    )
    assert blind.state == "not looked" and "so few draws" in blind.why_not
    assert measured(0.5, 0.45, 0.55, partial="1 of 2 clients").state == "not looked"
    assert measured(0.7, 0.6, 0.8, partial="1 of 2 clients").state == "found"
    assert not sharp.why_not


def test_an_attack_that_asks_for_more_than_its_baseline_is_told_by_what_it_asks() -> None:
    """The larger of what it states and of what the page's level asks."""
    more, less = corrected([measured(0.5, 0.45, 0.55, detectable=each) for each in (0.7, 0.51)])
    assert more.detectable == 0.7
    assert less.detectable is not None and less.detectable > 0.57


def test_findings_of_a_page_share_one_level() -> None:
    """What stands out alone is chance among twenty; a proof and a count need no correction."""
    near, far = measured(0.56, 0.51, 0.61), measured(0.7, 0.6, 0.8)
    crowd = [measured(0.5, 0.4, 0.6)] * 18
    (alone,) = corrected([near])
    among = corrected([near, far, *crowd])
    assert alone.state == "found" and among[0].state == "looked" and among[1].state == "found"
    assert "all findings" in among[0].detail["note"]
    proof = measured(0.01, 0.0, 0.05, baseline=0.0, severity="breach")
    assert proof.p_value is None and corrected([proof, *crowd])[0].state == "found"
    (count,) = corrected([Finding("a", "q?", "groups", 0, of=9, baseline=2.4)])
    assert count.detectable == 3


def test_honest_pages_are_seldom_accused() -> None:
    """Of 1,000 pages of ten tests without any effect, at most some 5 % have a finding."""
    rng = np.random.default_rng(0)
    false = 0
    for _ in range(1000):
        values = 0.5 + 0.05 * rng.standard_normal(10)
        page = [measured(v, v - 0.098, v + 0.098) for v in np.clip(values, 0, 1)]
        false += any(each.state == "found" for each in corrected(page))
    assert 20 <= false <= 75


def test_what_is_called_detectable_is_found_four_times_of_five() -> None:
    """The power twin: effects of just that size."""
    rng = np.random.default_rng(0)
    (empty,) = corrected([measured(0.5, 0.402, 0.598)])
    assert empty.detectable is not None
    values = empty.detectable + 0.05 * rng.standard_normal(2000)
    found = [
        corrected([measured(v, v - 0.098, v + 0.098, of=2.0)])[0].state == "found" for v in values
    ]
    assert np.mean(found) == pytest.approx(0.8, abs=0.03)


def test_every_attack_names_the_risk_and_the_harm() -> None:
    """One of the regulators' three, and what it means for a person."""
    for name in plugins.available("attacks"):
        attack = plugins.load("attacks", name)
        assert attack.risk in ("singling out", "linkability", "inference") and attack.harm
    with pytest.raises(InputError, match="risk must be one of"):
        Finding("a", "q?", "m", 1, risk="gossip")  # type: ignore[arg-type]


def test_what_is_said_of_single_records_is_no_part_of_a_finding_s_plain_data() -> None:
    """It is written by name alone, where the holder of the truth asks for it."""
    finding = Finding("a", "q", "m", 1, exposed={"clinic": [0.5]})
    assert "exposed" not in finding.to_dict()
    assert Finding.from_dict(finding.to_dict()) == finding


def test_what_an_attack_noted_stands_beside_what_the_level_of_all_findings_adds() -> None:
    """A second note once took the place of the first."""
    weak = replace(measured(0.6, 0.4, 0.8, severity="some", chance=0.2), detail={"note": "few"})
    (told,) = corrected([weak])
    assert str(told.detail["note"]).startswith("few; above its baseline")


def test_all_pairs_told_apart_by_chance_did_not_look() -> None:
    """An interval without width at an area of 1 is a proof only where chance is not told."""
    apart = measured(1.0, 1.0, 1.0, severity="some", chance=0.14)
    (few,) = corrected([apart])
    assert few.severity == "none" and few.state == "not looked"
    (sure,) = corrected([measured(1.0, 1.0, 1.0, severity="some", chance=1e-9)])
    assert sure.state == "found"
    (even,) = corrected([measured(1.0, 1.0, 1.0, severity="some", chance=0.5)])
    assert even.detectable is not None and math.isfinite(even.detectable)


def test_a_notebook_shows_the_interval_why_nothing_was_looked_for_and_the_simulation() -> None:
    """One sentence; text is escaped."""
    found = Finding("pool", "Which?", "members <found>", 3, of=4, low=2, high=3.5, baseline=1)
    html = found._repr_html_()
    assert "<b>3</b> of 4, 95 % interval 2 to 3.5, without the release 1" in html
    assert "members &lt;found&gt;" in html and "(simulation: scored with the true records)" in html
    blind = replace(found, simulation=False, partial="too <large>")
    assert "not looked: too &lt;large&gt;)" in blind._repr_html_()
    assert "simulation" not in blind._repr_html_()
