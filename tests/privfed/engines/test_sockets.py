"""Sockets: files at any depth, closed to others, answering one or many clients."""

from __future__ import annotations

import socket
import struct
from contextlib import ExitStack
from pathlib import Path
from threading import Barrier, Event, Thread, active_count
from time import sleep

import pytest
from engine_trials import eight

from privfed.engines.sockets import (
    DESCRIPTORS,
    MAX_CONNECTIONS,
    SocketCarrier,
    SocketServer,
    call_socket,
)
from privfed.errors import ChannelError, InputError


def echo(data: bytes) -> bytes:
    """Return the message reversed."""
    return data[::-1]


@pytest.mark.skipif(not DESCRIPTORS.is_dir(), reason="this system takes short addresses alone")
def test_a_socket_may_lie_deep(tmp_path: Path) -> None:
    """Deeper than a socket's address may be long."""
    folder = tmp_path / ("d" * 120) / ("e" * 120)
    folder.mkdir(parents=True)
    with SocketServer(folder / "socket", echo):
        assert call_socket(folder / "socket", b"abc") == b"cba"
        with pytest.raises(InputError, match="another process answers"):
            SocketServer(folder / "socket", echo)
    assert not (folder / "socket").exists()


def test_a_socket_is_for_its_owner_and_group(tmp_path: Path) -> None:
    """Others may not use it, whatever the folder allows."""
    with SocketServer(tmp_path / "socket", echo):
        assert (tmp_path / "socket").stat().st_mode & 0o777 == 0o660


def test_a_socket_that_a_dead_process_left_is_replaced(tmp_path: Path) -> None:
    """One that is no socket is left alone."""
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(tmp_path / "socket"))
    with SocketServer(tmp_path / "socket", echo):
        assert call_socket(tmp_path / "socket", b"ab") == b"ba"
    (tmp_path / "file").write_text("records")
    with pytest.raises(InputError, match="name another file"):
        SocketServer(tmp_path / "file", echo)
    assert (tmp_path / "file").read_text() == "records"


def test_many_are_answered_at_once_and_large_messages_whole(tmp_path: Path) -> None:
    """Eight that wait for each other all get their replies."""
    barrier = Barrier(8)

    def together(data: bytes) -> bytes:
        barrier.wait(30)
        return echo(data)

    with SocketServer(tmp_path / "socket", together):
        said = eight(lambda number: call_socket(tmp_path / "socket", bytes([number]) * 2**20))
    assert said == [bytes([number]) * 2**20 for number in range(8)]


@pytest.mark.parametrize("sent", [b"", b"\x00" * 5, struct.pack(">Q", 2**40), struct.pack(">Q", 9)])
def test_a_visitor_that_breaks_off_gets_nothing(tmp_path: Path, sent: bytes) -> None:
    """Neither does one that announces more than anybody may say; the next one is answered."""
    with SocketServer(tmp_path / "socket", echo):
        with socket.socket(socket.AF_UNIX) as link:
            link.connect(str(tmp_path / "socket"))
            link.sendall(sent)
            link.shutdown(socket.SHUT_WR)
            assert link.recv(1) == b""
        assert call_socket(tmp_path / "socket", b"ab") == b"ba"


def test_an_answer_that_fails_is_silence(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """No text of it comes back, or is printed."""

    def fail(data: bytes) -> bytes:
        raise RuntimeError("SECRET=42")

    with SocketServer(tmp_path / "socket", fail):
        with pytest.raises(ChannelError, match="no process answers"):
            call_socket(tmp_path / "socket", b"ab", seconds=5)
        assert (
            SocketCarrier({"north": tmp_path / "socket", "south": tmp_path / "no"})(
                {"north": b"a", "south": b"b"}, 5
            )
            == {}
        )
    printed = capfd.readouterr()
    assert "SECRET" not in printed.out + printed.err


def test_closing_waits_for_what_has_arrived(tmp_path: Path) -> None:
    """A question under way is answered, for its charge stands; one that has not arrived is not begun."""
    begun, go, said = Event(), Event(), list[bytes]()

    def slow(data: bytes) -> bytes:
        begun.set()
        go.wait(30)
        return echo(data)

    server = SocketServer(tmp_path / "socket", slow)
    asking = Thread(target=lambda: said.append(call_socket(tmp_path / "socket", b"ab")))
    asking.start()
    assert begun.wait(30)
    with socket.socket(socket.AF_UNIX) as late:
        late.connect(str(tmp_path / "socket"))
        late.sendall(struct.pack(">Q", 2) + b"a")
        sleep(0.2)
        closing = Thread(target=server.close)
        closing.start()
        closing.join(0.3)
        assert closing.is_alive() and not said
        late.sendall(b"b")
        assert late.recv(1) == b""
    go.set()
    closing.join(30)
    asking.join(30)
    assert said == [b"ba"] and not (tmp_path / "socket").exists()


def test_silent_visitors_hold_a_bounded_number_of_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many connect and say nothing, or a byte at a time; after a while the others are answered."""
    monkeypatch.setattr("privfed.engines.sockets.STALL", 1.0)
    before = active_count()
    with SocketServer(tmp_path / "socket", echo), ExitStack() as opened:
        visitors = [opened.enter_context(socket.socket(socket.AF_UNIX)) for _ in range(100)]
        for visitor in visitors:
            visitor.connect(str(tmp_path / "socket"))
            visitor.sendall(b"\x00")
        for _ in range(8):
            sleep(0.1)
            assert active_count() <= before + MAX_CONNECTIONS + 1
            visitors[0].sendall(b"\x00" if _ < 6 else b"")
        assert call_socket(tmp_path / "socket", b"ab", seconds=30) == b"ba"
