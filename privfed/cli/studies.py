"""Commands on studies: train, attack, report, price, sweep, predict; schemas; plugins."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from privfed.cli.common import BAD_INPUT, BREACH, FINE, PATH, Renamed, bad, folder_argument

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
    cls=Renamed,
    formerly="--seconds",
    type=click.FloatRange(min=0, min_open=True),
    help="Seconds for each attack, which then reports partial results.",
)
#: Of a command that writes one file.
file_option = click.option("--out", type=PATH, help="Write a file instead of standard output.")
replace_option = click.option("--overwrite", is_flag=True, help="Replace the file in --out.")


@click.command()
@study_argument
@out_option
@overwrite_option
@time_option
@click.option(
    "--audit-training",
    is_flag=True,
    help="Audit each private policy by whole trainings on planted records, too.",
)
def audit(
    study: Path | None, out: Path, overwrite: bool, seconds: float | None, audit_training: bool
) -> int:
    """Train under each policy, attack the releases, write the budget report.

    STUDY is a .toml file; default: the built-in study, five clinics and 442 diabetes patients.
    """
    from privfed.study import assembly

    read = _study(study)
    chosen = replace(read, audit_training=audit_training or read.audit_training)
    return _told(assembly.run(chosen, out, overwrite, attacked=True, seconds=seconds), out)


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

    return _told(assembly.run(_study(study), out, overwrite, attacked=False, engine=engine), out)


@click.command()
@folder_argument
@time_option
def attack(folder: Path, seconds: float | None) -> int:
    """Attack the releases of a finished study in FOLDER, and rewrite its report."""
    from privfed.study import assembly
    from privfed.study.output import Output

    return _told(assembly.attack(Output.opened(folder), seconds=seconds), folder)


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
def report(folder: Path, reader: str | None, policy: str, pdf: bool) -> int:
    """Rewrite the report of a finished study in FOLDER, or write a page for a board or a regulator."""
    from privfed.study import assembly
    from privfed.study.output import Output

    output = Output.opened(folder)
    if reader is None and not pdf:
        return _told(assembly.write_report(output), folder)
    click.echo(f"wrote {assembly.write_letter(output, reader or 'engineer', policy, pdf=pdf)}")
    return FINE


@click.command()
@study_argument
@click.option(
    "--epsilon", default="0.5,1,2,4,8", show_default=True, help="Comma-separated budgets."
)
@click.option(
    *("--runs", "runs"),
    cls=Renamed,
    formerly="--seeds",
    default=10,
    show_default=True,
    type=click.IntRange(1),
    help="Runs per budget, each with its own partition, held-out records and noise.",
)
@click.option("--out", type=PATH, default=Path("sweep"), show_default=True)
@overwrite_option
def sweep(study: Path | None, epsilon: str, runs: int, out: Path, overwrite: bool) -> int:
    """Measure utility against epsilon; write a tidy CSV and a plot to --out."""
    from privfed.privacy.accountant import written_epsilon
    from privfed.reports.sweep import write_sweep
    from privfed.study import assembly
    from privfed.study.output import written_whole

    chosen, budgets = _study(study), [part.strip() for part in epsilon.split(",")]
    for budget in budgets:
        written_epsilon(budget, "--epsilon")
    with written_whole(out, overwrite=overwrite) as folder:
        chosen.to_toml(folder / "study.toml")
        write_sweep(assembly.sweep(chosen, budgets, runs), folder, chosen.name)
    click.echo(f"wrote {out / 'sweep.csv'} and {out / 'sweep.html'}: an uncharged simulation")
    return FINE


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
    """Predict each row of a .csv TABLE by a MODEL.json that a study or ``save`` wrote."""
    from privfed.study import prediction

    predicted = prediction.predict(model, table, client, shelf)
    written = f"wrote {len(predicted)} predictions to {out}"
    return _write(predicted.to_csv(index=False), out, overwrite, written)


@click.command()
@study_argument
@click.option("--epsilon", help="Epsilon of every private policy, for a trial.")
@click.option("--delta", help="Delta of every private policy, for a trial.")
def price(study: Path | None, epsilon: str | None, delta: str | None) -> int:
    """Bound a study's cost from above: the fraction of each client's budget. Reads no records.

    Exit status 2 if no policy with a budget fits it.
    """
    from privfed.study import dry_run
    from privfed.study.price import any_fits, priced

    chosen = _study(study).at(epsilon, delta)
    prices = dry_run.prices(chosen)
    left = dry_run.owners_left(chosen, prices)
    for one in prices:
        click.echo(priced(one, left[one.policy.name]))
    if any_fits(prices, left):
        return FINE
    return bad("no policy fits its budget; nothing was charged")


@click.command()
@click.argument("table", type=PATH)
@click.option("--target", help="The column to predict.")
@click.option("--sep", default=",", show_default=True, help="Column separator.")
@click.option("--encoding", default="utf-8", show_default=True, help="Text encoding.")
@click.option("--decimal", default=".", show_default=True, help="Before a number's decimals.")
@click.option("--thousands", default="", help="Between groups of three digits.")
@click.option(
    "--categories",
    is_flag=True,
    help="Include the categories found in the records: an unprotected release (a value that only one "
    "person has identifies that person), and the file is marked so.",
)
@file_option
@replace_option
def schema(  # noqa: PLR0913 - click gives each option by its name
    table: Path,
    target: str | None,
    sep: str,
    encoding: str,
    decimal: str,
    thousands: str,
    categories: bool,
    out: Path | None,
    overwrite: bool,
) -> int:
    """Write a schema template for a .csv TABLE: names and kinds, without bounds."""
    from privfed.study import scaffold
    from privfed.tables.csv_text import Text

    text = Text(sep.replace("\\t", "\t"), encoding, decimal, thousands)
    template = scaffold.schema_text(table, target, text=text, categories=categories)
    written = f"wrote {out}; fill in its bounds, then name it under [data]"
    return _write(template, out, overwrite, written)


@click.command()
def plugins() -> int:
    """List installed plugins: mechanisms, accountants, queries, learners, attacks."""
    from privfed.questions import plugins as installed

    for group in installed.GROUPS:
        names = sorted(installed.available(group))
        width = max(map(len, names), default=0)
        click.echo(group)
        for name in names:
            click.echo(f"  {name:{width}} {installed.version(group, name)}")
    return FINE


def _write(text: str, out: Path | None, overwrite: bool, written: str) -> int:
    """Write a text to a file and say so, or to standard output."""
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

    return Study.built_in() if path is None else read_study(path)


def _told(report: Report, out: Path) -> int:
    """Print a report's summary; return its exit status."""
    from privfed.reports.remarks import silent
    from privfed.reports.text import summary

    click.echo(summary(report))
    click.echo(f"ledgers: {report.kept}")
    click.echo(f"report: {out / 'report.html'}")
    for text in report.breaches:
        click.echo(f"VIOLATED: {text}", err=True)
    if report.breaches:
        return BREACH
    for policy in report.silent:
        bad(f"policy {policy.name!r}: {silent(policy)}; there is no guarantee, and no model")
    return BAD_INPUT if report.silent else FINE
