"""What third parties need to test their own code and plugins, and what privfed's tests stand on.

The assertions in ``__all__`` serve any test suite, in any framework; ``check_mechanism`` and its like
are kits, each a list of checks that must hold for every newcomer.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from privfed.leaks.reading.walk import flatten as flatten
    from privfed.testing.assertions.alpha import spending as spending
    from privfed.testing.assertions.audit import assert_dp as assert_dp
    from privfed.testing.assertions.budget import (
        assert_refuses_over_budget as assert_refuses_over_budget,
    )
    from privfed.testing.assertions.ledger import assert_ledger as assert_ledger
    from privfed.testing.assertions.no_raw import Powerless as Powerless
    from privfed.testing.assertions.no_raw import RawValueLeft as RawValueLeft
    from privfed.testing.assertions.no_raw import assert_no_raw as assert_no_raw
    from privfed.testing.assertions.support import assert_support as assert_support
    from privfed.testing.sentinel_tables import sentinels as sentinels

_HOMES = {
    "Powerless": "testing.assertions.no_raw",
    "RawValueLeft": "testing.assertions.no_raw",
    "assert_dp": "testing.assertions.audit",
    "assert_ledger": "testing.assertions.ledger",
    "assert_no_raw": "testing.assertions.no_raw",
    "assert_refuses_over_budget": "testing.assertions.budget",
    "assert_support": "testing.assertions.support",
    "flatten": "leaks.reading.walk",
    "sentinels": "testing.sentinel_tables",
    "spending": "testing.assertions.alpha",
}
__all__ = [*sorted(_HOMES)]  # noqa: PLE0604


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'privfed.testing' has no attribute {name!r}")
    return getattr(import_module(f"privfed.{_HOMES[name]}"), name)
