"""Lines of text: what counts as one, and which of a table's sums its numbers may be."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privfed.leaks.artefact import Released
from privfed.leaks.lines import Lines, _gains, one_record, two_records
from privfed.leaks.reading.walk import flatten
from privfed.leaks.rows import Stream, aligned_rows, spans_of, streams_of
from privfed.leaks.table import RawTable, raw_tables
from privfed.testing import RawValueLeft, assert_no_raw

RNG = np.random.default_rng(2)
N = 80
FRAME = pd.DataFrame(
    {
        "age": RNG.integers(18, 95, N),
        "creatinine": RNG.lognormal(0, 0.3, N).round(3),
        "salary": RNG.normal(48_000, 9_000, N).round(1),
        "born": pd.Timestamp("1950-01-01") + pd.to_timedelta(RNG.integers(0, 20_000, N), "D"),
    }
)
(TABLE,) = raw_tables(FRAME)


def lines_of(left: object) -> Lines:
    """As a search reads them."""
    return Lines.of(Released.of(flatten(left, rows=True)), TABLE)


def line(at: int) -> str:
    """Two cells of a record, with their names."""
    return f"creatinine={FRAME['creatinine'][at]}, salary={FRAME['salary'][at]}"


@pytest.mark.parametrize("left", [[line(7)] * 30, ValueError(line(7)), [line(7), "", "\n"]])
def test_what_is_said_twice_is_one_line(left: object) -> None:
    """No chance is given to a copy, nor to an empty line, nor to what two copies differ by: nothing."""
    one, many = one_record(lines_of(line(7)), TABLE), one_record(lines_of(left), TABLE)
    assert one is not None and many is not None
    assert many.nats == pytest.approx(one.nats)


@pytest.mark.parametrize(("zeros", "more"), [(1, 0.5), (2, 2.0)])
def test_a_number_without_its_last_zeros_is_told_as_written(zeros: int, more: float) -> None:
    """Programs write 1.2 for 1.200: of many records that round to it, few have it."""
    frame = FRAME.assign(creatinine=np.linspace(0.5, 2.083, N).round(3))
    frame.loc[7, "creatinine"] = round(1.0 + 10.0 ** (zeros - 3), 3)
    (table,) = raw_tables(frame)
    released = Released.of(flatten(f"creatinine={frame['creatinine'][7]}, age={frame['age'][7]}"))
    lines = Lines.of(released, table)
    at = table.names.index("creatinine")
    rounded, whole = (lines.intervals(at, table)[:, one] for one in (0, 1))
    assert rounded[1] < frame["creatinine"][7] - 0.4 * 10.0 ** (zeros - 3)
    assert whole[1] > frame["creatinine"][7] - 0.001
    both = one_record(lines, table)
    lines._intervals[at] = rounded[:, None]
    once = one_record(lines, table)
    assert both is not None and (once is None or both.nats > once.nats + more)


def test_a_number_behind_its_column_s_name_is_read_and_no_other_label() -> None:
    """As a file's name has it; a page, a group or a version is no age."""
    spaced, glued = (
        one_record(lines_of(text.format(**FRAME.loc[7])), TABLE)
        for text in ("age {age} creatinine {creatinine}", "age{age}_creatinine{creatinine}")
    )
    assert spaced is not None and glued is not None
    assert glued.nats == pytest.approx(spaced.nats)
    assert len(lines_of("page47 age_group7 v1.27 ages47").tokens[0]) == 0
    value, _, column, *_ = lines_of("x-Age47").tokens
    assert (value.tolist(), column.tolist()) == ([47], [TABLE.names.index("age")])


@pytest.mark.parametrize("form", ["%Y-%m-%d", "%d %B %Y"])
def test_a_few_days_of_birth_in_a_log_are_found(form: str) -> None:
    """Of as many days that nobody has, nothing is."""
    days = FRAME["born"][:5]
    with pytest.raises(RawValueLeft, match="a date"):
        assert_no_raw("\n".join(f"WARN: born {day:{form}}" for day in days), FRAME)
    others = days + pd.to_timedelta([3, 1, 4, 1, 5], "D")
    assert not set(others) & set(FRAME["born"])
    assert_no_raw("\n".join(f"WARN: born {day:{form}}" for day in others), FRAME)


def test_other_lines_lower_what_one_says() -> None:
    """Each might have been the one that is told."""
    alone = one_record(lines_of(line(7)), TABLE)
    among = one_record(lines_of([line(7), *(f"step {at} of 40" for at in range(40))]), TABLE)
    assert alone is not None and among is not None
    assert among.nats == pytest.approx(alone.nats - np.log(41))


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("57,1.219,35792.8", [57, 1.219, 35792.8]),
        ("1.219,35792.8", [1.219, 35792.8]),
        ("0.134,99", [0.134, 99]),
        ("46.838,60 EUR", [46838.6]),
    ],
)
def test_a_cell_s_comma_is_no_decimal_one(text: str, values: list[float]) -> None:
    """Where the first number begins with a zero, or a point follows."""
    assert lines_of(text).tokens[0].tolist() == values


