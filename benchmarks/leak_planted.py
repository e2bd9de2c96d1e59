"""How many planted leaks are found: python benchmarks/leak_planted.py [trials] [records ...]

The 61 kinds of planted.py, each on tables as systems hold them and on sentinels made after them, at
300, 3,000 and 50,000 records unless given.
"""

from __future__ import annotations

import sys
import time

import numpy as np
import pandas as pd
from leak_tables import records
from planted import PLANTED

from privfed.leaks import table
from privfed.leaks.artefact import Released
from privfed.leaks.reading.walk import flatten
from privfed.leaks.scan import ScanSettings, search
from privfed.leaks.table import raw_tables
from privfed.testing.sentinel_tables import sentinels


def found(table: pd.DataFrame, kind: str, seed: int) -> str:
    """The rule that found a kind in a table, or nothing."""
    rng = np.random.default_rng([seed, 5])
    left = PLANTED[kind](table, int(rng.integers(10, len(table) - 50)), rng)
    hits = search(raw_tables(table), Released.of(flatten(left, rows=True)), ScanSettings(1e-3))
    return hits[0].rule if hits else ""


def tables(n: int, seed: int) -> dict[str, pd.DataFrame]:
    """A table, and sentinels after it."""
    plain = records(n, 500 + seed)
    return {"plain": plain, "sentinels": sentinels(plain, n, seed=seed)}


def main(trials: int, sizes: list[int], verbose: bool) -> None:
    table.KEPT = 200_000  # re-drawn tables serve all kinds
    for n in sizes:
        started = time.process_time()
        counts = {name: dict.fromkeys(PLANTED, 0) for name in ("plain", "sentinels")}
        for seed in range(trials):
            for name, frame in tables(n, seed).items():
                for kind in PLANTED:
                    rule = found(frame, kind, seed)
                    counts[name][kind] += bool(rule)
                    if verbose:
                        print(f"{name:9} {n} {kind:42} {rule}", flush=True)
        for name, each in counts.items():
            always = sum(count == trials for count in each.values())
            mean = sum(each.values()) / trials
            missed = {kind: count for kind, count in each.items() if count < trials}
            print(
                f"{name:10} {n:6} records: {always} of {len(PLANTED)} kinds in all {trials} trials, {mean:.1f} a trial",
                flush=True,
            )
            print(f"  less often: {missed}", flush=True)
        print(f"  {time.process_time() - started:.0f} s", flush=True)


if __name__ == "__main__":
    numbers = [int(word) for word in sys.argv[1:] if word.isdecimal()]
    main(numbers[0] if numbers else 3, numbers[1:] or [300, 3000, 50_000], "-v" in sys.argv)
