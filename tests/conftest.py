"""Shared fixtures: where the real data lie, if they are there; no test depends on the clock."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import scipy.linalg  # noqa: F401 - with it comes the second library whose threads are limited
from hypothesis import HealthCheck, settings

from privfed.questions.threads import one_thread

ROOT = Path(__file__).resolve().parent.parent

# A busy machine is slow; that is no fault of the code under test. Runs here search anew each time; CI tries
# the same examples each time, so that its answer is about the commit.
settings.register_profile(
    "patient",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize="CI" in os.environ,
)
settings.load_profile("patient")


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> Iterator[None]:
    """The suite's workers have the cores: linear algebra takes no more than one of them in each."""
    with one_thread():
        yield


@pytest.fixture(scope="session", autouse=True)
def _state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What privfed remembers of ledgers between runs goes into a folder of the suite's own."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """Folder of the development data sets; tests that need it are skipped where it is absent."""
    folder = Path(os.environ.get("PRIVFED_DATA", ROOT.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip("the development data sets are not here (set PRIVFED_DATA)")
    return folder
