"""A law that is defined in a test file, and that nothing installs, from gate to attack, curve and account."""

from __future__ import annotations

from fractions import Fraction
from typing import ClassVar

import numpy as np
import pandas as pd

from privfed import LocalDisclosure
from privfed.accountants import pld
from privfed.attacks.roc import discrete
from privfed.attacks.worst_record import WorstRecord
from privfed.extend import (
    AdditiveNoise,
    Bound,
    Budget,
    DiscreteLaplace,
    Guard,
    Law,
    Loss,
    Noise,
    Policy,
    Schema,
    float_up,
    within_range,
)
from privfed.learners.base import Planned
from privfed.privacy.laws import Unknown, in_use, law_of
from privfed.reports.account import read
from privfed.study.price import price
from privfed.testing.check_mechanism import check_mechanism
from privfed.testing.queries import Histogram

FRAME = pd.DataFrame({"x": [0.1, 0.4, 0.6, 0.9], "y": [0.0, 1.0, 0.0, 1.0], "site": "north"})
SCHEMA = Schema.from_dict(
    {
        "target": "y",
        "column": [{"name": name, "kind": "number", "lower": 0, "upper": 1} for name in "xy"],
    }
)
ASKED = Histogram(0, (0.0, 0.5, 1.0))
WORD = "on the word of twice_laplace, not derived here"


class TwiceLaplace(Law):
    """The sum of two independent discrete Laplace draws, which tells no more than either."""

    name: ClassVar[str] = "twice_laplace"

    def draw(self, noise: Noise, cells: int) -> np.ndarray:
        """Both."""
        one, other = (noise.laplace(cells, self.parameter) for _ in range(2))
        return np.asarray(one + other)

    def log_mass(self, points: np.ndarray) -> np.ndarray:
        """Their convolution: tanh(1 / 2s)^2 r^|k| (|k| + (1 + r^2) / (1 - r^2))."""
        k, scale = np.abs(np.asarray(points, dtype=float)), self.parameter
        more = np.log(k + 1 / np.tanh(1 / scale))
        return np.asarray(2 * np.log(np.tanh(0.5 / scale)) - k / scale + more)

    def loses(self, units: int) -> Fraction:
        """Of one of them."""
        return units / Fraction(self.parameter)


class TwiceNoise(AdditiveNoise):
    """Chooses it."""

    name: ClassVar[str] = "twice_noise"
    currency: ClassVar[str | None] = "epsilon"
    law: ClassVar[type[Law]] = TwiceLaplace

    def scale(self, bound: Bound, spend: Fraction) -> float:
        """L1 / epsilon."""
        return within_range(float_up(bound.l1 / spend))


def test_nothing_else_is_written_for_it() -> None:
    """Kit, price, ledger, budget, transcript, worst record, its expected rates, a curve and an account all know it."""
    assert len(check_mechanism(TwiceNoise())) == 13
    guard = Guard.of(TwiceNoise(), spend=1, times=2)
    policy = Policy({Histogram.kind: (guard,)}, budget=Budget.of(3, "1e-5"))
    assert price([Planned(ASKED, 1)], SCHEMA, policy).basis == WORD
    asked = LocalDisclosure.from_frame(
        FRAME, target="y", client="site", schema=SCHEMA, policy=policy, seed=1
    )
    asked.ask(ASKED)
    ledger = asked.gates["north"].ledger
    ledger.verify()
    assert asked.budget()["basis"].tolist() == [WORD]
    (entry,) = asked.transcript()
    (part,) = entry.release.parts.values()
    assert part.noise == TwiceLaplace(1.0)
    (found,) = WorstRecord().run(asked.transcript(), schema=SCHEMA)
    assert (found.value, found.of, found.partial) == (1, 1, "")
    assert 0.015 < discrete(part.noise, 1).at(0.01) <= 0.01 * np.e + 1e-9
    (row,) = (row for row in ledger.entries() if row.event == "reserved")
    assert set(pld.pairs([Loss.from_dict(row.body["loss"])]).values()) == {1}
    (client,) = read(policy, {"north": ledger}, {}).clients
    assert client.tight is not None and client.tight.method == "pld"
    assert client.basis == ("claimed:twice_laplace",)


def test_a_name_that_no_mechanism_here_has_proves_nothing() -> None:
    """Data alone make no law of a class, and what is installed goes before what a test file has."""
    assert isinstance(law_of("no_such_law", "1.0"), Unknown)
    in_use(TwiceLaplace(1.0))
    assert law_of("twice_laplace", "2.0") == TwiceLaplace(2.0)
    assert isinstance(
        law_of("twice_laplace", "one", "two"), Unknown
    )  # another package's, of that name
    assert type(law_of("laplace", "2.0")) is DiscreteLaplace
