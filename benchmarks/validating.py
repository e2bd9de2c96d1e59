"""A pipeline as systems have them: it refuses every record that is not well formed.

What it refuses of sentinels, and how long they take: python benchmarks/validating.py [records ...]
"""

from __future__ import annotations

import ipaddress
import json
import re
import time
import uuid
from collections.abc import Callable
from datetime import date, datetime
from typing import Any
from urllib.parse import urlparse

import numpy as np
import pandas as pd
from leak_tables import DIRECTORY, records
from result_rows import arguments

from privfed.testing import sentinels

#: Wards that a patient may lie in.
WARDS = pd.DataFrame({"id": [f"W{at:02}" for at in range(1, 9)], "beds": range(8, 16)})


def _digits(text: str) -> list[int]:
    return [int(one) for one in text if one.isdigit()]


def luhn(text: str) -> int:
    """The check sum of a card's number."""
    digits = _digits(text)[::-1]
    return sum(one * 2 - 9 * (one > 4) if at % 2 else one for at, one in enumerate(digits)) % 10


def mod97(text: str) -> int:
    """The check sum of an IBAN."""
    plain = text.replace(" ", "")
    return int("".join(str(int(one, 36)) for one in plain[4:] + plain[:4])) % 97


def isbn(text: str) -> int:
    """The check sum of thirteen digits of a product (EAN, ISBN)."""
    return sum(one * (1, 3)[at % 2] for at, one in enumerate(_digits(text))) % 10


def patients(n: int, seed: int = 0) -> pd.DataFrame:
    """A well-formed table of thirty columns."""
    rng = np.random.default_rng([seed, n, 9])
    base = records(n, seed)
    account = rng.integers(10**17, 10**18, n)
    places = DIRECTORY.iloc[rng.integers(0, len(DIRECTORY), n)].reset_index(drop=True)
    admitted = pd.to_datetime("2022-01-01") + pd.to_timedelta(rng.integers(0, 500, n), "D")
    card = [f"4539 {a:04} {b:04} {c:03}" for a, b, c in rng.integers(0, 1000, (n, 3))]
    product = [f"978-3-{a:04}-{b:04}-" for a, b in rng.integers(0, 9999, (n, 2))]
    return base.assign(
        iban=[f"DE{98 - int(f'{x}131400') % 97:02}{x}" for x in account],
        zip=places["zip"],
        city=places["city"],
        card=[f"{one}{(10 - luhn(one + '0')) % 10}" for one in card],
        isbn=[f"{one}{(10 - isbn(one + '0')) % 10}" for one in product],
        key=[str(uuid.UUID(int=int(x), version=4)) for x in rng.integers(0, 2**62, n)],
        address=[str(ipaddress.ip_address(int(x))) for x in rng.integers(2**24, 2**31, n)],
        mac=[":".join(f"{x:02x}" for x in row) for row in rng.integers(0, 256, (n, 6))],
        site=[
            f"https://{x}.example.org/p/{y}"
            for x, y in zip(
                base["name"].str.split().str[0].str.lower(), rng.integers(1, 10**6, n), strict=True
            )
        ],
        ward=rng.choice(WARDS["id"], n),
        admitted=admitted.strftime("%d.%m.%Y"),
        seen=[
            one.strftime("%Y-%m-%dT%H:%M:%S")
            for one in admitted + pd.to_timedelta(rng.integers(0, 86400, n), "s")
        ],
        clock=[
            f"{x:02}:{y:02}"
            for x, y in zip(rng.integers(0, 24, n), rng.integers(0, 60, n), strict=True)
        ],
        amount=[f"{x:.2f}" for x in rng.lognormal(6, 1, n)],
        euros=[f"{x:,.2f} €" for x in rng.lognormal(8, 1, n)],
        share=[f"{x}%" for x in rng.integers(1, 100, n)],
        band=[f"{x * 10}-{x * 10 + 9}" for x in rng.integers(1, 9, n)],
        pressure=[
            f"{x}/{y}"
            for x, y in zip(rng.integers(90, 190, n), rng.integers(50, 90, n), strict=True)
        ],
        smokes=rng.random(n) < 0.3,
        score=rng.integers(0, 101, n) / 4,
        extra=[
            json.dumps({"hb": round(float(x), 1), "ok": bool(y)})
            for x, y in zip(rng.normal(13, 1, n), rng.random(n) < 0.5, strict=True)
        ],
    )


