"""Opens the total of the remaining owners if some of a masked sum have dropped out.

Bonawitz et al. 2017 (double masks), with the owners' keys in their policies. An owner's share is her cells plus a mask
from her own seed b_i, plus one mask of each pair; with it she sends each peer a share of b_i (Shamir 1979; any h of
them determine it), sealed for that peer. Then the server sends two more requests, under ids derived from the query's,
so that each owner agrees to *one* list of survivors and no other:

1. :class:`Survivors`, a list U with the sealed shares: she confirms U to each peer by a MAC;
2. :class:`Opening`, the MACs of h owners on the same U: she discloses her share of b_j for each j in U, and
   her pair's key for each other j, whose b_j is never disclosed.
"""

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from importlib import import_module
from typing import Any

import numpy as np

from privfed.errors import InputError
from privfed.exchange.messages import Absent, Release, ReleasedPart, Reply, Request
from privfed.questions import wire

PRIME = 2**255 - 19  #: Seeds and their shares are below it
_NONCE = bytes(16)
#: Kinds of the two requests, which read no data and so need no policy.
STEPS = SURVIVORS, OPENING = "masked.survivors", "masked.opening"


@dataclass(frozen=True)
class Survivors:
    """The list of survivors, with each one's sealed share for the queried owner."""

    about: str  #: id of the query's request
    boxes: dict[str, bytes]  #: by survivor, a share of her seed, sealed for the queried owner

    def request(self, principal: str) -> Request:
        """Return the request, with the only id that it can have."""
        return Request(f"{self.about}:survivors", SURVIVORS, wire.encode(self), principal)


@dataclass(frozen=True)
class Opening:
    """The survivors' confirmations for the queried owner, and the list that she agreed to."""

    agreed: Survivors  #: the list, as before
    confirmed: dict[str, bytes]  #: by survivor, a MAC on the list

    def request(self, principal: str) -> Request:
        """Return the request, with the only id that it can have."""
        return Request(f"{self.agreed.about}:opening", OPENING, wire.encode(self), principal)


@cache
def primitives(name: str) -> Any:
    """Import a module of cryptographic primitives (InputError: it is not installed)."""
    try:
        return import_module(f"cryptography.hazmat.primitives.{name}")
    except ImportError:
        raise InputError("masked sums need cryptography; install privfed[sign]") from None


def stream(key: bytes, cells: int) -> np.ndarray:
    """Return uniform uint64 from a fresh key: ChaCha20's key stream."""
    ciphers = primitives("ciphers")
    pad = ciphers.Cipher(ciphers.algorithms.ChaCha20(key, _NONCE), mode=None).encryptor()
    return np.frombuffer(pad.update(bytes(8 * cells)), dtype="<u8")


# --- Shamir's sharing of a seed ------------------------------------------------------------------


def split(seed: int, owners: int, threshold: int) -> list[bytes]:
    """Return shares of a seed at 1 ... owners, 32 bytes each; any ``least`` determine it, fewer reveal nothing."""
    terms = [*(secrets.randbelow(PRIME) for _ in range(threshold - 1)), seed]
    return [_value(terms, x).to_bytes(32, "little") for x in range(1, owners + 1)]


def _value(terms: Sequence[int], x: int) -> int:
    value = 0
    for term in terms:
        value = value * x + term
    return value % PRIME


def join(shares: Mapping[int, bytes]) -> bytes:
    """Return the seed, 32 bytes, from shares by index: Lagrange interpolation at 0."""
    weights = _weights(tuple(shares))
    terms = (int.from_bytes(s, "little") * weights[x] for x, s in shares.items())
    return (sum(terms) % PRIME).to_bytes(32, "little")


@lru_cache(maxsize=64)
def _weights(indices: tuple[int, ...]) -> Mapping[int, int]:
    weights = {}
    for x in indices:
        above = below = 1
        for other in indices:
            if other != x:
                above, below = above * other % PRIME, below * (other - x) % PRIME
        weights[x] = above * pow(below, -1, PRIME) % PRIME
    return weights


# --- the total -----------------------------------------------------------------------------------


def cells_of(parts: Mapping[str, ReleasedPart]) -> np.ndarray:
    """Return all cells as one vector, in the order of the parts' names; int64."""
    each = [parts[name].units.ravel().astype(np.int64) for name in sorted(parts)]
    return np.concatenate(each)


def with_cells(parts: Mapping[str, ReleasedPart], cells: np.ndarray) -> dict[str, ReleasedPart]:
    """Return the parts with other cells; see :func:`cells_of`."""
    names, sizes = sorted(parts), [parts[name].units.size for name in sorted(parts)]
    pieces = np.split(cells, np.cumsum(sizes)[:-1])
    return {
        name: replace(parts[name], units=piece.reshape(parts[name].units.shape))
        for name, piece in zip(names, pieces, strict=True)
    }


