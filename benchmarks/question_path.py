"""The path of one question through the code: how many files it runs in, and how often it changes file.

A histogram under Laplace noise is asked of one client over its gate, ledger in memory, after one of
its kind was asked before. A change of file is a call of privfed's code by code of another file of
privfed.

    python benchmarks/question_path.py [--calls]
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from types import FrameType
from typing import Any

import numpy as np
from result_rows import arguments

from privfed import Budget, Column, Gate, Guard, Ledger, LocalDisclosure, Policy, Records, Schema
from privfed.privacy.noise import TestNoise
from privfed.testing.queries import Histogram

SCHEMA = Schema((Column("age", lower=0, upper=100),))


def federation() -> LocalDisclosure:
    """One client that answers histograms under Laplace noise."""
    policy = Policy(
        {Histogram.kind: (Guard.of("laplace", spend="0.1"),)}, budget=Budget.of("1"), name="path"
    )
    records = Records(SCHEMA, np.arange(100.0)[:, None])
    gate = Gate(
        *("clinic", records, policy, Ledger(None, "clinic")),
        queries=(Histogram,),
        noise=TestNoise(1),
    )
    return LocalDisclosure({"clinic": gate})


def changes(ask: Callable[[], Any]) -> list[tuple[str, str, str]]:
    """Every call that goes from one file of privfed to another: the files, and what is called."""
    found: list[tuple[str, str, str]] = []

    def called(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and (there := _file(frame)):
            caller = frame.f_back
            while caller is not None and not _file(caller):
                caller = caller.f_back
            here = _file(caller) if caller is not None else ""
            if here != there:
                found.append((here, there, frame.f_code.co_qualname))

    sys.setprofile(called)
    try:
        ask()
    finally:
        sys.setprofile(None)
    return found


def _file(frame: FrameType) -> str:
    """The module of privfed that a frame runs in, or none: one file each, wherever it is installed."""
    name, written = str(frame.f_globals.get("__name__")), frame.f_code.co_filename[:1] != "<"
    return name if written and name.startswith("privfed.") else ""


def main() -> None:
    """Print the figures."""
    parser = arguments(__doc__)
    parser.add_argument("--calls", action="store_true", help="list the calls and how often each is")
    options = parser.parse_args()
    asked = federation()
    asked.ask(Histogram(0, (0.0, 40.0, 100.0)))
    question = Histogram(0, (0.0, 50.0, 100.0))
    found = changes(lambda: asked.ask(question))
    print(f"{len({there for _, there, _ in found})} files, {len(found)} changes of file")
    if options.calls:
        for (here, there, name), times in Counter(found).most_common():
            print(f"{times:4}  {here} -> {there}: {name}")


if __name__ == "__main__":
    main()
