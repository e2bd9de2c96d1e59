"""Commands on studies: train, attack, report, price, sweep, predict, synthesize; schemas; plugins."""

from __future__ import annotations

import shutil
import sys
import warnings
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from privfed.cli.common import (
    BAD_INPUT,
    BREACH,
    FAULT,
    FINE,
    INTERRUPTED,
    PATH,
    bad,
    folder_argument,
)
from privfed.errors import InputError, LedgerError, Note, number_of
from privfed.lazy import defer

if TYPE_CHECKING:
    from privfed.reports.budget import Report
    from privfed.study import Study

study_argument = click.argument("study", required=False, type=PATH)
out_option = click.option("--out", type=PATH, default=Path("audit"), show_default=True)
overwrite_option = click.option(
    "--overwrite", is_flag=True, help="Replace an earlier output in --out, with its ledgers."
)
time_option = click.option(
    *("--attack-time-limit", "seconds"),
    type=click.FloatRange(min=0, min_open=True),
    help="Seconds for each attack, which then reports partial results.",
)
scores_option = click.option(
    "--scores",
    is_flag=True,
    help="Rank the records by how exposed each is, in findings.json: for their holder alone.",
)
simulation_option = click.option(
    "--simulation",
    is_flag=True,
    help="Include what is measured on the data themselves, left out where ledgers are persistent.",
)
#: Option of commands that write one file.
file_option = click.option("--out", type=PATH, help="Write a file instead of standard output.")
replace_option = click.option("--overwrite", is_flag=True, help="Replace the file in --out.")


@click.command()
@study_argument
@out_option
@overwrite_option
@time_option
@scores_option
@click.option(
    "--audit-training",
    is_flag=True,
    help="Audit each private policy by whole trainings on planted records, too.",
)
def audit(
    study: Path | None,
    out: Path,
    overwrite: bool,
    seconds: float | None,
    scores: bool,
    audit_training: bool,
) -> int:
    """Train under each policy, attack the releases, report. The report has budgets, attacks and
    performance.

    STUDY is a .toml file; default: this folder's study.toml, else the built-in study of five clinics.
    """
    from privfed.study import assembly

    original = _study(study)
    chosen = replace(original, audit_training=audit_training or original.audit_training)
    report = assembly.run(chosen, out, overwrite, attacked=True, seconds=seconds, scores=scores)
    return _print_report(report, out)


@click.command()
@study_argument
@out_option
@overwrite_option
@click.option(
    "--engine", default="local", show_default=True, help="local, sockets, flower or flare."
)
def run(study: Path | None, out: Path, overwrite: bool, engine: str) -> int:
    """Train under each policy and report, without attacks."""
    from privfed.study import assembly

    return _print_report(
        assembly.run(_study(study), out, overwrite, attacked=False, engine=engine), out
    )


@click.command()
@click.argument("path", type=PATH)
@time_option
@click.option("--data", type=PATH, help="The .csv table that the model was fitted to.")
@click.option("--outsiders", type=PATH, help="A .csv table of held-out records, as a control.")
@click.option("--target", help="The outcome's column; default: the only one that is not a feature.")
@click.option("--out", type=PATH, help="Folder for a model's page; default: model-risks.")
@overwrite_option
@scores_option
def attack(
    path: Path,
    seconds: float | None,
    out: Path | None,
    overwrite: bool,
    scores: bool,
    **tables: Any,
) -> int:
    """Attack a finished study's releases again. PATH is its folder, or a scikit-learn model's file.

    \b
    privfed attack FOLDER
    privfed attack model.joblib --data train.csv --outsiders test.csv --out model-risks

    A model is a tree or a forest, written by joblib, pickle or skops; it is read in a confined process.
    """
    if path.is_file() or tables["data"] is not None:
        return _attack_model(path, out or Path("model-risks"), overwrite, scores, **tables)
    if out or overwrite or any(tables.values()):
        raise InputError(
            "--data, --outsiders, --target, --out and --overwrite go with a model's file"
        )
    from privfed.study import assembly
    from privfed.study.output import Output

    return _print_report(assembly.attack(Output.opened(path), seconds=seconds, scores=scores), path)


