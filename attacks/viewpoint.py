"""The view of a participating data owner: totals, less her own part.

A server broadcasts functions of totals: the next query, the model. An owner who receives every total
learns at least as much. She knows her own records and her gate's releases, so that each total gives her
the sum over all others. Any attack can run on such a transcript: what it does not find there, no
broadcast of the same totals discloses.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from privfed.attacks.base import HELD_OUT, Attack, PublicSchema, Table, Truth, question_of
from privfed.attacks.finding import Finding
from privfed.attacks.ledger_rows import at_points
from privfed.attacks.linear import known_schema
from privfed.errors import InputError
from privfed.exchange.messages import ReleasedPart
from privfed.exchange.transcript import Transcript, TranscriptEntry
from privfed.privacy.laws import DiscreteGaussian, Law, SumOfGaussians, Unknown
from privfed.questions.query import View

#: Instead of an owner's name: the one with the most records, who knows most.
LARGEST = "largest"
BY_AN_OWNER = " (by an owner)"  #: Added to an attack's name


def run_as(
    owner: str,
    attack: Attack,
    transcript: Transcript,
    truth: Truth,
    schema: PublicSchema | None = None,
) -> list[Finding]:
    """Run an attack as a data owner (or :data:`LARGEST`) who receives every total; InputError: no such owner."""
    owners = {name: table for name, table in truth.items() if not name.endswith(HELD_OUT)}
    if owner == LARGEST:
        owner = max(owners, key=lambda name: len(owners[name].x))
    if owner not in owners:
        raise InputError(
            f"attack {attack.name!r}: no owner {owner!r}; write viewpoint = {LARGEST!r} or one of "
            f"{', '.join(owners)}"
        )
    seen, known = seen_by(owner, transcript, truth)
    if not attack.attackable(seen):
        return []
    question = f"Seen by a data owner who receives every total: {attack.question}"
    return [
        replace(found, attack=found.attack + BY_AN_OWNER, question=question, exposed={})
        for found in attack.findings(seen, known, schema)
    ]


def seen_by(owner: str, transcript: Transcript, truth: Truth) -> tuple[Transcript, Truth]:
    """An owner's view: the sum of all others' releases to each query that she answered, too.

    Only numbers that add up over records have a total. A cell withheld by any of them is hidden. From a masked
    total her own exact part is subtracted, which leaves the noise of all. The truth holds all others'
    records together, as one client, and her own, which she knows not to be among them.
    """
    by_query: dict[tuple[str, bytes, int], list[TranscriptEntry]] = {}
    others, repeats = f"all but {owner}", Counter[tuple[str, str, bytes]]()
    for entry in transcript:
        times = repeats[entry.client, entry.kind, entry.fields]
        repeats[entry.client, entry.kind, entry.fields] += 1
        by_query.setdefault((entry.kind, entry.fields, times), []).append(entry)
    entries = []
    for answers in by_query.values():
        total = _unmasked_rest(answers, owner, truth) or _sum_of_rest(answers, owner)
        if total is not None:
            entries.append(replace(total, client=others))
    tables = {name: table for name, table in truth.items() if name.removesuffix(HELD_OUT) != owner}
    known = {owner: truth[owner]} if owner in truth else {}
    for name, ending in ((others, ""), (others + HELD_OUT, HELD_OUT)):
        group = [t for key, t in tables.items() if key.endswith(HELD_OUT) == bool(ending)]
        if group:
            known[name] = _together(group)
    return Transcript(tuple(entries)), known


def _unmasked_rest(
    answers: Sequence[TranscriptEntry], owner: str, truth: Truth
) -> TranscriptEntry | None:
    """A masked total less the contribution of an owner's records; None if there is none."""
    for entry in answers:
        query, records = question_of(entry), truth.get(owner)
        if owner in entry.release.owners and query is not None and records is not None:
            exact = query.evaluate(View(records, known_schema(None, records)))
            parts = {
                name: replace(part, units=part.units - exact[name])
                for name, part in entry.release.parts.items()
                if name in exact and part.type.adds_up
            }
            return replace(entry, release=replace(entry.release, parts=parts))
    return None


def _sum_of_rest(answers: Sequence[TranscriptEntry], owner: str) -> TranscriptEntry | None:
    """The sum of all others' releases; None if she was not queried, or nothing adds up."""
    query = question_of(answers[0])
    rest = [entry for entry in answers if entry.client != owner]
    if query is None or not query.linear or not rest or len(rest) == len(answers):
        return None
    parts: dict[str, ReleasedPart] = {}
    for name, first in rest[0].release.parts.items():
        addends = [entry.release.parts[name] for entry in rest if name in entry.release.parts]
        if not first.type.adds_up or len({part.units.shape for part in addends}) > 1:
            continue
        masks = [part.mask for part in addends if part.mask is not None]
        units = np.sum([part.units for part in addends], axis=0)
        mask = np.logical_or.reduce(masks) if masks else None
        parts[name] = replace(first, units=units, mask=mask, noise=_law_of(addends))
    return replace(rest[0], release=replace(rest[0].release, parts=parts)) if parts else None


def _law_of(parts: Sequence[ReleasedPart]) -> Law | None:
    """The law of the noise in a sum; unknown unless all are one Gaussian."""
    laws = [part.noise for part in parts if part.noise is not None]
    if len(laws) < 2:
        return laws[0] if laws else None
    law = laws[0]
    if not isinstance(law, DiscreteGaussian) or set(laws) != {law} or law.parameter < 1:
        return Unknown(f"sum of {len(laws)}")
    return SumOfGaussians(law.parameters[0], 1, len(laws), parts[0].units.size)


def _together(tables: Sequence[Table]) -> Table:
    y = [table.y for table in tables if table.y is not None]
    targets = np.concatenate(y) if len(y) == len(tables) else None
    return at_points(tables[0], x=np.concatenate([table.x for table in tables]), y=targets)
