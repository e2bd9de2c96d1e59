"""Pictures of models: their own figures, with what the model says in them."""

from __future__ import annotations

from functools import cache
from html import escape
from itertools import pairwise
from typing import Any

import matplotlib._pylab_helpers as pyplot_state
import numpy as np
import pytest
from matplotlib.figure import Figure

from privfed.errors import InputError, SchemaError
from privfed.learners import (
    FedForestClassifier,
    FuzzyTreeRegressor,
    GeneticTreeClassifier,
    RuleFitClassifier,
)
from privfed.learners.base import FederatedLearner
from privfed.learners.pictures import (
    DEEPEST,
    POINTS,
    PRINTED,
    TreeNode,
    bars,
    html_of,
    places_of,
    shape,
    svg_of,
    titled,
    tree,
)
from privfed.learners.rulefit import estimator
from privfed.tables.schema import Column
from privfed.testing.hospitals import BINARY, NUMERIC, gates, patients

FRAME = patients(1500)
LEARNERS: dict[str, FederatedLearner] = {
    "rules": RuleFitClassifier(stable=True, random_state=0),
    "forest": FedForestClassifier(n_estimators=3, max_depth=3, random_state=0),
    "fuzzy": FuzzyTreeRegressor(max_depth=1),
    "personal": GeneticTreeClassifier(4, generations=1, depth=2, random_state=0),
}


@cache
def fitted(name: str) -> Any:
    """Each learner once; rules in private."""
    learner = LEARNERS[name]
    policy = learner.private("8") if name == "rules" else learner.published()
    schema = NUMERIC if name == "fuzzy" else BINARY
    return learner.fit(gates(FRAME, policy, schema))


@pytest.mark.parametrize(
    "name", ["age", "bmi < 28 and smoker = False and ward in {one, another, a third}"]
)
def test_a_title_stays_within_the_figure_however_long_the_labels(name: str) -> None:
    """Long labels leave the axes, at whose left the title begins, half of the figure."""
    ax = titled(bars(None, [name], np.ones(1), "adds"), "what no noise and no sampling tells " * 4)
    figure = ax.get_figure(root=True)
    assert figure is not None
    figure.draw_without_rendering()
    title = next(
        one
        for one in ax.get_children()
        if getattr(one, "get_text", str)() == ax.get_title(loc="left")
    )
    assert title.get_window_extent().x1 <= figure.bbox.x1


def texts(axes: Any) -> str:
    """All that is written on axes, bars' names included."""
    return " ".join(
        [one.get_text() for one in axes.texts] + [one.get_text() for one in axes.get_yticklabels()]
    )


@pytest.mark.parametrize(("name", "more"), [
    ("rules", {}), ("rules", {"feature": "age"}), ("forest", {}), ("forest", {"tree": 1}),
    ("fuzzy", {}), ("personal", {"client": "A"}),
])  # fmt: skip
def test_a_model_is_drawn_on_given_axes_or_its_own(name: str, more: dict[str, Any]) -> None:
    """And pyplot knows nothing of either."""
    own, given = fitted(name).plot(**more), Figure().subplots()
    assert fitted(name).plot(**more, ax=given) is given
    assert (
        own is not given
        and len(given.lines) + len(given.patches) == len(own.lines) + len(own.patches) > 0
    )
    assert not pyplot_state.Gcf.get_all_fig_managers()


def test_bars_are_the_coefficients_with_their_intervals() -> None:
    """In the table's order; each interval's line goes from low to high."""
    axes, table = fitted("rules").plot(), fitted("rules").table()
    assert [bar.get_width() for bar in axes.patches] == pytest.approx(table["coefficient"].tolist())
    (lines,) = (one for one in axes.collections)
    ends = [segment[:, 0].tolist() for segment in lines.get_segments()]
    assert np.allclose(ends, table[["low", "high"]].to_numpy())
    assert texts(axes).split("  ")[0].startswith(table["term"][0])


def test_shape_functions_add_up_to_the_scores() -> None:
    """Where every term has one column, scores are a constant and one shape function for each column."""
    model = fitted("rules").model_
    rng = np.random.default_rng(0)
    x = np.column_stack([
        rng.uniform(0, 100, 200), rng.integers(3, 16, 200), rng.uniform(-4, 4, 200), rng.integers(0, 2, 200),
    ]).astype(float)  # fmt: skip
    added = sum(model.shape_of(j, x[:, j])[0] for j in range(4))
    assert np.ptp(model.scores(x) - added) == pytest.approx(0, abs=1e-9)
    heights, band = model.shape_of(0, x[:, 0])
    assert band is not None and (band[:, 0] <= heights).all() and (heights <= band[:, 1]).all()


