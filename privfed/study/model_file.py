"""Attacks on the file of a scikit-learn tree or forest: ``privfed attack MODEL --data TABLE``."""

from __future__ import annotations

import hashlib
import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from privfed import __version__
from privfed.attacks.finding import Finding, corrected
from privfed.attacks.fitted_tree_risks import LabelledRecords, by_shadows, confidence, structural
from privfed.attacks.fitted_trees import FittedTrees
from privfed.errors import InputError, file_errors, no_column
from privfed.reports.page import model_page
from privfed.study import confined_reader
from privfed.study.exposed import exposed
from privfed.study.output import finite, write_text, written_whole
from privfed.study.scaffold import form_of
from privfed.tables.schema import label
from privfed.tables.sources import read_table
from privfed.tables.table_faults import rows
from privfed.tables.toml_file import naming

SECONDS = 120  #: Time limit for reading a model
FORMS = {".joblib": "pickle", ".pkl": "pickle", ".pickle": "pickle", ".skops": "skops"}


def read_model(path: Path) -> FittedTrees:
    """Read a model's arrays in a confined process; this process builds no object of the file.

    Raises:
        InputError: no such file, another format, no tree or forest, or a system without confinement.
    """
    form = FORMS.get(path.suffix)
    with naming(f"model {path}"):
        if form is None:
            raise InputError(
                f"is not one of {', '.join(FORMS)}; write it with joblib.dump or skops.io.dump"
            )
        if form == "pickle" and os.name != "posix":
            raise InputError("this system cannot confine a pickle; write it with skops.io.dump")
        with file_errors(f"model {path}", instead="check its path"):
            stored = path.read_bytes()
        arrays = _read_confined(stored, form)
        if "refused" in arrays:
            raise InputError(_text(arrays["refused"]))
        return FittedTrees.of(arrays, json.loads(_text(arrays["about"])))


