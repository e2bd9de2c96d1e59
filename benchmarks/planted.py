"""Sixty-one ways in which raw values leave by accident, on tables of leak_tables.records' columns."""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import json
import pickle
import sqlite3
import struct
import tempfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

#: What leaves of a table, the record that leaks, and random numbers.
Plant = Callable[[pd.DataFrame, int, np.random.Generator], Any]
NUMBERS = ["age", "creatinine", "salary", "weight"]


def _numbers(t: pd.DataFrame) -> pd.DataFrame:
    return t[NUMBERS].astype(float)


def _row(t: pd.DataFrame, i: int) -> dict[str, Any]:
    cells = ((str(name), value) for name, value in t.iloc[i].items())
    return {name: value.item() if hasattr(value, "item") else str(value) for name, value in cells}


def _birth(t: pd.DataFrame, i: int, form: str) -> str:
    """A date with a measurement, as in a letter."""
    return f"Patient born {t['birth'].iloc[i].strftime(form)}, salary {t['salary'].iloc[i]}, creatinine {t['creatinine'].iloc[i]}"


def _sqlite(t: pd.DataFrame, i: int) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.db"
        connection = sqlite3.connect(path)
        t.iloc[:40][["name", "age", "salary"]].to_sql("visits", connection)
        connection.close()
        return path.read_bytes()


def _png(t: pd.DataFrame, i: int) -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    text = f"Comment\0case {t['email'].iloc[i]}".encode()
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 0, 0, 0, 0))
        + chunk(b"tEXt", text)
    )


def _forest(t: pd.DataFrame) -> bytes:
    from sklearn.ensemble import RandomForestRegressor

    x = _numbers(t.iloc[:300])
    return pickle.dumps(
        RandomForestRegressor(5, bootstrap=False, random_state=0).fit(
            x[["age", "creatinine", "weight"]], x["salary"]
        )
    )


def _neighbours(t: pd.DataFrame) -> bytes:
    from sklearn.neighbors import KNeighborsRegressor

    x = _numbers(t.iloc[:300])
    return pickle.dumps(KNeighborsRegressor().fit(x[["age", "creatinine", "weight"]], x["salary"]))


def _error(t: pd.DataFrame, i: int) -> BaseException:
    try:
        raise ValueError(
            f"cannot convert record {t.iloc[i][['name', 'salary', 'weight']].tolist()}"
        )
    except ValueError as error:
        return error


def _means(t: pd.DataFrame, i: int) -> list[dict[str, float]]:
    x = _numbers(t)
    return [x.mean().to_dict(), x.drop(index=x.index[i]).mean().to_dict()]


def _totals(t: pd.DataFrame, i: int) -> list[dict[str, float]]:
    x = _numbers(t)
    return [x.sum().to_dict(), x.drop(index=x.index[i]).sum().to_dict()]


def _space(text: str) -> str:
    return " ".join(text[at : at + 4] for at in range(0, len(text), 4))


