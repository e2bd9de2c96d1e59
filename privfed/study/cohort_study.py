"""A study of a cohort: each individual owns a file of rules, and a rule search learns from all.

One process holds everybody's rules, and one gate answers for everybody: a simulation of many
phones. It knows the truth, and so it can say what a search missed; that is not publishable for real
data.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from privfed.cohort import CohortDisclosure
from privfed.errors import InputError
from privfed.learners.base import FederatedLearner
from privfed.learners.rule_search import RuleSearch
from privfed.learners.rule_search.population_rules import coverage
from privfed.learners.rule_search.rule_book import RuleBook
from privfed.learners.stl.grammar import Grammar, Symbols
from privfed.learners.stl.rule_file import read_rules
from privfed.policy import Policy
from privfed.records import Records
from privfed.schema import Schema
from privfed.study import Study

#: Ends of rule files' names.
ENDINGS = (".stl", ".txt")
NAME = "cohort"


@dataclass(frozen=True, eq=False)
class PreparedCohort:
    """A study's cohort.

    Args:
        study: the study.
        book: everybody's rules, over the learner's grammar and the schema's bounds.
        threshold: the share of individuals that makes a rule valid.
    """

    study: Study
    book: RuleBook
    threshold: float

    @property
    def schema(self) -> Schema:
        """The public variables of the rules."""
        return self.book.schema

    def truth(self) -> dict[str, Records]:
        """No records: attacks on tables find nothing to be scored by."""
        return {}

    def federate(self, adopted: Policy, ledgers: Path, block: int) -> CohortDisclosure:
        """Put the cohort's gate before the rules, with one ledger.

        Raises:
            PolicyError: charges reserved in blocks, which no individual's budget could follow.
        """
        ledgers.mkdir(parents=True)
        return CohortDisclosure.of(
            self.book,
            adopted,
            seed=self.study.seed if self.study.noise == "test" else None,
            ledger=ledgers / f"{NAME}.db",
            name=NAME,
            study=self.study.name,
            block=block,
        )

    def score(self, model: FederatedLearner, schema: Schema) -> dict[str, Any]:
        """How many of the valid rules were found, how many found ones are valid, and what lacks."""
        assert isinstance(model, RuleSearch)
        valid = self.book.valid(self.threshold * self.book.people)
        found = {one.structure for one in model.found_}
        covered, precise = coverage(found, valid)
        hint = model.outlook(schema, self.book.people) if covered == 0 else ""
        return {
            **({"hint": hint} if hint else {}),
            "measure": "coverage of the valid rules",
            "better": "higher",
            "value": covered,
            "told": told(found, valid),
            "baseline": 0.0,
            "scores": {"precision": precise, "valid rules": len(valid), "found rules": len(found)},
        }

    def facts(self) -> dict[str, Any]:
        """How much the cohort holds."""
        return {"individuals": self.book.people, "records": {NAME: self.book.rules}, "clipped": {}}


def told(found: Collection[Symbols], valid: Collection[Symbols]) -> str:
    """What was found of what is valid, in words; a simulation's alone."""
    right = len(set(found) & set(valid))
    if not valid:
        return f"no rule is valid; {len(found) or 'nothing'} found"
    if not found:
        return f"nothing found of {len(valid)} valid rules"
    return f"{right} of {len(valid)} valid rules found, {len(found) - right} found wrongly"


def prepare(study: Study, model: RuleSearch) -> PreparedCohort:
    """Read everybody's rules.

    Raises:
        InputError: a parameter that makes no sense, no such folder, no rule file in it, or a rule
            outside the grammar, by its line.
    """
    schema = public_schema(study)
    model.check(schema)
    grammar = Grammar.of(schema, model.operators, model.most_operators, model.horizon)
    rules = {path.stem: read_rules(path, grammar) for path in rule_files(study)}
    return PreparedCohort(study, RuleBook.of(rules, grammar), model.threshold)


def public_schema(study: Study) -> Schema:
    """The public bounds that a cohort's study names; no rule is read."""
    return Schema.from_toml(study.folder / str(study.data.schema))


def rule_files(study: Study) -> list[Path]:
    """One file for each individual, in the order of their names."""
    folder = study.folder / study.data.source
    if not folder.is_dir():
        raise InputError(f"folder {study.data.source}: there is none; name a folder of rule files")
    files = sorted(path for path in folder.iterdir() if path.suffix in ENDINGS)
    if not files:
        raise InputError(
            f"folder {study.data.source}: holds no rule file; write one .stl file for each "
            "individual, one formula a line"
        )
    if len({path.stem for path in files}) != len(files):
        raise InputError(f"folder {study.data.source}: two files are of one individual; keep one")
    return files
