"""The reports' charts, as SVG text."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from privfed.reports.account import ClientAccount

if TYPE_CHECKING:
    from privfed.reports.epsilons import Epsilons

#: Blue for protected releases, red for unprotected ones, grey for frames.
PROTECTED, OPEN, INK, RULE = "#2f6f9f", "#c62828", "#1f2933", "#d9dee4"
STYLE: Any = {
    "font.family": "sans-serif",
    "font.size": 10,
    "text.color": INK,
    "axes.edgecolor": RULE,
    "axes.labelcolor": "#52606d",
    "xtick.color": "#52606d",
    "ytick.color": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "svg.fonttype": "none",
}
_MANY = 3000  #: Above this number of marks, they are rasterized


def timeline(clients: Sequence[ClientAccount], name: str) -> str:
    """Draw releases by kind and order, and cumulative spending, per client."""
    kinds = list(dict.fromkeys(step.kind for client in clients for step in client.steps))
    bounded = any(step.spent for client in clients for step in client.steps)
    heights = [0.36 * len(kinds) + 0.3] + ([1.7] if bounded else [])
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(9.6, sum(heights) + 0.7), layout="constrained")
        axes = figure.subplots(
            len(heights), 1, sharex=True, squeeze=False, height_ratios=heights
        ).ravel()
        _marks(axes[0], clients, kinds)
        if bounded:
            _spending(axes[1], clients)
        axes[-1].set_xlabel("query, in order for each client")
        return svg(figure, f"Releases under {name} by kind and order")


def _marks(axes: Axes, clients: Sequence[ClientAccount], kinds: list[str]) -> None:
    many = sum(len(client.steps) for client in clients) > _MANY
    offsets = np.linspace(-0.28, 0.28, len(clients)) if len(clients) > 1 else np.zeros(1)
    for offset, client in zip(offsets, clients, strict=True):
        x = np.arange(1, len(client.steps) + 1)
        y = np.array([kinds.index(step.kind) for step in client.steps]) + offset
        colours = [PROTECTED if step.protected else OPEN for step in client.steps]
        axes.scatter(x, y, s=14, c=colours, linewidths=0, rasterized=many)
    axes.set_yticks(range(len(kinds)), kinds)
    axes.set_ylim(len(kinds) - 0.5, -0.5)
    axes.tick_params(left=False)
    for row in range(1, len(kinds)):
        axes.axhline(row - 0.5, color=RULE, linewidth=0.8)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))


def _spending(axes: Axes, clients: Sequence[ClientAccount]) -> None:
    for client in clients:
        spent = [0.0, *(step.spent for step in client.steps if step.spent is not None)]
        axes.step(range(len(spent)), spent, where="post", color=PROTECTED, linewidth=1.6)
    ceilings = {client.budget for client in clients if client.budget is not None}
    for ceiling in ceilings:
        axes.axhline(ceiling, color=INK, linewidth=1, linestyle=(0, (4, 3)))
        axes.text(0, ceiling, " budget", va="bottom", fontsize=9, color="#52606d")
    axes.set_ylim(bottom=0, top=1.2 * max([*ceilings, axes.get_ylim()[1] / 1.2]) or 1)
    axes.set_ylabel("epsilon spent")


def epsilon_rows(axes: Axes, rows: Sequence[Epsilons]) -> None:
    """Draw claimed, audited and attacked epsilon, one row per owner; infinite ones at the right edge."""
    shown = [x for row in rows for x in (row.claimed, row.audited, row.attacked) if x is not None]
    top = 1.15 * max([x for x in shown if math.isfinite(x)] or [1.0]) or 1.0
    styles: tuple[tuple[str, str, Any], ...] = (
        ("claimed", "at most", {"marker": "|", "s": 190, "color": PROTECTED, "linewidths": 3}),
        ("audited", "at least, proven", {"marker": ">", "s": 34, "color": INK}),
        ("audit_claim", "", {"marker": "|", "s": 70, "color": INK, "linewidths": 1}),
        ("attacked", "attained", {"marker": "o", "s": 34, "color": OPEN}),
    )
    for name, about, style in styles:
        points = [(x, y) for y, row in enumerate(rows) if (x := getattr(row, name)) is not None]
        axes.scatter(
            [min(x, top) for x, _ in points], [y for _, y in points], zorder=3, clip_on=False,
            label=f"{name} ({about})" if about else "claimed for the audited releases", **style,
        )  # fmt: skip
    for y, row in enumerate(rows):
        known = [min(x, top) for x in (row.audited, row.attacked, row.claimed) if x is not None]
        axes.plot([min(known), max(known)], [y, y], color=RULE, linewidth=4, zorder=1)
        missing = " or ".join(n for n in ("audited", "attacked") if getattr(row, n) is None)
        if missing:
            axes.annotate(f"no {missing} figure", (1.04, y), xycoords=("axes fraction", "data"), va="center",
                          fontsize=8, color="#52606d", annotation_clip=False)  # fmt: skip
        if y and row.policy != rows[y - 1].policy:
            axes.axhline(y - 0.5, color=RULE, linewidth=0.8)
    axes.set_yticks(range(len(rows)), [f"{row.policy}, {row.client}" for row in rows])
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_xlim(0, top)
    ticks = [tick for tick in MaxNLocator(6).tick_values(0, top) if 0 <= tick < 0.95 * top]
    endless = any(math.isinf(x) for x in shown)
    axes.set_xticks([*ticks, *[top] * endless], [*(f"{t:g}" for t in ticks), *["∞"] * endless])
    axes.set_xlabel("epsilon, nats")
    axes.legend(frameon=False, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=4)


def epsilons(rows: Sequence[Epsilons]) -> str:
    """Return :func:`epsilon_rows` as an SVG element."""
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(9.6, 0.28 * len(rows) + 1.3), layout="constrained")
        epsilon_rows(figure.subplots(), rows)
        return svg(figure, "Epsilon claimed, audited and attacked")


def svg(figure: Figure, title: str) -> str:
    """Return the figure as a deterministic SVG element, without a date or external references."""
    buffer = io.StringIO()
    with matplotlib.rc_context({**STYLE, "svg.hashsalt": title}):
        figure.savefig(
            buffer, format="svg", metadata={"Date": None, "Title": title}, transparent=True
        )
    text = buffer.getvalue()
    return re.sub(r"\s*<metadata>.*?</metadata>", "", text[text.index("<svg") :], flags=re.DOTALL)
