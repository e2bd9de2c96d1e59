"""All that the author of a plugin imports, in one place; see docs/plugins.md.

A mechanism, an accountant, a query, a learner or an attack of one's own needs these names and no
others. They are imported on first use: a mechanism drags no learner along. The kits that check a
newcomer are in :mod:`privfed.testing`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from privfed.attacks.base import Attack as Attack
    from privfed.attacks.base import PublicSchema as PublicSchema
    from privfed.attacks.base import Truth as Truth
    from privfed.attacks.base import exact_parts as exact_parts
    from privfed.attacks.base import question_of as question_of
    from privfed.attacks.clock import Clock as Clock
    from privfed.attacks.finding import Finding as Finding
    from privfed.attacks.finding import Severity as Severity
    from privfed.errors import InputError as InputError
    from privfed.errors import QueryError as QueryError
    from privfed.errors import UnsupportedLoss as UnsupportedLoss
    from privfed.exchange.disclosure import Disclosure as Disclosure
    from privfed.exchange.messages import ReleasedPart as ReleasedPart
    from privfed.exchange.transcript import Transcript as Transcript
    from privfed.exchange.transcript import TranscriptEntry as TranscriptEntry
    from privfed.learners.base import FederatedClassifier as FederatedClassifier
    from privfed.learners.base import FederatedRegressor as FederatedRegressor
    from privfed.learners.base import PersonalLearner as PersonalLearner
    from privfed.learners.base import Planned as Planned
    from privfed.learners.cohort import CohortLearner as CohortLearner
    from privfed.learners.parameters import Constraints as Constraints
    from privfed.learners.parameters import Exact as Exact
    from privfed.learners.parameters import Flag as Flag
    from privfed.learners.parameters import Names as Names
    from privfed.learners.parameters import OneOf as OneOf
    from privfed.learners.parameters import Real as Real
    from privfed.learners.parameters import Whole as Whole
    from privfed.mechanisms.additive import AdditiveNoise as AdditiveNoise
    from privfed.privacy.accountant import Accountant as Accountant
    from privfed.privacy.accountant import Amount as Amount
    from privfed.privacy.accountant import Budget as Budget
    from privfed.privacy.loss import Loss as Loss
    from privfed.privacy.mechanism import BoundedPart as BoundedPart
    from privfed.privacy.mechanism import Mechanism as Mechanism
    from privfed.privacy.mechanism import Noised as Noised
    from privfed.privacy.mechanism import Protection as Protection
    from privfed.privacy.mechanism import unmasked as unmasked
    from privfed.privacy.mechanism import within_range as within_range
    from privfed.privacy.noise import Noise as Noise
    from privfed.privacy.policy import Guard as Guard
    from privfed.privacy.policy import Policy as Policy
    from privfed.questions.exact import Number as Number
    from privfed.questions.exact import exact as exact
    from privfed.questions.part import GRID as GRID
    from privfed.questions.part import Bound as Bound
    from privfed.questions.part import Part as Part
    from privfed.questions.part import PartType as PartType
    from privfed.questions.part import Sensitivity as Sensitivity
    from privfed.questions.part import on_grid as on_grid
    from privfed.questions.query import CohortQuery as CohortQuery
    from privfed.questions.query import LocalEffect as LocalEffect
    from privfed.questions.query import LocalView as LocalView
    from privfed.questions.query import Query as Query
    from privfed.questions.query import View as View
    from privfed.questions.span import Span as Span
    from privfed.questions.tree import Forest as Forest
    from privfed.questions.tree import Tree as Tree
    from privfed.tables.schema import Column as Column
    from privfed.tables.schema import Schema as Schema

#: Where each name lives, by what it is for.
_HOMES = {
    # a mechanism
    "AdditiveNoise": "mechanisms.additive",
    "Bound": "questions.part",
    "BoundedPart": "privacy.mechanism",
    "Loss": "privacy.loss",
    "Mechanism": "privacy.mechanism",
    "Noise": "privacy.noise",
    "Noised": "privacy.mechanism",
    "Protection": "privacy.mechanism",
    "unmasked": "privacy.mechanism",
    "within_range": "privacy.mechanism",
    # an accountant
    "Accountant": "privacy.accountant",
    "Amount": "privacy.accountant",
    "UnsupportedLoss": "errors",
    # a query
    "CohortQuery": "questions.query",
    "Forest": "questions.tree",
    "GRID": "questions.part",
    "LocalEffect": "questions.query",
    "LocalView": "questions.query",
    "Part": "questions.part",
    "PartType": "questions.part",
    "Query": "questions.query",
    "QueryError": "errors",
    "Sensitivity": "questions.part",
    "Span": "questions.span",
    "Tree": "questions.tree",
    "View": "questions.query",
    "on_grid": "questions.part",
    # a learner
    "Budget": "privacy.accountant",
    "CohortLearner": "learners.cohort",
    "Column": "tables.schema",
    "Constraints": "learners.parameters",
    "Disclosure": "exchange.disclosure",
    "Exact": "learners.parameters",
    "FederatedClassifier": "learners.base",
    "FederatedRegressor": "learners.base",
    "Flag": "learners.parameters",
    "Guard": "privacy.policy",
    "InputError": "errors",
    "Names": "learners.parameters",
    "Number": "questions.exact",
    "OneOf": "learners.parameters",
    "PersonalLearner": "learners.base",
    "Planned": "learners.base",
    "Policy": "privacy.policy",
    "Real": "learners.parameters",
    "Schema": "tables.schema",
    "Whole": "learners.parameters",
    "exact": "questions.exact",
    # an attack
    "Attack": "attacks.base",
    "Clock": "attacks.clock",
    "TranscriptEntry": "exchange.transcript",
    "Finding": "attacks.finding",
    "PublicSchema": "attacks.base",
    "ReleasedPart": "exchange.messages",
    "Severity": "attacks.finding",
    "Transcript": "exchange.transcript",
    "Truth": "attacks.base",
    "exact_parts": "attacks.base",
    "question_of": "attacks.base",
}
__all__ = sorted(_HOMES)  # noqa: PLE0605


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'privfed.extend' has no attribute {name!r}")
    return getattr(import_module(f"privfed.{_HOMES[name]}"), name)
