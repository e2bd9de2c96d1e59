"""What a gate refuses before anything is read, and what cannot be a gate at all."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest

from privfed import Gate, Guard, Records
from privfed.accountants.pure import PureEpsilon
from privfed.errors import InputError, PluginError, PolicyError
from privfed.exchange.messages import Reason, Request
from privfed.mechanisms.laplace import Laplace
from privfed.mechanisms.unprotected import Open
from privfed.owner import gate as gate_module
from privfed.questions.query import Query
from privfed.questions.wire import encode
from privfed.testing.queries import AboveMiddle, Histogram, LevelSums
from tests.asked_gate import HALVES, LEVEL, MakeGate, Watched, events, reason, request


def test_unknown_kind(watched: Callable[..., Gate]) -> None:
    """What the policy does not name is refused, even if it is installed."""
    gate = watched()
    assert reason(gate, request(query=HALVES)) == Reason.UNKNOWN_KIND
    assert reason(gate, Request("2", "os.system", b"")) == Reason.UNKNOWN_KIND
    assert events(gate) == ["refused", "refused"]


def test_whoever_sent_bytes_that_are_no_request_is_in_the_row(watched: Callable[..., Gate]) -> None:
    """By the name that the channel has authenticated, not by another asker's."""
    gate = watched()
    for principal in ("mallory", ""):
        gate.serve(b"\xff", principal=principal)
    rows = [e for e in gate.ledger.entries() if e.event == "refused"]
    assert [(row.principal, row.body["reason"]) for row in rows] == [
        ("mallory", Reason.UNREADABLE),
        ("", Reason.UNREADABLE),
    ]


def test_false_partition(make_gate: MakeGate) -> None:
    """Overlapping nodes would be paid as disjoint ones: refused, ledgered, nothing evaluated."""
    gate = make_gate({LEVEL.kind: (Guard.of("laplace", spend="0.1"),)})
    twice = LevelSums((((0, 0),), ((0, 0),)))
    below = LevelSums((((0, 0),), ((0, 0), (1, 1))))
    for number, query in enumerate((twice, below)):
        assert reason(gate, request(str(number), query)) == Reason.FALSE_PARTITION
    assert events(gate) == ["refused", "refused"]


def test_absurd_size(make_gate: MakeGate) -> None:
    """A question for a billion cells is refused before anything is built."""
    gate = make_gate({AboveMiddle.kind: (Guard.of("randomized_response", spend="1"),)}, cells=1000)
    assert reason(gate, request("1", AboveMiddle(0, 10**9))) == Reason.OVERSIZED
    assert reason(gate, request("2", AboveMiddle(0, 1001))) == Reason.OVERSIZED
    assert reason(gate, request("3", AboveMiddle(0, 1000))) is None


