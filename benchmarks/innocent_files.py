"""Innocent artefacts as pairs of eyes found them in the folders of other projects."""

from __future__ import annotations

import base64
import io
import json
import sqlite3
import uuid
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
from leak_tables import CODES, FIRST, LAST, records

Rng = np.random.Generator
WORDS = [
    *("will", "may", "rose", "price", "long", "young", "cold", "best", "order", "status", "value"),
    *("total", "error", "index", "field", "user", "retry", "cache", "token", "queue", "batch"),
    *("shard", "model", "epoch", "loss", "train", "test", "split", "patient", "record", "name"),
]


def lines(count: int, line: Callable[[int], str]) -> str:
    """A line for each number."""
    return "\n".join(line(i) for i in range(count))


def _dated(r: Rng, count: int, line: Callable[[pd.Timestamp], str]) -> str:
    """A line for each of so many days in a row."""
    first = pd.Timestamp("2022-01-01") + pd.Timedelta(days=int(r.integers(900)))
    return "\n".join(line(day) for day in pd.date_range(first, periods=count))


def _coverage(r: Rng) -> str:
    return "<coverage>" + lines(
        120,
        lambda i: (
            f'<class filename="src/{r.choice(WORDS)}.py" line-rate="{r.random():.4f}" complexity="{r.integers(30)}">'
            f'<line number="{i + 1}" hits="{r.integers(90)}"/></class>'
        ),
    )


def _prometheus(r: Rng) -> str:
    """Buckets of a histogram of timings."""
    edges = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
    return "\n".join(
        f'http_seconds_bucket{{path="/{word}",le="{edge}"}} {count}'
        for word in WORDS[:8]
        for edge, count in zip(edges, np.cumsum(r.integers(0, 60, len(edges))), strict=True)
    )


def _kubernetes(r: Rng) -> str:
    return "---\n".join(
        f"apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: {word}\n  uid: {uuid.UUID(bytes=r.bytes(16))}\n"
        f"spec:\n  replicas: {r.integers(1, 9)}\n  containers:\n  - image: example.org/{word}:{r.integers(9)}.{r.integers(30)}"
        f"\n    ports: [{r.integers(1024, 65535)}]\n    cpu: {r.integers(1, 20) * 50}m\n    memory: {2 ** int(r.integers(5, 12))}Mi\n"
        for word in WORDS[:12]
    )


def _notebook(r: Rng) -> str:
    cells = [
        {
            "cell_type": "code",
            "execution_count": i,
            "source": [f"{r.choice(WORDS)}.head({r.integers(5, 20)})"],
            "outputs": [{"text": [f"   {r.choice(WORDS)}  {r.normal():.6f}\n" for _ in range(5)]}],
        }
        for i in range(1, 20)
    ]
    return json.dumps({"cells": cells, "nbformat": 4, "nbformat_minor": 5})


def _plot(r: Rng) -> bytes:
    """A scatter plot as matplotlib draws it."""
    from matplotlib.figure import Figure

    figure, file = Figure(), io.BytesIO()
    figure.subplots().plot(np.cumsum(r.normal(size=60)), r.normal(50, 20, 60), "o-")
    figure.savefig(file, format="svg")
    return file.getvalue()


def _onnx(r: Rng) -> bytes:
    from onnx import TensorProto, helper

    weights = r.normal(size=(6, 8)).astype(np.float32)
    tensor = helper.make_tensor("w", TensorProto.FLOAT, weights.shape, weights.ravel())
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [None, 6])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [None, 8])],
        [tensor],
    )
    return helper.make_model(graph).SerializeToString()  # type: ignore[no-any-return]


def _database(r: Rng) -> bytes:
    connection = sqlite3.connect(":memory:")
    pd.DataFrame(
        {
            "day": pd.date_range("2023-01-01", periods=90).strftime("%Y-%m-%d"),
            "sold": r.integers(0, 90, 90),
            "income": r.lognormal(6, 1, 90).round(2),
        }
    ).to_sql("sales", connection)
    return connection.serialize()


def _sheet(r: Rng) -> bytes:
    file = io.BytesIO()
    frame = {
        "item": r.choice(WORDS, 40),
        "qty": r.integers(1, 90, 40),
        "net": r.random(40).round(2),
    }
    pd.DataFrame(frame).to_excel(file, index=False)
    return file.getvalue()


