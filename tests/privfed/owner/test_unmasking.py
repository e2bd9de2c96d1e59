"""What a server that lies about dropouts reads: of gates that omit a check, and of ours."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privfed import Budget, Guard, LocalDisclosure, Policy, Schema
from privfed.errors import PolicyError
from privfed.exchange.messages import Reason, Release, Request
from privfed.exchange.survivors import PRIME, Opening, Survivors, cells_of, join, split, stream
from privfed.owner import gate as gate_module
from privfed.owner import masking
from privfed.owner.gate import Gate
from privfed.owner.unmasking import Unmasking, new_seed
from privfed.privacy import masked_sums
from privfed.privacy.laws import SumOfGaussians
from privfed.privacy.masked_sums import MaskedSums
from privfed.privacy.noise import TestNoise
from privfed.questions import wire
from privfed.tables.schema import Column
from privfed.testing.queries import Histogram
from tests.asked_gate import reason, reply

pytest.importorskip("cryptography")
BINS = Histogram(0, (0.0, 0.25, 0.5, 0.75, 1.0))
SCHEMA = Schema((Column("a", lower=0, upper=1),), Column("y", lower=0, upper=1))
OWNERS = ("ashford", "briar", "cedar", "dunes", "elm")
VICTIM, *OTHERS = OWNERS
COLLUDER = "elm"


class Silence(TestNoise):
    """No noise at all, so that what is read can be told exactly."""

    def gaussian(self, size: int, scale: float) -> np.ndarray:
        """Zeros."""
        return np.zeros(size, np.int64)


def gates(least: int = 4, colluding: int = 1, records: int = 5) -> dict[str, Gate]:
    """Five owners of forty records each, without noise."""
    rng = np.random.default_rng(records)
    frame = pd.DataFrame(rng.uniform(0, 1, (200, 2)), columns=["a", "y"])
    frame["owner"] = np.repeat(OWNERS, 40)
    plain = Policy(
        {BINS.kind: (Guard.of("gaussian", spend="0.05"),)},
        accountant="zcdp",
        budget=Budget.of("8", "1e-5"),
    )
    held = LocalDisclosure.from_frame(
        frame,
        "y",
        client="owner",
        schema=SCHEMA,
        policy=plain.masked_among(OWNERS, colluding, None, least),
        seed=3,
    ).gates
    for gate in held.values():
        gate._noise = Silence(0)
    return held


class Server:
    """Asks one question, and tells each owner about dropouts what it likes; owners may collude with it."""

    def __init__(self, held: dict[str, Gate], *colluders: str, id: str = "1") -> None:
        self.gates, self.colluders, self.id = held, colluders, id
        self.shares: dict[str, Release] = {}
        for owner, gate in held.items():
            said = reply(gate, Request.of(id, BINS))
            assert isinstance(said, Release)
            self.shares[owner] = said
        self.view = bytes.fromhex(next(iter(self.shares.values())).view)
        self.macs: dict[tuple[str, ...], dict[str, dict[str, bytes]]] = {}
        #: What it learned: pairs' keys, and shares of seeds by owner and place.
        self.pads: dict[frozenset[str], bytes] = {}
        self.seeds: dict[str, dict[int, bytes]] = {owner: {} for owner in held}
        for colluder in colluders:
            self._learn_all(colluder)

    def _learn_all(self, colluder: str) -> None:
        unmasking, own = self.gates[colluder]._unmasking, self.gates[colluder]._masking
        for peer, share in self.shares.items():
            self.pads[frozenset((colluder, peer))] = own.pair(self._key(peer)).mask(self.view)
            if share.told:
                self._learn_share(
                    colluder, peer, unmasking._unsealed(peer, share.told[colluder], self.view)
                )

    def _key(self, owner: str) -> str:
        terms = self.gates[owner].policy.masked
        assert terms is not None
        return terms.keys[owner]

    def _learn_share(self, teller: str, owner: str, share: bytes) -> None:
        self.seeds[owner][OWNERS.index(teller) + 1] = share

    def boxes(self, owner: str, survivors: Iterable[str]) -> dict[str, bytes]:
        """What survivors sealed for an owner."""
        return {peer: self.shares[peer].told[owner] for peer in survivors}

    def agree(self, owner: str, survivors: Sequence[str], about: str = "") -> bool:
        """Have an owner agree to a list; whether she did."""
        step = Survivors(about or self.id, self.boxes(owner, survivors))
        said = reply(self.gates[owner], step.request("server"))
        if isinstance(said, Release):
            self.macs.setdefault(tuple(sorted(survivors)), {})[owner] = said.told
        return isinstance(said, Release)

    def open(self, owner: str, survivors: Sequence[str], about: str = "") -> bool:
        """Have an owner open a list, with the confirmations at hand and colluders'; whether she did."""
        listed = tuple(sorted(survivors))
        macs = {p: told[owner] for p, told in self.macs.get(listed, {}).items() if owner in told}
        for colluder in self.colluders:
            if colluder in survivors:
                own = self.gates[colluder]._unmasking
                macs[colluder] = own._mac(
                    owner, self.view, wire.encode(colluder) + wire.encode(listed)
                )
        step = Opening(Survivors(about or self.id, self.boxes(owner, survivors)), macs)
        said = reply(self.gates[owner], step.request("server"))
        for peer, value in said.told.items() if isinstance(said, Release) else ():
            if peer in survivors:
                self._learn_share(owner, peer, value)
            else:
                self.pads[frozenset((owner, peer))] = value
        return isinstance(said, Release)

    def tell(self, lists: dict[str, Sequence[str]]) -> None:
        """Tell each owner her list, and have all that agreed open it."""
        agreed = [owner for owner, survivors in lists.items() if self.agree(owner, survivors)]
        for owner in agreed:
            self.open(owner, lists[owner])

    def reads(self) -> list[tuple[str, ...]]:
        """The groups of owners whose exact sum it can compute, the smallest first; each is checked."""
        found = []
        for size in range(1, len(self.gates) + 1):
            for group in combinations(sorted(self.gates), size):
                told = self._sum(group)
                if told is not None:
                    exact = sum(exact_counts(self.gates[owner]) for owner in group)
                    np.testing.assert_array_equal(told, exact)
                    found.append(group)
        return found

    def _sum(self, group: tuple[str, ...]) -> np.ndarray | None:
        total = np.zeros(4, np.uint64)
        least = next(iter(self.shares.values())).least
        for owner in group:
            total += cells_of(self.shares[owner].parts).view(np.uint64)
            if least:
                if len(self.seeds[owner]) < least:
                    return None
                total -= stream(join(dict(list(self.seeds[owner].items())[:least])), 4)
            for peer in set(self.gates) - set(group):
                if frozenset((owner, peer)) not in self.pads:
                    return None
                pad = stream(self.pads[frozenset((owner, peer))], 4)
                total = total - pad if owner < peer else total + pad
        grid = next(iter(self.shares.values())).parts["counts"].grid
        return np.asarray(total.view(np.int64) * float(grid))

    def honest(self) -> int:
        """The fewest honest owners in a sum that it reads; more than all if there is none."""
        sizes = [len(set(group) - set(self.colluders)) for group in self.reads()]
        return min((size for size in sizes if size), default=len(self.gates) + 1)


