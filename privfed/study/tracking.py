"""Logging of a sweep's runs to MLflow, if it is installed."""

import re
from collections.abc import Sequence
from types import ModuleType

from privfed.errors import InputError
from privfed.study.sweep import METRICS, PARAMS, Cell, Sweep

#: The tag that identifies a run, so that none is logged twice.
KEY = "privfed.cell"


def mlflow() -> ModuleType:
    """Return the installed MLflow, whose settings determine where runs go (InputError: there is none)."""
    try:
        import mlflow as installed
    except ImportError:
        raise InputError(
            "--mlflow needs MLflow, which is not installed: pip install mlflow-skinny, or leave --mlflow "
            "out; sweep.csv holds the same figures"
        ) from None
    return installed  # type: ignore[no-any-return, unused-ignore]


def log(cells: Sequence[Cell], store: Sweep, name: str) -> int:
    """Log finished cells that the experiment ``name`` does not hold; attacked later, they are logged again.

    Factors and versions are parameters; numeric figures are metrics.

    Returns:
        number of runs logged.

    Raises:
        InputError: MLflow is not installed, or does not answer.
    """
    tracker = mlflow()
    try:
        return _log(tracker, cells, store, name)
    except tracker.MlflowException as error:
        raise InputError(
            f"--mlflow: {str(error).splitlines()[0][:200]}; check MLflow's own settings, such as "
            "MLFLOW_TRACKING_URI; sweep.csv holds the same figures"
        ) from error


def _log(tracker: ModuleType, cells: Sequence[Cell], store: Sweep, name: str) -> int:
    tracker.set_experiment(name)
    known = {run.data.tags.get(KEY) for run in tracker.search_runs(output_format="list")}
    logged = 0
    for cell in cells:
        state = store.state(cell)
        if state == "new" or (tag := f"{cell.key} {state}") in known:
            continue
        params, figures = store.read(cell, PARAMS), store.read(cell, METRICS)
        numbers = {k: float(v) for k, v in figures.items() if isinstance(v, int | float)}
        with tracker.start_run(run_name=cell.label()):
            tracker.set_tag(KEY, tag)
            tracker.log_params(
                {allowed(k): v for k, v in (params["factors"] | params["made"]).items()}
            )
            tracker.log_metrics({allowed(k): v for k, v in numbers.items()})
        logged += 1
    return logged


def allowed(name: str) -> str:
    """Replace characters of a name that MLflow does not accept."""
    return re.sub(r"[^\w./ -]", "_", name)