def test_what_no_message_carries_is_refused_before_it_is_charged(
    make_gate: MakeGate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Eight bytes a number, eight bits a byte: a larger answer would be paid for and never arrive."""
    monkeypatch.setattr(gate_module, "MOST_BYTES", 16)
    asked: dict[Query, Reason | None] = {
        HALVES: None,
        Histogram(0, (0.0, 0.3, 0.6, 1.0)): Reason.OVERSIZED,
        AboveMiddle(0, 128): None,
        AboveMiddle(0, 136): Reason.OVERSIZED,
    }
    guards = {
        HALVES.kind: (Guard.of("laplace", spend="1"),),
        AboveMiddle.kind: (Guard.of("randomized_response", spend="1"),),
    }
    gate = make_gate(guards)
    for number, (query, expected) in enumerate(asked.items()):
        assert reason(gate, request(str(number), query)) == expected
    assert events(gate).count("reserved") == 2


@pytest.mark.parametrize(
    "fields",
    [
        b"",
        b"\xc1",
        encode({"feature": 0}),
        encode({"feature": "a", "edges": [0.0, 1.0]}),
        encode({"feature": 0, "edges": [0.0, 1.0], "extra": 1}),
        encode({"edges": [0.0, 1.0], "feature": 0}),
        encode({"feature": 0, "edges": [0, 1]}),
        encode({"feature": 9, "edges": [0.0, 1.0]}),
        encode({"feature": 0, "edges": [0.0, float("nan")]}),
        HALVES.fields + b"\x00",
    ],
)
def test_malformed_fields(make_gate: MakeGate, fields: bytes) -> None:
    """Fields that are no canonical bytes of the kind are refused: one question, one digest."""
    gate = make_gate()
    assert reason(gate, Request("1", HALVES.kind, fields)) == Reason.MALFORMED
    assert events(gate) == ["refused"]


@pytest.mark.parametrize("field", ["id", "principal"])
def test_long_names(make_gate: MakeGate, field: str) -> None:
    """An id of a megabyte is not written into the ledger."""
    gate = make_gate()
    asked = {"id": "1", "kind": HALVES.kind, "fields": HALVES.fields, field: "x" * 10**6}
    assert reason(gate, Request(**asked)) == Reason.MALFORMED  # type: ignore[arg-type]
    assert max(len(e.request + e.principal) for e in gate.ledger.entries()) <= 400


@pytest.mark.parametrize(
    ("query", "guard"),
    [
        (LEVEL, Guard.of("randomized_response", spend="1")),
        (AboveMiddle(0, 5), Guard.of("laplace", spend="1")),
        (HALVES, Guard.of("refuse")),
        (HALVES, Guard.of("gaussian", spend="0.1")),  # has no pure epsilon
    ],
)
def test_unsupported(make_gate: MakeGate, query: Query, guard: Guard) -> None:
    """A mechanism that cannot protect the part, or an accountant that cannot add: refused."""
    gate = make_gate({query.kind: (guard,)}, budget="9")
    assert reason(gate, request(query=query)) == Reason.UNSUPPORTED
    assert events(gate) == ["refused"]


def test_a_person_without_a_cap_is_not_protected(make_gate: MakeGate) -> None:
    """No finite bound covers a person of any number of records; open needs none."""
    protected = make_gate(unit="individual")
    assert reason(protected, request()) == Reason.UNSUPPORTED
    released = make_gate({HALVES.kind: (Guard.of("open"),)}, unit="individual")
    assert reason(released, request()) is None


def test_a_zero_proposal(make_gate: MakeGate) -> None:
    """Spending nothing protects nothing."""
    assert reason(make_gate(), request(spend=Fraction(0))) == Reason.UNSUPPORTED


def test_refusals_are_equal_for_neighbours(make_gate: MakeGate, records: Records) -> None:
    """Whether and why a gate refuses does not depend on any record."""
    asked = [
        request("1"),
        request("2", Histogram(5, (0.0, 1.0))),
        request("3", LEVEL),
        request("4"),
        Request("5", HALVES.kind, b"x"),
    ]
    answered = []
    for held in (records, records.take(np.arange(1)), records.take(np.arange(0))):
        gate = make_gate(budget="0.1", held=held)
        answered.append([reason(gate, each) for each in asked])
    assert answered[0] == answered[1] == answered[2]
    assert set(answered[0]) == {None, Reason.MALFORMED, Reason.UNKNOWN_KIND, Reason.BUDGET}


@pytest.mark.parametrize(
    ("guards", "says"),
    [
        ({"no.such": (Guard.of("open"),)}, r"not installed: no query called 'no\.such'"),
        (
            {HALVES.kind: (Guard.of("lapalce"),)},
            "no mechanism called 'lapalce'; did you mean 'laplace'",
        ),
        ({HALVES.kind: (Guard.of("laplace"),)}, r'needs spend = "\.\.\." \(in epsilon\)'),
        (
            {HALVES.kind: (Guard.of("open", wide=1),)},
            "does not take the options wide; it takes none",
        ),
        (
            {HALVES.kind: (Guard.of("nullify", strikt=1),)},
            "does not take the options strikt; it takes .*strict",
        ),
    ],
)
def test_policies_that_cannot_be_kept(
    make_gate: MakeGate, guards: dict[str, tuple[Guard, ...]], says: str
) -> None:
    """An unknown query or mechanism, a missing spend, a misspelt option: one line each."""
    with pytest.raises((PolicyError, PluginError), match=says) as caught:
        make_gate(guards)
    assert "\n" not in str(caught.value)


def test_a_mechanism_object_needs_its_spend(make_gate: MakeGate) -> None:
    """Objects are held to what names are."""
    with pytest.raises(PolicyError, match="needs spend"):
        make_gate({HALVES.kind: (Guard(Laplace()),)})
    assert reason(make_gate({HALVES.kind: (Guard.of(Laplace(), spend="0.1"),)}), request()) is None


def test_unknown_accountant(make_gate: MakeGate) -> None:
    """It lists the installed ones."""
    with pytest.raises(InputError, match="no accountant called 'puree'"):
        make_gate(accountant="puree")


def test_a_person_must_be_known(make_gate: MakeGate, records: Records) -> None:
    """A person as the unit needs the person behind each record, with a cap or without."""
    nameless = Records(records.schema, records.x, records.y)
    for cap in (None, 1):
        with pytest.raises(PolicyError, match="do not say whose they are"):
            make_gate(held=nameless, unit="individual", cap=cap)


def test_a_cap_is_applied(watched: Callable[..., Gate]) -> None:
    """Records beyond the cap are not even in the view."""
    seen: list[int] = []
    gate = watched(
        behave=lambda view: seen.append(len(view.table)) or np.array([1]), unit="individual", cap=1
    )
    assert reason(gate, request(query=Watched())) is None
    assert seen == [25]


def test_a_query_under_a_false_name(make_gate: MakeGate, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plugin that installs a query under another kind is refused at the start."""
    monkeypatch.setattr(
        "privfed.privacy.policy_objects.plugins.load", lambda group, name: Histogram
    )
    with pytest.raises((PluginError, PolicyError), match="calls itself"):
        make_gate({"other.kind": (Guard(Open()),)}, accountant=PureEpsilon())
