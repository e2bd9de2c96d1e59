"""Secret coins: the published function, uniform and independent, and nobody else's business."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from privfed.questions import coins
from privfed.questions.coins import siphash
from privfed.questions.query import View
from privfed.tables.records import Records
from privfed.tables.schema import Column, Schema

SCHEMA = Schema(
    (Column("a", lower=-9, upper=9), Column("b", lower=0, upper=1)), Column("y", lower=0, upper=1)
)
SECRET = b"a secret of the client"
#: A statistic this unlikely under fair coins convicts; about fifty are looked at here.
UNLIKELY = 1e-6
MASK = 2**64 - 1

Row = tuple[float, float, float, int]
ROW = st.tuples(
    st.sampled_from([-9.0, -0.0, 0.0, 1e-300, 9.0]),
    st.sampled_from([0.0, 0.5]),
    st.sampled_from([0.0, 1.0]),
    st.integers(0, 1),
)
ROWS = st.lists(ROW, max_size=9)


def table(rows: Sequence[Row]) -> Records:
    """Records of such rows: two features, the target, the person."""
    array = np.array(rows, dtype=float).reshape(-1, 4)
    return Records(SCHEMA, array[:, :2], array[:, 2], array[:, 3].astype(np.int64))


def tossed(rows: Sequence[Row], label: str = "a purpose", secret: bytes = SECRET) -> np.ndarray:
    """The coins of a fresh view."""
    return View(table(rows), SCHEMA, secret).coins(label)


def plain_siphash(key: bytes, message: bytes, outputs: int) -> list[int]:
    """The naive twin: SipHash-2-4 of one message, in Python's integers, after the paper."""
    k = [int.from_bytes(key[at : at + 8], "little") for at in (0, 8)]
    v = [start ^ k[at % 2] for at, start in enumerate(coins._START)]
    v[1] ^= 0xEE if outputs == 2 else 0
    padded = message + bytes(7 - len(message) % 8) + bytes([len(message) % 256])
    for at in range(0, len(padded), 8):
        word = int.from_bytes(padded[at : at + 8], "little")
        v[3] ^= word
        v = plain_round(plain_round(v))
        v[0] ^= word
    v[2] ^= 0xEE if outputs == 2 else 0xFF
    found = []
    for _ in range(outputs):
        for _ in range(4):
            v = plain_round(v)
        found.append(v[0] ^ v[1] ^ v[2] ^ v[3])
        v[1] ^= 0xDD
    return found


def plain_round(v: Sequence[int]) -> list[int]:
    """SipRound, Figure 2.1 of the paper."""

    def rotated(word: int, bits: int) -> int:
        return (word << bits | word >> 64 - bits) & MASK

    a, b, c, d = v
    a, c = (a + b) & MASK, (c + d) & MASK
    b, d = rotated(b, 13) ^ a, rotated(d, 16) ^ c
    a = rotated(a, 32)
    c, a = (c + b) & MASK, (a + d) & MASK
    b, d = rotated(b, 17) ^ c, rotated(d, 21) ^ a
    return [a, b, rotated(c, 32), d]


@pytest.mark.parametrize(
    ("length", "outputs", "published"),
    [
        (15, 1, "e545be4961ca29a1"),  # the example in the paper's Appendix A
        (8, 1, "6224939a79f5f593"),  # this and the others: the authors' table of test vectors
        (16, 1, "db9bc2577fcc2a3f"),
        (8, 2, "3b62a9ba6258f5610f83e264f31497b4"),
        (16, 2, "6ee2a4ca67b054bbfd3315bf85230577"),
    ],
)
def test_it_is_the_published_function(length: int, outputs: int, published: str) -> None:
    """Naive and fast give the values that its authors give, for key and message 00, 01, 02, ..."""
    key, message = bytes(range(16)), bytes(range(length))
    naive = plain_siphash(key, message, outputs)
    assert b"".join(word.to_bytes(8, "little") for word in naive).hex() == published
    if length % 8 == 0:
        k, words = np.frombuffer(key, "<u8"), np.frombuffer(message, "<u8")
        fast = siphash((k[:1], k[1:]), [word[None] for word in words], outputs)
        assert [int(word[0]) for word in fast] == naive


