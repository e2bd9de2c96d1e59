"""What a failing test prints is cleared of raw values, and of nothing else."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from privfed.leaks.table import raw_tables
from privfed.testing import RawValueLeft, assert_no_raw, sentinels
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
        ("edeltraud_wurm3.csv, Edeltraud-Wurm4", "[raw].csv, [raw]"),
        ("é Edeltraud  WURM3 é", "é [raw] é"),
        ("array([5.2125e+01, 1e-05]), 52,125 mg", "array([[raw], 1e-05]), [raw] mg"),
        ("\x1b[1;36m52.125\x1b[0m of \x1b[32medeltraud wurm3\x1b[0m", "[raw] of [raw]"),
        ("ids 70,008 and 70'015", "ids [raw] and [raw]"),
        ("", ""),
    ],
)
def test_only_raw_values_go(printed: str, cleared: str) -> None:
    """Names in any case and spacing, days and numbers in any notation, at the precision they are printed with."""
    assert CLEAN.of(printed) == cleared


def test_sentinels_stay() -> None:
    """They may be shown."""
    assert not Redaction(raw_tables(sentinels(TABLE, 20)))


@pytest.mark.parametrize(
    "key",
    [
        *(
            "EDELTRAUD WURM3",
            "edeltraud_wurm3",
            "51.125 mg",
            "5.1125e+01",
            "11.05.1980",
            "id=70,008",
        ),
    ],
)
def test_a_message_names_no_value_that_was_a_key(key: str) -> None:
    """In no notation; nor does the repr of what was found."""
    wurms = [f"Edeltraud Wurm{at}" for at in np.random.default_rng(0).integers(10**8, 10**9, 9)]
    table = TABLE.assign(mail=wurms)
    with pytest.raises(RawValueLeft) as caught:
        assert_no_raw({key: {"who": wurms[5]}}, table)
    for shown in (str(caught.value), repr(caught.value.matches)):
        assert key not in shown and "Wurm" not in shown and "51.125" not in shown
