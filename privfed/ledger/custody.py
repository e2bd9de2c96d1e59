"""What makes a ledger its owner's: its identity, the secret beside it, and the keys that sign its heads."""

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
    """The owner's side of a ledger, which commits to its secret and its keys; see :class:`.Ledger`."""

    dataset: str
    _store: Store
    _signer: Signer | None
    _identity: str
    _secret: bytes

    @abstractmethod
    def entries(self, after: int = 0, events: tuple[str, ...] = ()) -> Iterator[Entry]:
        """Rows in order."""

    @abstractmethod
    def sign(self, head: Head) -> Head:
        """The head with the owner's signature, if the ledger has a key."""

    @property
    @abstractmethod
    def path(self) -> Path | None:
        """Where it is kept; ``None`` in memory."""

    @property
    def identity(self) -> str:
        """What tells this ledger from every other: the hash of its first row."""
        self._identity = self._identity or str(self._store.hash_at(1))
        return self._identity

    def secret(self) -> bytes:
        """The owner's durable secret, to which the ledger commits; in memory it lasts as long as this."""
        if self.path is None:
            self._secret = self._secret or new_secret()
            return self._secret
        if self._committed is None:  # a ledger of an earlier version
            return self._commit_secret(secret_beside(self.path))
        self.check_secret()
        return read_secret(self.path)

    def check_secret(self) -> None:
        """Hold the secret beside the file to what the ledger commits to, if it does; or a LedgerError."""
        if self.path is None or self._committed is None:
            return
        if commitment(read_secret(self.path)) != self._committed:
            raise LedgerError(
                f"{self._store}: the secret beside it is another one's; put its own back from a copy"
            )

    @property
    def _committed(self) -> str | None:
        held: str | None = self._store.look("secret")[0]
        return held

    def check_owner(self, dataset: str, key: bytes | None) -> None:
        """Check whose ledger it is, and that a key is what signs it now; or a LedgerError."""
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
        """Make another secret, by the owner's decision, in place of one that is lost."""
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
        """The public key that signs its heads now, or ``None``."""
        (held,) = self._store.look("key")
        return None if held is None else bytes.fromhex(held)

    def signing_keys(self) -> list[Entry]:
        """The rows of all keys that signed its heads, in order."""
        return list(self.entries(events=("key",)))

    def check_public(self, public: bytes) -> None:
        """Hold a public key against those that the ledger names; LedgerError: it is none of them."""
        if public.hex() not in [entry.body["public"] for entry in self.signing_keys()]:
            raise LedgerError(
                f"{self._store}: names no such key among those that signed its heads; it is not what "
                "this key's owner answers for"
            )

    def rotate(self, successor: bytes, *, lost: bool = False) -> Head:
        """Let another key sign from now on, under the earlier one's signature unless that is ``lost``."""
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
        """Write down the first key that signs; no other one signs but by rotation."""
        public = signer.public.hex()
        with self._store.exclusive():
            (held,) = self._store.held("key")
            if held is None:
                body = {"public": public, "replaces": "", "signature": ""}
                self._store.append("key", "", "", body, state={"key": public})
        if held not in (None, public):
            raise self._other_key()
