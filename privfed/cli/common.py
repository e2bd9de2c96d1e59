"""Exit statuses, arguments, options and one-line errors of several commands."""

from pathlib import Path
from typing import Any

import click

FINE, BREACH, BAD_INPUT, FAULT, INTERRUPTED = 0, 1, 2, 3, 130  #: Exit status of each outcome
PATH: Any = click.Path(path_type=Path)
folder_argument = click.argument("folder", type=PATH)
client_option = click.option("--client", help="Only this client.")
policy_option = click.option("--policy", help="Only this policy.")


def bad(*faults: str) -> int:
    """Print one fault on one line; several on a line each, after their number."""
    lines = [" ".join(fault.split()) for fault in faults]
    if len(lines) > 1:
        lines = [f"{len(lines)} faults", *(f"  {line}" for line in lines)]
    click.echo("privfed: " + "\n".join(lines), err=True)
    return BAD_INPUT
