"""An owner's side of opening a masked sum whose owners may be missing; see :mod:`privfed.exchange.survivors`.

What she checks, from her ledger alone: she answered the question; at least h owners survive, she among
them; each survivor's share of a seed was sealed for her, under the same view; she agreed to this list and to
no other (a request's id has one digest); h owners confirm the same list.

What a server and t colluding owners read. Draw an edge between two honest owners unless one of them told
the pair's key; cells show only in sums over whole components of this graph. If v opened a list, h - t
honest owners confirmed it; they agreed to no other, and told no key of a pair inside it: all are in v's
component. If she opened none, her own mask stays unless h - t honest owners told their share of it; they
agreed to a list with her in it, and kept their keys with her. So every sum that shows has the noise of
h - t honest owners at least, and nobody is in two of them; by 2 h > K + t there is one.
"""

import hmac
import os
from importlib import import_module

from privfed.errors import WireError
from privfed.exchange.messages import Envelope, Reason, Release, Request
from privfed.exchange.survivors import (
    PRIME,
    SURVIVORS,
    Opening,
    Survivors,
    split,
)
from privfed.ledger import Ledger
from privfed.owner.guards import Refused
from privfed.owner.masking import MaskingKey, PairKeys
from privfed.privacy.masked_sums import MaskedSums
from privfed.questions import wire

NONCE, SEALED = 12, 60  #: Bytes of a nonce, and of a sealed share: nonce, 32 and a tag of 16


class Unmasking:
    """Seals shares of an owner's seeds for the others, and tells what opens a total.

    Args:
        key: the owner's masking key.
        ledger: what she answered before.
    """

    def __init__(self, owner: str, terms: MaskedSums, key: MaskingKey, ledger: Ledger) -> None:
        self._owner, self._terms, self._key, self._ledger = owner, terms, key, ledger

    def sealed(self, seed: bytes, view: bytes) -> dict[str, bytes]:
        """A share of the owner's seed for each owner, sealed for it."""
        owners = self._terms.owners
        each = split(int.from_bytes(seed, "little"), len(owners), self._terms.least)
        found = {}
        for peer, share in zip(owners, each, strict=True):
            nonce, route = os.urandom(NONCE), _route(view, self._owner, peer)
            found[peer] = nonce + self._pair(peer).box.encrypt(nonce, share, route)
        return found

    def told(self, request: Request) -> tuple[dict[str, bytes], str]:
        """What an owner tells in answer to one of the two steps, and the view (Refused: she does not)."""
        try:
            if request.kind == SURVIVORS:
                return self._agreed(request, wire.decode(request.fields, Survivors))
            return self._opened(request, wire.decode(request.fields, Opening))
        except WireError:
            raise Refused(Reason.MALFORMED) from None

    def _agreed(self, request: Request, step: Survivors) -> tuple[dict[str, bytes], str]:
        """A MAC on the list for each survivor."""
        share = self._share(request, step, step.request(request.principal))
        view, survivors = bytes.fromhex(share.view), sorted(step.boxes)
        known = set(survivors) <= set(self._terms.owners) and self._owner in step.boxes
        if not known or len(survivors) < share.least:
            raise Refused(Reason.MALFORMED)
        for peer in survivors:
            self._unsealed(peer, step.boxes[peer], view)
        word = wire.encode(self._owner) + wire.encode(survivors)
        return {peer: self._mac(peer, view, word) for peer in survivors}, share.view

    def _opened(self, request: Request, step: Opening) -> tuple[dict[str, bytes], str]:
        """Shares of survivors' seeds, and the pairs' keys with those who are gone."""
        share = self._share(request, step.agreed, step.request(request.principal))
        agreed = step.agreed.request(request.principal)
        entry = self._ledger.find(request.principal, agreed.id)
        if entry is None or entry.event != "released" or entry.body["query"] != agreed.digest:
            raise Refused(Reason.MALFORMED)
        view, survivors = bytes.fromhex(share.view), sorted(step.agreed.boxes)
        listed = wire.encode(survivors)
        confirmed = [
            peer
            for peer in survivors
            if hmac.compare_digest(
                step.confirmed.get(peer, b""), self._mac(peer, view, wire.encode(peer) + listed)
            )
        ]
        if len(confirmed) < share.least:
            raise Refused(Reason.MALFORMED)
        return {
            peer: self._unsealed(peer, step.agreed.boxes[peer], view)
            if peer in step.agreed.boxes
            else self._pair(peer).mask(view)
            for peer in self._terms.owners
        }, share.view

    def _share(self, request: Request, step: Survivors, named: Request) -> Release:
        """What the owner answered to the question that a step is about; its id is the only one."""
        if request.id != named.id:
            raise Refused(Reason.MALFORMED)
        entry = self._ledger.find(request.principal, step.about)
        if entry is None or entry.event != "released":
            raise Refused(Reason.MALFORMED)
        share = Envelope("release", entry.payload).open()
        assert isinstance(share, Release)
        if not share.least or share.owners != self._terms.owners:
            raise Refused(Reason.MALFORMED)
        return share

    def _unsealed(self, peer: str, box: bytes, view: bytes) -> bytes:
        """The share in a box; Refused: it was sealed for another owner, roster or question."""
        if len(box) != SEALED:
            raise Refused(Reason.MALFORMED)
        route, sealed = _route(view, peer, self._owner), self._pair(peer).box
        try:
            share: bytes = sealed.decrypt(box[:NONCE], box[NONCE:], route)
        except import_module("cryptography.exceptions").InvalidTag:
            raise Refused(Reason.MALFORMED) from None
        return share

    def _pair(self, peer: str) -> PairKeys:
        return self._key.pair(self._terms.keys[peer])

    def _mac(self, peer: str, view: bytes, word: bytes) -> bytes:
        """One of a pair's word under a view: who says it, and a list of survivors."""
        return hmac.digest(self._pair(peer).confirm, view + word, "sha256")


def new_seed() -> bytes:
    """A fresh seed of an owner's own, below the prime of its shares."""
    return (int.from_bytes(os.urandom(48), "little") % PRIME).to_bytes(32, "little")


def _route(view: bytes, sender: str, receiver: str) -> bytes:
    return view + wire.encode([sender, receiver])
