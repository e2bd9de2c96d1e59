"""Date, machine and versions with which a page was made."""

import platform
import subprocess
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from privfed.questions import plugins

#: Packages besides this one that figures depend on.
DEPENDENCIES = ("numpy", "scipy", "scikit-learn", "pandas", "opendp", "dp-accounting")


def utc(timespec: str = "seconds") -> str:
    """Return the time now with its zone, such as ``2026-11-30T07:09:12Z``: the stamp of certificates and exports."""
    return datetime.now(UTC).isoformat(timespec=timespec).replace("+00:00", "Z")


def provenance() -> str:
    """Return date, versions, commit and machine, in one line."""
    packages = [f"{name} {number}" for name in DEPENDENCIES if (number := _version(name))]
    packages += [f"{name} {number}" for name, number in sorted(set(plugins.packages().values()))]
    tools = [
        f"privfed {_version('privfed')}{f' (commit {commit()})' if commit() else ''}",
        f"Python {platform.python_version()}",
    ]
    return (
        f"Made on {utc()} by {', '.join(tools)}, on {platform.system()} "
        f"{platform.machine()}; {', '.join(packages)}."
    )


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


@cache
def commit() -> str:
    """Return the commit of the checkout that this runs from, with a plus if files differ from it; empty if installed."""
    root = Path(__file__).resolve().parent.parent
    if not (root / ".git").exists():
        return ""
    try:
        head, changed = (
            subprocess.run(
                ["git", "-C", str(root), *words],
                capture_output=True,
                text=True,
                check=True,
                timeout=10,
            ).stdout.strip()
            for words in (["rev-parse", "--short", "HEAD"], ["status", "--porcelain", "-uno"])
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return head + "+" * bool(changed)
