"""Tables of records as systems hold them, with names, contacts, dates, codes and measurements."""

from __future__ import annotations

import numpy as np
import pandas as pd

FIRST = [
    "anna",
    "bernd",
    "clara",
    "david",
    "elena",
    "frank",
    "greta",
    "hugo",
    "ines",
    "jonas",
    "karin",
    "lukas",
    "maria",
    "nils",
    "olga",
    "paul",
]
FIRST += [
    "rosa",
    "simon",
    "tanja",
    "uwe",
    "vera",
    "walter",
    "yara",
    "zeno",
    "adele",
    "boris",
    "carmen",
    "dario",
    "esther",
    "felix",
]
LAST = [
    "adler",
    "brandt",
    "castell",
    "dorn",
    "eckart",
    "fuhrmann",
    "gerlach",
    "hartwig",
    "ilmer",
    "jansen",
    "kessler",
    "lindner",
]
LAST += [
    "marquardt",
    "neumann",
    "ostrowski",
    "petersen",
    "quandt",
    "reinhardt",
    "stromberg",
    "thalheim",
    "ulbricht",
]
LAST += [
    "vossberg",
    "wieland",
    "zimmer",
    "ackerl",
    "bachofen",
    "czerny",
    "dierksen",
    "ehrhardt",
    "falkner",
]
CODES = [
    f"{letter}{number}.{digit}"
    for letter in "EIJK"
    for number in (10, 11, 25, 44)
    for digit in (0, 1, 9)
]


#: A large population has more surnames than a clinic's patients: of two parts each, as place names make them.
MANY = [
    f"{begin}{end}"
    for begin in (*["ahl", "bern", "bir", "breit", "dorn", "eber", "eich", "esch", "fels", "gold", "gras", "heid"],
                  *["hohen", "kalt", "kirch", "lang", "linden", "mittel", "neu", "nieder", "ober", "reit"],
                  *["rosen", "roth", "sand", "schoen", "stein", "tann", "wald", "weiss", "wester", "win"])
    for end in ["auer", "bach", "bauer", "berg", "brink", "dorfer", "egger", "feld", "hauser", "heim", "hofer", "holt", "huber", "kamp", "koetter", "lechner", "maier", "meyer", "mueller", "rieder", "stetter", "thaler", "wieser"]
]  # fmt: skip


def records(n: int, seed: int = 0) -> pd.DataFrame:
    """Patients of a clinic: no value is sentinel, none rare on purpose."""
    rng = np.random.default_rng([seed, n])
    surnames = LAST if n < 10_000 else MANY
    first, last = rng.choice(FIRST, n), rng.choice(surnames, n)
    number = rng.integers(10, 9999, n)
    return pd.DataFrame(
        {
            "name": [
                f"{a.title()} {b.title()}-{c.title()}"
                for a, b, c in zip(first, last, rng.choice(surnames, n), strict=True)
            ],
            "email": [
                f"{a}.{b}{c}@example.org" for a, b, c in zip(first, last, number, strict=True)
            ],
            "phone": [f"+49 {rng.integers(30, 999)} {x}" for x in rng.integers(10**6, 10**8, n)],
            "birth": pd.to_datetime("1930-01-01") + pd.to_timedelta(rng.integers(0, 27000, n), "D"),
            "zip": [f"{x:05}" for x in rng.integers(1000, 99999, n)],
            "iban": [
                f"DE{rng.integers(10, 99)}{x:09}{y:09}" for x, y in rng.integers(0, 10**9, (n, 2))
            ],
            "age": rng.integers(18, 96, n),
            "sex": rng.choice(["F", "M"], n),
            "icd": rng.choice(CODES, n),
            "creatinine": np.round(rng.lognormal(0.1, 0.3, n), 3),
            "salary": np.round(rng.normal(48_000, 12_000, n), 1),
            "weight": np.round(rng.normal(76, 14, n), 1),
        }
    )


def narrow(n: int, seed: int = 0) -> pd.DataFrame:
    """The columns of the first review: numbers and codes alone."""
    return records(n, seed)[["age", "creatinine", "salary", "icd", "sex"]]


def laboratory(n: int, seed: int = 0) -> pd.DataFrame:
    """Whole numbers, halves, dates and categories: every value is likely met by chance."""
    rng = np.random.default_rng([seed, n, 2])
    return pd.DataFrame(
        {
            "patient": rng.choice(np.arange(10_000, 99_999), n, replace=False),
            "visit": pd.to_datetime("2022-01-01") + pd.to_timedelta(rng.integers(0, 900, n), "D"),
            "systolic": rng.integers(90, 190, n),
            "diastolic": rng.integers(50, 110, n),
            "ldl": np.round(rng.normal(3.2, 0.9, n).clip(0.5), 1),
            "dose": rng.choice([2.5, 5, 10, 20, 40], n),
            "ward": rng.choice(list("ABCDE"), n),
            "cost": np.round(rng.lognormal(6, 1, n), 2),
        }
    )


def _directory() -> pd.DataFrame:
    """Postcodes, each with its town and region, as an atlas has them."""
    rng = np.random.default_rng(11)
    towns = [f"{a.title()}{b}" for a in LAST for b in ("burg", "hausen")]
    zips = np.sort(rng.choice(np.arange(1000, 99_999), 400, replace=False))
    places = np.sort(rng.integers(0, len(towns), 400))
    return pd.DataFrame(
        {
            "zip": [f"{one:05}" for one in zips],
            "city": [towns[at] for at in places],
            "region": [f"Region {at // 12}" for at in places],
        }
    )


DIRECTORY = _directory()


def customers(n: int, seed: int = 0) -> pd.DataFrame:
    """Columns that tell of one another: postcode (of a public list), town and region, net and gross."""
    rng = np.random.default_rng([seed, n, 3])
    net = np.round(rng.lognormal(4, 1, n), 2)
    return (
        DIRECTORY.iloc[rng.integers(0, len(DIRECTORY), n)]
        .assign(
            since=pd.to_datetime("2015-01-01") + pd.to_timedelta(rng.integers(0, 3000, n), "D"),
            net=net,
            gross=np.round(net * 1.19, 2),
            items=rng.integers(1, 30, n),
        )
        .astype({"zip": "category"})
        .reset_index(drop=True)
    )


KINDS = {
    "records": records,
    "narrow": narrow,
    "laboratory": laboratory,
    "customers": customers,
}
