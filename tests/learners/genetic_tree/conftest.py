"""Small federations: clients of one kind, whose target follows two features and a little chance."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest

from privfed import LocalDisclosure
from privfed.exchange.ungated import UngatedDisclosure
from privfed.privacy.policy import Policy
from privfed.tables.schema import Column, Schema

FEATURES = tuple(Column(name, "number", -4, 4) for name in ("a", "b", "c"))
CLASSES = Schema(FEATURES, Column("y", "category", categories=("no", "yes")))
NUMBERS = Schema(FEATURES, Column("y", "number", -8, 8))
MakeTable = Callable[..., pd.DataFrame]
MakeUngated = Callable[..., UngatedDisclosure]
MakeGated = Callable[..., LocalDisclosure]


def _table(records: int = 240, clients: int = 3, classify: bool = True) -> pd.DataFrame:
    rng = np.random.default_rng(records + clients)
    frame = pd.DataFrame(rng.normal(size=(records, 3)), columns=list("abc"))
    signal = frame["a"] * 2 + (frame["b"] > 0) * frame["c"] * 2 + rng.normal(size=records) / 4
    frame["y"] = np.where(signal > 0, "yes", "no") if classify else signal
    frame["client"] = [f"c{number % clients}" for number in range(records)]
    return frame


@pytest.fixture
def table() -> MakeTable:
    """Makes a table with a column of clients."""
    return _table


@pytest.fixture
def ungated() -> MakeUngated:
    """Makes a federation without gates."""

    def make(records: int = 240, clients: int = 3, classify: bool = True) -> UngatedDisclosure:
        schema = CLASSES if classify else NUMBERS
        return UngatedDisclosure.from_frame(_table(records, clients, classify), schema, "client")

    return make


@pytest.fixture
def gated() -> MakeGated:
    """Makes a federation with gates under a policy."""

    def make(
        policy: Policy, records: int = 240, clients: int = 3, classify: bool = True
    ) -> LocalDisclosure:
        schema = CLASSES if classify else NUMBERS
        frame = _table(records, clients, classify)
        return LocalDisclosure.from_frame(
            frame, target="y", client="client", schema=schema, policy=policy, seed=3
        )

    return make
