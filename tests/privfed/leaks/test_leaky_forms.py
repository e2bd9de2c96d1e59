"""Every form in which raw values left so far is caught by the rule that is meant for it."""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import json
import pickle
import uuid
import zlib
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.tree import DecisionTreeRegressor

from privfed.leaks.arithmetic import _neighbours, _triples
from privfed.leaks.artefact import Block, Located, Released
from privfed.leaks.functions import NEAR, _midpoints
from privfed.leaks.lines import Lines
from privfed.leaks.reading.leaf import Leaf
from privfed.leaks.table import raw_tables
from privfed.testing import RawValueLeft, assert_no_raw, flatten, sentinels

LIKE = pd.DataFrame(
    np.random.default_rng(0).normal(50, 10, (60, 5)),
    columns=["age", "weight", "height", "pressure", "days"],
)
TABLE = sentinels(LIKE, 60, seed=4)
X = TABLE.to_numpy()
RNG = np.random.default_rng(1)
RECORD, COLUMN = 17, 2
ROW, CELL, WHOLE = X[RECORD], X[RECORD, COLUMN], X[:, COLUMN]
WEIGHTS = RNG.normal(size=20)
OTHERS = RNG.normal(45, 20, (50, 5))


def brain(row: np.ndarray) -> np.ndarray:
    """Cut off to bfloat16."""
    return (row.astype(np.float32).view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)


