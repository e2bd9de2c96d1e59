"""The read-only page of ledgers: what it shows, to whom, and that it changes nothing."""

from __future__ import annotations

import http.client
import re
import shutil
import sqlite3
import subprocess
import threading
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path

import pytest

from privfed import Gate
from privfed.accountants.pure import PureEpsilon
from privfed.errors import InputError
from privfed.exchange.messages import Reason, Request
from privfed.ledger import Ledger
from privfed.ledger.refusals import EACH
from privfed.ledger.registry import Registry
from privfed.privacy.noise import SecureNoise
from privfed.reports.page import BROWSERS
from privfed.study.ledger_server import LedgerServer
from privfed.testing.queries import Histogram


@pytest.fixture
def owners(make_gate: Callable[..., Gate], tmp_path: Path) -> Path:
    """A folder of one lasting ledger that answered twice and refused twice."""
    folder = tmp_path / "owners"
    folder.mkdir()
    ledger = Ledger(folder / "clinic.db", "clinic", registry=Registry())
    gate = make_gate(budget="0.25", ledger=ledger, noise=SecureNoise())
    for number in range(4):
        gate.answer(Request.of(f"request {number}", Histogram(0, (0.0, 0.5, 1.0))))
    ledger.close()
    return folder


@pytest.fixture
def server(owners: Path) -> Iterator[LedgerServer]:
    """Serves that folder."""
    one = LedgerServer([owners])
    thread = threading.Thread(target=one.serve)
    thread.start()
    yield one
    one.close()
    thread.join()


def got(server: LedgerServer, path: str, method: str = "GET", **headers: str) -> tuple[int, str]:
    """The status and body of an answer."""
    asked = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    asked.request(method, path, headers=headers)
    reply = asked.getresponse()
    text = reply.read().decode()
    asked.close()
    return reply.status, text


def words(html: str) -> str:
    """A page's text."""
    return " ".join(re.sub(r"<style>.*?</style>|<[^>]+>", " ", html, flags=re.DOTALL).split())


def test_a_count_that_a_killed_gate_may_have_shortened_is_a_least(
    owners: Path, server: LedgerServer
) -> None:
    """Its last refusals had no row yet; fewer have one each. A study that joined counts before it is charged."""
    ledger = Ledger(owners / "clinic.db", "clinic", registry=Registry())
    for number in range(EACH - 2):
        ledger.refuse("server", f"again {number}", Reason.BUDGET, {"kind": "small.histogram"})
    address = f"/{server.token}/"
    ledger.reserve_share("second", (Fraction(1, 100), Fraction(0)), PureEpsilon())
    first, own = (words(got(server, f"{address}{page}")[1]) for page in ("", "0/clinic"))
    assert f"one of its limits {EACH} 20" in own and "at least" not in first + own
    assert "… 2 at most ε 0.2" in first
    ledger.refuse("server", "one more", Reason.BUDGET, {"kind": "small.histogram"})
    ledger.close()
    first, own = (words(got(server, f"{address}{page}")[1]) for page in ("", "0/clinic"))
    assert f"at least {EACH + 1}" in first and f"at least {EACH + 1}" in own
    assert "Last (UTC)" in own


def test_the_page_says_what_is_spent_refused_and_intact(server: LedgerServer) -> None:
    """All ledgers on the first page; of one its rows, and those of them that contain all words."""
    status, first = got(server, f"/{server.token}/")
    assert status == 200 and 'href="0/clinic"' in first
    said = words(first)
    assert "All 1 intact" in said and "at most ε 0.2 of 0.25" in said
    assert "20 % of the budget, room for a study of epsilon 0.05" in said
    status, own = got(server, f"/{server.token}/0/clinic")
    assert status == 200
    assert "small.histogram the charge does not fit what is left of the budget" in words(own)
    _, some = got(server, f"/{server.token}/0/clinic?words=refused+small")
    assert "2 rows." in words(some) and some.count("<td>refused</td>") == 2
    _, none = got(server, f"/{server.token}/0/clinic?words=%3Cscript%3E")
    assert "0 rows." in words(none) and "<script" not in none


def test_nobody_reads_it_without_the_token_from_elsewhere_or_to_write(server: LedgerServer) -> None:
    """Each wrong path has the same answer; a name that leads here from a page elsewhere has it, too."""
    for path in ("/", "/x/", f"/{server.token[:-1]}/", f"/{server.token}/1/clinic", "/%C3%A9/"):
        assert got(server, path) == (404, "There is no such page.\n")
    assert got(server, f"/{server.token}/", Host="elsewhere.example")[0] == 404
    assert got(server, f"/{server.token}/", "POST")[0] == 501
    assert server.url.startswith("http://127.0.0.1:")


def test_a_page_runs_no_script_and_loads_nothing(server: LedgerServer) -> None:
    """By its headers, and by what it is."""
    asked = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    asked.request("GET", f"/{server.token}/0/clinic")
    reply = asked.getresponse()
    html = reply.read().decode()
    asked.close()
    assert "default-src 'none'" in str(reply.getheader("Content-Security-Policy"))
    assert reply.getheader("Referrer-Policy") == "no-referrer"
    assert reply.getheader("Cache-Control") == "no-store"
    assert not re.search(r"<script|src=|https?:", html) and server.token not in html


def test_a_ledger_of_two_places_is_counted_once(server: LedgerServer, owners: Path) -> None:
    """A folder and a file in it, say: as many ledgers as there are."""
    server.folders = (owners, owners / "clinic.db")
    assert "All 1 intact" in words(server.page(f"/{server.token}/") or "")


def test_a_ledger_that_is_rewritten_or_gone_meanwhile_is_broken(
    server: LedgerServer, owners: Path
) -> None:
    """It is verified at each look; of what is not believed nothing is shown but why."""
    with sqlite3.connect(owners / "clinic.db") as database:
        database.execute("UPDATE entries SET time = '2001-01-01' WHERE seq = 3")
    database.close()
    said = words(got(server, f"/{server.token}/")[1])
    assert "1 of 1 BROKEN" in said and "at most" not in said
    assert "Rows" not in words(got(server, f"/{server.token}/0/clinic")[1])
    (owners / "clinic.db").unlink()
    assert "there is no such file" in words(got(server, f"/{server.token}/")[1])


def test_looking_changes_no_file(server: LedgerServer, owners: Path) -> None:
    """Neither the ledger nor what lies beside it."""
    before = {path.name: path.read_bytes() for path in owners.iterdir()}
    for place in ("", "0/clinic", "0/clinic?words=budget"):
        assert got(server, f"/{server.token}/{place}")[0] == 200
    assert {path.name: path.read_bytes() for path in owners.iterdir()} == before


def test_a_folder_without_ledgers_and_a_port_in_use_are_refused(
    server: LedgerServer, owners: Path, tmp_path: Path
) -> None:
    """Before anything is served."""
    with pytest.raises(InputError, match="there is no such folder"):
        LedgerServer([tmp_path / "nowhere"])
    with pytest.raises(InputError, match=f"port {server.port}: cannot be used"):
        LedgerServer([owners], server.port)


def test_a_browser_shows_it(server: LedgerServer, tmp_path: Path) -> None:
    """Where there is one: the page as it stands in the browser."""
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        pytest.skip("no browser")
    command = [browser, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic"]
    command += ["--no-first-run", "--disable-background-networking", "--disable-sync"]
    command += ["--disable-component-update", f"--user-data-dir={tmp_path / 'profile'}"]
    done = subprocess.run(
        [*command, "--dump-dom", f"{server.url}0/clinic"],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert "at most epsilon 0.2 so far" in words(done.stdout)