def _strangers(r: Rng, count: int) -> pd.DataFrame:
    """Patients of another clinic, in the same form; names, which may be anybody's, left out."""
    told = ["age", "sex", "icd", "creatinine", "salary", "weight"]
    return records(count, int(r.integers(10**6, 10**9)))[told]


def _code(r: Rng) -> str:
    """A module of a program, with a change to it."""
    return lines(
        90,
        lambda i: (
            f"{r.choice(['+', '-', ' '])}    {r.choice(WORDS)}_{r.choice(WORDS)} = {r.choice(WORDS)}(x[{r.integers(9)}], {r.choice(WORDS)}={r.integers(0, 130)}) * {r.uniform(0, 9):.1f}"
        ),
    )


def _holidays(r: Rng) -> str:
    days = {"New Year": "01-01", "Epiphany": "01-06", "Labour Day": "05-01", "Assumption": "08-15"}
    days |= {
        "National Day": "10-26",
        "All Saints": "11-01",
        "Christmas": "12-25",
        "Boxing": "12-26",
    }
    rows = [f"{year}-{day},{name},AT" for year in range(2010, 2031) for name, day in days.items()]
    return "\n".join(["date,name,country", *rows])


def _report(r: Rng) -> str:
    rows = lines(
        6,
        lambda i: (
            f"{r.choice(WORDS):>12} {r.random():9.2f} {r.random():9.2f} {r.random():9.2f} {r.integers(5, 120):9}"
        ),
    )
    return f"              precision    recall  f1-score   support\n{rows}\n    accuracy {r.random():9.2f} 300"


def _columns(r: Rng) -> bytes:
    """Columns of another system, each compressed by itself, as Parquet and spreadsheets keep them."""
    columns = [r.integers(0, 500, 400), np.round(r.lognormal(3, 1, 400), 2), r.normal(size=400)]
    return b"PAR1" + b"".join(zlib.compress(one.tobytes()) for one in columns) + b"PAR1"


def _league(r: Rng) -> str:
    return lines(
        18,
        lambda i: (
            f"{i + 1:2} FC {r.choice(WORDS).title():8} {r.integers(34):3} {r.integers(20, 90)}:{r.integers(20, 90)} {r.integers(90):3}"
        ),
    )


def _curve(r: Rng) -> dict[str, list[float]]:
    hits = np.sort(r.random(60)) ** 0.5
    return {
        "fpr": (np.arange(60) / 59).tolist(),
        "tpr": hits.tolist(),
        "thresholds": np.sort(r.random(60))[::-1].tolist(),
    }


def _digits(r: Rng) -> Any:
    from sklearn.datasets import load_digits

    return load_digits().images[int(r.integers(1700)) :][:12]


def _census(r: Rng) -> str:
    """How often first names are, and surnames: a public list that has those of any clinic."""
    listed = [*FIRST, *LAST, *WORDS]
    return lines(len(listed), lambda i: f"{listed[i].title()},{r.integers(100, 90_000)},{i + 1}")


def _catalogue(r: Rng) -> dict[str, str]:
    return {code: f"{r.choice(WORDS)} {r.choice(WORDS)}, {r.choice(WORDS)}" for code in CODES}


def _sound(r: Rng) -> bytes:
    wave = np.sin(np.arange(3000) * r.uniform(0.02, 0.2)) * 12_000 + r.normal(0, 90, 3000)
    head = b"RIFF\x94\x17\0\0WAVEfmt \x10\0\0\0\x01\0\x01\0data"
    return head + bytes(wave.astype("<i2").tobytes())