def exact_counts(gate: Gate) -> np.ndarray:
    """One owner's exact answer."""
    return np.asarray(BINS.evaluate(gate._view)["counts"])


def unchecked(monkeypatch: pytest.MonkeyPatch, **terms: int) -> None:
    """Policies are loaded without a look at their terms."""
    monkeypatch.setattr(MaskedSums, "__post_init__", lambda self: None)


# --- honest servers ------------------------------------------------------------------------------


@pytest.mark.parametrize("gone", [(), ("ashford",), ("elm",), ("cedar",)])
def test_survivors_total_opens_and_nothing_else(gone: tuple[str, ...]) -> None:
    """Whoever is gone, exactly one group's sum can be read, and it is that of the survivors."""
    server = Server(gates())
    left = [owner for owner in OWNERS if owner not in gone]
    server.tell(dict.fromkeys(left, left))
    assert server.reads() == [tuple(left)]


@settings(max_examples=25, deadline=None)
@given(
    lists=st.lists(st.sets(st.sampled_from(OWNERS), min_size=1), min_size=5, max_size=5),
    colluders=st.sampled_from([(), ("elm",), ("briar",)]),
)
def test_whatever_owners_are_told_sums_hold_enough_honest_owners(
    lists: list[set[str]], colluders: tuple[str, ...]
) -> None:
    """A list of its own for every owner, at random: least - colluding honest owners at least, or no sum."""
    server = Server(gates(), *colluders)
    server.tell({owner: sorted(own) for owner, own in zip(OWNERS, lists, strict=True)})
    assert server.honest() >= 3


# --- the list of exploits ------------------------------------------------------------------------


