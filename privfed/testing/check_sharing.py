"""Conformance of any function that shares something of a table: nothing raw, nothing of few."""

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

ROUNDING = 1e-6  #: How much of a number the order of records may move, by rounding in a sum


@dataclass(frozen=True)
class Sharing:
    """A function under test, its table, and how many records a number must depend on."""

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
        run: takes a table and gives what leaves, in any form.
        table: the records, such as ``sentinels(schema_or_frame, 60)``.
        k: how many records each number must depend on, unless it is noised.
    """
    return run_checks(CHECKS, Sharing(run, table, k), skip)


def check_nothing_raw(case: Sharing) -> None:
    """No raw value leaves, nor a function of few."""
    assert_no_raw(case.run(case.table), case.table, k=case.k)


def check_one_record(case: Sharing) -> None:
    """A client with one record gives it away no more than others: it refuses, or noise hides it."""
    one = case.table.iloc[[0]]
    try:
        left = case.run(one)
    except Exception:  # noqa: BLE001  # any refusal will do; what it says is looked at elsewhere
        return
    assert_no_raw(left, one, k=case.k, may_be_empty=True)


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
        except Exception as error:  # noqa: BLE001  # whatever it raises is looked at
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
    turned = _numbers(case, case.table.iloc[::-1])
    assert first.shape == turned.shape, "another order gives another number of numbers"
    still = first == again if first.shape == again.shape else np.zeros(first.shape, bool)
    scale = np.maximum(np.abs(first), 1.0) * ROUNDING
    moved = still & (np.abs(first - turned) > scale)
    assert not moved.any(), "another order gives other numbers"


def _numbers(case: Sharing, table: Any) -> np.ndarray:
    leaves = [leaf.value for leaf in flatten(case.run(table))]
    arrays = [one.ravel().astype(float) for one in leaves if isinstance(one, np.ndarray)]
    return np.asarray(np.nan_to_num(np.concatenate([np.empty(0), *arrays])))


CHECKS: tuple[Check[Sharing], ...] = checks_of(__name__)
