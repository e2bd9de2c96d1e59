"""The plugin door: names become objects, and unknown ones list the known."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path

import pytest

from privfed.errors import PluginError
from privfed.questions import plugins

#: The attribute by which each group's classes call themselves.
CALLED = {"mechanisms": "name", "accountants": "name", "queries": "kind"}


@pytest.mark.parametrize(
    ("group", "name"),
    [(group, name) for group in plugins.GROUPS for name in sorted(plugins.available(group))],
)
def test_every_installed_name_loads(group: str, name: str) -> None:
    """Each name of ours stands for a class that calls itself so."""
    loaded = plugins.load(group, name)
    assert getattr(loaded, CALLED.get(group, ""), name) == name
    assert plugins.version(group, name).startswith("privfed ")


def test_the_core_is_installed() -> None:
    """The parametrised test above is not empty."""
    assert {"open", "refuse", "laplace", "gaussian", "randomized_response", "nullify"} <= set(
        plugins.available("mechanisms")
    )
    assert {"pure", "zcdp"} <= set(plugins.available("accountants"))


def test_unknown_names() -> None:
    """The name that was meant is told, or else all that there are; a group's likewise."""
    with pytest.raises(
        PluginError,
        match=r"called 'lapalce'; did you mean 'laplace'\? `privfed plugins mechanisms`",
    ):
        plugins.load("mechanisms", "lapalce")
    with pytest.raises(PluginError, match=r"no mechanism called 'zzz'; installed are .*laplace"):
        plugins.load("mechanisms", "zzz")
    with pytest.raises(PluginError, match="no plugin group 'engines'"):
        plugins.available("engines")
    assert plugins.version("mechanisms", "lapalce") == ""


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """Forget what is installed, before and after."""
    plugins.available.cache_clear()
    yield monkeypatch
    plugins.available.cache_clear()


def point(name: str, value: str) -> EntryPoint:
    """An entry point of no distribution."""
    return EntryPoint(name, value, "privfed.attacks")


def test_one_name_twice(fresh: pytest.MonkeyPatch) -> None:
    """Two distributions under one name are refused, both named."""
    points = [point("x", "one:X"), point("x", "two:X")]
    fresh.setattr(plugins, "entry_points", lambda group: points)
    with pytest.raises(PluginError, match="twice, by one:X and two:X"):
        plugins.available("attacks")


def test_a_group_that_nothing_reads_is_told(fresh: pytest.MonkeyPatch) -> None:
    """A slip in an entry point's group hides the plugin: the error of its name says so."""
    points = EntryPoints(
        [EntryPoint("x", "one:X", "privfed.attack"), EntryPoint("y", "y:Y", "other")]
    )
    fresh.setattr(plugins, "entry_points", lambda **named: points.select(**named))
    plugins.unread.cache_clear()
    told = "one:X installs the group 'privfed.attack', which nothing reads; did you mean 'privfed.attacks'?"
    assert plugins.unread() == (told,)
    with pytest.raises(PluginError, match=r"no attack called 'x'; .*; one:X installs the group"):
        plugins.load("attacks", "x")
    plugins.unread.cache_clear()


@pytest.mark.parametrize("value", ["no_such_module_here:X", "privfed.errors:NoSuchName"])
def test_broken_plugin(fresh: pytest.MonkeyPatch, value: str) -> None:
    """A plugin that cannot be imported is named, with its home."""
    fresh.setattr(plugins, "entry_points", lambda group: [point("x", value)])
    with pytest.raises(PluginError, match=f"attack 'x' of {value} cannot be loaded"):
        plugins.load("attacks", "x")


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("1 +", "cannot be loaded: SyntaxError: invalid syntax"),
        ("raise RuntimeError('no license')", "cannot be loaded: RuntimeError: no license"),
        ("X = 1", "is not a class derived from Attack"),
        ("from privfed.extend import AdditiveNoise as X", "is not a class derived from Attack"),
        ("from privfed.extend import Attack as X", "is not finished; write run"),
        (
            "from privfed.extend import Attack\nclass X(Attack):\n    name = 'x'\n    def run(self, *_): return []",
            "is not finished; write question = ...",
        ),
        ("from privfed.attacks.verbatim import Verbatim as X", "calls itself 'verbatim'"),
    ],
)
def test_faulty_plugins(fresh: pytest.MonkeyPatch, tmp_path: Path, code: str, told: str) -> None:
    """A module that raises, and what is no finished class of its group and name, are told with their home."""
    name = f"faulty_{abs(hash(code))}"
    (tmp_path / f"{name}.py").write_text(code)
    fresh.syspath_prepend(tmp_path)
    fresh.setattr(plugins, "entry_points", lambda group: [point("x", f"{name}:X")])
    with pytest.raises(PluginError, match=f"^attack 'x' of {name}:X.* {re.escape(told)}"):
        plugins.load("attacks", "x")


@pytest.mark.parametrize("above", ["", "@dataclass\n"])
def test_a_query_is_a_frozen_dataclass(
    fresh: pytest.MonkeyPatch, tmp_path: Path, above: str
) -> None:
    """Its digest is computed once: a field that changed later would be sent under another query's digest."""
    name = f"thawed_{len(above)}"
    (tmp_path / f"{name}.py").write_text(
        "from dataclasses import dataclass\nfrom privfed.extend import Query\n"
        f"{above}class X(Query):\n    kind = 'x'\n"
        "    def parts(self, schema): return {}\n    def evaluate(self, view): return {}\n"
    )
    fresh.syspath_prepend(tmp_path)
    fresh.setattr(plugins, "entry_points", lambda group: [point("x", f"{name}:X")])
    with pytest.raises(PluginError, match="no frozen dataclass; write @dataclass"):
        plugins.load("queries", "x")


def test_listing_imports_nothing() -> None:
    """Listing what is installed runs no plugin's code."""
    program = (
        "import sys; from privfed.questions import plugins; "
        "[plugins.available(group) for group in plugins.GROUPS]; "
        "print(any(name.startswith('privfed.mechanisms.') for name in sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "False"
