"""Reading what strangers wrote: what an attack can use of a transcript, and what it must leave.

A transcript may come from another program. What cannot be read is left out and counted, so that a
finding says of how much it speaks.
"""

from __future__ import annotations

import numpy as np

from privfed.attacks.base import question_of
from privfed.errors import PrivfedError
from privfed.exchange.messages import ReleasedPart
from privfed.exchange.transcript import Disclosed
from privfed.questions.query import Query


def known_question(entry: Disclosed) -> Query | None:
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
