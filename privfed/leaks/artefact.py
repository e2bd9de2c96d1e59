"""Index of the released outputs: numbers sorted by precision, texts and bytes."""

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

#: Numbers sorted by precision at a time; fits the processor's cache.
CHUNK = 1 << 16
#: Units in the last place by which a double may differ from a raw value: the rounding error of a sum of
#: thousands. Matches are scored by their distance, so a wide limit costs nothing.
PLACES = 4096
TOGETHER = 50_000  #: Up to this many numbers share one index, whatever their precision
#: Blocks of more numbers are not inspected number by number for decimals.
LARGE = 200_000
MANY = 2_000_000  #: With more numbers in total, only small blocks are.
SHORT_TEXT = 1 << 14  #: Texts shorter than this are searched together
DIGESTS = (16, 20, 28, 32, 48, 64)  #: Lengths of UUIDs and digests, in bytes
#: Types as which unstructured bytes are read.
TYPES = ("<f8", ">f8", "<f4", ">f4", "<f2", "<i8", "<i4", "<i2")


@dataclass(frozen=True, eq=False)
class Block:
    """One released array of numbers, of any shape and type."""

    leaf: Leaf
    values: np.ndarray

    @property
    def path(self) -> str:
        """Path to the array."""
        return self.leaf.path

    def find(self, value: float) -> str:
        """Return the path to the first number whose absolute value is nearest to ``value``."""
        flat, best, index = self.values.reshape(-1), np.inf, 0
        for start in range(0, flat.size, CHUNK):
            distance = np.abs(np.abs(flat[start : start + CHUNK].astype(float)) - value)
            nearest = int(np.argmin(np.nan_to_num(distance, nan=np.inf)))
            if distance[nearest] < best:
                best, index = float(distance[nearest]), start + nearest
        return self.leaf.element(index)


@dataclass(frozen=True, eq=False)
class Index:
    """Released numbers of one precision, or of all precisions if there are few numbers."""

    sizes: np.ndarray  #: absolute values, ascending; distinct within a group
    #: distance between neighbouring numbers of that precision; a day for dates
    spacings: np.ndarray
    max_distances: np.ndarray  #: largest distance at which a raw value matches
    groups: np.ndarray  #: group of each number; a group is a block and a precision
    trials: np.ndarray  #: numbers in each group
    blocks: np.ndarray  #: block of each group
    precisions: Sequence[Precision]  #: precision of each group

    @classmethod
    def of(cls, parts: Sequence[tuple[Precision, np.ndarray, np.ndarray]]) -> Index:
        """Build the index of (precision, numbers, their blocks), with duplicates in a group dropped."""
        all_precisions: list[Precision] = []
        sizes, groups, gaps, blocks = [], [], [], []
        for precision, values, block_of in parts:
            order = np.lexsort((values, block_of))
            values, block_of = values[order], block_of[order]
            is_new = np.r_[True, (values[1:] != values[:-1]) | (block_of[1:] != block_of[:-1])]
            unique_blocks, group = np.unique(block_of[is_new], return_inverse=True)
            sizes.append(values[is_new])
            groups.append(group + len(all_precisions))
            gaps.append(precision.spacing(values[is_new]))
            blocks.append(unique_blocks)
            all_precisions += [precision] * len(unique_blocks)
        size, group, gap = np.concatenate(sizes), np.concatenate(groups), np.concatenate(gaps)
        order = np.argsort(size, kind="stable")
        size, group, gap = size[order], group[order], gap[order]
        double = np.array([p.bits == 53 for p in all_precisions])
        return cls(
            size,
            np.where(size % DAY == 0, np.maximum(gap, DAY), gap),  # dates without a time
            np.where(double[group], gap * PLACES, gap),
            group,
            np.bincount(group, minlength=len(all_precisions)),
            np.concatenate(blocks),
            all_precisions,
        )

    @cached_property
    def n_distinct(self) -> int:
        """Number of distinct absolute values."""
        return int(np.count_nonzero(np.diff(self.sizes))) + 1


