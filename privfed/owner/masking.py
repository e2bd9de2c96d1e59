"""Pairwise masks, which cancel only in the sum over all owners of a roster.

Pairwise one-time pads (Bonawitz et al. 2017): owners i < j share a key by X25519; i adds, and j subtracts, the same
uniform integers modulo 2^64. To anyone without all pairs' keys each single vector is uniform, and the sum over the
roster is that of the unmasked vectors. If owners may drop out, see :mod:`.unmasking`.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from privfed.errors import InputError, PolicyError
from privfed.exchange.messages import ReleasedPart, Request
from privfed.exchange.survivors import cells_of, primitives, stream, with_cells
from privfed.privacy.masked_sums import MaskedSums
from privfed.questions import wire


class MaskingKey:
    """One owner's X25519 key for masks, derived by HKDF-SHA256 from the secret next to the ledger."""

    def __init__(self, secret: bytes) -> None:
        curve = primitives("asymmetric.x25519")
        self._key = curve.X25519PrivateKey.from_private_bytes(
            _derived(secret, b"privfed masking key 1", 32)
        )
        #: The public key, 64 hexadecimal digits, for the other owners' policies.
        self.public: str = self._key.public_key().public_bytes_raw().hex()
        self._pairs: dict[str, PairKeys] = {}

    def check(self, keys: Mapping[str, str], owner: str) -> None:
        """Check that a roster has this owner's key, and valid keys of the others.

        Raises:
            PolicyError: another key of this owner, or a missing key.
            InputError: an invalid X25519 key, which would make a pair's secret public.
        """
        if keys.get(owner) != self.public:
            raise PolicyError(
                f"masked: the policy has {'another' if keys.get(owner) else 'no'} key for {owner!r}; its public "
                f"masking key is {self.public}; get all owners' keys by privfed owner masks FOLDER KEYS"
            )
        if lacking := sorted(name for name, key in keys.items() if not key):
            raise PolicyError(
                f"masked: the policy has no masking key of {', '.join(map(repr, lacking))}; name those who "
                "take part, each with her key"
            )
        for key in keys.values():
            self.pair(key)

    def mask(
        self,
        vector: np.ndarray,
        keys: Mapping[str, str],
        owner: str,
        view: bytes,
        seed: bytes = b"",
    ) -> np.ndarray:
        """Mask integers, int64 of shape (cells,), so that only the sum over all owners is revealed.

        ``keys`` is the roster, every owner's public key by name. Masks cancel only if all owners have the same ``view``
        (:func:`view_of`); no two vectors may be masked under one view. A ``seed`` adds the owner's own mask, which
        holders of the seed can remove.

        Returns:
            int64 of the same shape, uniform to anyone who does not know all pairs' keys.
        """
        total = vector.astype(np.int64).view(np.uint64).copy()
        if seed:
            total += stream(seed, total.size)
        for peer, key in keys.items():
            if peer == owner:
                continue
            pad = stream(self.pair(key).mask(view), total.size)
            if owner < peer:
                total += pad
            else:
                total -= pad
        return total.view(np.int64)

    def hidden(
        self,
        parts: Mapping[str, ReleasedPart],
        keys: Mapping[str, str],
        owner: str,
        view: bytes,
        seed: bytes = b"",
    ) -> dict[str, ReleasedPart]:
        """Return a release's parts, masked as one vector in the order of their names."""
        return with_cells(parts, self.mask(cells_of(parts), keys, owner, view, seed))

    def pair(self, public: str) -> PairKeys:
        """Return the keys that two owners share, derived once, also from both public keys.

        Several public keys belong to one secret (u and 1 / u, for a point and its sum with one of order two). Without
        the public keys in the derivation, an owner who published another's alternative key would share that owner's
        secrets, and the masks of both would cancel.
        """
        if public not in self._pairs:
            curve = primitives("asymmetric.x25519")
            peer = curve.X25519PublicKey.from_public_bytes(bytes.fromhex(public))
            try:
                secret = self._key.exchange(peer)
            except ValueError:  # a point of small order: the pair's secret would be public
                raise InputError(
                    f"masked: {public} in the roster is not an X25519 key; ask its owner for owner.mask"
                ) from None
            both = b"".join(sorted(map(bytes.fromhex, (self.public, public))))
            derived = _derived(secret, b"privfed pair 2" + both, 96)
            box = primitives("ciphers.aead").ChaCha20Poly1305(derived[32:64])
            self._pairs[public] = PairKeys(derived[:32], box, derived[64:])
        return self._pairs[public]


@dataclass(frozen=True)
class PairKeys:
    """Keys shared by two owners, derived by HKDF from their X25519 secret."""

    expand: bytes  #: for the masks' keys
    box: Any  #: ChaCha20-Poly1305, for the shares of each other's seed
    confirm: bytes  #: for MACs on lists of survivors

    def mask(self, view: bytes) -> bytes:
        """Return the key of the pair's mask under a view, which is disclosed if one of them drops out.

        It is one block of HKDF-Expand (RFC 5869), and so reveals nothing about other views' keys.
        """
        return hmac.digest(self.expand, view + b"\x01", "sha256")


def view_of(request: Request, terms: MaskedSums, parts: Mapping[str, ReleasedPart]) -> bytes:
    """Return a digest of all that the owners of a masked sum must agree on.

    These are principal, query and id, the roster, and each part's shape, grid and noise. If one owner's policy or
    principal differs, masks do not cancel, and nothing is revealed.
    """
    shapes = {
        name: [part.units.shape, part.grid, part.noise and part.noise.to_wire()]
        for name, part in sorted(parts.items())
    }
    facts = [request.principal, request.id, request.digest, terms.to_dict(), shapes]
    return hashlib.sha256(wire.encode(facts)).digest()


def _derived(key: bytes, info: bytes, size: int) -> bytes:
    kdf, hashes = primitives("kdf.hkdf"), primitives("hashes")
    derived: bytes = kdf.HKDF(hashes.SHA256(), size, None, info).derive(key)
    return derived
