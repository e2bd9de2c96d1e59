"""Artefacts that have nothing to do with any table: what test suites see every day."""

from __future__ import annotations

import json
import pickle
import uuid
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from innocent_files import FILES, WORDS, Rng, lines
from leak_tables import DIRECTORY


def _each(
    name: str, values: Any, make: Callable[[Any, Rng], Any]
) -> dict[str, Callable[[Rng], Any]]:
    """One artefact for each value."""
    return {name.format(value): partial(make, value) for value in values}


def _epochs(decimals: int, r: Rng) -> list[dict[str, float]]:
    """Sixty epochs of training."""
    fit = np.exp(-np.arange(60) / 20)
    acc = np.round(1 - 0.5 * fit + r.normal(0, 0.01, 60), decimals).tolist()
    loss = np.round(2 * fit + 0.01 * r.random(60), decimals).tolist()
    return [{"epoch": i, "acc": acc[i], "loss": loss[i]} for i in range(60)]


def _log(r: Rng) -> str:
    paths = ["/api/v1/items", "/health", "/static/app.js", "/login", "/api/v2/users"]
    return lines(
        80,
        lambda i: (
            f"10.{r.integers(256)}.{r.integers(256)}.{r.integers(256)} - - "
            f"[{r.integers(1, 29):02}/Mar/2024:{r.integers(24):02}:{r.integers(60):02}:{r.integers(60):02} +0000] "
            f'"GET {r.choice(paths)}?page={r.integers(1, 90)} HTTP/1.1" {r.choice([200, 304, 404])} {r.integers(100, 90000)} '
            f"{r.exponential(0.2):.3f}"
        ),
    )


def _model(r: Rng, kind: str) -> bytes:
    from sklearn.ensemble import RandomForestRegressor
    from sklearn.linear_model import LogisticRegression, Ridge
    from sklearn.neighbors import KNeighborsRegressor
    from sklearn.tree import DecisionTreeRegressor

    x, y = r.normal(50, 15, (60, 4)).round(1), r.integers(0, 2, 60)
    made = {
        "ridge": Ridge(),
        "logistic": LogisticRegression(),
        "tree": DecisionTreeRegressor(max_depth=4),
        "forest": RandomForestRegressor(3, max_depth=4),
        "neighbours": KNeighborsRegressor(),
    }[kind]
    return pickle.dumps(made.fit(x, y))


def _describe(r: Rng) -> pd.DataFrame:
    return pd.DataFrame(r.normal(100, 20, (200, 3)), columns=["a", "b", "c"]).describe()


def _walk(r: Rng, count: int, decimals: int) -> Any:
    return np.round(100 + np.cumsum(r.normal(0, 1, count)), decimals).tolist()


def _times(r: Rng, count: int, decimals: int, scale: float) -> Any:
    return np.round(r.exponential(scale, count), decimals).tolist()


def _bars(r: Rng) -> str:
    return lines(
        101,
        lambda i: (
            f"{i:3}%|{'#' * (i // 10):10}| {i}/100 [00:{i // 2:02}<00:{50 - i // 2:02}, {r.uniform(1, 3):.2f}it/s]"
        ),
    )


def _config(r: Rng) -> str:
    return json.dumps(
        {
            "server": {
                "host": "127.0.0.1",
                "port": int(r.integers(1024, 65535)),
                "workers": int(r.integers(1, 64)),
            },
            "timeout": 30,
            "retries": 5,
            "backoff": [0.1, 0.2, 0.4, 0.8],
            "debug": False,
            "model": {
                "lr": 10.0 ** -int(r.integers(2, 5)),
                "hidden": [128, 64, 32],
                "dropout": 0.1,
                "epochs": 120,
            },
            "weights": np.round(r.dirichlet(np.ones(6)), 3).tolist(),
        }
    )


def _junit(r: Rng) -> str:
    return lines(
        60,
        lambda i: (
            f'<testcase classname="tests.test_{r.choice(WORDS)}" name="test_{r.choice(WORDS)}_{i}" time="{r.exponential(0.05):.3f}"/>'
        ),
    )


def _other_people(r: Rng) -> list[dict[str, Any]]:
    """Another system's records, of other columns."""
    return [
        {
            "id": int(r.integers(1, 10**6)),
            "title": f"{r.choice(WORDS)} {r.choice(WORDS)}",
            "stock": int(r.integers(0, 90)),
            "price": float(np.round(r.uniform(1, 90), 2)),
        }
        for _ in range(50)
    ]


