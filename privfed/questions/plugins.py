"""The only way from a name in text to an object: installed entry points, our own included.

Plugins are imported when first loaded; no class is ever built from a name found in data.
"""

from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from privfed.errors import PluginError, did_you_mean

#: The kinds of plugin, and what one of each is called.
GROUPS = {
    "laws": "law",
    "mechanisms": "mechanism",
    "accountants": "accountant",
    "queries": "query",
    "learners": "learner",
    "attacks": "attack",
}


@cache
def available(group: str) -> dict[str, EntryPoint]:
    """List what is installed in a group, by name (PluginError: one name by two distributions)."""
    if group not in GROUPS:
        raise PluginError(f"no plugin group {group!r}; the groups are {', '.join(GROUPS)}")
    found: dict[str, EntryPoint] = {}
    for point in entry_points(group=f"privfed.{group}"):
        other = found.get(point.name)
        if other is not None and other.value != point.value:
            raise PluginError(
                f"{group} {point.name!r} is installed twice, by {_source(other)} and {_source(point)}; "
                "uninstall one"
            )
        found[point.name] = point
    return found


def check(group: str, name: str) -> None:
    """Check that a name is installed, without importing it (PluginError: suggests a similar one)."""
    points = available(group)
    if name not in points:
        listed = f"; installed are {', '.join(sorted(points)) or 'none'}"
        hint = did_you_mean(name, points) or listed
        raise PluginError(f"no {GROUPS[group]} called {name!r}{hint}")


def load(group: str, name: str) -> Any:
    """Import what a name stands for; an unknown name's error says which there are."""
    check(group, name)
    points = available(group)
    try:
        return points[name].load()
    except (ImportError, AttributeError) as error:
        raise PluginError(
            f"{GROUPS[group]} {name!r} of {_source(points[name])} cannot be loaded: {error}"
        ) from None


def version(group: str, name: str) -> str:
    """The distribution and version that a name comes from, for the ledger."""
    point = available(group).get(name)
    return "" if point is None else _source(point)


def _source(point: EntryPoint) -> str:
    return f"{point.dist.name} {point.dist.version}" if point.dist else point.value
