"""Asking about the open nodes: each client about the trees that it takes part in, as it sees them."""

from __future__ import annotations

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

PORTION = 4096  #: Pairs or nodes that a server works on at once


@dataclass(frozen=True, eq=False)
class Version:
    """One client's version of a level, and the indices of its nodes and pairs in the whole one."""

    level: OpenNodes
    nodes: np.ndarray
    numeric: np.ndarray
    grouped: np.ndarray


def versions(level: OpenNodes, members: np.ndarray, features: int) -> list[Version | None]:
    """Each client's version of a level; None for a client that takes part in no open tree.

    Clients that see the same get the same object, so that one query goes to all of them.

    Args:
        level: the whole level.
        members: which client takes part in which tree, shape (clients, trees).
        features: number of features, which is how trees name the client itself.
    """
    by_client = bool((level.trees.feature == features).any())
    tree = level.trees.tree_of[level.nodes]
    seen: dict[bytes, Version | None] = {}
    found = []
    for client, taking_part in enumerate(members):
        key = np.packbits(taking_part).tobytes() + (client.to_bytes(4) if by_client else b"")
        if key not in seen:
            seen[key] = _version(level, taking_part, taking_part[tree], client, features)
        found.append(seen[key])
    return found


def _version(
    level: OpenNodes, taking_part: np.ndarray, mine: np.ndarray, client: int, features: int
) -> Version | None:
    nodes = np.flatnonzero(mine)
    if not len(nodes):
        return None
    trees, kept = level.trees.seen_by(client, features).only(taking_part)
    sampling = replace(level.sampling, trees=level.sampling.trees[taking_part])
    numeric, grouped = (
        np.flatnonzero(mine[pairs.nodes]) for pairs in (level.numeric, level.grouped)
    )
    own = OpenNodes(
        trees,
        sampling,
        np.searchsorted(kept, level.nodes[nodes]),
        NodeFeatures(level.numeric.sizes[nodes], level.numeric.features[numeric]),
        NodeFeatures(level.grouped.sizes[nodes], level.grouped.features[grouped]),
        level.classes,
    )
    return Version(own, nodes, numeric, grouped)


@dataclass(frozen=True, eq=False)
class PartReplies:
    """What clients released of one part."""

    clients: int  #: how many there are
    items: int  #: how many nodes or pairs the whole level has
    #: client, its items and its array (items first), for each client that released the part
    said: list[tuple[int, np.ndarray, np.ndarray]]

    def __bool__(self) -> bool:
        return bool(self.said)

    def portions(self) -> Iterator[slice]:
        """All items, so many at a time that what is worked out of them stays near the processor."""
        for first in range(0, max(self.items, 1), PORTION):
            yield slice(first, min(first + PORTION, self.items))

    def total(self, portion: slice | None = None) -> np.ndarray:
        """The sum over clients, suppressed cells as zero, shape (items, ...) or of a portion of them."""
        wanted = slice(0, self.items) if portion is None else portion
        shape = self.said[0][2].shape[1:]
        found = np.zeros((wanted.stop - wanted.start, *shape), np.int64)
        for _, items, array in self.said:
            if len(items) == self.items:
                found += array[wanted]
            else:
                low, high = np.searchsorted(items, (wanted.start, wanted.stop))
                found[items[low:high] - wanted.start] += array[low:high]
        return found

    def at(self, chosen: np.ndarray) -> np.ndarray:
        """Each client's array at some items, zero where it said nothing, shape (clients, chosen, ...)."""
        _, _, first = self.said[0]
        found = np.zeros((self.clients, len(chosen), *first.shape[1:]), first.dtype)
        for client, items, array in self.said:
            if len(items) == self.items:
                found[client] = array[chosen]
                continue
            place = np.searchsorted(items, chosen)
            known = (place < len(items)) & (items[np.minimum(place, len(items) - 1)] == chosen)
            found[client, known] = array[place[known]]
        return found

    def everywhere(self, portion: slice | None = None) -> np.ndarray:
        """Each client's array at all items, or at a portion of them, shape (clients, items, ...)."""
        wanted = slice(0, self.items) if portion is None else portion
        return self.at(np.arange(wanted.start, wanted.stop))


