"""Plots of models, on given axes or new figures, without the state of pyplot."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from textwrap import fill, wrap

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from privfed.questions.tree import Tree
from privfed.tables.schema import Column, shown

BLUE, GREY = "#2f6f9f", "#9aa5b1"  #: Colours of the model, and of guide lines
DEEPEST = 4  #: Maximum levels of a plotted tree
WIDE = 34  #: Characters of a line in a plotted tree
PAGE, INDENT = (
    100,
    4,
)  #: Characters of a line of text on a page, and spaces before continuation lines
#: Style of a model's text in print, where wide rows of its table would be cut
PRINTED = "<style>@media print { pre.model { font-size: 6pt; white-space: pre-wrap; } }</style>"
MOST_BARS = 20  #: Maximum bars of one plot
MOST_LABELS = 40  #: Maximum names of categories along an axis
MOST_NAMES = 16  #: Maximum curves' names in a column of the legend
POINTS = 400  #: Points at which a shape function is plotted


def axes_of(ax: Axes | None, width: float, height: float) -> Axes:
    """Return the given axes, or those of a new figure of a size in inches."""
    return Figure(figsize=(width, height), layout="constrained").subplots() if ax is None else ax


def bars(
    ax: Axes | None,
    names: Sequence[str],
    values: np.ndarray,
    label: str,
    intervals: np.ndarray | None = None,
    level: int = 90,
) -> Axes:
    """Plot horizontal bars in the given order from the top; ``intervals`` (``level`` per cent) has shape (bars, 2).

    Of more than :data:`MOST_BARS` only the first are plotted; the label has the number of all, and names intervals.
    """
    if intervals is not None:
        label += f", with {level} % intervals"
    if len(names) > MOST_BARS:
        label = f"{label} (the first {MOST_BARS} of {len(names)})"
    labels = [_lines(name, 56, 4) for name in list(names)[:MOST_BARS]]
    values = np.asarray(values)[:MOST_BARS]
    max_lines = max((name.count("\n") + 1 for name in labels), default=1)
    ax = axes_of(ax, 8, 0.9 + max(0.3, 0.08 + 0.17 * max_lines) * max(len(labels), 1))
    positions = np.arange(len(labels))
    ax.barh(positions, values, color=BLUE, height=0.6)
    if intervals is not None:
        low, high = intervals[: len(labels)].T
        ax.hlines(positions, low, high, color="black", linewidth=1.2)
    ax.axvline(0, color=GREY, linewidth=0.8)
    ax.set_yticks(positions, labels)
    ax.set_ylim(max(len(labels), 1) - 0.4, -0.6)
    ax.locator_params(axis="x", nbins=5)  # long numbers stand apart
    ax.set_xlabel(wrapped(label, 80), loc="right")  # below the names, where there is room
    ax.spines[["top", "right", "left"]].set_visible(False)
    ax.tick_params(left=False)
    return ax


def titled(ax: Axes, text: str) -> Axes:
    """Set a title, wrapped to the width of the axes, and return them; an empty text sets none."""
    if text:
        figure = ax.get_figure(root=True)
        assert figure is not None
        figure.draw_without_rendering()  # long labels make the axes narrower than the figure
        inches = ax.get_window_extent().width / figure.dpi
        ax.set_title(wrapped(text, max(20, int(13 * inches) - 2)), fontsize=9, loc="left")
    return ax


def places_of(column: Column, cuts: Sequence[float] = ()) -> np.ndarray:
    """Return a shape function's points: even between bounds plus both sides of its cuts, or the categories."""
    if column.kind == "category":
        return np.arange(len(column.categories), dtype=float)
    low, high = column.bounds
    ends = np.array(cuts, dtype=float)
    every = np.concatenate([np.linspace(low, high, POINTS), ends, np.nextafter(ends, -np.inf)])
    return np.unique(every[(every >= low) & (every <= high)])


