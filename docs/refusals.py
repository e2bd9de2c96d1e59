"""What privfed refuses: each attempt is carried out, and the page quotes the error that it ends with."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

from privfed.errors import PrivfedError

#: What all attempts begin with.
BEFORE = """
from dataclasses import replace
from pathlib import Path

import pandas as pd

from privfed import LocalDisclosure, Schema
from privfed.learners import FuzzyTreeRegressor, RuleFitRegressor
from privfed.study import Study
from privfed.study.assembly import run
from privfed.testing.hospitals import NUMERIC, patients

learner = FuzzyTreeRegressor(n_fuzzy_sets=3, max_depth=1)


def hospitals(policy, schema=NUMERIC, **more):
    return LocalDisclosure.from_frame(
        patients(300), target="days", client="hospital", schema=schema, policy=policy, **more
    )


def study(name, **more):
    return Study.from_dict(
        {
            "name": name,
            "data": {"source": "linnerud"},
            "clients": {"count": 2, "ledgers": "owners"},
            "learner": {"name": "FuzzyTreeRegressor", "params": {"max_depth": 1}},
            "policy": [{"name": "private", "epsilon": "2"}],
            **more,
        }
    )


def carry_out(study, folder, overwrite=False):
    run(study, Path(folder), overwrite, attacked=False)
""".strip()


@dataclass(frozen=True)
class Attempt:
    """Something that is refused."""

    title: str  #: what somebody tries
    why: str  #: why it is refused
    code: str  #: how it is tried


ATTEMPTS = (
    Attempt(
        "Read bounds off the records under a budget",
        "A minimum is a value of one record. Clipping to it tells of that record, and no epsilon counts it.",
        "hospitals(learner.private(epsilon=2), schema=None)",
    ),
    Attempt(
        "Take dates or names for categories",
        "A category that one person has names that person in every release that lists categories.",
        'born = [f"2001-01-0{day % 9 + 1}" for day in range(120)]\n'
        'Schema.infer(pd.DataFrame({"born": born, "days": range(120)}), target="days")',
    ),
    Attempt(
        "Ask what the owner's policy does not name",
        "The owner decides which questions her gate answers. Another learner's questions are not among them.",
        "RuleFitRegressor().fit(hospitals(learner.private(epsilon=2)))",
    ),
    Attempt(
        "Spend a budget twice",
        "Losses add up. A budget that begins anew with each model bounds nothing.",
        "federation = hospitals(learner.private(epsilon=2))\nlearner.fit(federation)\nlearner.fit(federation)",
    ),
    Attempt(
        "Write an epsilon that promises nothing",
        "Above some epsilon the bound on every attack is 1. A number in a report would suggest otherwise.",
        "learner.private(epsilon=10**9)",
    ),
    Attempt(
        "Protect persons without saying whose the records are",
        "A person's records can be bounded only where each record names its person.",
        'hospitals(replace(learner.private(epsilon=2), unit="individual", cap=1))',
    ),
    Attempt(
        "Draw seeded noise where ledgers are persistent",
        "Whoever knows the seed subtracts the noise. Lasting ledgers are for real records.",
        'carry_out(study("first", noise="test"), "first")',
    ),
    Attempt(
        "Delete a ledger, and begin with a full budget",
        "What was released stays released. The heads of lasting ledgers are remembered outside of their folder.",
        'carry_out(study("first"), "first")\n'
        'for file in Path("owners").iterdir():\n    file.unlink()\n'
        'carry_out(study("second"), "second")',
    ),
    Attempt(
        "Replace the policy of a persistent ledger",
        "An owner changes her policy knowingly (`amend=True`), and the ledger records it.",
        'learner.fit(hospitals(learner.private(epsilon=2), ledgers="owners"))\n'
        'hospitals(learner.private(epsilon=4), ledgers="owners")',
    ),
    Attempt(
        "Begin a study that does not fit what is left",
        "A study reserves all that it may ask before it asks anything, so that none ends halfway without a model.",
        'carry_out(study("first"), "first")\ncarry_out(study("second"), "second")',
    ),
    Attempt(
        "Publish two guarantees from one budget",
        "Two policies over the same records add up. Under lasting ledgers a study carries out one.",
        'policies = [{"name": name, "base": "private", "epsilon": "1"} for name in ("one", "two")]\n'
        'carry_out(study("first", policy=policies), "first")',
    ),
    Attempt(
        "Write an output over other files",
        "`overwrite` removes ledgers. A folder with anything that no study wrote is left as it is.",
        'Path("mine").mkdir()\nPath("mine", "notes.txt").write_text("keep")\n'
        'carry_out(Study.built_in(), "mine", overwrite=True)',
    ),
    Attempt(
        "Mask sums that carry no noise of their own",
        "Masks hide one owner's share of a noisy total. Around exact numbers they would hide nothing from the total.",
        'hospitals(learner.published().masked_among(["A", "B", "C"]))',
    ),
    Attempt(
        "Turn a guarantee for replaced records into one for removed records",
        "Replacing a record never changes how many there are; the number itself is not covered.",
        "from privfed.privacy.neighbours import Neighbours\n\n"
        'Neighbours("replace-one", "record", None).steps(Neighbours("add-or-remove", "record", None))',
    ),
    Attempt(
        "Load a model from a pickle",
        "A pickle runs code when it is read. Models are JSON.",
        "from privfed.learners import load\n\n"
        'Path("model.pkl").write_bytes(b"\\x80\\x04N.")\nload("model.pkl")',
    ),
)


def message(attempt: Attempt) -> str:
    """Carry out an attempt in a folder of its own; return the error that refuses it.

    Raises:
        AssertionError: nothing refused it.
    """
    with _elsewhere():
        names: dict[str, Any] = {}
        exec(BEFORE, names)
        try:
            exec(attempt.code, names)
        except PrivfedError as refused:
            return str(refused).replace(f"{Path.cwd()}/", "")
    raise AssertionError(f"{attempt.title}: was not refused")


def page() -> str:
    """Return the page, with each attempt's own message."""
    begun = (
        "# What privfed will not let you do\n\n"
        "Each of these was tried when this page was built; the message is the one that it ended with. A message "
        "says what is wrong, where, and what to write instead. How a gate refuses a single question is in "
        "[errors](errors.md); what is *not* refused, and not protected either, is in the "
        "[threat model](../threat-model.md).\n\n"
        f"All attempts begin with\n\n```python\n{BEFORE}\n```\n"
    )
    parts = [begun]
    for attempt in ATTEMPTS:
        quoted = "\n".join(f"> {line}" for line in message(attempt).splitlines())
        parts.append(
            f"## {attempt.title}\n\n{attempt.why}\n\n```python\n{attempt.code}\n```\n\n{quoted}\n"
        )
    return "\n".join(parts)


@contextmanager
def _elsewhere() -> Iterator[None]:
    """Work in an empty folder, which also remembers the heads of its ledgers."""
    here = Path.cwd()
    with tempfile.TemporaryDirectory() as folder, patch.dict(os.environ, XDG_STATE_HOME=folder):
        try:
            os.chdir(folder)
            yield
        finally:
            os.chdir(here)
