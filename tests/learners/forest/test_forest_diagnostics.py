"""The tests of covariate and outcome shift: silent without a shift, loud with one."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from privfed import Column, Schema
from privfed.errors import InputError
from privfed.exchange.ungated import UngatedDisclosure
from privfed.learners import FedForestRegressor
from privfed.learners.forest import covariate_shift, outcome_shift

SCHEMA = Schema(
    tuple(Column(name, "number", -9, 9) for name in "abc"), Column("y", "number", -12, 12)
)


def clients(
    records: int, seed: int, covariate: float = 0.0, outcome: float = 0.0
) -> UngatedDisclosure:
    """Four clients, drawn apart along ``b``, their outcomes apart by as much as is asked."""
    rng = np.random.default_rng(seed)
    number = rng.integers(0, 4, records)
    x = rng.normal(size=(records, 3))
    x[:, 1] += covariate * number
    y = 2 * (x[:, 0] > 0) + outcome * (number == 2) + rng.normal(0, 0.3, records)
    frame = pd.DataFrame(x, columns=list("abc")).assign(y=y, client=number.astype(str))
    return UngatedDisclosure.from_frame(frame, SCHEMA, "client")


def test_p_values_are_uniform_without_a_shift() -> None:
    """Over forty federations of alike clients few p-values are small, and the AUC is one half."""
    told = [covariate_shift(clients(600, seed), random_state=seed) for seed in range(40)]
    small = np.array([each.p_value for each in told])
    assert (small < 0.05).sum() <= 6 and 0.3 < small.mean() < 0.7
    assert abs(np.mean([each.auc for each in told]) - 0.5) < 0.02


def test_a_covariate_shift_is_found_and_named() -> None:
    """Power: a shift of half a deviation a client, and the feature that it is in."""
    told = covariate_shift(clients(2000, 0, covariate=0.5), random_state=0)
    assert told.p_value < 1e-6 and told.auc > 0.6 and told.gain > 0.02
    assert max(told.importances, key=lambda name: told.importances[name]) == "b"


def test_an_outcome_shift_is_found() -> None:
    """Splits on the client gain much where outcomes differ, and nothing else does it."""
    learner = FedForestRegressor(n_estimators=15, max_depth=6, random_state=0)
    same = outcome_shift(clients(1500, 1), learner)
    shifted = outcome_shift(clients(1500, 1, outcome=4), learner)
    covariate = outcome_shift(clients(1500, 1, covariate=1), learner)
    assert abs(same.gain) < 0.02 and abs(covariate.gain) < 0.02
    assert shifted.gain > 0.2


def test_one_client_has_none_to_differ_from() -> None:
    """A clear error."""
    frame = pd.DataFrame(np.zeros((9, 4)), columns=[*"abc", "y"])
    with pytest.raises(InputError, match="at least two"):
        covariate_shift(UngatedDisclosure.from_frame(frame, SCHEMA))
