"""The command line.

Exit status: 0 success; 1 a guarantee is violated, or a ledger does not verify; 2 bad input (one line:
what, where, what to write instead) or a policy under which nothing was released; 3 an internal error
(its text may hold data, and is shown only if ``PRIVFED_TRACEBACK`` is set).

Modules are imported when a command runs, so that ``privfed --help`` loads neither tables nor learners.
"""

import errno
import os
import sys
import traceback
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import click

from privfed import __version__
from privfed.cli.beginning import study
from privfed.cli.common import BAD_INPUT, BREACH, FAULT, FINE, INTERRUPTED, bad
from privfed.cli.guards import check_guard
from privfed.cli.ledgers import key, ledger
from privfed.cli.odds import epsilon
from privfed.cli.papers import reproduce
from privfed.cli.releasing import release
from privfed.cli.serving import flare, flower, owner, serve_client
from privfed.cli.studies import (
    attack,
    audit,
    export,
    plugins,
    predict,
    price,
    report,
    run,
    schema,
    sweep,
    synthesize,
)
from privfed.errors import DataWarning, InputError, Note, PrivfedError
from privfed.interrupts import interrupted, noting

#: Errors of the machine, not of privfed: a disk that is full, read-only or broken, no permission.
MACHINE_ERRORS = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO}
#: Errors in a path that the user wrote: a file instead of a folder, too long, missing.
PATH_ERRORS = {errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ENOTEMPTY, errno.ENAMETOOLONG, errno.ELOOP}  # fmt: skip
KEPT = "No output was written; persistent ledgers keep what was charged"

__all__ = ["BAD_INPUT", "BREACH", "FAULT", "FINE", "commands", "main", "status"]


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="privfed")
def commands() -> None:
    """Audit what federated, interpretable learning discloses."""


for command in (
    *(study, audit, run, attack, report, export, sweep, reproduce),
    *(predict, synthesize, price, epsilon, schema, plugins),
    *(release, check_guard, ledger, key, serve_client, owner, flower, flare),
):
    commands.add_command(command)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit with its status."""
    sys.exit(status(arguments))


def status(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status; errors are one line on standard error."""
    try:
        with _notes(), noting():
            returned: Any = commands.main(arguments, prog_name="privfed", standalone_mode=False)
        return returned if isinstance(returned, int) else FINE
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
        return BAD_INPUT
    except click.ClickException as error:
        return bad(_usage(error))
    except (KeyboardInterrupt, click.exceptions.Abort) as stop:
        if isinstance(stop.__context__, EOFError):
            return bad(
                "the input ended at a question; answer it, or write --yes, which asks nothing"
            )
        return _interrupted()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FINE
    except Exception as error:
        if interrupted():
            return _interrupted()
        if isinstance(error, InputError):
            return bad(*error.faults)
        if isinstance(error, PrivfedError):
            return bad(str(error))
        if isinstance(error, OSError) and error.errno in MACHINE_ERRORS | PATH_ERRORS:
            where = f"{error.filename}: " if error.filename else ""
            why = (error.strerror or type(error).__name__).lower()
            remedy = "make room, or name a place that can be written"
            return bad(
                f"{where}{why}; {'check the path' if error.errno in PATH_ERRORS else remedy}. {KEPT}"
            )
        if isinstance(error, RuntimeError) and "Symlink loop" in str(
            error
        ):  # Path.resolve until 3.12
            return bad(f"a symbolic link leads back to itself; check the path. {KEPT}")
        return _fault(error)


def _usage(error: click.ClickException) -> str:
    """Format an error in the arguments, with the command's --help as its remedy."""
    text, context = error.format_message(), getattr(error, "ctx", None)
    if context is None:
        return text
    return f"{text}{'' if text.endswith(('.', '?')) else '.'} See {context.command_path} --help"


def _interrupted() -> int:
    bad("interrupted; no output was written. Persistent ledgers keep what was charged")
    exec("")  # noqa: S102 - Python ends as killed where the last exec of text was interrupted
    return INTERRUPTED


@contextmanager
def _notes() -> Iterator[None]:
    """Show each note once, on one line, and no warnings of other libraries, which may hold data."""
    shown: set[str] = set()

    def show(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
        text = " ".join(str(message).split())
        if issubclass(category, (Note, DataWarning)) and text not in shown:
            shown.add(text)
            click.echo(f"privfed: note: {text}", err=True)

    with warnings.catch_warnings():
        warnings.showwarning = show
        yield


def _fault(error: Exception) -> int:
    if os.environ.get("PRIVFED_TRACEBACK"):
        traceback.print_exc()
    from privfed.questions.plugins import blamed

    click.echo(
        f"privfed: {blamed(error) or 'internal error'} ({type(error).__name__}); no output was written. Persistent ledgers "
        "keep what was charged. Set PRIVFED_TRACEBACK=1 to see where (the text may hold data)",
        err=True,
    )
    return FAULT
