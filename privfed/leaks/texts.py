"""Texts once case, accents and separators are gone: as columns of a table, and as they left.

Every text becomes the bytes of its letters and digits (NFKD, without accents, lower case). A
value of a table is found in what left as a run of these bytes that begins and ends at a word's edge,
however it was spaced, hyphenated or quoted.
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

#: Share of different values above which a text column names records instead of describing them.
NAMING = 0.5
LONGEST = 48  #: Longest run of letters and digits that is compared; of longer values, the beginning
SHORTEST = 4  #: Shortest that names a record by itself
CODED = 6  #: Shortest part of a code that does
_PART = re.compile(r"[^\W_]+")
FEW = 30  #: Fewer texts than this say too little of the letters that others would have
CHUNK = 1 << 22  #: How much text is looked at at a time
KEPT = 1 << 18  #: Longest text of which the hashes of all words are kept for the next table
_FIRST = np.uint64(48)  #: What leaves of a hash its first bits
_BYTES = np.arange(256)
_UPPER = (_BYTES >= 65) & (_BYTES <= 90)
_DIGIT = (_BYTES >= 48) & (_BYTES <= 57)
_SMALL = (_BYTES >= 97) & (_BYTES <= 122)
_LETTER = _UPPER | _SMALL | (_BYTES >= 128)
_LOWER = np.where(_UPPER, _BYTES + 32, _BYTES).astype(np.uint8)
_CLASS = np.where(_DIGIT, 1, np.where(_LETTER, 2, 0)).astype(np.int8)


def normalised(text: str) -> bytes:
    """A text without accents and what has no width (a soft hyphen), as bytes; case and separators still there."""
    if text.isascii():
        return text.encode()
    plain = unicodedata.normalize("NFKD", text.replace("ß", "ss"))
    seen = (x for x in plain if not (unicodedata.combining(x) or unicodedata.category(x) == "Cf"))
    return "".join(seen).encode(errors="replace")


def key_of(text: str) -> bytes:
    """Only letters and digits, in lower case."""
    octets = np.frombuffer(normalised(text), np.uint8)
    return _LOWER[octets[_CLASS[octets] > 0]].tobytes()


def other_forms(text: str) -> Iterator[bytes]:
    """Keys of other ways to write a value: a name's last word first, an email less its domain, a
    telephone number less its country."""
    words = text.replace(",", " ").split()
    digits = [one for one in text if one.isdigit()]
    if "@" in text:
        yield key_of(text.split("@")[0])
    elif 2 <= len(words) <= 4 and not digits:
        yield key_of(" ".join([words[-1], *words[:-1]]))
    if text.startswith("+") and len(digits) >= 9:
        yield from (b"00" + key_of(text), b"0" + key_of(text)[2:], b"0" + key_of(text)[3:])
        yield key_of(text)[1:]
    if not text.isascii():
        plain = text.lower()
        for letter, pair in (("ä", "ae"), ("ö", "oe"), ("ü", "ue"), ("ø", "oe"), ("å", "aa")):
            plain = plain.replace(letter, pair)
        yield key_of(plain)


def telling_parts(values: Sequence[str]) -> Iterator[tuple[bytes, int]]:
    """Keys of the parts of codes, with their positions, that name a value alone: the number in
    ``P-4711234-A``, the first digits of a UUID."""
    parts = [_PART.findall(value) for value in values]
    most = Counter(map(len, parts)).most_common(1)[0][0] if parts else 0
    for place in range(most if most > 1 else 0):
        listed = [(one[place], at) for at, one in enumerate(parts) if len(one) == most]
        coded = [one for one in listed if len(one[0]) >= CODED and not one[0].isalpha()]
        if len({part for part, _ in coded}) > NAMING * len(values):
            yield from ((key_of(part), at) for part, at in coded)


@dataclass(frozen=True, eq=False, repr=False)
class TextColumn:
    """One column of texts; its repr shows nothing of them."""

    name: str  #: of the column
    codes: np.ndarray  #: which of ``values`` each record has; -1 for none
    values: tuple[str, ...]  #: the different ones as they are
    #: letters and digits of each form of a value, shape (forms, longest), zeros behind
    keys: np.ndarray
    value_of: np.ndarray  #: the value that each form is of
    listed: bool = False  #: whether the values are of a public list (a category's), and name nobody

    @classmethod
    def of(
        cls, name: str, missing: np.ndarray, texts: Iterable[str], listed: bool = False
    ) -> TextColumn:
        """Of texts, one a record."""
        plain = np.array(list(texts), dtype=object)
        plain[missing] = ""
        values, codes = np.unique(plain.astype(str), return_inverse=True)
        named = [str(value) for value in values]
        forms = [(key_of(value), at) for at, value in enumerate(named)]
        forms += [(form, at) for at, value in enumerate(named) for form in set(other_forms(value))]
        forms += telling_parts(named) if len(named) > NAMING * len(plain) else []
        width = max(1, min(LONGEST, max(len(key) for key, _ in forms)))
        whole = b"".join(key[:width].ljust(width, b"\0") for key, _ in forms)
        keys = np.frombuffer(whole, np.uint8).reshape(len(forms), width)
        codes = np.where(missing, -1, codes.ravel())
        value_of = np.array([at for _, at in forms])
        return cls(name, codes, tuple(named), keys, value_of, listed)

    @cached_property
    def naming(self) -> bool:
        """Whether the values name single records."""
        known = int((self.codes >= 0).sum())
        return not self.listed and (len(self.values) > NAMING * known or len(self.values) == known)

    @cached_property
    def counts(self) -> np.ndarray:
        """How many records have each value."""
        return np.bincount(self.codes[self.codes >= 0], minlength=len(self.values))

    @cached_property
    def lengths(self) -> np.ndarray:
        """How many letters and digits each value has."""
        return np.asarray((self.keys != 0).sum(axis=1))

    @cached_property
    def hashes(self) -> np.ndarray:
        """The hash of each value."""
        return hashes_of(self.keys, self.lengths)

    @cached_property
    def _alike(self) -> list[tuple[int, np.ndarray, np.ndarray]]:
        """For each place the forms that have a digit there, and those that have a letter, in an
        order that has nothing to do with their values; and what they have there."""
        mixed = np.random.default_rng(0).permutation(len(self.keys))
        kinds = _CLASS[self.keys[mixed]]
        places = range(self.keys.shape[1])
        each = [(at, mixed[kinds[:, at] == kind]) for at in places for kind in (1, 2)]
        return [(at, same, self.keys[same, at]) for at, same in each if len(same)]

    @cached_property
    def widths(self) -> tuple[int, ...]:
        """The different lengths, ascending."""
        return tuple(np.unique(self.lengths[self.lengths > 0]).tolist())

    @cached_property
    def by_value(self) -> tuple[np.ndarray, np.ndarray]:
        """The records by value, and where each value's records begin; one longer than ``values``."""
        order = np.argsort(self.codes, kind="stable")
        return order, np.searchsorted(self.codes[order], np.arange(len(self.values) + 1))

    @cached_property
    def by_hash(self) -> tuple[np.ndarray, np.ndarray]:
        """The forms' sums, ascending, and which form each is of."""
        order = np.argsort(self.hashes, kind="stable")
        return self.hashes[order], order

    @cached_property
    def marked(self) -> np.ndarray:
        """With which bits some form's hash begins: most others are dropped at once."""
        marked = np.zeros(1 << 16, dtype=bool)
        marked[self.by_hash[0] >> _FIRST] = True
        return marked

    @cached_property
    def letters(self) -> np.ndarray:
        """The log of how many beginnings of 0, 1, 2, ... letters the column's own letters make."""
        nats = np.zeros(self.keys.shape[1])
        for place, letters in enumerate(self.keys.T):
            counts = np.bincount(letters[letters > 0]).astype(float)
            share = counts[counts > 0] / max(counts.sum(), 1)
            nats[place] = -(share * np.log(share)).sum()
        return np.asarray(np.r_[0.0, np.cumsum(nats)])

    @property
    def space(self) -> np.ndarray:
        """For each form the log of how many of its length its column's letters make."""
        return np.asarray(self.letters[self.lengths])

    def record(self, value: int) -> int:
        """The first record that has a value."""
        return int(np.flatnonzero(self.codes == value)[0])

    def redrawn(self, order: np.ndarray, rng: np.random.Generator) -> TextColumn:
        """In another order; names are made up anew, of the same letters place by place."""
        codes = self.codes[order]
        if not self.naming:
            drawn = replace(self, codes=codes)
            vars(drawn).update(lengths=self.lengths, widths=self.widths)
            vars(drawn).update(by_hash=self.by_hash, marked=self.marked)
            return drawn
        keys = self.keys.copy()
        for place, same, held in self._alike:
            by = int(rng.integers(len(same)))
            keys[same, place] = np.concatenate((held[len(held) - by :], held[: len(held) - by]))
        if len(keys) < FEW:
            kinds, other = _CLASS[keys], rng.random(keys.shape) < 0.5
            keys = np.where(other & (kinds == 1), rng.integers(48, 58, keys.shape), keys)
            keys = np.where(other & (kinds == 2), rng.integers(97, 123, keys.shape), keys)
        drawn = replace(self, codes=codes, keys=keys.astype(np.uint8))
        vars(drawn).update(lengths=self.lengths, widths=self.widths)
        return drawn

    def without(self, public: Iterable[str]) -> TextColumn:
        """The column less the values that may leave."""
        free = np.isin(np.array(self.values, dtype=object), list(public))
        codes = np.where((self.codes >= 0) & free[self.codes], -1, self.codes)
        keys = np.where(free[self.value_of][:, None], 0, self.keys).astype(np.uint8)
        return replace(self, codes=codes, keys=keys)


