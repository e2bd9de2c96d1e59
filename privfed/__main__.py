"""The command ``privfed``; Ctrl-C ends it with one line, even while modules are imported."""

import os
import signal
import sys
from types import FrameType


def _end(_signal: int, _frame: FrameType | None) -> None:
    """Exit immediately: an exception raised within an import's callbacks would be lost."""
    os.write(2, b"privfed: interrupted; nothing had begun\n")
    os._exit(130)


def main() -> None:
    """Run the command line and exit with its status."""
    before = signal.getsignal(signal.SIGINT)
    try:
        if before is signal.default_int_handler:
            signal.signal(signal.SIGINT, _end)
        try:
            from privfed.cli import main as command
        finally:
            signal.signal(signal.SIGINT, before)

        command()
    except KeyboardInterrupt:
        print("privfed: interrupted; nothing had begun", file=sys.stderr)
        exec("")  # noqa: S102 - as in privfed.cli
        sys.exit(130)  # the shells' status of a program that SIGINT ended


if __name__ == "__main__":
    main()
