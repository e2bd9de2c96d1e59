"""Finds texts that name records, in any case, spacing or notation, complete or masked."""

import re
from functools import partial

import numpy as np

from privfed.leaks.artefact import Released
from privfed.leaks.chance import surprise
from privfed.leaks.evidence import Evidence
from privfed.leaks.table import RawTable
from privfed.leaks.texts import SHORTEST, Runs, TextColumn, key_of

LONG_WORD = 9  #: Fewest letters from which a single lower-case word counts as a name
#: A masked part of a text, with the remaining text on either side.
_MASKED = re.compile(r"([\w+][\w.@+ -]*)?(?:[*•█#]{2,}|[xX]{3,}|…|\.{3})([\w@][\w.@-]*)?")
MASKED = 500  #: Most masked texts that are searched
_REMEDY = "leave out what names a record, or use a key that says nothing of it"


def names_in(released: Released, i: int, table: RawTable) -> Evidence | None:
    """Evidence from values of a naming column anywhere in the released texts."""
    column = table.texts[i]
    probabilities, trials, first = [np.empty(0)], 0, None
    lengths = tuple(width for width in column.widths if width >= SHORTEST)
    for text, runs in released.runs:
        begins, forms, n_begins = runs.find(column, lengths)
        trials += n_begins
        if not len(begins):
            continue
        extents = zip(begins.tolist(), column.lengths[forms].tolist(), strict=True)
        proper = [i for i, (begin, length) in enumerate(extents) if _is_name(runs, begin, length)]
        if proper:
            if first is None:
                first = (text, int(runs.lines[begins[proper[0]]]), int(forms[proper[0]]))
            forms = np.unique(forms[proper])
            probabilities.append(np.exp(np.log(len(column.keys)) - column.space[forms]))
    if first is None:
        return None
    located, line, form = first
    value = int(column.value_of[form])
    clipped = np.minimum(np.concatenate(probabilities), 1.0)
    return Evidence(
        "names",
        "a raw text",
        surprise(clipped, max(trials, len(clipped))),
        partial(located.locate, line),
        lambda: table.location(column.record(value), column.name),
        len(clipped),
        value=partial(repr, column.values[value]),
        remedy=_REMEDY,
    )


def _is_name(runs: Runs, begin: int, length: int) -> bool:
    """Whether a run looks like a name: capitals, digits, several words, or many letters."""
    part = slice(begin, begin + length)
    return bool(
        length >= LONG_WORD
        or runs.proper[part].any()
        or runs.ends[begin + 1 : begin + length].any()
    )


def masked_of(released: Released) -> list[tuple[str, bytes, bytes]]:
    """Masked released texts: path, text before the mask, and text after it."""
    masked = []
    for path, text in [*released.texts, *released.rows]:
        if "*" in text or "…" in text or "..." in text or "xxx" in text.lower() or "#" in text:
            for match in _MASKED.finditer(text):
                prefix = key_of((match[1] or "").split(" ")[-1]) if match[1] else b""
                suffix = key_of(match[2] or "")
                if len(prefix) + len(suffix) >= SHORTEST:
                    masked.append((path, prefix, suffix))
    return masked[:MASKED]


def masked_in(masked: list[tuple[str, bytes, bytes]], i: int, table: RawTable) -> Evidence | None:
    """Evidence from masked texts whose remaining part still names a record."""
    column, probabilities, first = table.texts[i], [], None
    for path, prefix, suffix in masked:
        forms = _matching_forms(column, prefix, suffix)
        if len(forms):
            probabilities.append(_match_probability(column, prefix, suffix))
            first = first or (path, int(column.value_of[forms[0]]))
    if first is None:
        return None
    return Evidence(
        "masked",
        "what a mask leaves of a raw text",
        surprise(np.array(probabilities), len(masked)),
        partial(str, first[0]),
        lambda: table.location(column.record(first[1]), column.name),
        len(probabilities),
        value=partial(repr, column.values[first[1]]),
        remedy="what is left names the record; leave out more, or all of it",
        complexity=2,
    )


def _match_probability(column: TextColumn, prefix: bytes, suffix: bytes) -> float:
    """Probability that another text's unmasked part fits a form: of its first letters, and of its ending."""
    same_ending = _matching_forms(column, b"", suffix)
    shared = len(np.unique(column.value_of[same_ending])) > 1
    if len(np.unique(column.lengths)) == 1:
        ending_nats = column.letters[-1] - column.letters[len(column.letters) - 1 - len(suffix)]
    else:  # with varying lengths, positions do not align with endings
        ending_nats = column.letters[-1] / column.keys.shape[1] * len(suffix)
    nats = column.letters[min(len(prefix), len(column.letters) - 1)]
    nats += np.log(len(column.keys) / len(same_ending)) if shared else ending_nats
    return min(1.0, float(np.exp(np.log(len(column.keys)) - nats)))


def _matching_forms(column: TextColumn, prefix: bytes, suffix: bytes) -> np.ndarray:
    """Forms with this prefix and suffix."""
    matches = column.lengths >= max(SHORTEST, len(prefix) + len(suffix) + 1)
    for position, letter in enumerate(prefix[: column.keys.shape[1]]):
        matches &= column.keys[:, position] == letter
    forms = np.flatnonzero(matches)
    for back, letter in enumerate(reversed(suffix)):
        forms = forms[column.keys[forms, column.lengths[forms] - 1 - back] == letter]
    return np.asarray(forms)
