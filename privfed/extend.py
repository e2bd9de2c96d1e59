"""Everything that the author of a plugin imports; see docs/plugins.md.

These names suffice for a law, a mechanism, an accountant, a query, a learner or an attack. They are
imported on first use: a mechanism does not import learners. The checks of new plugins are in
:mod:`privfed.testing`.
"""

from typing import TYPE_CHECKING

from privfed.lazy import attach

if TYPE_CHECKING:
    from privfed.accountants.zcdp import odometer as odometer
    from privfed.attacks.base import Attack as Attack
    from privfed.attacks.base import PublicSchema as PublicSchema
    from privfed.attacks.base import Truth as Truth
    from privfed.attacks.base import exact_parts as exact_parts
    from privfed.attacks.base import question_of as question_of
    from privfed.attacks.deadline import Deadline as Deadline
    from privfed.attacks.finding import Finding as Finding
    from privfed.attacks.finding import Severity as Severity
    from privfed.errors import InputError as InputError
    from privfed.errors import PolicyError as PolicyError
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
    from privfed.learners.evaluation import classes_of as classes_of
    from privfed.learners.parameters import Boolean as Boolean
    from privfed.learners.parameters import Constraints as Constraints
    from privfed.learners.parameters import Exact as Exact
    from privfed.learners.parameters import Integers as Integers
    from privfed.learners.parameters import Names as Names
    from privfed.learners.parameters import Reals as Reals
    from privfed.learners.parameters import StrOptions as StrOptions
    from privfed.mechanisms.additive import AdditiveNoise as AdditiveNoise
    from privfed.privacy.accountant import Accountant as Accountant
    from privfed.privacy.accountant import Amount as Amount
    from privfed.privacy.accountant import Budget as Budget
    from privfed.privacy.conversion import largest_rho as largest_rho
    from privfed.privacy.conversion import to_delta as to_delta
    from privfed.privacy.conversion import to_epsilon as to_epsilon
    from privfed.privacy.laws import BitFlips as BitFlips
    from privfed.privacy.laws import Charged as Charged
    from privfed.privacy.laws import DiscreteGaussian as DiscreteGaussian
    from privfed.privacy.laws import DiscreteLaplace as DiscreteLaplace
    from privfed.privacy.laws import Law as Law
    from privfed.privacy.loss import Loss as Loss
    from privfed.privacy.loss import pure_to_zcdp as pure_to_zcdp
    from privfed.privacy.mechanism import BoundedPart as BoundedPart
    from privfed.privacy.mechanism import Mechanism as Mechanism
    from privfed.privacy.mechanism import OpenDPMechanism as OpenDPMechanism
    from privfed.privacy.mechanism import Protection as Protection
    from privfed.privacy.mechanism import unmasked as unmasked
    from privfed.privacy.mechanism import within_range as within_range
    from privfed.privacy.noise import Noise as Noise
    from privfed.privacy.policy import Guard as Guard
    from privfed.privacy.policy import Policy as Policy
    from privfed.questions.exact import Number as Number
    from privfed.questions.exact import exact as exact
    from privfed.questions.exact import float_up as float_up
    from privfed.questions.exact import round_up as round_up
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
    from privfed.questions.tree import Forest as Forest
    from privfed.questions.tree import Span as Span
    from privfed.questions.tree import Tree as Tree
    from privfed.tables.records import nearest_class as nearest_class
    from privfed.tables.schema import Column as Column
    from privfed.tables.schema import Schema as Schema

__getattr__, __dir__, __all__ = attach(__name__, __file__)