def both_lists(server: Server) -> None:
    """Lie: all others are told that the victim is gone, and then that she is not."""
    server.tell(dict.fromkeys(OTHERS, OTHERS))
    for owner in OTHERS:
        server.agree(owner, OWNERS, about="again")
    for owner in OTHERS:
        server.open(owner, OWNERS, about="again")


def test_both_shares_of_one_owner_are_never_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """A gate that agrees to a second list under another id is read; ours answers one list a question."""
    server = Server(gates(), COLLUDER)
    both_lists(server)
    assert server.honest() == 3

    share = Unmasking._share

    def anything(self: Unmasking, request: Request, step: Survivors, named: Request) -> Release:
        return share(self, replace(request, id=named.id), replace(step, about="1"), named)

    monkeypatch.setattr(Unmasking, "_share", anything)
    open_gates = Server(gates(), COLLUDER)
    both_lists(open_gates)
    assert (VICTIM,) in open_gates.reads()


def split_view(server: Server) -> None:
    """Three groups are told three lists: who is gone differs."""
    server.tell(
        {
            "ashford": ("ashford", "cedar", "dunes"),
            "briar": ("ashford", "briar", "elm"),
            "cedar": ("briar", "cedar", "dunes"),
            "dunes": ("briar", "cedar", "dunes"),
        }
    )


def test_a_split_view_shows_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gates that open without the others' word are read; and no policy loads that needs it so much."""
    with pytest.raises(PolicyError, match="write least = 4"):
        gates(least=3)
    unchecked(monkeypatch)
    server = Server(gates(least=3), COLLUDER)
    split_view(server)
    assert server.honest() >= 2
    monkeypatch.setattr(Unmasking, "_mac", lambda *_: b"yes")
    monkeypatch.setattr(Server, "open", _with_any_word)
    trusting = Server(gates(least=3), COLLUDER)
    split_view(trusting)
    assert (VICTIM,) in trusting.reads()


_open = Server.open


def _with_any_word(self: Server, owner: str, survivors: Sequence[str], about: str = "") -> bool:
    """Confirm a list in everybody's name, which gates believe that check no word."""
    self.macs[tuple(sorted(survivors))] = {peer: {owner: b"yes"} for peer in survivors}
    return _open(self, owner, survivors, about)


def test_all_but_two_dropped_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A colluder and the victim survive: with least = 2 she is read, which no policy can say."""
    pair = (VICTIM, COLLUDER)
    server = Server(gates(), COLLUDER)
    assert not server.agree(VICTIM, pair)
    for least in (2, 3):
        with pytest.raises(PolicyError):
            gates(least=least)
    unchecked(monkeypatch)
    lax = Server(gates(least=2), COLLUDER)
    lax.tell({VICTIM: pair})
    assert lax.honest() == 1


def test_a_late_answer_stays_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    """All others told their keys with the victim; her own mask is left. Without one she is read."""
    server = Server(gates())
    server.tell(dict.fromkeys(OTHERS, OTHERS))
    assert server.reads() == [tuple(OTHERS)]
    assert not server.agree(VICTIM, OTHERS)  # a list without her she confirms to nobody
    monkeypatch.setattr(gate_module, "new_seed", lambda: bytes(32))
    bare = Server(gates())
    bare.tell(dict.fromkeys(OTHERS, OTHERS))
    bare.seeds[VICTIM] = {place: bytes(32) for place in range(1, 5)}
    assert (VICTIM,) in bare.reads()


def test_an_invented_owner_survives_nothing() -> None:
    """The roster is each owner's own; one that took the server's keys for the others' would be read."""
    held = gates()
    server = Server(held)
    server.shares["zoe"] = server.shares["elm"]
    assert not server.agree(VICTIM, [*OWNERS[:4], "zoe"])
    invented = {o: masking.MaskingKey(f"the server's for {o}".encode()) for o in OTHERS}
    terms = held[VICTIM].policy.masked
    assert terms is not None
    keys = {**terms.keys} | {o: one.public for o, one in invented.items()}
    fooled = replace(held[VICTIM].policy, masked=replace(terms, keys=keys, least=0))
    frame = pd.DataFrame({"a": [0.1, 0.6], "y": [0.5, 0.5], "owner": VICTIM})
    gate = LocalDisclosure.from_frame(
        frame, "y", client="owner", schema=SCHEMA, policy=fooled, seed=3
    ).gates[VICTIM]
    gate._noise = Silence(0)
    said = reply(gate, Request.of("1", BINS))
    assert isinstance(said, Release)
    cells = cells_of(said.parts).view(np.uint64)
    for one in invented.values():
        pad = one.pair(gate._masking.public).mask(bytes.fromhex(said.view))
        cells = cells - stream(pad, 4)
    read = cells.view(np.int64) * float(said.parts["counts"].grid)
    np.testing.assert_array_equal(read, exact_counts(gate))