def _attack_model(
    path: Path, out: Path, overwrite: bool, scores: bool, data: Path | None, **tables: Any
) -> int:
    """Attack a model's file, write its page, and print the findings."""
    from tqdm import tqdm

    from privfed.reports.text import finding_lines
    from privfed.study import model_file

    if data is None:
        raise InputError("write --data TABLE.csv: the records that the model was fitted to")
    with tqdm(desc="shadow models", unit="", disable=None) as bar:
        attacked = model_file.attack(path, data, **tables, progress=bar.update)
    model_file.write(attacked, out, overwrite=overwrite, scores=scores)
    if attacked.about["another table"]:
        click.echo("another table: the model's leaves do not hold these records")
    click.echo(finding_lines(attacked.findings))
    click.echo(f"report: {out / 'report.html'}")
    return FINE


@click.command()
@folder_argument
@click.option(
    "--for",
    "reader",
    type=click.Choice(["board", "regulator", "engineer"]),
    help="Write the page for this reader: two pages of sentences, the blocks of NIST SP 800-226, or all.",
)
@click.option(
    "--policy",
    default="",
    help="The policy that a board decides on; default: the first with a guarantee.",
)
@click.option("--pdf", is_flag=True, help="Print the page into a PDF too; needs Chromium.")
@click.option(
    "--against",
    type=PATH,
    help="The output of an earlier run: write what differs, and what changed with it.",
)
@simulation_option
def report(
    folder: Path,
    reader: str | None,
    policy: str,
    pdf: bool,
    against: Path | None,
    simulation: bool,
) -> int:
    """Rewrite the report of a finished study in FOLDER. Options write a page for a board or a
    regulator, or compare two runs."""
    from privfed.study import assembly
    from privfed.study.output import Output

    output = Output.opened(folder)
    if against is not None:
        if reader or policy:
            raise InputError("--for and --policy go with one run's report; leave out --against")
        lines, written = assembly.write_comparison(
            output, Output.opened(against), pdf=pdf, simulation=simulation
        )
        click.echo(f"{lines}\nwrote {written}")
        return FINE
    if reader is None and not pdf:
        full = assembly.write_report(output, simulation=simulation)
        return _print_report(full, folder, simulation=simulation)
    audience = reader or "engineer"
    written = assembly.write_letter(output, audience, policy, pdf=pdf, simulation=simulation)
    click.echo(f"wrote {written}")
    return FINE


@click.command()
@folder_argument
@click.option(
    *("--as", "form"),
    required=True,
    type=click.Choice(["registry", "cnil-pia", "sacroml", "model-card", "croissant"]),
    help="Entry of the Differential Privacy Deployments Registry, impact assessment of the CNIL's PIA "
    "software, attack report of SACRO-ML, model card, or data dictionary in Croissant.",
)
@click.option("--policy", default="", help="One policy; default: the first with a guarantee.")
@file_option
@replace_option
@simulation_option
def export(
    folder: Path, form: str, policy: str, out: Path | None, overwrite: bool, simulation: bool
) -> int:
    """Write a finished study in FOLDER in a form that others read."""
    from privfed.study import assembly
    from privfed.study.output import Output

    text = assembly.exported(Output.opened(folder), form, policy, simulation=simulation)
    return _write(text, out, overwrite, f"wrote {out}")


