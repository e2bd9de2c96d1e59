"""What the assertions catch, what they take for a leak, and how fast: python benchmarks/assertions.py [what]

forms    how often each leaky form is caught, and each safe one flagged, over --trials
alarms   random floats against a random table, and a table of small whole numbers (leak_alarms.py: a corpus)
small    300 records against every innocent artefact, and four of 10 kB, in milliseconds of processor time
speed    100 MB of each kind (or of --kinds) against a million raw values, in seconds of
         processor time

A form counts as caught if assert_no_raw or assert_support convicts it; the columns tell which did.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import pickle
import sqlite3
import struct
import time
import zlib
from collections.abc import Callable, Sequence
from decimal import Decimal
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from innocent import INNOCENT
from leak_tables import records
from result_rows import arguments

from privfed.testing import assert_no_raw, assert_support, sentinels

Rng = np.random.Generator
#: What a run shares of a table; the last two arguments name the record and the column that leak.
Share = Callable[[np.ndarray, Rng, int, int], Any]
RECORDS, COLUMNS, FEW = 60, 5, 5
FRAME = pd.DataFrame(
    np.random.default_rng(0).normal(50, 10, (RECORDS, COLUMNS)),
    columns=["age", "weight", "height", "pressure", "days"],
)


def _weights(rng: Rng, count: int = 20) -> np.ndarray:
    return rng.normal(size=count)


def _standardised(x: np.ndarray, rng: Rng, i: int, j: int) -> Any:
    """By statistics of a federation that the table is a part of."""
    mean, deviation = rng.normal(50, 5, x.shape[1]), rng.uniform(5, 15, x.shape[1])
    return {"scaler": {"mean": mean, "std": deviation}, "example": (x[i] - mean) / deviation}


def _brain(row: np.ndarray) -> np.ndarray:
    return (row.astype(np.float32).view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)


def _one_hot(x: np.ndarray, j: int) -> np.ndarray:
    codes = np.digitize(x[:, j], np.quantile(x[:, j], [0.3, 0.6]))
    return np.asarray(np.eye(3)[codes])


#: The thirteen forms of the first trials, and four that were missed then.
KNOWN: dict[str, Share] = {
    "a value": lambda x, r, i, j: {"w": _weights(r), "b": x[i, j]},
    "one last place away": lambda x, r, i, j: np.append(_weights(r), np.nextafter(x[i, j], 1e9)),
    "a 32-bit row": lambda x, r, i, j: {"w": _weights(r), "b": x[i].astype(np.float32)},
    "text, all digits": lambda x, r, i, j: f"loss 0.31 at {x[i, j]!r}",
    "bytes": lambda x, r, i, j: b"head" + x[i].tobytes(),
    "bytes, big end first": lambda x, r, i, j: x[i].astype(">f8").tobytes(),
    "midpoint": lambda x, r, i, j: {"cut": (x[i, j] + x[i - 1, j]) / 2},
    "sum of two": lambda x, r, i, j: {"sum": x[i, j] + x[i - 1, j]},
    "square": lambda x, r, i, j: {"moment": x[i, j] ** 2},
    "parent less sibling": lambda x, r, i, j: {
        "all": x[:, j].sum(),
        "left": np.delete(x[:, j], i).sum(),
    },
    "base64 of zlib of JSON": lambda x, r, i, j: base64.b64encode(
        zlib.compress(json.dumps(x[i].tolist()).encode())
    ).decode(),
    "z-scores": lambda x, r, i, j: (x[i] - x.mean(axis=0)) / x.std(axis=0),
    "text, 3 decimals": lambda x, r, i, j: f"worst record {x[i, j]:.3f}",
    "a 16-bit copy": lambda x, r, i, j: {"w": _weights(r), "b": x[i].astype(np.float16)},
    "standardised, mean and deviation beside": _standardised,
    "raw bytes of the table": lambda x, r, i, j: x.tobytes(),
    "rounded to one decimal": lambda x, r, i, j: {"w": _weights(r), "b": round(float(x[i, j]), 1)},
}
#: Further forms.
FURTHER: dict[str, Share] = {
    "appended to weights": lambda x, r, i, j: np.append(_weights(r), x[i, j]),
    "least and greatest": lambda x, r, i, j: [x[:, j].min(), x[:, j].max()],
    "quantile": lambda x, r, i, j: np.quantile(x[:, j], 0.9),
    "a 16-bit column": lambda x, r, i, j: x[:, j].astype(np.float16),
    "a bfloat16 row": lambda x, r, i, j: _brain(x[i]),
    "a row to one decimal": lambda x, r, i, j: np.round(x[i], 1),
    "a row cut to whole numbers": lambda x, r, i, j: x[i].astype(int),
    "a row as text, 6 digits": lambda x, r, i, j: " ".join(f"{v:.6g}" for v in x[i]),
    "fixed point, thousandths": lambda x, r, i, j: (x[i] * 1000).astype(int),
    "fixed point, 2^16": lambda x, r, i, j: (x[i] * 2**16).astype(int),
    "percent": lambda x, r, i, j: x[i, j] * 100,
    "logarithm": lambda x, r, i, j: np.log(x[i, j]),
    "exponential of a scaled row": lambda x, r, i, j: np.exp(x[i] / 10),
    "softmax of a row": lambda x, r, i, j: np.exp(x[i]) / np.exp(x[i]).sum(),
    "unknown affine column": lambda x, r, i, j: 3.1 * x[:, j] + 7,
    "the same, shuffled": lambda x, r, i, j: r.permutation(3.1 * x[:, j] + 7),
    "unknown affine row": lambda x, r, i, j: 3.1 * x[i] + 7,
    "scaled to its range": lambda x, r, i, j: (x[i, j] - x[:, j].min()) / np.ptp(x[:, j]),
    "difference to the mean": lambda x, r, i, j: x[i, j] - x[:, j].mean(),
    "normalised row": lambda x, r, i, j: x[i] / np.linalg.norm(x[i]),
    "negated": lambda x, r, i, j: -x[i],
    "cumulative sums": lambda x, r, i, j: np.cumsum(x[:, j]),
    "sorted column": lambda x, r, i, j: np.sort(x[:, j]),
    "order of a column": lambda x, r, i, j: np.argsort(x[:, j]),
    "ranks": lambda x, r, i, j: np.argsort(np.argsort(x[:, j])),
    "shuffled rows": lambda x, r, i, j: r.permutation(x),
    "transposed, 32 bits": lambda x, r, i, j: x.T.astype(np.float32),
    "a bit for each record": lambda x, r, i, j: x[:, j] > 50,
    "one-hot": lambda x, r, i, j: _one_hot(x, j),
    "two totals": lambda x, r, i, j: (x[:, j].mean(), np.delete(x[:, j], i).mean()),
    "outer product": lambda x, r, i, j: np.outer(x[i], x[i]),
    "mean of three": lambda x, r, i, j: x[[i, i - 1, i - 2], j].mean(),
    "variance of two": lambda x, r, i, j: x[[i, i - 1], j].var(),
    "an exception": lambda x, r, i, j: ValueError(f"cannot parse {x[i]!r}"),
    "run together": lambda x, r, i, j: "".join(repr(float(v)) for v in x[i]),
    "nested pickle": lambda x, r, i, j: base64.b64encode(gzip.compress(pickle.dumps(x[i]))),
    "hexadecimal": lambda x, r, i, j: x[i].tobytes().hex(),
    "digest": lambda x, r, i, j: hashlib.sha256(str(x[i, j]).encode()).hexdigest(),
    "decimal": lambda x, r, i, j: [Decimal(str(round(float(v), 5))) for v in x[i]],
    "imaginary part": lambda x, r, i, j: complex(1, x[i, j]),
    "structured array": lambda x, r, i, j: np.array([(x[i, j], 1)], [("a", "f8"), ("b", "i4")]),
    "under a mask": lambda x, r, i, j: np.ma.masked_array(x[i], mask=True),
    "a set": lambda x, r, i, j: set(x[i].tolist()),
    "keys of a dictionary": lambda x, r, i, j: {float(x[i, j]): 1},
    "a generator": lambda x, r, i, j: (v for v in x[i].tolist()),
    "an index": lambda x, r, i, j: pd.DataFrame({"a": [1, 2]}, index=[x[i, j], 1.0]),
    "names of columns": lambda x, r, i, j: pd.DataFrame([[1, 2]], columns=[x[i, j], 1.0]),
    "categories": lambda x, r, i, j: pd.Categorical(x[i]),
}
SAFE: dict[str, Share] = {
    "means": lambda x, r, i, j: x.mean(axis=0),
    "noisy sums": lambda x, r, i, j: x.sum(axis=0) + r.laplace(scale=100, size=x.shape[1]),
    "two counts": lambda x, r, i, j: np.histogram(x[:, j], [0, 50, 120])[0],
    "second moments": lambda x, r, i, j: x.T @ x,
    "least squares": lambda x, r, i, j: np.linalg.lstsq(x[:, :-1], x[:, -1], rcond=None)[0],
    "means to one decimal": lambda x, r, i, j: np.round(x.mean(axis=0), 1),
    "settings": lambda x, r, i, j: {"rate": 0.1, "rounds": 60, "edges": list(range(0, 101, 10))},
    "random weights": lambda x, r, i, j: r.normal(size=(x.shape[0], 7)),
}


def convicts(assertion: Callable[[], None]) -> bool:
    try:
        assertion()
    except AssertionError:
        return True
    return False


def judged(share: Share, table: pd.DataFrame, trial: int) -> tuple[bool, bool]:
    rng = np.random.default_rng(trial)
    i, j = int(rng.integers(2, RECORDS)), int(rng.integers(COLUMNS))

    def run(some: pd.DataFrame) -> Any:
        return share(some.to_numpy(), np.random.default_rng(trial), min(i, len(some) - 1), j)

    raw = convicts(lambda: assert_no_raw(run(table), table))
    return raw, False if raw else convicts(lambda: assert_support(run, table, FEW))


def forms(trials: int) -> None:
    """Every form in every trial's table; what is known so far after each ten trials."""
    listed = {
        (name, form): share
        for name, group in {"known": KNOWN, "further": FURTHER, "safe": SAFE}.items()
        for form, share in group.items()
    }
    found = {key: np.zeros(2, dtype=int) for key in listed}
    for trial in range(trials):
        table = sentinels(FRAME, RECORDS, seed=trial)
        for key, share in listed.items():
            found[key] += judged(share, table, trial)
        if trial % 10 == 9 or trial + 1 == trials:
            print(f"--- {trial + 1} trials")
            for (name, form), (raw, support) in found.items():
                print(
                    f"{name:8} {form:40} caught {raw + support:4} of {trial + 1}: "
                    f"{raw} by assert_no_raw, {support} by assert_support",
                    flush=True,
                )