#: Name, and what makes one of a seed.
INNOCENT: dict[str, Callable[[Rng], Any]] = {
    **_each("range to {}", (11, 32, 101, 121, 301, 1000, 5000), lambda top, r: list(range(1, top))),
    **_each(
        "steps of {}",
        (0.1, 0.25, 0.5, 2.5, 5, 10),
        lambda step, r: np.arange(0, 100, step).round(6),
    ),
    **_each("linspace {}", (1, 2.5, 10, 1000), lambda top, r: np.linspace(0, top, 101)),
    "percent done": lambda r: lines(101, lambda i: f"{i}% done"),
    "percent with decimals": lambda r: lines(200, lambda i: f"progress {i / 2:.1f}%"),
    "progress bars": _bars,
    **_each("confusion of {}", (2, 3, 5, 10, 20), lambda k, r: r.integers(0, 120, (k, k))),
    **_each("durations, {} decimals", (1, 2, 3, 4, 6), lambda d, r: _times(r, 200, d, 1.0)),
    **_each("milliseconds {}", (100, 1000, 100_000), lambda s, r: r.integers(1, s, 200).tolist()),
    "long durations": lambda r: _times(r, 300, 1, 60.0),
    "clock floats": lambda r: (1.7e9 + np.cumsum(r.exponential(1, 200))).tolist(),
    "accumulated": lambda r: np.cumsum(np.round(r.exponential(1, 200), 3)).tolist(),
    **_each("accuracies, {}", (2, 3, 4, 6), lambda d, r: _epochs(d, r)),
    "losses in full": lambda r: r.exponential(1, 500),
    "losses in single": lambda r: r.exponential(1, 500).astype(np.float32),
    "weights": lambda r: r.normal(size=(30, 20)),
    "weights in half": lambda r: r.normal(size=(30, 20)).astype(np.float16),
    "gradients": lambda r: [r.normal(size=(5, 12)), r.normal(size=12)],
    **_each(
        "histogram of {}", (100, 1000, 50_000), lambda n, r: np.histogram(r.normal(size=n), 30)[0]
    ),
    "histogram and edges": lambda r: np.histogram(r.normal(50, 20, 300), 20),
    "bincount": lambda r: np.bincount(r.poisson(20, 400)),
    "counts by code": lambda r: {
        f"{a}{b}": int(r.integers(1, 60)) for a in "ABC" for b in range(10, 20)
    },
    "versions": lambda r: lines(
        60,
        lambda i: (
            f"package-{r.choice(WORDS)}=={r.integers(0, 30)}.{r.integers(0, 20)}.{r.integers(0, 20)}"
        ),
    ),
    "lock file": lambda r: json.dumps(
        {
            w: {
                "version": f"{r.integers(9)}.{r.integers(40)}.{r.integers(9)}",
                "hash": r.bytes(32).hex(),
            }
            for w in WORDS
        }
    ),
    "uuids": lambda r: [str(uuid.UUID(bytes=r.bytes(16))) for _ in range(60)],
    "short ids": lambda r: [r.bytes(4).hex() for _ in range(100)],
    "digests": lambda r: [r.bytes(32).hex() for _ in range(40)],
    "tokens": lambda r: [
        "".join(r.choice(list("abcdefghijklmnopqrstuvwxyz0123456789"), 24)) for _ in range(40)
    ],
    "ports": lambda r: r.integers(1024, 65535, 100).tolist(),
    "process ids": lambda r: lines(60, lambda i: f"worker {i} pid {r.integers(2, 99999)} started"),
    "five digit codes": lambda r: [f"{c:05}" for c in r.integers(1000, 99999, 60)],
    "five digit numbers": lambda r: r.integers(10_000, 99_999, 60).tolist(),
    "order numbers": lambda r: lines(80, lambda i: f"order #{r.integers(10**5, 10**6)} shipped"),
    "years": lambda r: list(range(1930, 2030)),
    "dates of a year": lambda r: [str(d.date()) for d in pd.date_range("2023-01-01", periods=365)],
    "random dates": lambda r: [
        str(d.date())
        for d in pd.to_datetime("1950-01-01") + pd.to_timedelta(r.integers(0, 20000, 30), "D")
    ],
    "timestamps": lambda r: [
        d.isoformat()
        for d in pd.to_datetime("2023-05-01") + pd.to_timedelta(r.uniform(0, 1e6, 80), "s")
    ],
    "geo grid": lambda r: [
        [round(47 + i * 0.05, 4), round(6 + j * 0.05, 4)] for i in range(20) for j in range(20)
    ],
    "geo points": lambda r: np.round(r.uniform([47, 6], [55, 15], (100, 2)), 5),
    "prices": lambda r: np.round(r.lognormal(3, 1, 150), 2).tolist(),
    "prices that end in 99": lambda r: [f"{n}.99" for n in r.integers(1, 300, 80)],
    "price list": lambda r: lines(
        60, lambda i: f"{r.choice(WORDS)} {r.choice(WORDS)}: {r.uniform(1, 900):.2f} EUR"
    ),
    "money with commas": lambda r: lines(
        60, lambda i: f"${r.integers(10_000, 90_000):,}.{r.integers(100):02}"
    ),
    "large money": lambda r: np.round(r.normal(50_000, 15_000, 40), 0).tolist(),
    "config": _config,
    "http log": _log,
    "junit": _junit,
    "pytest ids": lambda r: lines(
        120,
        lambda i: (
            f"tests/test_{r.choice(WORDS)}.py::test_{r.choice(WORDS)}[{i}-{r.integers(100)}] PASSED"
        ),
    ),
    "traceback": lambda r: lines(
        20,
        lambda i: (
            f'  File "/app/{r.choice(WORDS)}.py", line {r.integers(1, 900)}, in {r.choice(WORDS)}'
        ),
    ),
    "everyday words": lambda r: " ".join(r.choice(WORDS, 400)),
    "prose with numbers": lambda r: " ".join(
        f"{r.choice(WORDS)} {r.integers(1, 120)}" for _ in range(150)
    ),
    **_each(
        "model: {}",
        ("ridge", "logistic", "tree", "forest", "neighbours"),
        lambda kind, r: _model(r, kind),
    ),
    "describe of others": _describe,
    "correlations": lambda r: np.corrcoef(r.normal(size=(5, 80))),
    "probabilities": lambda r: r.dirichlet(np.ones(5), 40),
    "probabilities, 3 decimals": lambda r: np.round(r.dirichlet(np.ones(5), 40), 3),
    "shares": lambda r: (r.integers(0, 97, 60) / 97).tolist(),
    "p values": lambda r: lines(40, lambda i: f"p = {r.random():.4f}, F = {r.exponential(3):.2f}"),
    "walk, 2 decimals": lambda r: _walk(r, 250, 2),
    "walk, 1 decimal": lambda r: _walk(r, 250, 1),
    "temperatures": lambda r: np.round(
        15 + 10 * np.sin(np.arange(365) / 58) + r.normal(0, 3, 365), 1
    ).tolist(),
    "image": lambda r: r.integers(0, 256, (32, 32), dtype=np.uint8),
    "image bytes": lambda r: r.integers(0, 256, 4000, dtype=np.uint8).tobytes(),
    "sorted bytes": lambda r: np.sort(r.integers(0, 256, 4000, dtype=np.uint8)).tobytes(),
    "bytes of floats": lambda r: r.normal(size=500).tobytes(),
    "bytes of single floats": lambda r: np.round(r.normal(50, 20, 500), 1).astype("<f4").tobytes(),
    "permutation": lambda r: r.permutation(300),
    "labels": lambda r: r.integers(0, 3, 300),
    "booleans": lambda r: (r.random(300) < 0.5).tolist(),
    "one-hot of labels": lambda r: np.eye(3)[r.integers(0, 3, 300)],
    "ranks of others": lambda r: np.argsort(np.argsort(r.normal(size=300))),
    "seeds": lambda r: r.integers(0, 2**32, 40).tolist(),
    "large ids": lambda r: r.integers(10**15, 10**17, 60).tolist(),
    "byte sizes": lambda r: [f"{r.uniform(1, 999):.1f} MB" for _ in range(60)],
    "hyperparameter grid": lambda r: [
        {"lr": lr, "depth": d, "score": float(np.round(r.random(), 4))}
        for lr in (0.001, 0.01, 0.1)
        for d in range(2, 12)
    ],
    "cv results": lambda r: {
        "mean_test_score": np.round(r.uniform(0.6, 0.9, 30), 3).tolist(),
        "std_test_score": np.round(r.uniform(0, 0.1, 30), 3).tolist(),
    },
    "catalogue": _other_people,
    "csv of others": lambda r: pd.DataFrame(
        {
            "item": r.choice(WORDS, 60),
            "qty": r.integers(1, 90, 60),
            "unit": np.round(r.uniform(1, 99, 60), 2),
        }
    ).to_csv(),
    "frame of others": lambda r: pd.DataFrame(
        {"x": r.normal(size=80), "y": r.integers(0, 90, 80), "group": r.choice(list("abc"), 80)}
    ),
    "telephone of others": lambda r: [
        f"+43 {r.integers(100, 999)} {r.integers(10**6, 10**7)}" for _ in range(30)
    ],
    "emails of others": lambda r: [
        f"{r.choice(WORDS)}{r.integers(99)}@example.com" for _ in range(40)
    ],
    "masked others": lambda r: [f"{r.choice(WORDS)[:3]}***@example.org" for _ in range(30)],
    "ibans of others": lambda r: [
        f"FR{r.integers(10, 99)}{r.integers(10**17, 10**18)}" for _ in range(20)
    ],
    "code list": lambda r: [
        f"{a}{b}.{c}" for a in "ABEIJK" for b in range(10, 50) for c in range(0, 10, 3)
    ],
    "icd prevalences": lambda r: {
        f"{a}{b}.{c}": float(np.round(r.random() / 9, 3))
        for a in "EIJK"
        for b in (10, 11, 25, 44)
        for c in (0, 1, 9)
    },
    "age bands": lambda r: {f"{a}-{a + 9}": int(r.integers(5, 90)) for a in range(0, 100, 10)},
    "means and sizes": lambda r: {
        "age": {"mean": 50 + r.normal(), "n": 300},
        "weight": {"mean": 70 + r.normal(), "n": 300},
    },
    "noisy counts": lambda r: np.rint(r.laplace(40, 9, (12, 12))).astype(int),
    "noisy sums": lambda r: r.laplace(1e4, 1e3, 30),
    "quantile grid": lambda r: {q: q / 100 for q in range(0, 101, 5)},
    "reference limits": lambda r: {
        "creatinine": [0.7, 1.2],
        "ldl": [0.0, 3.0],
        "systolic": [90, 140],
        "age": [18, 95],
    },
    "unit tests of arithmetic": lambda r: lines(
        60, lambda i: f"{i} * {i} = {i * i}; {i} / 8 = {i / 8}"
    ),
    "coordinates in text": lambda r: lines(
        60, lambda i: f"POINT({r.uniform(6, 15):.4f} {r.uniform(47, 55):.4f})"
    ),
    "nothing but zeros": lambda r: np.zeros((20, 20)),
    "mandelbrot": lambda r: [[int(min(99, (i * j) % 97)) for i in range(24)] for j in range(24)],
    "sql log": lambda r: lines(
        50,
        lambda i: (
            f"SELECT * FROM visits WHERE id = {r.integers(1, 99999)} LIMIT {r.integers(10, 100)} -- {r.exponential(9):.2f} ms"
        ),
    ),
    "latency percentiles": lambda r: {
        f"p{q}": float(np.round(r.exponential(q), 2)) for q in (50, 75, 90, 95, 99)
    },
    "rss by second": lambda r: [
        {
            "t": i,
            "rss": float(np.round(120 + r.normal(0, 4), 1)),
            "cpu": float(np.round(r.uniform(0, 100), 1)),
        }
        for i in range(60)
    ],
    "postcodes and towns": lambda r: lines(
        200, lambda i: " ".join(DIRECTORY.iloc[int(r.integers(len(DIRECTORY)))])
    ),
    "directory of places": lambda r: DIRECTORY.to_dict("records"),
    "branches": lambda r: DIRECTORY.sample(60, random_state=int(r.integers(1000))),
    "net and gross of others": lambda r: [
        {"net": net, "gross": round(net * 1.19, 2)} for net in np.round(r.lognormal(4, 1, 80), 2)
    ],
    **FILES,
}
