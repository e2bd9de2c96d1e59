"""A second study of an owner who has a ledger: what she sees, what she agrees to, what is never forked."""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import pandas as pd
import pytest

from privfed import Policy
from privfed.cli import BAD_INPUT, FINE, status
from privfed.engines.owner_file import OwnerFile
from privfed.engines.remote import RemoteDisclosure
from privfed.engines.sockets import SocketCarrier
from privfed.errors import BudgetError, InputError, LedgerError, Note, PolicyError
from privfed.ledger import Ledger
from privfed.privacy.accountant import Budget
from privfed.study import Study
from privfed.study.deployed import Deployment
from privfed.study.joining import Joining
from privfed.study.ledger_commands import amended

STUDY = """
name = "{name}"
[data]
source = "records.csv"
target = "risk"
schema = "schema.toml"
[clients]
names = ["north"]
[learner]
name = "FuzzyTreeRegressor"
params = {{ max_depth = 1, n_fuzzy_sets = 2 }}
[about]
purpose = "how long patients stay"
[[policy]]
name = "private"
epsilon = "{epsilon}"
"""


def study(folder: Path, name: str, epsilon: str, text: str = "") -> Path:
    """A study's file, in a folder with its schema."""
    path = folder / f"{name.split()[0].lower()}.toml"
    path.write_text(text or STUDY.format(name=name, epsilon=epsilon))
    return path


@contextmanager
def served(owner: OwnerFile) -> Iterator[SocketCarrier]:
    """The owner's side, open."""
    side = owner.opened()
    (socket,) = owner.open_sockets(side)
    with socket, closing(side.gate.ledger), closing(side.gate.shelf):
        yield SocketCarrier({"north": socket.path})


def carried_out(path: Path, owner: OwnerFile) -> None:
    """A study carried out by the owner's socket."""
    chosen = Deployment.of(Study.from_toml(path), path.parent / f"out-{path.stem}")
    with served(owner) as carry:
        chosen.run(partial(RemoteDisclosure, carry=carry))


