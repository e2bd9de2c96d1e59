"""Audits of a whole gate by canaries: honest gates are acquitted, faulty ones convicted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from privfed.audits.gates import audit_gate
from privfed.errors import InputError
from privfed.ledger import Ledger
from privfed.owner.gate import Gate
from privfed.privacy.accountant import Budget
from privfed.privacy.mechanism import Mechanism
from privfed.privacy.noise import Noise, SecureNoise, TestNoise
from privfed.privacy.policy import Guard, Policy
from privfed.tables.records import Records
from privfed.testing.faulty import AnewGate, LaxCapGate, ThinnerGaussian
from privfed.testing.queries import Histogram, LevelSums

#: One audit in a thousand may convict an innocent gate.
ALPHA = 1e-3


def policy(
    unit: str = "individual", mechanism: str | Mechanism = "laplace", **terms: Any
) -> Policy:
    """Counts under epsilon 1, or rho 1/8 at delta 1e-5."""
    guard = Guard.of(mechanism, spend="1" if mechanism == "laplace" else "0.125")
    pure = mechanism == "laplace"
    return Policy(
        {Histogram.kind: (guard,)},
        unit=unit,  # type: ignore[arg-type]
        cap=2 if unit == "individual" else None,
        accountant="pure" if pure else "zcdp",
        budget=Budget.of("20", "0" if pure else "1e-5"),
        **terms,
    )


def seeded(seed: int) -> Callable[[int], Noise]:
    """Noise of its own for each client, from another stream than the coins."""
    return lambda client: TestNoise(1000 * seed + client)


def made(kind: type[Gate]) -> Callable[[str, Records, Policy, Noise], Gate]:
    """A gate of a kind, its ledger in memory."""
    return lambda owner, records, adopted, noise: kind(
        owner, records, adopted, Ledger(None, owner), noise=noise, queries=(Histogram,)
    )


@pytest.mark.parametrize(
    "adopted",
    [
        policy(),
        policy("record"),
        policy(relation="replace-one"),
        policy(mechanism="gaussian"),
    ],
    ids=["individual", "record", "replace-one", "gaussian"],
)
def test_honest_gates_are_acquitted(adopted: Policy) -> None:
    """Whatever the unit, the relation and the noise; and much of the charge is proven."""
    for seed in range(5):
        found = audit_gate(adopted, noise=seeded(seed), alpha=ALPHA, seed=seed)
        assert found.severity == "none"
        assert found.of is not None and 0.3 * found.of < found.value <= found.of


def test_secure_noise_is_acquitted() -> None:
    """The owner's own source, with 500 canaries."""
    found = audit_gate(policy(), canaries=500, noise=lambda client: SecureNoise(), alpha=ALPHA)
    assert found.severity == "none" and found.value > 0.3


@pytest.mark.parametrize(
    ("settings", "least"),
    [
        ({"gate": made(LaxCapGate)}, 1.2),
        ({"gate": made(AnewGate)}, 1.1),
        ({"clients": 2}, 1.1),
        ({"records": 5, "policy": policy("record")}, 3.5),
        ({"policy": policy(mechanism=ThinnerGaussian(1.5))}, 2.2),
    ],
    ids=["cap off by one", "two answers", "budget by client", "records of one person", "mu x 1.5"],
)
def test_faulty_gates_are_convicted(settings: dict[str, Any], least: float) -> None:
    """The power twin, five times of five from 4,000 canaries."""
    given = {"policy": policy(), **settings}
    for seed in range(5):
        found = audit_gate(noise=seeded(seed), alpha=ALPHA, seed=seed, **given)
        assert found.severity == "breach"
        assert found.value > least


def test_records_beyond_the_cap_are_held_back() -> None:
    """A person with nine records adds no more than one with two."""
    few, many = (audit_gate(policy(), records=number, noise=seeded(3), seed=3) for number in (2, 9))
    assert few.value == many.value


def test_nonsense_is_refused() -> None:
    """Clients as canaries, kinds that the policy does not guard, gates that refuse."""
    guarded = {LevelSums.kind: (Guard.of("refuse"),)}
    calls: list[Callable[[], object]] = [
        lambda: audit_gate(Policy({}, unit="client", cap=3)),
        lambda: audit_gate(policy(), canaries=0),
        lambda: audit_gate(policy(), "no such kind"),
        lambda: audit_gate(Policy(guarded), LevelSums.kind),
    ]
    for call in calls:
        with pytest.raises(InputError):
            call()
