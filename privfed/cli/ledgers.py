"""Commands on ledgers, and the keys that sign their heads."""

from __future__ import annotations

import shlex
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from privfed.cli.common import BREACH, FINE, PATH, client_option, folder_argument, policy_option
from privfed.errors import InputError, LedgerError, number_of
from privfed.lazy import defer

#: Aspects by which a budget statement can be split: ``privfed.privacy.limit.ASPECTS``, without its imports.
ASPECTS = ("study", "round", "kind", "client", "principal", "month", "model")


@click.group()
def ledger() -> None:
    """Verify, show or export ledgers, and set their budgets. They are a study's, a folder's, or one file."""
    defer("scipy.stats", "pandas")


@ledger.command()
@folder_argument
@click.option("--head", multiple=True, help="A published head, seq:hash, of one ledger's file.")
@click.option(
    *("--public-key", "public"),
    type=PATH,
    help="File of the owner's public key, which must be one of the ledger's.",
)
@click.option("--witness", default="", help="File or address of heads that a witness keeps.")
def verify(folder: Path, head: tuple[str, ...], public: Path | None, witness: str) -> int:
    """Recompute all hash chains. Exit 1 if one was rewritten or misses a head that was seen.

    FOLDER is a study's output, a folder of persistent ledgers, or one ledger's file. Heads known on this
    machine are looked up by the ledger, wherever its file lies. An output's other files are compared with
    the digests that the study listed.
    """
    from privfed.exchange.messages import Head
    from privfed.exchange.signing import read_public
    from privfed.ledger.registry import Registry
    from privfed.study import ledger_commands

    registry = Registry(witness=witness)
    registry.check_witness()
    if folder.is_file():
        ledger_commands.check_ledger_file(folder)
        key = None if public is None else read_public(public)
        heads = [Head.parse(item) for item in head]
        return _print_verified(str(folder), folder, heads, registry, key)
    if (known := registry.at(folder)) is not None and not folder.exists():
        return _print_verified(str(folder), None, [known.head], registry)
    if head or public:
        raise InputError("a head belongs to one ledger; give that ledger's file, not a folder")
    statuses = [
        _print_verified(item.name, item.path, item.heads, registry)
        for item in ledger_commands.expected_ledgers(folder, registry)
    ]
    return max([*statuses, _print_files(folder)], default=FINE)


@ledger.command()
@folder_argument
@policy_option
@client_option
def show(folder: Path, policy: str | None, client: str | None) -> int:
    """Show every row: time, event, kind and cost."""
    from privfed.reports.ledger_text import ROWS, row

    ledgers = _Ledgers(folder, policy, client)
    for number, (name, owner, ledger) in enumerate(ledgers):
        if not number:
            click.echo(ROWS)
        kinds: dict[tuple[str, str], str] = {}
        for entry in ledger.entries():
            request = entry.principal, entry.request
            kind = kinds.setdefault(request, entry.body.get("kind", ""))
            click.echo(f"{name:12} {owner:16} {row(entry, kind)}")
    return ledgers.status


@ledger.command()
@folder_argument
@click.option(
    *("--format", "form"), type=click.Choice(("jsonl", "csv")), default="jsonl", show_default=True
)
@policy_option
@client_option
def export(folder: Path, form: str, policy: str | None, client: str | None) -> int:
    """Write all rows to standard output. JSON lines include payloads, CSV only their sizes."""
    ledgers = _Ledgers(folder, policy, client)
    for number, (_, _, ledger) in enumerate(ledgers):
        lines = ledger.export(form)
        if number and form == "csv":
            next(lines)
        for line in lines:
            click.echo(line, nl=False)
    return ledgers.status


