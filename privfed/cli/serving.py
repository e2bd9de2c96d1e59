"""Commands of federations of several processes: a data owner's side, and engines."""

from __future__ import annotations

import logging
import shlex
import signal
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from privfed.cli.common import FINE, PATH
from privfed.errors import DataWarning, InputError, Note, number_of

if TYPE_CHECKING:
    from privfed.engines.owner_file import OwnerFile

new_folder = click.argument("folder", type=PATH)
out_option = click.option("--out", type=PATH, default=Path("out"), help="Output folder.")
which_option = click.option(
    "--policy", default="", help="One of the study's policies; default: first."
)


@click.command("serve-client")
@click.argument("owner", required=False, type=PATH)
@click.option("--data", help="The table, a .csv file.")
@click.option("--schema", help="The public data dictionary, a .toml file.")
@click.option("--policy", help="The owner's policy, a .toml file.")
@click.option("--ledger", help="The ledger, a .db file.")
@click.option("--client", help="The owner's public name; default: the data file's.")
@click.option("--socket", help="Socket of the server's engine; default: in the ledger's folder.")
@click.option("--study", help="The study's name in the ledger.")
@click.option("--individual", help="The column that names the person behind each record.")
@click.option("--signing-key", help="File of the key that signs the ledger's heads.")
@click.option("--amend", is_flag=True, help="Put this policy in force in place of another one.")
@click.option("--yes", is_flag=True, help="Serve records that look wrong under the schema unasked.")
@click.option("--check", is_flag=True, help="Check all that serving needs, write nothing, and end.")
@click.option("--metrics", type=int, help="Port on this machine alone, for /health and /metrics.")
@click.option("--log", help="File of the log, kept below 100 MB; default: standard error.")
def serve_client(owner: Path | None, amend: bool, yes: bool, check: bool, **given: Any) -> int:
    """Serve a data owner's records through its gate. It runs until stopped.

    OWNER is a .toml file with all of the options; options on the command line replace its own. Paths start
    in the folder of the file, those of options in the current one. When it is told to stop, it answers what
    has arrived first.
    """
    from privfed.study.owner_service import OwnerService

    settings = owner_of(owner, {key: value for key, value in given.items() if value is not None})
    confirm = partial(_confirm, settings.client, yes)
    if check:
        policy, _, records, _ = settings.checked(amend=amend, confirm=confirm)
        settings.check_masks(policy)
        count = number_of(len(records), "record")
        click.echo(f"{settings.client}: ready to serve {count}; nothing was written")
        _warn_sealed(settings)
        return FINE
    with warnings.catch_warnings(record=True) as notes:
        side = settings.opened(amend=amend, confirm=confirm)
    with _logging(settings.log_file), stopped() as stop, OwnerService(side, settings) as service:
        head, served = side.gate.ledger.head, ", ".join(service.served)
        click.echo(f"{settings.client}: ledger at {head}; answering {served}")
        for note in notes:  # not on standard error, which has one JSON object per line
            if issubclass(note.category, Note | DataWarning):
                click.echo(f"{settings.client}: note: {' '.join(str(note.message).split())}")
        _warn_sealed(settings)
        stop.wait()
    click.echo(f"{settings.client}: closed")
    return FINE


def _warn_sealed(settings: OwnerFile) -> None:
    if settings.sealed:
        click.echo(
            f"{settings.client}: study {settings.study!r} is sealed: no new query of it is answered"
        )


def _confirm(client: str, yes: bool, doubts: list[str]) -> None:
    """Show the owner alone the doubts about her table; InputError unless she agrees."""
    for doubt in doubts:
        click.echo(f"{client}: {doubt}", err=True)
    if yes:
        return
    if not (sys.stdin.isatty() and click.confirm("Serve these records all the same?", err=True)):
        raise InputError(
            f"{client}: not served, and nothing was charged; correct the table, or agree on bounds from public "
            "knowledge (not from these counts, which describe the records), or give --yes"
        )


#: Options of `serve-client` that are paths: those on the command line start in the current folder.
PATHS = {"data", "schema", "policy", "ledger", "socket", "signing_key", "log"}


def owner_of(path: Path | None, given: dict[str, Any]) -> OwnerFile:
    """Read an owner's file with some keys replaced, or build one from options, whose paths start in the current folder."""
    from privfed.engines.owner_file import OwnerFile
    from privfed.ledger.secret import own_beside

    if path is not None:
        given |= {key: str(Path(given[key]).absolute()) for key in PATHS & given.keys()}
    socket = given.pop("socket", None)
    if socket is not None:
        given["sockets"] = {"server": socket}
    if path is not None:
        return OwnerFile.from_toml(path, given)
    if "data" not in given or "ledger" not in given:
        raise InputError("give an owner's .toml file, or --data, --schema, --policy and --ledger")
    given.setdefault("client", Path(given["data"]).stem)
    given.setdefault("sockets", {"server": str(own_beside(Path(given["ledger"]), ".sock"))})
    return OwnerFile.from_dict(given, "the command")


