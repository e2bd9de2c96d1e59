"""Parameters of found structures: one question about all of them, then percentiles."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from privfed.learners.rule_search.asking import Asking, Found, offered
from privfed.learners.rule_search.estimate import percentile
from privfed.learners.rule_search.queries import Asked, Parameters


def ask_parameters(
    asking: Asking, found: Sequence[Found], spend: Fraction, percent: float
) -> list[list[float]]:
    """Ask once for all structures' parameters, and take a percentile of each.

    Args:
        asking: whom to ask.
        found: the structures.
        spend: epsilon of the one question.
        percent: which percentile, 0 to 100.

    Returns:
        for each structure its parameters within their public ranges, in preorder.

    Raises:
        NobodyAnswered: nobody offers an answer.
    """
    ranges = [asking.grammar.ranges(one.structure) for one in found]
    who = Asked.everybody(asking.people // len(asking.federation.clients))
    query = Parameters(
        who,
        asking.grammar.digest,
        tuple(one.structure for one in found),
        tuple(len(each) for each in ranges),
    )
    answer = offered(asking.federation, query, spend)
    parts = [release.parts["values"] for release in answer.releases.values()]
    values = np.concatenate([part.units * float(part.grid) for part in parts], axis=1)
    scale = max(
        (part.noise.parameter * float(part.grid) for part in parts if part.noise), default=0.0
    )
    rows = iter(values)
    return [
        [
            low + (high - low) * percentile(next(rows), max(scale, 1e-6), share, percent)
            for low, high in each
        ]
        for each, share in zip(ranges, (_share(one) for one in found), strict=True)
    ]


def _share(found: Found) -> float:
    """The estimated share of holders, within what a mixture's weight can be."""
    return float(np.clip(found.share, 1e-4, 1.0))
