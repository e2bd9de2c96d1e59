"""Predictions of a saved model, and synthetic records from it: ``privfed predict``, ``privfed synthesize``."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import numpy as np
import pandas as pd

from privfed.errors import InputError
from privfed.learners.base import FederatedLearner, NoCommonModel, PersonalLearner
from privfed.learners.saved import load
from privfed.owner.local_store import LocalStore
from privfed.study.scaffold import form_of
from privfed.tables.schema import Schema, shown
from privfed.tables.sources import read_table
from privfed.tables.table_faults import check_table
from privfed.tables.toml_file import naming

#: Message for a personal learner's model.
_HOMES = "model file {}: each client has a model of its own; write --client {} --shelf PATH ({})"


def predict(
    model: Path, table: Path, client: str | None = None, shelf: Path | None = None
) -> pd.DataFrame:
    """Predict each row of a CSV file by a saved model; columns outside its schema are ignored.

    The file's format (separator, encoding, decimals) is detected from its first lines, as for ``privfed schema``.

    ``client`` selects a personal model, which is in that client's local store, the file ``shelf``.

    Returns:
        one row per record: the prediction under the target's name, and a classifier's probabilities, each
        under ``probability of`` its class.

    Raises:
        InputError: no such file, no model, missing columns, or a client without a model.
    """
    fitted = load(model)
    if shelf is not None:
        _take_home(fitted, client, shelf)
    if isinstance(fitted, PersonalLearner) and shelf is None and client in fitted.clients_:
        raise InputError(
            _HOMES.format(model, client, "the .shelf file in the folder of that client's ledger")
        )
    try:
        with naming(f"data file {table}"):
            frame = read_table(table, text=form_of(table), schema=fitted.schema_)
            if frame.empty:
                raise InputError("holds no records; give at least one")
            check_table(frame, Schema(fitted.schema_.features))
            return _predicted(fitted, frame, client)
    except NoCommonModel:
        clients = f"there is none for all; clients are {', '.join(map(shown, fitted.clients_))}"
        raise InputError(_HOMES.format(model, "NAME", clients)) from None


def synthesize(model: Path, rows: int, random_state: int | None = None) -> pd.DataFrame:
    """Draw records with labels from a saved private forest; see :meth:`.FedForestClassifier.synthesize`.

    Raises:
        InputError: no such file, no model, or one without the releases needed.
    """
    fitted = load(model)
    if not hasattr(fitted, "synthesize"):
        raise InputError(
            f"model file {model}: {type(fitted).__name__} keeps no releases that records are drawn "
            "from; give a FedForestClassifier or FedForestRegressor of a private policy"
        )
    with naming(f"model file {model}"):
        records: pd.DataFrame = fitted.synthesize(rows, random_state)
    return records


def _take_home(model: FederatedLearner, client: str | None, shelf: Path) -> None:
    if not isinstance(model, PersonalLearner) or client is None:
        raise InputError(
            "--shelf goes with --client and a model of which each client has its own; leave it out"
        )
    if not shelf.is_file():
        raise InputError(f"--shelf {shelf}: there is no such file; it is in the ledger's folder")
    with closing(LocalStore(shelf, client)) as store:
        model.take_home(client, store)


def _predicted(model: FederatedLearner, frame: pd.DataFrame, client: str | None) -> pd.DataFrame:
    target = model.schema_.target
    predictions = pd.DataFrame(
        {"predicted" if target is None else target.name: model.predict(frame, client=client)}
    )
    if not hasattr(model, "predict_proba"):
        return predictions
    proba = np.asarray(model.predict_proba(frame, client=client))
    names = [f"probability of {name}" for name in np.asarray(model.classes_)]
    return predictions.join(pd.DataFrame(proba, columns=names))
