"""Adds up masked shares into one release for all owners of a roster."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from privfed.errors import NobodyAnswered, PolicyError
from privfed.exchange.messages import Release, Reply
from privfed.exchange.survivors import OPENING, SURVIVORS, Opening, opened
from privfed.exchange.transcript import Transcript, TranscriptEntry
from privfed.privacy.laws import SumOfGaussians
from privfed.questions import wire


def with_totals(replies: Mapping[str, Reply]) -> dict[str, Reply]:
    """Return the replies to one query, with shares of a masked sum replaced by their total.

    Raises:
        NobodyAnswered: a share of the sum is missing, without which the others reveal nothing.
        PolicyError: the owners' policies do not agree, so that the masks do not cancel.
    """
    shares = {o: r for o, r in replies.items() if isinstance(r, Release) and r.view}
    others = {owner: reply for owner, reply in replies.items() if owner not in shares}
    if not shares:
        return others
    first = next(iter(shares.values()))
    missing = [owner for owner in first.owners if owner not in shares]
    if missing or first.least:
        needed = f"{first.least} of" if first.least else "all"
        raise NobodyAnswered(
            f"{first.kind}: a masked sum needs {needed} its {len(first.owners)} owners, and "
            f"{', '.join(missing) or 'too few'} gave none; ask again when they can answer"
        )
    total = total_of(list(shares.values()))
    return {total.client: total, **others}


def total_of(shares: Sequence[Release]) -> Release:
    """Add up all shares of one masked sum, modulo 2^64, into a release by all owners with its total noise."""
    first = shares[0]
    if {share.view for share in shares} != {first.view} or len(shares) != len(first.owners):
        raise PolicyError(
            f"{first.kind}: the owners' masks do not cancel, because their policies differ in [masked] or in "
            "this kind's guards, or the server's name does; compare their policies"
        )
    parts = {}
    for name, part in first.parts.items():
        law = part.noise
        # survivors beyond the minimum
        if isinstance(law, SumOfGaussians) and law.owners != len(shares):
            law = SumOfGaussians(law.parameter, law.counted, len(shares), law.cells)
        units = np.zeros(part.units.shape, np.uint64)
        for share in shares:
            units += share.parts[name].units.astype(np.int64).view(np.uint64)
        parts[name] = replace(part, units=units.view(np.int64), noise=law)
    secure = all(share.secure for share in shares)
    called = f"total of {len(first.owners)} owners"
    return replace(first, client=called, parts=parts, secure=secure, view="")


def summed(transcript: Transcript) -> Transcript:
    """Return the transcript with each masked sum's total at the entry that opened it, without shares."""
    sums: dict[str, _Opened] = {}
    entries: list[TranscriptEntry] = []
    for entry in transcript:
        release = entry.release
        if not release.view:
            entries.append(entry)
            continue
        total = sums.setdefault(release.view, _Opened()).add(entry)
        if total is not None:
            entries.append(total)
    return Transcript(tuple(entries))


class _Opened:
    """Entries so far of one masked sum."""

    def __init__(self) -> None:
        self._shares: dict[str, TranscriptEntry] = {}
        self._confirmations: dict[str, Mapping[str, bytes]] = {}
        self._survivors: tuple[str, ...] = ()
        self._done = False

    def add(self, entry: TranscriptEntry) -> TranscriptEntry | None:
        """Add an entry, and return the total's if it was the last one required, else None."""
        if entry.kind == OPENING:
            self._survivors = tuple(wire.decode(entry.fields, Opening).agreed.boxes)
            self._confirmations[entry.client] = entry.release.told
        elif entry.kind != SURVIVORS:
            self._shares[entry.client] = entry
        shares = self._whole()
        if self._done or not shares:
            return None
        self._done, total = True, total_of(list(shares.values()))
        return replace(next(iter(self._shares.values())), client=total.client, release=total)

    def _whole(self) -> dict[str, Release]:
        """Return shares whose masks cancel; empty if some are missing."""
        shares = {owner: entry.release for owner, entry in self._shares.items()}
        first = next(iter(shares.values()), None)
        if first is None or not first.least:
            return shares if first and len(shares) == len(first.owners) else {}
        if not self._survivors or not set(self._survivors) <= set(shares):
            return {}
        return opened({owner: shares[owner] for owner in self._survivors}, self._confirmations)


def in_time(lines: Iterable[tuple[str | int, TranscriptEntry]]) -> Transcript:
    """Merge several owners' releases by time or number into a transcript; see :func:`summed`.

    A query to several owners is stored once.
    """
    fields_seen: dict[bytes, bytes] = {}
    once = (
        (time, replace(entry, fields=fields_seen.setdefault(entry.fields, entry.fields)))
        for time, entry in lines
    )
    return summed(Transcript(tuple(entry for _, entry in sorted(once, key=lambda line: line[0]))))