#: What leaves, and a word of the rule that must find it.
FORMS: dict[str, tuple[Any, str]] = {
    "exact": ({"w": WEIGHTS, "b": CELL}, "a raw value"),
    "appended": (np.append(WEIGHTS, CELL), "a raw value"),
    "last place": (np.append(WEIGHTS, np.nextafter(CELL, 1e9)), "a raw value"),
    "negated": (-CELL, "a raw value"),
    "out of a sum": (WHOLE.sum() - np.delete(WHOLE, RECORD).sum(), "a raw value"),
    "32 bits": ({"w": WEIGHTS, "b": ROW.astype(np.float32)}, "32-bit"),
    "16 bits": ({"w": WEIGHTS, "b": ROW.astype(np.float16)}, "16-bit"),
    "bfloat16": (brain(ROW), "bfloat16"),
    "one decimal": (np.round(ROW, 1), "1 decimal"),
    "whole": (ROW.astype(int), "a record"),
    "text": (" ".join(f"{value:.3f}" for value in ROW), "3 decimals"),
    "shuffled row": (
        ROW[[3, 0, 4, 1, 2]].round(2).tolist(),
        "a raw value|several cells of one record",
    ),
    "bytes": (b"\x01\x02\x03" + ROW.tobytes(), "bytes of a float"),
    "short bytes": (b"\x07" + ROW.astype(">f4").tobytes(), "bytes of a float"),
    "table's bytes": (X.tobytes(), "a raw value"),
    "many bytes": (RNG.bytes(1 << 17) + ROW.tobytes() + RNG.bytes(99), "bytes of a float"),
    "encoded": (
        base64.b64encode(zlib.compress(json.dumps({"a": ROW.tolist()}).encode())).decode(),
        "base64 as zlib",
    ),
    "nested": (base64.b64encode(gzip.compress(pickle.dumps(ROW))), "pickle"),
    "run together": ("".join(repr(float(value)) for value in ROW), "a raw value"),
    "digits": (f"id{int(CELL * 1e12)}x", "the digits"),
    "digest": (hashlib.sha256(str(CELL).encode()).hexdigest(), "digest"),
    "decimal": ([Decimal(str(round(float(value), 5))) for value in ROW], "5 decimals"),
    "square": (CELL**2, "the square"),
    "logarithm": (np.log(CELL), "the logarithm"),
    "percent": (CELL * 100, "a hundred times"),
    "fixed point": ((ROW * 2**16).astype(int), "2^16|scaled and shifted"),
    "centred": (CELL - WHOLE.mean(), "less its column's mean"),
    "standardised": ((ROW - X.mean(axis=0)) / X.std(axis=0), "standardised"),
    "to its range": ((CELL - WHOLE.min()) / np.ptp(WHOLE), "range"),
    "left out": ((WHOLE.sum() - CELL) / 59, "left out of its column's mean"),
    "midpoint": ((X[3, 1] + X[4, 1]) / 2, "the midpoint|quantile"),
    "sum of two": (X[3, 1] + X[9, 1], "the sum of two"),
    "variance of two": (X[[3, 9], 1].var(), "the variance"),
    "mean of three": (X[[3, 9, 20], 1].mean(), "mean of three"),
    "quantile": (np.quantile(WHOLE, 0.9), "a quantile"),
    "outer product": (np.outer(ROW, ROW), "the product|the square"),
    "normalised": (ROW / np.linalg.norm(ROW), "share of its record|scaled and shifted as a whole"),
    "totals": (
        [WHOLE.sum(), np.delete(WHOLE, RECORD).sum()],
        "left out of its column's total|the difference of two released",
    ),
    "means": ([WHOLE.mean(), np.delete(WHOLE, RECORD).mean()], "means of 60|left out"),
    "cumulative": (np.cumsum(RNG.permutation(WHOLE))[1:-2], "difference of two|sum of two"),
    "long cumulative": (
        np.cumsum(np.concatenate([RNG.normal(size=2000), RNG.permutation(WHOLE)])),
        "neighbouring",
    ),
    "two rounds": (
        [(base := RNG.normal(size=(40, 50))), base + np.pad(X, ((0, 0), (0, 45)))[:40]],
        "the difference to",
    ),
    "beside its scale": (
        {"m": OTHERS.mean(axis=0), "s": OTHERS.std(axis=0)}
        | {"z": (ROW - OTHERS.mean(axis=0)) / OTHERS.std(axis=0)},
        "times a second|left with it",
    ),
    "affine row": (3.1 * ROW + 7, "scaled and shifted as a whole"),
    "softmax": (np.exp(ROW - 90) / np.exp(ROW - 90).sum(), "exponential|scaled and shifted"),
    "affine column": (3.1 * WHOLE + 7, "scaled and shifted|in the order"),
    "shuffled affine": (RNG.permutation(3.1 * WHOLE + 7), "a sorted column"),
    "ranks": (np.argsort(np.argsort(WHOLE)), "in the order"),
    "order": (np.argsort(WHOLE), "order by a column"),
    "bits": (np.median(WHOLE) < WHOLE, "in the order|divides"),
    "transposed": (RNG.permutation(X).T.astype(np.float32), "32-bit"),
}


@pytest.mark.parametrize("form", FORMS)
def test_it_is_caught(form: str) -> None:
    """The message names the rule, the place, and what to do."""
    left, word = FORMS[form]
    with pytest.raises(RawValueLeft, match=f"(?s)({word})") as caught:
        assert_no_raw({"weights": WEIGHTS[:7], "left": left}, TABLE, alpha=1e-3)
    assert "['left']" in str(caught.value)
    assert caught.value.matches[0].remedy


def test_labels_and_codes_are_caught() -> None:
    """Codes, one-hot vectors and salted hashes of categories all divide the records alike."""
    rng = np.random.default_rng(8)
    wards = pd.Series(rng.permutation(np.repeat(["a", "b", "c"], 20)))
    table = pd.DataFrame({"ward": wards, "age": rng.integers(20, 30, 60)})
    codes = wards.map({"a": 7, "b": 1, "c": 4}).to_numpy()
    for left in (codes, np.eye(8)[codes], [hash((ward, "salt")) % 1000 for ward in wards]):
        with pytest.raises(RawValueLeft, match="divides the records"):
            assert_no_raw(left, table)


def test_a_row_of_small_whole_numbers_is_caught() -> None:
    """No single value of it says anything."""
    rng = np.random.default_rng(8)
    small = rng.integers(0, 12, (200, 12))
    with pytest.raises(RawValueLeft, match="a record"):
        assert_no_raw({"n": 200, "example": small[9].tolist()}, small)