@dataclass(eq=False)
class Released:
    """All outputs: arrays of numbers; and, with their paths, texts, texts joined from the cells of one
    container each, and bytes of unknown structure."""

    blocks: list[Block] = field(default_factory=list)
    texts: list[tuple[str, str]] = field(default_factory=list)
    rows: list[tuple[str, str]] = field(default_factory=list)
    strings: list[tuple[str, bytes]] = field(default_factory=list)
    #: reasons why something was not read in full, with counts
    unread: Counter[str] = field(default_factory=Counter)

    @classmethod
    def of(cls, leaves: Iterable[Leaf], allowed: Sequence[str] = ()) -> Released:
        """Collect leaves, except those at allowed paths."""
        released = cls()
        for whole in leaves:
            leaf = whole.less(allowed)
            if leaf is None or (leaf.row and any(path.startswith(leaf.path) for path in allowed)):
                continue
            if isinstance(leaf.value, np.ndarray):
                released.blocks.append(Block(leaf, leaf.value))
            elif isinstance(leaf.value, str):
                texts = released.rows if leaf.row else released.texts
                texts.append((leaf.path, leaf.value))
            else:
                released.unread.update([leaf.unread] if leaf.unread else [])
                if not leaf.value:
                    continue
                released.strings.append((leaf.path, leaf.value))
                released.blocks += _number_blocks(leaf.path, leaf.value)
        return released

    def without(self, words: Iterable[str]) -> Released:
        """Numbers of the texts that contain some words, with these blanked: the 50 of ``mid 50%`` is no cell."""
        by_length = sorted(words, key=len, reverse=True)
        pattern = re.compile("|".join(map(re.escape, by_length)) or r"(?!)")
        blanked = [
            (path, pattern.sub(lambda m: " " * len(m[0]), text)) for path, text in self.texts
        ]
        leaves = (
            leaf
            for (path, text), (_, original) in zip(blanked, self.texts, strict=True)
            if text != original
            for leaf in numbers_in(path, text)
        )
        return Released.of(leaves)

    @property
    def empty(self) -> bool:
        """Whether there is no output."""
        return not (self.blocks or self.texts or self.strings)

    @cached_property
    def all_texts(self) -> list[tuple[str, str]]:
        """All texts, and bytes of unknown structure decoded as Latin-1; digest-sized ones in hexadecimal too."""
        decoded = [(path, data.decode("latin-1")) for path, data in self.strings]
        hexadecimal = [(path, data.hex()) for path, data in self.strings if len(data) in DIGESTS]
        return self.texts + decoded + hexadecimal

    @cached_property
    def runs(self) -> list[tuple[Located, Runs]]:
        """Letters and digits of all texts; short texts are joined."""
        short = [item for item in self.all_texts if len(item[1]) < SHORT_TEXT]
        located = [Located(short)] if short else []
        located += [Located([item]) for item in self.all_texts if len(item[1]) >= SHORT_TEXT]
        return [(text, runs) for text in located for runs in runs_of(text.joined)]

    @cached_property
    def parts(self) -> list[tuple[Precision, np.ndarray, np.ndarray]]:
        """Each precision, its numbers, and the block of each."""
        sizes: dict[Precision, list[np.ndarray]] = {}
        blocks: dict[Precision, list[np.ndarray]] = {}
        for kind, values, block_of in _chunks(self.blocks):
            for precision, chosen in precisions_of(values, kind) if len(values) else ():
                if len(chosen):
                    sizes.setdefault(precision, []).append(values[chosen])
                    blocks.setdefault(precision, []).append(block_of[chosen])
        parts = []
        for precision, arrays in sizes.items():
            merged = (precision, np.concatenate(arrays), np.concatenate(blocks[precision]))
            pieces = split_by_grid(*merged[1:]) if precision is DOUBLE else [merged]
            parts += [part for part in pieces if len(part[1])]
        return parts

    @cached_property
    def indices(self) -> list[Index]:
        """One index for each precision, or one in total for few numbers; short numbers may have several precisions."""
        if sum(len(values) for _, values, _ in self.parts) <= TOGETHER:
            return [Index.of(self.parts)] if self.parts else []
        return [Index.of([part]) for part in self.parts]

    @cached_property
    def widths(self) -> list[np.ndarray]:
        """For each flattened block, the distance between neighbouring numbers at each number's precision; for large
        blocks, or many numbers in total, at the precision of the type."""
        flat = [block.values.reshape(-1) for block in self.blocks]
        max_size = LARGE if sum(map(len, flat)) <= MANY else CHUNK // 16
        exact = [len(values) <= max_size for values in flat]
        floats = [values.astype(float) for values, use in zip(flat, exact, strict=True) if use]
        ends = np.cumsum([len(values) for values in floats])
        parts = iter(np.split(widths_of(np.concatenate([np.empty(0), *floats])), ends[:-1]))
        return [
            next(parts) if use else _spacings(values)
            for values, use in zip(flat, exact, strict=True)
        ]

    @cached_property
    def mixtures(self) -> Sequence[Mapping[Precision, int]]:
        """For each block, its count of numbers of each precision."""
        mixtures: list[dict[Precision, int]] = [{} for _ in self.blocks]
        for precision, _, block_of in self.parts:
            for block, count in zip(*np.unique(block_of, return_counts=True), strict=True):
                mixtures[int(block)][precision] = int(count)
        return mixtures


