"""What masks cost: processor seconds of masking alone and of a whole fit, and bytes of a share.

    python benchmarks/masked_costs.py [--owners 5 20 100] [--cells 10000] [--fit 100]

Masking alone: every owner hides one vector, pairs' secrets known, under a new view; with dropouts also her
seed's shares, the two steps that open the total, and the opening itself. Unmasked noise is not in it: it is
drawn either way. A fit: the private engine of RuleFit over synthetic records, its processor time in all.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
from result_rows import arguments

from privfed import LocalDisclosure, Policy, Schema
from privfed.exchange.survivors import split
from privfed.learners import RuleFitClassifier
from privfed.owner.masking import MaskingKey
from privfed.owner.unmasking import new_seed
from privfed.questions import wire
from privfed.tables.schema import Column


def seconds(run: Callable[[], Any]) -> float:
    """Processor seconds of this process, the least of three."""
    each = []
    for _ in range(3):
        began = time.process_time()
        run()
        each.append(time.process_time() - began)
    return min(each)


def masking(owners: int, cells: int) -> dict[str, float]:
    """Seconds of all owners together: their pairs' secrets, then hiding a vector, plainly and with a seed."""
    keys = {f"o{k:03d}": MaskingKey(bytes([k, 1]) * 16) for k in range(owners)}
    roster = {name: key.public for name, key in keys.items()}
    vector, views = np.arange(cells), iter(range(10**6))

    def secrets() -> None:
        for key in keys.values():
            key._pairs.clear()
            for public in roster.values():
                key.pair(public)

    def hidden(seeds: bool = False) -> None:
        view = next(views).to_bytes(32, "big")
        for name, key in keys.items():
            seed = new_seed() if seeds else b""
            key.mask(vector, roster, name, view, seed)
            if seeds:
                shares = split(int.from_bytes(seed, "little"), owners, owners // 2 + 2)
                for public, share in zip(roster.values(), shares, strict=True):
                    key.pair(public).box.encrypt(bytes(12), share, b"")

    return {
        "secrets": seconds(secrets),
        "masks": seconds(hidden),
        "with seeds": seconds(lambda: hidden(True)),
    }


def table(owners: int, records: int = 5000) -> tuple[pd.DataFrame, Schema]:
    """Six uniform columns and a yes-or-no target that follows two of them."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.uniform(0, 1, (records, 6)), columns=list("abcdef"))
    frame["y"] = (frame["a"] + frame["b"] + rng.normal(0, 0.3, records) > 1).astype(int)
    columns = tuple(Column(name, lower=0, upper=1) for name in "abcdef")
    schema = Schema(columns, Column("y", "category", categories=("0", "1")))
    return frame.assign(owner=[f"o{k % owners:03d}" for k in range(records)]), schema


def fit(owners: int, terms: dict[str, Any] | None) -> tuple[float, float, float]:
    """Processor seconds of a fit; bytes of all releases a number, and those beyond 8 a number for each owner."""
    frame, schema = table(owners)
    model = RuleFitClassifier(random_state=0)
    policy: Policy = model.private("8", schema=schema)  # so that both ask as often
    if terms is not None:
        policy = policy.masked_among(sorted(set(frame["owner"])), **terms)
    held = LocalDisclosure.from_frame(frame, "y", client="owner", schema=schema, policy=policy)
    began = time.process_time()
    model.fit(held)
    took = time.process_time() - began
    told = [e.release for gate in held.gates.values() for _, e in gate.ledger.disclosed()]
    sent = sum(len(wire.encode(release)) for release in told)
    numbers = sum(part.units.size for release in told for part in release.parts.values())
    answers = sum(bool(release.parts) for release in told)
    held.close()
    return took, sent / numbers, (sent - 8 * numbers) / answers / owners


def main() -> None:
    parser = arguments(__doc__, owners=[5, 20, 100])
    parser.add_argument("--cells", type=int, default=10_000)
    parser.add_argument("--fit", type=int, default=100)
    given = parser.parse_args()
    for owners in given.owners:
        told = ", ".join(f"{k} {v:.4f} s" for k, v in masking(owners, given.cells).items())
        print(f"{owners} owners x {given.cells} numbers, all together: {told}", flush=True)
    plain = 0.0
    cases: dict[str, dict[str, Any] | None] = {
        "noise of each": None, "masked": {}, "dropouts": {"least": given.fit // 2 + 2}
    }  # fmt: skip
    for name, terms in cases.items():
        took, number, peer = fit(given.fit, terms)
        plain = plain or took
        print(
            f"{given.fit} owners' fit, {name}: {took:.2f} s ({took / plain:.2f}), {number:.1f} bytes a number: "
            f"8 and {max(peer, 0):.0f} for each owner of a total",
            flush=True,
        )


if __name__ == "__main__":
    main()
