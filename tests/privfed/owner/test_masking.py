"""Masks cancel in the sum over a roster, and hide every vector by itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privfed.errors import InputError, PolicyError
from privfed.exchange.messages import ReleasedPart, Request
from privfed.owner.masking import MaskingKey, view_of
from privfed.privacy.laws import SumOfGaussians
from privfed.privacy.masked_sums import MaskedSums
from privfed.questions.part import PartType

pytest.importorskip("cryptography")
KEYS = {f"o{i:02d}": MaskingKey(bytes([i]) * 32) for i in range(7)}


def roster(owners: int) -> dict[str, str]:
    """The first few owners' public keys."""
    return {name: key.public for name, key in list(KEYS.items())[:owners]}


@settings(max_examples=30, deadline=None)
@given(owners=st.integers(2, 7), cells=st.integers(0, 40), seed=st.integers(0, 2**32))
def test_the_sum_is_that_of_the_vectors(owners: int, cells: int, seed: int) -> None:
    """Modulo 2^64, for any roster and vectors, in any order of the roster."""
    keys = roster(owners)
    vectors = np.random.default_rng(seed).integers(
        -(2**63), 2**63 - 1, (owners, cells), dtype=np.int64
    )
    turned = dict(reversed(keys.items()))
    hidden = [KEYS[o].mask(v, turned, o, b"view") for o, v in zip(keys, vectors, strict=True)]
    with np.errstate(over="ignore"):
        assert np.array_equal(np.sum(hidden, axis=0), vectors.sum(axis=0))


def test_all_but_one_show_nothing() -> None:
    """Sums of fewer than all masked vectors of zeros have fair bits at every place."""
    keys, zeros = roster(5), np.zeros(4096, np.int64)
    hidden = [KEYS[o].mask(zeros, keys, o, b"view") for o in keys]
    for some in (hidden[:1], hidden[:2], hidden[1:], hidden[:4]):
        bits = np.unpackbits(np.sum(some, axis=0).view(np.uint8)).reshape(4096, 64)
        assert np.abs(bits.mean(axis=0) - 0.5).max() < 5 * 0.5 / 64


def test_another_view_does_not_cancel() -> None:
    """One owner who sees another question, roster or policy makes the total noise."""
    keys, zeros = roster(3), np.zeros(64, np.int64)
    views = {"o00": b"view", "o01": b"view", "o02": b"other"}
    hidden = [KEYS[o].mask(zeros, keys, o, views[o]) for o in keys]
    assert np.count_nonzero(np.sum(hidden, axis=0)) == 64


def test_masks_of_two_views_are_unrelated() -> None:
    """No two questions share a pad."""
    keys, zeros = roster(2), np.zeros(1000, np.int64)
    one, other = (KEYS["o00"].mask(zeros, keys, "o00", view) for view in (b"1", b"2"))
    assert not np.intersect1d(one, other).size
    again = KEYS["o00"].mask(zeros, keys, "o00", b"1")
    assert np.array_equal(one, again)


ASKED = Request("r1", "small.histogram", b"fields", "server")
TERMS = MaskedSums(roster(3))
PART = ReleasedPart(
    PartType.COUNTS, ("bin",), np.zeros(4, np.int64), noise=SumOfGaussians(Fraction(9), 3, 3, 4)
)
OTHERWISE: dict[str, tuple[Request, MaskedSums, dict[str, ReleasedPart]]] = {
    "who asks": (replace(ASKED, principal="other"), TERMS, {"a": PART}),
    "an id": (replace(ASKED, id="r2"), TERMS, {"a": PART}),
    "a kind": (replace(ASKED, kind="small.level"), TERMS, {"a": PART}),
    "a question": (replace(ASKED, fields=b"others"), TERMS, {"a": PART}),
    "a roster": (ASKED, MaskedSums({**roster(2), "o02": "ab" * 32}), {"a": PART}),
    "how many suffice": (ASKED, MaskedSums(roster(3), least=2), {"a": PART}),
    "a shape": (ASKED, TERMS, {"a": replace(PART, units=np.zeros((2, 2), np.int64))}),
    "a grid": (ASKED, TERMS, {"a": replace(PART, grid=Fraction(1, 2))}),
    "noise": (ASKED, TERMS, {"a": replace(PART, noise=SumOfGaussians(Fraction(10), 3, 3, 4))}),
    "a part's name": (ASKED, TERMS, {"b": PART}),
}


@pytest.mark.parametrize("what", OTHERWISE)
def test_no_two_answers_are_hidden_under_one_view(what: str) -> None:
    """The same masks twice would show what lies between two answers, with one owner's noise alone."""
    view = view_of(ASKED, TERMS, {"a": PART})
    assert view == view_of(replace(ASKED), TERMS, {"a": replace(PART, units=PART.units + 1)})
    assert view != view_of(*OTHERWISE[what])


def test_a_roster_with_another_key_is_refused() -> None:
    """An owner holds the roster against her own key before anything is asked."""
    keys = roster(3)
    KEYS["o01"].check(keys, "o01")
    for wrong in ({**keys, "o01": keys["o02"]}, {**keys, "o01": ""}, {"o00": keys["o00"]}):
        with pytest.raises(PolicyError, match=KEYS["o01"].public):
            KEYS["o01"].check(wrong, "o01")


def test_a_key_of_small_order_is_refused() -> None:
    """A pair's secret with it would be known to all."""
    keys = {**roster(2), "zero": "00" * 32}
    with pytest.raises(InputError, match="not an X25519 key"):
        KEYS["o00"].mask(np.zeros(3, np.int64), keys, "o00", b"view")


@pytest.mark.parametrize("changed", [lambda u: u | 1 << 255, lambda u: pow(u, -1, 2**255 - 19)])
def test_an_owner_who_names_a_key_that_gives_another_s_secrets_uncovers_nobody(
    changed: Callable[[int], int],
) -> None:
    """X25519 takes u for u + 2^255, and for 1 / u, a point that differs by one of order two: masks added and subtracted."""
    keys = roster(2)
    same = changed(int.from_bytes(bytes.fromhex(keys["o00"]), "little")).to_bytes(32, "little")
    keys["o02"] = same.hex()
    hidden = KEYS["o01"].mask(np.zeros(64, np.int64), keys, "o01", b"view")
    assert np.count_nonzero(hidden) == 64
