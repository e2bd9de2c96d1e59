"""Studies are carried out without their pictures."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _without_pictures(no_pictures: None) -> None:
    """See :func:`no_pictures`."""
