"""Queries about the open nodes: each client about its own trees, with client splits decided."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from privfed.errors import NobodyAnswered
from privfed.exchange.disclosure import Disclosure
from privfed.exchange.messages import Release
from privfed.learners.forest.gains import together
from privfed.learners.forest.level import NodeFeatures, OpenNodes
from privfed.learners.forest.mixture import between_shown
from privfed.questions.query import Query

PORTION = 4096  #: Pairs or nodes that the server processes at once


@dataclass(frozen=True, eq=False)
class Version:
    """One client's version of a level, with its nodes' and pairs' indices in the whole level."""

    level: OpenNodes
    nodes: np.ndarray
    numeric: np.ndarray
    grouped: np.ndarray


def versions(level: OpenNodes, members: np.ndarray, features: int) -> list[Version | None]:
    """Return each client's version of a level; None for a client that takes part in no open tree.

    Clients with equal versions get the same object, and so the same query.

    Args:
        level: the whole level.
        members: clients' participation in trees, shape (clients, trees).
        features: number of features, which is the client's index in trees.
    """
    by_client = bool((level.trees.feature == features).any())
    seen: dict[bytes, Version | None] = {}
    result = []
    for client, member in enumerate(members):
        key = np.packbits(member).tobytes() + (client.to_bytes(4) if by_client else b"")
        if key not in seen:
            seen[key] = _version(level, member, client, features)
        result.append(seen[key])
    return result


def _version(level: OpenNodes, member: np.ndarray, client: int, features: int) -> Version | None:
    selected = member[level.trees.tree_of[level.nodes]]
    nodes = np.flatnonzero(selected)
    if not len(nodes):
        return None
    trees, kept = level.trees.seen_by(client, features).only(member)
    numeric, grouped = (
        np.flatnonzero(selected[pairs.nodes]) for pairs in (level.numeric, level.grouped)
    )
    local = replace(
        level,
        trees=trees,
        sampling=replace(level.sampling, trees=level.sampling.trees[member]),
        nodes=np.searchsorted(kept, level.nodes[nodes]),
        numeric=NodeFeatures(level.numeric.sizes[nodes], level.numeric.features[numeric]),
        grouped=NodeFeatures(level.grouped.sizes[nodes], level.grouped.features[grouped]),
    )
    return Version(local, nodes, numeric, grouped)


@dataclass(frozen=True, eq=False)
class PartReplies:
    """The clients' releases of one part."""

    clients: int  #: how many there are
    items: int  #: number of nodes or pairs of the whole level
    #: client, its items and its array (items first), for each client that released the part
    arrays: list[tuple[int, np.ndarray, np.ndarray]]

    def __bool__(self) -> bool:
        return bool(self.arrays)

    def portions(self) -> Iterator[slice]:
        """Yield slices of items that fit the processor's cache."""
        for first in range(0, max(self.items, 1), PORTION):
            yield slice(first, min(first + PORTION, self.items))

    def total(self, portion: slice | None = None) -> np.ndarray:
        """Return the sum over clients, suppressed cells as zero, shape (items, ...) or of a portion of them."""
        chosen = portion or slice(0, self.items)
        total = np.zeros((chosen.stop - chosen.start, *self.arrays[0][2].shape[1:]), np.int64)
        for _, items, array in self.arrays:
            if len(items) == self.items:
                total += array[chosen]
            else:
                low, high = np.searchsorted(items, (chosen.start, chosen.stop))
                total[items[low:high] - chosen.start] += array[low:high]
        return total

    def at(self, chosen: np.ndarray) -> np.ndarray:
        """Return each client's array at some items, zero if not released, shape (clients, chosen, ...)."""
        _, _, first = self.arrays[0]
        result = np.zeros((self.clients, len(chosen), *first.shape[1:]), first.dtype)
        for client, items, array in self.arrays:
            if len(items) == self.items:
                result[client] = array[chosen]
                continue
            index = np.searchsorted(items, chosen)
            known = np.append(items, -1)[index] == chosen
            result[client, known] = array[index[known]]
        return result

    def everywhere(self, portion: slice | None = None) -> np.ndarray:
        """Return each client's array at all items, or at a portion of them, shape (clients, items, ...)."""
        return self.at(np.arange(self.items)[portion or slice(None)])


