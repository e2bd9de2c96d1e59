"""FedGA-Tree's figures: the IBM tree of those who take part, edit distances, gains by set and setting."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privfed.learners.baselines import TruexTreeClassifier
from privfed.study.papers import TABLES, genetic
from privfed.study.papers.table import compared

LISTS = st.lists(st.integers(0, 3), max_size=7)


def table(rows: int = 400, seed: int = 0) -> pd.DataFrame:
    """Two numbers and a category, of which one number makes the class."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({"a": rng.normal(size=rows), "b": rng.normal(size=rows)})
    frame["kind"] = rng.choice(["u", "v"], rows)
    return frame.assign(label=np.where(frame["a"] + 0.3 * rng.normal(size=rows) > 0, "yes", "no"))


def naive(one: list[int], other: list[int]) -> int:
    """Edit distance by its recursion."""
    if not one or not other:
        return len(one) + len(other)
    moved = naive(one[1:], other[1:]) + (one[0] != other[0])
    return min(moved, naive(one[1:], other) + 1, naive(one, other[1:]) + 1)


@given(LISTS, LISTS)
def test_edit_distances_are_those_of_the_recursion(one: list[int], other: list[int]) -> None:
    """Over the longer list's length."""
    expected = naive(one, other) / max(len(one), len(other), 1)
    assert genetic.edit_distance(one, other) == pytest.approx(expected)


def test_classes_are_made_equally_common_and_numbers_binned() -> None:
    """Clients share what a tenth held out leaves; bins are five at most."""
    data = genetic.prepared(table(), "x", 1, 4, None)
    assert len(data.clients) == 4 and data.classify
    assert abs(np.mean(np.concatenate([y for _, y in data.clients.values()])) - 0.5) < 0.05
    assert {len(np.unique(x[:, 0])) for x, _ in data.clients.values()} == {5}
    numbers = genetic.prepared(table().assign(label=table()["a"]), "abalone", 1, 4, None)
    assert not numbers.classify


def test_the_ibm_tree_is_grown_by_the_clients_that_are_active(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A tenth of twenty is two, whose secure sum has the noise of two."""
    data = genetic.prepared(table(), "x", 1, 20, None)
    assert len(genetic.active_clients(data, 0.1, 3)) == 2
    assert genetic.active_clients(data, 1.0, 3) == list(data.clients)
    asked: list[tuple[int, int]] = []
    published = TruexTreeClassifier.published

    def noted(self: Any, epsilon: int, parties: int) -> Any:
        asked.append((epsilon, parties))
        return published(self, epsilon, parties)

    monkeypatch.setattr(TruexTreeClassifier, "published", noted)
    grown = genetic.truex(data, genetic.active_clients(data, 0.1, 3))
    assert asked == [(1, 2)] and len(genetic.score(grown, data)) == 20


def test_a_tuned_ibm_tree_is_the_best_of_all_depths_that_were_grown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Figure 11: half of the features, the clients' median, and the best; the paper's stand beside means of sets alone."""
    grown: list[int] = []
    plain = genetic.truex

    def noted(data: Any, active: Any, *, depth: int) -> Any:
        grown.append(depth)
        return plain(data, active, depth=depth)

    monkeypatch.setattr(genetic, "truex", noted)
    monkeypatch.setattr(genetic, "TRIED", (2, 3))
    monkeypatch.setattr(genetic, "CLIENTS", 3)
    data = {"one": table(), "two": table(seed=1)}
    told = compared(TABLES["genetic/figure-11"].run(data, 1)).set_index(["row", "column"])
    ours = {key: told["ours"][key] for key in told.index}
    ways = [f"{way}: gain over own trees, %" for way in genetic.DEPTHS]
    assert {2, 3} <= set(grown)
    assert all(ours[name, ways[0]] >= ours[name, way] for name in data for way in ways)
    assert told["paper"]["mean of 2 sets", ways[0]] == -2.58
    assert told["paper"]["one"].isna().all()


def test_a_figure_has_gains_by_set_and_setting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Over splits; the mean of all sets stands beside the paper's at its own setting alone."""
    monkeypatch.setitem(genetic.PAPERS_WAY[0][0], "generations", 2)
    data = {"one": table(), "two": table(seed=1)}
    run = genetic.table(["gain", "distance"], ((3, 1.0),))
    told = compared(run(data, 1)).set_index(["row", "column"])
    paper, ours = told["paper"].to_dict(), told["ours"].to_dict()
    gain, apart = "paper: gain over own trees, %", "paper: edit distance to the client's structure"
    assert paper["mean of 2 sets", gain] == 5.58
    assert ours["mean of 2 sets", gain] == pytest.approx(np.mean([ours[n, gain] for n in data]))
    assert 0 <= ours["one", apart] <= 1
    assert "genetic/figure-7" in TABLES