@dataclass(frozen=True, eq=False)
class Summed:
    """Released class counts, or counts and sums, by item; with `by_client` each client is a class."""

    counts: PartReplies
    sums: PartReplies | None = None
    by_client: bool = False

    def of(self, counts: np.ndarray, sums: np.ndarray | None) -> np.ndarray:
        """Clients' arrays as vectors of statistics, shape (clients, items, ..., statistics)."""
        if not self.by_client:
            return together(counts, sums)
        own = np.eye(self.counts.clients, dtype=np.int64)
        return counts * own.reshape(len(own), *(1,) * (counts.ndim - 2), -1)

    def at(self, chosen: np.ndarray) -> np.ndarray:
        """Each client's statistics at some items, shape (clients, chosen, ..., statistics)."""
        sums = self.sums.at(chosen) if self.sums is not None else None
        return self.of(self.counts.at(chosen), sums)

    def total(self, portion: slice | None = None) -> np.ndarray:
        """The sum over clients, shape (items, ..., statistics), or of a portion of the items."""
        if self.by_client:
            own = self.of(self.counts.everywhere(portion), None)
            return np.asarray(own.sum(axis=0))
        sums = None if self.sums is None else self.sums.total(portion)
        return together(self.counts.total(portion), sums)


@dataclass(frozen=True, eq=False)
class LevelReplies:
    """What clients released in answer to one query about a level; None for a client that did not."""

    level: OpenNodes
    versions: Sequence[Version | None]
    releases: Sequence[Release | None]

    def heard(self, part: str) -> PartReplies:
        """One part: exact units, suppressed cells as zero, and ranks between those that are shown."""
        where = "numeric" if part in ("knots", "bins", "bin_sums", "gains") else "nodes"
        where = "grouped" if part.startswith("group") else where
        level = self.level
        items = {
            "nodes": len(level.nodes),
            "numeric": len(level.numeric),
            "grouped": len(level.grouped),
        }
        said = []
        for client, (own, release) in enumerate(zip(self.versions, self.releases, strict=True)):
            if own is None or release is None or part not in release:
                continue
            units, mask = release.parts[part].units, release.parts[part].mask
            if mask is not None:
                units = between_shown(units, mask) if part == "knots" else np.where(mask, 0, units)
            said.append((client, getattr(own, where), units))
        return PartReplies(len(self.versions), items[where], said)

    @property
    def suppressed(self) -> bool:
        """Whether any cell is."""
        told = (release.parts.values() for release in self.releases if release is not None)
        return any(part.mask is not None for parts in told for part in parts)

    def statistics(self, of: str = "", *, by_client: bool = False) -> Summed:
        """Statistics of nodes, or of ``"bin"`` or ``"group"``; NobodyAnswered if policies withhold them."""
        counts = self.heard(f"{of}s" if of else "counts")
        if not counts:
            raise NobodyAnswered(
                "the clients' policies withhold the counts that trees are grown from"
            )
        return Summed(counts, self.heard(f"{of}_sums" if of else "sums") or None, by_client)


def ask_about(
    federation: Disclosure,
    level: OpenNodes,
    versions: Sequence[Version | None],
    question: Callable[[Version], Query],
) -> LevelReplies:
    """Ask every client its version of a query, equal ones once; NobodyAnswered if no client releases any."""
    made = {id(version): question(version) for version in versions if version is not None}
    asked = {
        client: [made[id(version)]]
        for client, version in zip(federation.clients, versions, strict=True)
        if version is not None
    }
    released: dict[str, Release] = {}
    for answer in federation.ask(asked):
        released |= answer.releases
    return LevelReplies(level, versions, [released.get(client) for client in federation.clients])
