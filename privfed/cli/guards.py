"""The command that checks guards of other libraries."""

import json
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import click

from privfed.cli.common import BREACH, FINE, PATH
from privfed.errors import InputError


@click.command()
@click.argument("guard")
@click.option("--epsilon", type=float, required=True, help="Claimed epsilon (nats) of all rounds.")
@click.option("--delta", type=float, default=0.0, help="Claimed delta of all rounds.")
@click.option("--unit", default="client", help="What is protected: client or record.")
@click.option("--relation", default="add-or-remove", help="How neighbours differ.")
@click.option("--rounds", type=int, help="Rounds that the claim covers.")
@click.option("--clip", type=float, help="L2 norm to which an update is clipped.")
@click.option("--noise", default="", help="Claimed noise: gaussian or laplace.")
@click.option("--scale", type=float, help="Scale of the noise of one round.")
@click.option("--options", default="", help="Arguments of the guard's class, as JSON.")
@click.option("--shape", default="", help="Shapes of the model's arrays, such as 20x4,20,scalar.")
@click.option("--table", type=PATH, help="A .csv file, for a function of a table.")
@click.option("--runs", type=int, default=4000, help="Answers drawn in each game.")
@click.option("--out", type=PATH, help="A folder for guard.json and guard.html.")
@click.option("--overwrite", is_flag=True, help="Replace an earlier output in --out.")
def check_guard(
    guard: str,
    options: str,
    shape: str,
    table: Path | None,
    runs: int,
    out: Path | None,
    overwrite: bool,
    **claim: Any,
) -> int:
    """Check a GUARD written by others against its claim.

    \b
    privfed check-guard flower:MODULE:MOD --epsilon 1 --delta 1e-5 --clip 1 --noise gaussian --rounds 10
    privfed check-guard flare:MODULE:CLASS --options '{"epsilon": 0.1}' --epsilon 0.1
    privfed check-guard python:MODULE:FUNCTION --table data.csv --unit record --epsilon 1

    The guard's code is imported and run here, as often as --runs says. Exit status 1: it is convicted.
    """
    from privfed.guards.claim import GuardClaim
    from privfed.guards.trial import SHAPES
    from privfed.guards.verdict import check_guard as checked
    from privfed.reports.guard import guard_page
    from privfed.study.output import written_whole
    from privfed.study.scaffold import form_of
    from privfed.tables.sources import read_table

    sys.path.insert(0, "")
    with nullcontext() if out is None else written_whole(out, overwrite=overwrite) as folder:
        verdict = checked(
            guard,
            GuardClaim(**claim),
            options=_options(options),
            shapes=_shapes(shape) if shape else SHAPES,
            table=None if table is None else read_table(table, text=form_of(table)),
            runs=runs,
        )
        click.echo(verdict.text())
        if folder is not None:
            data = verdict.to_dict()
            text = json.dumps(data, indent=1, default=float, allow_nan=True)
            (folder / "guard.json").write_text(text + "\n", encoding="utf-8")
            (folder / "guard.html").write_text(guard_page(data), encoding="utf-8")
    if out is not None:
        click.echo(f"written: {out / 'guard.json'}, {out / 'guard.html'}")
    return BREACH if verdict.convicting else FINE


def _options(text: str) -> dict[str, Any] | None:
    if not text:
        return None
    try:
        data = json.loads(text)
    except ValueError:
        data = None
    if not isinstance(data, dict):
        raise InputError("""--options is a JSON object, such as '{"epsilon": 0.1}'""")
    return data


def _shapes(text: str) -> list[tuple[int, ...]]:
    try:
        return [
            () if shape == "scalar" else tuple(int(size) for size in shape.split("x"))
            for shape in text.split(",")
        ]
    except ValueError:
        raise InputError("--shape is written as 20x4,20,scalar") from None
