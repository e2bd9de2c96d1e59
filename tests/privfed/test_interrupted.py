"""Ctrl-C, from the first moment on: one line, status 130, nothing half-written."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from time import sleep
from types import ModuleType

import pytest

from privfed.__main__ import main


def test_an_import_that_is_interrupted_is_no_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whatever was being imported: one line, and the status of a shell."""

    class Interrupting(ModuleType):
        def __getattr__(self, name: str) -> None:
            raise KeyboardInterrupt

    monkeypatch.setitem(sys.modules, "privfed.cli", Interrupting("privfed.cli"))
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 130
    assert capsys.readouterr().err == "privfed: interrupted; nothing had begun\n"


@pytest.mark.parametrize(
    "interrupted",
    [
        "exec('raise KeyboardInterrupt')",
        (
            "try:\n        os.kill(os.getpid(), signal.SIGINT)\n"
            "    except KeyboardInterrupt:\n        raise ImportError('C extensions')"
        ),
        (
            "from privfed.errors import PluginError\n    try:\n        os.kill(os.getpid(), signal.SIGINT)\n"
            "    except KeyboardInterrupt:\n        raise PluginError('cannot be loaded')"
        ),
    ],
)
def test_an_interrupt_within_an_import_ends_with_the_shell_s_status(
    interrupted: str, tmp_path: Path
) -> None:
    """In text that is executed Python would end as killed; a library that is imported makes its own error of it."""
    (tmp_path / "asking.py").write_text(
        "import os, signal\nfrom privfed.cli import commands, main\n\n"
        f"@commands.command('ask')\ndef ask():\n    {interrupted}\n\nmain(['ask'])\n"
    )
    ended = subprocess.run(
        [sys.executable, "-m", "asking"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 130
    assert ended.stderr.strip().splitlines() == [
        "privfed: interrupted; no output was written. Persistent ledgers keep what was charged"
    ]


@pytest.mark.parametrize("seconds", [0.1, 0.4, 3.0])
def test_an_interrupted_run_says_so_in_one_line(seconds: float, tmp_path: Path) -> None:
    """While modules are imported, and while it works; a run that had not begun may also be ended by Python."""
    started = subprocess.Popen(
        [sys.executable, "-m", "privfed", "audit", "--out", "out"],
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    sleep(seconds)
    started.send_signal(signal.SIGINT)
    told = started.communicate(timeout=60)[1]
    if seconds == 0.1 and "init_import_site" in told:  # Python itself had not begun
        assert started.returncode == 1
    else:
        assert started.returncode in ((130, -signal.SIGINT) if seconds < 1 else (130,))
        assert started.returncode < 0 or ("interrupted" in told and "Traceback" not in told)
    assert list(tmp_path.iterdir()) == []
