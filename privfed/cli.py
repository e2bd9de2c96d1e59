"""The command line: ``privfed audit`` and its sisters.

Exit status: 0 fine, 1 the audit found a breach of a policy's claim, 2 bad input (one line that says
what, where, and what to write instead) or a policy under which nothing was released, 3 a fault of privfed's own (its text could hold data, and is
shown only where ``PRIVFED_TRACEBACK`` is set).
"""

from __future__ import annotations

import os
import sys
import traceback
import warnings
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from privfed import __version__, cli_serving
from privfed.errors import InputError, LedgerError, Note, PrivfedError, unknown
from privfed.privacy.limit import ASPECTS
from privfed.study import Study

if TYPE_CHECKING:
    from privfed.reports.budget import Report

#: Exit status of each outcome.
FINE, BREACH, BAD_INPUT, FAULT = 0, 1, 2, 3
_FORMATS = ("jsonl", "csv")
study_argument = click.argument("study", required=False, type=click.Path(path_type=Path))
folder_argument = click.argument("folder", type=click.Path(path_type=Path))
out_option = click.option(
    "--out", type=click.Path(path_type=Path), default=Path("audit"), show_default=True
)
overwrite_option = click.option(
    "--overwrite",
    is_flag=True,
    help="Replace an earlier output in --out, its throw-away ledgers included.",
)
engine_option = click.option(
    "--engine", default="local", show_default=True, help="local, doors, flower or flare."
)
policy_option = click.option("--policy", help="Only this policy.")
seconds_option = click.option(
    "--seconds",
    type=click.FloatRange(min=0, min_open=True),
    help="Time for each attack; it reports what it found by then.",
)
client_option = click.option("--client", help="Only this client.")


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="privfed")
def commands() -> None:
    """Audit what federated, interpretable learning discloses."""


@commands.command()
@study_argument
@out_option
@overwrite_option
@seconds_option
def audit(study: Path | None, out: Path, overwrite: bool, seconds: float | None) -> int:
    """Learn under each policy, attack what was released, write the budget report.

    STUDY is a .toml file; without it, the built-in one: five clinics and 442 diabetes patients.
    """
    from privfed.study import assembly

    report = assembly.run(_study(study), out, overwrite, attacked=True, seconds=seconds)
    _summary(report, out)
    return _verdict(report)


@commands.command()
@study_argument
@out_option
@overwrite_option
@engine_option
def run(study: Path | None, out: Path, overwrite: bool, engine: str) -> int:
    """Learn under each policy and report, without attacks."""
    from privfed.study import assembly

    report = assembly.run(_study(study), out, overwrite, attacked=False, engine=engine)
    _summary(report, out)
    return _verdict(report)


@commands.command()
@folder_argument
@seconds_option
def attack(folder: Path, seconds: float | None) -> int:
    """Attack what a finished study in FOLDER released, and report anew."""
    from privfed.study import assembly
    from privfed.study.output import Output

    report = assembly.attack(Output.opened(folder), seconds=seconds)
    _summary(report, folder)
    return _verdict(report)


@commands.command()
@folder_argument
def report(folder: Path) -> int:
    """Write the budget report of a finished study in FOLDER anew."""
    from privfed.study import assembly
    from privfed.study.output import Output

    written = assembly.write_report(Output.opened(folder))
    _summary(written, folder)
    return _verdict(written)


@commands.command()
@study_argument
@click.option("--epsilon", default="0.5,1,2,4,8", show_default=True, help="Budgets, by commas.")
@click.option(
    "--seeds",
    default=10,
    show_default=True,
    type=click.IntRange(1),
    help="Runs for each budget, each of its own division, held-out part and noise.",
)
@click.option("--out", type=click.Path(path_type=Path), default=Path("sweep"), show_default=True)
@overwrite_option
def sweep(study: Path | None, epsilon: str, seeds: int, out: Path, overwrite: bool) -> int:
    """Measure utility against epsilon: a tidy CSV and a plot in --out."""
    from privfed.reports.sweep import write_sweep
    from privfed.study import assembly
    from privfed.study.output import written_whole

    chosen, budgets = _study(study), _budgets(epsilon)
    with written_whole(out, overwrite=overwrite) as folder:
        chosen.to_toml(folder / "study.toml")
        write_sweep(assembly.sweep(chosen, budgets, seeds), folder, chosen.name)
    click.echo(f"wrote {out / 'sweep.csv'} and {out / 'sweep.html'}: an uncharged simulation")
    return FINE


