"""The pytest plugin: one alpha for the suite, a marker for what a test claims, and a fixture.

It is loaded by name wherever privfed is installed, and imports nothing heavy before it is used.
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
    """What a test's marker claims, as :func:`privfed.testing.assert_dp` takes it.

    ``seed`` is that of whatever the test draws; it comes from the test's name unless given.
    """

    epsilon: float | None = None
    delta: float = 0.0
    unit: str = "record"
    trials: int = 4000
    seed: int | None = None
    gaussian: bool = False


class LeakCheck:
    """Everything of ``privfed.testing``, with the marker's claim and a repeatable seed of the test's."""

    def __init__(self, claim: Claim, seed: int) -> None:
        self.claim, self.seed = claim, seed

    @property
    def rng(self) -> np.random.Generator:
        """A generator of the test's seed, anew each time."""
        import numpy as np

        return np.random.default_rng(self.seed)

    def __getattr__(self, name: str) -> Any:
        from privfed import testing

        named = getattr(testing, name)
        return partial(named, seed=self.seed) if name in ("sentinels", "assert_support") else named

    def assert_dp(self, run: Any, neighbours: Any, **options: Any) -> None:
        """See :func:`privfed.testing.assert_dp`; epsilon, delta, unit and trials are the marker's."""
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
    """Add the suite's alpha, the rules that are off and the baseline, as options and settings."""
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
    """Register the markers, and refuse settings that say nothing."""
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

    Thousands of tests that assert nothing of privfed's cannot blunt the few that do, and one that
    asserts by way of a helper module still has a share.
    """
    naming = sum(_names_assertions(item) for item in items)
    config.stash[_SHARES] = {True: 0.5 / max(1, naming), False: 0.5 / max(1, len(items) - naming)}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Give the running test its share of alpha, and the suite's settings."""
    from privfed.testing.assertions.alpha import spending

    naming = _names_assertions(item)
    alpha = _suite_alpha(item.config) * item.config.stash[_SHARES][naming]
    if not naming and "privfed.testing.assertions.no_raw" not in sys.modules:
        with spending(alpha):
            return (yield)
    from privfed.testing.assertions.suite import running

    suite = _suite(item.config)
    off = [one for mark in item.iter_markers("leaks") for one in mark.kwargs.get("off", ())]
    with spending(alpha), running(replace(suite, off=(*suite.off, *off)), item.nodeid):
        return (yield)


def _suite(config: pytest.Config) -> Suite:
    """The suite's settings, read on first use: they import NumPy."""
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
    """Accept findings that fail a test while the baseline is updated; take raw values out of what failures print.

    What a test expects, by ``pytest.raises`` or as a known failure, is no finding to be accepted.
    """
    report = yield
    suite = item.config.stash.get(_SUITE, None)
    if report.failed and suite is not None and suite.recording and _by_finding(call):
        suite.accept_last()
        report.outcome, report.longrepr = "passed", None
    if report.failed and suite is not None and suite.tables:
        from privfed.testing.redaction import Redaction

        redaction = Redaction(suite.tables)
        report.longrepr = _rewritten(report.longrepr, redaction.of)
        whole = str(report.longrepr)
        if (clean := redaction.of(whole)) != whole:  # a form of pytest's that nobody knows
            report.longrepr = clean
        report.sections = [(name, redaction.of(text)) for name, text in report.sections]
    return report


def _by_finding(call: pytest.CallInfo[None]) -> bool:
    """Whether a test ended by an assertion that found raw values."""
    from privfed.testing.assertions.no_raw import RawValueLeft

    return call.excinfo is not None and isinstance(call.excinfo.value, RawValueLeft)


def _rewritten(thing: Any, of: Callable[[str], str]) -> Any:
    """What pytest tells of a failure with every text rewritten, in the same form."""
    if isinstance(thing, str):
        return of(thing)
    if isinstance(thing, list | tuple):
        return type(thing)(_rewritten(one, of) for one in thing)
    if is_dataclass(thing):
        for one in fields(thing):
            setattr(thing, one.name, _rewritten(getattr(thing, one.name), of))
    return thing


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write the baseline; a worker of xdist tells its session instead."""
    config = session.config
    suite = config.stash.get(_SUITE, None)
    if hasattr(config, "workeroutput"):
        config.workeroutput["privfed"] = None if suite is None else suite.told()
    elif config.getoption(_UPDATE) and (path := _baseline(config)) is not None:
        _suite(config).write(path)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Hear what a worker of xdist has seen."""
    told = getattr(node, "workeroutput", {}).get("privfed")
    if told is not None:
        _suite(node.config).hear(told)


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Say what the assertions looked at, and what they could not have seen."""
    suite = config.stash.get(_SUITE, None)
    for number, line in enumerate(suite.summary() if suite is not None else ()):
        if not number:
            terminalreporter.section("raw values")
        terminalreporter.line(line)


def _names_assertions(item: pytest.Item) -> bool:
    """Whether the test takes the fixture, or its module holds one of the assertions."""
    if "leakcheck" in getattr(item, "fixturenames", ()):
        return True
    held = vars(module).values() if (module := getattr(item, "module", None)) else ()
    return any(
        str(getattr(value, "__module__", "")).startswith("privfed.testing.assertions")
        or getattr(value, "__name__", None) == "privfed.testing"
        for value in held
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
    """privfed's assertions, with what the test's ``privacy`` marker claims."""
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