@click.command()
@study_argument
@click.option(
    "--epsilon", default="0.5,1,2,4,8", show_default=True, help="Comma-separated budgets."
)
@click.option(
    *("--runs", "runs"),
    default=10,
    show_default=True,
    type=click.IntRange(1),
    help="Runs per budget, each with its own partition, held-out records and noise.",
)
@click.option(
    "--vary",
    multiple=True,
    metavar="KEY=VALUES",
    help="Another factor: a key of the study's file and comma-separated values, such as "
    "clients.count=3,5 or policy.delta=1e-5,1e-6. May be repeated.",
)
@click.option(
    "--attacks", is_flag=True, help="Attack each run's releases and audit its mechanisms."
)
@click.option("--jobs", default=1, show_default=True, help="Processes; -1 for one a core.")
@click.option("--list", "listed", is_flag=True, help="List the runs and whether they are done.")
@click.option("--out", type=PATH, default=Path("sweep"), show_default=True)
@click.option("--overwrite", is_flag=True, help="Repeat the runs in --out.")
@click.option("--mlflow", is_flag=True, help="Log each run to MLflow too, where it is installed.")
def sweep(  # noqa: PLR0913 - click gives each option by its name
    study: Path | None,
    epsilon: str,
    runs: int,
    vary: tuple[str, ...],
    attacks: bool,
    jobs: int,
    listed: bool,
    out: Path,
    overwrite: bool,
    mlflow: bool,
) -> int:
    """Run a study at many epsilons, seeds and settings. One table and a figure go to --out.

    Runs that --out holds already are not repeated, whatever ended the command before.
    """
    from privfed.privacy.accountant import written_epsilon
    from privfed.reports.sweep import write_sweep
    from privfed.study import sweep as sweeping
    from privfed.study import tracking

    if mlflow:
        tracking.mlflow()
    chosen, budgets = _study(study), [part.strip() for part in epsilon.split(",")]
    for budget in budgets:
        written_epsilon(budget, "--epsilon")
    if jobs == 0:
        raise InputError("--jobs must be at least 1, or -1 for one a core")
    varied: dict[str, list[Any]] = {}
    for key, _, text in (factor.partition("=") for factor in vary):
        varied.setdefault(key, []).extend(sweeping.values(text))
    cells, store = sweeping.cells(chosen, budgets, runs, varied), sweeping.Sweep(out)
    store.check()
    if listed:
        states = [(store.state(cell), cell.label()) for cell in cells]
        click.echo("\n".join(f"{state:8}  {text}" for state, text in states))
        new = sum(state == "new" for state, _ in states)
        click.echo(f"{number_of(len(cells), 'run')}, {len(cells) - new} done and {new} to run")
        return FINE
    with store.opened(overwrite=overwrite):
        try:
            chosen.to_toml(out / "sweep.toml")
            table, faults = sweeping.sweep(cells, out, attacked=attacks, jobs=jobs)
            if len(table):
                write_sweep(table, out, chosen.name, len(faults))
                click.echo(
                    f"wrote {out / 'sweep.csv'} and {out / 'sweep.html'}: an uncharged simulation"
                )
            if mlflow:
                logged = tracking.log(cells, store, chosen.name)
                click.echo(f"logged {number_of(logged, 'run')} to MLflow")
        except (KeyboardInterrupt, OSError, LedgerError, BrokenProcessPool) as error:
            return _stopped(error, store.holds(cells))
        if others := store.others(cells):
            click.echo(
                f"{store.cells} also holds {number_of(others, 'finished run')} of other settings or data, left out of the table"
            )
    if faults:
        return bad(*(f"{cell}: {fault}" for cell, fault in faults.items()))
    return FINE


def _stopped(error: BaseException, held: str) -> int:
    """Print what ended a sweep and what its folder holds; return the exit status."""
    if isinstance(error, KeyboardInterrupt):
        bad(f"interrupted; {held}: the same command continues")
        return INTERRUPTED
    if isinstance(error, BrokenProcessPool):
        return bad(
            "one of the --jobs was killed, as where memory is short; with fewer, the same command "
            f"continues: {held}"
        )
    if isinstance(error, OSError):
        what = f"{error.filename or held.split()[0]}: {(error.strerror or type(error).__name__).lower()}"
    else:
        what = str(error).partition(";")[0]
    return bad(f"{what}; once it can be written, the same command continues: {held}")


@click.command()
@click.argument("model", type=PATH)
@click.argument("table", type=PATH)
@file_option
@click.option("--client", help="The client whose model predicts, of a personal learner.")
@click.option("--shelf", type=PATH, help="That client's .shelf file.")
@replace_option
def predict(
    model: Path,
    table: Path,
    out: Path | None,
    client: str | None,
    shelf: Path | None,
    overwrite: bool,
) -> int:
    """Predict each row of a .csv TABLE by a MODEL.json. The model is one that a study or ``save``
    wrote."""
    from privfed.study import prediction

    predicted = prediction.predict(model, table, client, shelf)
    written = f"wrote {number_of(len(predicted), 'prediction')} to {out}"
    return _write(predicted.to_csv(index=False), out, overwrite, written)


@click.command()
@click.argument("model", type=PATH)
@click.option("--rows", required=True, type=click.IntRange(1, 1_000_000), help="How many records.")
@click.option("--random-state", type=click.IntRange(0), help="Seed; default: another each time.")
@file_option
@replace_option
def synthesize(
    model: Path, rows: int, random_state: int | None, out: Path | None, overwrite: bool
) -> int:
    """Write made-up records from a private MODEL.json. They have labels, and are as private as the
    model.

    They are drawn from the model and its public schema alone: no record is read, and no budget charged.
    """
    from privfed.study import prediction

    records = prediction.synthesize(model, rows, random_state)
    return _write(
        records.to_csv(index=False), out, overwrite, f"wrote {rows} synthetic records to {out}"
    )


