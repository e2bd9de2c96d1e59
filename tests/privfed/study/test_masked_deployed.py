"""Masked sums among owners on machines of their own: keys, one total, and owners killed at any moment."""

from __future__ import annotations

import random
import re
import shutil
import sys
from collections.abc import Callable, Mapping
from contextlib import closing
from functools import partial
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from pathlib import Path
from threading import Event, Timer

import pandas as pd
import pytest

from privfed.cli import BAD_INPUT, FINE, status
from privfed.engines import owner_file
from privfed.engines.owner_file import OwnerFile
from privfed.engines.remote import RemoteDisclosure
from privfed.engines.sockets import SocketCarrier
from privfed.errors import LedgerError, PolicyError
from privfed.exchange.channel import RetryLimits
from privfed.learners.saved import load
from privfed.ledger import Ledger
from privfed.ledger.registry import Registry
from privfed.privacy.policy import Policy
from privfed.study import Study
from privfed.study.deployed import Deployment
from privfed.study.ledger_commands import amended

OWNERS = ("north", "south", "west")
FORK = get_context("fork")


@pytest.fixture
def study(write_study: Callable[..., Path], study_text: str, small_table: pd.DataFrame) -> Path:
    """A masked study of three owners, whose keys lie beside it; they have not agreed on them yet."""
    text = study_text.replace('partition = "column"\ncolumn = "site"', f"names = {list(OWNERS)}")
    head = text.replace('noise = "test"\n', "").partition("[[policy]]")[0]
    path = write_study(
        f'{head}[[policy]]\nname = "private"\nepsilon = "4"\nmasked = {{ colluding = 0 }}\n'
    )
    keys = path.parent / "keys"
    keys.mkdir()
    for number, name in enumerate(OWNERS):
        folder = path.parent / name
        assert status(["owner", "new", str(folder), str(path), "--client", name]) == FINE
        own = small_table.iloc[number :: len(OWNERS)].drop(columns="site")
        own.to_csv(folder / "records.csv", index=False)
        shutil.copy(folder / "owner.pub", keys / f"{name}.pub")
        shutil.copy(folder / "owner.mask", keys / f"{name}.mask")
    (path.parent / "table.csv").unlink()
    return path


def agree(study: Path) -> None:
    """Every owner takes all keys over."""
    for name in OWNERS:
        assert status(["owner", "masks", str(study.parent / name), str(study.parent / "keys")]) == 0


