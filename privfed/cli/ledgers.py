"""Commands on ledgers, and the keys that sign their heads."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import click

from privfed.cli.common import (
    BREACH,
    FINE,
    PATH,
    Renamed,
    client_option,
    folder_argument,
    policy_option,
    renamed,
)
from privfed.errors import InputError, LedgerError, unknown

#: What a budget statement may be split by: ``privfed.privacy.limit.ASPECTS``, without its imports.
ASPECTS = ("study", "round", "kind", "client", "principal", "month", "model")


@click.group()
def ledger() -> None:
    """Verify, show or export ledgers, state or set their budgets: a study's, a folder's, or one file's."""


@ledger.command()
@folder_argument
@click.option("--head", multiple=True, help="A published head, seq:hash, of one ledger's file.")
@click.option(
    *("--public-key", "public"),
    cls=Renamed,
    formerly="--public",
    type=PATH,
    help="File of the owner's public key.",
)
def verify(folder: Path, head: tuple[str, ...], public: Path | None) -> int:
    """Recompute all hash chains; exit 1 if one was rewritten or misses a head that the server saw.

    FOLDER is a study's output, a folder of persistent ledgers, or one ledger's file.
    """
    from privfed.study import ledger_commands

    if folder.is_file():
        return _verified_file(folder, head, public)
    if head or public:
        raise InputError("a head belongs to one ledger; give that ledger's file, not a folder")
    broken = [_verified(where, path, seen) for where, path, seen in ledger_commands.awaited(folder)]
    return BREACH if any(broken) else FINE


@ledger.command()
@folder_argument
@policy_option
@client_option
def show(folder: Path, policy: str | None, client: str | None) -> int:
    """Show every row: time, event, kind and cost."""
    from privfed.reports.text import ROWS, row

    for number, (name, owner, one) in enumerate(_ledgers(folder, policy, client)):
        if not number:
            click.echo(ROWS)
        for entry in one.entries():
            click.echo(f"{name:12} {owner:16} {row(entry)}")
    return FINE


@ledger.command()
@folder_argument
@click.option(
    *("--format", "form"),
    type=click.Choice(("jsonl", "csv")),
    default="jsonl",
    show_default=True,
)
@policy_option
@client_option
def export(folder: Path, form: str, policy: str | None, client: str | None) -> int:
    """Write all rows to standard output, payloads included in JSON lines (only their sizes in CSV)."""
    for number, (_, _, one) in enumerate(_ledgers(folder, policy, client)):
        lines = one.export(form)
        if number and form == "csv":
            next(lines)
        for line in lines:
            click.echo(line, nl=False)
    return FINE


@ledger.command()
@folder_argument
@click.option("--by", type=click.Choice(ASPECTS), help="Split by this as well.")
@policy_option
@client_option
def budget(folder: Path, by: str | None, policy: str | None, client: str | None) -> int:
    """Show each client's spending per policy, or what persistent ledgers hold and have remaining."""
    from privfed.reports.text import SPENDING, spending
    from privfed.study import ledger_commands

    if policy is None and ledger_commands.is_plain(folder):
        for path in ledger_commands.chosen(folder, client).values():
            click.echo(ledger_commands.budget(path, by, named=folder.is_dir()))
        click.echo(f"note: {ledger_commands.WHY_SHARES}")
        return FINE
    click.echo(SPENDING)
    for name, owner, one in _ledgers(folder, policy, client):
        for line in one.budget(by):
            click.echo(spending(name, owner, line))
    return FINE


@ledger.command()
@folder_argument
@policy_option
@client_option
def noise(folder: Path, policy: str | None, client: str | None) -> int:
    """Test the noise of every release ever made: is it what was charged? Exit 1 if it is not.

    For the data owners: it reads the sums that each one's gate keeps beside her ledger.
    """
    from privfed.study import ledger_commands

    files = ledger_commands.files(folder, policy, client)
    told = [ledger_commands.noise(*each, len(files)) for each in files.items()]
    for line, _ in told:
        click.echo(line)
    return BREACH if any(convicted for _, convicted in told) else FINE


