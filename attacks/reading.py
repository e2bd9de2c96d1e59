"""Reading what strangers wrote: what an attack can use of a transcript, and what it must leave.

A transcript may come from another program. What cannot be read is left out and counted, so that a
finding says of how much it speaks.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from privfed.attacks.base import PublicSchema, Truth, question_of, sound_parts
from privfed.errors import InputError, PrivfedError
from privfed.exchange.messages import ReleasedPart
from privfed.exchange.transcript import Transcript, TranscriptEntry
from privfed.questions.query import Query


def known_question(entry: TranscriptEntry) -> Query | None:
    """The question behind an entry; none where its kind or its values are unknown or unreadable."""
    try:
        return question_of(entry)
    except (PrivfedError, TypeError, ValueError):
        return None


def finite_numbers(part: ReleasedPart) -> np.ndarray | None:
    """A part's values as floats, masked cells NaN; none for text, objects and what is not finite."""
    units = np.asarray(part.units)
    if units.dtype.kind not in "biuf":
        return None
    values = units.astype(float) * float(part.grid)
    hidden = np.zeros(values.shape, bool) if part.mask is None else np.asarray(part.mask, bool)
    if hidden.shape != values.shape or not np.isfinite(values[~hidden]).all():
        return None
    return np.where(hidden, np.nan, values)


def well_formed(
    transcript: Transcript, schema: PublicSchema | None, truth: Truth | None = None
) -> Transcript:
    """What a transcript holds of readable questions: their parts of finite numbers, in declared shapes.

    Args:
        transcript: anybody's.
        schema: the public data dictionary; that of the truth's records where there is none.
        truth: the raw records by client, if known.
    """
    known = schema if schema is not None else next((t.schema for t in (truth or {}).values()), None)
    kept = (_well_formed(entry, known) for entry in transcript)
    return Transcript(tuple(entry for entry in kept if entry is not None))


def _well_formed(entry: TranscriptEntry, schema: Any) -> TranscriptEntry | None:
    asked, parts = known_question(entry), sound_parts(entry)
    if asked is None:
        return None
    parts = {n: p for n, p in parts.items() if p.mask is None or p.mask.shape == p.units.shape}
    if schema is not None:
        try:
            declared = asked.parts(schema)
        except PrivfedError:  # written for another schema
            return None
        parts = {
            name: part
            for name, part in parts.items()
            if name in declared and fits(declared[name].shape, part.units.shape)
        }
    if len(parts) == len(entry.release.parts):
        return entry
    return replace(entry, release=replace(entry.release, parts=parts))


@contextmanager
def formed(name: str, known: object) -> Iterator[None]:
    """Say in one sentence why an answer of odd shape cannot be read where nobody knows its form.

    Args:
        name: the attack's.
        known: the public data dictionary, or the truth's tables, by which odd answers were left out.

    Raises:
        InputError: nothing is known, and some answer has not the form that its question gives it.
    """
    try:
        yield
    except (ValueError, IndexError, TypeError) as error:
        if known or isinstance(error, PrivfedError):
            raise
        raise InputError(
            f"attack {name!r}: an answer has not the form that its question asks for, and without a "
            "schema such answers cannot be left out; give schema=Schema.from_toml(...) of these data"
        ) from error


def fits(declared: tuple[int, ...], shape: tuple[int, ...]) -> bool:
    """Whether a shape is the declared one, in which -1 is any length."""
    return len(declared) == len(shape) and all(
        size in (-1, found) for size, found in zip(declared, shape, strict=True)
    )
