"""Bent bytes at every door between owners and servers, and a crowd of owners: nothing raises, nothing is lost."""

from __future__ import annotations

import gc
import tracemalloc
from importlib.util import find_spec
from pathlib import Path

import pytest
from engine_fuzz import (
    ADAPTERS,
    at_small_doors,
    at_the_engines,
    at_the_owner,
    at_the_server,
    at_the_socket,
)
from engine_load import load
from engine_trials import Hospital, batch_of, gate_of
from hypothesis import given
from hypothesis import strategies as st

from privfed.engines.batches import Replies
from privfed.engines.owner_side import OwnerSide
from privfed.questions import wire


@pytest.mark.parametrize("seed", range(2))
def test_bent_messages_to_an_owner_are_answered_and_never_charged_twice(
    tmp_path: Path, seed: int
) -> None:
    """Sound ones among them are charged once each, by their id; the ledger verifies."""
    found = at_the_owner(tmp_path, 300, seed)
    assert {"release", "refusal", "no reply"} <= set(found) and found["charges"] >= 1


def test_bent_replies_are_never_believed(tmp_path: Path) -> None:
    """A server that knows its owner's key takes the reply that she signed, or none."""
    found = at_the_server(tmp_path, 150)
    assert found["believed"] < 150 and sum(found.values()) - found["believed"] > 0


def test_bent_bytes_at_relays_directories_and_sockets(tmp_path: Path) -> None:
    """A typed error, a closed connection, or a value of the right form."""
    assert set(at_small_doors(1000)) == {"read", "a typed error"}
    assert set(at_the_socket(tmp_path, 100)) == {"answered", "closed"}


@pytest.mark.skipif(not any(map(find_spec, ADAPTERS)), reason="no engine is installed")
def test_whatever_an_engine_s_node_sends_is_bytes_or_silence(tmp_path: Path) -> None:
    """Messages of another make, other values than bytes, errors: none ends a study."""
    assert set(at_the_engines(tmp_path, 200)) == {"read", "silence"}


SIDE: list[OwnerSide] = []


@pytest.fixture(scope="module", autouse=True)
def _side(tmp_path_factory: pytest.TempPathFactory) -> None:
    SIDE.append(OwnerSide(gate_of(Hospital(tmp_path_factory.mktemp("doors")))))


@given(st.binary(max_size=300), st.booleans())
def test_any_bytes_get_replies(data: bytes, inside: bool) -> None:
    """As a batch, or as a message of a sound one."""
    replies = wire.decode(SIDE[0].answer(batch_of(data) if inside else data, "server"), Replies)
    assert replies.client == "north" and len(replies.envelopes) <= 1


def test_a_door_keeps_nothing_of_what_it_could_not_read() -> None:
    """Memory after a thousand megabytes of nonsense is what it was before."""
    nonsense = batch_of(b"\xff" * 2**20)
    SIDE[0].answer(nonsense, "server")
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(50):
            SIDE[0].answer(nonsense, "server")
        gc.collect()
        assert tracemalloc.get_traced_memory()[0] - before < 2**20
    finally:
        tracemalloc.stop()


def test_many_owners_lose_no_charge(tmp_path: Path) -> None:
    """Every owner a process, every round every owner; `python benchmarks/engine_load.py` for fifty."""
    seconds, charges = load(tmp_path, owners=5, rounds=6)
    assert len(seconds) == 6 and charges == 30