@ledger.command()
@folder_argument
@click.option("--by", type=click.Choice(ASPECTS), help="Split by this as well.")
@policy_option
@client_option
def budget(folder: Path, by: str | None, policy: str | None, client: str | None) -> int:
    """Show each client's spending, and what is left. A study is shown by policy, persistent ledgers
    by what they hold."""
    from privfed.reports.ledger_text import SPENDING, spending
    from privfed.study import ledger_commands

    is_ledgers = ledger_commands.is_ledger_path(folder, policy)
    ledgers, uses_zcdp = _Ledgers(folder, policy, client), False
    remaining: dict[tuple[str, str], list[str]] = {}
    for number, (name, owner, ledger) in enumerate(ledgers):
        if is_ledgers:
            click.echo(ledger_commands.budget(ledger, by, named=folder.is_dir()))
            uses_zcdp |= (ledger.terms or {}).get("accountant") == "zcdp"
            continue
        uses_zcdp |= by is not None and (ledger.terms or {}).get("accountant") == "zcdp"
        if balance := ledger_commands.remaining_text(ledger):
            remaining.setdefault((name, balance), []).append(owner)
        if not number:
            click.echo(SPENDING)
        for line in ledger.budget(by):
            click.echo(spending(name, owner, line, ledger_commands.share_of(ledger, line)))
    for (name, balance), owners in remaining.items():
        click.echo(f"budget remaining under {name}, for {', '.join(owners)}: {balance}")
    if uses_zcdp and ledgers.status == FINE:
        click.echo(f"note: {ledger_commands.WHY_SHARES}")
    return ledgers.status


@ledger.command()
@folder_argument
@policy_option
@client_option
def noise(folder: Path, policy: str | None, client: str | None) -> int:
    """Test whether all noise ever drawn is what was charged. Exit 1 if it is not.

    For the data owners: it reads the sums that each one's gate keeps beside her ledger.
    """
    from privfed.study import ledger_commands

    ledgers, status = ledger_commands.ledgers_at(folder, policy, client), FINE
    for entry in ledgers:
        try:
            path = ledger_commands.check_exists(entry.path, entry.heads)
            line, convicted = ledger_commands.noise(entry.name, path, len(ledgers), entry.heads)
        except LedgerError as error:
            status = _print_broken(entry.name, error)
            continue
        click.echo(line)
        status = BREACH if convicted else status
    return status


@ledger.command()
@click.argument("folders", nargs=-1, required=True, type=PATH)
@click.option("--port", default=0, type=click.IntRange(0, 65535), help="Default: a free one.")
@click.option("--witness", default="", help="File or address of heads that a witness keeps.")
def serve(folders: tuple[Path, ...], port: int, witness: str) -> int:
    """Show ledgers in a browser, read-only. The page is for this machine alone, until stopped.

    FOLDERS are studies' outputs, folders of persistent ledgers, or ledgers' files. The address holds
    a token that is new each time: whoever has it reads the page.
    """
    from privfed.cli.serving import stopped
    from privfed.study.ledger_server import LedgerServer

    server = LedgerServer(folders, port, witness)
    with stopped() as stop:
        thread = threading.Thread(target=server.serve, daemon=True)
        thread.start()
        click.echo(f"reading {number_of(len(folders), 'place')}; open {server.url}")
        stop.wait()
        server.close()
    return FINE


@ledger.command("set-budget")
@folder_argument
@click.option("--epsilon", required=True, help="The new total budget.")
@click.option("--delta", help="Its delta; unchanged by default.")
@client_option
def set_budget(folder: Path, epsilon: str, delta: str | None, client: str | None) -> int:
    """Set the budget of persistent ledgers. The owners decide on it; it is recorded as an amendment.

    FOLDER is a folder of persistent ledgers, or one ledger's file. Ceilings certified under the
    earlier budget no longer hold for later queries.
    """
    from privfed.study import ledger_commands

    paths = ledger_commands.chosen(folder, client).values()
    for message in ledger_commands.amended(paths, epsilon, delta):
        click.echo(message)
    return FINE


