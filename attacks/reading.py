"""Reading transcripts of other programs: unreadable releases are left out and counted."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from privfed.attacks.base import PublicSchema, Truth, fitting_parts, question_of, sound_parts
from privfed.errors import InputError, PrivfedError
from privfed.exchange.messages import ReleasedPart
from privfed.exchange.transcript import Transcript, TranscriptEntry


def finite_numbers(part: ReleasedPart) -> np.ndarray | None:
    """A part's values as floats, masked cells NaN; None unless all are finite numbers."""
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
    """The readable part of a transcript: known queries, finite numbers, declared shapes.

    By the schema, or the truth's if None.
    """
    known = schema if schema is not None else next((t.schema for t in (truth or {}).values()), None)
    kept = (_well_formed(entry, known) for entry in transcript)
    return Transcript(tuple(entry for entry in kept if entry is not None))


def _well_formed(entry: TranscriptEntry, schema: Any) -> TranscriptEntry | None:
    query, parts = question_of(entry), sound_parts(entry)
    if query is None:
        return None
    parts = {n: p for n, p in parts.items() if p.mask is None or p.mask.shape == p.units.shape}
    if schema is not None:
        try:
            parts = fitting_parts(parts, query.parts(schema))
        except PrivfedError:  # written for another schema
            return None
    if len(parts) == len(entry.release.parts):
        return entry
    return replace(entry, release=replace(entry.release, parts=parts))


@contextmanager
def formed(name: str, known: object) -> Iterator[None]:
    """Explain in one sentence why an answer of unexpected shape cannot be read without a schema.

    Raises InputError if no schema is `known` to leave such answers out, and an answer has not its query's form.
    """
    try:
        yield
    except (ValueError, IndexError, TypeError) as error:
        if known or isinstance(error, PrivfedError):
            raise
        raise InputError(
            f"attack {name!r}: an answer does not have the form that its query requires, and without a schema "
            "such answers cannot be left out; give schema=Schema.from_toml(...) of these data"
        ) from error
