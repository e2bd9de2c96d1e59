"""How often other draws of the same population are convicted: python benchmarks/leak_draws.py [records ...]

Each kind of column in a table of its own, held against another draw of it in every form, two seeds each, at the
rate that an assertion has outside a suite (1e-3). Prints each alarm, and the rate by size of the table.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import pandas as pd
from result_rows import arguments

from privfed.leaks.artefact import Released
from privfed.leaks.reading.walk import flatten
from privfed.leaks.scan import ScanSettings, search
from privfed.leaks.table import raw_tables

Rng = np.random.Generator


def _bmi(r: Rng, n: int) -> np.ndarray:
    height = r.normal(170, 9, n).round()
    return np.asarray((22 * height**2 / 1e4 + r.normal(0, 8, n)).round() / (height / 100) ** 2)


def _prices(r: Rng, n: int) -> np.ndarray:
    ends = r.choice([0.99, 0.49, 0.95, 0.0], n, p=[0.6, 0.2, 0.1, 0.1])
    return np.asarray(r.integers(1, 300, n) + ends)


def _heaped(r: Rng, n: int) -> np.ndarray:
    return np.where(
        r.random(n) < 0.6, r.normal(48, 12, n).round() * 1000, r.integers(9000, 90_000, n)
    )


def _days(r: Rng, n: int, span: float, unit: Literal["D", "ms"]) -> Any:
    return pd.to_datetime("2024-05-01") + pd.to_timedelta(r.integers(0, int(span), n), unit)


#: Kinds of columns.
COLUMNS: dict[str, Callable[[Rng, int], Any]] = {
    "ages": lambda r, n: r.integers(18, 96, n),
    "years": lambda r, n: r.integers(1930, 2012, n),
    "counts": lambda r, n: r.poisson(6, n),
    "1 to n": lambda r, n: r.permutation(n) + 1,
    "six digits": lambda r, n: r.integers(10**5, 10**6, n),
    "thirteen digits": lambda r, n: 2024052100000 + r.integers(0, 20 * n, n),
    "one decimal": lambda r, n: r.normal(76, 14, n).round(1),
    "money": lambda r, n: r.lognormal(4, 1, n).round(2),
    "prices": _prices,
    "heaped salaries": _heaped,
    "doubles": lambda r, n: r.normal(0, 1, n),
    "one decimal in single": lambda r, n: r.normal(76, 14, n).round(1).astype(np.float32),
    "single": lambda r, n: r.normal(76, 14, n).astype(np.float32),
    "half": lambda r, n: r.normal(0, 1, n).astype(np.float16),
    "body mass": _bmi,
    "standardised ages": lambda r, n: (r.integers(18, 96, n) - 54.1234567) / 17.7654321,
    "logarithms of counts": lambda r, n: np.log1p(r.negative_binomial(2, 0.02, n)),
    "shares": lambda r, n: r.binomial(60, 0.3, n) / r.integers(60, 160, n),
    "percentages": lambda r, n: (100 * r.beta(2, 5, n)).round(1),
    "answers": lambda r, n: r.integers(1, 6, n),
    "bits": lambda r, n: r.integers(0, 2, n),
    "a constant": lambda r, n: np.full(n, 37.5),
    "dates": lambda r, n: _days(r, n, 20_000, "D"),
    "milliseconds": lambda r, n: _days(r, n, 8.64e7, "ms"),
    "codes": lambda r, n: [f"P-{one:05}" for one in r.integers(0, 20 * n, n)],
    "categories": lambda r, n: r.choice(list("ABCDE"), n),
}


def _numbers(f: pd.Series[Any]) -> np.ndarray:
    return (
        f.to_numpy(float) if pd.api.types.is_numeric_dtype(f) else pd.factorize(f)[0].astype(float)
    )


#: What leaves of another draw.
FORMS: dict[str, Callable[[pd.Series[Any]], Any]] = {
    "list": lambda f: f.tolist(),
    "single": lambda f: _numbers(f).astype(np.float32),
    "table of text": lambda f: f.to_frame("x").to_csv(),
    "log": lambda f: "\n".join(f"x={one}" for one in f.head(60)),
    "sorted": lambda f: sorted(set(f.tolist())),
    "describe": lambda f: f.describe(),
    "quantiles": lambda f: np.quantile(_numbers(f), np.linspace(0, 1, 21)),
    "histogram": lambda f: np.histogram(_numbers(f), 20),
    "counts": lambda f: {str(key): int(often) for key, often in f.value_counts().items()},
    "digests": lambda f: [hashlib.sha256(str(one).encode()).hexdigest() for one in f.head(300)],
    "ranks": lambda f: np.argsort(np.argsort(_numbers(f))),
    "bytes": lambda f: _numbers(f).tobytes(),
    "running total": lambda f: np.cumsum(_numbers(f))[:200],
}


def main(sizes: list[int]) -> None:
    for n in sizes:
        alarmed = looked = 0
        for name, draw in COLUMNS.items():
            for seed in range(2):
                table, other = (np.random.default_rng([at, seed]) for at in (1, 2))
                raw = raw_tables(pd.DataFrame({"x": draw(table, n)}))
                left = pd.Series(draw(other, min(n, 2000)))
                for form, make in FORMS.items():
                    released = Released.of(flatten(make(left), rows=True))
                    with np.errstate(all="ignore"):
                        found = search(raw, released, ScanSettings(1e-3))
                    looked, alarmed = looked + 1, alarmed + bool(found)
                    if found:
                        print(f"{n:6} {name:24} {form:14} {seed} {found[0].rule}", flush=True)
        print(f"{alarmed} alarms of {looked} at {n} records", flush=True)


if __name__ == "__main__":
    parser = arguments(__doc__)
    parser.add_argument("sizes", type=int, nargs="*", help="records of a table")
    main(parser.parse_args().sizes or [5, 50, 500, 5000])
