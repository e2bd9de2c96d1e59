"""Conformance of any function that releases something of a table: no raw values, no small groups."""

from __future__ import annotations

import io
import logging
from collections.abc import Callable, Mapping
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from privfed.leaks.reading.walk import flatten
from privfed.testing.assertions.no_raw import assert_no_raw
from privfed.testing.assertions.support import assert_support
from privfed.testing.conformance import Check, checks_of, run_checks

ROUNDING = 1e-6  #: Largest relative effect of the records' order, by rounding


@dataclass(frozen=True)
class Sharing:
    """A function under test, its table, and the number of records that each number must depend on."""

    run: Callable[[pd.DataFrame], object]
    table: pd.DataFrame
    k: int


def check_sharing(
    run: Callable[[pd.DataFrame], object],
    table: pd.DataFrame,
    k: int = 5,
    *,
    skip: Mapping[str, str] | None = None,
) -> list[str]:
    """Run every check on a function that shares something of a table; as :func:`.run_checks`.

    Args:
        run: takes a table and returns what it releases, in any form.
        table: the records, such as ``sentinels(schema_or_frame, 60)``.
        k: number of records that each number must depend on, unless it is noised.
    """
    return run_checks(CHECKS, Sharing(run, table, k), skip)


def check_nothing_raw(case: Sharing) -> None:
    """No raw value leaves, nor a function of few."""
    assert_no_raw(case.run(case.table), case.table, k=case.k)


def check_one_record(case: Sharing) -> None:
    """A client with one record gives it away no more than others: it refuses, or noise hides it."""
    single = case.table.iloc[[0]]
    try:
        released = case.run(single)
    except Exception:  # noqa: BLE001  # any refusal passes; check_errors reads messages
        return
    assert_no_raw(released, single, k=case.k, may_be_empty=True)


def check_support(case: Sharing) -> None:
    """Every number depends on enough records, or is noised."""
    assert_support(case.run, case.table, case.k)


def check_errors(case: Sharing) -> None:
    """An error over a broken table holds no raw value of it."""
    spoilt, missing = case.table.astype(object), case.table.astype(object)
    spoilt.iloc[len(spoilt) // 2, 0] = "unreadable"
    missing.iloc[len(missing) // 2, :] = None
    for broken in (case.table.iloc[:, 1:], spoilt, missing.infer_objects()):
        try:
            case.run(broken)
        except Exception as error:  # noqa: BLE001  # any exception is searched
            assert_no_raw(error, case.table, k=case.k, may_be_empty=True)


def check_logs(case: Sharing) -> None:
    """Nothing raw is printed or logged on the way."""
    records: list[logging.LogRecord] = []

    class Keeper(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            records.append(record)

    root, keeper = logging.getLogger(), Keeper(level=0)
    level, printed = root.level, io.StringIO()
    root.addHandler(keeper)
    root.setLevel(logging.DEBUG)
    try:
        with redirect_stdout(printed), redirect_stderr(printed):
            case.run(case.table)
    finally:
        root.setLevel(level)
        root.removeHandler(keeper)
    assert_no_raw([records, printed.getvalue()], case.table, k=case.k, may_be_empty=True)


def check_order(case: Sharing) -> None:
    """The order of the records does not matter, but for rounding and noise."""
    first, again = _numbers(case, case.table), _numbers(case, case.table)
    reordered = _numbers(case, case.table.iloc[::-1])
    assert first.shape == reordered.shape, "another order gives another number of numbers"
    is_fixed = first == again if first.shape == again.shape else np.zeros(first.shape, bool)
    scale = np.maximum(np.abs(first), 1.0) * ROUNDING
    moved = is_fixed & (np.abs(first - reordered) > scale)
    assert not moved.any(), "another order gives other numbers"


def _numbers(case: Sharing, table: Any) -> np.ndarray:
    leaves = [leaf.value for leaf in flatten(case.run(table))]
    arrays = [value.ravel().astype(float) for value in leaves if isinstance(value, np.ndarray)]
    return np.asarray(np.nan_to_num(np.concatenate([np.empty(0), *arrays])))


CHECKS: tuple[Check[Sharing], ...] = checks_of(__name__)
