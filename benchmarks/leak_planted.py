"""How many planted leaks are found: python benchmarks/leak_planted.py [trials] [records ...] [--save FILE] [--jobs N]

The 61 kinds of planted.py, each on tables as systems hold them and on sentinels made after them, at
300, 3,000 and 50,000 records unless given; four trials (other records) a table, all forms of which are
held against the same re-drawn tables. What is done is kept, a line a table, in FILE, and not done again.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pandas as pd
from leak_tables import records
from planted import PLANTED

from privfed.leaks import table as leaks_table
from privfed.leaks.artefact import Released
from privfed.leaks.reading.walk import flatten
from privfed.leaks.scan import ScanSettings, floor_of, scores, unexplained
from privfed.leaks.table import raw_tables
from privfed.testing.sentinel_tables import sentinels

A_TABLE = 4  #: How many trials are made with one table
TABLES = ("plain", "sentinels")
SETTINGS = ScanSettings(1e-3)


def found(frame: pd.DataFrame, kinds: list[str], seeds: range) -> dict[tuple[str, int], str]:
    """The rule that found each kind in each trial, or nothing.

    As a search does, rule by rule, the plainest first; but what leaves in all trials is held against
    each re-drawn table before the next is drawn.
    """
    (table,) = raw_tables(frame)
    waiting = {}
    for seed in seeds:
        for kind in kinds:
            rng = np.random.default_rng([seed, 5])
            left = PLANTED[kind](frame, int(rng.integers(10, len(frame) - 50)), rng)
            waiting[kind, seed] = scores(table, Released.of(flatten(left, rows=True)), SETTINGS)
    rules = dict.fromkeys(waiting, "")
    while waiting:
        asked = {}
        for one, scored in list(waiting.items()):
            above = (
                (evidence, score)
                for score, evidence in scored
                if evidence.nats >= floor_of(evidence.family, SETTINGS, 1)
            )
            if (first := next(above, None)) is None:
                del waiting[one]
            else:
                asked[one] = first
        with patch.object(
            leaks_table, "KEPT", 0
        ):  # what is worked out of a drawn table serves all forms
            beyond = {id(one) for one in unexplained(list(asked.values()), table, SETTINGS)}
        for one, (evidence, _) in asked.items():
            if id(evidence) in beyond:
                rules[one] = evidence.rule
                del waiting[one]
    return rules


def tables(n: int, seed: int) -> dict[str, pd.DataFrame]:
    """A table, and sentinels after it."""
    plain = records(n, 500 + seed)
    return {"plain": plain, "sentinels": sentinels(plain, n, seed=seed)}


def trials_of(n: int, name: str, number: int, count: int) -> dict[str, Any]:
    """So many trials of one table, and the processor time they took."""
    started = time.process_time()
    first = number * A_TABLE
    rules = found(tables(n, number)[name], list(PLANTED), range(first, first + count))
    missed = Counter(kind for (kind, _), rule in rules.items() if not rule)
    spent = time.process_time() - started
    return {
        "records": n,
        "table": name,
        "number": number,
        "trials": count,
        "missed": missed,
        "seconds": round(spent, 1),
    }


def main(count: int, sizes: list[int], file: Path | None, jobs: int) -> None:
    done = (
        [json.loads(line) for line in file.read_text().splitlines()]
        if file and file.exists()
        else []
    )
    known = {(one["records"], one["table"], one["number"], one["trials"]) for one in done}
    numbers = range(-(-count // A_TABLE))
    wanted = [
        (n, name, number, min(A_TABLE, count - number * A_TABLE))
        for n in sizes
        for number in numbers
        for name in TABLES
    ]
    with ProcessPoolExecutor(jobs) as pool:
        running = [pool.submit(trials_of, *one) for one in wanted if one not in known]
        for one in as_completed(running):
            done.append(one.result())
            if file:
                with file.open("a") as lines:
                    lines.write(json.dumps(done[-1]) + "\n")
    for n in sizes:
        for name in TABLES:
            told([one for one in done if (one["records"], one["table"]) == (n, name)])


def told(lines: list[dict[str, Any]]) -> None:
    """How many kinds were found in every trial, and which were not."""
    count = sum(one["trials"] for one in lines)
    missed = sum((Counter(one["missed"]) for one in lines), Counter[str]())
    mean = len(PLANTED) - missed.total() / count
    print(
        f"{lines[0]['table']:10} {lines[0]['records']:6} records: {len(PLANTED) - len(missed)} of {len(PLANTED)} "
        f"kinds in all {count} trials, {mean:.2f} a trial, {sum(one['seconds'] for one in lines) / count:.1f} s each"
    )
    for kind, times in missed.most_common():
        print(f"  missed {times} of {count}: {kind}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("trials", type=int, nargs="?", default=4)
    parser.add_argument("records", type=int, nargs="*", default=[300, 3000, 50_000])
    parser.add_argument("--save", type=Path)
    parser.add_argument("--jobs", type=int, default=1)
    given = parser.parse_args()
    main(given.trials, given.records, given.save, given.jobs)
