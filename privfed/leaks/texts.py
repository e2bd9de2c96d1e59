"""Texts normalised to letters and digits: columns of a table, and released texts.

Every text becomes the bytes of its letters and digits (NFKD, without accents, lower case). A value of a
table matches a run of these bytes between word boundaries, whatever the spacing, hyphens or quotes.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from privfed.leaks.windows import Windows, hashes_of

#: Fraction of distinct values above which a text column names records instead of describing them.
NAMING = 0.5
LONGEST = 48  #: Letters and digits that are compared; longer values are truncated
SHORTEST = 4  #: Fewest letters that name a record
CODED = 6  #: Fewest letters and digits of a part of a code that names one
_PART = re.compile(r"[^\W_]+")
FEW = 30  #: Fewer texts than this do not determine the distribution of letters
CHUNK = 1 << 22  #: Characters processed at a time
KEPT = 1 << 18  #: Longest text whose word hashes are cached for the next table
_FIRST = np.uint64(48)  #: Shift that leaves the first bits of a hash
_BYTES = np.arange(256)
_UPPER = (_BYTES >= 65) & (_BYTES <= 90)
_DIGIT = (_BYTES >= 48) & (_BYTES <= 57)
_SMALL = (_BYTES >= 97) & (_BYTES <= 122)
_LETTER = _UPPER | _SMALL | (_BYTES >= 128)
_LOWER = np.where(_UPPER, _BYTES + 32, _BYTES).astype(np.uint8)
_CLASS = np.where(_DIGIT, 1, np.where(_LETTER, 2, 0)).astype(np.int8)


def normalised(text: str) -> bytes:
    """A text without accents and zero-width characters, as bytes; case and separators are kept."""
    if text.isascii():
        return text.encode()
    nfkd = unicodedata.normalize("NFKD", text.replace("ß", "ss"))
    kept = (c for c in nfkd if not (unicodedata.combining(c) or unicodedata.category(c) == "Cf"))
    return "".join(kept).encode(errors="replace")


def key_of(text: str) -> bytes:
    """Letters and digits of a text, in lower case."""
    octets = np.frombuffer(normalised(text), np.uint8)
    return _LOWER[octets[_CLASS[octets] > 0]].tobytes()


def other_forms(text: str) -> Iterator[bytes]:
    """Yield keys of other notations of a value: last name first, an email without its domain, a
    telephone number without its country code."""
    words = text.replace(",", " ").split()
    digits = [character for character in text if character.isdigit()]
    if "@" in text:
        yield key_of(text.split("@")[0])
    elif 2 <= len(words) <= 4 and not digits:
        yield key_of(" ".join([words[-1], *words[:-1]]))
    if text.startswith("+") and len(digits) >= 9:
        yield from (b"00" + key_of(text), b"0" + key_of(text)[2:], b"0" + key_of(text)[3:])
        yield key_of(text)[1:]
    if not text.isascii():
        lower = text.lower()
        for letter, pair in (("ä", "ae"), ("ö", "oe"), ("ü", "ue"), ("ø", "oe"), ("å", "aa")):
            lower = lower.replace(letter, pair)
        yield key_of(lower)


def identifying_parts(values: Sequence[str]) -> Iterator[tuple[bytes, int]]:
    """Yield keys of parts of codes that identify a value alone, with the value's position: the number in
    ``P-4711234-A``, the first digits of a UUID."""
    parts = [_PART.findall(value) for value in values]
    n_parts = Counter(map(len, parts)).most_common(1)[0][0] if parts else 0
    for position in range(n_parts if n_parts > 1 else 0):
        listed = [(words[position], i) for i, words in enumerate(parts) if len(words) == n_parts]
        coded = [item for item in listed if len(item[0]) >= CODED and not item[0].isalpha()]
        if len({part for part, _ in coded}) > NAMING * len(values):
            yield from ((key_of(part), i) for part, i in coded)


@dataclass(frozen=True, eq=False, repr=False)
class TextColumn:
    """One column of texts; its repr shows no data."""

    name: str  #: of the column
    codes: np.ndarray  #: index in ``values`` of each record's text; -1 for none
    values: tuple[str, ...]  #: distinct texts
    #: letters and digits of each form of a value, shape (forms, longest), padded with zeros
    keys: np.ndarray
    value_of: np.ndarray  #: index of each form's value
    listed: bool = False  #: whether the values are public categories, which name no record

    @classmethod
    def of(
        cls, name: str, missing: np.ndarray, texts: Iterable[str], listed: bool = False
    ) -> TextColumn:
        """Build from texts, one per record."""
        array = np.array(list(texts), dtype=object)
        array[missing] = ""
        values, codes = np.unique(array.astype(str), return_inverse=True)
        distinct = [str(value) for value in values]
        forms = [(key_of(value), i) for i, value in enumerate(distinct)]
        forms += [(form, i) for i, value in enumerate(distinct) for form in set(other_forms(value))]
        forms += identifying_parts(distinct) if len(distinct) > NAMING * len(array) else []
        width = max(1, min(LONGEST, max(len(key) for key, _ in forms)))
        buffer = b"".join(key[:width].ljust(width, b"\0") for key, _ in forms)
        keys = np.frombuffer(buffer, np.uint8).reshape(len(forms), width)
        codes = np.where(missing, -1, codes.ravel())
        value_of = np.array([i for _, i in forms])
        return cls(name, codes, tuple(distinct), keys, value_of, listed)

    @cached_property
    def naming(self) -> bool:
        """Whether the values name single records."""
        known = int((self.codes >= 0).sum())
        return not self.listed and (len(self.values) > NAMING * known or len(self.values) == known)

    @cached_property
    def counts(self) -> np.ndarray:
        """Number of records with each value."""
        return np.bincount(self.codes[self.codes >= 0], minlength=len(self.values))

    @cached_property
    def lengths(self) -> np.ndarray:
        """Number of letters and digits of each form."""
        return np.asarray((self.keys != 0).sum(axis=1))

    @cached_property
    def hashes(self) -> np.ndarray:
        """Hash of each form."""
        return hashes_of(self.keys, self.lengths)

    @cached_property
    def _characters(self) -> list[tuple[int, np.ndarray, np.ndarray]]:
        """For each position and kind (digit, letter), the forms with such a character there, in an order
        independent of their values, and their characters."""
        shuffled = np.random.default_rng(0).permutation(len(self.keys))
        kinds = _CLASS[self.keys[shuffled]]
        positions = range(self.keys.shape[1])
        groups = [(i, shuffled[kinds[:, i] == kind]) for i in positions for kind in (1, 2)]
        return [(i, forms, self.keys[forms, i]) for i, forms in groups if len(forms)]

    @cached_property
    def widths(self) -> tuple[int, ...]:
        """Distinct lengths, ascending."""
        return tuple(np.unique(self.lengths[self.lengths > 0]).tolist())

    @cached_property
    def by_value(self) -> tuple[np.ndarray, np.ndarray]:
        """Records sorted by value, and the start of each value's records; one longer than ``values``."""
        order = np.argsort(self.codes, kind="stable")
        return order, np.searchsorted(self.codes[order], np.arange(len(self.values) + 1))

    @cached_property
    def by_hash(self) -> tuple[np.ndarray, np.ndarray]:
        """Hashes of the forms, ascending, and the form of each."""
        order = np.argsort(self.hashes, kind="stable")
        return self.hashes[order], order

    @cached_property
    def marked(self) -> np.ndarray:
        """Table of the first bits of all hashes, which prefilters words."""
        marked = np.zeros(1 << 16, dtype=bool)
        marked[self.by_hash[0] >> _FIRST] = True
        return marked

    @cached_property
    def letters(self) -> np.ndarray:
        """Log of the number of prefixes of 0, 1, 2, ... letters, by the entropy of the letters at each position."""
        nats = np.zeros(self.keys.shape[1])
        for position, letters in enumerate(self.keys.T):
            counts = np.bincount(letters[letters > 0]).astype(float)
            frequency = counts[counts > 0] / max(counts.sum(), 1)
            nats[position] = -(frequency * np.log(frequency)).sum()
        return np.asarray(np.r_[0.0, np.cumsum(nats)])

    @property
    def space(self) -> np.ndarray:
        """Log of the number of forms of each form's length that the column's letters make."""
        return np.asarray(self.letters[self.lengths])

    def record(self, value: int) -> int:
        """Return the first record with a value."""
        return int(np.flatnonzero(self.codes == value)[0])

    def redrawn(self, order: np.ndarray, rng: np.random.Generator) -> TextColumn:
        """Return the column reordered; names are redrawn from the letters at each position."""
        codes = self.codes[order]
        if not self.naming:
            drawn = replace(self, codes=codes)
            vars(drawn).update(lengths=self.lengths, widths=self.widths)
            vars(drawn).update(by_hash=self.by_hash, marked=self.marked)
            return drawn
        keys = self.keys.copy()
        for i, forms, old in self._characters:
            shift = int(rng.integers(len(forms)))
            keys[forms, i] = np.concatenate((old[len(old) - shift :], old[: len(old) - shift]))
        if len(keys) < FEW:
            kinds, is_changed = _CLASS[keys], rng.random(keys.shape) < 0.5
            keys = np.where(is_changed & (kinds == 1), rng.integers(48, 58, keys.shape), keys)
            keys = np.where(is_changed & (kinds == 2), rng.integers(97, 123, keys.shape), keys)
        drawn = replace(self, codes=codes, keys=keys.astype(np.uint8))
        vars(drawn).update(lengths=self.lengths, widths=self.widths)
        return drawn

    def without(self, public: Iterable[str]) -> TextColumn:
        """Return the column without values that may be released."""
        is_public = np.isin(np.array(self.values, dtype=object), list(public))
        codes = np.where((self.codes >= 0) & is_public[self.codes], -1, self.codes)
        keys = np.where(is_public[self.value_of][:, None], 0, self.keys).astype(np.uint8)
        return replace(self, codes=codes, keys=keys)