@click.command()
@study_argument
@click.option("--epsilon", help="Epsilon of every private policy, for a trial.")
@click.option("--delta", help="Delta of every private policy, for a trial.")
@click.option(
    "--utility", is_flag=True, help="Also the error of counts and means under the budget."
)
def price(study: Path | None, epsilon: str | None, delta: str | None, utility: bool) -> int:
    """Bound a study's cost from above. It is a fraction of each client's budget; no record is read.

    Exit status 2 if no policy with a budget fits it.
    """
    defer("scipy.stats", "sklearn.metrics", "pandas")
    from privfed.study import dry_run
    from privfed.study.price import any_fits, priced

    chosen = _study(study).at(epsilon, delta)
    prices = dry_run.prices(chosen)
    remaining = dry_run.balances(chosen, prices)
    last = {entry.policy.name: entry for entry in prices}
    for entry in prices:
        click.echo(priced(entry, remaining[entry.name]))
        if utility and last[entry.policy.name] is entry:
            click.echo(dry_run.utility_of(chosen, entry))
    if any_fits(prices, remaining):
        return FINE
    return bad("no policy fits its budget; nothing was charged")


@click.command()
@click.argument("table", type=PATH)
@click.option("--target", help="The column to predict.")
@click.option(
    "--sep", help="Column separator; this and the next three are proposed by the first lines."
)
@click.option("--encoding", help="Text encoding.")
@click.option("--decimal", help="Before a number's decimals.")
@click.option("--thousands", help="Between groups of three digits.")
@click.option(
    "--categories",
    is_flag=True,
    help="Include the categories found in the records: an unprotected release (a value that only one "
    "person has identifies that person), and the file is marked so.",
)
@file_option
@replace_option
def schema(
    table: Path,
    target: str | None,
    categories: bool,
    out: Path | None,
    overwrite: bool,
    **form: str | None,
) -> int:
    """Write a schema template for a TABLE. It has names and kinds, without bounds; TABLE is a .csv,
    .csv.gz, .zip or .xlsx."""
    from privfed.study import scaffold
    from privfed.tables.csv_text import Text

    given = {key: value.replace("\\t", "\t") for key, value in form.items() if value is not None}
    text = Text(**given) if given else None
    template = scaffold.schema_text(table, target, text=text, categories=categories)
    written = f"wrote {out}; fill in its bounds, then name it under [data]"
    return _write(template, out, overwrite, written)


@click.command()
@click.argument("group", required=False)
def plugins(group: str | None) -> int:
    """List installed plugins. These are laws, mechanisms, accountants, queries, learners and attacks;
    with GROUP, its plugins and what each is."""
    from privfed.questions import plugins as installed
    from privfed.reports.words import about

    for chosen in [group] if group else installed.GROUPS:
        names = sorted(installed.available(chosen))
        width = max(map(len, names), default=0)
        click.echo(chosen)
        for name in names:
            description = about(name, chosen) or installed.unusable(chosen, name) if group else ""
            line = f"  {name:{width}} {installed.version(chosen, name)}  {description}"
            click.echo(line.rstrip())
    for text in installed.unread():
        warnings.warn(text, Note, stacklevel=2)
    return FINE


def _write(text: str, out: Path | None, overwrite: bool, written: str) -> int:
    """Write a text to a file and print ``written``, or write it to standard output."""
    from privfed.study.output import write_out

    if out is None:
        click.echo(text, nl=False)
    else:
        write_out(out, text, overwrite=overwrite)
        click.echo(written)
    return FINE


def _study(path: Path | None) -> Study:
    from privfed.study import Study
    from privfed.study.dry_run import read_study

    here = Path("study.toml")
    if path is None and here.is_file():
        click.echo("study.toml of this folder:", err=True)
        path = here
    return Study.built_in() if path is None else read_study(path)


def _print_report(report: Report, out: Path, *, simulation: bool = False) -> int:
    """Print a report's summary, as on its page; return the exit status."""
    from privfed.reports.remarks import silent
    from privfed.reports.text import summary

    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else 0
    click.echo(summary(report if simulation else report.published(), width))
    click.echo(f"ledgers: {report.kept}")
    click.echo(f"report: {out / 'report.html'}")
    for text in report.breaches:
        click.echo(f"VIOLATED: {text}", err=True)
    if report.breaches:
        return BREACH
    for policy in report.silent:
        bad(f"policy {policy.name!r}: {silent(policy)}; there is no guarantee, and no model")
    if report.silent:
        return BAD_INPUT
    if report.failed:
        bad(*report.failed)
        return FAULT
    return FINE
