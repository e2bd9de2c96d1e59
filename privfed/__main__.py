"""The command ``privfed``: stopped by Ctrl-C it says so in one line, even while modules are imported."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line and exit with its status."""
    try:
        from privfed.cli import main as command

        command()
    except KeyboardInterrupt:
        print("privfed: interrupted; nothing had begun", file=sys.stderr)
        sys.exit(130)  # as shells have it for a program that SIGINT ended


if __name__ == "__main__":
    main()