def _ward() -> pd.DataFrame:
    """Whole numbers that each have many people, as a form for patients asks for them."""
    rng = np.random.default_rng(3)
    most = {"sex": 2, "age": 60, "ward": 3, "score": 30, "scale": 12, "died": 2}
    return pd.DataFrame({name: (rng.beta(2, 3, 370) * of).astype(int) for name, of in most.items()})


@pytest.mark.parametrize("how", ["pickled frame", "pickled matrix", "matrix beside its bytes"])
def test_rows_of_common_whole_numbers_are_caught_in_pickles(how: str) -> None:
    """Other readings of the same bytes are no windows in which the rows might have stood by chance."""
    table = _ward()
    columns = pd.concat([table[[name]] for name in table], axis=1).iloc[:100]  # a block for each
    matrix = table.to_numpy()[:100].copy()
    left: dict[str, object] = {
        "pickled frame": pickle.dumps(columns),
        "pickled matrix": pickle.dumps(matrix, protocol=5),
        "matrix beside its bytes": [matrix, matrix.astype(np.int64).tobytes()],
    }
    with pytest.raises(RawValueLeft, match="a record, column by column"):
        assert_no_raw(left[how], table)


@pytest.mark.parametrize("how", ["to_json", "to_dict", "arrays"])
def test_a_part_of_a_table_is_caught_column_by_column(how: str) -> None:
    """As pandas writes JSON unless it is told otherwise: no list is a whole column, and no line a record."""
    table, part = _ward(), _ward().iloc[50:150]
    arrays = {name: part[name].to_numpy() for name in part}
    left: dict[str, object] = {"to_json": part.to_json(), "to_dict": part.to_dict()}
    with pytest.raises(RawValueLeft, match="a record, column by column"):
        assert_no_raw(left.get(how, arrays), table)
    assert_no_raw(arrays, table, allow=["left['*"], may_be_empty=True)


def _form(records: int, seed: int) -> pd.DataFrame:
    """A few whole numbers of some people."""
    rng = np.random.default_rng(seed)
    table = pd.DataFrame({"age": rng.integers(18, 90, records), "visits": rng.poisson(3, records)})
    return table.assign(score=rng.integers(0, 11, records), ward=rng.integers(1, 9, records))


@pytest.mark.parametrize("records", [10, 40, 300])
@pytest.mark.parametrize("how", ["sorted", "shuffled", "one sorted", "arrays by name"])
def test_a_column_of_whole_numbers_is_caught_in_any_order(records: int, how: str) -> None:
    """No row is left, and no value says anything; that all of them are there does."""
    table, stream = _form(records, 0), io.BytesIO()
    np.savez_compressed(stream, age=table["age"], score=table["score"], ward=table["ward"])
    mixed = np.random.default_rng(5).permuted(table.to_numpy(), axis=0)
    left: dict[str, object] = {
        "sorted": np.sort(table.to_numpy(), axis=0),
        "shuffled": pd.DataFrame(mixed, columns=table.columns),
        "one sorted": {"ages": sorted(table["age"].tolist())},
        "arrays by name": stream.getvalue(),
    }
    with pytest.raises(RawValueLeft, match="column"):
        assert_no_raw(left[how], table)


@pytest.mark.parametrize("records", [10, 40, 300])
def test_columns_that_anybody_has_are_not_caught_in_any_order(records: int) -> None:
    """Sorted columns of other people, counts up to the number of records, and what many share."""
    table, others = _form(records, 0), _form(records, 1)
    count = np.random.default_rng(2).permutation(records) + 1
    table = table.assign(number=count, arm=count % 2)
    other = np.sort(others.to_numpy(), axis=0)
    innocent = [other, range(1, records + 1), [*range(records, 0, -1)], np.sort(count % 2)]
    for left in innocent:
        assert_no_raw(left, table)


