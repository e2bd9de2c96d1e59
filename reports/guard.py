"""The verdict on a guard as one self-contained HTML page."""

from collections.abc import Mapping
from typing import Any

from privfed.questions.exact import shown_delta
from privfed.reports.page import environment_of, epsilon, number


def guard_page(verdict: Mapping[str, Any]) -> str:
    """Return the page of a verdict's plain data: HTML with its styles inside."""
    environment = environment_of()
    environment.filters |= {"number": number, "epsilon": epsilon, "delta": shown_delta}
    text: str = environment.get_template("guard.html").render(verdict=verdict)
    return text
