"""Masks that cancel in the sum over all owners of a roster, and only there.

Pairwise one-time pads (Bonawitz et al. 2017, without dropouts): owners i < j share a key, by X25519; to
the cells that go out i adds, and j subtracts, the same uniform integers modulo 2^64. Each single vector
is uniform to whoever lacks a key of every pair, and the sum over the roster is that of the vectors.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from importlib import import_module
from typing import Any

import numpy as np

from privfed.errors import InputError, PolicyError
from privfed.exchange.messages import ReleasedPart, Request
from privfed.privacy.masked_sums import MaskedSums
from privfed.questions import wire


def _primitives(name: str) -> Any:
    try:
        return import_module(f"cryptography.hazmat.primitives.{name}")
    except ImportError:
        raise InputError("masked sums need cryptography; install privfed[sign]") from None


class MaskingKey:
    """One owner's X25519 key for masks, derived by HKDF-SHA256 from the secret beside her ledger."""

    def __init__(self, secret: bytes) -> None:
        curve = _primitives("asymmetric.x25519")
        self._key = curve.X25519PrivateKey.from_private_bytes(
            _derived(secret, b"privfed masking key 1", 32)
        )
        #: The public key, 64 hexadecimal digits, for the other owners' policies.
        self.public: str = self._key.public_key().public_bytes_raw().hex()
        self._pairs: dict[str, bytes] = {}

    def check(self, keys: Mapping[str, str], owner: str) -> None:
        """Check that a roster names this owner with this key (PolicyError: it does not)."""
        if keys.get(owner) != self.public:
            raise PolicyError(
                f"masked: the policy has {'another' if keys.get(owner) else 'no'} key for {owner!r}; its "
                f"public masking key is {self.public}"
            )

    def check_peer(self, key: str) -> None:
        """Check that a pair's secret can be made with a public key; InputError: it is no X25519 key."""
        if key != self.public:
            self._shared(key)

    def mask(
        self, vector: np.ndarray, keys: Mapping[str, str], owner: str, view: bytes
    ) -> np.ndarray:
        """Hide integers, int64 of shape (cells,), so that only the sum over all owners shows anything.

        ``keys`` is the roster, every owner's public key by name. ``view`` is what all owners must agree on
        for their masks to cancel (:func:`view_of`); no two vectors may be hidden under one view.

        Returns:
            int64 of the same shape, uniform to whoever does not know all pairs' keys.
        """
        total = vector.astype(np.int64).view(np.uint64).copy()
        for peer, key in keys.items():
            if peer == owner:
                continue
            pad = _stream(_derived(self._shared(key), b"privfed mask 1" + view, 32), total.size)
            if owner < peer:
                total += pad
            else:
                total -= pad
        return total.view(np.int64)

    def hidden(
        self, parts: Mapping[str, ReleasedPart], keys: Mapping[str, str], owner: str, view: bytes
    ) -> dict[str, ReleasedPart]:
        """The parts of a release, masked as one vector in the order of their names."""
        names = sorted(parts)
        cells = [parts[name].units.ravel() for name in names]
        masked = self.mask(np.concatenate(cells), keys, owner, view)
        ends = np.cumsum([own.size for own in cells])[:-1]
        return {
            name: replace(parts[name], units=own.reshape(parts[name].units.shape))
            for name, own in zip(names, np.split(masked, ends), strict=True)
        }

    def _shared(self, public: str) -> bytes:
        """The secret of a pair, computed once."""
        if public not in self._pairs:
            curve = _primitives("asymmetric.x25519")
            peer = curve.X25519PublicKey.from_public_bytes(bytes.fromhex(public))
            try:
                self._pairs[public] = self._key.exchange(peer)
            except ValueError:  # a point of small order: the pair's secret would be known to all
                raise InputError("masked: a key of the roster is no X25519 key") from None
        return self._pairs[public]


def view_of(request: Request, terms: MaskedSums, parts: Mapping[str, ReleasedPart]) -> bytes:
    """A digest of all that the owners of a masked sum must agree on.

    Who asks what under which id, the roster, and shape, grid and noise of each part: with one owner whose
    policy or principal differs, masks do not cancel, and nobody learns anything.
    """
    shapes = {
        name: [part.units.shape, part.grid, part.noise and part.noise.to_wire()]
        for name, part in sorted(parts.items())
    }
    facts = [request.principal, request.id, request.digest, terms.to_dict(), shapes]
    return hashlib.sha256(wire.encode(facts)).digest()


def _derived(key: bytes, info: bytes, size: int) -> bytes:
    kdf, hashes = _primitives("kdf.hkdf"), _primitives("hashes")
    derived: bytes = kdf.HKDF(hashes.SHA256(), size, None, info).derive(key)
    return derived


def _stream(key: bytes, cells: int) -> np.ndarray:
    """Uniform uint64 from a fresh key: ChaCha20's key stream."""
    ciphers = _primitives("ciphers")
    stream = ciphers.Cipher(ciphers.algorithms.ChaCha20(key, bytes(16)), mode=None).encryptor()
    return np.frombuffer(stream.update(bytes(8 * cells)), dtype="<u8")