@dataclass(frozen=True, eq=False)
class Located:
    """Texts with their paths, joined by line breaks."""

    texts: Sequence[tuple[str, str]]

    @cached_property
    def joined(self) -> str:
        """The joined text."""
        return "\n".join(text for _, text in self.texts)

    def locate(self, line: int) -> str:
        """Return the path of the text that holds a line, and the line's number in it."""
        for path, text in self.texts:
            lines = text.count("\n") + 1
            if line < lines:
                return f"{path}, line {line + 1}" if lines > 1 else path
            line -= lines
        return ""


def _chunks(blocks: Sequence[Block]) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """Yield type, absolute values and their blocks, in chunks of one type each.

    Zeros, truth values and non-finite numbers are dropped.
    """
    pending: dict[str, list[tuple[int, np.ndarray]]] = {}
    lengths: dict[str, int] = {}
    for index, block in enumerate(blocks):
        kind = str(block.values.dtype)
        if kind == "bool":
            continue
        flat = block.values.reshape(-1)
        for start in range(0, flat.size, CHUNK):
            chunk = flat[start : start + CHUNK]
            pending.setdefault(kind, []).append((index, chunk))
            lengths[kind] = lengths.get(kind, 0) + chunk.size
            if lengths[kind] >= CHUNK:
                yield _merge_chunks(kind, pending.pop(kind))
                lengths[kind] = 0
    for kind, parts in pending.items():
        yield _merge_chunks(kind, parts)


def _spacings(values: np.ndarray) -> np.ndarray:
    """Distance to the next number of the same type."""
    if values.dtype.kind != "f":
        return np.ones(len(values))
    return np.asarray(np.nan_to_num(np.spacing(np.abs(values)).astype(float)))


def _merge_chunks(
    kind: str, parts: Sequence[tuple[int, np.ndarray]]
) -> tuple[str, np.ndarray, np.ndarray]:
    values = np.abs(np.concatenate([part for _, part in parts]).astype(float))
    block_of = np.repeat([index for index, _ in parts], [part.size for _, part in parts])
    usable = np.isfinite(values) & (values > 0)
    return kind, values[usable], block_of[usable].astype(np.int32)


def _number_blocks(path: str, data: bytes) -> Iterator[Block]:
    """Yield the bytes as an array of each type in which they are plausible numbers."""
    for kind in TYPES:
        dtype = np.dtype(kind)
        usable = len(data) // dtype.itemsize * dtype.itemsize
        if usable >= dtype.itemsize:
            values = np.frombuffer(data, dtype, count=usable // dtype.itemsize)
            if _is_plausible(values):
                yield Block(Leaf(f"{path} as {dtype.name}", values), values)


def _is_plausible(values: np.ndarray) -> bool:
    """Whether numbers have sizes of measurements; random bytes rarely do."""
    with np.errstate(invalid="ignore"):
        sample = values[:: max(1, len(values) // 4096)].astype(float)
    if values.dtype.kind == "i":
        limit = 2 ** (values.dtype.itemsize * 4)
        return bool((np.abs(sample) < max(limit, 20000)).mean() > SANE)
    if not np.isfinite(sample).all():
        return False
    size = np.abs(sample)
    return bool(((size == 0) | ((size > 1e-6) & (size < 1e9))).mean() > SANE)
