"""Asserts that the outputs of any callable do not contradict its claimed epsilon."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pandas as pd

from privfed.attacks.finding import Finding
from privfed.audits.paired_trials import SELECTION, audit_outputs
from privfed.audits.threshold_tests import PrivacyClaim
from privfed.errors import InputError
from privfed.leaks.reading.walk import flatten
from privfed.testing.assertions.alpha import share
from privfed.testing.assertions.suite import current

COLUMNS = 30  #: Most columns of an output that are audited
LEVELS = 12  #: Columns with at most this many distinct values are audited value by value
LEAST = 0.5  #: Smallest epsilon of the planted fault, for claims near zero
_GRID, _SEED = 2.0**20, 0xA0D17  #: Grid and seed of the planted fault's noise
Pair = tuple[Any, Any]  #: Two data sets that differ in one unit


class ClaimRefuted(AssertionError):
    """Outputs contradict the claimed epsilon."""


def assert_dp(  # noqa: PLR0913 - by name where a test says it
    run: Callable[..., object],
    neighbours: Any,
    epsilon: float,
    delta: float = 0.0,
    *,
    unit: str = "record",
    trials: int = 4000,
    gaussian: bool = False,
    batched: bool = False,
    alpha: float | None = None,
) -> None:
    """Assert that the outputs of ``run`` do not contradict (epsilon, delta)-differential privacy.

    ``run`` is called repeatedly on two neighbouring data sets, in random order, with fresh noise each time. An
    event is chosen on a fifth of the outputs and tested on the rest (:mod:`privfed.audits.paired_trials`):
    values, their lowest bits, the direction in which outputs differ, their number, texts, exceptions. A
    passed audit proves nothing; a failed one rejects the claim, wrongly with probability at most alpha.

    A planted fault, Laplace noise with twice the claimed epsilon, must be detected with the same number of
    trials; otherwise the assertion fails for lack of power.

    Args:
        run: function under test; takes data, returns what it releases, with fresh noise each time.
        neighbours: a pair of data sets that differ in one unit; a list of such pairs; or one table,
            from which the unit farthest from the others, and the first, are removed.
        epsilon: claimed, in nats, with ``delta``.
        unit: of the claim: ``"record"``, or the column that names individuals or clients.
        trials: number of runs for each pair, half of them on each data set.
        gaussian: whether the noise is Gaussian, which allows a far more powerful test; invalid for other
            noise.
        batched: whether ``run(data, n)`` returns the outputs of n runs at once, one per row.
        alpha: largest probability of rejecting a true claim; by default the running test's part.

    Raises:
        ClaimRefuted: the outputs prove a greater epsilon; an AssertionError.
        AssertionError: too few trials to detect a fault, or outputs that are constant.
        InputError: an argument is invalid.
    """
    __tracebackhide__ = True
    pairs = list(_pairs(neighbours, unit))
    if not (epsilon >= 0 and 0 <= delta < 1 and trials >= 100):
        raise InputError("write epsilon >= 0, 0 <= delta < 1, and at least 100 trials")
    rate = share(alpha) / len(pairs)
    claim = PrivacyClaim(epsilon, delta, gaussian)
    _check_power(epsilon, delta, trials, rate)
    audited = False
    for index, (present, absent) in enumerate(pairs):
        samples = _samples(run, present, absent, trials, batched)
        if samples is not None:
            audited = True
            finding = audit_outputs(*samples, claim=claim, alpha=rate)
            if finding.value > epsilon:
                raise ClaimRefuted(_message(finding, claim, unit, index, rate))
    if not audited:
        raise AssertionError(
            "run gives one and the same constant on all neighbours, so that there is nothing to "
            "audit; pass neighbours that differ in what it reads"
        )


def _message(finding: Finding, claim: PrivacyClaim, unit: str, index: int, rate: float) -> str:
    detail = finding.detail
    return (
        f"epsilon {claim.epsilon:g} at delta {claim.delta:g} a {unit} is claimed, and {detail['trials']} outputs "
        f"on pair {index} of neighbours prove at least {finding.value:.3g} (wrongly with probability "
        f"{rate:.0e}), by how often their {detail.get('event')} is beyond {detail.get('threshold'):.6g}. "
        "Check the sensitivity, what is shared between releases, and where the noise comes from"
    )


def _pairs(neighbours: Any, unit: str) -> Iterator[Pair]:
    """Yield the given pairs; or a table with and without its farthest unit, then its first."""
    for pair in neighbours if isinstance(neighbours, list) else [neighbours]:
        for data in pair if isinstance(pair, tuple) else (pair,):
            current().keep_back(data)
    if not isinstance(neighbours, pd.DataFrame | np.ndarray):
        pairs = [neighbours] if isinstance(neighbours, tuple) else list(neighbours)
        if not pairs or not all(isinstance(item, tuple) and len(item) == 2 for item in pairs):
            raise InputError(
                "neighbours are a pair (with, without), a list of pairs, or a table to leave a unit "
                "out of"
            )
        yield from pairs
        return
    table = neighbours
    numbers = pd.DataFrame(table).select_dtypes("number").to_numpy(dtype=float)
    distance = np.zeros(len(table))
    if numbers.size:
        std = np.maximum(np.nanstd(numbers, axis=0), 1e-300)
        distance = np.nansum(np.abs(numbers - np.nanmedian(numbers, axis=0)) / std, axis=1)
    for record in dict.fromkeys((int(np.argmax(distance)), 0)):
        removed = np.arange(len(table)) == record
        if unit != "record":
            if not isinstance(table, pd.DataFrame) or unit not in table.columns:
                raise InputError(f'unit is "record" or a column of the table, and is {unit!r}')
            removed = (table[unit] == table[unit].iloc[record]).to_numpy()
        yield table, table[~removed]


def _samples(
    run: Callable[..., object], present: Any, absent: Any, trials: int, batched: bool
) -> tuple[np.ndarray, np.ndarray] | None:
    """Outputs on both data sets as numbers, shape (runs, columns); None if all are one constant."""
    runs = trials // 2
    shapes: dict[object, int] = {}
    if batched:
        rows = [_batch_rows(run, data, runs, shapes) for data in (present, absent)]
    else:  # in random order, so that changes from run to run, as of a request's number, are no signal
        order = np.random.default_rng(_SEED).permutation(2 * runs) < runs
        rows = [[], []]
        for first in order:
            rows[not first].append(_row(_outcome(run, present if first else absent), shapes))
    width = max(len(row) for sample in rows for row in sample)
    samples = [np.array([np.pad(row, (0, width - len(row))) for row in sample]) for sample in rows]
    pooled = np.concatenate(samples)
    varied = np.flatnonzero((pooled != pooled[0]).any(axis=0))
    if not len(varied):
        return None
    return _select_columns(samples[0][:, varied], samples[1][:, varied])


def _batch_rows(
    run: Callable[..., object], data: Any, runs: int, shapes: dict[object, int]
) -> list[np.ndarray]:
    outputs: Any = run(data, runs)
    if len(outputs) != runs:
        raise InputError(f"run gave {len(outputs)} outputs where {runs} were asked for")
    return [_row(output, shapes) for output in outputs]


def _outcome(run: Callable[..., object], data: Any) -> object:
    try:
        return run(data)
    except Exception as error:  # noqa: BLE001  # a failure may depend on the data
        return f"raised {type(error).__name__}"


def _row(output: object, shapes: dict[object, int]) -> np.ndarray:
    """An output as numbers: an index of its shape, by order of appearance, and its values."""
    if isinstance(output, np.ndarray | np.generic) and np.asarray(output).dtype.kind in "fiub":
        return _finite(np.append(0.0, np.asarray(output, dtype=float)))
    numbers, shape = [np.empty(0)], []
    for leaf in flatten(output):
        if isinstance(leaf.value, np.ndarray):
            numbers.append(leaf.value.ravel().astype(float))
            shape.append((leaf.path, leaf.value.size))
        elif not any(letter.isdigit() for letter in str(leaf.value)):
            shape.append((leaf.path, leaf.value))  # type: ignore[arg-type]
    code = float(shapes.setdefault(tuple(shape), len(shapes)))
    return _finite(np.concatenate([np.array([code]), *numbers]))


def _finite(numbers: np.ndarray) -> np.ndarray:
    """Replace non-finite numbers by extreme ones, so that they can be events."""
    return np.asarray(np.nan_to_num(numbers, nan=-1e300, posinf=1e300, neginf=-1e300))


def _select_columns(present: np.ndarray, absent: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Columns that differ most on the selection part of the trials, with few-valued ones as indicators."""
    n = max(1, int(len(present) * SELECTION))
    a, b = present[:n], absent[:n]
    std = np.sqrt(a.var(axis=0) + b.var(axis=0))
    gap = np.abs(a.mean(axis=0) - b.mean(axis=0)) / np.maximum(std, 1e-12)
    columns = np.argsort(-gap, kind="stable")[:COLUMNS]
    levels = {j: np.unique(np.concatenate([a[:, j], b[:, j]])) for j in columns}
    few = {j: values for j, values in levels.items() if 2 < len(values) <= LEVELS}
    present, absent = (
        np.column_stack([s[:, columns], *(s[:, [j]] == values for j, values in few.items())])
        for s in (present, absent)
    )
    if present.shape[1] > COLUMNS:
        a, b = present[:n], absent[:n]
        std = np.maximum(a.std(axis=0) + b.std(axis=0), 1e-12)
        gap = np.abs(a.mean(axis=0) - b.mean(axis=0)) / std
        kept = np.argsort(-gap, kind="stable")[:COLUMNS]
        present, absent = present[:, kept], absent[:, kept]
    return present, absent


def _check_power(epsilon: float, delta: float, trials: int, alpha: float) -> None:
    rng = np.random.default_rng(_SEED)
    true = max(2 * epsilon, LEAST)
    # on a grid: the low bits of floats would be detected with any number of trials
    noise = np.rint(rng.laplace(0, 1 / true, (2, trials // 2, 1)) * _GRID) / _GRID
    finding = audit_outputs(1 + noise[0], noise[1], claim=PrivacyClaim(epsilon, delta), alpha=alpha)
    if finding.value <= epsilon:
        raise AssertionError(
            f"{trials} trials are too few to tell epsilon {true:g} from the claimed {epsilon:g} at "
            f"alpha {alpha:.0e}; pass more trials, or batched=True where run can draw many at once"
        )
