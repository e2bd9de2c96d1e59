"""Every installed attack keeps the contract of its base class."""

from __future__ import annotations

import pytest

from privfed import plugins
from privfed.attacks.base import Attack
from privfed.attacks.finding import Finding
from privfed.exchange.transcript import Transcript


@pytest.mark.parametrize("name", ["verbatim", "recovery", "subtraction", "membership"])
def test_contract(name: str, diabetes, findings) -> None:  # type: ignore[no-untyped-def]
    """Named as installed, silent on an empty transcript, findings of its own name on a real one."""
    attack = plugins.load("attacks", name)()
    assert isinstance(attack, Attack)
    assert attack.name == name and attack.question.endswith("?")
    assert attack.run(Transcript()) == [] and not attack.attackable(Transcript())
    policy = "private" if name == "membership" else "published"
    assert attack.attackable(diabetes(policy).transcript)
    found = findings(policy, name)
    assert found
    for finding in found:
        assert finding.attack == name and finding.simulation
        assert finding.baseline is not None and finding.releases
        assert Finding.from_dict(finding.to_dict()) == finding


def test_runs_are_repeatable(diabetes, findings) -> None:  # type: ignore[no-untyped-def]
    """The same transcript gives the same findings."""
    trained = diabetes("strict")
    for name in ("verbatim", "recovery", "subtraction"):
        attack = plugins.load("attacks", name)()
        again = attack.run(trained.transcript, trained.truth, trained.schema)
        assert again == findings("strict", name)