@dataclass(frozen=True, eq=False)
class Runs:
    """Letters and digits of a released text, in lower case."""

    positions: np.ndarray  #: position of each in the text's normalised bytes
    lower: np.ndarray  #: the bytes
    begins: np.ndarray  #: positions at which words begin
    ends: np.ndarray  #: whether a word ends before each position; one longer than ``lower``
    proper: np.ndarray  #: whether each was a digit or in upper case
    lines: np.ndarray  #: line of each in the text

    @classmethod
    def of(cls, text: str, first_line: int = 0) -> Runs:
        """Build from a text."""
        octets = np.frombuffer(normalised(text), np.uint8)
        kept = _CLASS[octets] > 0
        positions = np.flatnonzero(kept)
        chosen = octets[positions]
        is_new = np.diff(positions, prepend=-2) > 1
        is_new[1:] |= _UPPER[chosen[1:]] & _SMALL[chosen[:-1]]  # aWord has two
        begins = np.flatnonzero(is_new)
        ends = np.append(is_new, True)
        lines = first_line + np.cumsum(octets == 10)[positions] if len(positions) else positions
        proper = _UPPER[chosen] | _DIGIT[chosen]
        return cls(positions, _LOWER[chosen], begins, ends, proper, lines)

    @cached_property
    def _windows(self) -> Windows:
        return Windows(self.lower)

    @cached_property
    def _cached(self) -> dict[tuple[int, ...], tuple[np.ndarray, np.ndarray]]:
        return {}

    def _runs_of_lengths(self, lengths: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
        """Starts of runs of these lengths between word boundaries, and their hashes."""
        result = self._cached.get(lengths)
        if result is None:
            if len(lengths) == 1:
                last = self.begins.searchsorted(len(self.lower) - lengths[0], side="right")
                begins = self.begins[:last]
                begins = begins[self.ends[begins + lengths[0]]]
                result = begins, self._windows.hashes(begins, begins + lengths[0])
            else:
                parts = [(self.begins[:0], self.begins[:0].view(np.uint64))]
                parts += [self._runs_of_lengths((length,)) for length in lengths]
                begins_of, hashes = zip(*parts, strict=True)
                result = np.concatenate(begins_of), np.concatenate(hashes)
            if len(self.lower) <= KEPT:
                self._cached[lengths] = result
        return result

    def find(
        self, column: TextColumn, lengths: tuple[int, ...]
    ) -> tuple[np.ndarray, np.ndarray, int]:
        """Starts of runs equal to forms of some lengths, the forms, and the number of runs compared."""
        begins, hashes = self._runs_of_lengths(lengths)
        if not len(begins):
            return begins, begins, 0
        ordered, form_of = column.by_hash
        candidates = np.flatnonzero(column.marked[hashes >> _FIRST])
        index = ordered.searchsorted(hashes[candidates])
        index[index == len(ordered)] = 0
        equal = ordered[index] == hashes[candidates]
        return begins[candidates[equal]], form_of[index[equal]], len(begins)


def runs_of(text: str) -> Iterator[Runs]:
    """Yield a text in pieces that end at line breaks, if it has any."""
    start, line = 0, 0
    while start < len(text):
        end = min(len(text), start + CHUNK)
        cut = text.rfind("\n", start, end) if end < len(text) else end
        end = end if cut <= start else cut + (end < len(text))
        piece = text[start:end]
        yield Runs.of(piece, line)
        line += piece.count("\n")
        start = end