@dataclass(frozen=True, eq=False)
class Runs:
    """Letters and digits of a text that left, in lower case."""

    at: np.ndarray  #: where in the text's normalised bytes each is
    lower: np.ndarray  #: the bytes
    begins: np.ndarray  #: positions at which words begin
    ends: np.ndarray  #: whether a word ends before each position; one longer than ``lower``
    proper: np.ndarray  #: whether each was a digit or in upper case
    lines: np.ndarray  #: the line of the text of each

    @classmethod
    def of(cls, text: str, first_line: int = 0) -> Runs:
        """Of some text."""
        octets = np.frombuffer(normalised(text), np.uint8)
        kept = _CLASS[octets] > 0
        at = np.flatnonzero(kept)
        chosen = octets[at]
        new = np.diff(at, prepend=-2) > 1
        new[1:] |= _UPPER[chosen[1:]] & _SMALL[chosen[:-1]]  # aWord has two
        begins = np.flatnonzero(new)
        ends = np.append(new, True)
        lines = first_line + np.cumsum(octets == 10)[at] if len(at) else at
        proper = _UPPER[chosen] | _DIGIT[chosen]
        return cls(at, _LOWER[chosen], begins, ends, proper, lines)

    @cached_property
    def _windows(self) -> Windows:
        return Windows(self.lower)

    @cached_property
    def _known(self) -> dict[tuple[int, ...], tuple[np.ndarray, np.ndarray]]:
        return {}

    def _of_lengths(self, lengths: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
        """Where runs of so many letters and digits begin and end at words' edges, and their hashes."""
        known = self._known.get(lengths)
        if known is None:
            if len(lengths) == 1:
                last = self.begins.searchsorted(len(self.lower) - lengths[0], side="right")
                begins = self.begins[:last]
                begins = begins[self.ends[begins + lengths[0]]]
                known = begins, self._windows.hashes(begins, begins + lengths[0])
            else:
                parts = [(self.begins[:0], self.begins[:0].view(np.uint64))]
                parts += [self._of_lengths((length,)) for length in lengths]
                at, hashes = zip(*parts, strict=True)
                known = np.concatenate(at), np.concatenate(hashes)
            if len(self.lower) <= KEPT:
                self._known[lengths] = known
        return known

    def find(
        self, column: TextColumn, lengths: tuple[int, ...]
    ) -> tuple[np.ndarray, np.ndarray, int]:
        """Places at which forms of some lengths stand, the forms, and how many places were tried."""
        begins, seen = self._of_lengths(lengths)
        if not len(begins):
            return begins, begins, 0
        ordered, which = column.by_hash
        maybe = np.flatnonzero(column.marked[seen >> _FIRST])
        place = ordered.searchsorted(seen[maybe])
        place[place == len(ordered)] = 0
        equal = ordered[place] == seen[maybe]
        return begins[maybe[equal]], which[place[equal]], len(begins)


def runs_of(text: str) -> Iterator[Runs]:
    """A text in pieces that end at line ends, where there are any."""
    start, line = 0, 0
    while start < len(text):
        end = min(len(text), start + CHUNK)
        cut = text.rfind("\n", start, end) if end < len(text) else end
        end = end if cut <= start else cut + (end < len(text))
        piece = text[start:end]
        yield Runs.of(piece, line)
        line += piece.count("\n")
        start = end