@commands.command()
@click.argument("model", type=click.Path(path_type=Path))
@click.argument("table", type=click.Path(path_type=Path))
@click.option("--out", type=click.Path(path_type=Path), help="Write a CSV file.")
@click.option("--client", help="Whose model predicts, where each client has one of its own.")
@click.option("--shelf", type=click.Path(path_type=Path), help="That client's .shelf file.")
@click.option("--overwrite", is_flag=True, help="Replace the file in --out.")
def predict(
    model: Path,
    table: Path,
    out: Path | None,
    client: str | None,
    shelf: Path | None,
    overwrite: bool,
) -> int:
    """Predict each row of a .csv TABLE by a MODEL.json that a study or ``save`` wrote."""
    from privfed.study import prediction

    predicted = prediction.predict(model, table, client, shelf)
    if out is None:
        click.echo(predicted.to_csv(index=False), nl=False)
        return FINE
    prediction.write_predictions(predicted, out, overwrite=overwrite)
    click.echo(f"wrote {len(predicted)} predictions to {out}")
    return FINE


@commands.command()
@study_argument
@click.option("--epsilon", help="Try this epsilon for every private policy.")
@click.option("--delta", help="And this delta.")
def price(study: Path | None, epsilon: str | None, delta: str | None) -> int:
    """Price a study before any record is read: what share of her epsilon each client would pay.

    Exit status 2 where no policy with a budget could be carried out within it.
    """
    from privfed.study import assembly
    from privfed.study.price import any_fits, priced

    chosen = _study(study).at(epsilon, delta)
    prices = assembly.prices(chosen)
    left = assembly.owners_left(chosen, prices)
    for one in prices:
        click.echo(priced(one, left[one.policy.name]))
    return (
        FINE if any_fits(prices, left) else _bad("no policy fits its budget; nothing was charged")
    )


@commands.command()
@click.argument("table", type=click.Path(path_type=Path))
@click.option("--target", help="The column to predict.")
@click.option("--sep", default=",", show_default=True, help="What splits its columns.")
@click.option("--encoding", default="utf-8", show_default=True, help="Of its text.")
@click.option(
    "--categories",
    is_flag=True,
    help="Also write every category that the records hold: a release without any guarantee (a value "
    "that only one person has gives that person away), and the file is marked so.",
)
@click.option("--out", type=click.Path(path_type=Path), help="Write a file.")
@click.option("--overwrite", is_flag=True, help="Replace the file in --out.")
def schema(
    table: Path,
    target: str | None,
    sep: str,
    encoding: str,
    categories: bool,
    out: Path | None,
    overwrite: bool,
) -> int:
    """Begin a schema file for a .csv TABLE: names and kinds, its public bounds left to fill in."""
    from privfed.study import scaffold
    from privfed.tables.csv_text import Text

    text = Text(sep.replace("\\t", "\t"), encoding)
    written = scaffold.schema_text(table, target, text=text, categories=categories)
    if out is None:
        click.echo(written, nl=False)
        return FINE
    scaffold.write_schema(written, out, overwrite=overwrite)
    click.echo(f"wrote {out}; fill in its bounds, then name it under [data]")
    return FINE


@commands.command()
def plugins() -> int:
    """List what is installed: mechanisms, accountants, queries, learners, attacks."""
    from privfed.questions import plugins as installed

    for group in installed.GROUPS:
        names = sorted(installed.available(group))
        width = max(map(len, names), default=0)
        click.echo(group)
        for name in names:
            click.echo(f"  {name:{width}} {installed.version(group, name)}")
    return FINE


@commands.group()
def ledger() -> None:
    """Verify, show, sum up, export or amend ledgers: a study's, a folder's, or one file's."""


@ledger.command()
@folder_argument
@click.option("--head", multiple=True, help="A published head, seq:hash, of one ledger's file.")
@click.option("--public", type=click.Path(path_type=Path), help="The owner's public key, a file.")
def verify(folder: Path, head: tuple[str, ...], public: Path | None) -> int:
    """Recompute every chain; exit 1 where one was rewritten or misses a head the server saw.

    FOLDER is a study's output, a folder of lasting ledgers, or one ledger's file.
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
    """Show every row: when, what, of which kind, and at what cost."""
    from privfed.reports.text import ROWS, row

    for number, (name, owner, one) in enumerate(_ledgers(folder, policy, client)):
        if not number:
            click.echo(ROWS)
        for entry in one.entries():
            click.echo(f"{name:12} {owner:16} {row(entry)}")
    return FINE


@ledger.command()
@folder_argument
@click.option("--format", "form", type=click.Choice(_FORMATS), default="jsonl", show_default=True)
@policy_option
@client_option
def export(folder: Path, form: str, policy: str | None, client: str | None) -> int:
    """Write every row to standard output, payloads included in JSON lines (by size in CSV)."""
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
    """Show what each client spent under each policy; or what lasting ledgers hold, and have left."""
    from privfed.reports.text import SPENDING, spending
    from privfed.study import ledger_commands

    if policy is None and ledger_commands.is_plain(folder):
        for path in ledger_commands.chosen(folder, client).values():
            click.echo(ledger_commands.budget(path, by, named=folder.is_dir()))
        return FINE
    click.echo(SPENDING)
    for name, owner, one in _ledgers(folder, policy, client):
        for line in one.budget(by):
            click.echo(spending(name, owner, line))
    return FINE


@ledger.command()
@folder_argument
@click.option("--epsilon", required=True, help="The whole budget from now on.")
@click.option("--delta", help="Its delta; as it was unless given.")
@client_option
def amend(folder: Path, epsilon: str, delta: str | None, client: str | None) -> int:
    """Put another budget in force in lasting ledgers: the owners' own choice, which is recorded.

    FOLDER is a folder of lasting ledgers, or one ledger's file. What was certified under the budget
    before holds no longer of what is still to come.
    """
    from privfed.study import ledger_commands

    for path in ledger_commands.chosen(folder, client).values():
        click.echo(ledger_commands.amended(path, epsilon, delta))
    return FINE


for command in cli_serving.ALL:
    commands.add_command(command)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and leave with its exit status."""
    sys.exit(status(arguments))