@ledger.command()
@folder_argument
@click.argument("study")
@client_option
def seal(folder: Path, study: str, client: str | None) -> int:
    """Close STUDY for ever in persistent ledgers. The unused part of its share returns to the budget.

    A study that ends seals itself; this is for one that was killed.
    """
    from privfed.study import ledger_commands

    for path in ledger_commands.chosen(folder, client).values():
        click.echo(ledger_commands.sealed(path, study))
    return FINE


@ledger.command()
@click.argument("file", type=PATH)
@click.argument("folder", type=PATH)
def backup(file: Path, folder: Path) -> int:
    """Copy the ledger in FILE into a new FOLDER. What lies beside it is copied, too; gates may go
    on.

    The copy holds the owner's secret: it is for the owner alone.
    """
    from privfed.study import backup

    click.echo(f"wrote {folder}, a copy of {file} at head {backup.back_up(file, folder)}")
    return FINE


@ledger.command()
@click.argument("copy", type=PATH)
@click.argument("file", type=PATH)
@click.option("--head", multiple=True, help="The last head that others saw of it, seq:hash.")
@click.option("--witness", default="", help="File or address of heads that a witness keeps.")
def restore(copy: Path, file: Path, head: tuple[str, ...], witness: str) -> int:
    """Put COPY in the place of ledger FILE. It is refused if the lost one was charged since.

    COPY is a folder of privfed ledger backup, or a copy of the ledger's file alone. Every head known
    of it must be in the copy, and at least one must be known.
    """
    from privfed.exchange.messages import Head
    from privfed.ledger.secret import ENDING, own_beside
    from privfed.study import backup

    last = backup.restore(copy, file, map(Head.parse, head), witness)
    click.echo(f"restored {file} at head {last}")
    if not (secret := own_beside(file, ENDING)).exists():
        click.echo(
            f"{secret}: is missing; copy it there from an earlier backup of this ledger, or, if there is none, make "
            f"another: privfed ledger renew-secret {shlex.quote(str(file))}"
        )
    return FINE


@ledger.command()
@click.argument("file", type=PATH)
def reopen(file: Path) -> int:
    """Let the gate of one ledger's FILE answer again. It is closed since a protected
    query failed; mend the cause first."""
    from privfed.study import ledger_commands

    ledger_commands.check_ledger_file(file)
    click.echo(ledger_commands.reopen(file))
    return FINE


@ledger.command()
@click.argument("file", type=PATH)
def forget(file: Path) -> int:
    """Forget the ledger that was last seen at FILE. It must be gone, or begun anew on purpose."""
    from privfed.ledger.registry import Registry

    known = Registry().forget(file)
    click.echo(f"forgot ledger {known.identity[:12]} of {known.dataset!r} with head {known.head}")
    return FINE


@ledger.command("renew-secret")
@click.argument("file", type=PATH)
def renew_secret(file: Path) -> int:
    """Make another secret beside a ledger's FILE. It replaces a lost one, and the ledger records
    it.

    The owner's own random draws then differ from before, also for a query that is asked again.
    """
    from privfed.study import ledger_commands

    with ledger_commands.writable(file) as ledger:
        ledger.renew_secret()
    click.echo(f"{file}: has a new secret in its folder, and records that")
    return FINE


@click.group()
def key() -> None:
    """Make, check or replace the keys that sign ledgers' heads."""


@key.command("new")
@click.argument("file", type=PATH)
def new_key(file: Path) -> int:
    """Make a key: FILE for its owner only, FILE's .pub for verification."""
    from privfed.exchange.signing import Signer

    public = Path(f"{file}.pub")
    public.write_bytes(Signer.generate(file))
    click.echo(f"wrote {file}, which stays with its owner, and {public}, which goes to the server")
    return FINE