def test_both_sides_of_a_cut_are_drawn() -> None:
    """A step is upright wherever its cut lies; categories are drawn one by one."""
    places = places_of(BINARY.features[0], [33.3])
    assert {33.3, float(np.nextafter(33.3, -np.inf))} <= set(places.tolist())
    assert places_of(BINARY.features[3]).tolist() == [0, 1]


def test_a_deep_tree_is_drawn_to_some_levels() -> None:
    """Below them stands how many splits more there are."""
    root = TreeNode("leaf")
    for depth in range(DEEPEST + 3):
        root = TreeNode(f"f{depth}", [("yes", root), ("no", TreeNode("0"))])
    found = texts(tree(None, root))
    assert "... 3 more" in found and f"f{DEEPEST + 2}" in found and "f0" not in found


def test_a_trees_texts_are_drawn_whole_and_beside_each_other() -> None:
    """Long ones go over lines, for which leaves make room."""
    words = ", ".join(f"class {number}=0.{number}" for number in range(2, 9))
    root = TreeNode("f", [(f"is {words}", TreeNode(words)) for _ in range(3)])
    axes = tree(None, root)
    assert " ".join(texts(axes).split()).count(words) == 6
    figure = axes.get_figure(root=True)
    assert figure is not None
    figure.draw_without_rendering()
    boxes = [one.get_window_extent() for one in axes.texts]
    assert not any(a.overlaps(b) for k, a in enumerate(boxes) for b in boxes[:k])


def test_many_curves_and_categories_are_told_apart() -> None:
    """The eleventh curve has another line; an empty name is in quotes, long ones stand upright."""
    column = Column("c", "category", categories=("", *(f"a long category {k}" for k in range(9))))
    axes = shape(
        None, Column("x", "number", 0, 1), {str(k): np.ones(POINTS) for k in range(12)}, "y"
    )
    styles = [(line.get_color(), line.get_linestyle()) for line in axes.lines[:12]]
    assert len(set(styles)) == 12
    ticks = shape(None, column, np.zeros(10), "y").get_xticklabels()
    assert ticks[0].get_text() == '""' and ticks[1].get_rotation() == 90
    many = Column("w", "category", categories=tuple(f"w{k:03}" for k in range(300)))
    axes = shape(None, many, np.zeros(300), "y")
    labels = {
        tick.get_text(): int(x)
        for tick, x in zip(axes.get_xticklabels(), axes.get_xticks(), strict=True)
    }
    assert 30 <= len(labels) <= 40 and labels == {f"w{x:03}": x for x in labels.values()}
    assert "(the first 20 of 30)" in bars(None, ["a"] * 30, np.ones(30), "b").get_xlabel()


def test_names_are_drawn_as_they_are_written() -> None:
    """Dollar signs make no mathematics of them, a class may begin with an underscore, and long ones go over lines."""
    column = Column("cost $ & tax $", "category", categories=("$b$", "_c"))
    axes = shape(None, column, {"$d$": np.zeros(2), "_e": np.ones(2)}, "$f$ " * 30)
    drawn = [svg_of(axes, "x"), svg_of(bars(None, ["$a$"], np.ones(1), "$g$"), "x")]
    for name, svg in zip(("cost $ &amp; tax $", "$a$"), drawn, strict=True):
        assert f">{name}</text>" in svg
    assert all(f">{name}</text>" in drawn[0] for name in ("$b$", "_c", "$d$", "_e"))
    assert axes.get_ylabel().count("\n") >= 2


def test_pictures_say_what_their_lines_and_bands_are() -> None:
    """Intervals where there are some, and their level beside its per cent; none where there are none."""
    column = Column("x", "number", 0, 1)
    told = bars(None, ["a"], np.ones(1), "b", np.array([[0.5, 2]])).get_xlabel()
    assert told == "b, with 90 % intervals"
    band = {"c": np.zeros((POINTS, 2))}
    assert (
        shape(None, column, {"c": np.ones(POINTS)}, "y", band).get_ylabel() == "y, with 90 % band"
    )
    assert shape(None, column, {"c": np.ones(POINTS)}, "y", {}).get_ylabel() == "y"
    assert "adds to log-odds of died = 1, with" in fitted("rules").plot().get_xlabel()
    assert "90 %" in bars(None, ["a"], np.ones(1), "a" * 66, np.ones((1, 2))).get_xlabel()