#: What each column's value must be.
RULES: dict[str, Callable[[Any], bool]] = {
    "name": lambda x: bool(re.fullmatch(r"[A-Z][a-z]+ [A-Z][a-z]+-[A-Z][a-z]+", x)),
    "email": lambda x: bool(re.fullmatch(r"[a-z]+\.[a-z]+\d+@example\.org", x)),
    "phone": lambda x: bool(re.fullmatch(r"\+49 [1-9]\d{1,2} \d{7,8}", x)),
    "birth": lambda x: date(1900, 1, 1) <= x.date() <= date(2024, 1, 1) and x == x.normalize(),
    "zip": lambda x: bool(re.fullmatch(r"\d{5}", x)),
    "iban": lambda x: bool(re.fullmatch(r"DE\d{20}", x)) and mod97(x) == 1,
    "age": lambda x: 0 <= x <= 120 and x == int(x),
    "sex": lambda x: x in ("F", "M"),
    "icd": lambda x: bool(re.fullmatch(r"[A-Z]\d\d\.\d", x)),
    "creatinine": lambda x: 0 < x < 20 and round(x, 3) == x,
    "salary": lambda x: x > -20_000 and round(x, 1) == x,
    "weight": lambda x: 2 < x < 300 and round(x, 1) == x,
    "card": lambda x: bool(re.fullmatch(r"4539 \d{4} \d{4} \d{4}", x)) and luhn(x) == 0,
    "isbn": lambda x: bool(re.fullmatch(r"978-3-\d{4}-\d{4}-\d", x)) and isbn(x) == 0,
    "key": lambda x: uuid.UUID(x).version == 4 and str(uuid.UUID(x)) == x,
    "address": lambda x: ipaddress.ip_address(x).version == 4,
    "mac": lambda x: bool(re.fullmatch(r"([0-9a-f]{2}:){5}[0-9a-f]{2}", x)),
    "site": lambda x: urlparse(x).scheme == "https" and urlparse(x).netloc.endswith(".example.org"),
    "ward": lambda x: x in set(WARDS["id"]),
    "admitted": lambda x: bool(datetime.strptime(x, "%d.%m.%Y")),
    "seen": lambda x: bool(datetime.fromisoformat(x)) and len(x) == 19,
    "clock": lambda x: bool(datetime.strptime(x, "%H:%M")) and len(x) == 5,
    "amount": lambda x: float(x) > 0 and bool(re.fullmatch(r"\d+\.\d\d", x)),
    "euros": lambda x: bool(re.fullmatch(r"\d{1,3}(,\d{3})*\.\d\d €", x)),
    "share": lambda x: x[-1] == "%" and 0 < int(x[:-1]) < 100 and x[0] != "0",
    "band": lambda x: int(x.split("-")[0]) < int(x.split("-")[1]),
    "pressure": lambda x: int(x.split("/")[0]) > int(x.split("/")[1]),
    "smokes": lambda x: x in (True, False),
    "score": lambda x: 0 <= x <= 25 and x * 4 == int(x * 4),
    "extra": lambda x: set(json.loads(x)) == {"hb", "ok"},
}


def refused(table: pd.DataFrame) -> dict[str, list[Any]]:
    """What the pipeline refuses of a table, by column."""
    found: dict[str, list[Any]] = {}
    for name, rule in RULES.items():
        for value in table[name]:
            try:
                fine = rule(value)
            except (ValueError, KeyError, IndexError):
                fine = False
            if not fine:
                found.setdefault(name, []).append(value)
    known = set(map(tuple, DIRECTORY[["zip", "city"]].to_numpy().tolist()))
    wrong = [pair for pair in zip(table["zip"], table["city"], strict=True) if pair not in known]
    return {**found, "zip, city": wrong} if wrong else found


if __name__ == "__main__":
    parser = arguments(__doc__)
    parser.add_argument("records", type=int, nargs="*", default=[3000, 50_000])
    for n in parser.parse_args().records:
        like = patients(300, 1)
        started = time.process_time()
        made = sentinels(like, n, keys={("zip", "city"): DIRECTORY, "ward": WARDS["id"]})
        spent = time.process_time() - started
        unique = sum(like[name].is_unique for name in like)
        kept = sum(like[name].is_unique and made[name].is_unique for name in like)
        wrong = {name: len(values) for name, values in refused(made).items()}
        print(f"{n} records of {made.shape[1]} columns after 300: {spent:.1f} s of processor time")
        print(
            f"  refused: {wrong or 'none'}; {kept} of {unique} columns of different values stay so"
        )
