"""What a model's file gives away, as one self-contained HTML page."""

from collections.abc import Mapping
from typing import Any

from privfed.attacks.finding import Finding
from privfed.reports.page import rendered


def model_page(plain: Mapping[str, Any]) -> str:
    """Return the page of what was found of a model: HTML with its styles inside."""
    findings = [Finding.from_dict(each) for each in plain["findings"]]
    found = [each for each in findings if each.state == "found"]
    strong = max(found, key=lambda each: (each.of is not None, each.above), default=None)
    silent = sum(each.state == "not looked" for each in findings)
    return rendered("model.html", about=plain, findings=findings, strong=strong, silent=silent)