def _read_confined(stored: bytes, form: str) -> dict[str, np.ndarray]:
    command = [sys.executable, "-I", "-W", "ignore", confined_reader.__file__, form]
    try:
        process = subprocess.run(
            command,
            input=stored,
            capture_output=True,
            check=True,
            timeout=SECONDS,
            cwd="/" if os.name == "posix" else None,
            env={"OPENBLAS_NUM_THREADS": "1"} if os.name == "posix" else None,
        )
        with np.load(io.BytesIO(process.stdout), allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except subprocess.TimeoutExpired:
        raise InputError(f"could not be read within {SECONDS} seconds") from None
    except (subprocess.CalledProcessError, OSError, ValueError):
        raise InputError(_not_read(form)) from None


def _not_read(form: str) -> str:
    try:
        import skops  # noqa: F401
    except ImportError:
        if form == "skops":
            return "needs skops: pip install privfed[skops]"
    return (
        "holds no model that could be read, with the scikit-learn installed here and within "
        f"{confined_reader.MEMORY >> 30} GB; write it again with joblib.dump or skops.io.dump"
    )


def _text(stored: np.ndarray) -> str:
    text = stored.tobytes().decode(errors="replace")
    return "".join(character if character.isprintable() else " " for character in text)[:100_000]


def read_records(model: FittedTrees, path: Path, target: str | None) -> LabelledRecords:
    """Read a table's records in the model's encoding.

    Raises:
        InputError: a column is missing or not numeric, a cell is empty, or an outcome is no class of the model.
    """
    frame = read_table(path, text=form_of(path))
    with naming(f"data file {path}"):
        names = _columns(model, frame, target)
        if frame.empty:
            raise InputError("holds no records; give at least two")
        X = np.column_stack([_numbers(frame[name]) for name in names[:-1]])
        outcome = frame[names[-1]]
        if not model.labels:
            return LabelledRecords(X, _numbers(outcome))
        codes = {name: code for code, name in enumerate(map(_class_name, model.labels))}
        y = outcome.map(lambda value: codes.get(_class_name(label(value)), -1)).to_numpy(float)
        if unknown := rows(np.flatnonzero(y < 0)) if (y < 0).any() else "":
            raise InputError(
                f"column {names[-1]!r} has outcomes that are not among the model's {len(codes)} classes "
                f"({unknown}); give the outcomes as they were fitted"
            )
        return LabelledRecords(X, y)


def _columns(model: FittedTrees, frame: pd.DataFrame, target: str | None) -> list[str]:
    """Return the features' columns in the model's order, then the target's."""
    if target is not None and target not in frame.columns:
        raise InputError(no_column(target, frame.columns, "for --target; its"))
    if model.features:
        if missing := [name for name in model.features if name not in frame.columns]:
            raise InputError(f"has no column {missing[0]!r}, which the model was fitted to")
        features = list(model.features)
    else:
        features = [name for name in frame.columns if name != (target or frame.columns[-1])]
    if len(features) != model.width:
        raise InputError(
            f"has {len(features)} columns besides the outcome, and the model was fitted to {model.width}"
        )
    others = [name for name in frame.columns if name not in features]
    if target is None and not others:
        raise InputError(
            "has no column besides the model's features; add the outcome's, and write --target COLUMN"
        )
    if target is None and len(others) != 1:
        raise InputError(
            f"which column holds the outcome? write --target COLUMN, one of {', '.join(map(str, others))}"
        )
    if target in features:
        raise InputError(f"--target {target!r} is one of the model's features")
    return [*features, target or others[0]]


def _numbers(column: pd.Series[Any]) -> np.ndarray:
    numbers = pd.to_numeric(column, errors="coerce").to_numpy(float)
    if not np.isfinite(numbers).all():
        where = rows(np.flatnonzero(~np.isfinite(numbers)))
        raise InputError(
            f"column {column.name!r} has cells that are not numbers ({where}); give the table as the model was "
            "fitted to it, encoded and filled"
        )
    return numbers


def _class_name(name: str) -> str:
    """Format a class's name; 1.0 and 1 are equal."""
    try:
        return f"{float(name):.17g}"
    except ValueError:
        return name


@dataclass(frozen=True, eq=False)
class AttackedModel:
    """A model's description and findings."""

    about: dict[str, Any]
    findings: list[Finding]


def attack(
    path: Path,
    data: Path,
    outsiders: Path | None = None,
    target: str | None = None,
    progress: Callable[[int], object] = lambda _: None,
) -> AttackedModel:
    """Attack a model's file; score by its training table and held-out records."""
    model = read_model(path)
    train = read_records(model, data, target)
    held_out = None if outsiders is None else read_records(model, outsiders, target)
    findings = [
        *structural(model, train, held_out),
        confidence(model, train, held_out),
        by_shadows(model, train, held_out, _fit(model), progress=progress),
    ]
    about = {
        "model": path.name,
        "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
        "kind": model.kind,
        "trees": len(model.forest),
        "leaves": len(model.forest.leaves),
        "training records": len(train),
        "held-out records": 0 if held_out is None else len(held_out),
        "another table": not _matches_table(model, train),
        "bootstrapped": model.bootstrapped,
        "privfed": __version__,
        "simulation": True,
    }
    return AttackedModel(about, corrected(findings))


def _fit(model: FittedTrees) -> Callable[[np.ndarray, np.ndarray], Any]:
    """Return a function that trains a shadow model with the same class and settings, and a new seed."""
    settings = dict(model.parameters) | {"n_estimators": len(model.forest), "warm_start": False}
    estimator = confined_reader.MODELS[model.kind]
    params = {name: value for name, value in settings.items() if name in estimator().get_params()}
    seeds = iter(range(1 << 30))

    def fit(X: np.ndarray, y: np.ndarray) -> Any:
        shadow = estimator(**{**params, "random_state": next(seeds)})
        return shadow.fit(X, y)

    return fit


def _matches_table(model: FittedTrees, train: LabelledRecords) -> bool:
    """Whether the roots, and without bootstrap each leaf, have the table's numbers of records."""
    roots = model.counts[model.forest.roots]
    if model.bootstrapped:
        return bool((roots <= len(train)).all())
    leaves, leaf_index = model.forest.leaves, model.leaves(train.x)
    counts = np.bincount(leaf_index.ravel(), minlength=len(model.counts))
    return bool((counts[leaves] == model.counts[leaves]).all())


def write(attacked: AttackedModel, out: Path, *, overwrite: bool, scores: bool) -> None:
    """Write ``findings.json``, with ``scores`` also those of records, and ``report.html`` into a folder."""
    data = {**attacked.about, "findings": [finding.to_dict() for finding in attacked.findings]}
    with written_whole(out, overwrite=overwrite) as folder:
        write_text(folder / "report.html", model_page(data))
        if scores:
            lines = np.arange(attacked.about["training records"]) + 2
            data["records"] = exposed(attacked.findings, {"": lines})
        write_text(folder / "findings.json", json.dumps(finite(data), indent=1) + "\n")
