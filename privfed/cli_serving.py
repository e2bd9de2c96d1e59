"""The command line of federations of several processes: a data owner's side, and engines."""

from __future__ import annotations

import logging
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from privfed.errors import InputError

if TYPE_CHECKING:
    from privfed.engines.owner_file import OwnerFile
    from privfed.engines.sockets import SocketServer

path_type = click.Path(path_type=Path)


@click.command("serve-client")
@click.argument("owner", required=False, type=path_type)
@click.option("--data", help="The table, a .csv file.")
@click.option("--schema", help="The public data dictionary, a .toml file.")
@click.option("--policy", help="What the owner allows, a .toml file.")
@click.option("--ledger", help="Where everything is recorded, a .db file.")
@click.option("--client", help="The owner's public name; the data file's unless given.")
@click.option("--socket", help="Where the server's engine knocks; beside the ledger unless given.")
@click.option("--study", help="Names the study in the ledger.")
@click.option("--individual", help="The column that names the person behind each record.")
@click.option("--key", help="The key that signs the ledger's heads, a file.")
@click.option("--amend", is_flag=True, help="Put this policy in force where another one is.")
def serve_client(owner: Path | None, amend: bool, **given: str | None) -> int:
    """Serve a data owner's records through its gate, until stopped.

    OWNER is a .toml file with all of the options; those that are given change it.
    """
    chosen = _owner(owner, {key: value for key, value in given.items() if value is not None})
    with _logging(), _stopped() as stop:
        side = chosen.opened(amend=amend)
        gate = side.gate
        sockets = chosen.open_sockets(side)
        try:
            click.echo(_ready(chosen, sockets, str(gate.ledger.head)))
            stop.wait()
        finally:
            for socket in sockets:
                socket.close()
            gate.ledger.close()
            gate.shelf.close()
    click.echo(f"{chosen.client}: closed")
    return 0


def _owner(path: Path | None, given: dict[str, Any]) -> OwnerFile:
    from privfed.engines.owner_file import OwnerFile

    socket = given.pop("socket", None)
    if socket is not None:
        given["sockets"] = {"server": socket}
    if path is not None:
        return OwnerFile.from_toml(path, given)
    if "data" not in given or "ledger" not in given:
        raise InputError("give an owner's .toml file, or --data, --schema, --policy and --ledger")
    given.setdefault("client", Path(given["data"]).stem)
    given.setdefault("sockets", {"server": str(Path(given["ledger"]).with_suffix(".sock"))})
    return OwnerFile.from_dict(given, "the command")


def _ready(owner: OwnerFile, sockets: Sequence[SocketServer], head: str) -> str:
    told = [f"{name} at {socket.path}" for name, socket in zip(owner.sockets, sockets, strict=True)]
    return f"{owner.client}: ledger at {head}; answering {', '.join(told)}"


@contextmanager
def _logging() -> Iterator[None]:
    """Write the owner's log to standard error, one line an event."""
    log, handler = logging.getLogger("privfed.owner"), logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    log.addHandler(handler)
    before = log.level
    log.setLevel(logging.INFO)
    try:
        yield
    finally:
        log.setLevel(before)
        log.removeHandler(handler)


@contextmanager
def _stopped() -> Iterator[threading.Event]:
    """Give an event that Ctrl-C or a service's stop sets."""
    stop = threading.Event()
    kinds = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(kind, lambda *_: stop.set()) for kind in kinds]
    try:
        yield stop
    finally:
        for kind, handler in zip(kinds, before, strict=True):
            signal.signal(kind, handler)


@click.command()
@click.argument("file", type=path_type)
def key(file: Path) -> int:
    """Make a key that signs a ledger's heads: FILE for its owner alone, FILE.pub for those who check."""
    from privfed.exchange.signing import Signer

    public = Signer.generate(file)
    beside = file.with_name(f"{file.name}.pub")
    beside.write_bytes(public)
    click.echo(f"wrote {file}, which stays with its owner, and {beside}, which goes to the server")
    return 0


@click.group()
def owner() -> None:
    """Prepare a data owner's side."""


@owner.command("new")
@click.argument("folder", type=path_type)
@click.argument("study", type=path_type)
@click.option("--client", required=True, help="The owner's name, one of the study's.")
@click.option("--policy", default="", help="Which of the study's policies; the first unless given.")
def new_owner(folder: Path, study: Path, client: str, policy: str) -> int:
    """Write what an owner needs for STUDY into FOLDER: schema, policy, key and owner.toml."""
    from privfed.study import Study
    from privfed.study.deployed import Deployment

    Deployment.of(Study.from_toml(study), folder, policy).propose(folder, client)
    click.echo(
        f"wrote {folder / 'owner.toml'}; put the records there as records.csv, read policy.toml, and "
        f"give owner.pub to the server as {client}.pub"
    )
    return 0


@click.group()
def flower() -> None:
    """Carry studies out on Flower."""


@flower.command("new")
@click.argument("folder", type=path_type)
@click.option("--study", type=path_type, help="The study file that it carries out.")
@click.option("--out", type=path_type, help="Where the output goes.")
def new_flower(folder: Path, study: Path | None, out: Path | None) -> int:
    """Write an app into FOLDER that `flwr run` takes."""
    from privfed.study.on_flower import write_skeleton

    write_skeleton(folder, study, out)
    click.echo(f"wrote {folder}; run it with: flwr run {folder}")
    return 0


@click.group()
def flare() -> None:
    """Carry studies out on NVIDIA FLARE."""


@flare.command("new")
@click.argument("folder", type=path_type)
@click.option("--study", type=path_type, required=True, help="The study file.")
@click.option("--out", type=path_type, default=Path("out"), help="Where the output goes.")
@click.option("--policy", default="", help="Which of the study's policies; the first unless given.")
def new_flare(folder: Path, study: Path, out: Path, policy: str) -> int:
    """Write a job into FOLDER that `nvflare job submit -j` takes."""
    try:
        from privfed.study.on_flare import write_job
    except ImportError:
        raise InputError("FLARE is not installed here; install privfed[flare]") from None

    write_job(folder, study, out, policy)
    click.echo(f"wrote {folder}; submit it with: nvflare job submit -j {folder}")
    return 0


#: All of them, for the command line.
ALL = (serve_client, key, owner, flower, flare)