@contextmanager
def _logging(path: Path | None) -> Iterator[None]:
    """Write the owner's log to a file, or standard error."""
    from privfed.engines.owner_log import handler

    log, writing = logging.getLogger("privfed.owner"), handler(path)
    log.addHandler(writing)
    previous = log.level
    log.setLevel(logging.INFO)
    try:
        yield
    finally:
        log.setLevel(previous)
        log.removeHandler(writing)
        writing.close()


@contextmanager
def stopped() -> Iterator[threading.Event]:
    """Yield an event that SIGINT or SIGTERM sets."""
    stop = threading.Event()
    kinds = (signal.SIGINT, signal.SIGTERM)
    previous = [signal.signal(kind, lambda *_: stop.set()) for kind in kinds]
    try:
        yield stop
    finally:
        for kind, handler in zip(kinds, previous, strict=True):
            signal.signal(kind, handler)


@click.group()
def owner() -> None:
    """Prepare a data owner's side."""


@owner.command("new")
@new_folder
@click.argument("study", type=PATH)
@click.option("--client", required=True, help="The owner's name, one of the study's clients.")
@which_option
def new_owner(folder: Path, study: Path, client: str, policy: str) -> int:
    """Write an owner's files for STUDY into FOLDER. They are schema, policy, key and owner.toml."""
    from privfed.engines.owner_file import MASKING_KEY
    from privfed.study import Study
    from privfed.study.deployed import Deployment

    Deployment.of(Study.from_toml(study), folder, policy).propose(folder, client)
    masked = (folder / MASKING_KEY).exists()
    click.echo(
        f"wrote {folder / 'owner.toml'}; put the records there as records.csv, read policy.toml, and "
        f"give owner.pub to the server as {client}.pub"
        + (f", and owner.mask to it and all owners as {client}.mask" if masked else "")
    )
    if masked:
        click.echo(
            f"then, with all owners' .mask files: privfed owner masks {shlex.quote(str(folder))} KEYS"
        )
    return FINE


@owner.command("join")
@new_folder
@click.argument("study", type=PATH)
@which_option
@click.option("--yes", is_flag=True, help="Agree unasked.")
def join_study(folder: Path, study: Path, policy: str, yes: bool) -> int:
    """Let the owner in FOLDER join a further STUDY. It keeps the ledger, key and budget that are
    hers.

    Shows its price and what it asks before anything is written; once agreed, its share is reserved.
    """
    from privfed.study import Study
    from privfed.study.deployed import Deployment
    from privfed.study.joining import Joining

    joining = Joining.of(folder, Deployment.of(Study.from_toml(study), folder, policy))
    click.echo(joining.summary())
    if not yes and not (sys.stdin.isatty() and click.confirm("Do you agree?")):
        raise InputError(
            "not agreed, and nothing was written; give --yes to agree without a terminal"
        )
    joined = joining.agree().folder
    click.echo(f"wrote {joined / 'owner.toml'}")
    if joining.price.policy.masked is not None:
        click.echo(
            f"then, with all owners' .mask files: privfed owner masks {shlex.quote(str(joined))} KEYS"
        )
    click.echo(f"serve it: privfed serve-client {shlex.quote(str(joined / 'owner.toml'))}")
    return FINE


@owner.command("masks")
@new_folder
@click.argument("keys", type=PATH)
def agree_on_masks(folder: Path, keys: Path) -> int:
    """Write all owners' masking keys into a policy. KEYS are the files NAME.mask, FOLDER has the policy."""
    from privfed.engines.owner_file import OwnerFile

    owner = OwnerFile.from_toml(folder / "owner.toml")
    for name, key in owner.agree_on_masks(keys).items():
        click.echo(f"{name:<24} {' '.join(key[i : i + 8] for i in range(0, 64, 8))}")
    click.echo(
        "Compare these with the owners by telephone or in person, not through the server: anyone who exchanged "
        f"all keys but {owner.client}'s could open {owner.client}'s share, as if all others colluded."
    )
    return FINE


@click.group()
def flower() -> None:
    """Carry out studies on Flower."""


@flower.command("new")
@new_folder
@click.option("--study", type=PATH, help="The study file.")
@click.option("--out", type=PATH, help="Output folder.")
def new_flower(folder: Path, study: Path | None, out: Path | None) -> int:
    """Write an app for `flwr run` into FOLDER."""
    from privfed.study.on_flower import write_skeleton

    write_skeleton(folder, study, out)
    click.echo(
        f"wrote {folder}; run it with: flwr run {shlex.quote(str(folder))} SUPERLINK --stream"
    )
    return FINE


@click.group()
def flare() -> None:
    """Carry out studies on NVIDIA FLARE."""


@flare.command("new")
@new_folder
@click.option("--study", type=PATH, required=True, help="The study file.")
@out_option
@which_option
def new_flare(folder: Path, study: Path, out: Path, policy: str) -> int:
    """Write a job for `nvflare job submit -j` into FOLDER."""
    try:
        from privfed.study.on_flare import write_job
    except ImportError:
        raise InputError("FLARE is not installed here; install privfed[flare]") from None

    write_job(folder, study, out, policy)
    click.echo(f"wrote {folder}; submit it with: nvflare job submit -j {shlex.quote(str(folder))}")
    return FINE