@given(
    one=st.integers(0, N - 1),
    other=st.integers(0, N - 1),
    mean=st.booleans(),
    column=st.sampled_from(["age", "creatinine", "salary"]),
    decimals=st.integers(0, 6),
)
def test_no_sum_of_two_is_dropped(
    one: int, other: int, mean: bool, column: str, decimals: int
) -> None:
    """A sum lies among the column's steps, however it was rounded."""
    total = FRAME[column][[one, other]].sum() / (2 if mean else 1)
    value = np.array([[float(round(total, decimals))]]) * (2 if mean else 1)
    width = np.maximum(10.0**-decimals, np.abs(value) * 2.0**-50) * (2 if mean else 1)
    _, expected = _gains(TABLE, value, width, np.full((1, 1), -1))
    assert np.isfinite(expected[0, TABLE.names.index(column), 0])


def test_a_number_between_two_steps_is_no_sum() -> None:
    """Of ages, or of days in seconds."""
    _, expected = _gains(TABLE, np.array([[71.25]]), np.array([[0.01]]), np.full((1, 1), -1))
    finite = dict(zip(TABLE.names, np.isfinite(expected[0, :, 0]), strict=True))
    assert finite == {"age": False, "creatinine": False, "salary": False, "born": False}


def test_the_sums_of_two_records_are_found_among_other_lines() -> None:
    """Each number of a line stands for one column at most: three ages are no record."""
    total = FRAME[["age", "creatinine", "salary"]].iloc[[3, 40]].sum()
    text = [f"epoch {at} loss {0.5 / (at + 1):.4f} after {17 * at} ms" for at in range(9)]
    found = two_records(lines_of([*text, ", ".join(f"{one:.3f}" for one in total)]), TABLE)
    assert found is not None
    assert found.record == "records 3 and 40"
    assert two_records(lines_of(text), TABLE) is None


@given(st.integers(0, 2**32 - 1))
def test_windows_that_are_met_are_all_that_can_match(seed: int) -> None:
    """No record's columns are lost where windows are dropped by their hashes one_record."""
    rng = np.random.default_rng(seed)
    left = rng.normal(50, 20, (30, 4)).round(1)
    (table,) = raw_tables(left[rng.permutation(30)[:20]])
    (stream, *_) = streams_of(Released.of(flatten(left)))
    for span in spans_of(table):
        alone = aligned_rows(span, [every(stream)], table)
        among = aligned_rows(span, [stream], table)
        assert (among and (among.nats, among.count)) == (alone and (alone.nats, alone.count))


def every(stream: Stream) -> Stream:
    """One that drops nothing."""

    class Every(Stream):
        def matching_starts(self, table: RawTable, span: tuple[bool, int, int]) -> np.ndarray:
            return np.arange(len(self.keys) - (span[2] - span[1]) + 1)

    return Every(stream.precision, stream.blocks, stream.transposed)


@pytest.mark.parametrize("keys", [("x",), ("x", "age")])
def test_rows_of_named_numbers_are_subtracted(keys: tuple[str, ...]) -> None:
    """Two lists of JSON objects, as a rule model's conditions are: names are of the last axis, whatever the rows."""
    raw = pd.DataFrame({"age": np.arange(18, 60), "dose": np.linspace(0.123, 7.77, 42)})
    one, other = (
        [{key: at + row * 1.25 for key in keys} for row in range(3)] for at in (1.25, 11.25)
    )
    assert_no_raw({"one": one, "other": other}, raw)


@pytest.mark.parametrize("form", ["frame", "lists", "array"])
def test_rows_of_one_table_are_totals_with_and_without_a_record(form: str) -> None:
    """As totals in two objects are; of rows with and without a hundred records nothing is said."""
    rng = np.random.default_rng(4)
    table = pd.DataFrame({name: rng.normal(0, 1, 300).round(3) for name in "abcdef"})
    for left_out, leaks in ((12, True), (range(100), False)):
        both = pd.DataFrame([table.sum(), table.drop(index=left_out).sum()])
        forms = {"frame": both, "lists": both.to_numpy().tolist(), "array": both.to_numpy()}
        if leaks:
            with pytest.raises(RawValueLeft, match=r"\[0\] less .*\[1\]: several cells"):
                assert_no_raw(forms[form], table)
        else:
            assert_no_raw(forms[form], table)