def alarms(trials: int) -> None:
    rng = np.random.default_rng(1)
    table = rng.normal(size=(1000, 20))
    found = convicts(lambda: assert_no_raw(rng.normal(size=1_000_000), table))
    print(f"1,000,000 random floats against 1000 x 20: {'ALARM' if found else 'no alarm'}")
    for alpha in (0.05, 1e-3):
        hits = sum(flagged_by_chance(trial, alpha) for trial in range(trials))
        print(f"whole numbers at alpha {alpha:g}: {hits} alarms in {trials} trials")


def flagged_by_chance(trial: int, alpha: float) -> bool:
    rng = np.random.default_rng(trial)
    small = rng.integers(0, rng.integers(5, 2000), (200, 6))
    left = {"counts": rng.integers(0, 500, 50), "sums": small.sum(axis=0), "n": 200}
    return convicts(lambda: assert_no_raw(left, small, alpha=alpha))


def _everyday(rng: Rng) -> dict[str, Callable[[], Any]]:
    """100 MB of each kind of file that a pipeline writes, of nobody in the table."""

    def frame(rows: int) -> pd.DataFrame:
        return pd.DataFrame(
            {
                "id": np.arange(rows),
                "loss": rng.normal(size=rows).round(4),
                "seconds": rng.uniform(0, 90, rows).round(3),
                "state": rng.choice(["done", "failed", "retried"], rows),
            }
        )

    def log() -> str:
        columns = frame(2_100_000).itertuples(index=False, name=None)
        return "\n".join(f"12:{a % 60:02}:07 {d} job {a} took {c} ms" for a, _, c, d in columns)

    def forest() -> bytes:
        from sklearn.ensemble import RandomForestRegressor

        x = rng.normal(size=(20_000, 5))
        return pickle.dumps(
            RandomForestRegressor(57, random_state=0).fit(x, rng.normal(size=20_000))
        )

    def database() -> bytes:
        connection = sqlite3.connect(":memory:")
        frame(3_000_000).to_sql("jobs", connection, index=False)
        return connection.serialize()

    def picture() -> bytes:
        rows = np.pad(rng.integers(0, 256, (5000, 20_000), dtype=np.uint8), ((0, 0), (1, 0)))
        parts = {"IHDR": struct.pack(">IIBBBBB", 20_000, 5000, 8, 0, 0, 0, 0)}
        parts |= {"IDAT": zlib.compress(rows.tobytes(), 1), "IEND": b""}
        return b"\x89PNG\r\n\x1a\n" + b"".join(
            struct.pack(">I", len(data))
            + (body := kind.encode() + data)
            + struct.pack(">I", zlib.crc32(body))
            for kind, data in parts.items()
        )

    return {
        "JSON": lambda: frame(1_500_000).to_json(orient="records"),
        "a log": log,
        "CSV": lambda: frame(3_400_000).to_csv(index=False),
        "a pickled forest": forest,
        "an SQLite database": database,
        "a PNG": picture,
        "gzip (of a log of 100 MB)": lambda: gzip.compress(log().encode(), 1),
    }