def test_owners_of_different_rosters_open_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """One whose policy differs has another view: no box of hers opens, and no total without her.

    Where terms are left out of the view, her thinner share opens a total with less noise than was priced.
    """
    held = gates()
    other = gates(colluding=0)["briar"]
    server = Server({**held, "briar": other})
    assert not server.agree(VICTIM, OWNERS)
    assert not server.agree("briar", OWNERS)
    left = [owner for owner in OWNERS if owner != "briar"]
    server.tell(dict.fromkeys(left, left))
    assert server.reads() == [tuple(left)]

    monkeypatch.setattr(gate_module, "view_of", lambda asked, *_: asked.id.encode() * 32)
    lax = Server({**gates(), "briar": gates(colluding=0)["briar"]}, COLLUDER)
    four = (VICTIM, "briar", "cedar", COLLUDER)
    lax.tell(dict.fromkeys(four, four))
    assert ("ashford", "briar", "cedar", "elm") in lax.reads()
    laws = {owner: lax.shares[owner].parts["counts"].noise for owner in four}
    honest = [law for owner, law in laws.items() if owner != COLLUDER]
    told = laws[VICTIM]
    assert isinstance(told, SumOfGaussians)
    left_over = sum(law.share.parameter**2 for law in honest if isinstance(law, SumOfGaussians))
    assert left_over < 0.95 * told.parameter**2


def test_a_replay_opens_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Boxes of an earlier question do not open; and no two questions share a mask."""
    held = gates()
    first, second = Server(held, id="1"), Server(held, id="2")
    earlier = second.shares | {
        "briar": replace(second.shares["briar"], told=first.shares["briar"].told)
    }
    second.shares = earlier
    assert not second.agree(VICTIM, OWNERS)
    assert _difference(gates(least=0)) > 2**32
    view = masking.view_of
    monkeypatch.setattr(gate_module, "view_of", lambda r, *rest: view(replace(r, id=""), *rest))
    assert _difference(gates(least=0)) == 0


def test_no_list_is_opened_but_the_one_that_was_agreed_to() -> None:
    """Whatever the others, and who works with the server, confirm of another one."""
    server = Server(gates(), COLLUDER)
    assert server.agree(VICTIM, OWNERS[:4])
    for owner in OTHERS:
        assert server.agree(owner, OWNERS)
    assert not server.open(VICTIM, OWNERS)
    assert server.open("briar", OWNERS)  # where the same words are enough


def test_a_list_is_opened_once_the_least_number_of_owners_has_confirmed_it() -> None:
    """One fewer is too few."""
    server = Server(gates(least=4))
    for owner in OWNERS[:3]:
        assert server.agree(owner, OWNERS)
    assert not server.open(VICTIM, OWNERS)
    assert server.agree("dunes", OWNERS)
    assert server.open(VICTIM, OWNERS)


def test_a_share_is_opened_among_the_owners_it_was_given_under() -> None:
    """Once another roster is in force, no list of the earlier one is confirmed."""
    held = gates(least=4)
    server, gate = Server(held), held[VICTIM]
    terms = gate.policy.masked
    assert terms is not None
    fewer = replace(terms, keys={owner: terms.keys[owner] for owner in OWNERS[:4]})
    options: dict[str, Any] = {"secret": gate._view.secret, "noise": Silence(0), "amend": True}
    policy = replace(gate.policy, masked=fewer)
    server.gates[VICTIM] = Gate(VICTIM, gate._view.records, policy, gate.ledger, **options)
    assert not server.agree(VICTIM, OWNERS[:4])
    assert server.agree("briar", OWNERS[:4])


def test_a_step_has_one_id() -> None:
    """Under another one an owner would agree to a second list of the same question."""
    server = Server(gates())
    gate, boxes = server.gates[VICTIM], server.boxes(VICTIM, OWNERS)
    step = Survivors(server.id, boxes).request("server")
    assert reason(gate, replace(step, id="2:survivors")) == Reason.MALFORMED
    server.tell(dict.fromkeys(OTHERS, OWNERS))
    assert server.agree(VICTIM, OWNERS)
    macs = {peer: told[VICTIM] for peer, told in server.macs[OWNERS].items()}
    opening = Opening(Survivors(server.id, boxes), macs).request("server")
    assert reason(gate, replace(opening, id="2:opening")) == Reason.MALFORMED
    assert reason(gate, opening) is None


def test_another_list_under_the_one_id_is_refused() -> None:
    """An owner has agreed to one list; another under the same id is another question, as for any query."""
    server = Server(gates())
    assert server.agree(VICTIM, OWNERS)
    other = Survivors(server.id, server.boxes(VICTIM, OWNERS[:4])).request("server")
    assert reason(server.gates[VICTIM], other) == Reason.MISMATCH
    server.gates[VICTIM].ledger.verify()


def _difference(held: dict[str, Gate]) -> int:
    """How far two answers of one owner to one question under two ids are apart."""
    one, two = (Server(held, id=id).shares[VICTIM].parts for id in "12")
    return int(np.abs((cells_of(one) - cells_of(two)).astype(float)).max())


def test_a_ledger_put_back_gives_no_second_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """Asked again under the same id, an owner put back from a backup hides with another seed."""

    def twice() -> float:
        """How far an owner's two answers are apart; equal seeds of gates are one owner, put back."""
        one, two = (cells_of(Server(gates()).shares[VICTIM].parts).astype(float) for _ in range(2))
        return float(np.abs(one - two).max())

    assert twice() > 2**32
    monkeypatch.setattr(gate_module, "new_seed", lambda: bytes(32))
    assert twice() == 0


