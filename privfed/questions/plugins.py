"""Look up objects by name, only among installed entry points (also for built-in ones).

Plugins are imported when first loaded. No class is ever looked up otherwise from a name in data.
"""

import sys
from collections.abc import Iterable
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

from privfed.errors import Faults, PluginError, PrivfedError, did_you_mean
from privfed.tables.toml_file import naming

#: The groups of plugins, and the name of one member of each.
GROUPS = {
    "laws": "law",
    "mechanisms": "mechanism",
    "accountants": "accountant",
    "queries": "query",
    "learners": "learner",
    "attacks": "attack",
}
#: Base class of each group's plugins, by name, so that looking it up imports nothing.
BASES = {
    "laws": ("privfed.privacy.laws", "Law"),
    "mechanisms": ("privfed.privacy.mechanism", "Mechanism"),
    "accountants": ("privfed.privacy.accountant", "Accountant"),
    "queries": ("privfed.questions.query", "Query"),
    "learners": ("privfed.learners.base", "FederatedLearner"),
    "attacks": ("privfed.attacks.base", "Attack"),
}

NAMES = "name", "kind"  #: Attributes that hold a plugin's name


@cache
def available(group: str) -> dict[str, EntryPoint]:
    """Return a group's installed plugins by name (PluginError: two distributions use one name)."""
    if group not in GROUPS:
        raise PluginError(f"no plugin group {group!r}; the groups are {', '.join(GROUPS)}")
    points: dict[str, EntryPoint] = {}
    for point in entry_points(group=f"privfed.{group}"):
        other = points.get(point.name)
        if other is not None and other.value != point.value:
            raise PluginError(
                f"{GROUPS[group]} {point.name!r} is installed twice, by {_source(other)} and {_source(point)}; "
                "uninstall one"
            )
        points[point.name] = point
    return points


def check(group: str, name: str) -> None:
    """Check that a name is installed, without importing it (else PluginError, with a similar name)."""
    points = available(group)
    if name not in points:
        listed = f"; installed are {', '.join(sorted(points)) or 'none'}"
        hint = did_you_mean(name, points)
        hint = f"{hint} `privfed plugins {group}` lists all" if hint else listed
        raise PluginError("; ".join([f"no {GROUPS[group]} called {name!r}{hint}", *unread()]))


@cache
def unread() -> tuple[str, ...]:
    """Groups of installed entry points that are named like those of plugins and are none, in words."""
    known = {f"privfed.{group}" for group in GROUPS}
    strange = {
        f"{_source(point)} installs the group {point.group!r}, which nothing reads"
        f"{did_you_mean(point.group, known)}"
        for group in sorted(entry_points().groups)
        if group.startswith("privfed") and group not in known
        for point in entry_points(group=group)
    }
    return tuple(sorted(strange))


def check_all(named: Iterable[tuple[str, str]], where: str, faults: Faults) -> None:
    """Run :func:`check` on all (group, name) pairs of the file ``where``, collecting the faults."""
    for group, name in named:
        with faults.collected(), naming(where):
            check(group, name)


def load(group: str, name: str) -> Any:
    """Import the class installed under a name.

    Raises:
        PluginError: the name is unknown (the known ones are listed), its module raises, or the object is no
            class of its group, lacks methods, or has another name.
    """
    check(group, name)
    point = available(group)[name]
    try:
        loaded = point.load()
    except Exception as error:  # importing a module may raise anything
        known = isinstance(error, ImportError | AttributeError)
        reason = f"cannot be loaded: {error if known else f'{type(error).__name__}: {error}'}"
        raise PluginError(f"{GROUPS[group]} {name!r} of {_source(point)} {reason}") from error
    if fault := _fault(group, name, loaded):
        raise PluginError(f"{GROUPS[group]} {name!r} of {_source(point)} {fault}")
    return loaded


def unusable(group: str, name: str) -> str:
    """Why what is installed by a name cannot be loaded, or nothing."""
    try:
        load(group, name)
    except PluginError as error:
        return str(error)
    return ""


def _fault(group: str, name: str, loaded: Any) -> str:
    module, base = BASES[group]
    derived = getattr(sys.modules.get(module), base, None)
    if derived is None or not (isinstance(loaded, type) and issubclass(loaded, derived)):
        return f"is not a class derived from {base}; see docs/plugins.md"
    if lacking := ", ".join(sorted(getattr(loaded, "__abstractmethods__", ()))):
        return f"is not finished; write {lacking}"
    if lacking := ", ".join(n for n in derived.__annotations__ if not _has(loaded, derived, n)):
        return f"is not finished; write {lacking} = ..., as docs/plugins.md says"
    params = getattr(loaded, "__dataclass_params__", None)
    if group == "queries" and not getattr(params, "frozen", False):
        return "is no frozen dataclass; write @dataclass(frozen=True) above it"
    word = {"queries": "kind", "learners": "__name__"}.get(group, "name")
    actual = getattr(loaded, word, None)
    if actual != name:
        return f"calls itself {actual!r} ({word}); write the same name in the entry point and the class"
    return ""


def _has(loaded: type, base: type, name: str) -> bool:
    """Whether a class has an attribute that its base class requires of every class; names are checked apart."""
    required = str(base.__annotations__[name]).startswith("ClassVar") and name not in NAMES
    return not required or hasattr(loaded, name)


def taken(group: str, name: str, kind: type) -> bool:
    """Whether another class is installed by a name, for which files and ledgers would be read."""
    return name in available(group) and load(group, name) is not kind


@cache
def packages() -> dict[str, tuple[str, str]]:
    """The distributions of installed plugins that are not ours, by the module that each is in: name and version."""
    distributions = {}
    for group in GROUPS:
        for point in entry_points(group=f"privfed.{group}"):
            module = point.module.partition(".")[0]
            if module != "privfed" and point.dist is not None:
                distributions[module] = (point.dist.name, point.dist.version)
    return distributions


def blamed(error: Exception) -> str:
    """The installed plugin of another package in whose code an error was raised last, in words; or nothing."""
    location, trace = "", error.__traceback__
    while trace is not None:
        code, module = trace.tb_frame.f_code, str(trace.tb_frame.f_globals.get("__name__"))
        if home := packages().get(module.partition(".")[0]):
            line = f"line {trace.tb_lineno} of {Path(code.co_filename).name}"
            location = f"error in the plugin {' '.join(home)}: {code.co_name}, {line}"
        trace = trace.tb_next
    return location


def described(error: Exception) -> str:
    """Describe a plugin's error that does not end a study: :func:`located`, or our own text, which holds no data."""
    return str(error) if isinstance(error, PrivfedError) else located(error)


def raised_here(error: Exception) -> bool:
    """Whether a function of privfed itself raised an error."""
    place = error.__traceback__
    while place is not None and place.tb_next is not None:
        place = place.tb_next
    return place is not None and str(place.tb_frame.f_globals.get("__name__")).startswith(
        "privfed."
    )


def located(error: Exception) -> str:
    """Return a plugin's error's type and line, without its text, which may hold data."""
    return ", ".join(filter(None, [type(error).__name__, blamed(error)]))


def version(group: str, name: str) -> str:
    """Return the distribution and version that a name comes from."""
    point = available(group).get(name)
    return "" if point is None else _source(point)


def _source(point: EntryPoint) -> str:
    return f"{point.dist.name} {point.dist.version}" if point.dist else point.value