@ledger.command("set-budget")
@folder_argument
@click.option("--epsilon", required=True, help="The new total budget.")
@click.option("--delta", help="Its delta; unchanged by default.")
@client_option
def set_budget(folder: Path, epsilon: str, delta: str | None, client: str | None) -> int:
    """Set the budget of persistent ledgers: the owners' decision, recorded as an amendment.

    FOLDER is a folder of persistent ledgers, or one ledger's file. Ceilings certified under the
    earlier budget no longer hold for later queries.
    """
    from privfed.study import ledger_commands

    for path in ledger_commands.chosen(folder, client).values():
        click.echo(ledger_commands.amended(path, epsilon, delta))
    return FINE


@ledger.command()
@folder_argument
@click.argument("study")
@client_option
def seal(folder: Path, study: str, client: str | None) -> int:
    """Close STUDY for ever in persistent ledgers: what it left of its share goes back to the budget.

    A study that ends seals itself; this is for one that was killed.
    """
    from privfed.study import ledger_commands

    for path in ledger_commands.chosen(folder, client).values():
        click.echo(ledger_commands.sealed(path, study))
    return FINE


ledger.add_command(renamed(set_budget), "amend")


@ledger.command()
@click.argument("file", type=PATH)
def reopen(file: Path) -> int:
    """Let the gate of one ledger's FILE answer again, after a protected query failed and was mended."""
    from privfed.study import ledger_commands

    ledger_commands.check_ledger_file(file)
    click.echo(ledger_commands.reopen(file))
    return FINE


@click.command()
@click.argument("file", type=PATH)
def key(file: Path) -> int:
    """Make a key that signs a ledger's heads: FILE for its owner only, FILE.pub for verification."""
    from privfed.exchange.signing import Signer

    public = Signer.generate(file)
    beside = file.with_name(f"{file.name}.pub")
    beside.write_bytes(public)
    click.echo(f"wrote {file}, which stays with its owner, and {beside}, which goes to the server")
    return FINE


def _verified(where: str, path: Path | None, head: Any) -> int:
    from privfed.ledger import Ledger

    try:
        if path is None:
            raise LedgerError("the server saw its head, and there is no such file")
        with closing(Ledger.read(path)) as one:
            reached = one.verify(head)
    except LedgerError as error:
        return _broken(where, error)
    click.echo(f"intact {where}: {reached.seq} rows, head {reached}")
    return FINE


def _verified_file(path: Path, heads: tuple[str, ...], public: Path | None) -> int:
    from privfed.study import ledger_commands

    ledger_commands.check_ledger_file(path)
    try:
        click.echo(ledger_commands.verified(path, heads, public))
    except LedgerError as error:
        return _broken(path, error)
    return FINE


def _broken(where: object, error: LedgerError) -> int:
    click.echo(f"BROKEN {where}: {error}", err=True)
    return BREACH


def _ledgers(folder: Path, policy: str | None, client: str | None) -> Iterator[Any]:
    """Yield policy, client and ledger of each chosen ledger; FOLDER may be one ledger's file."""
    from privfed.study import ledger_commands
    from privfed.study.output import Output

    if policy is None and ledger_commands.is_plain(folder):
        for path in ledger_commands.chosen(folder, client).values():
            with ledger_commands.opened(path) as one:
                yield "", one.dataset, one
        return
    output = Output.opened(folder)
    if policy is not None and policy not in output.policies:
        raise InputError(unknown("policy", policy, output.policies))
    for name in output.policies if policy is None else (policy,):
        with output.ledgers(name) as ledgers:
            if client is not None and client not in ledgers:
                raise InputError(unknown("client", client, ledgers))
            for owner in ledgers if client is None else (client,):
                yield name, owner, ledgers[owner]