def test_names_are_caught_and_categories_are_not() -> None:
    """A text that names a record is raw; one that describes many is public."""
    table = sentinels(
        pd.DataFrame({"name": ["Ada", "Bob", "Cyd"], "sex": ["f", "m", "f"], "x": [0.0, 1, 9]}), 40
    )
    assert_no_raw({"levels": ["f", "m"], "mean": table["x"].mean()}, table)
    with pytest.raises(RawValueLeft, match="a raw text"):
        assert_no_raw(f"cannot read the file of {table['name'].iloc[7]}", table)


def test_small_groups_are_caught() -> None:
    """The mean of a group of four that a category describes."""
    rng = np.random.default_rng(8)
    table = sentinels(LIKE, 300).assign(ward=np.r_[["rare"] * 4, rng.choice(["a", "b", "c"], 296)])
    means = table.groupby("ward")["age"].mean()
    with pytest.raises(RawValueLeft, match="fewer than 5 records"):
        assert_no_raw(means, table)
    assert_no_raw(means.drop("rare"), table)


def test_moments_are_caught_in_any_unit() -> None:
    """Seconds, milliseconds, or text."""
    table = sentinels(pd.DataFrame({"when": pd.to_datetime(["2024-01-01", "2024-12-31"])}), 50)
    moment = table["when"].iloc[3]
    seconds = moment.timestamp()
    for left in (moment, seconds, round(seconds * 1000), str(moment), {"at": moment.isoformat()}):
        with pytest.raises(RawValueLeft):
            assert_no_raw(left, table, alpha=1e-4)


def test_days_and_halves_collide_without_an_alarm() -> None:
    """Values that lie on a lattice are met by whatever else lies on it."""
    rng = np.random.default_rng(8)
    days = pd.Series(pd.date_range("2024-01-01", periods=60, freq="D")).sample(
        frac=1, random_state=0
    )
    table = pd.DataFrame({"day": days.to_numpy(), "size": rng.permutation(np.arange(60) * 2.5)})
    assert_no_raw({"from": pd.Timestamp("2024-01-15"), "edges": [12.5, 37.5, 62.5]}, table)
    with pytest.raises(RawValueLeft):
        assert_no_raw({"days": table["day"].to_numpy()}, table)


def test_public_bounds_scale() -> None:
    """Scaled by the schema's bounds and cut off to a grid, as privfed's own sums are."""
    from privfed.testing.hospitals import NUMERIC

    table = sentinels(NUMERIC, 60)
    cut = np.floor((table["age"].to_numpy() / 100 - 0.5) * 2**30) / 2**30
    with pytest.raises(RawValueLeft, match="public bounds"):
        assert_no_raw(cut[:3], table, schema=NUMERIC)


def visits(count: int) -> pd.DataFrame:
    """A table as systems hold it."""
    rng = np.random.default_rng(6)
    names = rng.integers(97, 123, (count, 12), dtype=np.uint8)
    return pd.DataFrame(
        {
            "person": [f"{bytes(n[:5]).decode()} {bytes(n[5:]).decode()}".title() for n in names],
            "policy": [f"P-{number}-C" for number in rng.integers(10**7, 10**8, count)],
            "device": [str(uuid.UUID(bytes=rng.bytes(16))) for _ in range(count)],
            "seen": pd.to_datetime("2023-06-01")
            + pd.to_timedelta(rng.integers(0, 10**8, count), "s"),
            "math": rng.integers(0, 101, count),
            "latin": rng.integers(0, 101, count),
            "height": rng.integers(140, 190, count),
            "fee": np.round(rng.uniform(20, 9000, count), 2),
        }
    )