@dataclass(frozen=True, eq=False)
class Summed:
    """Released class counts, or counts and sums, by item; with `by_client` each client is a class."""

    counts: PartReplies
    sums: PartReplies | None = None
    by_client: bool = False

    def at(self, chosen: np.ndarray) -> np.ndarray:
        """Return each client's statistics at some items, shape (clients, chosen, ..., statistics)."""
        counts = self.counts.at(chosen)
        if not self.by_client:
            return together(counts, None if self.sums is None else self.sums.at(chosen))
        one_hot = np.eye(self.counts.clients, dtype=np.int64)
        return counts * one_hot.reshape(len(one_hot), *(1,) * (counts.ndim - 2), -1)

    def total(self, portion: slice | None = None) -> np.ndarray:
        """Return the sum over clients, shape (items, ..., statistics), or of a portion of the items."""
        if self.by_client:
            chosen = np.arange(self.counts.items)[portion or slice(None)]
            return np.asarray(self.at(chosen).sum(axis=0))
        sums = None if self.sums is None else self.sums.total(portion)
        return together(self.counts.total(portion), sums)


@dataclass(frozen=True, eq=False)
class LevelReplies:
    """The clients' releases for one query about a level; None for a client without one."""

    level: OpenNodes
    versions: Sequence[Version | None]
    releases: Sequence[Release | None]

    def part(self, name: str) -> PartReplies:
        """Return one part in exact units, with suppressed cells zero, and suppressed ranks interpolated."""
        items = "numeric" if name in ("knots", "bins", "bin_sums", "gains") else "nodes"
        items = "grouped" if name.startswith("group") else items
        arrays = []
        for client, (version, release) in enumerate(zip(self.versions, self.releases, strict=True)):
            if version is None or release is None or name not in release:
                continue
            units, mask = release.parts[name].units, release.parts[name].mask
            if mask is not None:
                units = between_shown(units, mask) if name == "knots" else np.where(mask, 0, units)
            arrays.append((client, getattr(version, items), units))
        if items == "grouped":  # width of each client's widest feature
            widest = max((units.shape[1] for _, _, units in arrays), default=0)
            arrays = [(client, index, _pad(units, widest)) for client, index, units in arrays]
        return PartReplies(len(self.versions), len(getattr(self.level, items)), arrays)

    @property
    def suppressed(self) -> bool:
        """Whether any cell is suppressed."""
        releases = (release.parts.values() for release in self.releases if release is not None)
        return any(part.mask is not None for parts in releases for part in parts)

    def statistics(self, kind: str = "", *, by_client: bool = False) -> Summed:
        """Return statistics of nodes, or of ``"bin"`` or ``"group"`` (NobodyAnswered: policies withhold them)."""
        counts = self.part(f"{kind}s" if kind else "counts")
        if not counts:
            raise NobodyAnswered(
                "the clients' policies withhold the counts that trees are grown from"
            )
        return Summed(counts, self.part(f"{kind}_sums" if kind else "sums") or None, by_client)


def _pad(units: np.ndarray, width: int) -> np.ndarray:
    """Pad with zeros for categories beyond a client's, shape (pairs, width, ...)."""
    wide = np.zeros((len(units), width, *units.shape[2:]), units.dtype)
    wide[:, : units.shape[1]] = units
    return wide if units.shape[1] < width else units


def ask_about(
    federation: Disclosure,
    level: OpenNodes,
    versions: Sequence[Version | None],
    query: Callable[[Version], Query],
) -> LevelReplies:
    """Send every client its version of a query, equal ones once (NobodyAnswered: no client releases any)."""
    queries = {id(version): query(version) for version in versions if version is not None}
    by_client = {
        client: [queries[id(version)]]
        for client, version in zip(federation.clients, versions, strict=True)
        if version is not None
    }
    released: dict[str, Release] = {}
    for answer in federation.ask(by_client):
        released |= answer.releases
    return LevelReplies(level, versions, [released.get(client) for client in federation.clients])
