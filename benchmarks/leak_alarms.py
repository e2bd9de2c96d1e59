"""How often innocent artefacts are convicted: python benchmarks/leak_alarms.py [tables] [records] [--first SEED] [--save FILE]

Every artefact of innocent.py against tables (30 of each kind unless given) of 300 records, at the rate
that an assertion has outside a suite (1e-3). Prints each alarm, and the rate. What is done is kept in FILE,
and not done again.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from pathlib import Path

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


def main(count: int, n: int, first: int, file: Path | None) -> None:
    done = [json.loads(line) for line in file.open()] if file and file.exists() else []
    known = {(one["records"], one["kind"], one["seed"]) for one in done}
    for seed in range(first, first + count):
        for kind in [kind for kind in KINDS if (n, kind, seed) not in known]:
            started = time.process_time()
            found, looked = alarms(list(INNOCENT), [kind], range(seed, seed + 1), n)
            spent = round(time.process_time() - started, 1)
            for name, *_, text in found:
                print(f"{name:26} {kind:10} {seed:3} {text}", flush=True)
            alarmed = sorted({name for name, *_ in found})
            done.append({"records": n, "kind": kind, "seed": seed, "looked": looked})
            done[-1] |= {"alarmed": alarmed, "seconds": spent}
            if file:
                with file.open("a") as lines:
                    lines.write(json.dumps(done[-1]) + "\n")
    done = [one for one in done if one["records"] == n]
    looked = sum(one["looked"] for one in done)
    often = Counter(name for one in done for name in one["alarmed"])
    print(
        f"{often.total()} alarms of {looked} ({often.total() / looked:.5f}) at {n} records, "
        f"{sum(one['seconds'] for one in done):.0f} s: {dict(often)}"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tables", type=int, nargs="?", default=30)
    parser.add_argument("records", type=int, nargs="?", default=300)
    parser.add_argument("--first", type=int, default=0, help="the first table's seed")
    parser.add_argument("--save", type=Path, help="keeps what is done, a line a table")
    given = parser.parse_args()
    main(given.tables, given.records, given.first, given.save)
