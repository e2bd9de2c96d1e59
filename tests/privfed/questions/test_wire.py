"""Deterministic bytes, and hostile ones that fail with one typed error."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from privfed.errors import WireError
from privfed.exchange.messages import Envelope, Release, Request
from privfed.questions import wire

ARRAYS = arrays.arrays(
    st.sampled_from([np.int64, np.float64, np.uint8, np.bool_]),
    arrays.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4),
)
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.binary() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(ARRAYS)
def test_arrays_round_trip(array: np.ndarray) -> None:
    """An array comes back in its own type and shape, NaN included."""
    again = wire.decode(wire.encode(array), np.ndarray)
    assert again.dtype == array.dtype
    assert again.shape == array.shape
    assert np.array_equal(again, array, equal_nan=array.dtype.kind == "f")


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", ["<i8", ">i8", "<i4"])
def test_equal_arrays_give_equal_bytes(order: Any, dtype: str) -> None:
    """Memory layout and byte order do not show."""
    plain = np.arange(6).reshape(2, 3)
    assert wire.encode(np.array(plain, dtype=dtype, order=order)) == wire.encode(plain)


@pytest.mark.parametrize("dtype", [np.uint16, np.uint64, np.complex128, object, "U3", "M8[s]"])
def test_types_without_a_wire_form(dtype: Any) -> None:
    """Nothing is cut to a byte or pickled: other types have no wire form."""
    with pytest.raises(TypeError, match="no wire form"):
        wire.encode(np.zeros(2, dtype=dtype))


@given(st.fractions())
def test_fractions_round_trip(value: Fraction) -> None:
    """Exact numbers stay exact; negative ones are no spend."""
    data = wire.encode(value)
    if value >= 0:
        assert wire.decode(data, Fraction) == value
    else:
        with pytest.raises(WireError):
            wire.decode(data, Fraction)


@pytest.mark.parametrize("type_", [Request, Envelope, Release, np.ndarray, Fraction])
@given(PLAIN)
def test_wrong_types_are_typed_errors(type_: type, plain: object) -> None:
    """Well-formed bytes of another type give a WireError, or the value they are."""
    try:
        wire.decode(msgspec.msgpack.encode(plain), type_)
    except WireError as error:
        assert str(error).startswith("not a ")  # a constant text: no value in it


@pytest.mark.parametrize("type_", [Request, Envelope, Release])
@given(data=st.binary(max_size=80))
def test_noise_bytes(type_: type, data: bytes) -> None:
    """Random bytes raise nothing but a WireError."""
    with pytest.raises(WireError):
        wire.decode(data, type_)


@pytest.mark.parametrize("opener", [b"\x91", b"\x81\xa1a"])
def test_deep_nesting(opener: bytes) -> None:
    """A hundred thousand brackets are refused, not followed."""
    with pytest.raises(WireError):
        wire.decode(opener * 100_000 + b"\xc0", Release)


def test_size_limit_comes_first() -> None:
    """An oversized message is refused by its length alone."""
    with pytest.raises(WireError, match="over the limit of 10"):
        wire.decode(b"\xc0" * 11, Request, limit=10)


def forged(**fields: object) -> bytes:
    """An array's wire form with some fields replaced."""
    good = {"kind": "i", "shape": [1], "data": b"\0" * 8}
    return msgspec.msgpack.encode(good | fields)


@pytest.mark.parametrize(
    "fields",
    [
        {"kind": "O"},
        {"kind": ["i"]},
        {"shape": [2**39]},
        {"shape": [2**39, 2**39]},
        {"shape": [-1]},
        {"shape": [1.0]},
        {"shape": [1] * 9},
        {"shape": "1"},
        {"data": "text"},
        {"data": b"short"},
        {"extra": 1},
    ],
)
def test_forged_arrays(fields: dict[str, object]) -> None:
    """Sizes that the data do not fill, unknown kinds and wrong types are refused."""
    with pytest.raises(WireError):
        wire.decode(forged(**fields), np.ndarray)


@dataclass(frozen=True)
class Named:
    """Two mappings whose order must not show."""

    first: dict[str, int]
    second: frozenset[str]


def test_order_does_not_show() -> None:
    """Mappings and sets are written in one order."""
    one = Named({"a": 1, "b": 2}, frozenset("xyz"))
    other = Named({"b": 2, "a": 1}, frozenset("zyx"))
    assert wire.encode(one) == wire.encode(other)


PROGRAM = """
from privfed.questions import wire
from privfed.testing.queries import Histogram, LevelSums
from privfed.privacy.policy import Guard, Policy
from privfed.exchange.messages import Request
policy = Policy({"a": (Guard.of("open", "x"),), "b": (), "c": ()})
print(wire.digest(wire.encode(Request.of("1", LevelSums((((0, 1),), ((0, 0),)))))), policy.digest,
      Histogram(0, (0.0, 0.5, 1.0)).digest, wire.digest(wire.encode({"s": {"u", "v", "w"}})))
"""


def test_bytes_are_equal_across_processes() -> None:
    """Another process with another hash seed writes the same requests and digests."""
    outputs = {
        subprocess.run(
            [sys.executable, "-c", PROGRAM],
            env=os.environ | {"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(outputs) == 1
    assert len(outputs.pop().split()) == 4