def opened(
    shares: Mapping[str, Release], confirmations: Mapping[str, Mapping[str, bytes]]
) -> dict[str, Release]:
    """Return the survivors' shares with only their mutual masks; empty if too little was disclosed.

    Args:
        shares: each survivor's share of one sum.
        confirmations: the last replies, by survivor: by owner, a share of her seed or a pair's key.
    """
    first = next(iter(shares.values()))
    gone = [owner for owner in first.owners if owner not in shares]
    confirmations = {
        owner: sent for owner, sent in confirmations.items() if set(first.owners) <= set(sent)
    }
    if len(confirmations) < (len(shares) if gone else first.least) or not set(confirmations) <= set(
        shares
    ):
        return {}
    indices = {owner: x for x, owner in enumerate(first.owners, 1)}
    used = list(confirmations)[: first.least]
    opened_shares = {}
    for owner, share in shares.items():
        seed = join({indices[peer]: confirmations[peer][owner] for peer in used})
        cells = cells_of(share.parts).view(np.uint64)
        cells = cells - stream(seed, cells.size)
        for peer in gone:
            pad = stream(confirmations[owner][peer], cells.size)
            cells = cells - pad if owner < peer else cells + pad
        parts = with_cells(share.parts, cells.view(np.int64))
        opened_shares[owner] = replace(
            share, owners=tuple(sorted(shares)), parts=parts, least=0, told={}
        )
    return opened_shares


#: Sends each owner some requests and returns the replies, in order.
Send = Callable[[Mapping[str, Sequence[Request]]], Mapping[str, Sequence[Reply]]]
#: Records whose shares are added up under an id, before any owner is asked to agree, and returns the final list.
Keep = Callable[[str, tuple[str, ...]], tuple[str, ...]]


def with_opened(
    replies: Mapping[str, Sequence[Reply]], principal: str, send: Send, keep: Keep
) -> Mapping[str, Sequence[Reply]]:
    """Return the replies of one round, opening survivors' shares of sums that allow dropouts."""
    sums: dict[str, dict[str, Release]] = {}
    for owner, per_owner in replies.items():
        for reply in per_owner:
            if isinstance(reply, Release) and reply.least and set(reply.owners) <= set(reply.told):
                sums.setdefault(reply.view, {})[owner] = reply
    lists = {view: keep(next(iter(x.values())).request, tuple(x)) for view, x in sums.items()}
    shares = {
        view: {owner: sums[view][owner] for owner in chosen if owner in sums[view]}
        for view, chosen in lists.items()
    }
    agreed = {
        view: {
            owner: Survivors(per_owner.request, {peer: x.told[owner] for peer, x in each.items()})
            for owner, per_owner in each.items()
        }
        for view, each in shares.items()
        if len(each) >= next(iter(each.values())).least
    }
    confirmed = _gathered(agreed, principal, send)
    openings = {
        view: {
            owner: Opening(per_owner, {peer: macs[owner] for peer, macs in confirmed[view].items()})
            for owner, per_owner in each.items()
        }
        for view, each in agreed.items()
    }
    confirmations = _gathered(openings, principal, send)
    opened_by_view = {view: opened(shares[view], said) for view, said in confirmations.items()}

    def left(owner: str, reply: Reply) -> Reply:
        whole = opened_by_view.get(getattr(reply, "view", ""))
        return whole.get(owner, Absent(owner, reply.request)) if whole else reply

    return {
        owner: [left(owner, reply) for reply in per_owner] for owner, per_owner in replies.items()
    }


def _gathered(
    messages: Mapping[str, Mapping[str, Survivors | Opening]], principal: str, send: Send
) -> dict[str, dict[str, Mapping[str, bytes]]]:
    """Send each owner one request per sum, and return what was disclosed, by sum and owner."""
    requests: dict[str, list[Request]] = {}
    views: dict[str, list[str]] = {}
    for view, each in messages.items():
        for owner, step in each.items():
            requests.setdefault(owner, []).append(step.request(principal))
            views.setdefault(owner, []).append(view)
    confirmed_by_view: dict[str, dict[str, Mapping[str, bytes]]] = {view: {} for view in messages}
    for owner, replies in send(requests).items() if requests else ():
        for view, reply in zip(views[owner], replies, strict=True):
            if isinstance(reply, Release) and set(messages[view]) <= set(reply.told):
                confirmed_by_view[view][owner] = reply.told
    return confirmed_by_view