def speed(trials: int, wanted: Sequence[str] = ()) -> None:
    rng = np.random.default_rng(2)
    table = rng.normal(size=(50_000, 20))
    kinds: dict[str, Callable[[], Any]] = {
        "64-bit floats": lambda: rng.normal(size=12_500_000),
        "32-bit floats": lambda: rng.normal(size=25_000_000).astype(np.float32),
        "random bytes": lambda: rng.bytes(100_000_000),
        "100,000 arrays": lambda: [rng.normal(size=125) for _ in range(100_000)],
        "whole numbers": lambda: rng.integers(0, 10**6, 12_500_000),
        "text": lambda: " ".join(map(repr, rng.normal(size=5_000_000).tolist())),
        **_everyday(rng),
    }
    for kind in wanted or kinds:
        left = kinds[kind]()
        megabytes = len(left) / 1e6 if isinstance(left, str | bytes) else 100
        started = time.process_time()
        found = convicts(partial(assert_no_raw, left, table))
        spent = time.process_time() - started
        told = f"{megabytes:.0f} MB of {kind}: {spent:.1f} s"
        print(f"{told}{', ALARM' if found else ''}", flush=True)


def small(trials: int) -> None:
    """On a table that an assertion has met before, as all but the first of a suite do."""
    rng = np.random.default_rng(0)
    table = records(300, 1)
    steps = [{"id": at, "loss": round(float(rng.normal()), 4), "note": "done"} for at in range(230)]
    large = {
        "10 kB of floats": rng.normal(size=1250),
        "10 kB of JSON": json.dumps(steps),
        "10 kB of a log": "\n".join(
            f"12:{at % 60:02}:07 took {rng.uniform(0, 90):.3f} ms" for at in range(430)
        ),
        "10 kB of bytes": rng.bytes(10_000),
    }
    made = {name: of(np.random.default_rng(0)) for name, of in INNOCENT.items()}
    spent = {}
    for name, left in {**made, **large}.items():
        times = []
        for _ in range(max(1, min(trials, 3))):
            started = time.process_time()
            convicts(lambda: assert_no_raw(left, table))  # noqa: B023  # called at once
            times.append(time.process_time() - started)
        spent[name] = min(times)
    for name in large:
        print(f"{name}: {1000 * spent[name]:.0f} ms")
    every = np.array([spent[name] for name in made])
    print(
        f"{len(every)} artefacts: median {1000 * np.median(every):.0f} ms, 95 % below {1000 * np.quantile(every, 0.95):.0f} ms"
    )


if __name__ == "__main__":
    parts = {"forms": forms, "alarms": alarms, "small": small, "speed": speed}
    parser = arguments(__doc__, parts=parts)
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--kinds", nargs="+", default=[], help="of speed, such as CSV")
    given = parser.parse_args()
    parts["speed"] = partial(speed, wanted=given.kinds)
    for part in given.parts:
        parts[part](given.trials)
