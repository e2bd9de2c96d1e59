"""The files of a new study, from an interview's answers or a command's options."""

import os
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import tomli_w

from privfed.errors import InputError, SchemaError, no_column
from privfed.privacy.policy import Policy
from privfed.study import Study, dry_run
from privfed.study.output import check_empty, new_folder, write_text
from privfed.study.scaffold import (
    ColumnSummary,
    column_summaries,
    column_text,
    form_of,
    format_keys,
    line,
)
from privfed.tables.csv_text import FILES
from privfed.tables.schema import Schema
from privfed.tables.sources import bundled, no_source, public_schema

#: Each learner's model, by whether the target is numeric
LEARNERS: Mapping[bool, Mapping[str, str]] = {
    True: {
        "RuleFitRegressor": "a short list of rules and lines, each with what it adds, and its interval",
        "FuzzyTreeRegressor": "one tree of rules in words (low, medium, high), good where effects are smooth",
        "FedForestRegressor": "a forest; most trees, hardest to read",
        "GeneticTreeRegressor": "one small tree for each data owner, for owners who differ",
    },
    False: {
        "RuleFitClassifier": "two classes or more: a short list of rules and lines, each with what it adds",
        "FedForestClassifier": "a forest for two classes or more; most trees, hardest to read",
        "GeneticTreeClassifier": "one small tree for each data owner, for owners who differ",
    },
}
_HEAD = """\
# What is learned, from whom, and what it may disclose. Every key: `docs/files.md`.
#   privfed price study.toml     what it would cost each data owner; reads no record
#   privfed audit study.toml     train, attack the releases, write a report
"""

_POLICY = """\
# The policy that base = "private" stands for. To change it, write base = "policy.toml" in the study, without epsilon and delta.
"""
_SCHEMA = """\
# What a column can hold, from the form, the instrument or the regulation, never from the records.
"""


