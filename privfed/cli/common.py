"""What several commands share: exit statuses, arguments, options, one-line errors."""

from copy import copy
from pathlib import Path
from typing import Any

import click

FINE, BREACH, BAD_INPUT, FAULT, INTERRUPTED = 0, 1, 2, 3, 130  #: Exit status of each outcome
PATH: Any = click.Path(path_type=Path)
folder_argument = click.argument("folder", type=PATH)
client_option = click.option("--client", help="Only this client.")
policy_option = click.option("--policy", help="Only this policy.")


class Renamed(click.Option):
    """An option that is also understood by an earlier name, which help does not show."""

    def __init__(self, *arguments: Any, formerly: str, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.formerly = formerly

    def add_to_parser(self, parser: Any, ctx: click.Context) -> None:
        """Give the parser both names."""
        shown, self.opts = self.opts, [*self.opts, self.formerly]
        super().add_to_parser(parser, ctx)
        self.opts = shown


def renamed(command: click.Command) -> click.Command:
    """A command under its earlier name: hidden, otherwise the same."""
    hidden = copy(command)
    hidden.hidden = True
    return hidden


def bad(*faults: str) -> int:
    """Print one line for one fault; for several, one each after their number."""
    lines = [" ".join(fault.split()) for fault in faults]
    if len(lines) > 1:
        lines = [f"{len(lines)} faults", *(f"  {line}" for line in lines)]
    click.echo("privfed: " + "\n".join(lines), err=True)
    return BAD_INPUT
