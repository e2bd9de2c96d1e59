"""Which node speaks for which client: found by asking, lost when silent, never two for one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path

import pytest
from engine_trials import Hospital, federation, gate_of, question
from ledger_trials import QUERY

from privfed.engines.batches import Batch, Replies, first_that_fit
from privfed.engines.directory import Directory
from privfed.engines.owner_side import OwnerSide
from privfed.engines.relay import Relay, relay
from privfed.engines.remote import RemoteDisclosure
from privfed.errors import InputError, NobodyAnswered
from privfed.exchange.channel import RetryLimits
from privfed.questions import wire


class Nodes:
    """An engine of this process, whose nodes come and go."""

    def __init__(self, folder: Path, **names: str) -> None:
        self.up = {
            node: OwnerSide(gate_of(Hospital(folder / node, name))) for node, name in names.items()
        }
        self.down: set[str] = set()
        self.messages: list[tuple[str, bytes]] = []

    def nodes(self) -> list[str]:
        """Those that are known to the engine, silent ones included."""
        return list(self.up)

    def send(self, batches: Mapping[str, bytes], seconds: float) -> Iterable[tuple[str, bytes]]:
        """Deliver at once."""
        self.messages += batches.items()
        there = [node for node in batches if node not in self.down]
        return [(node, self.up[node].answer(batches[node], "server")) for node in there]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """With a folder for each node."""
    for node in "xyz":
        (tmp_path / node).mkdir()
    return tmp_path


def asking(nodes: Nodes, *clients: str, deadline: float = 2.0) -> RemoteDisclosure:
    """A federation of some clients on those nodes."""
    found = Directory(clients, nodes=nodes.nodes, send=nodes.send)
    hospitals = [Hospital(Path(), client) for client in clients]
    return federation(*hospitals, carry=found, patience=RetryLimits(deadline, 0.01, 0.05))


def test_each_client_is_asked_at_its_own_node_and_nobody_else_is(folder: Path) -> None:
    """A node of another name is greeted, and never sees a question."""
    nodes = Nodes(folder, x="north", y="stranger", z="south")
    told = asking(nodes, "north", "south").ask(QUERY).only.releases
    assert list(told) == ["north", "south"]
    asked = {node for node, data in nodes.messages if wire.decode(data, Batch).messages}
    assert asked == {"x", "z"}


def test_a_client_that_comes_back_at_another_node_is_found(folder: Path) -> None:
    """After it was silent once, the nodes are asked anew."""
    nodes = Nodes(folder, x="north", y="south")
    federated = asking(nodes, "north", "south")
    federated.ask(QUERY)
    nodes.down = {"x"}
    nodes.up["z"] = nodes.up["x"]
    assert list(federated.ask(QUERY).only.releases) == ["north", "south"]


def test_a_message_that_a_killed_node_took_is_sent_again_long_before_the_deadline(
    folder: Path,
) -> None:
    """Such an engine says nothing of it: the first try waits for as long as a message may be lost, the next twice that."""
    nodes, waited = Nodes(folder, x="north"), list[float]()

    def send(batches: Mapping[str, bytes], seconds: float) -> Iterable[tuple[str, bytes]]:
        asked = [data for data in batches.values() if wire.decode(data, Batch).messages]
        waited.extend(seconds for _ in asked)
        return [] if asked and len(waited) < 3 else nodes.send(batches, seconds)

    found = Directory(["north"], nodes=nodes.nodes, send=send)
    found.lost = 60.0
    patience = RetryLimits(3600.0, 0.01, 0.01)
    federated = federation(Hospital(Path(), "north"), carry=found, patience=patience)
    assert federated.ask(QUERY).only.releases
    assert waited == [60.0, 120.0, 240.0]


def test_a_late_reply_takes_no_other_s_place(folder: Path) -> None:
    """What a node says again of earlier batches, its greeting too, is no answer to this one, and delays none."""
    nodes, said = Nodes(folder, x="north"), list[tuple[str, bytes]]()

    def send(batches: Mapping[str, bytes], seconds: float) -> Iterable[tuple[str, bytes]]:
        said[:0] = nodes.send(batches, seconds)
        return list(said)

    heard = list[str]()
    found = Directory(["north"], nodes=nodes.nodes, send=send)
    federated = federation(
        Hospital(Path(), "north"), carry=found, patience=RetryLimits(5.0, 0.01, 0.05)
    )
    found.heard = heard.append
    for number in range(3):
        assert federated.ask(question(number)).only.releases
    assert len(nodes.messages) == 4 and heard == ["north"] * 3


def test_two_nodes_that_speak_for_one_client_end_the_study(folder: Path) -> None:
    """Which of them is the owner's, nobody here can tell."""
    nodes = Nodes(folder, x="north", y="north")
    with pytest.raises(InputError, match="two nodes speak for client 'north'"):
        asking(nodes, "north").ask(QUERY)


def test_nodes_that_say_nothing_sensible_are_nobody(folder: Path) -> None:
    """Garbage and silence both leave the client absent."""
    nodes = Nodes(folder, x="north")
    found = Directory(["north"], nodes=lambda: ["x"], send=lambda b, s: [("x", b"\xff")])
    federated = federation(
        Hospital(Path(), "north"), carry=found, patience=RetryLimits(0.2, 0.01, 0.05)
    )
    with pytest.raises(NobodyAnswered, match="no reply in time"):
        federated.ask(QUERY)
    nodes.down = {"x"}
    with pytest.raises(NobodyAnswered, match="no reply in time"):
        asking(nodes, "north", deadline=0.2).ask(QUERY)


def test_what_fits_goes_together_and_one_always_goes() -> None:
    """The first messages up to a size; a larger one goes alone."""
    sizes = [3, 3, 4, 1]
    messages = [bytes(size) for size in sizes]
    assert [len(first_that_fit(messages, size)) for size in (1, 3, 6, 10, 99)] == [1, 1, 2, 3, 4]


def test_a_relay_carries_for_another_process(folder: Path) -> None:
    """Errands go to the engine's thread and their replies come back, until there is no more."""
    from threading import Thread

    nodes = Nodes(folder, x="north")
    found = Directory(["north"], nodes=nodes.nodes, send=nodes.send)
    engine = Thread(target=partial(relay, folder / "socket", found))
    engine.start()
    while not (folder / "socket").is_socket():
        pass
    through = Relay(folder / "socket")
    federated = federation(Hospital(Path(), "north"), carry=through)
    assert federated.ask(QUERY).only.releases
    through.end()
    engine.join(10)
    assert not engine.is_alive()
    hello = {"north": wire.encode(Batch("again", ""))}
    assert through(hello, 0.1) == {}
    assert wire.decode(nodes.up["x"].answer(hello["north"], "server"), Replies).client == "north"
