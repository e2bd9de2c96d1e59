"""A study's schema file, checked against its target."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from privfed.errors import Faults, StudyError, did_you_mean
from privfed.study.study import Study
from privfed.tables.csv_text import FILES
from privfed.tables.schema import Schema
from privfed.tables.sources import bundled, columns, no_source
from privfed.tables.sources import public_schema as schema_of


def schema_file(study: Study, header: Sequence[str] | None) -> Schema:
    """Read a study's schema file, with a target: the study's, the file's, or the table's last column.

    ``header`` has the table's columns, if known. StudyError: the two do not name one listed target.
    """
    path, target = study.data.schema, study.data.target
    schema = Schema.from_toml(study.folder / str(path))
    names = [column.name for column in schema.columns]
    file_target = None if schema.target is None else schema.target.name
    if file_target is not None and target in (None, file_target):
        return schema
    if file_target is not None and target in names:
        raise StudyError(
            f"schema file {path}: predicts {file_target!r}, and the study {target!r}; write one target in both"
        )
    last = header[-1] if target is None and header else target
    if file_target is None and last in names:
        raise StudyError(
            f'schema file {path}: write target = "{last}" at its top, the column that the study predicts'
        )
    if file_target is not None:
        raise StudyError(
            f"schema file {path}: predicts {file_target!r} and lists no column {target!r}; write target = "
            f'"{file_target}" under [data], or a [[column]] for the other{did_you_mean(str(target), names)}'
        )
    which = f"lists no column {target!r}" if target is not None else "names no target"
    raise StudyError(
        f"schema file {path}: {which}; write at its top which of its columns is predicted: "
        f"{', '.join(names)}{did_you_mean(str(target), names) if target else ''}"
    )


def has_table(study: Study) -> bool:
    """Whether a study's table exists here; on the server of several machines it does not."""
    source = study.data.source
    return not source.endswith(FILES) or (study.folder / source).is_file()


def public_schema(study: Study, *, deployed: bool = False) -> Schema:
    """Return the schema for pricing a study, from public files only (StudyError: there is none).

    ``deployed``: on several machines, no table's header is read.
    """
    source, data = study.data.source, study.data
    if study.clients.partition == "cohort":
        return Schema.from_toml(study.folder / str(data.schema))
    if data.schema is None and source in bundled():
        return positive(schema_of(source), data.positive)
    if data.schema is None:
        raise StudyError(
            "a price needs a public schema, since bounds inferred from records are a release; write "
            'schema = "schema.toml" under [data]'
        )
    if deployed or not source.endswith(FILES):
        if (
            not source.endswith(FILES)
            and not source.startswith("openml:")
            and source not in bundled()
        ):
            no_source(source)
        return positive(schema_file(study, None), data.positive)
    header = columns(study.folder / source, text=data.text)
    schema, faults = positive(schema_file(study, header), data.positive), Faults()
    required = {c.name for c in schema.columns} | {study.clients.column, data.individual}
    for name in sorted(required - {None, *header}, key=str):
        hint = did_you_mean(str(name), header)
        faults.add(
            StudyError(
                f"data file {source}: no column {name!r}; its columns are {', '.join(header)}{hint}"
            )
        )
    faults.tell(StudyError)
    check_owners(study, schema)
    return schema


def check_owners(study: Study, schema: Schema) -> None:
    """Check that the column of owners is no feature and no target (StudyError: it is one)."""
    if schema.target is not None and study.clients.column == schema.target.name:
        raise StudyError(
            f"[clients]: column {study.clients.column!r} is the target, and everybody knows who owns a record; "
            "name another column that says who owns each record"
        )
    if study.clients.column in schema.names:
        raise StudyError(
            f"[clients]: column {study.clients.column!r} is a feature of the schema; take it out of "
            "the schema, or name another column that says who owns each record"
        )


def positive(schema: Schema, chosen: str | None) -> Schema:
    """Return the schema with the positive one of its target's two categories last, for learners."""
    target = schema.target
    if chosen is None or target is None:
        return schema
    if target.numeric or len(target.categories) != 2:
        raise StudyError(
            f"[data]: positive = {chosen!r} goes with a target of two categories, and {target.name!r} "
            "is none; leave it out"
        )
    if chosen not in target.categories and schema.inferred:
        raise StudyError(
            f"[data]: positive = {chosen!r} is none of the two categories that the records hold for "
            f"{target.name!r}; write one of them, or a public schema that lists them"
        )
    if chosen not in target.categories:
        categories = ", ".join(target.categories)
        raise StudyError(
            f"[data]: positive must be one of the categories that the schema lists for {target.name!r}: "
            f"{categories}{did_you_mean(chosen, target.categories)}"
        )
    order = tuple(sorted(target.categories, key=lambda category: category == chosen))
    return replace(schema, target=replace(target, categories=order))
