"""The pytest plugin: loaded by name, light, one alpha for a suite, a marker and a fixture."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from privfed.leaks.evidence import Evidence
from privfed.testing import assert_dp, assert_no_raw, assert_support  # noqa: F401 - else each session would load them
from privfed.testing.assertions.suite import Looked, Suite

pytest_plugins = ("pytester",)
CACHELESS = ("-p", "no:cacheprovider")


@pytest.fixture(autouse=True)
def _named_plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs load this plugin and xdist by name, and none of the others that happen to be installed, which takes longer."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTEST_PLUGINS", "privfed.testing.plugin,xdist.plugin")


def run(pytester: pytest.Pytester, *options: str) -> pytest.RunResult:
    """A session in this process, which has imported what one of its own would import first."""
    return pytester.runpytest_inprocess(*CACHELESS, *options)


SUITE = """
import numpy as np
import pytest
from privfed.testing import assert_no_raw
from privfed.testing.assertions.alpha import share

DATA = np.random.default_rng(0).normal(size=(50, 3))

def test_safe():
    assert_no_raw(DATA.mean(axis=0), DATA)

def test_leak():
    assert_no_raw({"w": DATA[3]}, DATA)

@pytest.mark.privacy(epsilon=1.0, trials=4000)
def test_claim(leakcheck):
    rng = leakcheck.rng
    leakcheck.assert_dp(lambda d: len(d) + rng.laplace(), DATA)

@pytest.mark.privacy(epsilon=1.0, seed=7)
def test_everything(leakcheck):
    assert leakcheck.seed == 7 and leakcheck.rng.random() == np.random.default_rng(7).random()
    table = leakcheck.sentinels(__import__("pandas").DataFrame({"x": [0.0, 9.0]}), 40)
    leakcheck.assert_no_raw(table["x"].mean(), table)
    leakcheck.assert_support(lambda t: t["x"].sum(), table)
    leakcheck.assert_ledger({"a": 1.5}, {"left*": 1.0})
    left = [3]
    def ask(number):
        left[0] -= 1
        return None if left[0] < 0 else 1.0
    leakcheck.assert_refuses_over_budget(ask, 3)

@pytest.mark.parametrize("number", range(4))
def test_share(number, leakcheck):
    assert share(None) == pytest.approx(0.02 / 8 / 2)
    assert share(None) == pytest.approx(0.02 / 8 / 6)
    assert leakcheck.seed != 7
"""


def test_a_suite(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """A leak fails, all else passes; what is deselected does not change the shares. The plugin is found as installed."""
    for name in ("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "PYTEST_PLUGINS"):
        monkeypatch.delenv(name)
    pytester.makepyfile(SUITE)
    pytester.makeini(
        "[pytest]\nprivfed_alpha = 0.04\naddopts = --strict-markers -p no:cacheprovider"
    )
    whole = pytester.runpytest_subprocess()
    whole.assert_outcomes(passed=7, failed=1)
    whole.stdout.fnmatch_lines(["*raw values left*", "*record 3*"])
    assert not whole.stdout.str().count("leaks/scan.py")
    pytester.runpytest_subprocess("-k", "share").assert_outcomes(passed=4, deselected=4)


def test_other_tests_do_not_blunt_the_assertions(pytester: pytest.Pytester) -> None:
    """Those that name none share the other half, so a helper's assertion has a rate too."""
    read = "from privfed.testing.assertions.alpha import share as rate"
    pytester.makepyfile(
        helper=f"{read}\ndef told(): return rate(None)",
        test_others="""
            import helper, pytest
            @pytest.mark.parametrize("number", range(50))
            def test_other(number):
                assert helper.told() == pytest.approx(0.05 / 2 / 50 / 2)
        """,
        test_naming="""
            from privfed.testing import assert_no_raw
            def test_one():
                import helper
                assert helper.told() == 0.05 / 2 / 2
        """,
    )
    run(pytester).assert_outcomes(passed=51)


@pytest.mark.parametrize(
    ("test", "message"),
    [
        ("@pytest.mark.privacy(epsilom=1)\ndef test_it(leakcheck): pass", "knows epsilon, delta"),
        ("def test_it(leakcheck): leakcheck.assert_dp(len, ([1], []))", "needs a claim"),
    ],
)
def test_misuse_is_told(pytester: pytest.Pytester, test: str, message: str) -> None:
    """A misspelt claim and a missing one."""
    pytester.makepyfile(f"import pytest\n{test}")
    done = run(pytester)
    assert done.ret != 0
    assert message in done.stdout.str() + done.stderr.str()


def test_a_rate_that_is_none_is_told(pytester: pytest.Pytester) -> None:
    """In the settings or on the command line."""
    pytester.makepyfile("def test_it(): pass")
    done = run(pytester, "--privfed-alpha", "2")
    assert "must lie between 0 and 1" in done.stdout.str() + done.stderr.str()


