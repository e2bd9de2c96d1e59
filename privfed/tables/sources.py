"""Sources of tables: scikit-learn's bundled sets, CSV and Excel files, OpenML by name."""

from __future__ import annotations

import csv
import json
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any, NoReturn
from urllib.error import URLError
from zipfile import BadZipFile

import numpy as np
import pandas as pd

from privfed.errors import (
    NO_HEADER,
    InputError,
    Note,
    did_you_mean,
    file_errors,
    may_be_a_record,
    no_column,
    unknown,
)
from privfed.tables.csv_text import FILES, PLACE, PLAIN, Text, opened, proposed
from privfed.tables.schema import Schema
from privfed.tables.table_faults import rows

#: Texts of missing values: pandas' list.
MISSING = frozenset({
    "", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "<NA>", "N/A",
    "NA", "NULL", "NaN", "None", "n/a", "nan", "null",
})  # fmt: skip


@dataclass(frozen=True, eq=False)
class Dataset:
    """One table before it is partitioned among clients."""

    name: str  #: for reports
    #: one row per record; features, target, and optional client and person columns
    frame: pd.DataFrame
    target: str  #: the column to predict
    schema: Schema | None = None  #: the public data dictionary, or None


def bundled() -> tuple[str, ...]:
    """Return the names of bundled sets, which need no network or file; each has a public schema."""
    return tuple(_LOADERS)


def load(
    source: str,
    target: str | None = None,
    folder: Path | None = None,
    *,
    text: Text = PLAIN,
    schema: Schema | None = None,
) -> Dataset:
    """Load a bundled set by name, a path ending in ``FILES``, or ``openml:NAME`` (else InputError).

    ``schema`` as in :func:`read_table`.
    """
    if source.startswith("openml:"):
        return load_openml(source.removeprefix("openml:"), target)
    if source.endswith(FILES):
        return load_csv((folder or Path()) / source, target, text=text, schema=schema)
    return load_bundled(source, target)


def no_source(name: str) -> NoReturn:
    """Raise an InputError that lists the possible sources."""
    raise InputError(
        f"no data set {name!r}; write one of {', '.join(_LOADERS)}, a path ending in "
        f"{', '.join(FILES)}, or openml:NAME{did_you_mean(name, _LOADERS)}"
    )


def load_bundled(name: str, target: str | None = None) -> Dataset:
    """Load one of scikit-learn's bundled sets with its public schema."""
    if name not in _LOADERS:
        no_source(name)
    schema = public_schema(name)
    assert schema.target is not None
    if target not in (None, schema.target.name):
        raise InputError(f"data set {name!r} predicts {schema.target.name!r}; leave target out")
    frame = _LOADERS[name]()
    return Dataset(name, frame[[c.name for c in schema.columns]], schema.target.name, schema)


def public_schema(name: str) -> Schema:
    """Return the public schema of a bundled set, with rounded bounds from public knowledge."""
    if name not in _LOADERS:
        raise InputError(unknown("public schema", name, _LOADERS))
    with as_file(files("privfed.tables") / "schemas" / f"{name}.toml") as path:
        return Schema.from_toml(path)


def load_csv(
    path: str | Path,
    target: str | None = None,
    *,
    text: Text = PLAIN,
    schema: Schema | None = None,
) -> Dataset:
    """Load a file of ``FILES`` with a header row; the target is by default the last column.

    Columns without a name, such as row numbers from pandas and R, are left out with a note.
    """
    where = f"data file {path}"
    header = _header(Path(path), where, text)
    frame = _rows(Path(path), where, header, text, schema)
    chosen = _nonempty(header)[-1] if target is None else target
    return Dataset(Path(path).name.split(".")[0], _check_target(frame, chosen, where), chosen)


def read_table(
    path: str | Path, *, text: Text = PLAIN, schema: Schema | None = None
) -> pd.DataFrame:
    """Read a file of ``FILES`` with a header row and any columns.

    With a ``schema`` all columns but its numeric ones are read as text, so that each cell is read by itself: if the
    type were inferred from the column, "01" would become 1 or "01" depending on other records. A cell in ``MISSING`` is
    missing, unless the schema lists it as a category.
    """
    where = f"data file {path}"
    header = _header(Path(path), where, text, min_columns=1)
    return _rows(Path(path), where, header, text, schema)