@pytest.fixture
def owner(
    tmp_path: Path, schema_text: str, small_table: pd.DataFrame, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """The folder of an owner whose first study, of epsilon 2, is over; her budget is 4 since."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "schema.toml").write_text(schema_text)
    folder, first = tmp_path / "owner", study(tmp_path, "First study", "2")
    assert status(["owner", "new", str(folder), str(first), "--client", "north"]) == FINE
    small_table.to_csv(folder / "records.csv", index=False)
    (tmp_path / "keys").mkdir()
    shutil.copy(folder / "owner.pub", tmp_path / "keys" / "north.pub")
    carried_out(first, OwnerFile.from_toml(folder / "owner.toml"))
    list(amended([folder / "ledger.db"], "4", None))
    return folder


def test_a_sealed_study_is_served_with_a_remark_and_not_sealed_twice(
    owner: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing that a command leaves undone is told as done; a study without a share has none to give back."""
    second = study(owner.parent, "Second study", "1.5")
    assert status(["owner", "join", str(owner), str(second), "--yes"]) == FINE
    serve = ["serve-client", str(owner / "second-study" / "owner.toml"), "--check", "--yes"]
    seal = ["ledger", "seal", str(owner / "ledger.db")]
    for told in ("", "north: study 'Second study' is sealed: no new query of it is answered\n"):
        capsys.readouterr()
        assert status(serve) == FINE
        assert capsys.readouterr().out.split("nothing was written\n")[1] == told
        assert status([*seal, "Second study"]) == FINE
        assert ("already" in capsys.readouterr().out) == bool(told)
    assert status([*seal, "First study"]) == BAD_INPUT
    assert "reserved no share" in capsys.readouterr().err
    assert status([*seal, "Third study"]) == BAD_INPUT
    assert "there are First study, Second study" in capsys.readouterr().err


def test_a_second_study_goes_on_the_same_ledger_under_the_same_key(
    owner: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """She is told kinds, noise, share, who asks and what for; the share is reserved, and it runs."""
    second = study(owner.parent, "Second study", "1.5")
    assert status(["owner", "join", str(owner), str(second)]) == BAD_INPUT
    told = capsys.readouterr()
    assert "how long patients stay" in told.out and "fuzzy_tree." in told.out
    assert "gaussian" in told.out or "laplace" in told.out
    assert " % of your budget" in told.out and "server.sock" in told.out
    assert "nothing was written" in told.err and not (owner / "second-study").exists()
    assert status(["owner", "join", str(owner), str(second), "--yes"]) == FINE
    joined = OwnerFile.from_toml(owner / "second-study" / "owner.toml")
    with closing(Ledger.read(owner / "ledger.db")) as ledger:
        before = ledger.head
        block = ledger.study_blocks()["Second study"]
        assert ledger.public is not None and not block.sealed and not any(block.spent)
    carried_out(second, joined)
    with closing(Ledger.read(owner / "ledger.db")) as ledger:
        ledger.verify(before)
        block = ledger.study_blocks()["Second study"]
        assert any(block.spent) and all(
            a <= b for a, b in zip(block.spent, block.share, strict=True)
        )
    assert sorted(x.name for x in (owner / "second-study").iterdir()) == [
        "owner.toml",
        "policy.toml",
        "schema.toml",
    ]


def test_a_purpose_that_reads_as_another_price_stands_in_quotes(
    owner: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The study's file is the asking side's."""
    second = study(owner.parent, "Second study", "1.5")
    bent = r"\u001b[2K\nreserved for it: 1 %"
    second.write_text(second.read_text().replace("how long patients stay", bent))
    assert status(["owner", "join", str(owner), str(second)]) == BAD_INPUT
    told = capsys.readouterr().out
    assert "reserved for it: 1 %" in told and "\nreserved for it: 1 %" not in told
    assert all(line.isprintable() for line in told.splitlines())


def test_a_study_that_does_not_fit_what_is_left_is_refused(owner: Path) -> None:
    """Nothing is written or reserved; neither is a stranger's study, nor one without a guarantee."""
    rows = [x.name for x in owner.iterdir()]
    large = Deployment.of(Study.from_toml(study(owner.parent, "Large", "3.9")), owner)
    with pytest.raises(BudgetError, match=r"less is left: north has epsilon"):
        Joining.of(owner, large)
    text = STUDY.format(name="Strange", epsilon="1").replace('"north"', '"south"')
    strange = Study.from_toml(study(owner.parent, "Strange", "1", text))
    with pytest.raises(InputError, match="not one of the study's clients"):
        Joining.of(owner, Deployment.of(strange, owner))
    text = STUDY.format(name="Open", epsilon="1").replace('epsilon = "1"', 'base = "published"')
    with pytest.raises(InputError, match="no finite guarantee"):
        Joining.of(
            owner, Deployment.of(Study.from_toml(study(owner.parent, "Open", "1", text)), owner)
        )
    assert [x.name for x in owner.iterdir()] == rows


def test_a_joined_study_is_served_from_no_other_ledger(
    owner: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One that has moved leaves no path at which her budget would begin anew, sealed studies included."""
    second = study(owner.parent, "Second study", "1.5")
    assert status(["owner", "join", str(owner), str(second), "--yes"]) == FINE
    joined = OwnerFile.from_toml(owner / "second-study" / "owner.toml")
    new = owner.parent / "new place"
    new.mkdir()
    for ending in ("db", "secret"):
        shutil.move(owner / f"ledger.{ending}", new / f"ledger.{ending}")
    moved = replace(joined, ledger=str(new / "ledger.db"))
    with served(moved):
        pass
    capsys.readouterr()
    for path in ("../ledger.db", "../other.db"):
        elsewhere = replace(joined, ledger=path)
        for start in (elsewhere.checked, elsewhere.opened):
            with pytest.raises(LedgerError, match="not the one that study 'Second study' joined"):
                start()
    assert not (owner / "ledger.db").exists()
    with pytest.warns(
        Note, match=f"has another, {new}/ledger.db"
    ):  # not joined: a name may be chance
        OwnerFile.from_toml(owner / "owner.toml").checked()
    with closing(Ledger(owner / "ledger.db", "north")), pytest.raises(LedgerError, match="joined"):
        joined.checked()


def test_a_ledger_from_another_machine_is_served_with_a_remark(
    owner: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Nothing there would notice an older copy of it, until its first start has kept a head."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "another machine"))
    first = OwnerFile.from_toml(owner / "owner.toml", {"agreed": {}, "study": "First study"})
    list(amended([owner / "ledger.db"], "2", None))
    with pytest.warns(Note, match="no head of it is known here"):
        first.checked()
    with served(first), warnings.catch_warnings():
        warnings.simplefilter("error")
        first.checked()


def test_agreed_policies_are_served_under_the_budget_that_their_owner_sets_later(
    owner: Path,
) -> None:
    """Raised or lowered, for the first study and a joined one; a policy that was edited is not agreed on."""
    second = study(owner.parent, "Second study", "1.5")
    assert status(["owner", "join", str(owner), str(second), "--yes"]) == FINE
    files = [OwnerFile.from_toml(one / "owner.toml") for one in (owner, owner / "second-study")]
    for epsilon in ("5", "3.5"):
        list(amended([owner / "ledger.db"], epsilon, None))
        for file in files:
            with pytest.warns(Note, match=f"counts, epsilon {epsilon} at delta 1e-05"):
                policy, *_ = file.checked()
            assert policy.budget == Budget.of(epsilon, "1e-5")
    with served(files[1]):
        pass
    with closing(Ledger.read(owner / "ledger.db")) as ledger:
        stated = {study: policy.budget for study, policy in ledger.policies().items()}
        assert stated == dict.fromkeys(["First study", "Second study"], Budget.of("3.5", "1e-5"))
        assert not any(ledger.study_blocks()["Second study"].spent)
    for agreed, match in ((files[1].agreed, "agreed"), ({}, "has another budget")):
        path = files[1].folder / "policy.toml"
        edited = replace(Policy.from_toml(path), budget=Budget.of("3", "1e-5"))
        edited.to_toml(path)
        with pytest.raises(PolicyError, match=match):
            replace(files[1], agreed=agreed).checked()


def test_a_budget_is_never_amended_below_what_is_spent_or_reserved(owner: Path) -> None:
    """By another policy and --amend, as by the command."""
    second = study(owner.parent, "Second study", "1.5")
    assert status(["owner", "join", str(owner), str(second), "--yes"]) == FINE
    chosen = OwnerFile.from_toml(owner / "second-study" / "owner.toml", {"agreed": {}})
    policy = Policy.from_toml(chosen.folder / "policy.toml")
    for epsilon, fits in (("1", False), ("2", False), ("3", True)):
        lower = replace(policy, budget=Budget.of(epsilon, "1e-5"))
        lower.to_toml(chosen.folder / "policy.toml")
        if fits:
            chosen.checked(amend=True)
            continue
        with pytest.raises(PolicyError, match=f"more than epsilon {epsilon} "):
            chosen.checked(amend=True)
        with pytest.raises(PolicyError, match=f"more than epsilon {epsilon} "):
            chosen.opened(amend=True)
        with pytest.raises(PolicyError, match=f"more than epsilon {epsilon} "):
            list(amended([owner / "ledger.db"], epsilon, None))
