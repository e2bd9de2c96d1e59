"""The verdict on a guard as one self-contained HTML page."""

from collections.abc import Mapping
from typing import Any

from privfed.reports.page import render


def guard_page(verdict: Mapping[str, Any]) -> str:
    """Return the page of a verdict (a dict): HTML with its styles inside."""
    return render("guard.html", verdict=verdict)