def test_nothing_is_cut_off_or_covered() -> None:
    """A long label, numbers of six digits and curves' names lie on the figure, beside each other and off the curves."""
    names, values = ["a long condition of a rule " * 2] * 3, np.array([-1e5, 5e4, 1.5e5])
    axes = bars(None, names, values, "adds to the target, which has a long name, in its unit")
    curves = {f"class {k}": np.linspace(0, k, POINTS) for k in range(40)}
    several = shape(None, Column("x", "number", 0, 1), curves, "y")
    for one in (axes, several):
        figure = one.get_figure(root=True)
        assert figure is not None
        figure.draw_without_rendering()
    figure = axes.get_figure(root=True)
    assert figure is not None
    label = axes.xaxis.label.get_window_extent()
    assert label.x0 >= 0 and label.x1 <= figure.bbox.x1 + 1
    ticks = [one.get_window_extent() for one in axes.get_xticklabels()]
    assert all(a.x1 < b.x0 for a, b in pairwise(ticks))
    legend, figure = several.get_legend(), several.get_figure(root=True)
    assert legend is not None and figure is not None
    box = legend.get_window_extent()
    assert box.x0 >= several.get_window_extent().x1 and box.y0 >= 0 and box.y1 <= figure.bbox.y1


def test_what_cannot_be_drawn_says_so() -> None:
    """Unknown features, and pictures that a model does not have."""
    with pytest.raises(SchemaError, match="agee"):
        fitted("rules").plot("agee")
    with pytest.raises(InputError, match="no picture of 'age' alone; see plot"):
        fitted("forest").plot("age")
    with pytest.raises(InputError, match=r"plot\(client='A'\)"):
        fitted("personal").plot()


def test_notebooks_show_fitted_models() -> None:
    """The picture, the same bytes each time, and the text, escaped; an unfitted one as scikit-learn does."""
    shown = fitted("rules")._repr_html_()
    assert shown == fitted("rules")._repr_html_()
    assert shown.startswith('<figure><svg style="max-width:100%;')
    assert all(escape(term) in shown for term in fitted("rules").table(5)["term"])
    assert "&gt;=" in shown
    assert f"{PRINTED}<pre" in shown  # a wide table is cut in print otherwise
    assert "font-family:monospace" in shown  # columns do not line up in a notebook otherwise
    assert "<figure>" not in RuleFitClassifier()._repr_html_()
    personal = fitted("personal")._repr_html_()
    assert "<figure>" not in personal and "those read: A, B, C" in personal
    assert "&lt;b&gt;" in html_of(fitted("forest").plot(), "x", "<b>")


def test_a_model_of_two_classes_is_shown_with_its_score_card(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Every line of it, below the text; a long one is left out, as nobody adds it up by hand."""
    rules = fitted("rules")
    shown = rules._repr_html_()
    assert shown.endswith(f"{rules.scorecard().to_html()}</details>")
    monkeypatch.setattr(estimator, "MOST_LINES", len(rules.scorecard().table()) - 1)
    assert "<details" not in rules._repr_html_()


def test_long_sentences_of_a_model_are_broken_on_pages_and_rows_of_tables_are_not() -> None:
    """A page scrolled sideways to read what the coefficients add to."""
    row = "age is 3" + " " * 120 + "1.5"
    page = html_of(fitted("forest").plot(), "x", "to be read " * 20 + "\n" + row)
    text = page.split('<pre class="model" style="overflow-x:auto;font-family:monospace">')[
        1
    ]  # a long row scrolls by itself
    first, second, *_, last = text.removesuffix("</pre>").split("\n")
    assert max(len(first), len(second)) <= 100 and second.startswith("    ") and last == row


@pytest.mark.parametrize("curves", [np.ones(10), {"one": np.ones(10), "two": np.ones(10)}])
def test_long_names_below_leave_room_for_the_label_beside(curves: Any) -> None:
    """The figure becomes higher: its axes' label was cut off."""
    names = ("Sankt Peter-Ording, Schleswig-Holstein", *"abcdefghi")
    axes = shape(None, Column("city", "category", categories=names), curves, "label " * 12)
    figure = axes.get_figure(root=True)
    assert figure is not None
    figure.draw_without_rendering()
    beside = axes.yaxis.label.get_window_extent()
    assert beside.y0 > 0 and beside.y1 < figure.bbox.height and beside.height > 2 * figure.dpi