VISITS = visits(60)
ONE = VISITS.iloc[RECORD]
#: What leaves of a table as systems hold it, and a word of the rule that must find it.
WRITTEN: dict[str, tuple[Any, str]] = {
    "glued words": (f"user{ONE['person'].replace(' ', '')} logged in", "a raw text"),
    "the number of a code": (f"claim {ONE['policy'].split('-')[1]} denied", "a raw text"),
    "bytes of a UUID": (
        base64.b64encode(bytes.fromhex(ONE["device"].replace("-", ""))).decode(),
        "a raw text",
    ),
    "bytes of a digest": (hashlib.sha256(ONE["policy"].encode()).digest(), "digest"),
    "a mail's date": (ONE["seen"].strftime("%a, %d %b %Y %H:%M:%S GMT"), "a raw value"),
    "twelve hours": (ONE["seen"].strftime("%m/%d/%Y %I:%M:%S %p"), "a raw value"),
    "milliseconds": (
        {"at": int(ONE["seen"].timestamp() * 1000), "math": int(ONE["math"])},
        "a raw value|of one record",
    ),
    "units": (f"{ONE['height']}cm {ONE['math']}pt {ONE['fee']}EUR", "of one record"),
    "a decimal comma": (f"{ONE['fee']:.2f} EUR, {ONE['height']} cm".replace(".", ","), "record"),
    "columns as CSV": (
        VISITS[["math", "latin", "height"]].iloc[9:40].to_csv(index=False),
        "of one record",
    ),
}


@pytest.mark.parametrize("form", WRITTEN)
def test_it_is_caught_as_it_is_written(form: str) -> None:
    """Notations of texts, dates and numbers, and lines of which each alone says too little."""
    left, word = WRITTEN[form]
    with pytest.raises(RawValueLeft, match=f"(?s)({word})"):
        assert_no_raw(left, VISITS, alpha=1e-3)


def test_running_totals_are_caught() -> None:
    """Of numbers so short that among all differences of a few totals they come by chance."""
    salary = np.random.default_rng(8).normal(48_000, 12_000, 300).round(1)
    table = pd.DataFrame({"salary": salary, "age": np.arange(300) % 78})
    with pytest.raises(RawValueLeft, match="neighbouring released numbers"):
        assert_no_raw(np.cumsum(salary)[5:], table)
    other = np.random.default_rng(9).normal(48_000, 12_000, 300).round(1)
    assert_no_raw(np.cumsum(other)[5:], table)


def test_what_predictions_missed_is_caught() -> None:
    """Beside them, for they add up; in a table of which not all pairs are formed."""
    rng = np.random.default_rng(8)
    table = sentinels(LIKE, 400)
    said = rng.normal(50, 10, 400)
    with pytest.raises(RawValueLeft, match="the sum with an array"):
        assert_no_raw({"said": said, "missed": table["age"].to_numpy() - said}, table)
    assert_no_raw(
        {"said": said, "missed": rng.permutation(table["age"].to_numpy()) * 0.9 - said}, table
    )


@pytest.mark.parametrize("cut", [64, 32, 16])
def test_digests_are_caught_though_cut(cut: int) -> None:
    """As pseudonyms often are; of others none is."""
    rng = np.random.default_rng(8)
    names, others = (
        [f"n{at}@example.org" for at in rng.integers(10**8, 10**9, 60)] for _ in range(2)
    )
    table = pd.DataFrame({"mail": names})
    digests = [hashlib.sha256(one.encode()).hexdigest()[:cut] for one in others]
    assert_no_raw(digests, table)
    with pytest.raises(RawValueLeft, match="the sha256 digest of a raw value, record 5"):
        assert_no_raw([*digests, hashlib.sha256(names[5].encode()).hexdigest()[:cut]], table)


def test_salted_digests_of_a_category_are_caught() -> None:
    """A text for each record divides them as numbers do; the same texts in another order do not."""
    rng = np.random.default_rng(8)
    table = pd.DataFrame(
        {"ward": rng.permutation(np.repeat(["a", "b", "c"], 20)), "age": rng.integers(20, 30, 60)}
    )
    left = [hashlib.sha256(f"{ward}, salted".encode()).hexdigest() for ward in table["ward"]]
    with pytest.raises(RawValueLeft, match="divides the records"):
        assert_no_raw(left, table)
    assert_no_raw(rng.permutation(left).tolist(), table)