#: Name, and what makes one of a seed.
FILES: dict[str, Callable[[Rng], Any]] = {
    # what further pairs of eyes found in the folders of other projects
    "poetry lock": lambda r: lines(
        40,
        lambda i: (
            f'[[package]]\nname = "{r.choice(WORDS)}"\nversion = "{r.integers(9)}.{r.integers(30)}.{r.integers(20)}"\n'
            f'files = [{{file = "a-{i}.whl", hash = "sha256:{r.bytes(32).hex()}"}}]'
        ),
    ),
    "npm lock": lambda r: json.dumps(
        {
            f"node_modules/{word}": {
                "version": f"{r.integers(20)}.{r.integers(20)}.{r.integers(20)}",
                "integrity": f"sha512-{base64.b64encode(r.bytes(64)).decode()}",
                "engines": {"node": f">={r.integers(10, 22)}"},
            }
            for word in WORDS
        }
    ),
    "coverage": _coverage,
    "git log": lambda r: _dated(
        r,
        40,
        lambda day: (
            f"commit {r.bytes(20).hex()}\nAuthor: {r.choice(WORDS)} <{r.choice(WORDS)}@example.com>\n"
            f"Date: {day:%a %b %d} {r.integers(24):02}:{r.integers(60):02}:{r.integers(60):02} {day:%Y} +0200\n\n    {r.choice(WORDS)} {r.choice(WORDS)} (#{r.integers(9000)})"
        ),
    ),
    "git stat": lambda r: lines(
        60,
        lambda i: f" src/{r.choice(WORDS)}.py | {r.integers(1, 120)} {'+' * int(r.integers(30))}",
    ),
    "a change": _code,
    "holidays": lambda r: (
        "date,country,name\n"
        + lines(
            90,
            lambda i: (
                f"{r.integers(2020, 2026)}-{r.integers(1, 13):02}-{r.integers(1, 29):02},{r.choice(['DE', 'AT', 'CH'])},{r.choice(WORDS)} day"
            ),
        )
    ),
    "calendar": lambda r: _dated(
        r,
        120,
        lambda day: f"BEGIN:VEVENT\nDTSTART:{day:%Y%m%d}T{r.integers(24):02}0000Z\nEND:VEVENT",
    ),
    "exchange rates": lambda r: (
        "day,USD,CHF,JPY\n"
        + _dated(
            r,
            250,
            lambda day: (
                f"{day:%Y-%m-%d},{r.normal(1.09, 0.02):.4f},{r.normal(0.95, 0.01):.4f},{r.normal(157, 5):.2f}"
            ),
        )
    ),
    "shares by day": lambda r: (
        "date,open,close,volume\n"
        + _dated(
            r,
            250,
            lambda day: (
                f"{day:%m/%d/%Y},{r.normal(180, 9):.2f},{r.normal(180, 9):.2f},{r.integers(10**5, 10**7)}"
            ),
        )
    ),
    "weather": lambda r: (
        "day;max;min;rain\n"
        + _dated(
            r,
            365,
            lambda day: (
                f"{day:%d.%m.%Y};{r.normal(15, 8):.1f};{r.normal(6, 6):.1f};{r.exponential(2):.1f}".replace(
                    ".", ","
                )
            ),
        )
    ),
    "plot": _plot,
    "onnx": _onnx,
    "sales in a database": _database,
    "spreadsheet": _sheet,
    "translations": lambda r: json.dumps(
        {
            lang: {
                f"{r.choice(WORDS)}.{r.choice(WORDS)}": f"{r.choice(WORDS)} {{n}} {r.choice(WORDS)}"
                for _ in range(30)
            }
            for lang in ("de", "fr", "it")
        }
    ),
    "kubernetes": _kubernetes,
    "compose": lambda r: (
        "services:\n"
        + lines(
            20,
            lambda i: (
                f"  {r.choice(WORDS)}{i}:\n    ports: ['{r.integers(1024, 65535)}:{r.integers(80, 9000)}']\n    mem_limit: {r.integers(64, 900)}m"
            ),
        )
    ),
    "environment": lambda r: lines(
        40,
        lambda i: (
            f"{r.choice(WORDS).upper()}_{r.choice(WORDS).upper()}={r.choice([str(r.integers(99999)), r.bytes(12).hex(), 'true'])}"
        ),
    ),
    "prometheus": _prometheus,
    "opentelemetry": lambda r: [
        {
            "traceId": r.bytes(16).hex(),
            "spanId": r.bytes(8).hex(),
            "startTimeUnixNano": str(1_700_000_000_000_000_000 + int(r.integers(10**16))),
            "durationMs": float(np.round(r.exponential(30), 3)),
        }
        for _ in range(40)
    ],
    "benchmarks": lambda r: {
        f"bench_{word}": {
            "min": r.exponential(1e-3),
            "mean": r.exponential(2e-3),
            "rounds": int(r.integers(5, 9000)),
            "hist": np.histogram(r.exponential(2e-3, 300), 20),
        }
        for word in WORDS[:10]
    },
    "profile": lambda r: lines(
        80,
        lambda i: (
            f"{r.integers(1, 99999):9}    {r.exponential(0.1):.3f}    {r.exponential(0.01):.3f}    {r.exponential(1):.3f} {r.choice(WORDS)}.py:{r.integers(1, 900)}({r.choice(WORDS)})"
        ),
    ),
    "load test": lambda r: (
        "name,requests,failures,median,p95,p99,rps\n"
        + lines(
            30,
            lambda i: (
                f"/{r.choice(WORDS)}/{i},{r.integers(10, 9000)},{r.integers(0, 9)},{r.integers(5, 120)},{r.integers(50, 400)},{r.integers(90, 900)},{r.uniform(1, 90):.1f}"
            ),
        )
    ),
    "files listed": lambda r: _dated(
        r,
        80,
        lambda day: (
            f"-rw-r--r-- 1 app app {r.integers(100, 10**6):>8} {day:%b %d %H:%M} {r.choice(WORDS)}_{r.integers(99)}.csv"
        ),
    ),
    "processes": lambda r: lines(
        60,
        lambda i: (
            f"app {r.integers(2, 65535):6} {r.uniform(0, 99):.1f} {r.uniform(0, 20):.1f} {r.integers(10**4, 10**6)} {r.integers(24):02}:{r.integers(60):02} python {r.choice(WORDS)}.py"
        ),
    ),
    "system log": lambda r: _dated(
        r,
        90,
        lambda day: (
            f"{day:%b %d} {r.integers(24):02}:{r.integers(60):02}:{r.integers(60):02} node{r.integers(9)} kernel: [{r.uniform(0, 99999):.6f}] {r.choice(WORDS)} {r.integers(999)}"
        ),
    ),
    "structured log": lambda r: _dated(
        r,
        80,
        lambda day: json.dumps(
            {
                "ts": f"{day:%Y-%m-%d}T{r.integers(24):02}:{r.integers(60):02}:{r.integers(60):02}.{r.integers(1000):03}Z",
                "level": "info",
                "ms": float(np.round(r.exponential(40), 2)),
                "rows": int(r.integers(1, 400)),
            }
        ),
    ),
    "sitemap": lambda r: _dated(
        r,
        90,
        lambda day: (
            f"<url><loc>https://example.org/{r.choice(WORDS)}/{r.integers(999)}</loc><lastmod>{day:%Y-%m-%d}</lastmod><priority>{r.random():.1f}</priority></url>"
        ),
    ),
    "stylesheet": lambda r: lines(
        80,
        lambda i: (
            f".{r.choice(WORDS)} {{ width: {r.integers(1, 100)}%; margin: {r.integers(1, 90)}px; color: #{r.bytes(3).hex()}; line-height: {r.uniform(1, 2):.2f} }}"
        ),
    ),
    "geojson": lambda r: json.dumps(
        {
            "type": "FeatureCollection",
            "features": [
                {
                    "type": "Feature",
                    "properties": {"population": int(r.integers(100, 90_000))},
                    "geometry": {
                        "type": "Point",
                        "coordinates": np.round(r.uniform([6, 47], [15, 55]), 6).tolist(),
                    },
                }
                for _ in range(60)
            ],
        }
    ),
    "openapi": lambda r: json.dumps(
        {
            f"/{word}/{{id}}": {
                "get": {
                    "parameters": [
                        {"name": "age", "minimum": 0, "maximum": int(r.integers(90, 130))}
                    ],
                    "example": {"id": int(r.integers(999)), "weight": float(r.integers(40, 99))},
                }
            }
            for word in WORDS
        }
    ),
    "notebook": _notebook,
    "tensorboard": lambda r: [
        {
            "wall_time": 1.7e9 + 3.1 * i + float(r.random()),
            "step": 50 * i,
            "value": float(np.float32(r.exponential(1))),
        }
        for i in range(80)
    ],
    "vocabulary": lambda r: {
        "".join(r.choice(list("abcdefghijklmnopqrstuvwxyz"), 5)): i for i in range(400)
    },
    "web tokens": lambda r: [
        ".".join(base64.urlsafe_b64encode(r.bytes(n)).decode().rstrip("=") for n in (27, 60, 32))
        for _ in range(20)
    ],
    "a dump in hexadecimal": lambda r: lines(
        90, lambda i: f"{16 * i:08x}  {r.bytes(8).hex(' ')}  {r.bytes(8).hex(' ')}"
    ),
    "population by age": lambda r: (
        "age,women,men\n"
        + lines(100, lambda i: f"{i},{r.integers(2000, 9000)},{r.integers(2000, 9000)}")
    ),
    "growth table": lambda r: (
        "month,p3,p50,p97\n"
        + lines(120, lambda i: f"{i},{3 + i / 4:.1f},{4 + i / 3:.1f},{6 + i / 2:.1f}")
    ),
    "tax table": lambda r: lines(
        80, lambda i: f"{10_000 + 1000 * i};{1000 + 240 * i:.2f};{10 + i / 4:.1f} %"
    ),
    "latex table": lambda r: lines(
        20,
        lambda i: (
            " & ".join(
                [str(r.choice(WORDS)), *(f"{x:.3f} $\\pm$ {y:.3f}" for x, y in r.random((4, 2)))]
            )
            + " \\\\"
        ),
    ),
    "flower measurements": lambda r: pd.DataFrame(
        r.normal([5.8, 3.0, 3.8, 1.2], [0.8, 0.4, 1.7, 0.7], (150, 4)).round(1),
        columns=list("abcd"),
    ).to_csv(index=False),
    "strangers as CSV": lambda r: _strangers(r, 40).to_csv(index=False),
    "strangers as JSON": lambda r: _strangers(r, 40).to_dict("records"),
    "strangers in a log": lambda r: "\n".join(map(str, _strangers(r, 30).to_dict("records"))),
    "strangers described": lambda r: _strangers(r, 300).describe(),
    "strangers by code": lambda r: _strangers(r, 900).groupby("icd")[["age", "salary"]].mean(),
    "strangers' bytes": lambda r: _strangers(r, 200)["salary"].to_numpy().tobytes(),
    "strangers' units": lambda r: "\n".join(
        f"{one.age}y {one.weight}kg {one.creatinine}mg/dl" for one in _strangers(r, 60).itertuples()
    ),
    "public holidays": _holidays,
    "classification report": _report,
    "compressed columns of others": _columns,
    "league table": _league,
    "roc curve": _curve,
    "images of digits": _digits,
    "census of names": _census,
    "catalogue of codes": _catalogue,
    "sound": _sound,
    "timing histogram": lambda r: lines(
        40,
        lambda i: (
            f"{i * 25:5} ms .. {i * 25 + 25:5} ms {'*' * int(r.integers(40))} {r.integers(900)}"
        ),
    ),
    "timetable": lambda r: lines(
        60,
        lambda i: (
            f"{5 + i // 4:02}:{15 * (i % 4):02} line {r.integers(1, 99)} platform {r.integers(1, 20)}"
        ),
    ),
    "countries": lambda r: lines(
        60,
        lambda i: (
            f"{r.choice(WORDS).title()}land,{chr(65 + i % 26)}{chr(65 + i // 26)},+{i + 1},{r.integers(10**5, 10**8)},{r.uniform(0.4, 0.97):.3f}"
        ),
    ),
    "migrations": lambda r: lines(
        40,
        lambda i: (
            f"{2015 + i // 5}{r.integers(1, 13):02}{r.integers(1, 29):02}{r.integers(10**5, 235959):06}_{r.choice(WORDS)}.sql"
        ),
    ),
    "memory addresses": lambda r: lines(
        60,
        lambda i: (
            f"#{i} 0x{r.integers(2**40, 2**47):016x} in {r.choice(WORDS)}+{r.integers(9000)} (lib{r.choice(WORDS)}.so.{r.integers(9)})"
        ),
    ),
    "multiplication tables": lambda r: [[a * b for b in range(1, 21)] for a in range(1, 21)],
    "feature importances": lambda r: dict(
        zip(
            map(str, r.choice(WORDS, 12, replace=False)),
            r.dirichlet(np.ones(12)).tolist(),
            strict=True,
        )
    ),
    "bootstrap indices": lambda r: r.integers(0, 300, (20, 300)),
    "folds": lambda r: {f"fold {k}": np.sort(r.permutation(300)[:60]).tolist() for k in range(5)},
    "survival table": lambda r: [
        {"time": t, "at_risk": int(300 - 7 * t), "survival": round(float(np.exp(-t / 40)), 4)}
        for t in range(40)
    ],
    "unit conversions": lambda r: lines(
        60, lambda i: f"{i + 40} kg = {(i + 40) * 2.20462:.2f} lb; {i} C = {i * 1.8 + 32:.1f} F"
    ),
}