def shape(
    ax: Axes | None,
    column: Column,
    heights: np.ndarray | Mapping[str, np.ndarray],
    label: str,
    intervals: np.ndarray | Mapping[str, np.ndarray] | None = None,
    cuts: Sequence[float] = (),
) -> Axes:
    """Plot a column's effect at :func:`places_of`, one curve or one per name; intervals have shape (points, 2)."""
    positions = places_of(column, cuts)
    several, given = isinstance(heights, Mapping), ax
    ax = axes_of(ax, 8 if several else 6, 3.6)
    if intervals is not None and len(intervals):
        label += ", with 90 % " + ("intervals" if column.kind == "category" else "band")
    curves = heights if isinstance(heights, Mapping) else {"": heights}
    bands = intervals if isinstance(intervals, Mapping) else {"": intervals}
    marks = "os^Dv*P" if column.kind == "category" else ("-", "--", ":", "-.")
    # categories' marks are side by side, so that all are visible
    offset = 0.6 / len(curves) if column.kind == "category" else 0.0
    shifted = [positions + offset * (k - (len(curves) - 1) / 2) for k in range(len(curves))]
    lines = [
        ax.plot(x, curve, marks[k // 10 % len(marks)], color=None if several else BLUE)[0]
        for k, (x, curve) in enumerate(zip(shifted, curves.values(), strict=True))
    ]
    for line, name in zip(lines, curves, strict=True):
        line.set_label(name)
    if several:
        labels = [_lines(shown(name), 24, 6) for name in curves]
        columns = -(-len(labels) // MOST_NAMES)
        ax.legend(
            lines, labels, frameon=False, loc="center left", bbox_to_anchor=(1, 0.5), ncols=columns
        )  # outside of the axes, so that it covers no curve
    for name, x, line in zip(curves, shifted, lines, strict=True):
        if (band := bands.get(name)) is None:
            continue
        if column.kind == "category":
            ax.vlines(x, *band.T, color=line.get_color(), linewidth=1.2)
        else:
            ax.fill_between(x, *band.T, color=line.get_color(), alpha=0.2, linewidth=0)
    if column.kind == "category":
        _name_categories(ax, column.categories)
    ax.axhline(0, color=GREY, linewidth=0.8)
    ax.set_xlabel(wrapped(shown(column.name), 64))
    ax.set_ylabel(wrapped(label, 40))
    ax.spines[["top", "right"]].set_visible(False)
    if given is None:
        _heighten(ax, 2.9)
    return ax


def _heighten(ax: Axes, inches: float) -> None:
    """Make the figure higher if long labels below leave the axes less than a height."""
    figure = ax.get_figure(root=True)
    assert figure is not None
    figure.draw_without_rendering()
    missing = inches - ax.get_window_extent().height / figure.dpi
    figure.set_figheight(figure.get_figheight() + max(missing, 0))


def _name_categories(ax: Axes, names: Sequence[str]) -> None:
    """Set tick labels at 0, 1, ...: horizontal if there is room, else vertical, and not more than fit."""
    every = -(-len(names) // MOST_LABELS)
    places, names = np.arange(len(names))[::every], names[::every]
    room = 60 // len(names)
    labels = [_lines(shown(name), max(room, 8), 5) for name in names]
    flat = max(map(len, "\n".join(labels).split("\n"))) <= room
    if not flat:
        labels = [_lines(shown(name), 32, 3) for name in names]
    ax.set_xticks(places, labels, rotation=0 if flat else 90)


@dataclass(frozen=True)
class TreeNode:
    """A node of a plotted tree, with its branches."""

    text: str  #: text of its box
    #: condition and child
    branches: list[tuple[str, TreeNode]] = field(default_factory=list)

    @property
    def splits(self) -> int:
        """Number of splits of the subtree."""
        return bool(self.branches) + sum(below.splits for _, below in self.branches)


def drawn(tree: Tree, columns: Sequence[Column], leaf: Callable[[int], str]) -> TreeNode:
    """Convert a tree for plotting, with ``leaf`` formatting each leaf; see :meth:`.Tree.read`."""
    root, branches = tree.read(columns)

    def build(node: int) -> TreeNode:
        if not branches[node]:
            return TreeNode(leaf(node))
        children = [(text, build(child)) for text, child in branches[node]]
        return TreeNode(shown(columns[tree.feature[node]].name), children)

    return build(root)


def tree(ax: Axes | None, root: TreeNode) -> Axes:
    """Plot a tree from left to right; below :data:`DEEPEST` levels, the number of omitted splits."""
    boxes: list[tuple[int, float, str]] = []
    lines: list[tuple[int, float, float, str]] = []
    bottom = 0.0

    def place(node: TreeNode, depth: int, above: str = "") -> float:
        nonlocal bottom
        cut = depth == DEEPEST and node.branches
        more = f"... {node.splits} more split{'s' * (node.splits > 1)}"
        text = more if cut else _lines(node.text, WIDE, 12)
        room = max(1.0, 0.7 + 0.45 * text.count("\n"), 0.8 + 0.75 * above.count("\n"))
        branches = () if cut else [(_lines(edge, WIDE, 8), child) for edge, child in node.branches]
        begin = bottom
        children = [(edge, place(child, depth + 1, edge)) for edge, child in branches]
        bottom = min(bottom, begin - room)
        height = float(np.mean([y for _, y in children])) if children else begin - (room - 1) / 2
        boxes.append((depth, height, text))
        lines.extend((depth, height, y, edge) for edge, y in children)
        return height

    place(root, 0)
    max_depth = max(depth for depth, _, _ in boxes)
    box_width, label_width = (
        max((len(line) for item in items for line in item[-1].split("\n")), default=0)
        for items in (boxes, lines)
    )
    level = max(2.6, 0.6 + 0.09 * box_width + 0.07 * label_width)
    ax = axes_of(ax, max(4.0, 0.4 + 0.1 * box_width + level * max_depth), 1 - 0.42 * bottom)
    for depth, start, end, text in lines:
        ax.plot([depth, depth + 1], [start, end], color=GREY, linewidth=0.8, zorder=1)
        middle = depth + 0.5, start + 0.5 * (end - start)
        ax.text(*middle, text, ha="center", va="center", fontsize=8, zorder=3,
                bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.6})  # fmt: skip
    for depth, height, text in boxes:
        ax.text(depth, height, text, ha="center", va="center", fontsize=9, zorder=4,
                bbox={"boxstyle": "round", "facecolor": "white", "edgecolor": BLUE})  # fmt: skip
    margin = (0.2 + 0.05 * box_width) / level
    ax.set_xlim(-margin, max_depth + margin)
    ax.set_ylim(bottom + 0.3, 0.7)
    ax.axis("off")
    return ax


def literal(text: str) -> str:
    """Escape dollar signs, between which matplotlib would parse mathematics."""
    return text.replace("$", r"\$")


def wrapped(text: str, width: int) -> str:
    """Wrap to lines of ``width`` characters, escaped for matplotlib; a number and its % are not separated."""
    joined = text.replace(" %", "\u00a0%")
    lines = (fill(line, width, break_on_hyphens=False) for line in joined.splitlines())
    return literal("\n".join(lines).replace("\u00a0%", " %"))


def _lines(text: str, width: int, max_lines: int) -> str:
    """Wrap to at most ``max_lines`` lines, escaped for matplotlib; an ellipsis ends a longer text."""
    lines = wrap(text, width, break_on_hyphens=False, max_lines=max_lines, placeholder=" …")
    return literal("\n".join(lines))


def svg_of(ax: Axes, title: str) -> str:
    """Return the axes' figure as an SVG element: without dates or references, deterministic."""
    buffer, figure = io.StringIO(), ax.get_figure(root=True)
    assert figure is not None
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": title}):
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Title": title})
    text = buffer.getvalue()
    start, end = text.find("<metadata>"), text.find("</metadata>")
    bare = text[:start] + text[end + len("</metadata>") :] if start >= 0 else text
    return bare[bare.index("<svg") :]


def html_of(ax: Axes, title: str, text: str) -> str:
    """Return HTML of a plot with a text below, for notebooks and pages; long lines are wrapped, except tables' rows."""
    lines = (
        line if "  " in line.strip() else fill(line, PAGE, subsequent_indent=" " * INDENT)
        for line in text.split("\n")
    )
    picture = svg_of(ax, title).replace("<svg ", '<svg style="max-width:100%;height:auto" ', 1)
    escaped = escape("\n".join(lines))
    return f'<figure>{picture}</figure>{PRINTED}<pre class="model" style="overflow-x:auto;font-family:monospace">{escaped}</pre>'
