"""What a model's file gives away, as one self-contained HTML page."""

from collections.abc import Mapping
from typing import Any

from privfed.attacks.finding import Finding
from privfed.reports.page import environment_of, figure_of, number, strongest, verdict


def model_page(plain: Mapping[str, Any]) -> str:
    """Return the page of what was found of a model: HTML with its styles inside."""
    findings = [Finding.from_dict(each) for each in plain["findings"]]
    found = [each for each in findings if each.state == "found" and each.of is not None]
    environment = environment_of()
    environment.filters |= {"number": number, "plain": lambda text: text.replace("_", " ")}
    environment.globals |= {"verdict": verdict, "figure_of": figure_of, "strongest": strongest}
    text: str = environment.get_template("model.html").render(
        about=plain, findings=findings, strong=max(found, key=lambda each: each.above, default=None)
    )
    return text
