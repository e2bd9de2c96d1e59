"""Optional signatures of ledger heads: Ed25519 (RFC 8032) by ``cryptography``, extra ``privfed[sign]``.

A signed head proves that this ledger, up to this entry, was the owner's.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

from privfed.errors import InputError, LedgerError
from privfed.exchange.messages import Envelope, Head
from privfed.questions import wire


def _ed25519() -> Any:
    try:
        return import_module("cryptography.hazmat.primitives.asymmetric.ed25519")
    except ImportError:
        raise InputError("signing heads needs cryptography; install privfed[sign]") from None


def _message(dataset: str, head: Head) -> bytes:
    return b"privfed ledger head\n" + f"{head}\n{dataset}".encode()


def _sealed(dataset: str, envelope: Envelope) -> bytes:
    """What a reply's signature covers: its head, status and digest."""
    told = f"{envelope.head}\n{envelope.status}\n{wire.digest(envelope.body)}\n{dataset}"
    return b"privfed reply\n" + told.encode()


class Signer:
    """Signs the heads of one ledger.

    Args:
        key: 32 secret bytes.
        dataset: the ledger's data set, covered by every signature.
    """

    def __init__(self, key: bytes, dataset: str) -> None:
        if len(key) != 32:
            raise InputError("an Ed25519 key has 32 bytes; make one with Signer.generate")
        self._key = _ed25519().Ed25519PrivateKey.from_private_bytes(key)
        self.dataset = dataset

    @classmethod
    def from_file(cls, path: str | Path, dataset: str) -> Signer:
        """Read a key file."""
        try:
            return cls(Path(path).read_bytes(), dataset)
        except OSError as error:
            raise InputError(f"key file {path}: {error.strerror}") from None

    @staticmethod
    def generate(path: str | Path) -> bytes:
        """Write a new key to a file that only its owner can read; give the public key."""
        key = os.urandom(32)
        try:
            with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(key)
        except OSError as error:
            raise InputError(f"key file {path}: {error.strerror}; give a new file") from None
        return Signer(key, "").public

    @property
    def public(self) -> bytes:
        """The public key, 32 bytes, to be given to whoever checks heads."""
        public: bytes = self._key.public_key().public_bytes_raw()
        return public

    def sign_bytes(self, message: bytes) -> str:
        """The signature of any other message, which names itself at its start; hexadecimal."""
        signature: bytes = self._key.sign(message)
        return signature.hex()

    def seal(self, envelope: Envelope) -> Envelope:
        """Sign a reply together with its head, so that neither can be put beside another."""
        signature: bytes = self._key.sign(_sealed(self.dataset, envelope))
        return replace(envelope, signature=signature.hex())

    def sign(self, head: Head) -> str:
        """The signature of a head, hexadecimal."""
        signature: bytes = self._key.sign(_message(self.dataset, head))
        return signature.hex()


def check_signature(head: Head, dataset: str, public: bytes) -> None:
    """Hold a head's signature against the owner's public key.

    Raises:
        LedgerError: it is missing, or not the owner's.
    """
    if not _verifies(public, head.signature, _message(dataset, head)):
        raise LedgerError(
            f"head {head.seq} of data set {dataset!r} is not signed by the owner's key"
        )


def _verifies(public: bytes, signature: str, message: bytes) -> bool:
    try:
        _ed25519().Ed25519PublicKey.from_public_bytes(public).verify(
            bytes.fromhex(signature), message
        )
    except (ValueError, import_module("cryptography.exceptions").InvalidSignature):
        return False
    return True


@dataclass(frozen=True)
class Identity:
    """Whose replies these must be: a data set and its owner's public key (32 bytes)."""

    dataset: str
    public: bytes

    def check(self, envelope: Envelope) -> None:
        """Hold a reply's signatures against the key.

        Raises:
            LedgerError: it has no head, or head or bytes are not signed by the owner's key.
        """
        sealed = _sealed(self.dataset, envelope)
        if envelope.head is None or not _verifies(self.public, envelope.signature, sealed):
            raise LedgerError(
                f"a reply of data set {self.dataset!r} is not signed by the owner's key together with "
                "a head of its ledger; nothing in it can be relied on"
            )
        check_signature(envelope.head, self.dataset, self.public)
