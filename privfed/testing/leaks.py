"""An assertion for anybody's tests: no number of the raw table stands in what was released."""

from __future__ import annotations

import pandas as pd

from privfed.attacks.verbatim import Verbatim
from privfed.records import Records
from privfed.release import Transcript
from privfed.schema import Schema


def assert_nothing_verbatim(
    transcript: Transcript, frame: pd.DataFrame, schema: Schema, client: str
) -> None:
    """Hold the verbatim scan against a transcript: nothing is found that chance does not explain.

    Args:
        transcript: what left, such as ``federation.transcript()``.
        frame: the raw table that the federation was built from.
        schema: its public data dictionary.
        client: the column that names each record's data owner.

    Raises:
        AssertionError: raw values stand in the releases (the message counts them and shows none), or
            there was nothing to look for or nothing to look through.
    """
    assert len(transcript), "nothing was released at all"
    names = frame[client].astype(str).str.strip()
    truth = {
        str(name): Records.from_frame(part, schema, owner=str(name))
        for name, part in frame.groupby(names.to_numpy(), sort=False)
    }
    found = Verbatim().run(transcript, truth, schema)
    assert found, "no release of these clients holds any number to compare with the table"
    leaks = [
        f"{', '.join(one.releases)}: {one.value:g} of {one.of:g} {one.metric}, "
        f"{one.baseline:g} expected by chance"
        for one in found
        if one.severity != "none"
    ]
    assert not leaks, "; ".join(leaks)
