"""An owner's side of opening a masked sum despite dropouts; see :mod:`privfed.exchange.survivors`.

The owner checks, from her ledger only, that she answered the query; at least h owners survive, including her; each
survivor's share of a seed was sealed for her, under the same view; she agreed to this list and to no other (a request's
id has one digest); h owners confirm the same list.

Proof of what a server and t colluding owners learn. Draw an edge between two honest owners unless one of them disclosed
the pair's key; cells are revealed only in sums over whole components of this graph. If owner v opened a list, h - t
honest owners confirmed it; they agreed to no other, and disclosed no key of a pair inside it: all are in v's component.
If v opened none, her own mask stays unless h - t honest owners disclosed their share of it; they agreed to a list that
contains her, and kept their keys with her. So every revealed sum has the noise of at least h - t honest owners, and no
owner is in two of them; by 2 h > K + t there is only one.
"""

import hmac
import os
from importlib import import_module

from privfed.errors import WireError
from privfed.exchange.messages import Envelope, Reason, Release, Request
from privfed.exchange.survivors import PRIME, SURVIVORS, Opening, Survivors, split
from privfed.ledger import Ledger
from privfed.owner.guards import Refused
from privfed.owner.masking import MaskingKey, PairKeys
from privfed.privacy.masked_sums import MaskedSums
from privfed.questions import wire

NONCE, SEALED = 12, 60  #: Bytes of a nonce, and of a sealed share: nonce, 32, tag of 16


class Unmasking:
    """Seals shares of an owner's seeds for the others, and discloses what opens a total.

    Args:
        key: the owner's masking key.
        ledger: the record of her earlier answers.
    """

    def __init__(self, owner: str, terms: MaskedSums, key: MaskingKey, ledger: Ledger) -> None:
        self._owner, self._terms, self._key, self._ledger = owner, terms, key, ledger

    def sealed(self, seed: bytes, view: bytes) -> dict[str, bytes]:
        """Return a share of the owner's seed for each owner, sealed for that owner."""
        owners = self._terms.owners
        each = split(int.from_bytes(seed, "little"), len(owners), self._terms.least)
        sealed = {}
        for peer, share in zip(owners, each, strict=True):
            nonce, route = os.urandom(NONCE), _route(view, self._owner, peer)
            sealed[peer] = nonce + self._pair(peer).box.encrypt(nonce, share, route)
        return sealed

    def shares(self, request: Request) -> tuple[dict[str, bytes], str]:
        """Return what an owner discloses in one of the two steps, and the view (Refused: a check fails)."""
        try:
            if request.kind == SURVIVORS:
                return self._agreed(request, wire.decode(request.fields, Survivors))
            return self._opened(request, wire.decode(request.fields, Opening))
        except WireError:
            raise Refused(Reason.MALFORMED) from None

    def _agreed(self, request: Request, step: Survivors) -> tuple[dict[str, bytes], str]:
        """Return a MAC on the list for each survivor, and the view."""
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
        """Return shares of survivors' seeds, the pairs' keys with missing owners, and the view."""
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
        """Return the owner's answer to the query of a step, which is identified by its id."""
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
        """Decrypt a share (Refused: it was sealed for another owner, roster or query)."""
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
        """Return a pair's MAC under a view of a message: the sender and a list of survivors."""
        return hmac.digest(self._pair(peer).confirm, view + word, "sha256")


def new_seed() -> bytes:
    """Return a fresh seed of an owner, below the prime of its shares."""
    return (int.from_bytes(os.urandom(48), "little") % PRIME).to_bytes(32, "little")


def _route(view: bytes, sender: str, receiver: str) -> bytes:
    return view + wire.encode([sender, receiver])
