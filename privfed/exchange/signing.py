"""Optional signatures of replies and ledger heads: Ed25519 (RFC 8032), extra ``privfed[sign]``.

A signed head proves that this ledger, up to this entry, was the owner's. A key's file has 32 bytes that only its owner
may read; the public key's file, also 32 bytes, may be published.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

from privfed.errors import InputError, LedgerError, file_errors
from privfed.exchange.messages import Envelope, Head
from privfed.questions import wire

KEY = 32  #: Bytes of a key, secret or public


def _ed25519() -> Any:
    try:
        return import_module("cryptography.hazmat.primitives.asymmetric.ed25519")
    except ImportError:
        raise InputError("keys and signatures need cryptography; install privfed[sign]") from None


def _message(dataset: str, head: Head) -> bytes:
    return b"privfed ledger head\n" + f"{head}\n{dataset}".encode()


def _sealed(dataset: str, envelope: Envelope) -> bytes:
    """Return the message that a reply's signature covers: its head, status and digest."""
    signed_text = f"{envelope.head}\n{envelope.status}\n{wire.digest(envelope.body)}\n{dataset}"
    return b"privfed reply\n" + signed_text.encode()


def _handed(dataset: str, public: bytes, successor: bytes) -> bytes:
    return b"privfed key\n" + f"{public.hex()}\n{successor.hex()}\n{dataset}".encode()


def read_key(path: str | Path) -> bytes:
    """Read a key's file, which only its owner may be able to read (else InputError)."""
    where = f"key file {path}"
    key = _read(path, where, "make one with: privfed key new FILE")
    if stat.S_IMODE(Path(path).stat().st_mode) & 0o077:
        raise InputError(
            f"{where}: others than its owner can read it; chmod 600 it, and if it lay open for long, "
            "put another in its place: privfed key rotate"
        )
    return key


def read_public(path: str | Path) -> bytes:
    """Read a public key's file (InputError: it cannot be read, or is no key)."""
    return _read(path, f"public key file {path}", "give the .pub file in the key's folder")


def _read(path: str | Path, where: str, way_out: str) -> bytes:
    with file_errors(where, instead=way_out):
        key = Path(path).read_bytes()
    if len(key) != KEY:
        raise InputError(f"{where}: is no key, which has {KEY} bytes; {way_out}")
    return key


class Signer:
    """Signs the heads of one data set's ledger by a key of 32 bytes."""

    def __init__(self, key: bytes, dataset: str) -> None:
        if len(key) != KEY:
            raise InputError("an Ed25519 key has 32 bytes; make one with Signer.generate")
        self._key = _ed25519().Ed25519PrivateKey.from_private_bytes(key)
        self.dataset = dataset

    @classmethod
    def from_file(cls, path: str | Path, dataset: str) -> Signer:
        """Build a signer from its key's file; see :func:`read_key`."""
        return cls(read_key(path), dataset)

    @staticmethod
    def generate(path: str | Path) -> bytes:
        """Write a new key to a file that only its owner can read, and return the public key."""
        key = os.urandom(KEY)
        # before the file exists, as the import may fail
        public = Signer(key, "").public
        try:
            with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(key)
        except OSError as error:
            if not isinstance(error, FileExistsError):
                Path(path).unlink(missing_ok=True)
            raise InputError(f"key file {path}: {error.strerror}; give a new file") from None
        return public

    def hand_over(self, successor: bytes) -> str:
        """Return the signature for replacing this key by another public key, hexadecimal."""
        return self.sign_bytes(_handed(self.dataset, self.public, successor))

    @property
    def public(self) -> bytes:
        """The public key, 32 bytes, for verifying heads."""
        public: bytes = self._key.public_key().public_bytes_raw()
        return public

    def sign_bytes(self, message: bytes) -> str:
        """Return the signature of another message, which must start with its type; hexadecimal."""
        signature: bytes = self._key.sign(message)
        return signature.hex()

    def seal(self, envelope: Envelope) -> Envelope:
        """Sign a reply together with its head, so that neither can be combined with another."""
        return replace(envelope, signature=self.sign_bytes(_sealed(self.dataset, envelope)))

    def sign(self, head: Head) -> str:
        """Return the signature of a head, hexadecimal."""
        return self.sign_bytes(_message(self.dataset, head))


def check_signature(head: Head, dataset: str, public: bytes) -> None:
    """Check a head's signature with the owner's public key (else LedgerError)."""
    if not _verifies(public, head.signature, _message(dataset, head)):
        raise LedgerError(
            f"head {head.seq} of data set {dataset!r} is not signed by the owner's key"
        )


def check_handed(dataset: str, public: bytes, successor: bytes, signature: str) -> None:
    """Check the signature for replacing one public key by another (else LedgerError)."""
    if not _verifies(public, signature, _handed(dataset, public, successor)):
        raise LedgerError(
            f"data set {dataset!r}: a key follows another whose signature is not under it"
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
    """The required origin of replies: a data set and its owner's public key (32 bytes)."""

    dataset: str
    public: bytes

    def signed(self, head: Head) -> bool:
        """Whether a head is signed by the owner's key."""
        return _verifies(self.public, head.signature, _message(self.dataset, head))

    def check(self, envelope: Envelope) -> None:
        """Check a reply's signatures with the key (else LedgerError).

        Only a refusal or an offer, which has no row, may be without a head.
        """
        sealed = _sealed(self.dataset, envelope)
        bare = envelope.head is None and envelope.status not in ("refusal", "offer")
        if bare or not _verifies(self.public, envelope.signature, sealed):
            raise LedgerError(
                f"a reply in the name of data set {self.dataset!r} is not signed by the owner's key together "
                "with a head of its ledger: another key is in use there, or somebody else answers; the reply "
                "was discarded"
            )
        if envelope.head is not None:
            check_signature(envelope.head, self.dataset, self.public)
