"""Keys are made whole or not at all, and signatures cover all of a reply."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from privfed.cli import BAD_INPUT, status
from privfed.errors import InputError, LedgerError
from privfed.exchange import signing
from privfed.exchange.messages import Envelope, Failure, Head, Reason, Refusal
from privfed.questions import wire


def test_no_key_is_left_where_it_cannot_be_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without cryptography there is no public key, and so no secret one that the next try stumbles over."""

    def missing(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(signing, "import_module", missing)
    assert status(["key", "new", str(tmp_path / "officer.key")]) == BAD_INPUT
    assert "install privfed[sign]" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("mode", [0o640, 0o620, 0o604, 0o602, 0o610])
def test_a_key_that_others_can_read_is_refused(tmp_path: Path, mode: int) -> None:
    """Be it a group's, or everybody's."""
    file = tmp_path / "owner.key"
    file.write_bytes(bytes(32))
    file.chmod(0o600)
    assert signing.read_key(file) == bytes(32)
    file.chmod(mode)
    with pytest.raises(InputError, match="others than its owner can read it"):
        signing.read_key(file)


pytest.importorskip("cryptography")
SIGNER = signing.Signer(bytes(range(32)), "d")
HEAD = Head(3, "ab" * 32)
TOLD = Envelope.seal(Failure("north", "r1"), replace(HEAD, signature=SIGNER.sign(HEAD)))
OTHERWISE: dict[str, Any] = {
    "status": "refusal",
    "body": wire.encode(Failure("north", "r2")),
    "head": replace(Head(4, "ab" * 32), signature=SIGNER.sign(Head(4, "ab" * 32))),
    "signature": "",
}


@pytest.mark.parametrize("field", OTHERWISE)
def test_a_reply_s_signature_covers_all_of_it(field: str) -> None:
    """No status, body or head stands in another's place, be it signed for itself."""
    identity, sealed = signing.Identity("d", SIGNER.public), SIGNER.seal(TOLD)
    identity.check(sealed)
    with pytest.raises(LedgerError, match="not signed by the owner's key"):
        identity.check(replace(sealed, **{field: OTHERWISE[field]}))
    with pytest.raises(LedgerError, match="not signed by the owner's key"):
        signing.Identity("e", SIGNER.public).check(sealed)


def test_what_a_row_records_comes_with_a_head() -> None:
    """A refusal may come without one, a failure or a release that is signed for itself may not."""
    identity = signing.Identity("d", SIGNER.public)
    identity.check(SIGNER.seal(Envelope.seal(Refusal("north", "r1", Reason.LEDGER))))
    with pytest.raises(LedgerError, match="together with a head"):
        identity.check(SIGNER.seal(Envelope.seal(Failure("north", "r1"))))
