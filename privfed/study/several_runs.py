"""Several runs of one policy, each with noise of its own: what one draw of it may hide."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

NOTE = (
    "a simulation: every run drew fresh noise and secrets and kept its own books, and the ledgers hold the first "
    "alone; carried out on real data, each run would be charged"
)


def spread(runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Say how utility varied over runs that differ by their noise alone.

    Args:
        runs: the metrics of each, as :func:`privfed.study.metrics.measure` gives them.

    Returns:
        ``count``; ``without`` (how many came to no figure); ``values``, ``mean`` and ``deviation``
        (of a sample; none of fewer than two figures) of the headline; ``scores``, with the
        ``mean`` and ``deviation`` of every other one that all those runs have; and ``note``.
    """
    scored = [run for run in runs if run.get("value") is not None]
    values = [float(run["value"]) for run in scored]
    names = [name for name in _scores(scored[:1]) if all(name in run["scores"] for run in scored)]
    return {
        "count": len(runs),
        "without": len(runs) - len(scored),
        "values": values,
        **_moments(values),
        "scores": {name: _moments([run["scores"][name] for run in scored]) for name in names},
        "note": NOTE,
    }


def _scores(runs: Sequence[dict[str, Any]]) -> list[str]:
    return [
        name
        for run in runs
        for name, value in run.get("scores", {}).items()
        if isinstance(value, int | float)
    ]


def _moments(values: Sequence[float]) -> dict[str, float | None]:
    """Mean and deviation; equal figures vary by nothing, whatever the last place says."""
    mean = float(np.mean(values)) if values else None
    alike = len(values) > 1 and np.ptp(values) <= 1e-12 * np.abs(values).max()
    deviation = float(np.std(values, ddof=1)) if len(values) > 1 else None
    return {"mean": mean, "deviation": 0.0 if alike else deviation}
