"""All that left: its numbers sorted by precision, its texts and its bytes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from privfed.leaks.precision import DOUBLE, Precision, precisions_of, split_by_grid, widths_of
from privfed.leaks.reading.dates import DAY
from privfed.leaks.reading.encodings import SANE
from privfed.leaks.reading.leaf import Leaf
from privfed.leaks.reading.texts import numbers_in
from privfed.leaks.texts import Runs, runs_of

#: How many numbers are sorted by precision at a time: so many stay in the processor's cache.
CHUNK = 1 << 16
#: By how many last places a double may differ from a raw value: what a sum of thousands loses. A
#: match counts by how near it is, so that a wide reach costs nothing.
PLACES = 4096
TOGETHER = 50_000  #: So few numbers are indexed together, whatever their precision
#: From how many numbers on a block's are not looked at one by one for their decimals.
LARGE = 200_000
MANY = 2_000_000  #: Of more than so many numbers in all none but a small block's are.
SHORT_TEXT = 1 << 14  #: Texts shorter than this are looked through together
DIGESTS = (16, 20, 28, 32, 48, 64)  #: How many bytes a UUID or a digest has
#: Types as which bytes are read whole.
TYPES = ("<f8", ">f8", "<f4", ">f4", "<f2", "<i8", "<i4", "<i2")


@dataclass(frozen=True, eq=False)
class Block:
    """Numbers that left together, of any shape and type."""

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
    """Released numbers, of one precision or (of few numbers) of all."""

    sizes: np.ndarray  #: absolute values, ascending; of one group each occurs once
    #: the distance of neighbouring numbers of its precision, at each; of dates, a day
    cells: np.ndarray
    reaches: np.ndarray  #: how far a raw size may be, for each
    groups: np.ndarray  #: the position of the group of each; a group is a block and a precision
    trials: np.ndarray  #: for each group, how many numbers it has
    blocks: np.ndarray  #: the position of the block of each group
    precisions: Sequence[Precision]  #: the precision of each group

    @classmethod
    def of(cls, parts: Sequence[tuple[Precision, np.ndarray, np.ndarray]]) -> Index:
        """Sort numbers with the positions of their blocks, and keep each once for its group."""
        named: list[Precision] = []
        sizes, groups, cells, blocks = [], [], [], []
        for precision, values, owners in parts:
            order = np.lexsort((values, owners))
            values, owners = values[order], owners[order]
            new = np.r_[True, (values[1:] != values[:-1]) | (owners[1:] != owners[:-1])]
            different, group = np.unique(owners[new], return_inverse=True)
            sizes.append(values[new])
            groups.append(group + len(named))
            cells.append(precision.cell(values[new]))
            blocks.append(different)
            named += [precision] * len(different)
        size, group, cell = np.concatenate(sizes), np.concatenate(groups), np.concatenate(cells)
        order = np.argsort(size, kind="stable")
        size, group, cell = size[order], group[order], cell[order]
        double = np.array([one.bits == 53 for one in named])
        return cls(
            size,
            np.where(size % DAY == 0, np.maximum(cell, DAY), cell),  # dates without a time
            np.where(double[group], cell * PLACES, cell),
            group,
            np.bincount(group, minlength=len(named)),
            np.concatenate(blocks),
            named,
        )

    @cached_property
    def different(self) -> int:
        """How many different sizes there are."""
        return int(np.count_nonzero(np.diff(self.sizes))) + 1


@dataclass(eq=False)
class Released:
    """All that left: arrays of numbers, and with their paths texts, texts made of the cells of one
    container each, and bytes of unknown structure."""

    blocks: list[Block] = field(default_factory=list)
    texts: list[tuple[str, str]] = field(default_factory=list)
    rows: list[tuple[str, str]] = field(default_factory=list)
    strings: list[tuple[str, bytes]] = field(default_factory=list)
    #: what was not read, or not in full: why, and how often
    unread: Counter[str] = field(default_factory=Counter)

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
                released.unread.update([leaf.unread] if leaf.unread else [])
                if not leaf.value:
                    continue
                released.strings.append((leaf.path, leaf.value))
                released.blocks += _read_whole(leaf.path, leaf.value)
        return released

    def without(self, words: Iterable[str]) -> Released:
        """The numbers of texts in which some words stand, once these are blanked: the 50 of ``mid 50%`` is no cell."""
        listed = sorted(words, key=len, reverse=True)
        found = re.compile("|".join(map(re.escape, listed)) or r"(?!)")
        rest = [(path, found.sub(lambda one: " " * len(one[0]), text)) for path, text in self.texts]
        leaves = (
            leaf
            for (path, text), (_, whole) in zip(rest, self.texts, strict=True)
            if text != whole
            for leaf in numbers_in(path, text)
        )
        return Released.of(leaves)

    @property
    def empty(self) -> bool:
        """Whether nothing left at all."""
        return not (self.blocks or self.texts or self.strings)

    @cached_property
    def worded(self) -> list[tuple[str, str]]:
        """Texts, and what is text inside bytes of unknown structure; short ones in hexadecimal too."""
        bare = [(path, data.decode("latin-1")) for path, data in self.strings]
        short = [(path, data.hex()) for path, data in self.strings if len(data) in DIGESTS]
        return self.texts + bare + short

    @cached_property
    def runs(self) -> list[tuple[Located, Runs]]:
        """Letters and digits of all texts, the short ones together."""
        short = [one for one in self.worded if len(one[1]) < SHORT_TEXT]
        listed = [Located(short)] if short else []
        listed += [Located([one]) for one in self.worded if len(one[1]) >= SHORT_TEXT]
        return [(text, runs) for text in listed for runs in runs_of(text.joined)]

    @cached_property
    def parts(self) -> list[tuple[Precision, np.ndarray, np.ndarray]]:
        """Each precision, its numbers, and the positions of their blocks."""
        sizes: dict[Precision, list[np.ndarray]] = {}
        blocks: dict[Precision, list[np.ndarray]] = {}
        for kind, values, owners in _chunks(self.blocks):
            for precision, chosen in precisions_of(values, kind) if len(values) else ():
                if len(chosen):
                    sizes.setdefault(precision, []).append(values[chosen])
                    blocks.setdefault(precision, []).append(owners[chosen])
        found = []
        for precision, listed in sizes.items():
            whole = (precision, np.concatenate(listed), np.concatenate(blocks[precision]))
            parts = split_by_grid(*whole[1:]) if precision is DOUBLE else [whole]
            found += [part for part in parts if len(part[1])]
        return found

    @cached_property
    def indices(self) -> list[Index]:
        """The numbers by precision, few ones together; a short number may be of several."""
        if sum(len(values) for _, values, _ in self.parts) <= TOGETHER:
            return [Index.of(self.parts)] if self.parts else []
        return [Index.of([part]) for part in self.parts]

    @cached_property
    def widths(self) -> list[np.ndarray]:
        """For each block, flattened, the distance of neighbouring numbers at each; in a large block, or where
        many numbers left, what their type can tell apart."""
        flat = [block.values.reshape(-1) for block in self.blocks]
        most = LARGE if sum(map(len, flat)) <= MANY else CHUNK // 16
        small = [len(one) <= most for one in flat]
        read = [one.astype(float) for one, kept in zip(flat, small, strict=True) if kept]
        ends = np.cumsum([len(one) for one in read])
        parts = iter(np.split(widths_of(np.concatenate([np.empty(0), *read])), ends[:-1]))
        return [
            next(parts) if kept else _spacings(one) for one, kept in zip(flat, small, strict=True)
        ]

    @cached_property
    def mixtures(self) -> Sequence[Mapping[Precision, int]]:
        """For each block how many numbers it has of each precision."""
        mixtures: list[dict[Precision, int]] = [{} for _ in self.blocks]
        for precision, _, owners in self.parts:
            for block, count in zip(*np.unique(owners, return_counts=True), strict=True):
                mixtures[int(block)][precision] = int(count)
        return mixtures


@dataclass(frozen=True, eq=False)
class Located:
    """Texts with their paths, one after the other, a new line for each."""

    texts: Sequence[tuple[str, str]]

    @cached_property
    def joined(self) -> str:
        """All of it."""
        return "\n".join(text for _, text in self.texts)

    def locate(self, line: int) -> str:
        """The path to a line, and which of its lines it is."""
        for path, text in self.texts:
            lines = text.count("\n") + 1
            if line < lines:
                return f"{path}, line {line + 1}" if lines > 1 else path
            line -= lines
        return ""


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


def _spacings(values: np.ndarray) -> np.ndarray:
    """What their type can tell apart at each."""
    if values.dtype.kind != "f":
        return np.ones(len(values))
    return np.asarray(np.nan_to_num(np.spacing(np.abs(values)).astype(float)))


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
