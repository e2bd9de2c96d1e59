"""Keys are made whole or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from privfed.cli import BAD_INPUT, status
from privfed.exchange import signing


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
