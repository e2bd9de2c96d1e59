"""Commands that begin a study: its files, by an interview."""

from __future__ import annotations

from functools import partial
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from privfed.cli.common import FINE, PATH
from privfed.errors import InputError

if TYPE_CHECKING:
    from privfed.study.scaffold import Found

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
    """Write the files of a study into FOLDER, and ask for the options left out.

    No record's value is shown or written: bounds and categories are public knowledge.
    """
    from privfed.study.new_study import NewStudy
    from privfed.study.output import check_empty

    if folder.is_file():
        raise InputError(
            f"{folder}: is a file; name a new folder for the study, and its table by --table {folder}"
        )
    check_empty(folder)
    said = {key: value for key, value in given.items() if value is not None}
    answers = said if yes else _asked(said)
    if "table" not in answers:
        raise click.UsageError("--yes needs --table", click.get_current_context())
    answers.setdefault("target", _last(answers["table"]))
    paths = NewStudy(folder, **answers).write()
    for path in paths:
        click.echo(f"wrote {path}")
    if len(paths) == 2 and paths[1].name == "schema.toml":
        click.echo(f"fill in the bounds and categories that are missing in {paths[1]}; then:")
    click.echo(f"privfed price {folder / 'study.toml'}")
    return FINE


def _last(table: str) -> str:
    """The default target: the last column."""
    from privfed.study.new_study import columns_of

    return columns_of(table)[-1].name


def _asked(said: dict[str, Any]) -> dict[str, Any]:
    """Ask for what was not said; return all."""
    from privfed.study.choices import AboutChoice
    from privfed.study.new_study import LEARNERS, columns_of, learners
    from privfed.tables.sources import bundled

    def ask(key: str, question: str, default: str, **options: Any) -> None:
        if key not in said and (answer := click.prompt(question, default=default, **options)):
            said[key] = answer

    ask("table", "Table: a .csv, .csv.gz, .zip or .xlsx file, or a bundled set", "diabetes")
    columns = columns_of(said["table"])
    names = [column.name for column in columns]
    click.echo(f"its columns: {', '.join(names)}")
    one_of: dict[str, Any] = {"type": click.Choice(["", *names]), "show_choices": False}
    ask("target", "Which column is to be predicted?", names[-1], **one_of)
    names = [name for name in names if name != said["target"]]
    one_of["type"] = click.Choice(["", *names])
    likely = [name for name in names if name.lower() in _OWNERS]
    hint = "" if likely else " (Enter: five simulated owners)"
    one_of["show_default"] = bool(likely)
    ask(
        "owner",
        f"Which column names each record's data owner?{hint}",
        "".join(likely[:1]),
        **one_of,
    )
    one_of["show_default"] = False
    question = "Which column names the person, if one has several records? (Enter: none)"
    ask("individual", question, "", **one_of)
    if said["table"] not in bundled():
        beside = {said.get("owner"), said.get("individual")}
        columns = columns_of(said["table"], said["target"])
        said |= _public([column for column in columns if column.name not in beside], said["target"])
    fitting = learners(said["table"], said["target"], said.get("categories", {}))
    for name, makes in {**LEARNERS[True], **LEARNERS[False]}.items():
        if name in fitting:
            click.echo(f"  {name:24} {makes}")
    ask("learner", "Learner", fitting[0], type=click.Choice(fitting), show_choices=False)
    question = "Epsilon, the whole budget (`privfed epsilon 4` says it in odds)"
    ask("epsilon", question, "4", value_proc=_positive)
    if "lasting" not in said:
        question = "Real data, for more than one study? Ledgers are then persistent, with one budget for all studies"
        said["lasting"] = click.confirm(question, default=False)
    click.echo(
        "Who is responsible for the study? (Enter: leave open; its pages then list it as not stated):"
    )
    keys = [key for key in AboutChoice.__dataclass_fields__ if key != "registry"]
    about = {
        key: click.prompt(f"  {key.replace('_', ' ')}", default="", show_default=False)
        for key in keys
    }
    said["about"] = {key: text for key, text in about.items() if text}
    return said


def _public(columns: list[Found], target: str) -> dict[str, Any]:
    """Ask what each column can hold, which is public knowledge and not in the records."""
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
        said = click.prompt(
            f"  {column.name} ({column.kind})",
            default=default,
            show_default=bool(default),
            value_proc=partial(_held, column.kind == "category", column.name == target),
        )
        if said == "-":
            left_out.append(column.name)
        elif isinstance(said, tuple):
            bounds[column.name] = said
        elif isinstance(said, list):
            categories[column.name] = said
    return {"bounds": bounds, "categories": categories, "left_out": left_out}


def _positive(text: str) -> str:
    """Keep a number above zero as it is written."""
    try:
        good = 0 < float(text) < inf
    except ValueError:
        good = False
    if not good:
        raise click.BadParameter("write a number above 0, such as 4")
    return text


def _held(category: bool, target: bool, text: str) -> tuple[float, float] | list[str] | str:
    """Read categories split by commas, or of a column of numbers two bounds; another text is asked for again."""
    if text == "-" and target:
        raise click.BadParameter("it is what is to be predicted, and cannot be left out")
    if text in ("", "-"):
        return text
    listed = [part.strip() for part in text.split(",") if part.strip()]
    if len(listed) > 1:
        return listed
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
