"""What a total of masked shares says of itself."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from privfed.errors import PolicyError
from privfed.exchange.masked_totals import total_of
from privfed.exchange.messages import Release, ReleasedPart
from privfed.privacy.laws import SumOfGaussians
from privfed.questions.part import PartType

OWNERS = ("ashford", "briar", "cedar")
#: Priced for two owners, the fewest that may open it.
NOISE = SumOfGaussians(Fraction(9), 2, 2, 2)


def share(owner: str, *units: int, secure: bool = True) -> Release:
    """One owner's."""
    part = ReleasedPart(PartType.COUNTS, ("bin",), np.array(units), noise=NOISE)
    return Release(
        owner, "r1", "small.histogram", "digest", {"counts": part}, secure, OWNERS, "view"
    )


SHARES = [share("ashford", 2**63 - 1, 1), share("briar", 2**63 - 1, 2), share("cedar", 5, -3)]


def test_a_total_has_the_noise_of_all_who_are_in_it() -> None:
    """More survivors than the fewest are noisier, by each one's own; cells add up modulo 2^64."""
    part = total_of(SHARES).parts["counts"]
    assert part.units.tolist() == [3, 0]
    assert isinstance(part.noise, SumOfGaussians)
    assert (part.noise.owners, part.noise.counted, part.noise.cells) == (3, 2, 2)
    assert part.noise.std == pytest.approx(NOISE.std * np.sqrt(3 / 2), rel=1e-6)


def test_one_share_with_test_noise_makes_a_total_of_test_noise() -> None:
    """Whosever it is."""
    assert total_of(SHARES).secure
    for at, one in enumerate(SHARES):
        assert not total_of([*SHARES[:at], replace(one, secure=False), *SHARES[at + 1 :]]).secure


@pytest.mark.parametrize("shares", [SHARES[:2], [*SHARES[:2], replace(SHARES[2], view="other")]])
def test_no_total_of_less_or_of_other_shares(shares: list[Release]) -> None:
    """Masks would not cancel, and what is left were taken for counts."""
    with pytest.raises(PolicyError, match="masks do not cancel"):
        total_of(shares)
