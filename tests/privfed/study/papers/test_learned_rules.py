"""DP-RuL's figures over learned rules: what is held out, what counts as valid, what searches find."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from privfed.errors import InputError
from privfed.study.papers import TABLES, data, learned_rules
from privfed.study.papers.table import compared


def trajectories(count: int = 24, steps: int = 10) -> pd.DataFrame:
    """Two sensors, of which one swings where the motion is vigorous; steps in any order."""
    rng = np.random.default_rng(0)
    vigorous = np.arange(count) % 2
    wide = np.where(vigorous, 10.0, 1.0)[:, None] * rng.uniform(0.5, 1, (count, steps))
    frame = pd.DataFrame({"x0": wide.ravel(), "x1": rng.normal(size=count * steps)})
    frame["trajectory"] = np.repeat(np.arange(count), steps)
    frame["step"] = np.tile(np.arange(steps), count)
    return frame.assign(vigorous=np.repeat(vigorous, steps)).sample(frac=1, random_state=0)


@pytest.fixture
def learned(monkeypatch: pytest.MonkeyPatch) -> learned_rules.Learned:
    """Twenty individuals' rules."""
    monkeypatch.setattr(learned_rules, "PEOPLE", 20)
    return learned_rules.Learned.of(trajectories())


def test_trajectories_are_put_in_order_and_a_third_is_held_out(
    learned: learned_rules.Learned,
) -> None:
    """Every fifth step is kept; a label for each trajectory."""
    assert learned.signals.shape == (24, 2, 2) and len(learned.held_out) == 8
    ordered = trajectories().sort_values(["trajectory", "step"])["x0"].to_numpy().reshape(24, 10)
    np.testing.assert_array_equal(learned.signals[:, :, 0], ordered[:, ::5])
    np.testing.assert_array_equal(learned.labels, np.arange(24) % 2 == 1)


def test_rules_of_more_people_are_fewer_and_worth_something(
    learned: learned_rules.Learned, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Figure 12 falls along the share; all valid rules tell the held-out motions apart."""
    monkeypatch.setattr(learned_rules.Learned, "of", lambda _: learned)
    frames = {learned_rules.SET: trajectories()}
    told = compared(TABLES["rule-search/figure-12"].run(frames, 1))["ours"].tolist()
    assert told == sorted(told, reverse=True) and told[0] > told[-1] > 0
    assert learned.worth(learned.every_rule(0.3))["balanced_accuracy"] > 0.6
    cells = [("epsilon 9", (learned_rules.BY_LEVEL, 9, 0.3))]
    run = learned_rules.table(lambda: iter(cells), (0.3,))
    found = compared(run(frames, 2)).set_index(["row", "column"])["repetitions"]
    assert found[f"{learned_rules.BY_LEVEL}, epsilon 9", "coverage"] == 2
    assert found[f"{learned_rules.ALL}, nu 0.3", "F1"] == 1


def test_a_large_epsilon_finds_valid_structures(learned: learned_rules.Learned) -> None:
    """Through a gate; at a tiny one nothing that is found is right but by chance."""
    many = learned.searched("ours, best first", 3000, 0.3, 0)
    assert many["coverage"] > 0.5 and many["precision"] > 0.5


def test_without_its_library_the_set_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file of one's own is read; without it and the library the error says what to install."""
    trajectories().to_csv(tmp_path / "basic_motions.csv", index=False)
    assert len(data.table("basic_motions", tmp_path)) == 240
    monkeypatch.setattr(data, "find_spec", lambda _: None)
    with pytest.raises(InputError, match="pip install sktime"):
        data.table("basic_motions", None)
