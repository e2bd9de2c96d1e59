"""All that left: its numbers sorted by precision, its texts and its bytes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from privfed.leaks.precision import DOUBLE, Precision, precisions_of, split_by_grid
from privfed.leaks.reading.leaf import Leaf
from privfed.leaks.texts import Runs, runs_of

#: How many numbers are sorted by precision at a time: so many stay in the processor's cache.
CHUNK = 1 << 16
#: Share of sane numbers from which bytes are read as an array of floats.
SANE = 0.9
#: Types as which bytes are read whole.
TYPES = ("<f8", ">f8", "<f4", ">f4", "<f2", "<i8", "<i4", "<i2")


@dataclass(frozen=True, eq=False)
class Block:
    """Numbers that left together.

    Args:
        leaf: the leaf that holds them.
        values: the numbers, of any shape and type.
    """

    leaf: Leaf
    values: np.ndarray

    @property
    def path(self) -> str:
        """Where it was."""
        return self.leaf.path

    def find(self, value: float) -> str:
        """The path to the first number of some size."""
        flat, best, place = self.values.reshape(-1), np.inf, 0
        for start in range(0, flat.size, CHUNK):
            away = np.abs(np.abs(flat[start : start + CHUNK].astype(float)) - value)
            nearest = int(np.argmin(np.nan_to_num(away, nan=np.inf)))
            if away[nearest] < best:
                best, place = float(away[nearest]), start + nearest
        return self.leaf.element(place)


@dataclass(frozen=True, eq=False)
class Index:
    """Released numbers of one precision.

    Args:
        sizes: absolute values, ascending; of one block each occurs once.
        blocks: the position of the block of each.
        trials: for each block, how many numbers of this precision it has.
    """

    sizes: np.ndarray
    blocks: np.ndarray
    trials: np.ndarray

    @classmethod
    def of(cls, sizes: np.ndarray, blocks: np.ndarray, count: int) -> Index:
        """Sort numbers, and keep each once for its block."""
        if len(blocks) and (blocks == blocks[0]).all():
            ordered = np.unique(sizes)
            owners = np.full(len(ordered), blocks[0], dtype=np.int32)
        else:
            order = np.lexsort((blocks, sizes))
            ordered, owners = sizes[order], blocks[order]
            new = np.r_[True, (ordered[1:] != ordered[:-1]) | (owners[1:] != owners[:-1])]
            ordered, owners = ordered[new], owners[new]
        return cls(ordered, owners, np.bincount(owners, minlength=count))

    @cached_property
    def different(self) -> int:
        """How many different sizes there are."""
        return int(np.count_nonzero(np.diff(self.sizes))) + 1


@dataclass(eq=False)
class Released:
    """All that left.

    Args:
        blocks: arrays of numbers.
        texts: texts, with their paths.
        rows: texts made of the cells of one container each, with their paths.
        strings: bytes of unknown structure, with their paths.
    """

    blocks: list[Block] = field(default_factory=list)
    texts: list[tuple[str, str]] = field(default_factory=list)
    rows: list[tuple[str, str]] = field(default_factory=list)
    strings: list[tuple[str, bytes]] = field(default_factory=list)

    @classmethod
    def of(cls, leaves: Iterable[Leaf], allowed: Sequence[str] = ()) -> Released:
        """Collect leaves, those at allowed paths left out."""
        released = cls()
        for whole in leaves:
            leaf = whole.less(allowed)
            if leaf is None or (leaf.row and any(one.startswith(leaf.path) for one in allowed)):
                continue
            if isinstance(leaf.value, np.ndarray):
                released.blocks.append(Block(leaf, leaf.value))
            elif isinstance(leaf.value, str):
                kept = released.rows if leaf.row else released.texts
                kept.append((leaf.path, leaf.value))
            else:
                released.strings.append((leaf.path, leaf.value))
                released.blocks += _read_whole(leaf.path, leaf.value)
        return released

    @property
    def empty(self) -> bool:
        """Whether nothing left at all."""
        return not (self.blocks or self.texts or self.strings)

    @cached_property
    def worded(self) -> list[tuple[str, str]]:
        """Texts, and what is text inside bytes of unknown structure."""
        return self.texts + [(path, data.decode("latin-1")) for path, data in self.strings]

    @cached_property
    def runs(self) -> list[tuple[str, str, Runs]]:
        """Letters and digits of all texts: path, text, and their runs."""
        return [(path, text, runs) for path, text in self.worded for runs in runs_of(text)]

    @cached_property
    def precisions(self) -> Mapping[Precision, Index]:
        """The numbers by precision; a short number may be of several."""
        sizes: dict[Precision, list[np.ndarray]] = {}
        blocks: dict[Precision, list[np.ndarray]] = {}
        for kind, values, owners in _chunks(self.blocks):
            for precision, chosen in precisions_of(values, kind) if len(values) else ():
                sizes.setdefault(precision, []).append(values[chosen])
                blocks.setdefault(precision, []).append(owners[chosen])
        found: dict[Precision, Index] = {}
        for precision, listed in sizes.items():
            values, owners = np.concatenate(listed), np.concatenate(blocks[precision])
            parts = [(precision, values, owners)]
            for part in split_by_grid(values, owners) if precision is DOUBLE else parts:
                if len(part[1]):
                    found[part[0]] = Index.of(part[1], part[2], len(self.blocks))
        return found

    @cached_property
    def mixtures(self) -> Sequence[Mapping[Precision, int]]:
        """For each block how many numbers it has of each precision."""
        mixtures: list[dict[Precision, int]] = [{} for _ in self.blocks]
        for precision, index in self.precisions.items():
            for block in np.flatnonzero(index.trials):
                mixtures[int(block)][precision] = int(index.trials[block])
        return mixtures


def _chunks(blocks: Sequence[Block]) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """Sizes of numbers with the positions of their blocks, some at a time and of one type each.

    Zeros, truth values and what is not finite are left out.
    """
    waiting: dict[str, list[tuple[int, np.ndarray]]] = {}
    lengths: dict[str, int] = {}
    for place, block in enumerate(blocks):
        kind = str(block.values.dtype)
        if kind == "bool":
            continue
        flat = block.values.reshape(-1)
        for start in range(0, flat.size, CHUNK):
            part = flat[start : start + CHUNK]
            waiting.setdefault(kind, []).append((place, part))
            lengths[kind] = lengths.get(kind, 0) + part.size
            if lengths[kind] >= CHUNK:
                yield _merged(kind, waiting.pop(kind))
                lengths[kind] = 0
    for kind, parts in waiting.items():
        yield _merged(kind, parts)


def _merged(
    kind: str, parts: Sequence[tuple[int, np.ndarray]]
) -> tuple[str, np.ndarray, np.ndarray]:
    values = np.abs(np.concatenate([part for _, part in parts]).astype(float))
    owners = np.repeat([place for place, _ in parts], [part.size for _, part in parts])
    usable = np.isfinite(values) & (values > 0)
    return kind, values[usable], owners[usable].astype(np.int32)


def _read_whole(path: str, data: bytes) -> Iterator[Block]:
    """Bytes as an array of each type in which they make sane numbers."""
    for kind in TYPES:
        dtype = np.dtype(kind)
        usable = len(data) // dtype.itemsize * dtype.itemsize
        if usable >= dtype.itemsize:
            values = np.frombuffer(data, dtype, count=usable // dtype.itemsize)
            if _sane(values):
                yield Block(Leaf(f"{path} as {dtype.name}", values), values)


def _sane(values: np.ndarray) -> bool:
    """Whether numbers are of sizes that people measure; random bytes hardly ever are."""
    with np.errstate(invalid="ignore"):
        some = values[:: max(1, len(values) // 4096)].astype(float)
    if values.dtype.kind == "i":
        limit = 2 ** (values.dtype.itemsize * 4)
        return bool((np.abs(some) < max(limit, 20000)).mean() > SANE)
    if not np.isfinite(some).all():
        return False
    size = np.abs(some)
    return bool(((size == 0) | ((size > 1e-6) & (size < 1e9))).mean() > SANE)