@pytest.mark.parametrize(
    "written",
    [
        "O&#39;Brien-M&uuml;ller {}",
        r"O'Brien-M\u00fcller {}",
        r"O'Brien-M\xfcller {}",
        "O'Brien-M=C3=BCller {}",
        "O'Brien-M\u00adül\u00adler {}",
        "\x1b[31mo'brien-müller {}\x1b[0m",
    ],
)
def test_names_are_caught_in_markup(written: str) -> None:
    """As templates of HTML, ASCII logs, mail and terminals write them, with soft hyphens too."""
    table = pd.DataFrame(
        {
            "name": [
                f"O'Brien-Müller {at}" for at in np.random.default_rng(8).integers(10**8, 10**9, 60)
            ]
        }
    )
    with pytest.raises(RawValueLeft, match="a raw text, record 5"):
        assert_no_raw(
            f"no bed for {written.format(table['name'][5].split()[-1])}.",
            table.assign(name=table["name"].str.replace(" ", "")),
        )


def test_rolling_means_are_caught() -> None:
    """Of three records in a row, in a table too long for all triples."""
    long = sentinels(LIKE[["age", "days"]], 200)
    with pytest.raises(RawValueLeft, match="mean of three"):
        assert_no_raw(long["days"].rolling(3).mean().dropna().tolist(), long, alpha=1e-3)


class TestThresholds:
    """What a tree trained on the table splits at lies midway between two records."""

    @staticmethod
    def grown(seed: int) -> bytes:
        """A tree of a table of 300 records, pickled."""
        return pickle.dumps(DecisionTreeRegressor(max_depth=6).fit(*_fees(seed)))

    @pytest.mark.parametrize("seed", range(3))
    def test_a_pickled_tree_is_caught(self, seed: int) -> None:
        """Its nodes are records of whole numbers and floats in turn."""
        with pytest.raises(RawValueLeft, match="next to each other") as caught:
            assert_no_raw(self.grown(seed), _fees(seed)[0])
        assert "as pickle" in str(caught.value)

    @pytest.mark.parametrize("seed", range(3))
    def test_a_tree_of_others_is_not(self, seed: int) -> None:
        """Of as many other records, drawn alike."""
        assert_no_raw(self.grown(seed + 10), _fees(seed)[0])

    @given(st.integers(2, 200), st.sampled_from([0.5, 1.0, 5.0]))
    def test_a_lattice_has_none(self, count: int, step: float) -> None:
        """Midpoints of a full lattice are everybody's."""
        (table,) = raw_tables(np.arange(1, count + 1)[:, None] * step)
        assert len(_midpoints(table)) == 0

    @given(st.lists(st.floats(0.1, 1e6), min_size=3, max_size=30, unique=True))
    def test_each_is_the_middle_of_two_neighbours(self, values: list[float]) -> None:
        """And comes from the lower of the two."""
        (table,) = raw_tables(np.array(values)[:, None])
        ordered = np.sort(values)
        found = _midpoints(table)
        for middle, cell in zip(found.sizes, found.first, strict=True):
            low = int(np.flatnonzero(ordered == values[cell])[0])
            assert middle in (ordered[low : low + 1] + ordered[low + 1 : low + 1 + NEAR]) / 2


def _fees(seed: int) -> tuple[pd.DataFrame, np.ndarray]:
    rng = np.random.default_rng(seed)
    fees = {"net": rng.lognormal(5, 1, 300), "gross": rng.lognormal(6, 1, 300)}
    return pd.DataFrame(fees).round(2), rng.normal(size=300)


