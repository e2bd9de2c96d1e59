"""What an audit says in the end: how much is proven, beside what was claimed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from privfed.attacks.finding import Finding


def verdict(name: str, proven: float, claimed: float, detail: Mapping[str, Any]) -> Finding:
    """A finding whose value is the proven lower bound on epsilon, out of the claimed one.

    Args:
        name: what was audited.
        proven: the lower bound, nats; a breach where it exceeds the claim.
        claimed: the claimed epsilon, nats.
        detail: delta, confidence, and what the proof stands on.
    """
    return Finding(
        f"audit {name}",
        "Do the outputs contradict the epsilon that the mechanism claims?",
        "epsilon proven by the outputs, at least",
        proven,
        of=claimed,
        low=proven,
        baseline=0.0,
        severity="breach" if proven > claimed else "none",
        detail=dict(detail),
        simulation=False,
    )