def status(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and give its exit status; errors are one line on standard error."""
    try:
        with _notes():
            given: Any = commands.main(arguments, prog_name="privfed", standalone_mode=False)
        return given if isinstance(given, int) else FINE
    except click.exceptions.NoArgsIsHelpError as shown:
        click.echo(shown.format_message())
        return BAD_INPUT
    except click.ClickException as error:
        return _bad(error.format_message())
    except InputError as error:
        return _bad(*error.faults)
    except PrivfedError as error:
        return _bad(str(error))
    except (KeyboardInterrupt, click.exceptions.Abort):
        return _bad("interrupted; no output was written, and lasting ledgers keep what was charged")
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FINE
    except Exception as error:
        return _fault(error)


@contextmanager
def _notes() -> Iterator[None]:
    """Show each note once, as one plain line; a library's own warnings may tell of records."""
    shown: set[str] = set()

    def show(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
        text = " ".join(str(message).split())
        if issubclass(category, Note) and text not in shown:
            shown.add(text)
            click.echo(f"privfed: note: {text}", err=True)

    with warnings.catch_warnings():
        warnings.showwarning = show
        yield


def _bad(*faults: str) -> int:
    """One line for one fault; of several, a line each."""
    lines = [" ".join(fault.split()) for fault in faults]
    told = lines if len(lines) == 1 else [f"{len(lines)} faults", *(f"  {line}" for line in lines)]
    click.echo("privfed: " + "\n".join(told), err=True)
    return BAD_INPUT


def _fault(error: Exception) -> int:
    if os.environ.get("PRIVFED_TRACEBACK"):
        traceback.print_exc()
    click.echo(
        f"privfed: a fault of its own ({type(error).__name__}), no output was written, and lasting "
        "ledgers keep what was charged; set PRIVFED_TRACEBACK=1 to see where (the text may hold data)",
        err=True,
    )
    return FAULT


def _study(path: Path | None) -> Study:
    from privfed.study.rehearsal import read_study

    return Study.built_in() if path is None else read_study(path)


def _budgets(text: str) -> list[str]:
    from privfed.privacy.accountant import written_epsilon

    amounts = [part.strip() for part in text.split(",")]
    for amount in amounts:
        written_epsilon(amount, "--epsilon")
    return amounts


def _summary(report: Report, out: Path) -> None:
    from privfed.reports.text import summary

    click.echo(summary(report))
    click.echo(f"ledgers: {report.kept}")
    click.echo(f"report: {out / 'report.html'}")


def _verdict(report: Report) -> int:
    from privfed.reports.remarks import silent

    for text in report.breaches:
        click.echo(f"BREACH: {text}", err=True)
    if report.breaches:
        return BREACH
    told = [f"policy {policy.name!r}: {silent(policy)}" for policy in report.silent]
    for text in told:
        click.echo(f"privfed: {text}; there is no guarantee, and no model", err=True)
    return BAD_INPUT if told else FINE


def _verified(where: str, path: Path | None, head: Any) -> int:
    from privfed.ledger import Ledger

    try:
        if path is None:
            raise LedgerError("the server saw its head, and there is no such file")
        with closing(Ledger.read(path)) as one:
            reached = one.verify(head)
    except LedgerError as error:
        click.echo(f"BROKEN {where}: {error}", err=True)
        return BREACH
    click.echo(f"intact {where}: {reached.seq} rows, head {reached}")
    return FINE


def _verified_file(path: Path, heads: tuple[str, ...], public: Path | None) -> int:
    from privfed.study import ledger_commands

    ledger_commands.check_ledger_file(path)
    try:
        click.echo(ledger_commands.verified(path, heads, public))
    except LedgerError as error:
        click.echo(f"BROKEN {path}: {error}", err=True)
        return BREACH
    return FINE


def _ledgers(folder: Path, policy: str | None, client: str | None) -> Iterator[Any]:
    """Each ledger asked for, with its policy and client; FOLDER may be one ledger's file."""
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
