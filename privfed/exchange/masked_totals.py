"""Adds up masked shares: one release stands for all owners of a roster."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from privfed.errors import NobodyAnswered, PolicyError
from privfed.exchange.messages import Release, Reply
from privfed.exchange.transcript import Transcript, TranscriptEntry


def with_totals(replies: Mapping[str, Reply]) -> dict[str, Reply]:
    """The replies to one query; shares of a masked sum are replaced by their total.

    Raises:
        NobodyAnswered: a share of the sum is missing, without which the others say nothing.
        PolicyError: the owners' policies do not agree, so that the masks do not cancel.
    """
    shares = {o: r for o, r in replies.items() if isinstance(r, Release) and r.view}
    rest = {owner: reply for owner, reply in replies.items() if owner not in shares}
    if not shares:
        return rest
    first = next(iter(shares.values()))
    missing = [owner for owner in first.owners if owner not in shares]
    if missing:
        raise NobodyAnswered(
            f"{first.kind}: a masked sum needs the shares of all its {len(first.owners)} owners, and "
            f"{', '.join(missing)} gave none; ask again when they can answer"
        )
    total = total_of(list(shares.values()))
    return {total.client: total, **rest}


def total_of(shares: Sequence[Release]) -> Release:
    """Add up all shares of one masked sum, modulo 2^64: a release by all owners, with its total noise."""
    first = shares[0]
    if {share.view for share in shares} != {first.view} or len(shares) != len(first.owners):
        raise PolicyError(
            f"{first.kind}: the owners' masks do not cancel, for they do not agree on all of: masked, the "
            "kind's guards, the name of who asks; hold their policies beside each other"
        )
    parts = {}
    for name, part in first.parts.items():
        units = np.zeros(part.units.shape, np.uint64)
        for share in shares:
            units += share.parts[name].units.astype(np.int64).view(np.uint64)
        parts[name] = replace(part, units=units.view(np.int64))
    secure = all(share.secure for share in shares)
    called = f"total of {len(first.owners)} owners"
    return replace(first, client=called, parts=parts, secure=secure, view="")


def summed(transcript: Transcript) -> Transcript:
    """The transcript with each complete masked sum in place of its last share; single shares stay."""
    waiting: dict[str, list[Release]] = {}
    entries: list[TranscriptEntry] = []
    for entry in transcript:
        view = entry.release.view
        shares = waiting.setdefault(view, []) if view else []
        shares.append(entry.release)
        if not view:
            entries.append(entry)
        elif len(shares) == len(entry.release.owners):
            total = total_of(waiting.pop(view))
            entries.append(replace(entry, client=total.client, release=total))
    return Transcript(tuple(entries))


def in_time(lines: Iterable[tuple[str, TranscriptEntry]]) -> Transcript:
    """The transcript of several owners' releases, each with its time; see :func:`summed`."""
    return summed(Transcript(tuple(entry for _, entry in sorted(lines, key=lambda line: line[0]))))
