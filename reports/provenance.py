"""When, where and with what a page was made: the same line on every page."""

import platform
import subprocess
from datetime import date
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from privfed.questions import plugins

#: What figures depend on, beside this package.
DEPENDENCIES = ("numpy", "scipy", "scikit-learn", "pandas", "opendp", "dp-accounting")


def provenance() -> str:
    """Date, versions, commit and machine, in one line."""
    packages = [f"{name} {found}" for name in DEPENDENCIES if (found := _version(name))]
    packages += [f"{name} {found}" for name, found in sorted(set(plugins.packages().values()))]
    made = [
        f"privfed {_version('privfed')}{f' (commit {commit()})' if commit() else ''}",
        f"Python {platform.python_version()}",
    ]
    return (
        f"Made on {date.today().isoformat()} by {', '.join(made)}, on {platform.system()} "
        f"{platform.machine()}; {', '.join(packages)}."
    )


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


@cache
def commit() -> str:
    """The commit of a checkout that this runs from; nothing for an installed package."""
    root = Path(__file__).resolve().parent.parent
    if not (root / ".git").exists():
        return ""
    asked = ["git", "-C", str(root), "rev-parse", "--short", "HEAD"]
    try:
        done = subprocess.run(asked, capture_output=True, text=True, check=True, timeout=10)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip()
