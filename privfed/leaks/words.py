"""Texts that name records, in whatever case, spacing or notation, whole or masked."""

import re
from functools import partial

import numpy as np

from privfed.leaks.artefact import Released
from privfed.leaks.chance import surprise
from privfed.leaks.evidence import Evidence
from privfed.leaks.table import RawTable
from privfed.leaks.texts import SHORTEST, Runs, TextColumn, key_of

LONG_WORD = 9  #: From how many letters on a single word without a capital is taken for a name
#: A part of a text that was blotted out, and what was left on either side.
_MASKED = re.compile(r"([\w+][\w.@+ -]*)?(?:[*•█#]{2,}|[xX]{3,}|…|\.{3})([\w@][\w.@-]*)?")
MASKED = 500  #: Most masked texts that are looked at
_MEND = "leave out what names a record, or use a key that says nothing of it"


def names_in(released: Released, at: int, table: RawTable) -> Evidence | None:
    """Values of a column that names records, anywhere in the texts that left."""
    column = table.texts[at]
    chances, trials, first = [np.empty(0)], 0, None
    lengths = tuple(width for width in column.widths if width >= SHORTEST)
    for text, runs in released.runs:
        begins, forms, tried = runs.find(column, lengths)
        trials += tried
        if not len(begins):
            continue
        places = zip(begins.tolist(), column.lengths[forms].tolist(), strict=True)
        proper = [at for at, (begin, length) in enumerate(places) if _is_name(runs, begin, length)]
        if proper:
            if first is None:
                first = (text, int(runs.lines[begins[proper[0]]]), int(forms[proper[0]]))
            forms = np.unique(forms[proper])
            chances.append(np.exp(np.log(len(column.keys)) - column.space[forms]))
    if first is None:
        return None
    where, line, form = first
    value = int(column.value_of[form])
    each = np.minimum(np.concatenate(chances), 1.0)
    return Evidence(
        "names",
        "a raw text",
        surprise(each, max(trials, len(each))),
        partial(where.locate, line),
        lambda: table.place(column.record(value), column.name),
        len(each),
        value=partial(repr, column.values[value]),
        mend=_MEND,
    )


def _is_name(runs: Runs, begin: int, length: int) -> bool:
    """Whether a run is no everyday word: capitals, digits, several words, or many letters."""
    part = slice(begin, begin + length)
    return bool(
        length >= LONG_WORD
        or runs.proper[part].any()
        or runs.ends[begin + 1 : begin + length].any()
    )


def masked_of(released: Released) -> list[tuple[str, bytes, bytes]]:
    """Masked texts that left: path, what is left before the mask, and behind."""
    found = []
    for path, text in [*released.texts, *released.rows]:
        if "*" in text or "…" in text or "..." in text or "xxx" in text.lower() or "#" in text:
            for match in _MASKED.finditer(text):
                before = key_of((match[1] or "").split(" ")[-1]) if match[1] else b""
                behind = key_of(match[2] or "")
                if len(before) + len(behind) >= SHORTEST:
                    found.append((path, before, behind))
    return found[:MASKED]


def masked_in(masked: list[tuple[str, bytes, bytes]], at: int, table: RawTable) -> Evidence | None:
    """Masked texts of which what is left still names a record."""
    column, chances, first = table.texts[at], [], None
    for path, before, behind in masked:
        forms = _fitting(column, before, behind)
        if len(forms):
            chances.append(_chance(column, before, behind))
            first = first or (path, int(column.value_of[forms[0]]))
    if first is None:
        return None
    return Evidence(
        "masked",
        "what a mask leaves of a raw text",
        surprise(np.array(chances), len(masked)),
        partial(str, first[0]),
        lambda: table.place(column.record(first[1]), column.name),
        len(chances),
        value=partial(repr, column.values[first[1]]),
        mend="what is left names the record; leave out more, or all of it",
        plain=2,
    )


def _chance(column: TextColumn, before: bytes, behind: bytes) -> float:
    """How likely some other text's rest fits a form: by its first letters, and its ending's share."""
    ending = _fitting(column, b"", behind)
    shared = len(np.unique(column.value_of[ending])) > 1
    if len(np.unique(column.lengths)) == 1:
        alone = column.letters[-1] - column.letters[len(column.letters) - 1 - len(behind)]
    else:  # where a letter stands says nothing of which of the last it is
        alone = column.letters[-1] / column.keys.shape[1] * len(behind)
    nats = column.letters[min(len(before), len(column.letters) - 1)]
    nats += np.log(len(column.keys) / len(ending)) if shared else alone
    return min(1.0, float(np.exp(np.log(len(column.keys)) - nats)))


def _fitting(column: TextColumn, before: bytes, behind: bytes) -> np.ndarray:
    """The forms that begin and end like that."""
    fit = column.lengths >= max(SHORTEST, len(before) + len(behind) + 1)
    for place, letter in enumerate(before[: column.keys.shape[1]]):
        fit &= column.keys[:, place] == letter
    forms = np.flatnonzero(fit)
    for back, letter in enumerate(reversed(behind)):
        forms = forms[column.keys[forms, column.lengths[forms] - 1 - back] == letter]
    return np.asarray(forms)
