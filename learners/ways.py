"""Modes of a learner: its queries under each kind of policy, and the rule that chooses the mode."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Generic, Self, TypeVar

import numpy as np

from privfed.exchange.disclosure import Disclosure
from privfed.learners.base import FederatedLearner, Planned
from privfed.privacy.policy import Policy
from privfed.questions.query import Query
from privfed.tables.schema import Schema

Params = TypeVar("Params")
Result = TypeVar("Result")


class Way(ABC, Generic[Params, Result]):
    """A learner's mode under one kind of policy, with the parameters that ``_params`` returns for a schema."""

    name: ClassVar[str]  #: ``"published"`` or ``"private"``
    queries: ClassVar[tuple[type[Query], ...]]  #: Kinds of queries that it sends

    def __init__(self, params: Params) -> None:
        self.params = params

    def first(self, schema: Schema) -> Query:
        """Return the query whose answer is required to begin: the first of the plan."""
        return self.plan(schema)[0].query

    def offered(self, federation: Disclosure) -> bool:
        """Whether any client offers an answer to the first query; nothing is queried."""
        return bool(federation.offers(self.first(federation.schema)))

    @abstractmethod
    def plan(self, schema: Schema) -> Sequence[Planned]:
        """Return the longest public schedule."""

    @abstractmethod
    def learn(self, federation: Disclosure, rng: np.random.Generator) -> Result:
        """Learn from releases only (NobodyAnswered: no client answered the first query)."""


Ways = tuple[type[Way[Any, Any]], ...]  #: Modes of a learner, the preferred one first


class LearnerByWays(FederatedLearner):
    """A learner with several modes.

    ``fit`` uses the first mode whose first query any client offers, or the last mode if none is
    offered. ``plan`` lists the queries of all modes whose first query's kind the policy names, or of
    the last mode if it names none.
    """

    ways: ClassVar[Ways] = ()  #: The modes, the preferred one first

    way_: str  #: Name of the mode used, set by ``fit``
    random_state: int | None

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        if "ways" in vars(cls):
            cls.queries = tuple(dict.fromkeys(query for way in cls.ways for query in way.queries))

    @property
    def private_(self) -> bool:
        """Whether the private mode was used."""
        return self.way_ == "private"

    def fit(self, federation: Disclosure) -> Self:
        """Learn from releases only (NobodyAnswered: no client answered the first query)."""
        self._start(federation)
        ways = self._ways(self.schema_)
        way = next((way for way in ways[:-1] if way.offered(federation)), ways[-1])
        result = way.learn(federation, np.random.default_rng(self.random_state))
        self.way_ = way.name
        self._keep(result)
        return self

    def plan(self, schema: Schema, policy: Policy) -> Sequence[Planned]:
        """Return every query that is possible under the policy, with its maximum number per client."""
        ways = self._ways(schema)
        begun = [way for way in ways if way.first(schema).kind in policy.guards] or ways[-1:]
        return [line for way in begun for line in way.plan(schema)]

    def _ways(self, schema: Schema) -> list[Way[Any, Any]]:
        params = self._params(schema)
        return [way(params) for way in self.ways]

    @abstractmethod
    def _params(self, schema: Schema) -> Any:
        """Return the parameters in the form that the modes need."""

    @abstractmethod
    def _keep(self, result: Any) -> None:
        """Set the fitted attributes from a mode's result."""
