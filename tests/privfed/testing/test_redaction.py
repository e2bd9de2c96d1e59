"""What a failing test prints is cleared of raw values, and of nothing else."""

from __future__ import annotations

import pandas as pd
import pytest

from privfed.leaks.table import raw_tables
from privfed.testing import sentinels
from privfed.testing.redaction import Redaction

TABLE = pd.DataFrame(
    {
        "name": [f"Edeltraud Wurm{at}" for at in range(9)],
        "dose": [50.125 + at for at in range(9)],
        "id": [70_001 + 7 * at for at in range(9)],
        "born": pd.date_range("1980-02-01", periods=9, freq="100D"),
    }
)
CLEAN = Redaction(raw_tables(TABLE))


@pytest.mark.parametrize(
    ("printed", "cleared"),
    [
        ("for Edeltraud Wurm3!", "for [raw]!"),
        ("for EDELTRAUD WURM3", "for [raw]"),
        ("dose=52.125 mg", "dose=[raw] mg"),
        ("52.1 and 52.13", "[raw] and [raw]"),
        ("id 70008, -70008", "id [raw], [raw]"),
        ("record 7 of 200, 52 percent, line 70", "record 7 of 200, 52 percent, line 70"),
        ("51.0 and 70009", "51.0 and 70009"),
        ("born 1980-02-01 or 11/05/1980, 2026-02-01", "born [raw] or [raw], 2026-02-01"),
        ("a EDELTR... wurm8 b ...", "a [raw]...[raw] b ..."),
        ("", ""),
    ],
)
def test_only_raw_values_go(printed: str, cleared: str) -> None:
    """Names in any case, days in any notation, and numbers at the precision they are printed with."""
    assert CLEAN.of(printed) == cleared


def test_sentinels_stay() -> None:
    """They may be shown."""
    assert not Redaction(raw_tables(sentinels(TABLE, 20)))