@given(st.lists(st.integers(1, 4), min_size=1, max_size=3), st.integers(0, 99))
def test_neighbours_are_subtracted_along_each_axis(shape: list[int], seed: int) -> None:
    """Each difference is of the number that its path names and of one beside it."""
    values = np.random.default_rng(seed).normal(size=shape)
    leaf = Leaf("a", values)
    differences, errors, locate = _neighbours(Block(leaf, values), np.zeros(values.size))
    named = {leaf.element(at): index for at, index in enumerate(np.ndindex(*shape))}
    beside = []
    for at, difference in enumerate(differences):
        after = np.array(named[locate(at)])
        steps = [after - one for one in np.eye(len(shape), dtype=int) if (after >= one).all()]
        before = [
            tuple(one) for one in steps if values[tuple(after)] - values[tuple(one)] == difference
        ]
        beside += [(tuple(after), one) for one in before]
    assert len(set(beside)) == len(differences) == len(errors)
    assert len(differences) == sum(values.size - values.size // side for side in shape)


def test_a_number_and_next_to_nothing_is_the_number_alone() -> None:
    """Else each tiny product of what left beside it would count as another hit."""
    values = np.array([45680.5, 3e-5, 0.0437, 7.3e-6, 2.9])
    made = _triples(values, np.array([0.1, 1e-9, 1e-5, 1e-9, 1e-5]), str)
    assert len(made.values) > 0
    assert np.abs(made.values - values[0]).min() > 0.2


def test_lines_of_other_people_are_not_caught() -> None:
    """As many of the same columns, drawn alike."""
    others = np.random.default_rng(3).integers([0, 0, 140], [101, 97, 190], (31, 3))
    frame = pd.DataFrame(others, columns=["math", "latin", "height"])
    assert_no_raw(frame.to_csv(index=False), VISITS)


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("12.5kg 120ms", [12.5, 120]),
        ("4f2a 12ab3 x86", []),
        ("19,43,178", [19, 43, 178]),
        ("cost 46,838.6 EUR", [46838.6]),
    ],
)
def test_labels_units_and_lists_are_told_apart(text: str, values: list[float]) -> None:
    """Letters behind a number are its unit, unless a digit follows; commas of a list part its numbers."""
    lines = Lines.of(Released.of(flatten(text)), raw_tables(VISITS)[0])
    assert lines.tokens[0].tolist() == values


SMALL_TABLES: dict[str, Callable[[np.random.Generator], np.ndarray]] = {
    "ages": lambda rng: rng.integers(18, 95, (90, 1)),
    "bits": lambda rng: rng.integers(0, 2, (90, 8)),
    "scores": lambda rng: rng.integers(0, 2000, (90, 4)),
    "halves": lambda rng: rng.integers(0, 100, (90, 3)) / 2,
}


@pytest.mark.parametrize("kind", SMALL_TABLES)
def test_whole_numbers_collide_without_an_alarm(kind: str) -> None:
    """Counts, edges and shares meet raw values by chance; alarms are no more than alpha."""
    alarms = 0
    for seed in range(10):
        rng = np.random.default_rng(seed)
        table = SMALL_TABLES[kind](rng)
        left = {
            "counts": np.bincount(rng.integers(0, 12, 90)),
            "edges": np.linspace(0, 100, 21),
            "ids": rng.integers(0, 300, 40),
            "shares": np.bincount(rng.integers(0, 12, 90)) / 90,
            "sums": table.sum(axis=0),
            "rates": [0.1, 0.01, 0.5, 1e-3],
        }
        try:
            assert_no_raw(left, table, alpha=0.02)
        except RawValueLeft:
            alarms += 1
    assert alarms <= 2  # of 10 at 0.02 each: more has a chance of 1 in 1,000


def test_random_floats_make_no_alarm() -> None:
    """A million numbers against twenty thousand, in doubles and in 32 bits."""
    rng = np.random.default_rng(8)
    table = rng.normal(size=(1000, 20))
    assert_no_raw(rng.normal(size=300_000), table)
    assert_no_raw(rng.normal(size=300_000).astype(np.float32), table)


