"""A study's page shows each model with the epsilon of the ledgers."""

import json
from pathlib import Path

from privfed.cli import status

STUDY = """
name = "Three hospitals"
[data]
source = "diabetes"
[clients]
partition = "iid"
count = 3
[learner]
name = "FuzzyTreeRegressor"
params = { n_fuzzy_sets = 3, max_depth = 1 }
[[policy]]
name = "private"
epsilon = "4"
delta = "1e-5"
"""


def test_a_model_on_a_page_says_the_page_s_epsilon(tmp_path: Path) -> None:
    """As the report's data has it; the model's file, which is the same over every engine, has none."""
    (tmp_path / "study.toml").write_text(STUDY)
    assert status(["run", str(tmp_path / "study.toml"), "--out", str(tmp_path / "out")]) == 0
    page = " ".join((tmp_path / "out" / "report.html").read_text().split())
    assert "Privacy: epsilon 4 at delta 1e-05 for each record of a data owner" in page
    assert "seeded for a test" not in page and "see the data owners" not in page
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert '"epsilon": 4' in json.dumps(report)
    assert "privacy" not in json.loads((tmp_path / "out" / "private" / "model.json").read_text())
