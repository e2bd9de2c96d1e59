"""The pytest plugin: one alpha for the suite, a marker for a test's claim, and a fixture.

Loaded wherever privfed is installed; imports nothing heavy before it is used.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zlib import crc32

import pytest

if TYPE_CHECKING:
    import numpy as np

    from privfed.testing.assertions.suite import Suite

_ALPHA, _OFF, _BASELINE = "privfed_alpha", "privfed_off", "privfed_baseline"
_UPDATE = "privfed_update_baseline"
_SHARES = pytest.StashKey[dict[bool, float]]()
_SUITE = pytest.StashKey[Any]()
_LEAKS = "leaks(off=()): families of rules about raw values that this test switches off"
_MARKER = (
    "privacy(epsilon, delta=0, unit='record', trials=4000, seed=None, gaussian=False): "
    "what the test claims; leakcheck.assert_dp holds it against outputs"
)


@dataclass(frozen=True)
class Claim:
    """Claim of a test's marker: arguments of :func:`privfed.testing.assert_dp`.

    ``seed`` is for everything that the test draws; by default it is derived from the test's name.
    """

    epsilon: float | None = None
    delta: float = 0.0
    unit: str = "record"
    trials: int = 4000
    seed: int | None = None
    gaussian: bool = False


class LeakCheck:
    """The members of ``privfed.testing``, with the marker's claim and the test's seed."""

    def __init__(self, claim: Claim, seed: int) -> None:
        self.claim, self.seed = claim, seed

    @property
    def rng(self) -> np.random.Generator:
        """A new generator with the test's seed."""
        import numpy as np

        return np.random.default_rng(self.seed)

    def __getattr__(self, name: str) -> Any:
        from privfed import testing

        value = getattr(testing, name)
        return partial(value, seed=self.seed) if name in ("sentinels", "assert_support") else value

    def assert_dp(self, run: Any, neighbours: Any, **options: Any) -> None:
        """See :func:`privfed.testing.assert_dp`; epsilon, delta, unit and trials default to the marker's."""
        __tracebackhide__ = True
        from privfed.testing import assert_dp

        claimed = {name: value for name, value in vars(self.claim).items() if name != "seed"}
        chosen = {**claimed, **options}
        if chosen["epsilon"] is None:
            raise pytest.UsageError(
                "assert_dp needs a claim; write @pytest.mark.privacy(epsilon=1.0) or pass epsilon="
            )
        assert_dp(run, neighbours, **chosen)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add options and settings: the suite's alpha, disabled rules and the baseline."""
    text = "how often privfed's assertions may fail without a fault, over the whole suite (0.05)"
    parser.addini(_ALPHA, text, default="0.05")
    parser.addini(_OFF, "families of rules about raw values to switch off", type="args", default=[])
    parser.addini(_BASELINE, "file of accepted findings", default="")
    group = parser.getgroup("privfed")
    group.addoption("--privfed-alpha", dest=_ALPHA, default=None, help=text)
    group.addoption("--privfed-baseline", dest=_BASELINE, default=None, help="accepted findings")
    group.addoption(
        "--privfed-update-baseline", dest=_UPDATE, action="store_true", help="accept what is found"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Register the markers, and refuse invalid settings."""
    config.addinivalue_line("markers", _MARKER)
    config.addinivalue_line("markers", _LEAKS)
    if off := set(config.getini(_OFF)):
        from privfed.leaks.scan import FAMILIES

        if unknown := sorted(off - set(FAMILIES)):
            known = ", ".join(FAMILIES)
            raise pytest.UsageError(f"{_OFF}: no rule is called {unknown}; the rules are {known}")
    if config.getoption(_UPDATE) and _baseline(config) is None:
        raise pytest.UsageError(
            f'no baseline is named; write {_BASELINE} = "leaks.json" into the settings'
        )


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Split half of alpha over the tests that name the assertions, half over all others.

    Thousands of tests without assertions of privfed then do not weaken the others, and tests that call an
    assertion through a helper module still have a part of alpha.
    """
    naming = sum(_names_assertions(item) for item in items)
    config.stash[_SHARES] = {True: 0.5 / max(1, naming), False: 0.5 / max(1, len(items) - naming)}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Run a test with its part of alpha, and the suite's settings."""
    from privfed.testing.assertions.alpha import spending

    naming = _names_assertions(item)
    alpha = _suite_alpha(item.config) * item.config.stash[_SHARES][naming]
    if not naming and "privfed.testing.assertions.no_raw" not in sys.modules:
        with spending(alpha):
            return (yield)
    from privfed.testing.assertions.suite import running

    suite = _suite(item.config)
    off = [family for mark in item.iter_markers("leaks") for family in mark.kwargs.get("off", ())]
    with spending(alpha), running(replace(suite, off=(*suite.off, *off)), item.nodeid):
        return (yield)


def _suite(config: pytest.Config) -> Suite:
    """The suite's settings, read on first use because they import NumPy."""
    if _SUITE not in config.stash:
        from privfed.testing.assertions.suite import Suite, read_baseline

        path = _baseline(config)
        accepted = read_baseline(path) if path else {}
        recording = bool(config.getoption(_UPDATE))
        config.stash[_SUITE] = Suite(tuple(config.getini(_OFF)), accepted, recording)
    suite: Suite = config.stash[_SUITE]
    return suite


def _baseline(config: pytest.Config) -> Path | None:
    name = config.getoption(_BASELINE) or config.getini(_BASELINE)
    return config.rootpath / name if name else None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Accept findings that fail a test while the baseline is updated; redact raw values in printed failures.

    Failures that a test expects, by ``pytest.raises`` or ``xfail``, are not accepted.
    """
    report = yield
    suite = item.config.stash.get(_SUITE, None)
    if report.failed and suite is not None and suite.recording and _failed_by_finding(call):
        suite.accept_last()
        report.outcome, report.longrepr = "passed", None
    if report.failed and suite is not None and suite.tables:
        from privfed.testing.redaction import Redaction

        redaction = Redaction(suite.tables)
        report.longrepr = _rewrite(report.longrepr, redaction.of)
        printed = str(report.longrepr)
        if (clean := redaction.of(printed)) != printed:  # an unknown form of report
            report.longrepr = clean
        report.sections = [(name, redaction.of(text)) for name, text in report.sections]
    return report


def _failed_by_finding(call: pytest.CallInfo[None]) -> bool:
    """Whether a test was failed by an assertion that found raw values."""
    from privfed.testing.assertions.no_raw import RawValueLeft

    return call.excinfo is not None and isinstance(call.excinfo.value, RawValueLeft)


def _rewrite(thing: Any, rewrite: Callable[[str], str]) -> Any:
    """Rewrite every text in a pytest report of a failure."""
    if isinstance(thing, str):
        return rewrite(thing)
    if isinstance(thing, list | tuple):
        return type(thing)(_rewrite(part, rewrite) for part in thing)
    if is_dataclass(thing):
        for field in fields(thing):
            setattr(thing, field.name, _rewrite(getattr(thing, field.name), rewrite))
    return thing


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write the baseline; a worker of xdist sends its results to the session instead."""
    config = session.config
    suite = config.stash.get(_SUITE, None)
    if hasattr(config, "workeroutput"):
        config.workeroutput["privfed"] = None if suite is None else suite.to_dict()
    elif config.getoption(_UPDATE) and (path := _baseline(config)) is not None:
        _suite(config).write(path)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Merge the results of a worker of xdist."""
    data = getattr(node, "workeroutput", {}).get("privfed")
    if data is not None:
        _suite(node.config).merge(data)


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Summarise the assertions, and what they could not have detected."""
    suite = config.stash.get(_SUITE, None)
    for number, line in enumerate(suite.summary() if suite is not None else ()):
        if not number:
            terminalreporter.section("raw values")
        terminalreporter.line(line)


def _names_assertions(item: pytest.Item) -> bool:
    """Whether the test uses the fixture, or its module imports one of the assertions."""
    if "leakcheck" in getattr(item, "fixturenames", ()):
        return True
    members = vars(module).values() if (module := getattr(item, "module", None)) else ()
    return any(
        str(getattr(value, "__module__", "")).startswith("privfed.testing.assertions")
        or getattr(value, "__name__", None) == "privfed.testing"
        for value in members
    )


def _suite_alpha(config: pytest.Config) -> float:
    text = config.getoption(_ALPHA) or config.getini(_ALPHA)
    try:
        alpha = float(text)
    except ValueError:
        alpha = 0.0
    if not 0 < alpha < 1:
        raise pytest.UsageError(f"{_ALPHA} must lie between 0 and 1, and is {text!r}; write 0.05")
    return alpha


@pytest.fixture
def leakcheck(request: pytest.FixtureRequest) -> LeakCheck:
    """privfed's assertions, with the claim of the test's ``privacy`` marker."""
    marker = request.node.get_closest_marker("privacy") or pytest.mark.privacy().mark
    known = [field.name for field in fields(Claim)]
    unknown = sorted(set(marker.kwargs) - set(known))
    if unknown or len(marker.args) > 1:
        raise pytest.UsageError(
            f"the privacy marker knows {', '.join(known)}; not {unknown or 'more'}"
        )
    claim = Claim(*marker.args, **marker.kwargs)
    seed = crc32(request.node.nodeid.encode()) if claim.seed is None else claim.seed
    return LeakCheck(claim, seed)