def test_loading_the_plugin_is_cheap() -> None:
    """Whoever installs privfed pays nothing for it in suites that do not use it."""
    program = "import privfed.testing.plugin, sys; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert not {"numpy", "pandas", "scipy"} & set(done.stdout.split())


def test_a_session_says_what_was_not_read() -> None:
    """Each kind in one number, and nothing where all was; a worker tells it, too."""
    seen = [Looked(0, (), {"socket": 1, "string of bytes": 1}), Looked(1, (), {"socket": 2})]
    session = Suite()
    session.merge(Suite(seen=seen).to_dict())
    first, *more = session.summary()
    assert first.startswith("2 assertions looked for raw values: 1 finding,")
    assert more == ["not read in full: 3 x socket", "not read in full: 1 x string of bytes"]
    assert len(Suite(seen=[Looked(0)]).summary()) == 1


def test_accepted_findings_are_counted_as_findings_are() -> None:
    """Two findings of one rule at one place are one line of the baseline, and two of the findings."""
    suite = Suite(test="test_x", recording=True)
    twice = [Evidence("verbatim", "a raw value", 40.0, lambda: "a[0]", str)] * 2
    assert suite.unaccepted(twice, Looked(2), str) == twice
    suite.accept_last()
    assert suite.unaccepted(twice, Looked(2), str) == []
    assert len(suite.accepted) == 1
    session = Suite()
    session.merge(suite.to_dict())
    assert session.summary()[0].endswith("4 findings, 4 of them accepted by the baseline")


def test_a_session_knows_all_that_its_workers_know() -> None:
    """Results of two workers as one: what a summary and a baseline are made of, nothing lost on the way."""
    known = [
        Suite(
            seen=[Looked(k, (f"column {k}",), {"socket": k}, accepted=k)],
            used={f"used {k}"},
            ran={f"test {k}"},
            stopped={f"stopped {k}"},
            accepted={f"digest {k}": f"test {k}: verbatim"},
        )
        for k in (1, 2)
    ]
    session = Suite()
    for worker in known:
        session.merge(worker.to_dict())
    for name in ("used", "ran", "stopped", "accepted"):
        assert getattr(session, name) == getattr(known[0], name) | getattr(known[1], name)
    assert session.seen == known[0].seen + known[1].seen


LEAKY = """
import numpy as np
import pandas as pd
import pytest
from privfed.testing import assert_no_raw

LETTERS = np.random.default_rng(3).choice(list("aeioubdfgklmnrst"), (60, 9))
TABLE = pd.DataFrame({"name": ["Vogelsang-" + "".join(row).title() for row in LETTERS],
                      "dose": np.random.default_rng(0).normal(50, 9, 60).round(4)})

@pytest.fixture
def patients():
    return TABLE

def test_leak(patients):
    print("looking at", TABLE["name"][7], TABLE["dose"][7])
    assert_no_raw({"who": TABLE["name"][7]}, patients)

@pytest.mark.leaks(off=["names", "lines"])
def test_names_are_public_here():
    assert_no_raw({"who": TABLE["name"][7]}, TABLE)
"""


def test_a_failure_prints_no_raw_value(pytester: pytest.Pytester) -> None:
    """Neither the captured output nor the fixture's repr; and the session says what was looked at."""
    pytester.makepyfile(LEAKY)
    done = run(pytester, "--showlocals", "-vv")
    done.assert_outcomes(passed=1, failed=1)
    text = done.stdout.str()
    assert "Vogelsang-" not in text.replace('"Vogelsang-"', "")
    assert "looking at [raw] [raw]" in text
    assert not [one for one in DOSES if one in text]
    done.stdout.fnmatch_lines(["*raw values*", "2 assertions looked for raw values: 1 finding, *"])
    done.stdout.fnmatch_lines(["FAILED *::test_leak - *RawValueLeft*"])


CALLED = """
import numpy as np
import pandas as pd
import pytest
from privfed.testing import assert_dp, assert_support

DOSES = np.random.default_rng(0).normal(50, 9, 60).round(4)
TABLE = pd.DataFrame({"dose": DOSES, "weight": DOSES + 20})

def fails(table):
    raise ValueError("no")

def test_support():
    assert_support(fails, TABLE)

@pytest.mark.parametrize("neighbours", [[TABLE, TABLE[1:]], (TABLE, 3)])
def test_dp(neighbours):
    assert_dp(lambda table: fails(table[1:]), neighbours, epsilon=1, trials=10)
"""


def test_no_assertion_s_failure_prints_a_raw_value(pytester: pytest.Pytester) -> None:
    """Not the table that is passed on to the code under test, nor the arguments of what refuses it."""
    pytester.makepyfile(CALLED)
    done = run(pytester, "--showlocals", "-vv")
    done.assert_outcomes(failed=3)
    assert "dose" in done.stdout.str() and not [x for x in DOSES if x in done.stdout.str()]


