"""A network that Opacus trains with per-record clipping, behind a Flower node's gate."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
opacus = pytest.importorskip("opacus")
pytest.importorskip("flwr")

from flower_grid import become_a_task
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from privfed.engines.flower import guard
from privfed.engines.updates import UpdateGate
from privfed.ledger import Ledger
from privfed.privacy.accountant import Budget
from privfed.privacy.loss import Loss, basis_in_words
from privfed.privacy.policy import Guard, Policy

ROUNDS, DELTA = 4, 1e-6


def network() -> Any:
    """One hidden layer."""
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))


def weights(model: Any) -> list[np.ndarray]:
    """Its arrays."""
    return [each.detach().numpy().copy() for each in model.parameters()]


def trained(sent: list[np.ndarray], engine: Any) -> list[np.ndarray]:
    """The weights after a pass over a hospital's records, as Opacus takes and clips them."""
    model = network()
    with torch.no_grad():
        for own, new in zip(model.parameters(), sent, strict=True):
            own.copy_(torch.tensor(new))
    x = torch.tensor(np.random.default_rng(1).normal(size=(600, 8)), dtype=torch.float32)
    data = torch.utils.data.TensorDataset(x, (x[:, :1] > x[:, 1:2]).float())
    private, optimizer, batches = engine.make_private(
        module=model.train(),
        optimizer=torch.optim.SGD(model.parameters(), lr=0.5),
        data_loader=torch.utils.data.DataLoader(data, batch_size=30),
        noise_multiplier=2.5,
        max_grad_norm=1.0,
    )
    for records, target in batches:
        optimizer.zero_grad()
        torch.nn.functional.binary_cross_entropy_with_logits(private(records), target).backward()
        optimizer.step()
    return weights(model)


def asked(app: ClientApp, arrays: list[np.ndarray], number: int) -> list[np.ndarray]:
    """What leaves the node of a round."""
    record = ArrayRecord({str(at): Array(each) for at, each in enumerate(arrays)})
    told = {"arrays": record, "config": ConfigRecord({"server-round": number})}
    reply = app(Message(RecordDict(told), 1, "train"), Context(1, 1, {}, RecordDict(), {}))
    left: list[np.ndarray] = reply.content["arrays"].to_numpy_ndarrays()
    return left


@pytest.mark.filterwarnings("ignore")
def test_a_round_costs_what_opacus_says_and_four_little_more_than_it_says_of_them() -> None:
    """Its epsilon is the ledger's, on its word; the settings that it counted are what the guard was given."""
    become_a_task()
    one, seen = opacus.PrivacyEngine(accountant="prv"), list[list[np.ndarray]]()
    trained(weights(network()), one)
    ((noise, rate, steps),) = one.accountant.history
    says = one.get_epsilon(DELTA)
    settings = {"noise": str(noise), "rate": repr(rate), "steps": steps, "delta": "1e-6"}
    policy = Policy(
        {"model.update": (Guard.of("training", spend=repr(float(says)), **settings),)},
        accountant="approximate",
        budget=Budget.of("4", "1e-5"),
    )
    gate, engine = (
        UpdateGate("a", policy, Ledger(), clip=50.0),
        opacus.PrivacyEngine(accountant="rdp"),
    )
    app = ClientApp(mods=[guard(gate)])
    app.train()(_training(engine, seen))
    arrays = weights(network())
    for number in range(1, ROUNDS + 1):
        left = asked(app, arrays, number)
        for sent, made in zip(left, seen[-1], strict=True):
            np.testing.assert_allclose(sent, made, atol=1e-5)
        arrays = left
    rows = [Loss.from_dict(e.body["loss"]) for e in gate.gate.ledger.entries(events=("reserved",))]
    assert len(rows) == ROUNDS
    assert all(math.isclose(float(row.epsilon or 0), says) for row in rows)
    assert {row.delta for row in rows} == {Fraction("1e-6")}
    spent = gate.gate.ledger.spent(gate.gate.accountant)
    assert basis_in_words(spent.basis) == "on the word of training, not derived here"
    together = gate.gate.accountant.guarantee(spent.total, Fraction("1e-5"))[0]
    assert engine.get_epsilon(1e-5) < float(together) < 1.6 * engine.get_epsilon(1e-5)


def _training(engine: Any, seen: list[list[np.ndarray]]) -> Callable[[Message, Context], Message]:
    def train(message: Message, context: Context) -> Message:
        seen.append(trained(message.content["arrays"].to_numpy_ndarrays(), engine))
        made = ArrayRecord({str(at): Array(each) for at, each in enumerate(seen[-1])})
        return Message(RecordDict({"arrays": made}), reply_to=message)

    return train