@settings(max_examples=50)
@given(seed=st.integers(0, 2**32), words=st.integers(1, 40), outputs=st.sampled_from([1, 2]))
def test_side_by_side_is_one_by_one(seed: int, words: int, outputs: int) -> None:
    """Each message under its own key, as the naive twin hashes it alone."""
    rng = np.random.default_rng(seed)
    keys = rng.integers(0, 2**64, (2, 3), dtype=np.uint64)
    message = rng.integers(0, 2**64, (words, 3), dtype=np.uint64)
    fast = siphash((keys[0], keys[1]), list(message), outputs)
    for at in range(3):
        naive = plain_siphash(keys[:, at].tobytes(), message[:, at].tobytes(), outputs)
        assert [int(word[at]) for word in fast] == naive


@settings(max_examples=200)
@given(rows=ROWS, row=ROW, at=st.integers(0, 9))
def test_one_record_more_changes_nobody_elses_coin(rows: list[Row], row: Row, at: int) -> None:
    """Every record without an equal keeps its coin, and equals hold the same ones and one more."""
    more = [*rows[:at], row, *rows[at:]]
    before, after = tossed(rows), tossed(more)
    held = Counter(zip(map(equal, rows), before.tolist(), strict=True))
    now = Counter(zip(map(equal, more), after.tolist(), strict=True))
    extra = now - held
    assert not held - now
    assert [who for who, _ in extra.elements()] == [equal(row)]


def equal(row: Row) -> Row:
    """Rows that compare equal, as one: zero is zero, be it negative or not."""
    return row[0] + 0.0, row[1] + 0.0, row[2] + 0.0, row[3]


def test_a_stream_would_move_everybody() -> None:
    """The power twin: drawn in the table's order, coins of most records change with the first."""
    rows: list[Row] = [(float(at % 9), 0.0, float(at % 2), at) for at in range(200)]
    whole, fewer = (View(table(some), SCHEMA, SECRET).rng("a purpose") for some in (rows, rows[1:]))
    drawn = whole.random(200)[1:] < 0.5, fewer.random(199) < 0.5
    assert (drawn[0] != drawn[1]).sum() > 50
    assert np.array_equal(tossed(rows)[1:], tossed(rows[1:]))


@settings(max_examples=50)
@given(rows=ROWS, seed=st.integers(0, 2**32))
def test_the_order_of_the_table_does_not_matter(rows: list[Row], seed: int) -> None:
    """Shuffled, the records hold the same coins, equal ones among themselves."""
    shuffled = [rows[at] for at in np.random.default_rng(seed).permutation(len(rows))]
    held, now = (
        Counter(zip(map(equal, some), tossed(some).tolist(), strict=True))
        for some in (rows, shuffled)
    )
    assert held == now


def test_every_word_of_the_content_counts() -> None:
    """Feature, target, person and label each make another coin, and so does the secret."""
    row: Row = (1.0, 0.5, 0.0, 3)
    others: list[Row] = [(1.5, 0.5, 0, 3), (1, 0.25, 0, 3), (1, 0.5, 1, 3), (1, 0.5, 0, 4)]
    drawn = {int(tossed([each])[0]) for each in (row, *others)}
    drawn |= {int(tossed([row], "another")[0]), int(tossed([row], secret=b"another")[0])}
    assert len(drawn) == 7
    assert len(set(tossed([row] * 50).tolist())) == 50


def test_nobody_named_and_nobody_there() -> None:
    """Tables without target, persons or records have coins too."""
    assert View(table([]), SCHEMA, SECRET).coins("a").shape == (0,)
    bare = Records(SCHEMA, np.array([[1.0, 0.5], [1.0, 0.0]]))
    assert len(set(View(bare, SCHEMA, SECRET).coins("a").tolist())) == 2