@key.command("rotate")
@click.argument("file", type=PATH)
@click.argument("new", type=PATH)
@click.option("--old", type=PATH, help="The key that signs the ledger now.")
@click.option("--lost", is_flag=True, help="The old key is lost; the ledger records this.")
def rotate_key(file: Path, new: Path, old: Path | None, lost: bool) -> int:
    """Let the key NEW sign the ledger in FILE from now on. The change is signed by --old."""
    from privfed.exchange.signing import read_key
    from privfed.study import ledger_commands

    if lost == (old is not None):
        raise InputError("give the key that signs the ledger now, --old FILE, or --lost")
    key, old_key = read_key(new), None if old is None else read_key(old)
    with ledger_commands.writable(file, old_key) as ledger:
        head = ledger.rotate(key, lost=lost)
    click.echo(f"{file}: signed by the key in {new} from row {head.seq} on")
    click.echo(
        "write its path where the old one stands, as signing_key in the owner file of each study, or under its "
        "client's name in the folder of keys, and give its .pub file to the server"
    )
    return FINE


@key.command("check")
@click.argument("file", type=PATH)
@click.argument("keys", nargs=-1, type=PATH)
def check_key(file: Path, keys: tuple[Path, ...]) -> int:
    """Verify the ledger in FILE, and list its signing keys. KEYS (or .pub files) are checked
    against them.

    Exit status 1 if a key is not the one that signs now.
    """
    from privfed.exchange.signing import Signer, read_key, read_public
    from privfed.study import ledger_commands

    with ledger_commands.opened(file) as ledger:
        for entry in ledger.signing_keys():
            signature = (
                "signed by the one before" if entry.body["signature"] else "NOT signed by it"
            )
            origin = f"replaces another, {signature}" if entry.body["replaces"] else "the first"
            click.echo(f"row {entry.seq}: {entry.body['public']}, {origin}")
        current, status = ledger.public, FINE
    if current is None:
        click.echo("no key: its heads are not signed")
    for path in keys:
        public = read_public(path) if path.suffix == ".pub" else Signer(read_key(path), "").public
        if public != current:
            click.echo(f"{path}: not the key that signs it now", err=True)
            status = BREACH
    return status


def _print_verified(
    where: str, path: Path | None, heads: Any, registry: Any, public: bytes | None = None
) -> int:
    from privfed.ledger.verified_file import verified
    from privfed.study.ledger_commands import check_exists, intact

    try:
        state = verified(check_exists(path, heads), registry, heads, public)
        click.echo(f"intact {where}: {intact(state)}")
    except LedgerError as error:
        return _print_broken(where, error)
    return FINE


def _print_files(folder: Path) -> int:
    """Compare an output's files with their listed digests."""
    from privfed.study.output import FILES, STUDY, Output

    if not (folder / STUDY).is_file():
        return FINE
    output = Output(folder)
    listed, edited = output.listed(), output.edited()
    for name in edited:
        click.echo(f"EDITED {name}: not as the study wrote it", err=True)
    if listed is None and not edited:
        click.echo(
            f"unlisted {folder}: has no {FILES}, so an edit of its other files is not noticed"
        )
    elif listed is not None and not edited:
        files = number_of(len(listed), "other file")
        click.echo(f"unedited {files}, by {FILES}, which whoever can write there can write anew")
    return BREACH if edited else FINE


def _print_broken(where: object, error: LedgerError) -> int:
    click.echo(f"BROKEN {where}: {error}", err=True)
    return BREACH


class _Ledgers:
    """Iterates over the chosen ledgers that verify; one that does not is reported, and sets ``status``."""

    def __init__(self, folder: Path, policy: str | None, client: str | None) -> None:
        self.folder, self.policy, self.client = folder, policy, client
        self.status = FINE

    def __iter__(self) -> Iterator[Any]:
        from privfed.study import ledger_commands

        for entry in ledger_commands.ledgers_at(self.folder, self.policy, self.client):
            try:
                path = ledger_commands.check_exists(entry.path, entry.heads)
                with ledger_commands.opened(path, entry.heads) as ledger:
                    yield entry.policy, ledger.dataset, ledger
            except LedgerError as error:
                self.status = _print_broken(entry.path or entry.owner, error)
