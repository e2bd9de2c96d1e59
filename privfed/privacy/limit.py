"""Sub-budgets: ceilings on parts of one data set's spending, nested under its whole budget."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from privfed.errors import PolicyError
from privfed.privacy.accountant import Budget
from privfed.tables.toml_file import check_keys

#: Attributes of a charge that a limit may group by.
ASPECTS = ("study", "round", "kind", "client", "principal", "month", "model")
WHOLE = "[]"  #: The scope of all charges


@dataclass(frozen=True)
class Limit:
    """A ceiling on the spending for each combination of values of some aspects of a charge.

    ``Limit(("study", "round"), budget)`` holds every round of every study to the budget. A request
    names its own round and principal. Unless the owner's channel identifies principals and counts
    rounds itself, such limits prevent mistakes, but do not bind a dishonest server.
    """

    per: tuple[str, ...]  #: aspects, or one; each combination of their values has its own budget
    budget: Budget  #: the ceiling
    where: Mapping[str, str] = field(default_factory=dict)  #: aspects with a fixed value

    def __post_init__(self) -> None:
        if not isinstance(self.per, str | list | tuple) or not isinstance(self.budget, Budget):
            raise PolicyError(
                'a limit is per aspects and has a budget; write Limit(["study"], Budget.of("0.5"))'
            )
        listed = (self.per,) if isinstance(self.per, str) else tuple(self.per)
        object.__setattr__(self, "per", listed)
        unknown = [aspect for aspect in self.aspects if aspect not in ASPECTS]
        if unknown or not self.aspects:
            raise PolicyError(
                f"a limit is per one or more of {', '.join(ASPECTS)}, not {', '.join(unknown) or 'nothing'}"
            )
        if self.where.get("model", "local") not in ("local", "central"):
            raise PolicyError('a limit\'s where says model = "local" or "central"')

    @property
    def aspects(self) -> tuple[str, ...]:
        """All aspects that its scopes depend on, in the order of :data:`ASPECTS`."""
        named = {*self.per, *self.where}
        return (*(a for a in ASPECTS if a in named), *sorted(named - set(ASPECTS)))

    def applies(self, aspects: Mapping[str, str]) -> bool:
        """Whether a charge with these aspects counts against the limit."""
        return all(aspects.get(name) == value for name, value in self.where.items())

    def scope(self, aspects: Mapping[str, str]) -> str:
        """Return the scope, the key of the total that a charge with these aspects counts towards."""
        return scope(self.aspects, aspects)

    def to_dict(self) -> dict[str, Any]:
        """Return the limit as plain data."""
        data: dict[str, Any] = {"per": list(self.per), **self.budget.to_dict()}
        return {**data, "where": dict(self.where)} if self.where else data

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], where: str = "policy") -> Limit:
        """Read plain data; ``per`` may be a single string."""
        where = f"{where}, [[limit]]"
        check_keys(data, {"per", "epsilon", "delta", "where"}, where, PolicyError)
        if "epsilon" not in data:
            raise PolicyError(f'{where}: epsilon is missing; write epsilon = "1"')
        per, fixed = data.get("per", ()), data.get("where", {})
        per = (per,) if isinstance(per, str) else per
        values = fixed.values() if isinstance(fixed, Mapping) else [None]
        if not isinstance(per, list | tuple) or not all(
            isinstance(v, str) for v in (*per, *values)
        ):
            raise PolicyError(
                f'{where}: per is a list of aspects and where a table of texts; write per = ["study"]'
            )
        return cls(tuple(per), Budget.of(data["epsilon"], data.get("delta", 0)), fixed)


def scope(names: tuple[str, ...], aspects: Mapping[str, str]) -> str:
    """Return the key of a total: the named aspects with their values, as JSON."""
    pairs = [word for name in names for word in (name, aspects.get(name, ""))]
    return msgspec.json.encode(pairs).decode()
