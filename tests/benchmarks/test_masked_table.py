"""The table of masked sums in the docs is what its benchmark prints of its results."""

from pathlib import Path

import pandas as pd
from masked_sums import table

ROOT = Path(__file__).resolve().parents[2]


def test_the_docs_have_the_table_of_the_results() -> None:
    """Every line; a cell that is measured anew and not told fails."""
    rows = pd.read_csv(ROOT / "benchmarks" / "results" / "private_masked.csv")
    told = (ROOT / "docs" / "masked-sums.md").read_text(encoding="utf-8")
    assert "\n".join(table(rows)) in told
    assert "\n".join(table(rows.assign(value=rows["value"] + 0.01))) not in told