def columns(path: str | Path, *, text: Text = PLAIN) -> list[str]:
    """Return the names of a file's columns, without reading records."""
    return _nonempty(_header(Path(path), f"data file {path}", text))


def _nonempty(header: list[str]) -> list[str]:
    return [name for name in header if name]


def load_openml(name: str, target: str | None = None) -> Dataset:
    """Fetch a data set by name from OpenML; the only loader that needs a network."""
    where = f"OpenML data set {name!r}"
    try:
        fetched = _scikit_learn().fetch_openml(name=name, as_frame=True, parser="auto")
    except (URLError, OSError, TimeoutError):
        raise InputError(f"{where}: OpenML cannot be reached; use a .csv file instead") from None
    except ValueError:
        raise InputError(f"{where}: OpenML knows no such set; look its name up there") from None
    chosen = target or str(fetched.target.name)
    return Dataset(name, _check_target(fetched.frame, chosen, where), chosen)


def _header(path: Path, where: str, text: Text, min_columns: int = 2) -> list[str]:
    """Return the columns' names, empty for those without."""
    with _readable(path, where, text):
        if path.suffix == ".xlsx":
            first = _sheet(path, header=None, nrows=1)
            header = [str(cell) * pd.notna(cell) for row in first.to_numpy() for cell in row]
        else:
            with opened(path, text.encoding) as lines:
                header = next(csv.reader(lines, delimiter=text.sep), [])
    if header:
        header[0] = header[0].removeprefix("\ufeff")
    header = [name if name.strip() else "" for name in header]
    names = _nonempty(header)
    others = [sep for sep in ";\t|," if sep != text.sep and sep in "".join(header)]
    if len(names) < min_columns or (len(header) == 1 and others):
        hint = ""
        if others:
            hint = f"; is it split otherwise? write sep = {json.dumps(others[0])} {PLACE}"
        split = {",": "commas", "\t": "tabs"}.get(text.sep, repr(text.sep))
        many = f"{min_columns} column{'s' * (min_columns > 1)}"
        raise InputError(f"{where}: needs a header row of at least {many} split by {split}{hint}")
    duplicates = sorted({name for name in names if names.count(name) > 1})
    if duplicates and may_be_a_record(header):
        raise InputError(f"{where}: {NO_HEADER}")
    if duplicates:
        raise InputError(f"{where}: column {duplicates[0]!r} stands twice in the header; keep one")
    return header


@contextmanager
def _readable(path: Path, where: str, text: Text) -> Iterator[None]:
    """Turn errors of reading into InputErrors: the file does not exist, or has another encoding."""
    try:
        with file_errors(where, instead="check its path"):
            yield
    except UnicodeError:
        likely = proposed(path).encoding
        likely = "latin-1" if likely == text.encoding else likely
        raise InputError(
            f"{where}: is no {text.encoding} text; save it as UTF-8, or write its own, such as "
            f'encoding = "{likely}" {PLACE}'
        ) from None
    except (csv.Error, EOFError, BadZipFile):
        raise InputError(f"{where}: cannot be read; give a whole CSV or Excel file") from None


def _sheet(path: Path, **options: Any) -> pd.DataFrame:
    try:
        sheet: pd.DataFrame = pd.read_excel(path, engine="openpyxl", **options)
    except ImportError:
        raise InputError(
            f"data file {path}: Excel files are read by openpyxl, which is not installed; install "
            "privfed[excel], or save the sheet as CSV"
        ) from None
    return sheet


