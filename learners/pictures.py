"""Pictures of models, on axes of their own figures: nothing here touches the state of pyplot."""

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

BLUE, GREY = "#2f6f9f", "#9aa5b1"  #: Of what a model says, and of lines that only guide the eye
DEEPEST = 4  #: Levels of a tree that are drawn
WIDE = 34  #: Characters of a line in a drawn tree
PAGE, INDENT = (
    100,
    4,
)  #: Characters of a line of text on a page, and of spaces before the rest of a longer one
MOST_BARS = 20  #: Bars of one picture
MOST_NAMES = 16  #: Curves' names below each other
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
    level: int = 90,
) -> Axes:
    """Horizontal bars in the order given, the first on top; ``intervals``, of ``level`` per cent, has shape (bars, 2).

    Of more than :data:`MOST_BARS` the first are drawn, and the label says of how many, and what lines on bars are.
    """
    if intervals is not None:
        label += f", with {level} % intervals"
    if len(names) > MOST_BARS:
        label = f"{label} (the first {MOST_BARS} of {len(names)})"
    told = [_lines(name, 56, 4) for name in list(names)[:MOST_BARS]]
    values = np.asarray(values)[:MOST_BARS]
    most = max((name.count("\n") + 1 for name in told), default=1)
    ax = axes_of(ax, 8, 0.9 + max(0.3, 0.08 + 0.17 * most) * max(len(told), 1))
    places = np.arange(len(told))
    ax.barh(places, values, color=BLUE, height=0.6)
    if intervals is not None:
        low, high = intervals[: len(told)].T
        ax.hlines(places, low, high, color="black", linewidth=1.2)
    ax.axvline(0, color=GREY, linewidth=0.8)
    ax.set_yticks(places, told)
    ax.set_ylim(max(len(told), 1) - 0.4, -0.6)
    ax.locator_params(axis="x", nbins=5)  # long numbers stand apart
    ax.set_xlabel(wrapped(label, 80), loc="right")  # below the names, where there is room
    ax.spines[["top", "right", "left"]].set_visible(False)
    ax.tick_params(left=False)
    return ax


