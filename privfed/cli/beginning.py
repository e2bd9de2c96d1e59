"""Commands that create a study's files, by an interview."""

from __future__ import annotations

import shlex
from functools import partial
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from privfed.cli.common import FINE, PATH
from privfed.errors import InputError

if TYPE_CHECKING:
    from privfed.study.scaffold import ColumnSummary

_OWNERS = ("hospital", "clinic", "site", "center", "centre", "client", "owner")


@click.group()
def study() -> None:
    """Begin a study."""


@study.command("new")
@click.argument("folder", type=PATH)
@click.option("--table", help="Table: a .csv, .csv.gz, .zip or .xlsx file, or a bundled set.")
@click.option("--target", help="The column to predict.")
@click.option("--owner", help="The column that names each record's data owner.")
@click.option("--individual", help="The column that names the person behind each record.")
@click.option("--learner", help="The learner, by name; the interview lists them.")
@click.option("--epsilon", help="The whole budget.")
@click.option("--lasting/--simulation", default=None, help="Persistent ledgers, one budget.")
@click.option("--yes", is_flag=True, help="Ask nothing: options left out take their defaults.")
def new_study(folder: Path, yes: bool, **given: Any) -> int:
    """Write the files of a study into FOLDER. It asks for the options that are left out.

    No record's value is shown or written: bounds and categories are public knowledge.
    """
    from privfed.study.new_study import NewStudy
    from privfed.study.output import check_empty

    if folder.is_file():
        raise InputError(
            f"{folder}: is a file; name a new folder for the study, and its table by --table {folder}"
        )
    check_empty(folder)
    options = {key: value for key, value in given.items() if value is not None}
    answers = options if yes else _ask_missing(options)
    if "table" not in answers:
        raise click.UsageError("--yes needs --table", click.get_current_context())
    answers.setdefault("target", _default_target(answers["table"]))
    paths = NewStudy(folder, **answers).write()
    for path in paths:
        click.echo(f"wrote {path}")
    if len(paths) == 2 and paths[1].name == "schema.toml":
        click.echo(f"fill in the bounds and categories that are missing in {paths[1]}; then:")
    click.echo(f"privfed price {shlex.quote(str(folder / 'study.toml'))}")
    return FINE


def _default_target(table: str) -> str:
    """Return the default target, the last column."""
    from privfed.study.new_study import columns_of

    return columns_of(table)[-1].name


def _ask_missing(answers: dict[str, Any]) -> dict[str, Any]:
    """Ask for the options left out; return all."""
    from privfed.study.choices import AboutChoice
    from privfed.study.new_study import LEARNERS, columns_of, learners
    from privfed.tables.sources import bundled

    def ask(key: str, question: str, default: str, **options: Any) -> None:
        if key not in answers and (answer := click.prompt(question, default=default, **options)):
            answers[key] = answer

    ask("table", "Table: a .csv, .csv.gz, .zip or .xlsx file, or a bundled set", "diabetes")
    columns = columns_of(answers["table"])
    names = [column.name for column in columns]
    click.echo(f"its columns: {', '.join(names)}")
    choice: dict[str, Any] = {"type": click.Choice(["", *names]), "show_choices": False}
    ask("target", "Which column is to be predicted?", names[-1], **choice)
    names = [name for name in names if name != answers["target"]]
    choice["type"] = click.Choice(["", *names])
    matches = [name for name in names if name.lower() in _OWNERS]
    hint = "" if matches else " (Enter: five simulated owners)"
    choice["show_default"] = bool(matches)
    ask(
        "owner",
        f"Which column names each record's data owner?{hint}",
        "".join(matches[:1]),
        **choice,
    )
    choice["show_default"] = False
    question = "Which column names the person, if one has several records? (Enter: none)"
    ask("individual", question, "", **choice)
    if answers["table"] not in bundled():
        excluded = {answers.get("owner"), answers.get("individual")}
        columns = columns_of(answers["table"], answers["target"])
        answers |= _ask_domains(
            [column for column in columns if column.name not in excluded], answers["target"]
        )
    suitable = learners(answers["table"], answers["target"], answers.get("categories", {}))
    for name, summary in {**LEARNERS[True], **LEARNERS[False]}.items():
        if name in suitable:
            click.echo(f"  {name:24} {summary}")
    ask("learner", "Learner", suitable[0], type=click.Choice(suitable), show_choices=False)
    question = "Epsilon, the whole budget (`privfed epsilon 4` says it in odds)"
    ask("epsilon", question, "4", value_proc=_check_positive)
    if "lasting" not in answers:
        question = "Real data, for more than one study? Ledgers are then persistent, with one budget for all studies"
        answers["lasting"] = click.confirm(question, default=False)
    click.echo(
        "Who is responsible for the study? (Enter: leave open; its pages then list it as not stated):"
    )
    keys = [key for key in AboutChoice.__dataclass_fields__ if key != "registry"]
    about = {
        key: click.prompt(f"  {key.replace('_', ' ')}", default="", show_default=False)
        for key in keys
    }
    answers["about"] = {key: text for key, text in about.items() if text}
    return answers


def _ask_domains(columns: list[ColumnSummary], target: str) -> dict[str, Any]:
    """Ask for each column's bounds or categories, from public knowledge, not from the records."""
    click.echo(
        "What each column can hold: from the form, the instrument or the regulation, not from the records."
    )
    click.echo(
        "Numbers: least and greatest, such as 0 120. Categories: all, split by commas. Enter: later. -: no feature."
    )
    bounds: dict[str, tuple[float, float]] = {}
    categories: dict[str, list[str]] = {}
    left_out: list[str] = []
    for column in columns:
        if column.fault:
            click.echo(f"  {column.name}: {column.fault}")
        default = "-" if column.fault and column.name != target else ""
        answer = click.prompt(
            f"  {column.name} ({column.kind})",
            default=default,
            show_default=bool(default),
            value_proc=partial(_parse_domain, column.kind == "category", column.name == target),
        )
        if answer == "-":
            left_out.append(column.name)
        elif isinstance(answer, tuple):
            bounds[column.name] = answer
        elif isinstance(answer, list):
            categories[column.name] = answer
    return {"bounds": bounds, "categories": categories, "left_out": left_out}


def _check_positive(text: str) -> str:
    """Check that a text is a positive number, and return it unmodified."""
    try:
        valid = 0 < float(text) < inf
    except ValueError:
        valid = False
    if not valid:
        raise click.BadParameter("write a number above 0, such as 4")
    return text


def _parse_domain(category: bool, target: bool, text: str) -> tuple[float, float] | list[str] | str:
    """Parse comma-separated categories, or two bounds of a numeric column (BadParameter: click asks again)."""
    if text == "-" and target:
        raise click.BadParameter("it is what is to be predicted, and cannot be left out")
    if text in ("", "-"):
        return text
    values = [part.strip() for part in text.split(",") if part.strip()]
    if len(values) > 1:
        return values
    if category:
        raise click.BadParameter("write all categories, split by commas, such as no, yes")
    try:
        lower, upper = (float(part) for part in text.split())
    except ValueError:
        raise click.BadParameter(
            "write two numbers, such as 0 120, or categories split by commas"
        ) from None
    if not -inf < lower < upper < inf:
        raise click.BadParameter(
            "the least comes first, and is below the greatest; both are finite"
        )
    return int(lower) if lower.is_integer() else lower, int(upper) if upper.is_integer() else upper
