"""Ways to learn: what a learner asks under each kind of policy, and the one rule that chooses."""

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
    """How a learner learns under one kind of policy, by what its ``_params`` gives for a schema."""

    name: ClassVar[str]  #: ``"published"`` or ``"private"``
    queries: ClassVar[tuple[type[Query], ...]]  #: The kinds of query that it asks

    def __init__(self, params: Params) -> None:
        self.params = params

    def first(self, schema: Schema) -> Query:
        """The query without whose answer it cannot begin: of its plan the first."""
        return self.plan(schema)[0].query

    def offered(self, federation: Disclosure) -> bool:
        """Whether any client would answer the first query now; nothing is asked."""
        return bool(federation.offers(self.first(federation.schema)))

    @abstractmethod
    def plan(self, schema: Schema) -> Sequence[Planned]:
        """Its longest public schedule."""

    @abstractmethod
    def learn(self, federation: Disclosure, rng: np.random.Generator) -> Result:
        """Learn from releases alone; NobodyAnswered if no client answered the first query."""


Ways = tuple[type[Way[Any, Any]], ...]  #: The ways of a learner, the preferred one first


class LearnerByWays(FederatedLearner):
    """A learner that is its parameters and the ways in which it can learn.

    ``fit`` takes the first way whose first query any client offers, or the last way where none is.
    ``plan`` lists what can begin under a policy: the ways whose first query's kind the policy names, or
    the last way where it names none.
    """

    ways: ClassVar[Ways] = ()  #: The ways, the preferred one first

    way_: str  #: The name of the way that it learned by, set by ``fit``
    random_state: int | None

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        if "ways" in vars(cls):
            cls.queries = tuple(dict.fromkeys(query for way in cls.ways for query in way.queries))

    @property
    def private_(self) -> bool:
        """Whether it learned in the private way."""
        return self.way_ == "private"

    def fit(self, federation: Disclosure) -> Self:
        """Learn from releases alone; NobodyAnswered if no client answered the first query."""
        self._start(federation)
        ways = self._ways(self.schema_)
        way = next((way for way in ways[:-1] if way.offered(federation)), ways[-1])
        result = way.learn(federation, np.random.default_rng(self.random_state))
        self.way_ = way.name
        self._keep(result)
        return self

    def plan(self, schema: Schema, policy: Policy) -> Sequence[Planned]:
        """Every query that can be asked under the policy, as often as one client may be asked."""
        ways = self._ways(schema)
        begun = [way for way in ways if way.first(schema).kind in policy.guards] or ways[-1:]
        return [line for way in begun for line in way.plan(schema)]

    def _ways(self, schema: Schema) -> list[Way[Any, Any]]:
        params = self._params(schema)
        return [way(params) for way in self.ways]

    @abstractmethod
    def _params(self, schema: Schema) -> Any:
        """The parameters in the form that its ways need."""

    @abstractmethod
    def _keep(self, result: Any) -> None:
        """Set the fitted attributes from what a way learned."""
