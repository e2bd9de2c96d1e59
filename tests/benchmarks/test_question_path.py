"""The path of one question: few files, few changes of file, and nothing priced or read twice."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from question_path import changes, federation

from privfed.testing.queries import Histogram

FIRST = Histogram(0, (0.0, 40.0, 100.0))
#: What was reached: 22 files and 95 changes, and room for caches that other tests have filled (once 28 and 183).
FILES, CHANGES = 22, 98


def test_a_question_s_path_is_no_longer_than_it_was() -> None:
    """After one of its kind, a question runs through no more files, nor changes file more often."""
    asked = federation()
    asked.ask(FIRST)
    question = Histogram(0, (0.0, 50.0, 100.0))
    found = changes(lambda: asked.ask(question))
    assert 10 < len({there for _, there, _ in found}) <= FILES
    assert 50 < len(found) <= CHANGES


def test_a_guard_is_priced_once_and_each_reply_is_opened_once() -> None:
    """The first question of its kind is priced by one call, the next one by none."""
    asked = federation()
    calls = [
        Counter(name for *_, name in changes(lambda q=question: asked.ask(q)))  # type: ignore[misc]
        for question in (FIRST, replace(FIRST, edges=(0.0, 50.0, 100.0)))
    ]
    for own, times in zip(calls, (1, 0), strict=True):
        assert own["Laplace.scale"] == own["DiscreteLaplace.loses"] == times
        assert own["DiscreteLaplace.draw"] == own["Envelope.open"] == 1
    assert calls[0]["joint"] <= 2
