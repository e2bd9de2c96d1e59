"""Assertions and checks for third parties' code and plugins, also used by privfed's own tests.

The assertions in ``__all__`` work in any test suite and framework. ``check_mechanism`` and the other
``check_*`` functions run a list of checks that every plugin of a kind must pass.
"""

from typing import TYPE_CHECKING

from privfed.lazy import attach

if TYPE_CHECKING:
    from privfed.leaks.reading.walk import flatten as flatten
    from privfed.testing.assertions.alpha import spending as spending
    from privfed.testing.assertions.audit import assert_dp as assert_dp
    from privfed.testing.assertions.ledger import assert_ledger as assert_ledger
    from privfed.testing.assertions.ledger import (
        assert_refuses_over_budget as assert_refuses_over_budget,
    )
    from privfed.testing.assertions.no_raw import Powerless as Powerless
    from privfed.testing.assertions.no_raw import RawValueLeft as RawValueLeft
    from privfed.testing.assertions.no_raw import assert_no_raw as assert_no_raw
    from privfed.testing.assertions.support import assert_support as assert_support
    from privfed.testing.sentinel_tables import sentinels as sentinels

__getattr__, __dir__, __all__ = attach(__name__, __file__)
