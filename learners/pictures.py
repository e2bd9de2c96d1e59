"""Pictures of models, on axes of their own figures: nothing here touches the state of pyplot."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from textwrap import fill

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from privfed.questions.tree import Tree
from privfed.tables.schema import Column

BLUE, GREY = "#2f6f9f", "#9aa5b1"  #: Of what a model says, and of lines that only guide the eye
DEEPEST = 4  #: Levels of a tree that are drawn
MOST_BARS = 20  #: Bars of one picture
POINTS = 400  #: Places at which a shape function is drawn


def axes_of(ax: Axes | None, width: float, height: float) -> Axes:
    """The given axes, or those of a new figure of some size in inches."""
    return Figure(figsize=(width, height), layout="constrained").subplots() if ax is None else ax


def bars(
    ax: Axes | None,
    names: Sequence[str],
    values: np.ndarray,
    label: str,
    intervals: np.ndarray | None = None,
) -> Axes:
    """Horizontal bars in the order given, the first on top; ``intervals`` has shape (bars, 2)."""
    names, values = list(names)[:MOST_BARS], np.asarray(values)[:MOST_BARS]
    ax = axes_of(ax, 8, 0.9 + 0.3 * max(len(names), 1))
    places = np.arange(len(names))
    ax.barh(places, values, color=BLUE, height=0.6)
    if intervals is not None:
        low, high = intervals[: len(names)].T
        ax.hlines(places, low, high, color="black", linewidth=1.2)
    ax.axvline(0, color=GREY, linewidth=0.8)
    ax.set_yticks(places, [_short(name) for name in names])
    ax.invert_yaxis()
    ax.set_xlabel(wrapped(label, 80))
    ax.spines[["top", "right", "left"]].set_visible(False)
    ax.tick_params(left=False)
    return ax


def places_of(column: Column, cuts: Sequence[float] = ()) -> np.ndarray:
    """Where to draw a shape function: even over the bounds and on both sides of its cuts, or each category."""
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
    intervals: np.ndarray | None = None,
    cuts: Sequence[float] = (),
) -> Axes:
    """What a column adds at :func:`places_of`, for each of several names or for one; its band has shape (places, 2)."""
    places = places_of(column, cuts)
    ax = axes_of(ax, 6, 3.6)
    curves = heights if isinstance(heights, Mapping) else {"": heights}
    mark = "o" if column.kind == "category" else "-"
    lines = [
        ax.plot(places, own, mark, color=None if name else BLUE, label=name)[0]
        for name, own in curves.items()
    ]
    if any(curves):
        ax.legend(lines, [_short(name) for name in curves], frameon=False)
    if column.kind == "category":
        if intervals is not None:
            ax.vlines(places, *intervals.T, color=BLUE, linewidth=1.2)
        ax.set_xticks(places, [_short(str(name), 16) for name in column.categories])
    elif intervals is not None:
        ax.fill_between(places, *intervals.T, color=BLUE, alpha=0.2, linewidth=0)
    ax.axhline(0, color=GREY, linewidth=0.8)
    ax.set_xlabel(wrapped(column.name, 64))
    ax.set_ylabel(wrapped(label, 40))
    ax.spines[["top", "right"]].set_visible(False)
    return ax


@dataclass(frozen=True)
class TreeNode:
    """A node as it is drawn, with the branches below it."""

    text: str  #: in its box
    #: condition, and where it leads
    branches: list[tuple[str, TreeNode]] = field(default_factory=list)


def drawn(own: Tree, columns: Sequence[Column], leaf: Callable[[int], str]) -> TreeNode:
    """A tree of splits with its leaves' texts."""

    texts = own.conditions(columns)

    def below(node: int) -> TreeNode:
        if own.feature[node] < 0:
            return TreeNode(leaf(node))
        branches = [(texts[child], below(child)) for child, _ in own.branches(node)]
        return TreeNode(columns[own.feature[node]].name, branches)

    return below(0)


def tree(ax: Axes | None, root: TreeNode) -> Axes:
    """A tree from left to right; below :data:`DEEPEST` levels ... stands for what is left out."""
    ends: list[float] = []
    boxes: list[tuple[int, float, str]] = []
    lines: list[tuple[int, float, float, str]] = []

    def place(node: TreeNode, depth: int) -> float:
        cut = depth == DEEPEST and node.branches
        below = [] if cut else [(text, place(one, depth + 1)) for text, one in node.branches]
        if not below:
            ends.append(-float(len(ends)))
        height = float(np.mean([at for _, at in below])) if below else ends[-1]
        boxes.append((depth, height, "..." if cut else node.text))
        lines.extend((depth, height, at, text) for text, at in below)
        return height

    place(root, 0)
    deepest = max(depth for depth, _, _ in boxes)
    boxed, told = (max((min(len(one[-1]), 34) for one in few), default=0) for few in (boxes, lines))
    level = max(2.6, 0.6 + 0.09 * boxed + 0.07 * told)
    ax = axes_of(ax, 0.4 + 0.1 * boxed + level * deepest, 1 + 0.42 * len(ends))
    for depth, start, end, text in lines:
        ax.plot([depth, depth + 1], [start, end], color=GREY, linewidth=0.8, zorder=1)
        middle = depth + 0.5, start + 0.5 * (end - start)
        ax.text(*middle, _short(text, 34), ha="center", va="center", fontsize=8, zorder=3,
                bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.6})  # fmt: skip
    for depth, height, text in boxes:
        ax.text(depth, height, _short(text, 34), ha="center", va="center", fontsize=9, zorder=4,
                bbox={"boxstyle": "round", "facecolor": "white", "edgecolor": BLUE})  # fmt: skip
    margin = (0.2 + 0.05 * boxed) / level
    ax.set_xlim(-margin, deepest + margin)
    ax.set_ylim(min(ends) - 0.7, 0.7)
    ax.axis("off")
    return ax


def literal(text: str) -> str:
    """A text that matplotlib draws as it is: between two dollar signs it would read mathematics."""
    return text.replace("$", r"\$")


def wrapped(text: str, most: int) -> str:
    """A text over lines of so many characters, drawn as it is."""
    return literal(
        "\n".join(fill(line, most, break_on_hyphens=False) for line in text.splitlines())
    )


def _short(text: str, most: int = 48) -> str:
    return literal(text if len(text) <= most else text[: most - 1] + "…")


def svg_of(ax: Axes, title: str) -> str:
    """The figure of some axes as an SVG element: no date, no reference, the same bytes each time."""
    held, figure = io.StringIO(), ax.get_figure(root=True)
    assert figure is not None
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": title}):
        figure.savefig(held, format="svg", metadata={"Date": None, "Title": title})
    text = held.getvalue()
    start, end = text.find("<metadata>"), text.find("</metadata>")
    bare = text[:start] + text[end + len("</metadata>") :] if start >= 0 else text
    return bare[bare.index("<svg") :]


def html_of(ax: Axes, title: str, text: str) -> str:
    """A picture with a text below it, for notebooks and pages."""
    return f"<figure>{svg_of(ax, title)}</figure><pre>{escape(text)}</pre>"
