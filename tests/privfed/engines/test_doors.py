"""Doors: sockets as files, wherever they lie, closed to others, answered in turn and together."""

from __future__ import annotations

import socket
import struct
from pathlib import Path
from threading import Barrier

import pytest
from engine_trials import eight

from privfed.engines.doors import DESCRIPTORS, Door, Doors, knock
from privfed.errors import InputError
from privfed.exchange.channel import ChannelError


def echo(data: bytes) -> bytes:
    """Say what was said, backwards."""
    return data[::-1]


@pytest.mark.skipif(not DESCRIPTORS.is_dir(), reason="this system takes short addresses alone")
def test_a_door_may_lie_deep(tmp_path: Path) -> None:
    """Deeper than a socket's address may be long."""
    folder = tmp_path / ("d" * 120) / ("e" * 120)
    folder.mkdir(parents=True)
    with Door(folder / "door", echo):
        assert knock(folder / "door", b"abc") == b"cba"
        with pytest.raises(InputError, match="another process answers"):
            Door(folder / "door", echo)
    assert not (folder / "door").exists()


def test_a_door_is_for_its_owner_and_group(tmp_path: Path) -> None:
    """Nobody else may knock, whatever the folder allows."""
    with Door(tmp_path / "door", echo):
        assert (tmp_path / "door").stat().st_mode & 0o777 == 0o660


def test_a_door_that_a_dead_process_left_is_replaced(tmp_path: Path) -> None:
    """One that is no door is left alone."""
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(tmp_path / "door"))
    with Door(tmp_path / "door", echo):
        assert knock(tmp_path / "door", b"ab") == b"ba"
    (tmp_path / "file").write_text("records")
    with pytest.raises(InputError, match="name another file"):
        Door(tmp_path / "file", echo)
    assert (tmp_path / "file").read_text() == "records"


def test_many_are_answered_at_once_and_large_messages_whole(tmp_path: Path) -> None:
    """Eight that wait for each other all get their replies."""
    barrier = Barrier(8)

    def together(data: bytes) -> bytes:
        barrier.wait(30)
        return echo(data)

    with Door(tmp_path / "door", together):
        said = eight(lambda number: knock(tmp_path / "door", bytes([number]) * 2**20))
    assert said == [bytes([number]) * 2**20 for number in range(8)]


@pytest.mark.parametrize("sent", [b"", b"\x00" * 5, struct.pack(">Q", 2**40), struct.pack(">Q", 9)])
def test_a_visitor_that_breaks_off_gets_nothing(tmp_path: Path, sent: bytes) -> None:
    """Neither does one that announces more than anybody may say; the next one is answered."""
    with Door(tmp_path / "door", echo):
        with socket.socket(socket.AF_UNIX) as link:
            link.connect(str(tmp_path / "door"))
            link.sendall(sent)
            link.shutdown(socket.SHUT_WR)
            assert link.recv(1) == b""
        assert knock(tmp_path / "door", b"ab") == b"ba"


def test_an_answer_that_fails_is_silence(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """No text of it comes back, or is printed."""

    def fail(data: bytes) -> bytes:
        raise RuntimeError("SECRET=42")

    with Door(tmp_path / "door", fail):
        with pytest.raises(ChannelError, match="nobody answers"):
            knock(tmp_path / "door", b"ab", seconds=5)
        assert (
            Doors({"north": tmp_path / "door", "south": tmp_path / "no"})(
                {"north": b"a", "south": b"b"}, 5
            )
            == {}
        )
    printed = capfd.readouterr()
    assert "SECRET" not in printed.out + printed.err
