"""The slim distribution stands by itself: its packages alone, with numpy and pandas and nothing else."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
#: What numpy and pandas need themselves.
THEIRS = {"numpy", "pandas", "dateutil", "pyarrow", "pytz", "six", "tzdata", "cython_runtime"}
TRY = """
import sys
sys.meta_path = [one for one in sys.meta_path if "__editable__" not in repr(one)]
import pandas
before = set(sys.modules)
from privfed.testing import assert_no_raw, assert_support, assert_ledger, sentinels
import privfed.testing.plugin
table = sentinels(pandas.DataFrame({"age": range(20, 60), "mail": [f"x{n}y{n}@example.org" for n in range(40)]}), 50)
assert_no_raw({"n": 50}, table)
try:
    assert_no_raw(f"sent to {table['mail'][7]}", table)
except AssertionError as found:
    print(str(found).splitlines()[0])
try:
    from privfed.testing import assert_dp
except ImportError as error:
    print(error)
new = {name.split(".")[0] for name in set(sys.modules) - before} - set(sys.stdlib_module_names)
print(*sorted(one for one in new if not one.startswith("_")))
"""


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """What a script says that has the slim distribution's packages alone."""
    project = tomllib.loads((ROOT / "packaging/testing/pyproject.toml").read_text())
    folder = tmp_path_factory.mktemp("slim")
    for package in project["tool"]["setuptools"]["packages"]:
        target = folder / package.replace(".", "/")
        target.mkdir(parents=True, exist_ok=True)
        for module in (ROOT / package.replace(".", "/")).glob("*.py"):
            shutil.copy(module, target)

    ran = subprocess.run(
        [sys.executable, "-c", TRY],
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    )
    return ran.stdout.splitlines()


def test_it_finds_a_leak(said: list[str]) -> None:
    """With the modules that its pyproject.toml names."""
    assert said[0] == "raw values left (1 finding):"


def test_what_it_lacks_it_names(said: list[str]) -> None:
    """The audit of a claim needs all of privfed, and the error says so."""
    assert said[1].startswith("assert_dp is not in privfed-testing") and len(said) == 3


def test_it_imports_numpy_and_pandas_alone(said: list[str]) -> None:
    """No library that a stranger's suite would have to install; pytest is there already."""
    assert set(said[2].split()) - THEIRS <= {
        "privfed",
        "pytest",
        "py",
        "pluggy",
        "iniconfig",
        "pygments",
    }
