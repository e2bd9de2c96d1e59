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

COLUMNS = 30  #: Most columns of an output that the audit looks at one by one
LEVELS = 12  #: A column with no more different values than this is looked at value by value
LEAST = 0.5  #: Least epsilon of the planted fault, where next to nothing is claimed
_GRID, _SEED = 2.0**20, 0xA0D17  #: Grid and seed of the planted fault's noise
Pair = tuple[Any, Any]  #: Two data sets that differ in one unit


class ClaimRefuted(AssertionError):
    """Outputs prove more than the claimed epsilon."""


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

    ``run`` is called again and again on two neighbouring data sets, in random order, with fresh noise each time; an
    event is chosen on a fifth of the outputs and judged on the rest
    (:mod:`privfed.audits.paired_trials`). Values, their lowest bits, the direction in which outputs
    differ, how many there are, texts, and whether an exception is raised are all looked at. A
    passed audit proves nothing; a failed one convicts, wrongly at most with probability alpha.

    A planted fault, Laplace noise of twice the claimed epsilon, must be convicted with as many
    trials; otherwise the assertion fails, for it could not have noticed one.

    Args:
        run: what is tested: takes data and gives what leaves; it must draw fresh noise each time.
        neighbours: a pair of data sets that differ in one unit; a list of such pairs; or one table,
            of which the unit that lies farthest from the others, and the first, are left out.
        epsilon: what is claimed, in nats, with ``delta``.
        unit: of the claim: ``"record"``, or the column that names individuals or clients.
        trials: how often it is run for each pair, half of it on each data set.
        gaussian: whether the noise is Gaussian, so that a far sharper test may be used; it means
            nothing for other noise.
        batched: whether ``run(data, n)`` gives the outputs of n runs at once, one a row.
        alpha: how often it may convict an innocent one; the running test's share unless given.

    Raises:
        ClaimRefuted: the outputs prove a greater epsilon; an AssertionError.
        AssertionError: too few trials to notice a fault, or outputs that do not depend on anything.
        InputError: an argument makes no sense.
    """
    __tracebackhide__ = True
    pairs = list(_pairs(neighbours, unit))
    if not (epsilon >= 0 and 0 <= delta < 1 and trials >= 100):
        raise InputError("write epsilon >= 0, 0 <= delta < 1, and at least 100 trials")
    rate = share(alpha) / len(pairs)
    claim = PrivacyClaim(epsilon, delta, gaussian)
    _check_power(epsilon, delta, trials, rate)
    looked = False
    for place, (one, other) in enumerate(pairs):
        samples = _samples(run, one, other, trials, batched)
        if samples is not None:
            looked = True
            finding = audit_outputs(*samples, claim=claim, alpha=rate)
            if finding.value > epsilon:
                raise ClaimRefuted(_message(finding, claim, unit, place, rate))
    if not looked:
        raise AssertionError(
            "run gives one and the same constant on all neighbours, so that there is nothing to "
            "audit; pass neighbours that differ in what it reads"
        )


def _message(finding: Finding, claim: PrivacyClaim, unit: str, place: int, rate: float) -> str:
    detail = finding.detail
    return (
        f"epsilon {claim.epsilon:g} at delta {claim.delta:g} a {unit} is claimed, and {detail['trials']} outputs "
        f"on pair {place} of neighbours prove at least {finding.value:.3g} (wrongly with probability "
        f"{rate:.0e}), by how often their {detail.get('event')} is beyond {detail.get('threshold'):.6g}. "
        "Check the sensitivity, what is shared between releases, and where the noise comes from"
    )


def _pairs(neighbours: Any, unit: str) -> Iterator[Pair]:
    """The pairs that are passed; or a table with and without its farthest unit, then its first."""
    for pair in neighbours if isinstance(neighbours, list) else [neighbours]:
        for each in pair if isinstance(pair, tuple) else (pair,):
            current().keep_back(each)
    if not isinstance(neighbours, pd.DataFrame | np.ndarray):
        listed = [neighbours] if isinstance(neighbours, tuple) else list(neighbours)
        if not listed or not all(isinstance(one, tuple) and len(one) == 2 for one in listed):
            raise InputError(
                "neighbours are a pair (with, without), a list of pairs, or a table to leave a unit "
                "out of"
            )
        yield from listed
        return
    table = neighbours
    numbers = pd.DataFrame(table).select_dtypes("number").to_numpy(dtype=float)
    far = np.zeros(len(table))
    if numbers.size:
        spread = np.maximum(np.nanstd(numbers, axis=0), 1e-300)
        far = np.nansum(np.abs(numbers - np.nanmedian(numbers, axis=0)) / spread, axis=1)
    for record in dict.fromkeys((int(np.argmax(far)), 0)):
        gone = np.arange(len(table)) == record
        if unit != "record":
            if not isinstance(table, pd.DataFrame) or unit not in table.columns:
                raise InputError(f'unit is "record" or a column of the table, and is {unit!r}')
            gone = (table[unit] == table[unit].iloc[record]).to_numpy()
        yield table, table[~gone]


def _samples(
    run: Callable[..., object], one: Any, other: Any, trials: int, batched: bool
) -> tuple[np.ndarray, np.ndarray] | None:
    """Outputs on both data sets as numbers, shape (runs, columns); None if all are one constant."""
    runs = trials // 2
    shapes: dict[object, int] = {}
    if batched:
        rows = [_many(run, data, runs, shapes) for data in (one, other)]
    else:  # in random order: what changes from run to run, as a request's number does, tells of neither
        order = np.random.default_rng(_SEED).permutation(2 * runs) < runs
        rows = [[], []]
        for first in order:
            rows[not first].append(_row(_left(run, one if first else other), shapes))
    width = max(len(row) for sample in rows for row in sample)
    samples = [np.array([np.pad(row, (0, width - len(row))) for row in sample]) for sample in rows]
    both = np.concatenate(samples)
    varied = np.flatnonzero((both != both[0]).any(axis=0))
    if not len(varied):
        return None
    return _chosen(samples[0][:, varied], samples[1][:, varied])


def _many(
    run: Callable[..., object], data: Any, runs: int, shapes: dict[object, int]
) -> list[np.ndarray]:
    outputs: Any = run(data, runs)
    if len(outputs) != runs:
        raise InputError(f"run gave {len(outputs)} outputs where {runs} were asked for")
    return [_row(output, shapes) for output in outputs]


def _left(run: Callable[..., object], data: Any) -> object:
    try:
        return run(data)
    except Exception as error:  # noqa: BLE001  # that it fails may depend on the data
        return f"raised {type(error).__name__}"


def _row(left: object, shapes: dict[object, int]) -> np.ndarray:
    """An output as numbers: which shape it has, by order of appearance, and what is in it."""
    if isinstance(left, np.ndarray | np.generic) and np.asarray(left).dtype.kind in "fiub":
        return _finite(np.append(0.0, np.asarray(left, dtype=float)))
    numbers, shape = [np.empty(0)], []
    for leaf in flatten(left):
        if isinstance(leaf.value, np.ndarray):
            numbers.append(leaf.value.ravel().astype(float))
            shape.append((leaf.path, leaf.value.size))
        elif not any(letter.isdigit() for letter in str(leaf.value)):
            shape.append((leaf.path, leaf.value))  # type: ignore[arg-type]
    code = float(shapes.setdefault(tuple(shape), len(shapes)))
    return _finite(np.concatenate([np.array([code]), *numbers]))


def _finite(numbers: np.ndarray) -> np.ndarray:
    """Numbers that are none as numbers far away, so that they make an event as well."""
    return np.asarray(np.nan_to_num(numbers, nan=-1e300, posinf=1e300, neginf=-1e300))


def _chosen(one: np.ndarray, other: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The columns that differ most on the part that chooses, few-valued ones value by value."""
    cut = max(1, int(len(one) * SELECTION))
    mine, theirs = one[:cut], other[:cut]
    spread = np.sqrt(mine.var(axis=0) + theirs.var(axis=0))
    gap = np.abs(mine.mean(axis=0) - theirs.mean(axis=0)) / np.maximum(spread, 1e-12)
    columns = np.argsort(-gap, kind="stable")[:COLUMNS]
    levels = {at: np.unique(np.concatenate([mine[:, at], theirs[:, at]])) for at in columns}
    few = {at: values for at, values in levels.items() if 2 < len(values) <= LEVELS}
    one, other = (
        np.column_stack([x[:, columns], *(x[:, [at]] == values for at, values in few.items())])
        for x in (one, other)
    )
    if one.shape[1] > COLUMNS:
        mine, theirs = one[:cut], other[:cut]
        spread = np.maximum(mine.std(axis=0) + theirs.std(axis=0), 1e-12)
        gap = np.abs(mine.mean(axis=0) - theirs.mean(axis=0)) / spread
        kept = np.argsort(-gap, kind="stable")[:COLUMNS]
        one, other = one[:, kept], other[:, kept]
    return one, other


def _check_power(epsilon: float, delta: float, trials: int, alpha: float) -> None:
    rng = np.random.default_rng(_SEED)
    true = max(2 * epsilon, LEAST)
    # on a grid, for in floats its low bits would convict it however few the trials
    noise = np.rint(rng.laplace(0, 1 / true, (2, trials // 2, 1)) * _GRID) / _GRID
    finding = audit_outputs(1 + noise[0], noise[1], claim=PrivacyClaim(epsilon, delta), alpha=alpha)
    if finding.value <= epsilon:
        raise AssertionError(
            f"{trials} trials are too few to tell epsilon {true:g} from the claimed {epsilon:g} at "
            f"alpha {alpha:.0e}; pass more trials, or batched=True where run can draw many at once"
        )
