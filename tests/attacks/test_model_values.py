"""How much of a table the answers may leave in a model, before its learner is said to have read it elsewhere."""

import math

import numpy as np
import pytest

from privfed.attacks.model_values import by_answers
from privfed.leaks.evidence import Evidence


def evidence(values: int, held: int) -> Evidence:
    """So many records' values held, each one of as many values that are equally likely."""
    return Evidence("values", "a raw value", held * math.log(values), str, str, held)


@pytest.mark.parametrize("epsilon", [1.0, 4.0, 8.0])
def test_randomized_response_is_accused_no_more_often_than_stated(epsilon: float) -> None:
    """One of 1,000 values told of each of 50 records at that epsilon, kept in a model: an honest learner."""
    values, records, rng = 1000, 50, np.random.default_rng(0)
    truth = math.exp(epsilon) / (math.exp(epsilon) + values - 1)
    held = rng.binomial(records, truth, 20_000)
    for count in range(1, records + 1):
        assert (held >= count).mean() <= by_answers(evidence(values, count), records, epsilon, 0.0)


def test_what_no_answer_of_the_budget_tells_is_rare_and_without_a_budget_nothing_is() -> None:
    """A row of a million millions at epsilon 4; as many at epsilon 40, or at none."""
    row = evidence(10**12, 20)
    assert by_answers(row, 50, 4.0, 1e-5) < 1e-4
    assert by_answers(row, 50, 40.0, 1e-5) == by_answers(row, 50, math.inf, 0.0) == 1.0