#: The 61 kinds.
PLANTED: dict[str, Plant] = {
    "a record as a dictionary": lambda t, i, r: _row(t, i),
    "a record as JSON": lambda t, i, r: json.dumps(_row(t, i)),
    "records as CSV": lambda t, i, r: t.iloc[i : i + 5].to_csv(index=False),
    "a record's repr in a log": lambda t, i, r: f"DEBUG processing {t.iloc[i].to_dict()!r}",
    "a frame": lambda t, i, r: t.iloc[i : i + 3],
    "numbers of a record": lambda t, i, r: _numbers(t).iloc[i].tolist(),
    "numbers of a record, shuffled": lambda t, i, r: r.permutation(_numbers(t).iloc[i]).tolist(),
    "a row in single precision": lambda t, i, r: {
        "w": r.normal(size=20),
        "x": _numbers(t).iloc[i].to_numpy(np.float32),
    },
    "a column": lambda t, i, r: t["salary"].tolist(),
    "a column, sorted": lambda t, i, r: np.sort(t["salary"]),
    "a column as bytes": lambda t, i, r: t["salary"].to_numpy().tobytes(),
    "an email": lambda t, i, r: f"sent to {t['email'].iloc[i]}",
    "an email in capitals": lambda t, i, r: f"SENT TO {t['email'].iloc[i].upper()}",
    "an email without its domain": lambda t, i, r: {"user": t["email"].iloc[i].split("@")[0]},
    "an email in a URL": lambda t, i, r: (
        "GET /reset?mail=" + t["email"].iloc[i].replace("@", "%40")
    ),
    "a masked email": lambda t, i, r: f"sent to {t['email'].iloc[i][:9]}***@example.org",
    "a name": lambda t, i, r: f"no bed for {t['name'].iloc[i]}",
    "a name in lower case": lambda t, i, r: f"no bed for {t['name'].iloc[i].lower()}",
    "a name in capitals": lambda t, i, r: f"NO BED FOR {t['name'].iloc[i].upper()}",
    "a name in title case": lambda t, i, r: f"No bed for {t['name'].iloc[i].title()}",
    "a name, last first": lambda t, i, r: (
        f"no bed for {t['name'].iloc[i].split()[-1]}, {' '.join(t['name'].iloc[i].split()[:-1])}"
    ),
    "a name as a key": lambda t, i, r: {t["name"].iloc[i]: {"visits": 3}},
    "a name with underscores": lambda t, i, r: (
        Path("out") / f"{t['name'].iloc[i].replace(' ', '_').lower()}.png"
    ),
    "a telephone": lambda t, i, r: f"call {t['phone'].iloc[i]}",
    "a telephone without spaces": lambda t, i, r: f"call {t['phone'].iloc[i].replace(' ', '')}",
    "a telephone with hyphens": lambda t, i, r: f"call {t['phone'].iloc[i].replace(' ', '-')}",
    "a telephone with 00": lambda t, i, r: (
        f"call {t['phone'].iloc[i].replace('+', '00').replace(' ', '')}"
    ),
    "an IBAN": lambda t, i, r: f"paid to {t['iban'].iloc[i]}",
    "an IBAN in fours": lambda t, i, r: f"paid to {_space(t['iban'].iloc[i])}",
    "a masked IBAN": lambda t, i, r: f"paid to {t['iban'].iloc[i][:4]}****{t['iban'].iloc[i][-8:]}",
    "dates as ISO": lambda t, i, r: _birth(t, i, "%Y-%m-%d"),
    "dates, day first": lambda t, i, r: _birth(t, i, "%d/%m/%Y"),
    "dates with points": lambda t, i, r: _birth(t, i, "%d.%m.%Y"),
    "dates in words": lambda t, i, r: _birth(t, i, "%B %d, %Y"),
    "dates in eight digits": lambda t, i, r: _birth(t, i, "%Y%m%d"),
    "money with commas": lambda t, i, r: (
        f"age {t['age'].iloc[i]}, creatinine {t['creatinine'].iloc[i]}: {t['salary'].iloc[i]:,.1f} EUR"
    ),
    "money with quotes": lambda t, i, r: (
        f"age {t['age'].iloc[i]}, creatinine {t['creatinine'].iloc[i]}: CHF "
        + f"{t['salary'].iloc[i]:,.1f}".replace(",", "'")
    ),
    "money with a decimal comma": lambda t, i, r: (
        f"creatinine {t['creatinine'].iloc[i]}; "
        + f"{t['salary'].iloc[i]:,.1f}".translate(str.maketrans(",.", ".,"))
        + " EUR"
    ),
    "two values and their names": lambda t, i, r: ValueError(
        f"creatinine={t['creatinine'].iloc[i]}, salary={t['salary'].iloc[i]}"
    ),
    "three values in a sentence": lambda t, i, r: (
        f"a patient of {t['age'].iloc[i]} with {t['icd'].iloc[i]} weighs {t['weight'].iloc[i]} and earns {t['salary'].iloc[i]}"
    ),
    "an exception": lambda t, i, r: _error(t, i),
    "base64 of JSON": lambda t, i, r: base64.b64encode(json.dumps(_row(t, i)).encode()).decode(),
    "base64 of gzip": lambda t, i, r: base64.b64encode(
        gzip.compress(t.iloc[i : i + 9].to_csv().encode())
    ).decode(),
    "a pickle": lambda t, i, r: pickle.dumps(_row(t, i)),
    "a pickled frame": lambda t, i, r: pickle.dumps(t.iloc[i : i + 9]),
    "a forest": lambda t, i, r: _forest(t),
    "nearest neighbours": lambda t, i, r: _neighbours(t),
    "a database": lambda t, i, r: _sqlite(t, i),
    "metadata of a picture": lambda t, i, r: _png(t, i),
    "a digest": lambda t, i, r: {"id": hashlib.sha256(t["email"].iloc[i].encode()).hexdigest()},
    "digest of a number": lambda t, i, r: {
        "id": hashlib.md5(str(t["salary"].iloc[i]).encode()).hexdigest()
    },
    "an array in npz": lambda t, i, r: _npz(_numbers(t).to_numpy()[i : i + 20]),
    "standardised rows": lambda t, i, r: (
        ((_numbers(t) - _numbers(t).mean()) / _numbers(t).std(ddof=0)).iloc[i : i + 3].to_numpy()
    ),
    "mean of two records": lambda t, i, r: _numbers(t).iloc[[i, i - 1]].mean().to_dict(),
    "sum of two records": lambda t, i, r: _numbers(t).iloc[[i, i - 1]].sum().to_dict(),
    "means of n and n - 1": lambda t, i, r: _means(t, i),
    "totals of n and n - 1": lambda t, i, r: _totals(t, i),
    "order of a column": lambda t, i, r: np.argsort(t["salary"].to_numpy()),
    "ranks of a column": lambda t, i, r: t["weight"].rank().to_numpy(),
    "a code for each record": lambda t, i, r: t["icd"].astype("category").cat.codes.to_numpy(),
    "a row cut to whole numbers, with its key": lambda t, i, r: {
        "mail": t["email"].iloc[i],
        **_numbers(t).iloc[i].astype(int).to_dict(),
    },
}


def _npz(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.savez_compressed(file, a=array)
    return file.getvalue()
