"""One thread for linear algebra while a protocol runs, and as many as before afterwards."""

from __future__ import annotations

from typing import Self

import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from privfed.errors import NobodyAnswered
from privfed.exchange.disclosure import Disclosure
from privfed.exchange.ungated import UngatedDisclosure
from privfed.learners import RuleFitClassifier
from privfed.questions.threads import one_thread
from privfed.testing.hospitals import BINARY, patients


def threads() -> set[int]:
    """How many each BLAS library takes."""
    return {own["num_threads"] for own in threadpool_info() if own["user_api"] == "blas"}


class Counting(RuleFitClassifier):
    """Learns nothing, and looks how many threads there are."""

    def fit(self, federation: Disclosure) -> Self:
        """Look, and get no answer."""
        self.seen_ = threads()
        raise NobodyAnswered("on purpose")


def test_one_inside_and_as_many_as_before_afterwards() -> None:
    """Of numpy's library and of scipy's, and where something fails inside too."""
    with threadpool_limits(2, user_api="blas"):
        before = threads()
        with pytest.raises(KeyError), one_thread():
            assert threads() == {1}
            raise KeyError
        assert threads() == before


def test_learners_take_one() -> None:
    """Whatever they are, by the base they share."""
    federation = UngatedDisclosure.from_frame(patients(30), BINARY, "hospital")
    learner = Counting()
    with threadpool_limits(2, user_api="blas"):
        before = threads()
        with pytest.raises(NobodyAnswered):
            learner.fit(federation)
        assert threads() == before
    assert learner.seen_ == {1}
