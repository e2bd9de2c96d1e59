"""The owner's side of a ledger: its identity, the owner's secret, and the keys that sign its heads."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path

from privfed.errors import LedgerError
from privfed.exchange.messages import Head
from privfed.exchange.signing import Signer
from privfed.ledger.secret import commitment, new_secret, read_secret, renewed_secret, secret_beside
from privfed.ledger.store import Entry, Store
from privfed.ledger.verification import check_begun


class Custody(ABC):
    """Base class of ledgers that commit to the owner's secret and keys; see :class:`.Ledger`."""

    dataset: str
    _store: Store
    _signer: Signer | None
    _identity: str
    _secret: bytes

    @abstractmethod
    def entries(self, after: int = 0, events: tuple[str, ...] = ()) -> Iterator[Entry]:
        """Yield rows in order."""

    @abstractmethod
    def sign(self, head: Head) -> Head:
        """Return the head with the owner's signature, if the ledger has a key."""

    @property
    @abstractmethod
    def path(self) -> Path | None:
        """The ledger's path; None in memory."""

    @property
    def identity(self) -> str:
        """The ledger's identity: the hash of its first row."""
        self._identity = self._identity or str(self._store.hash_at(1))
        return self._identity

    def secret(self) -> bytes:
        """The owner's durable secret, to which the ledger commits; for a ledger in memory, in memory."""
        if self.path is None:
            self._secret = self._secret or new_secret()
            return self._secret
        if self._committed is None:  # begun by an earlier version
            return self._commit_secret(secret_beside(self.path))
        self.check_secret()
        return read_secret(self.path)

    def check_secret(self) -> None:
        """Check the secret against the ledger's commitment, if there is one (else LedgerError)."""
        if self.path is None or self._committed is None:
            return
        if commitment(read_secret(self.path)) != self._committed:
            raise LedgerError(
                f"{self._store}: the secret in its folder belongs to another ledger; restore its own from a copy"
            )

    @property
    def _committed(self) -> str | None:
        committed: str | None = self._store.look("secret")[0]
        return committed

    def check_owner(self, dataset: str, key: bytes | None) -> None:
        """Check the ledger's data set, and that ``key`` signs it now (else LedgerError)."""
        check_begun(self._store, dataset)
        if self.public is not None and key is None:
            raise LedgerError(
                f'{self._store}: its heads are signed; name its key, signing_key = "owner.key"'
            )
        if key is not None and self.public not in (None, Signer(key, dataset).public):
            raise self._other_key()

    def _other_key(self) -> LedgerError:
        return LedgerError(
            f"{self._store}: its heads are signed by another key than this one; give its owner's "
            "key, or put this one in its place: privfed key rotate"
        )

    def renew_secret(self) -> None:
        """Replace a lost secret, by the owner's decision."""
        if self.path is not None:
            self._commit_secret(renewed_secret(self.path))

    def _commit_secret(self, secret: bytes) -> bytes:
        digest = commitment(secret)
        with self._store.exclusive():
            body = {"secret": digest}
            self._store.append("secret", "", "", body, state={"secret": digest})
        return secret

    @property
    def public(self) -> bytes | None:
        """The public key that signs its heads now, or None."""
        (key,) = self._store.look("key")
        return None if key is None else bytes.fromhex(key)

    def signing_keys(self) -> list[Entry]:
        """Return the rows of all keys that signed its heads, in order."""
        return list(self.entries(events=("key",)))

    def check_public(self, public: bytes) -> None:
        """Check that a public key is one of the ledger's (else LedgerError)."""
        if public.hex() not in [entry.body["public"] for entry in self.signing_keys()]:
            raise LedgerError(
                f"{self._store}: names no such key among those that signed its heads; it is not what "
                "this key's owner answers for"
            )

    def rotate(self, successor: bytes, *, lost: bool = False) -> Head:
        """Replace the signing key, with a signature of the earlier one unless it is ``lost``."""
        signer, earlier = Signer(successor, self.dataset), self.public
        if earlier is None or (self._signer is None and not lost):
            raise LedgerError(f"{self._store}: open it with the key that signs it now")
        body = {"public": signer.public.hex(), "replaces": earlier.hex(), "signature": ""}
        if self._signer is not None and not lost:
            body["signature"] = self._signer.hand_over(signer.public)
        with self._store.exclusive():
            head = self._store.append("key", "", "", body, state={"key": signer.public.hex()})
            self._signer = signer
            return self.sign(head)

    def _commit_key(self, signer: Signer) -> None:
        """Record the first signing key; others sign only after rotation."""
        public = signer.public.hex()
        with self._store.exclusive():
            (committed,) = self._store.held("key")
            if committed is None:
                body = {"public": public, "replaces": "", "signature": ""}
                self._store.append("key", "", "", body, state={"key": public})
        if committed not in (None, public):
            raise self._other_key()