def test_a_server_that_runs_a_study_without_records_is_told_how(
    study: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What it has is the owners' keys, and an engine asks them."""
    assert status(["run", str(study), "--out", str(study.parent / "here")]) == BAD_INPUT
    assert "run by privfed flower new, or privfed flare new" in capsys.readouterr().err


def test_owners_agree_on_keys_before_they_serve(
    study: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A missing key is named, an owner without keys does not open, and all keys are shown to be compared."""
    keys, first = study.parent / "keys", study.parent / "north"
    (keys / "west.mask").rename(keys / "gone")
    assert status(["owner", "masks", str(first), str(keys)]) == BAD_INPUT
    assert "west.mask" in capsys.readouterr().err
    with pytest.raises(PolicyError, match="no key for 'north'"):
        OwnerFile.from_toml(first / "owner.toml").opened()
    assert status(["serve-client", str(first / "owner.toml"), "--check", "--yes"]) == BAD_INPUT
    told = capsys.readouterr().err
    assert "no key for 'north'" in told and "privfed owner masks FOLDER KEYS" in told
    (keys / "gone").rename(keys / "west.mask")
    agree(study)
    shown = capsys.readouterr().out
    key = (first / "owner.mask").read_text().strip()
    assert all(key[i : i + 8] in shown for i in range(0, 64, 8)) and "Compare these" in shown
    side = OwnerFile.from_toml(first / "owner.toml").opened()
    assert side.gate.policy == Deployment.of(Study.from_toml(study), "out").policy
    side.gate.ledger.close()


def test_a_key_of_somebody_else_or_of_nobody_is_refused(
    study: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An owner's own key must be hers; a point of small order, whose secret all know, is no key."""
    keys, first = study.parent / "keys", study.parent / "north"
    own = (keys / "north.mask").read_text()
    (keys / "north.mask").write_text("1" * 64)
    assert status(["owner", "masks", str(first), str(keys)]) == BAD_INPUT
    assert "another key for 'north'" in capsys.readouterr().err
    (keys / "north.mask").write_text(own)
    (south := keys / "south.mask").rename(keys / "kept")
    south.write_text(own)  # taken for somebody else's
    assert status(["owner", "masks", str(first), str(keys)]) == BAD_INPUT
    assert "'north' and 'south' have one masking key" in capsys.readouterr().err
    (keys / "kept").rename(south)
    assert status(["owner", "masks", str(first), str(keys)]) == FINE
    right = south.read_text()
    south.write_text((keys / "west.mask").read_text())
    assert status(["owner", "masks", str(first), str(keys)]) == BAD_INPUT
    assert "has another masking key of 'south' than" in capsys.readouterr().err
    policy = first / "policy.toml"
    policy.write_text(policy.read_text().replace(right.strip(), ""))
    (keys / "south.mask").write_text("0" * 64)
    assert status(["owner", "masks", str(first), str(keys)]) == BAD_INPUT
    assert "not an X25519 key" in capsys.readouterr().err


def test_an_older_copy_opens_no_gate_whose_masks_it_would_use_again(
    study: Path, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Its last head is known on its machine; on one that knows none, a ledger with rows answers nothing."""
    agree(study)
    folder = study.parent / "north"
    owner, kept = OwnerFile.from_toml(folder / "owner.toml"), study.parent / "kept"
    owner.opened().gate.ledger.close()
    shutil.copytree(folder, kept)
    list(amended([folder / "ledger.db"], "9", None))
    shutil.rmtree(folder)
    shutil.copytree(kept, folder)
    with pytest.raises(LedgerError, match="restored from an older copy"):
        owner.opened()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("forgotten")))
    with pytest.raises(LedgerError, match="no head of it is known on this machine"):
        owner.opened()
    monkeypatch.setattr(owner_file, "_check_known", lambda *_: None)  # without the check it answers
    owner.opened().gate.ledger.close()


def test_an_owner_killed_before_her_first_head_was_kept_comes_back(
    study: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No second row is written before the first head is known, so that her ledger is taken for no older copy."""
    agree(study)
    owner = OwnerFile.from_toml(study.parent / "north" / "owner.toml")
    with monkeypatch.context() as killed:
        killed.setattr(Registry, "keep", lambda *_: sys.exit(9))
        with pytest.raises(SystemExit):
            owner.opened()
    assert owner.signing_key is not None
    owner.opened().gate.ledger.close()
    owner.opened().gate.ledger.close()


def _serve(folder: Path) -> None:
    """An owner's process: her side behind its socket, until killed."""
    owner = OwnerFile.from_toml(folder / "owner.toml")
    owner.open_sockets(owner.opened())
    Event().wait()


class Owners:
    """Every owner's process; some are killed while they answer, and started anew.

    Args:
        study: beside it lie the owners' folders.
        kills: how many are killed, each at a random moment after a batch of questions was sent.
        gone: who is killed once, then, and never started again.
        inside: the folder of a further study in each of theirs.
    """

    def __init__(self, study: Path, kills: int, gone: str = "", inside: str = "") -> None:
        self._gone = gone
        self.folders = {name: study.parent / name / inside for name in OWNERS}
        self.killed = 0
        self._kills, self._rng = kills, random.Random(0)
        self._carrier = SocketCarrier({n: f / "server.sock" for n, f in self.folders.items()})
        self._running = {name: self._started(name) for name in OWNERS}

    def _started(self, name: str) -> BaseProcess:
        process = FORK.Process(target=_serve, args=(self.folders[name],), daemon=True)
        process.start()
        return process

    def _kill(self, name: str) -> None:
        self._running[name].kill()  # SIGKILL
        self._running[name].join()
        if name != self._gone:
            self._running[name] = self._started(name)

    def __call__(self, batches: Mapping[str, bytes], seconds: float) -> Mapping[str, bytes]:
        """Carry batches, and kill an owner meanwhile."""
        if self.killed == self._kills:
            return self._carrier(batches, seconds)
        self.killed += 1
        chosen = self._gone or self._rng.choice(OWNERS)
        kill = Timer(self._rng.uniform(0, 0.02), self._kill, [chosen])
        kill.start()
        replies = self._carrier(batches, seconds)
        kill.join()
        return replies

    def close(self) -> None:
        """End all processes."""
        for process in self._running.values():
            process.kill()
            process.join()


@pytest.mark.parametrize("kills", [0, 8])
def test_three_owners_show_nothing_but_totals_however_often_they_die(
    study: Path, kills: int
) -> None:
    """Killed at any moment and started again, each is charged once a question, and the study ends."""
    agree(study)
    chosen = Deployment.of(Study.from_toml(study), study.parent / "out")
    patience = RetryLimits(deadline=60, first=0.01, longest=0.2)
    with closing(Owners(study, kills)) as owners:
        chosen.run(partial(RemoteDisclosure, carry=owners, patience=patience))
    assert owners.killed == kills
    transcript = chosen.transcript
    assert {entry.client for entry in transcript} == {"total of 3 owners"}
    assert chosen.replay().to_dict() == load(chosen.out / "private" / "model.json").to_dict()
    for name in OWNERS:
        with closing(Ledger.read(study.parent / name / "ledger.db")) as ledger:
            ledger.verify()
            charged = [entry.request for entry in ledger.entries() if entry.event == "reserved"]
        assert len(charged) == len(set(charged)) == len(transcript)


@pytest.mark.parametrize(("kills", "gone"), [(8, ""), (1, "south")])
def test_where_two_suffice_a_study_ends_without_the_third(
    study: Path, kills: int, gone: str
) -> None:
    """Owners killed in any step go on where they were; one who is gone for good is in no later total."""
    text = study.read_text()
    study.write_text(text.replace("masked = { colluding = 0 }", "masked = { least = 2 }"))
    for name in OWNERS:
        policy = study.parent / name / "policy.toml"
        policy.write_text(policy.read_text().replace("colluding = 0", "colluding = 0\nleast = 2"))
    agree(study)
    chosen = Deployment.of(Study.from_toml(study), study.parent / "out")
    patience = RetryLimits(deadline=1.0 if gone else 60, first=0.01, longest=0.2)
    with closing(Owners(study, kills, gone)) as owners:
        chosen.run(partial(RemoteDisclosure, carry=owners, patience=patience))
    transcript = chosen.transcript
    survivors = [set(entry.release.owners) for entry in transcript]
    left = set(OWNERS) - {gone}
    assert survivors[-1] == left and all(len(each) >= 2 for each in survivors)
    assert chosen.replay().to_dict() == load(chosen.out / "private" / "model.json").to_dict()
    for name in left:
        with closing(Ledger.read(study.parent / name / "ledger.db")) as ledger:
            ledger.verify()
            rows = [e for e in ledger.entries() if e.event == "reserved"]
            paid = [e.request for e in rows if not e.body["kind"].startswith("masked.")]
        assert len({e.request for e in rows}) == len(rows) and len(paid) == len(transcript)


def test_owners_join_a_second_masked_study_under_the_same_keys(
    study: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each sees her price, with masks and if they fail, and serves once all have agreed on keys."""
    agree(study)
    first = Deployment.of(Study.from_toml(study), study.parent / "out")
    with closing(Owners(study, 0)) as owners:
        first.run(partial(RemoteDisclosure, carry=owners))
    again = study.with_name("again.toml")
    again.write_text(study.read_text().replace(first.study.name, "Second", 1))
    for name in OWNERS:
        folder, keys = study.parent / name, study.parent / "keys"
        list(amended([folder / "ledger.db"], "8", None))
        capsys.readouterr()
        assert status(["owner", "join", str(folder), str(again), "--yes"]) == FINE
        told = capsys.readouterr().out
        assert "gaussian, masked" in told and "own share of the noise still holds" in told
        assert f"privfed owner masks {folder / 'second'} KEYS" in told
        alone = re.search(r"still holds epsilon ([\d.]+)\n", told)
        own = (folder / "second" / "owner.mask").read_text()
        assert own == (folder / "owner.mask").read_text()
        with pytest.raises(PolicyError, match=f"no key for '{name}'"):
            OwnerFile.from_toml(folder / "second" / "owner.toml").opened()
        assert status(["owner", "masks", str(folder / "second"), str(keys)]) == FINE
    second = Deployment.of(Study.from_toml(again), study.parent / "out-again")
    with closing(Owners(study, 0, inside="second")) as owners:
        second.run(partial(RemoteDisclosure, carry=owners))
    assert {entry.client for entry in second.transcript} == {"total of 3 owners"}
    for name in OWNERS:
        with closing(Ledger.read(study.parent / name / "ledger.db")) as ledger:
            ledger.verify()
            block = ledger.study_blocks()["Second"]
            (line,) = (x for x in ledger.budget("study") if x.name == "Second")
        assert alone is not None and f"if the masks fail, epsilon {alone[1]}" in line.basis_in_words
        assert all(0 < a <= b or a == b for a, b in zip(block.spent, block.share, strict=True))


def test_no_owner_takes_masking_keys_from_the_server_unseen(study: Path) -> None:
    """Keys that lie beside the study she is sent are in no policy before she has compared them."""
    folder = study.parent / "late"
    assert status(["owner", "new", str(folder), str(study), "--client", "north"]) == FINE
    policy = Policy.from_toml(folder / "policy.toml")
    assert policy.masked is not None and not any(policy.masked.keys.values())
