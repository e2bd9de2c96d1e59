"""Cross-validation and grid search over a federation: simulations only, as each fold and setting is a release."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import joblib
import numpy as np
import pandas as pd
from sklearn.base import clone
from sklearn.model_selection import ParameterGrid
from tqdm.auto import tqdm

from privfed.engines.local import LocalDisclosure
from privfed.errors import InputError, NobodyAnswered, unknown
from privfed.learners.base import FederatedClassifier, FederatedLearner, FederatedRegressor
from privfed.questions.exact import Number
from privfed.study.metrics import measure
from privfed.tables.partition import FEWEST, by_column
from privfed.tables.schema import Schema

NOTE = (
    "a simulation measured on the data themselves, not publishable for real data: there, the folds' privacy "
    "losses would add up, and each score would be a query with a cost of its own"
)


@dataclass(frozen=True, eq=False)
class Folds:
    """A table split into folds, client by client; InputError: too few folds or records, no target."""

    frame: pd.DataFrame  #: one row per record
    schema: Schema  #: the public data dictionary, with the target
    client: str  #: the column of data owners
    #: the column of the person behind each record; a person's records share a fold
    individual: str | None = None
    count: int = 5  #: number of folds
    seed: int = 0  #: of the split

    def __post_init__(self) -> None:
        if isinstance(self.count, bool) or not isinstance(self.count, int) or self.count < 2:
            raise InputError(f"folds: count must be a whole number of at least 2, not {self.count}")
        if self.schema.target is None:
            raise InputError("folds: the schema needs a target to score predictions by")
        parts = self.parts
        for name, group in pd.Series(parts).groupby(by_column(self.frame, self.client)):
            if group.nunique() < self.count or (len(group) - group.value_counts()).min() < FEWEST:
                raise InputError(
                    f"folds: client {name!r} has too few records for {self.count} folds; use fewer"
                )

    @property
    def parts(self) -> np.ndarray:
        """The fold of each record, shape (records,)."""
        rng = np.random.default_rng(self.seed)
        owners = by_column(self.frame, self.client)
        people = np.arange(len(self.frame)) if self.individual is None else self._people()
        parts = np.zeros(len(self.frame), dtype=np.int64)
        for name in dict.fromkeys(owners):
            mask = owners == name
            persons, person = np.unique(people[mask], return_inverse=True)
            parts[mask] = (rng.permutation(len(persons)) % self.count)[person]
        return parts

    def _people(self) -> np.ndarray:
        if self.individual not in self.frame.columns:
            raise InputError(f"folds: no column {self.individual!r} for the individuals")
        return pd.factorize(self.frame[self.individual])[0]

    def split(self, number: int) -> tuple[pd.DataFrame, pd.DataFrame]:
        """Return training and held-out records of one fold."""
        held_out = self.parts == number
        return self.frame[~held_out], self.frame[held_out]

    def __iter__(self) -> Iterator[tuple[pd.DataFrame, pd.DataFrame]]:
        """Yield training and held-out records, fold by fold."""
        return map(self.split, range(self.count))


def cross_validate(
    learner: FederatedLearner,
    folds: Folds,
    *,
    epsilon: Number | None = None,
    delta: Number = "1e-5",
    noise: int | None = None,
    n_jobs: int | None = None,
) -> pd.DataFrame:
    """Train a clone on all folds but one and score on that one, for each fold.

    ``epsilon`` and ``delta`` are of each fold's private policy; without them, the published one.
    ``noise`` is the seed of test noise; None draws secure noise. ``n_jobs`` is the number of processes, as
    in scikit-learn.

    Returns:
        one row per fold: fold, score (R squared or accuracy), measure, value, baseline (the constant
        baseline's), records held out, seconds, stopped (why training stopped; the score is then NaN), and
        simulation, which is true; ``attrs["note"]`` explains it.
    """
    (table,) = _run_folds([learner], folds, epsilon, delta, noise, n_jobs, hidden=True)
    return table


def _run_folds(
    learners: Sequence[FederatedLearner],
    folds: Folds,
    epsilon: Number | None,
    delta: Number,
    noise: int | None,
    n_jobs: int | None,
    *,
    hidden: bool = False,
) -> list[pd.DataFrame]:
    """Run each learner's folds in ``n_jobs`` processes; return one table per learner."""
    tasks = [
        joblib.delayed(_fold)(
            learner, folds, number, epsilon, delta, None if noise is None else noise + number
        )
        for learner in learners
        for number in range(folds.count)
    ]
    work = joblib.Parallel(n_jobs=n_jobs, return_as="generator")(tasks)
    rows = list(
        tqdm(work, desc="grid search", total=len(tasks), unit=" fold", disable=hidden or None)
    )
    return [
        _mark(pd.DataFrame(rows[first : first + folds.count]))
        for first in range(0, len(rows), folds.count)
    ]


def _fold(
    learner: FederatedLearner,
    folds: Folds,
    number: int,
    epsilon: Number | None,
    delta: Number,
    seed: int | None,
) -> dict[str, Any]:
    """Return one fold's row of :func:`cross_validate`."""
    started, (train, test) = perf_counter(), folds.split(number)
    schema = folds.schema
    assert schema.target is not None
    fresh = clone(learner)
    if not isinstance(fresh, FederatedRegressor | FederatedClassifier):
        raise InputError(f"{type(fresh).__name__} is neither a regressor nor a classifier")
    federation = LocalDisclosure.from_frame(
        train,
        target=schema.target.name,
        client=folds.client,
        individual=folds.individual,
        schema=schema,
        policy=fresh.published()
        if epsilon is None
        else fresh.private(epsilon, delta, schema=schema),
        seed=seed,
        queries=fresh.queries,
    )
    row: dict[str, Any] = {"fold": number, "score": np.nan, "records": len(test), "stopped": ""}
    try:
        model = fresh.fit(federation)
        metrics = measure(model, train, test, schema)
        row |= {name: metrics[name] for name in ("measure", "value", "baseline")}
        row["score"] = model.score(test, test[schema.target.name])
    except NobodyAnswered as error:
        row["stopped"] = str(error)
    finally:
        federation.close()
    return row | {"seconds": perf_counter() - started}


@dataclass(frozen=True, eq=False)
class Search:
    """Result of a grid search."""

    #: one row per setting, best first: its parameters, score (mean over folds), deviation (over
    #: folds), stopped (folds without a model), simulation
    table: pd.DataFrame
    learner: FederatedLearner  #: the best setting's learner, unfitted


def grid_search(
    learner: FederatedLearner,
    grid: Mapping[str, Sequence[Any]],
    folds: Folds,
    *,
    epsilon: Number | None = None,
    delta: Number = "1e-5",
    noise: int | None = None,
    n_jobs: int | None = None,
) -> Search:
    """Cross-validate all combinations of ``grid``'s values by parameter on the same folds; rank them.

    The choice of the best is a further release: on real data its cost is added. For the other
    parameters see :func:`cross_validate`.

    Raises:
        InputError: an unknown parameter, or an invalid value.
    """
    params = learner.get_params()
    for name in (name for name in grid if name not in params):
        raise InputError(f"grid: {unknown('parameter', name, sorted(params))}")
    settings = list(ParameterGrid(dict(grid)))
    learners = [clone(learner).set_params(**setting) for setting in settings]
    rows = [
        {
            **setting,
            "score": scores["score"].mean(skipna=False),
            "deviation": scores["score"].std(ddof=1),
            "stopped": int((scores["stopped"] != "").sum()),
        }
        for setting, scores in zip(
            settings, _run_folds(learners, folds, epsilon, delta, noise, n_jobs), strict=True
        )
    ]
    table = pd.DataFrame(rows)
    order = table["score"].sort_values(ascending=False, kind="stable", na_position="last").index
    best = clone(learner).set_params(**settings[int(order[0])])
    return Search(_mark(table.loc[order].reset_index(drop=True)), best)


def _mark(table: pd.DataFrame) -> pd.DataFrame:
    """Mark a table as a simulation, in a column that files keep."""
    marked = table.assign(simulation=True)
    marked.attrs["note"] = NOTE
    return marked