def test_blocks_do_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hashed at once or in pieces, the coins are the same."""
    rows: list[Row] = [(at / 9, 0.0, 0.0, at % 7) for at in range(50)]
    whole = tossed(rows)
    monkeypatch.setattr(coins, "_BLOCK", 7)
    assert np.array_equal(tossed(rows), whole)


def test_without_a_secret_there_are_no_coins() -> None:
    """Coins that everybody could toss hide nothing."""
    with pytest.raises(TypeError, match="secret"):
        tossed([], secret=b"")


# --- fairness: under the hypothesis of fair coins each value below is a p-value --------------------


def many(labels: int) -> np.ndarray:
    """Coins of 20,000 records that differ by little, half of them equal to another; by label."""
    x = np.column_stack([np.arange(20_000) // 2 / 20_000, np.zeros(20_000)])
    view = View(Records(SCHEMA, x, np.zeros(20_000)), SCHEMA, SECRET)
    return np.stack([view.coins(f"tree {number}") for number in range(labels)])


def test_coins_are_uniform() -> None:
    """Every byte of the coins, by chi-squared over its 256 values."""
    drawn = many(3).view(np.uint8).reshape(-1, 8)
    for byte in drawn.T:
        assert stats.chisquare(np.bincount(byte, minlength=256)).pvalue > UNLIKELY


def test_labels_and_neighbours_are_independent() -> None:
    """Of two labels, of neighbours and of equals, pairs of bits agree half of the time."""
    one, other = many(2)
    pairs = {
        "labels": (one, other),
        "neighbours": (one[1:-1:2], one[2::2]),
        "equals": (one[::2], one[1::2]),
    }
    for left, right in pairs.values():
        agreed = np.bitwise_count(~(left ^ right))
        assert stats.binomtest(int(agreed.sum()), 64 * len(agreed)).pvalue > UNLIKELY
        for bit in range(64):
            same = int((~(left ^ right) >> np.uint64(bit) & np.uint64(1)).sum())
            assert stats.binomtest(same, len(left)).pvalue > UNLIKELY


def test_unfair_coins_would_be_convicted() -> None:
    """The power twin: one percent of coins copied from another label, or one byte never 0."""
    one, other = many(2)
    other[:200] = one[:200]
    agreed = np.bitwise_count(~(one ^ other))
    assert stats.binomtest(int(agreed.sum()), 64 * len(agreed)).pvalue < UNLIKELY
    byte = one.view(np.uint8).reshape(-1, 8)[:, 0]
    assert stats.chisquare(np.bincount(np.maximum(byte, 1), minlength=256)).pvalue < UNLIKELY


def test_a_subsample_has_the_sensitivity_of_the_whole() -> None:
    """What the coins are for: of a sum over records with low coins, one record moves its own term."""
    rng = np.random.default_rng(0)
    rows = [
        (float(a), 0.5, 1.0, int(p))
        for a, p in zip(rng.integers(-9, 9, 80), rng.integers(0, 3, 80), strict=True)
    ]

    def subsampled(held: Sequence[Row]) -> int:
        return int((tossed(held) < 2**63).sum())

    assert 20 < subsampled(rows) < 60
    for at in range(80):
        assert abs(subsampled(rows) - subsampled(rows[:at] + rows[at + 1 :])) <= 1


def test_a_rows_key_is_its_own_whatever_the_other_cells_make_of_its_columns() -> None:
    """Whole numbers are the same among fractions, texts and gaps; True is no 1, and 01 is 1 but no equal of it."""
    plain = pd.DataFrame({"a": [1, 2, 2], "b": ["x", "y", "y"], "c": [7, 8, 8]})
    mixed = pd.DataFrame(
        {"a": [1, 2, 2, None], "b": ["x", "y", "y", None], "c": ["7", "8", "8", "none"]}
    )
    for person in (None, "c"):
        few, many = (coins.table_keys(table, SECRET, person) for table in (plain, mixed))
        assert all((own == others[:3]).all() for own, others in zip(few, many, strict=True))
    assert len(set(coins.table_keys(plain, SECRET)[0])) == 3  # equal rows are told apart
    assert len(set(coins.table_keys(plain, SECRET, "a")[0])) == 2  # a person's are not
    texts = pd.DataFrame({"a": ["01", "1", "1"]})
    first, second, third = coins.table_keys(texts, SECRET)[0]
    assert first == second != third  # the first of each text
    assert (coins.table_keys(texts[1:], SECRET)[0] == [second, third]).all()
    assert (coins._cells(pd.Series([True, False])) != coins._cells(pd.Series([1, 0]))).all()


@pytest.mark.parametrize("first", [True, np.True_, 1.0, "1", None])
def test_a_cell_that_equals_others_does_not_change_their_rows_keys(first: object) -> None:
    """True == 1: of a column of both, as a sheet may hold them, the first stood for all of them."""
    cells = [1, "x", 0, False]
    few, more = (
        coins.table_keys(pd.DataFrame({"a": pd.Series(held, dtype=object)}), SECRET)
        for held in (cells, [first, *cells])
    )
    moved = first in (1.0, True) and not isinstance(
        first, bool | np.bool_
    )  # its equals are numbered
    for own, others in zip(few, more, strict=True):
        assert (own[moved:] == others[1 + moved :]).all()