def _rows(
    path: Path, where: str, header: list[str], text: Text, schema: Schema | None
) -> pd.DataFrame:
    names = _nonempty(header)
    text_columns = [] if schema is None else [name for name in names if name not in schema.numbers]
    options: dict[str, Any] = {"dtype": dict.fromkeys(text_columns, str)} | _missing(names, schema)
    if nameless := len(header) - len(names):
        what = (
            "a column has no name and is"
            if nameless == 1
            else f"{nameless} columns have no name and are"
        )
        warnings.warn(
            f"{where}: {what} left out; to use it, name it in the header", Note, stacklevel=2
        )
        options["usecols"] = [index for index, name in enumerate(header) if name]
    try:
        with warnings.catch_warnings(), _readable(path, where, text):
            if path.suffix == ".xlsx":
                warnings.simplefilter("ignore")
                return _sheet(path, **options)
            warnings.simplefilter("error", pd.errors.ParserWarning)
            with opened(path, text.encoding) as lines:
                frame = pd.read_csv(
                    lines, index_col=False, sep=text.sep, decimal=text.decimal, **options
                )
            return _parse_thousands(frame, text, text_columns) if text.thousands else frame
    except (pd.errors.ParserError, pd.errors.ParserWarning):
        uneven = _uneven_rows(path, len(header), text)
        which = f" ({rows(uneven)})" if len(uneven) else ", or a quote is never closed"
        raise InputError(
            f"{where}: its rows do not fit its header{which}; repair the file"
        ) from None


def _missing(header: list[str], schema: Schema | None) -> dict[str, Any]:
    """Return ``read_csv``'s options for missing values, by column if a schema lists one of them as a category."""
    listed = (
        {} if schema is None else {column.name: {*column.categories} for column in schema.columns}
    )
    if not any(MISSING & categories for categories in listed.values()):
        return {}
    na_values = {name: sorted(MISSING - listed.get(name, set())) for name in header}
    return {"na_values": na_values, "keep_default_na": False}


def _parse_thousands(frame: pd.DataFrame, text: Text, texts: Collection[str]) -> pd.DataFrame:
    """Convert columns with thousands separators, except ``texts``; pandas would also convert 05.03.2021."""
    is_text = [not pd.api.types.is_numeric_dtype(kind) for kind in frame.dtypes]
    for name in frame.columns[is_text].difference(list(texts)):
        cells = frame[name].astype("string")
        if cells.dropna().str.fullmatch(text.grouped).all():
            numbers = cells.str.replace(text.thousands, "").str.replace(text.decimal, ".")
            frame[name] = pd.to_numeric(numbers.astype(object))
    return frame


def _uneven_rows(path: Path, size: int, text: Text) -> np.ndarray:
    """Return positions of records that have more cells than the header."""
    with opened(path, text.encoding) as lines:
        reader = csv.reader(lines, delimiter=text.sep)
        sizes = [len(cells) for cells in reader if cells]
    return np.flatnonzero(np.array(sizes[1:], dtype=int) > size)


def _check_target(frame: pd.DataFrame, target: str, where: str) -> pd.DataFrame:
    if target not in frame.columns:
        raise InputError(f"{where}: {no_column(target, frame.columns, 'for the target; its')}")
    if frame.empty:
        raise InputError(f"{where}: holds no records; give at least two for each client")
    if frame[target].nunique() < 2:
        raise InputError(
            f"{where}: target {target!r} is constant, so there is nothing to predict; "
            "choose another target"
        )
    return frame


def _scikit_learn() -> Any:
    """Import scikit-learn's data sets on demand: owners' own tables are read without them."""
    return import_module("sklearn.datasets")


def _load_labelled(name: str, target: str) -> pd.DataFrame:
    """Return a classification set with the classes' names instead of codes."""
    loaded = getattr(_scikit_learn(), f"load_{name}")(as_frame=True)
    labels = [str(name) for name in loaded.target_names]
    frame: pd.DataFrame = loaded.data
    return frame.assign(**{target: [labels[code] for code in loaded.target]})


def _diabetes() -> pd.DataFrame:
    loaded = _scikit_learn().load_diabetes(as_frame=True, scaled=False)
    frame: pd.DataFrame = loaded.data
    return frame.assign(sex=frame["sex"].astype(int), progression=loaded.target)


_LOADERS: Mapping[str, Callable[[], pd.DataFrame]] = {
    "diabetes": _diabetes,
    "breast_cancer": lambda: _load_labelled("breast_cancer", "diagnosis"),
    "iris": lambda: _load_labelled("iris", "species"),
    "wine": lambda: _load_labelled("wine", "cultivar"),
    "digits": lambda: _load_labelled("digits", "digit"),
    "linnerud": lambda: _scikit_learn().load_linnerud(as_frame=True).frame,
}
