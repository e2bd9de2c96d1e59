"""Hostile bytes: whatever comes in, a reply that can be read goes out."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privfed import Column, Gate, Guard, Ledger, Policy, Records, Schema
from privfed.exchange.messages import Envelope, Reason, Refusal, Release, Request
from privfed.owner.gate import open_reply
from privfed.privacy.noise import TestNoise
from privfed.questions.wire import decode, encode
from tests.asked_gate import HALVES, LEVEL, MakeGate, request


@settings(max_examples=150)
@given(data=st.binary(max_size=200))
def test_random_bytes(fuzzed: Gate, data: bytes) -> None:
    """Bytes that are no request get a typed refusal."""
    answered = open_reply(fuzzed.serve(data))
    assert isinstance(answered, Refusal)
    assert answered.reason == Reason.UNREADABLE


@settings(max_examples=150)
@given(position=st.integers(0, 10**6), byte=st.integers(0, 255), cut=st.integers(0, 200))
def test_bent_requests(fuzzed: Gate, position: int, byte: int, cut: int) -> None:
    """A good request with a byte changed or its end cut never raises, and never fails inside."""
    good = bytearray(encode(request()))
    good[position % len(good)] = byte
    answered = open_reply(fuzzed.serve(bytes(good[: cut + 1])))
    assert isinstance(answered, Release | Refusal)


TEXT = st.text(max_size=8) | st.sampled_from(["", "small.histogram", "schema", "server"])


@settings(max_examples=150)
@given(
    id=TEXT,
    kind=TEXT,
    principal=TEXT,
    fields=st.binary(max_size=20) | st.just(HALVES.fields),
    spend=st.none() | st.fractions(min_value=0),
)
def test_any_well_formed_request(
    fuzzed: Gate, id: str, kind: str, principal: str, fields: bytes, spend: Fraction | None
) -> None:
    """Any strings at all, empty ones included: a reply that can be read, and no failure inside."""
    asked = Request(id, kind, fields, principal, spend)
    answered = open_reply(fuzzed.serve(encode(asked)))
    assert isinstance(answered, Release | Refusal)
    assert (kind, fields) == (HALVES.kind, HALVES.fields) or isinstance(answered, Refusal)


@pytest.fixture(scope="module")
def fuzzed() -> Gate:
    """One gate for all the fuzzing, over records of its own."""
    schema = Schema((Column("a", lower=0, upper=1),))
    records = Records(schema, np.linspace(0, 1, 9)[:, None])
    policy = Policy({HALVES.kind: (Guard.of("laplace", spend="0.1", cap="2"),)})
    return Gate("clinic", records, policy, Ledger(None), noise=TestNoise(2))


@pytest.mark.parametrize(
    "spend", ["1e999999999", "-1", "nan", "1/0", "x" * 5000, 0.5, [], {"a": "b"}]
)
def test_hostile_proposals(fuzzed: Gate, spend: object) -> None:
    """A proposal that is no number is no request, and costs no time."""
    plain = {"id": "h", "kind": HALVES.kind, "fields": HALVES.fields, "spend": spend}
    answered = open_reply(fuzzed.serve(encode(plain)))
    assert isinstance(answered, Refusal)
    assert answered.reason == Reason.UNREADABLE


def test_every_envelope_decodes(make_gate: MakeGate) -> None:
    """Each reply carries the ledger's head that covers it."""
    gate = make_gate()
    for asked in (encode(request()), encode(request(query=LEVEL)), b"\x00"):
        envelope = decode(gate.serve(asked), Envelope)
        assert envelope.head == gate.ledger.head
    gate.ledger.verify()