def titled(ax: Axes, text: str) -> Axes:
    """The axes with a remark above, if there is one, as wide as their own figure."""
    if text:
        figure = ax.get_figure(root=True)
        assert figure is not None
        ax.set_title(
            wrapped(text, max(30, int(13 * figure.get_figwidth()) - 10)), fontsize=9, loc="left"
        )
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
    intervals: np.ndarray | Mapping[str, np.ndarray] | None = None,
    cuts: Sequence[float] = (),
) -> Axes:
    """What a column adds at :func:`places_of`, for each of several names or for one; a band has shape (places, 2)."""
    places = places_of(column, cuts)
    several = isinstance(heights, Mapping)
    ax = axes_of(ax, 8 if several else 6, 3.6)
    if intervals is not None and len(intervals):
        label += ", with 90 % " + ("intervals" if column.kind == "category" else "band")
    curves = heights if isinstance(heights, Mapping) else {"": heights}
    bands = intervals if isinstance(intervals, Mapping) else {"": intervals}
    marks = "os^Dv*P" if column.kind == "category" else ("-", "--", ":", "-.")
    # categories' marks stand side by side, so that all are seen
    beside = 0.6 / len(curves) if column.kind == "category" else 0.0
    moved = [places + beside * (k - (len(curves) - 1) / 2) for k in range(len(curves))]
    lines = [
        ax.plot(x, own, marks[k // 10 % len(marks)], color=None if several else BLUE)[0]
        for k, (x, own) in enumerate(zip(moved, curves.values(), strict=True))
    ]
    for line, name in zip(lines, curves, strict=True):
        line.set_label(name)
    if several:
        told = [_lines(shown(name), 24, 6) for name in curves]
        columns = -(-len(told) // MOST_NAMES)
        ax.legend(
            lines, told, frameon=False, loc="center left", bbox_to_anchor=(1, 0.5), ncols=columns
        )  # beside the curves, none of which it may cover
    for name, x, line in zip(curves, moved, lines, strict=True):
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
    return ax


def _name_categories(ax: Axes, names: Sequence[str]) -> None:
    """Ticks at 0, 1, ...: names beside each other where there is room, upright otherwise."""
    room = 60 // len(names)
    told = [_lines(shown(name), max(room, 8), 5) for name in names]
    flat = max(map(len, "\n".join(told).split("\n"))) <= room
    if not flat:
        told = [_lines(shown(name), 32, 3) for name in names]
    ax.set_xticks(np.arange(len(names)), told, rotation=0 if flat else 90)


@dataclass(frozen=True)
class TreeNode:
    """A node as it is drawn, with the branches below it."""

    text: str  #: in its box
    #: condition, and where it leads
    branches: list[tuple[str, TreeNode]] = field(default_factory=list)

    @property
    def splits(self) -> int:
        """How many there are from here on."""
        return bool(self.branches) + sum(below.splits for _, below in self.branches)


def drawn(own: Tree, columns: Sequence[Column], leaf: Callable[[int], str]) -> TreeNode:
    """A tree of splits with its leaves' texts, as :meth:`.Tree.read`."""
    root, branches = own.read(columns)

    def below(node: int) -> TreeNode:
        if not branches[node]:
            return TreeNode(leaf(node))
        told = [(text, below(child)) for text, child in branches[node]]
        return TreeNode(shown(columns[own.feature[node]].name), told)

    return below(root)


def tree(ax: Axes | None, root: TreeNode) -> Axes:
    """A tree from left to right; below :data:`DEEPEST` levels stands how many splits are left out."""
    boxes: list[tuple[int, float, str]] = []
    lines: list[tuple[int, float, float, str]] = []
    lowest = 0.0

    def place(node: TreeNode, depth: int, above: str = "") -> float:
        nonlocal lowest
        cut = depth == DEEPEST and node.branches
        more = f"... {node.splits} more split{'s' * (node.splits > 1)}"
        text = more if cut else _lines(node.text, WIDE, 12)
        room = max(1.0, 0.7 + 0.45 * text.count("\n"), 0.8 + 0.75 * above.count("\n"))
        branches = () if cut else [(_lines(told, WIDE, 8), one) for told, one in node.branches]
        begin = lowest
        below = [(told, place(one, depth + 1, told)) for told, one in branches]
        lowest = min(lowest, begin - room)
        height = float(np.mean([at for _, at in below])) if below else begin - (room - 1) / 2
        boxes.append((depth, height, text))
        lines.extend((depth, height, at, told) for told, at in below)
        return height

    place(root, 0)
    deepest = max(depth for depth, _, _ in boxes)
    boxed, told = (
        max((len(line) for one in few for line in one[-1].split("\n")), default=0)
        for few in (boxes, lines)
    )
    level = max(2.6, 0.6 + 0.09 * boxed + 0.07 * told)
    ax = axes_of(ax, max(4.0, 0.4 + 0.1 * boxed + level * deepest), 1 - 0.42 * lowest)
    for depth, start, end, text in lines:
        ax.plot([depth, depth + 1], [start, end], color=GREY, linewidth=0.8, zorder=1)
        middle = depth + 0.5, start + 0.5 * (end - start)
        ax.text(*middle, text, ha="center", va="center", fontsize=8, zorder=3,
                bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.6})  # fmt: skip
    for depth, height, text in boxes:
        ax.text(depth, height, text, ha="center", va="center", fontsize=9, zorder=4,
                bbox={"boxstyle": "round", "facecolor": "white", "edgecolor": BLUE})  # fmt: skip
    margin = (0.2 + 0.05 * boxed) / level
    ax.set_xlim(-margin, deepest + margin)
    ax.set_ylim(lowest + 0.3, 0.7)
    ax.axis("off")
    return ax


def literal(text: str) -> str:
    """A text that matplotlib draws as it is: between two dollar signs it would read mathematics."""
    return text.replace("$", r"\$")


def wrapped(text: str, most: int) -> str:
    """A text over lines of so many characters, drawn as it is; a number stays beside its per cent."""
    held = text.replace(" %", "\u00a0%")
    lines = (fill(line, most, break_on_hyphens=False) for line in held.splitlines())
    return literal("\n".join(lines).replace("\u00a0%", " %"))


def _lines(text: str, width: int, most: int) -> str:
    """A text over at most so many lines of some width, drawn as it is; three dots end what is longer."""
    lines = wrap(text, width, break_on_hyphens=False, max_lines=most, placeholder=" …")
    return literal("\n".join(lines))


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
    """A picture with a text below it, for notebooks and pages; long lines are broken, but for rows of tables."""
    lines = (
        own if "  " in own.strip() else fill(own, PAGE, subsequent_indent=" " * INDENT)
        for own in text.split("\n")
    )
    picture = svg_of(ax, title).replace("<svg ", '<svg style="max-width:100%;height:auto" ', 1)
    told = escape("\n".join(lines))
    return f'<figure>{picture}</figure><pre style="overflow-x:auto">{told}</pre>'
