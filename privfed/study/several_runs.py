"""Variation of scores over several runs of one policy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

NOTE = (
    "a simulation: every run drew fresh noise and secrets and kept its own books, and the ledgers hold the first "
    "alone; carried out on real data, each run would be charged"
)


def spread(runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Summarise the metrics of runs that differ only by noise.

    Returns:
        ``count``; ``without`` (runs without a score); the headline's ``values``, ``mean`` and
        ``deviation`` (sample standard deviation, None for fewer than two); ``scores``, the ``mean`` and
        ``deviation`` of each other score that all runs have; and ``note``.
    """
    scored = [run for run in runs if run.get("value") is not None]
    values = [float(run["value"]) for run in scored]
    names = [
        name
        for name, value in (scored[0].get("scores", {}) if scored else {}).items()
        if isinstance(value, int | float) and all(name in run["scores"] for run in scored)
    ]
    return {
        "count": len(runs),
        "without": len(runs) - len(scored),
        "values": values,
        **_moments(values),
        "scores": {name: _moments([run["scores"][name] for run in scored]) for name in names},
        "note": NOTE,
    }


def _moments(values: Sequence[float]) -> dict[str, float | None]:
    """Return mean and deviation; 0 for values that are equal up to rounding."""
    mean = float(np.mean(values)) if values else None
    alike = len(values) > 1 and np.ptp(values) <= 1e-12 * np.abs(values).max()
    deviation = float(np.std(values, ddof=1)) if len(values) > 1 else None
    return {"mean": mean, "deviation": 0.0 if alike else deviation}