def test_where_all_are_needed_a_ledger_put_back_shows_noise_alone() -> None:
    """Without a seed of her own, an owner's two answers are two noises apart, whatever her records; with it, nothing."""

    def apart(least: int, records: int) -> np.ndarray:
        found = []
        for noise in (1, 2):
            held = gates(least, records=records)
            held[VICTIM]._noise = TestNoise(noise)
            found.append(cells_of(Server(held).shares[VICTIM].parts))
        return np.asarray(np.subtract(*found))

    np.testing.assert_array_equal(shown := apart(0, records=5), apart(0, records=6))
    assert 0 < np.abs(shown).max() < 2**20
    assert np.abs(apart(5, records=5).astype(float)).max() > 2**32


def test_no_total_wraps_around(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cells of 2^62 at five owners: the sum keeps its sign; without the clip it does not."""

    def total() -> int:
        held = gates(least=0)
        whole = np.full(4, 2**62)
        each = [gate._guards for gate in held.values()]
        parts = BINS.parts(SCHEMA)
        (protection,) = each[0].quote(type(BINS), parts, None).masked
        with np.errstate(over="ignore"):
            return int(np.sum([protection.on_grid("counts", whole) for _ in OWNERS], axis=0)[0])

    assert total() > 0
    monkeypatch.setattr(masked_sums, "LARGEST", 2**66)
    monkeypatch.setattr(np, "clip", lambda cells, *_: cells)
    assert total() < 0


@pytest.mark.parametrize(("owners", "least", "colluding"), [(5, 4, 1), (20, 14, 3), (100, 60, 1)])
def test_colluding_owners_who_subtract_their_own_leave_the_priced_noise(
    owners: int, least: int, colluding: int
) -> None:
    """From the smallest total the shares of all colluders are taken off: what is left was priced."""
    policy = Policy({}).masked_among([f"o{i}" for i in range(owners)], colluding, None, least)
    terms = policy.masked
    assert terms is not None
    law = SumOfGaussians(12.0 * np.sqrt(terms.counted), terms.counted, terms.fewest, 1)
    kept = (least - colluding) * law.share.parameter**2
    assert kept >= law.parameter**2 > (least - colluding - 1) * law.share.parameter**2


# --- Shamir's shares -----------------------------------------------------------------------------


@settings(max_examples=30, deadline=None)
@given(least=st.integers(2, 9), more=st.integers(0, 4), data=st.data())
def test_any_so_many_shares_give_the_seed(least: int, more: int, data: Any) -> None:
    """And one fewer gives another number."""
    seed = new_seed()
    assert int.from_bytes(seed, "little") < PRIME
    shares = dict(enumerate(split(int.from_bytes(seed, "little"), least + more, least), 1))
    places = data.draw(st.permutations(list(shares)))
    assert join({x: shares[x] for x in places[:least]}) == seed
    assert join({x: shares[x] for x in places[: least - 1]}) != seed