def test_safe_statistics_make_no_alarm() -> None:
    """What is computed from many records, with noise or without."""
    rng = np.random.default_rng(8)
    left = {
        "means": X.mean(axis=0),
        "rounded": np.round(X.mean(axis=0), 1),
        "moments": X.T @ X,
        "correlations": np.corrcoef(X.T),
        "fit": np.linalg.lstsq(X[:, :4], X[:, 4], rcond=None)[0],
        "noisy": X.sum(axis=0) + rng.laplace(scale=100, size=5),
        "histogram": np.histogram(WHOLE, [0, 50, 120])[0],
        "settings": {"rate": 0.1, "rounds": 60, "edges": list(range(0, 101, 10))},
        "weights": rng.normal(size=(60, 7)),
        "path": np.linspace(0, 1, 60),
    }
    assert_no_raw(left, TABLE)


def test_the_order_of_a_column_with_equal_values_is_found() -> None:
    """Equal records may stand in any order among themselves; another order of them is none."""
    table = pd.DataFrame({"salary": np.random.default_rng(2).integers(20, 60, 300) * 1000})
    order = np.argsort(table["salary"].to_numpy(), kind="quicksort")
    with pytest.raises(RawValueLeft, match="order by a column"):
        assert_no_raw(order, table)
    assert_no_raw(np.random.default_rng(3).permutation(300), table)


@pytest.mark.parametrize(
    ("key", "column"),
    [
        ("age", 0),
        ("patient_age", 0),
        ("meanAge", 0),
        ("page", -1),
        ("blood pressure", 1),
        ("at", -1),
    ],
)
def test_a_key_s_last_words_name_a_column(key: str, column: int) -> None:
    """Not its last letters: a page is no age."""
    lines = Lines([b"age", b"bloodpressure"], Located([]))
    assert lines._column(key) == column


BANDS = ("bottom 25%", "mid 50%", "top 25%")
MANY = pd.DataFrame(
    np.random.default_rng(2).normal(50, 10, (500, 8)).astype(int), columns=list("abcdefgh")
)
PUPILS = MANY[["a", "b"]].assign(
    band=[BANDS[at % 3] for at in range(500)],
    **MANY[["c", "d", "e", "f"]],
    room=[f"Room {at}" for at in range(500)],
    **MANY[["g", "h"]],
)
PUPIL = PUPILS.iloc[RECORD]


@pytest.mark.parametrize(
    "left",
    [
        ",".join(map(str, PUPIL)),
        "{a}, {b}, visit 3 of 7, {c}, {d}, {e}, {f}, day 5 of 9, {g}, {h}".format(**PUPIL),
        "\t".join(map(str, PUPIL)),
        "| " + " | ".join(map(str, PUPIL)) + " |",
        str(PUPIL.to_dict()),
        str(tuple(PUPIL)),
        PUPIL.to_string(),
        PUPILS.iloc[[RECORD]].drop(columns="room").to_string(),
        " ".join(f"{name}={value}" for name, value in PUPIL.drop("room").items()),
        " ".join(map(str, PUPIL.drop("room"))),
    ],
)
@pytest.mark.parametrize("drop", [[], ["room"]])
def test_digits_of_texts_do_not_hide_the_numbers_between_them(left: str, drop: list[str]) -> None:
    """The 50 of a category, or a room's number, is no cell of the record."""
    with pytest.raises(RawValueLeft, match=f"record {RECORD}"):
        assert_no_raw(left, PUPILS.drop(columns=drop))


@pytest.mark.parametrize(
    "left", ["{a},{b},{band},Room 17,{c},{d},{e}", "({a}, {b}, '{band}', 'Room 17', {c}, {d}, {e})"]
)
def test_digits_of_texts_that_no_table_has_do_not_hide_them_either(left: str) -> None:
    """What fills its cell is read by itself, too."""
    numbers = np.random.default_rng(2).normal(50, 10, (3000, 5)).round(1)
    table = pd.DataFrame(numbers, columns=list("abcde"))
    table.insert(2, "band", [BANDS[at % 3] for at in range(3000)])
    with pytest.raises(RawValueLeft, match=f"record {RECORD}"):
        assert_no_raw(left.format(**table.iloc[RECORD]), table)
