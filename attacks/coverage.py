"""Whether every kind of release was read by an attack that knows what its numbers mean."""

from collections.abc import Sequence

from privfed.attacks.base import Attack, exact_parts
from privfed.attacks.finding import Finding, Severity
from privfed.exchange.transcript import Transcript

NAME = "coverage"
QUESTION = "Is every kind of release read by an attack that knows what its numbers mean?"
METRIC = "kinds of release that are exact and read only by the verbatim scan"


def coverage(transcript: Transcript, attacks: Sequence[Attack]) -> list[Finding]:
    """Report the kinds of release that no attack reads but by scanning for raw values.

    One finding, whose ``releases`` are the kinds released exactly and unread; none for an empty transcript.
    """
    readers: dict[str, list[str]] = {}
    unread: dict[str, bool] = {}
    for entry in transcript:
        names = [attack.name for attack in attacks if attack.reads(entry)]
        readers[entry.kind] = sorted({*readers.get(entry.kind, ()), *names})
        unread[entry.kind] = unread.get(entry.kind, False) or bool(exact_parts(entry))
    if not readers:
        return []
    exact = tuple(sorted(kind for kind, names in readers.items() if unread[kind] and not names))
    noisy = sorted(kind for kind, names in readers.items() if not unread[kind] and not names)
    return [
        Finding(
            NAME,
            QUESTION,
            METRIC,
            len(exact),
            of=len(readers),
            baseline=0.0,
            releases=exact,
            severity=Severity.SOME if exact else Severity.NONE,
            detail={
                "read by": {kind: names for kind, names in sorted(readers.items()) if names},
                "left with noise and unread": noisy,
            },
            simulation=False,
        )
    ]