@dataclass(frozen=True)
class NewStudy:
    """Settings of a new study, and its table."""

    folder: Path  #: new or empty; its files are written there
    table: str  #: a file's path or a bundled set's name
    target: str  #: the column to predict
    #: the column that names each record's data owner; None: five simulated
    owner: str | None = None
    individual: str | None = None  #: the column that names the person behind each record
    learner: str = ""  #: by name; default: RuleFit
    epsilon: str = "4"  #: the whole budget
    lasting: bool = False  #: one budget for all studies, in persistent ledgers
    about: Mapping[str, str] = field(default_factory=dict)  #: as :class:`.AboutChoice`
    bounds: Mapping[str, tuple[float, float]] = field(default_factory=dict)  #: public, by column
    categories: Mapping[str, Sequence[str]] = field(default_factory=dict)  #: public, by column
    left_out: Sequence[str] = ()  #: columns that are no features

    def write(self) -> list[Path]:
        """Write ``study.toml``, ``schema.toml``, and if the schema is complete ``policy.toml``.

        Raises:
            InputError: the folder is not empty, or the table, a column or the learner does not exist.
        """
        check_empty(self.folder)
        names = [column.name for column in columns_of(self.table)]
        for name in filter(None, (self.target, self.owner, self.individual, *self.left_out)):
            if name not in names:
                raise InputError(f"table {self.table}: {no_column(name, names)}")
        if self.target in (self.owner, self.individual):
            raise InputError(
                f"table {self.table}: column {self.target!r} is to be predicted; name another one for the owners or "
                "individuals"
            )
        suitable = learners(self.table, self.target, self.categories)
        if self.learner not in suitable and any(
            self.learner in group for group in LEARNERS.values()
        ):
            raise InputError(
                f"table {self.table}: {self.learner} does not predict a column such as {self.target!r}; write one of "
                f"{', '.join(suitable)}, or name another target"
            )
        schema_text = None if self.table in bundled() else self._schema()
        data = self._study_dict(schema=schema_text is not None)
        files = {"study.toml": _HEAD + _tables(data)}
        if schema_text is not None:
            files["schema.toml"] = schema_text
        policy = self._policy(Study.from_dict(data, folder=self.folder.resolve()), schema_text)
        if policy is not None:
            files["policy.toml"] = _POLICY + tomli_w.dumps(policy.to_dict())
        with new_folder(self.folder) as folder:
            for name, text in files.items():
                write_text(folder / name, text)
        return [self.folder / name for name in files]

    def _policy(self, study: Study, schema_text: str | None) -> Policy | None:
        """Return the study's private policy; None while the schema's bounds are missing."""
        choice = study.policies[0]
        learner = dry_run.learner(study, choice)
        try:
            schema = (
                public_schema(self.table)
                if schema_text is None
                else Schema.from_dict(tomllib.loads(schema_text))
            )
        except SchemaError:
            return None
        learner.check(schema)
        return dry_run.policy(choice, learner, schema, self.folder, deployed=False)

    def _schema(self) -> str:
        """Return the schema of the features and the target as TOML, with the known bounds and categories."""
        excluded = {self.owner, self.individual, *self.left_out} - {self.target}
        blocks = [
            column_text(
                replace(column, kind="category") if column.name in self.categories else column,
                self.bounds.get(column.name),
                self.categories.get(column.name, ()),
            )
            for column in columns_of(self.table, self.target)
            if column.name not in excluded
        ]
        head = [line("name", Path(self.table).name.split(".")[0]), line("target", self.target)]
        return _SCHEMA + "\n".join([*head, "", "\n\n".join(blocks)]) + "\n"

    def _study_dict(self, *, schema: bool) -> dict[str, Any]:
        data: dict[str, Any] = {"source": self.table}
        if schema:
            data["source"] = os.path.relpath(self.table, self.folder)
            data |= {"schema": "schema.toml", **format_keys(form_of(Path(self.table)))}
        if self.individual is not None:
            data["individual"] = self.individual
        clients: dict[str, Any] = {"partition": "iid", "count": 5}
        if self.owner is not None:
            clients = {"partition": "column", "column": self.owner}
        if self.lasting:
            clients["ledgers"] = "ledgers"
        policy: dict[str, Any] = {"name": "private", "epsilon": self.epsilon, "delta": "1e-5"}
        if self.individual is not None:
            policy |= {"unit": "individual", "cap": 1}
        return {
            "name": self.folder.resolve().name,
            **({"about": dict(self.about)} if self.about else {}),
            "data": data,
            "clients": clients,
            "learner": {
                "name": self.learner or learners(self.table, self.target, self.categories)[0]
            },
            "policy": [policy],
        }


def learners(table: str, target: str, categories: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the names of the learners that can predict a target, the default first."""
    columns = columns_of(table, target)
    kind = next((column.kind for column in columns if column.name == target), "number")
    classes = categories.get(target, ())
    if table in bundled():
        classes = public_schema(table).column(target).categories
    return list(LEARNERS[kind != "category" and not classes])


def _tables(data: Mapping[str, Any]) -> str:
    """Format a study as TOML, its policies last, one table each."""
    others = {key: value for key, value in data.items() if key != "policy"}
    policies = "".join(f"\n[[policy]]\n{tomli_w.dumps(policy)}" for policy in data["policy"])
    return tomli_w.dumps(others) + policies


def columns_of(table: str, target: str = "") -> list[ColumnSummary]:
    """Return the columns of a file, or of a bundled set (its target last); InputError if it is neither.

    A target with two integer values, such as 0 and 1, is categorical.
    """
    if table in bundled():
        return [
            ColumnSummary(column.name, column.kind, None) for column in public_schema(table).columns
        ]
    if not table.endswith(FILES):
        no_source(table)
    return [
        replace(item, kind="category") if item.two_values and item.name == target else item
        for item in column_summaries(Path(table), form_of(Path(table)))
    ]
