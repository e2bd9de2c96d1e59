"""How often innocent artefacts are convicted: python benchmarks/leak_alarms.py [tables] [records]

Every artefact of innocent.py against tables (30 of each kind unless given) of 300 records, at the rate
that an assertion has outside a suite (1e-3). Prints each alarm, and the rate.
"""

from __future__ import annotations

import sys
import time
from collections import Counter

import numpy as np
from innocent import INNOCENT
from leak_tables import KINDS

from privfed.leaks.artefact import Released
from privfed.leaks.reading.walk import flatten
from privfed.leaks.scan import ScanSettings, search
from privfed.leaks.table import raw_tables


def alarms(
    names: list[str], kinds: list[str], seeds: range, n: int
) -> tuple[list[tuple[str, str, int, str]], int]:
    """Convictions, and how many pairs of artefact and table were looked at."""
    found, looked = [], 0
    for kind in kinds:
        for seed in seeds:
            tables = raw_tables(KINDS[kind](n, 1000 + seed))
            for at, name in enumerate(names):
                released = Released.of(
                    flatten(INNOCENT[name](np.random.default_rng([7, seed, at])), rows=True)
                )
                looked += 1
                for one in search(tables, released, ScanSettings(1e-3)):
                    found.append(
                        (
                            name,
                            kind,
                            seed,
                            f"{one.rule}, {one.nats:.1f} nats, {one.record}, {one.where}",
                        )
                    )
    return found, looked


if __name__ == "__main__":
    count, n = (
        int(sys.argv[at]) if len(sys.argv) > at else default for at, default in ((1, 30), (2, 300))
    )
    first = int(sys.argv[3]) if len(sys.argv) > 3 else 0
    started = time.process_time()
    found, looked = alarms(list(INNOCENT), list(KINDS), range(first, first + count), n)
    for name, kind, seed, text in found:
        print(f"{name:26} {kind:10} {seed:3} {text}", flush=True)
    pairs = {(name, kind, seed) for name, kind, seed, _ in found}
    print(
        f"{len(pairs)} alarms of {looked} ({len(pairs) / looked:.5f}) at {n} records, {time.process_time() - started:.0f} s"
    )
    print(Counter(name for name, _, _ in pairs).most_common(12))
