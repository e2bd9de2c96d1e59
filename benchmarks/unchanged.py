"""Does changed code give the same figures? A rerun of some rows beside those that earlier code wrote.

    python benchmarks/unchanged.py BEFORE.csv RERUN.csv --code genetic_tree [--before "genetic_tree 0cbdd7935bcf"]

Where code was changed for its speed or its wording, hours of reruns would print the same digits. This command
is given the rows of some of the settings, measured again, and compares them to ten digits (files that were read and
written again lose the last), all but their source and their times: if every one of them is among the earlier rows, it notes in ``published/unchanged.csv`` that today's
code gives what the earlier code gave, and how many rows of which file say so; tables measured with the earlier
code are then not stale (:func:`result_rows.up_to_date`). If one differs, nothing is noted, and the command says which. A note is
for all tables of that digest: rerun rows that stand for each of them, or measure the others anew. Rows
in which a word begins with one of ``--without`` are not compared: protocols that draw the system's noise, which no seed repeats.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import pandas as pd
from result_rows import SOURCE, UNCHANGED, code, today


def differing(before: pd.DataFrame, rerun: pd.DataFrame) -> pd.DataFrame:
    """Rows of the rerun that are not among the earlier ones, but for their source, seconds and notes; both hold text."""
    ignored = {*SOURCE, "seconds", "note"}
    columns = [one for one in rerun.columns if one not in ignored]
    if missing := [one for one in columns if one not in before.columns]:
        raise SystemExit(f"the earlier file has no column {', '.join(missing)}")
    known, found = (
        list(table[columns].map(_text).itertuples(index=False, name=None))
        for table in (before, rerun)
    )
    earlier = set(known)
    return rerun[[one not in earlier for one in found]]


def _text(value: str) -> str:
    try:
        return f"{float(value):.10g}"
    except ValueError:
        return value


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("files", type=Path, nargs=2, metavar="CSV", help="the earlier, the rerun")
    parser.add_argument("--code", required=True, help="the learner's folder, as result_rows.CODE")
    parser.add_argument("--before", help="the earlier digest; default: the one in the earlier file")
    parser.add_argument("--without", nargs="*", default=[], help="words of rows to leave out")
    given = parser.parse_args()
    before, rerun = (pd.read_csv(file, dtype=str, keep_default_na=False) for file in given.files)
    drawn = rerun.map(lambda cell: cell.startswith(tuple(given.without))).any(axis=1)
    rerun = rerun[~drawn]
    earlier = {given.before} if given.before else {*before.get("code", [])}
    if len(earlier) != 1 or not len(rerun):
        parser.error(f"the earlier rows have {len(earlier)} codes, the rerun {len(rerun)} rows")
    if len(wrong := differing(before, rerun)):
        sys.exit(f"{len(wrong)} of {len(rerun)} rows differ, the first:\n{wrong.iloc[0]}")
    row = {
        "before": earlier.pop(),
        "after": code(given.code),
        "rows": len(rerun),
        "of": given.files[0].stem,
        "date": today(),
    }
    known = pd.read_csv(UNCHANGED, dtype=str) if UNCHANGED.exists() else pd.DataFrame()
    table = pd.concat([known, pd.DataFrame([row]).astype(str)]).drop_duplicates()
    table.to_csv(UNCHANGED, index=False, lineterminator="\n")
    print(f"{len(rerun)} rows the same: {row['before']} gives what {row['after']} gives")


if __name__ == "__main__":
    main()
