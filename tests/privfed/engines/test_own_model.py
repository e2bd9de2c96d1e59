"""The example of scikit-learn's models behind gates: trained, attacked and audited on one page."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

EXAMPLE = Path(__file__).parents[3] / "docs/examples/own_model.py"


@pytest.fixture(scope="module")
def example() -> dict[str, Any]:
    """The example's names; nothing is trained yet."""
    pytest.importorskip("flwr")
    return runpy.run_path(str(EXAMPLE))


def stacks(example: dict[str, Any]) -> list[str]:
    """The stacks that are installed."""
    return list(example["STACKS"])


def test_gated_models_are_attacked_and_audited_on_a_page(example: dict[str, Any]) -> None:
    """Both models on each stack; nothing convicts the gate, and the page tells what the attack found."""
    for stack in stacks(example):
        verdict = example["page"](stack, 8)
        named = [found.attack for found in verdict.findings]
        assert named[:2] == ["membership, logistic", "audit logistic"]
        assert named[2:4] == ["membership, network", "audit network"]
        assert not verdict.convicting
        assert "membership, network" in example["guard_page"](verdict.to_dict())


def test_without_a_gate_the_attack_names_every_clinic(example: dict[str, Any]) -> None:
    """So the attack sees what there is to see."""
    verdict = example["page"]("flower", 12, gated=False)
    areas = [found.value for found in verdict.findings if found.attack.startswith("membership")]
    assert areas == [1.0, 1.0]


def test_each_round_is_charged_and_none_leaves_beyond_them(example: dict[str, Any]) -> None:
    """On each stack, of either model's shapes."""
    for stack in stacks(example):
        for make in (example["logistic"], example["network"]):
            gate = example["UpdateGate"](
                "a", example["POLICY"], example["Ledger"](), clip=example["CLIP"]
            )
            ask = example["STACKS"][stack](make, 1, present=True, gate=gate)
            sent = example["weights"](make())
            told = [ask(sent, number) for number in range(1, example["ROUNDS"] + 2)]
            assert told.pop() is None
            assert [[np.shape(part) for part in each] for each in told] == [
                [np.shape(part) for part in sent]
            ] * example["ROUNDS"]
            spent = gate.gate.ledger.spent(gate.gate.accountant)
            assert spent.total[0] == example["ROUNDS"] * example["RHO"]