DOSES = [f"{x:.4f}" for x in __import__("numpy").random.default_rng(0).normal(50, 9, 60)]


def test_findings_are_accepted_by_a_baseline(pytester: pytest.Pytester) -> None:
    """Written once, reviewable, without a value; then met, in workers too; another finding still fails."""
    pytester.makepyfile(LEAKY)
    pytester.makeini("[pytest]\nprivfed_baseline = leaks.json")
    run(pytester, "--privfed-update-baseline").assert_outcomes(passed=2)
    held = (pytester.path / "leaks.json").read_text()
    assert "test_leak: a raw text" in held and "Vogelsang" not in held
    again = pytester.runpytest_subprocess(*CACHELESS, "-n", "1")
    again.assert_outcomes(passed=2)
    again.stdout.fnmatch_lines(["*1 finding, 1 of them accepted*"])
    pytester.makepyfile(LEAKY.replace('["who": ', '["whom": ').replace('{"who"', '{"whom"'))
    run(pytester).assert_outcomes(passed=1, failed=1)
    (pytester.path / "leaks.json").write_text("[]")
    broken = run(pytester)
    assert "is no baseline" in broken.stdout.str()


EXPECTED = """
import pytest
from privfed.testing import assert_no_raw
from test_leaky import TABLE

LEFT = {"who": TABLE["name"][7]}

def test_expected():
    with pytest.raises(AssertionError):
        assert_no_raw(LEFT, TABLE)
    try:
        assert_no_raw(LEFT, TABLE)
    except AssertionError:
        assert_no_raw([LEFT], TABLE)

@pytest.mark.xfail(strict=True)
def test_known_failure():
    assert_no_raw(LEFT, TABLE)
"""


def test_what_a_test_expects_is_not_accepted(pytester: pytest.Pytester) -> None:
    """Findings that a test catches and known failures are none of the baseline; what fails a test is."""
    pytester.makepyfile(test_leaky=LEAKY, test_expected=EXPECTED)
    pytester.makeini("[pytest]\nprivfed_baseline = leaks.json")
    first = (*CACHELESS, "--privfed-update-baseline")
    done = pytester.runpytest_subprocess(*first, "-n", "1")
    done.assert_outcomes(passed=3, xfailed=1)
    done.stdout.fnmatch_lines(["2 tests ended where a finding was accepted: *again*"])
    accepted = json.loads((pytester.path / "leaks.json").read_text())["accepted"]
    assert sorted(text.split("::")[1].split(":")[0] for text in accepted.values()) == [
        "test_expected",
        "test_leak",
    ]
    again = run(pytester)
    again.assert_outcomes(passed=3, xfailed=1)


def test_rules_are_switched_off_in_the_settings(pytester: pytest.Pytester) -> None:
    """By name; a name that is none is told."""
    pytester.makepyfile(LEAKY)
    pytester.makeini("[pytest]\nprivfed_off = names lines")
    run(pytester).assert_outcomes(passed=2)
    pytester.makeini("[pytest]\nprivfed_off = nams")
    done = run(pytester)
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    assert done.stderr.str().strip().startswith("ERROR: privfed_off: no rule is called ['nams'];")


def test_a_baseline_that_is_not_named_is_told(pytester: pytest.Pytester) -> None:
    """Else all findings would pass, and none would be written."""
    pytester.makepyfile(LEAKY)
    done = run(pytester, "--privfed-update-baseline")
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    assert "no baseline is named; write privfed_baseline" in done.stderr.str()


def test_what_did_not_run_stays_accepted(pytester: pytest.Pytester) -> None:
    """A baseline that is written anew by a part of the suite keeps the rest; what ran and is mended goes."""
    pytester.makepyfile(test_one=LEAKY, test_two=LEAKY)
    pytester.makeini("[pytest]\nprivfed_baseline = leaks.json")
    update = "--privfed-update-baseline"
    pytester.runpytest_subprocess(*CACHELESS, update, "-n", "2").assert_outcomes(passed=4)
    held = (pytester.path / "leaks.json").read_text()
    assert "test_one.py::test_leak" in held and "test_two.py::test_leak" in held
    run(pytester, update, "test_two.py").assert_outcomes(passed=2)
    assert (pytester.path / "leaks.json").read_text() == held
    pytester.makepyfile(
        test_two="def test_leak(leakcheck): leakcheck.assert_no_raw({}, [[1.5]] * 20, may_be_empty=True)"
    )
    run(pytester, update, "test_two.py").assert_outcomes(passed=1)
    kept = (pytester.path / "leaks.json").read_text()
    assert "test_one.py::test_leak" in kept and "test_two.py" not in kept
