"""Base classes of federated learners: scikit-learn's conventions, and each learner's policies."""

from __future__ import annotations

import json
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from functools import wraps
from inspect import signature
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.exceptions import NotFittedError

from privfed.errors import InputError, NobodyAnswered, Note, PolicyError, QueryError
from privfed.exchange.disclosure import Disclosure, nothing_released
from privfed.learners.contract import check_fitted, most_probable
from privfed.learners.parameters import Constraints, check_values
from privfed.learners.plain import plain, restored, unchanged
from privfed.learners.privacy_text import check_privacy
from privfed.privacy.policy import Policy
from privfed.questions.exact import Number
from privfed.questions.query import Query
from privfed.questions.threads import one_thread
from privfed.questions.tree import ends_text
from privfed.tables.records import Records, encode_target
from privfed.tables.schema import Column, Schema

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FORMATS = "privfed model 1", "privfed model 2"  #: Formats of saved models; the last is written
DAMAGED = LookupError, TypeError, ValueError, AttributeError, OverflowError, QueryError
NARROW = 0.2  #: Fraction of the target's bounds below which prediction limits cause a warning


@dataclass(frozen=True)
class Planned:
    """One line of a learner's longest public schedule."""

    query: Query  #: a query of the kind, with the largest cost
    times: int  #: maximum number of such queries
    spend: Fraction | None = None  #: the learner's proposal for each query; None: the policy's
    together: bool = False  #: whether ``spend`` is the total of all queries; then ``times`` is 1


def check_round(per_round: int | None, clients: int, name: str = "clients_per_round") -> None:
    """Check that a round's number of clients is from 1 to ``clients``, or None for all (else InputError)."""
    if per_round is not None and not 1 <= per_round <= clients:
        raise InputError(f"{name} must lie between 1 and {clients}, not {per_round!r}")


class FederatedLearner(BaseEstimator, ABC):  # type: ignore[misc]
    """A learner that queries a federation and never reads a record.

    ``__init__`` stores the parameters unchanged, and ``fit`` checks them; names of fitted attributes end in
    an underscore. ``schema_`` is the federation's schema, ``clients_`` the names of its clients.
    """

    queries: ClassVar[tuple[type[Query], ...]] = ()  #: Kinds of queries that it sends
    baseline: ClassVar[bool] = False  #: Whether it is a baseline; "published" excludes these
    personal: ClassVar[bool] = False  #: Whether it is a :class:`PersonalLearner`
    _parameter_constraints: ClassVar[Constraints] = {}  #: See :mod:`privfed.learners.parameters`
    #: The paper's parameters that differ from the defaults; None without a paper
    paper_settings: ClassVar[Mapping[str, Any] | None] = None

    schema_: Schema  #: The federation's public data dictionary, set by ``fit``
    clients_: tuple[str, ...]  #: The names of the federation's clients, set by ``fit``
    #: :meth:`.Disclosure.privacy` at the end of ``fit``; None if unknown
    privacy_: dict[str, Any] | None = None

    @classmethod
    def paper(cls, **changes: Any) -> Self:
        """Return a learner with the paper's parameters, some replaced by ``changes`` (InputError: no paper)."""
        if cls.paper_settings is None:
            raise InputError(f"{cls.__name__} has no paper's settings; write {cls.__name__}()")
        return cls(**{**cls.paper_settings, **changes})

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        if "fit" in vars(cls):
            cls.fit = _from_releases(cls.fit)  # type: ignore[method-assign]

    @abstractmethod
    def fit(self, federation: Disclosure) -> Self:
        """Learn from releases only; implementations first call ``self._start(federation)``.

        Raises:
            InputError: ``federation`` is no federation, or a parameter or the target is invalid.
            NobodyAnswered: nothing was released. The base class enforces this for every learner, as a
                model without releases only has its author's assumptions.
        """

    @abstractmethod
    def predict(self, X: pd.DataFrame | np.ndarray, *, client: str | None = None) -> np.ndarray:
        """Predict the target of rows with one column per feature, by the model of ``client`` if given."""

    @abstractmethod
    def published(self) -> Policy:
        """Return the policy that releases what the paper releases."""

    @abstractmethod
    def private(
        self, epsilon: Number, delta: Number = "1e-5", *, schema: Schema | None = None
    ) -> Policy:
        """Return a policy with total epsilon (nats) and delta, allocated to kinds of queries and rounds.

        Raises:
            PolicyError: there is no private mode, or its budget allocation requires the schema.
        """

    def check(self, schema: Schema) -> None:
        """Check parameters, and that the learner supports the schema's target (else InputError)."""
        self.check_parameters()

    def check_parameters(self) -> None:
        """Check every parameter against its constraints; see :func:`.check_values`."""
        parameters = signature(type(self).__init__).parameters.values()
        check_values(
            type(self).__name__,
            self.get_params(deep=False),
            self._parameter_constraints,
            {parameter.name: parameter.default for parameter in parameters},
        )

    @abstractmethod
    def plan(self, schema: Schema, policy: Policy) -> Sequence[Planned]:
        """Return the longest public schedule under a policy, which prices a study before data are read."""

    @property
    def n_features_in_(self) -> int:
        """Number of features."""
        return len(self.schema_.features)

    @property
    def feature_names_in_(self) -> np.ndarray:
        """Names of the features, in the order of an array's columns."""
        return np.array(self.schema_.names, dtype=object)

    def plot(self, feature: str | None = None, *, ax: Axes | None = None) -> Axes:
        """Plot the fitted model, or one feature's effect, on ``ax`` or on new axes.

        Raises:
            InputError: the model has no such plot.
        """
        if feature is not None or not hasattr(self, "feature_importances_"):
            subject = "" if feature is None else f" of {feature!r} alone"
            calls = ["plot()"] * (feature is not None) + ["describe()"] * hasattr(self, "describe")
            hint = f"; see {' and '.join(calls)}" if calls else ""
            raise InputError(f"{type(self).__name__} has no picture{subject}{hint}")
        from privfed.learners.pictures import bars

        importances = np.asarray(self.feature_importances_)
        order = np.argsort(-importances, kind="stable")
        names = [self.schema_.names[k] for k in order]
        return bars(ax, names, importances[order], "importance of the feature")

    def to_html(self) -> str:
        """Return plot and text of the fitted model as HTML, for notebooks and reports; errors as :meth:`plot`."""
        from privfed.learners.pictures import html_of

        return html_of(self.plot(), type(self).__name__, getattr(self, "describe", self.__repr__)())

    def _html_repr(self) -> str:
        if "schema_" in vars(self):
            with suppress(InputError):
                return self.to_html()
        return str(super()._html_repr())

    def to_dict(self) -> dict[str, Any]:
        """Return the fitted model as JSON-compatible data: :meth:`readable`, and what :meth:`from_dict` needs."""
        return {
            "format": FORMATS[-1],
            "learner": type(self).__name__,
            "parameters": self.saved_parameters(),
            "schema": plain(self.schema_.to_dict()),
            "clients": list(self.clients_),
            **self.readable(),
            "state": self.state(),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Restore a fitted model exactly from the output of :meth:`to_dict` (InputError: it is damaged)."""
        name = cls.__name__
        if not isinstance(data, Mapping) or data.get("format") not in FORMATS:
            raise InputError(f"no model in the form {FORMATS[-1]!r}; save it with this version")
        if data.get("learner") != name:
            raise InputError(f"the model is of {data.get('learner')!r}, not of {name}")
        try:
            model = cls(**cls.restored_parameters(unchanged(data)["parameters"]))
            model.check_parameters()
            model.schema_ = Schema.from_dict(data["schema"])
            model.clients_ = tuple(str(client) for client in data["clients"])
            model.restore(data["state"])
            model.privacy_ = check_privacy(data.get("privacy"))
        except DAMAGED as error:
            raise InputError(
                f"the model of {name} is damaged ({type(error).__name__}); save it again"
            ) from None
        return model

    def readable(self) -> dict[str, Any]:
        """Return the fitted model for people and other programs, as JSON-compatible data."""
        return {}

    def state(self) -> dict[str, Any]:
        """Return the state that predictions need, as JSON-compatible data: here all fitted attributes.

        Raises:
            InputError: a value has no JSON form; then a learner must override ``state`` and ``restore``.
        """
        known = {"schema_", "clients_", "privacy_"}
        return {
            name: plain(value)
            for name, value in vars(self).items()
            if name.endswith("_") and not name.startswith("_") and name not in known
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Set the fitted attributes from the output of :meth:`state`; ``schema_`` is already set."""
        for name, value in state.items():
            if not name.endswith("_") or name.startswith("_"):
                raise ValueError("fitted state ends in an underscore")
            setattr(self, name, restored(value))

    def saved_parameters(self) -> dict[str, Any]:
        """Return the parameters as JSON-compatible data; exact numbers become text."""
        parameters = self.get_params(deep=False).items()
        return {n: plain(str(v) if isinstance(v, Fraction) else v) for n, v in parameters}

    @classmethod
    def restored_parameters(cls, data: Mapping[str, Any]) -> dict[str, Any]:
        """Return the parameters from :meth:`saved_parameters`; a list becomes a tuple if the default is one."""
        default = {n: p.default for n, p in signature(cls.__init__).parameters.items()}
        return {
            name: tuple(value) if isinstance(default.get(name), tuple) else restored(value)
            for name, value in data.items()
        }

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            fitted = name.endswith("_") and not name.startswith("_")
            if fitted and "schema_" not in vars(self) and not hasattr(type(self), name):
                raise NotFittedError(
                    f"{type(self).__name__} is not fitted; call fit(federation) first"
                )
            return object.__getattribute__(self, name)  # its error gives the reason

    def _set(self, arguments: Mapping[str, Any]) -> None:
        """Store a constructor's arguments, its ``locals()``, unchanged."""
        for name, value in arguments.items():
            if name not in ("self", "__class__"):
                setattr(self, name, value)

    def _start(self, federation: Disclosure) -> None:
        """Check parameters and schema, and set ``schema_`` and ``clients_``."""
        self.check(federation.schema)
        self.schema_, self.clients_ = federation.schema, tuple(federation.clients)

    def _divided_by(self, schema: Schema | None) -> Schema:
        """Return the schema for allocating a private budget (PolicyError: it is None)."""
        if schema is None:
            raise PolicyError(
                f"{type(self).__name__} divides its budget by the schema; write "
                "private(epsilon, delta, schema=schema)"
            )
        return schema

    def _score(
        self, measure: Callable[[np.ndarray], float], X: pd.DataFrame | np.ndarray, client: Any
    ) -> float:
        return float(measure(self.predict(X, client=client)))

    def _clients_of_rows(self, client: str | Sequence[str], rows: int) -> np.ndarray:
        """Return each row's client, from one name or one per row, shape (rows,) (InputError: unknown client)."""
        names = np.full(rows, client) if isinstance(client, str) else np.asarray(client).astype(str)
        if names.shape != (rows,):
            raise InputError(f"client must be one name, or one for each of the {rows} rows")
        for name in [client] if isinstance(client, str) else np.unique(names).tolist():
            self._check_client(name)
        return names

    def _check_client(self, client: str | None) -> None:
        """Check that a client took part in training; None is accepted (else InputError)."""
        if client is not None and client not in self.clients_:
            raise InputError(
                f"no client {client!r} took part; those that did are {', '.join(self.clients_)}"
            )

    def _feature(self, name: str) -> tuple[Column, int]:
        """Return a feature and its index (SchemaError: no such feature)."""
        return Schema(self.schema_.features).column(name), self.schema_.names.index(name)

    def _encode(
        self, X: pd.DataFrame | np.ndarray | Records, client: str | Sequence[str] | None = None
    ) -> np.ndarray:
        """Return rows encoded and clipped to the schema, shape (rows, features); Records already are."""
        if isinstance(X, pd.DataFrame):
            X = Records.from_frame(X, Schema(self.schema_.features))
        encoded = X.x if isinstance(X, Records) else Records.from_array(X, self.schema_).x
        if client is not None:
            self._clients_of_rows(client, len(encoded))
        return encoded


def check_numeric_target(schema: Schema, *, learner: str) -> None:
    """Check that the schema has a numeric target (else InputError)."""
    if schema.target is None:
        raise InputError(f"{learner} needs a schema with a numeric target; name one")
    if not schema.target.numeric:
        raise InputError(
            f"{learner} needs a schema with a numeric target, and {schema.target.name!r} is a category; use a "
            "classifier, or another target"
        )
    target = schema.target
    if target.kind == "integer" and (target.lower, target.upper) == (0, 1):
        raise InputError(
            f'{learner} predicts a number, and the target {target.name!r} is 0 or 1: write kind = "category" '
            'and categories = ["0", "1"] in the schema and use a classifier, or kind = "number" for a share'
        )


class FederatedRegressor(RegressorMixin, FederatedLearner):  # type: ignore[misc]
    """A learner that predicts a number."""

    def check(self, schema: Schema) -> None:
        """Check the parameters, and that the target is numeric (else InputError)."""
        super().check(schema)
        check_numeric_target(schema, learner=type(self).__name__)

    @property
    def prediction_limits_(self) -> tuple[float, float]:
        """Limits of predictions: the target's public bounds, or released ones."""
        assert self.schema_.target is not None
        return self.schema_.target.bounds

    def _note_limits(self) -> None:
        """Warn if the limits exclude most of the range between the public bounds, which is never predicted."""
        if self.schema_.target is None:
            return
        (low, high), (lower, upper) = self.prediction_limits_, self.schema_.target.bounds
        if high - low < NARROW * (upper - lower):
            text = (
                f"predictions lie between {ends_text(low, high)}, where most targets were found: "
                f"{100 * (high - low) / (upper - lower):.1f} % of the public bounds. If targets beyond are real, they may cause most "
                f"of the squared error: score records within and beyond the limits separately{', or learn the logarithm' * (lower > 0)}"
            )
            warnings.warn(text, Note, stacklevel=4)

    def score(
        self,
        X: pd.DataFrame | np.ndarray,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        *,
        client: str | Sequence[str] | None = None,
    ) -> float:
        """Return R^2 by the true targets, which is no release; for personal models without ``client`` the mean."""
        from sklearn.metrics import r2_score

        return self._score(lambda y_hat: r2_score(y, y_hat, sample_weight=sample_weight), X, client)


class FederatedClassifier(ClassifierMixin, FederatedLearner):  # type: ignore[misc]
    """A learner that predicts a class: one of the target's categories, or 0 and 1."""

    binary: ClassVar[bool] = False  #: Whether it supports two classes only

    def check(self, schema: Schema) -> None:
        """Check the parameters, and that the target has classes (else InputError)."""
        super().check(schema)
        target = schema.target
        if target is None or (target.numeric and target.bounds != (0.0, 1.0)):
            required = "a category, or a number from 0 to 1"
        elif self.binary and target.bounds != (0.0, 1.0):
            required = "a category with two categories, or a number from 0 to 1"
        else:
            return
        values, hint = "two values" if self.binary else "classes", ""
        if target is not None and target.numeric:
            low, high = target.bounds
            listable = target.kind == "integer" and high - low < 10
            examples = (
                [str(number) for number in range(int(low), int(high) + 1)]
                if listable
                else ["...", "..."]
            )
            hint = f'; for {target.name!r} write kind = "category" and categories = {json.dumps(examples)} in the schema'
        raise InputError(f"{type(self).__name__} needs a target with {values}: {required}{hint}")

    @property
    def classes_(self) -> np.ndarray:
        """The classes: the target's categories, or 0 and 1."""
        target = self.schema_.target
        assert target is not None
        return np.array((0, 1) if target.numeric else target.categories)

    @abstractmethod
    def predict_proba(
        self, X: pd.DataFrame | np.ndarray, *, client: str | None = None
    ) -> np.ndarray:
        """Return class probabilities, shape (rows, classes)."""

    def predict(self, X: pd.DataFrame | np.ndarray, *, client: Any = None) -> np.ndarray:
        """Return the most probable class of each row; ties: the first."""
        return most_probable(self, self.predict_proba(X, client=client))

    def score(
        self,
        X: pd.DataFrame | np.ndarray,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        *,
        client: str | Sequence[str] | None = None,
    ) -> float:
        """Return accuracy by the true classes (SchemaError: others), no release; for personal models without ``client`` the mean."""
        from sklearn.metrics import accuracy_score

        def accuracy(predicted: np.ndarray) -> float:
            y_true, y_pred = (encode_target(v, self.schema_).astype(str) for v in (y, predicted))
            return float(accuracy_score(y_true, y_pred, sample_weight=sample_weight))

        return self._score(accuracy, X, client)


class PersonalLearner(FederatedLearner):
    """A learner with a local model at each client.

    Each client stores its model on its local shelf; the fitted learner has the public part only. A client
    joins both by :meth:`take_home`, and ``predict(X, client=...)`` uses both. ``fit`` drops joined models, and
    ``to_dict``, copies and pickles exclude them. In a simulation, whose federation has the shelves in this
    process, ``fit`` finds the clients' models there without :meth:`take_home`. ``client`` may be one name for
    each row.
    """

    personal: ClassVar[bool] = True

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        for name in ("predict", "predict_proba"):  # defined here, or for a single client
            method = getattr(cls, name, None)
            if method and not {"row_by_row", "__isabstractmethod__"} & vars(method).keys():
                setattr(cls, name, _row_by_row(method))

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = super().__getstate__()
        return {name: value for name, value in state.items() if name not in _LOCAL}

    @abstractmethod
    def own(self, shelf: Mapping[str, Any]) -> Any:
        """Return a client's model from its shelf (KeyError: it has none)."""

    @abstractmethod
    def predict(self, X: pd.DataFrame | np.ndarray, *, client: Any = None) -> np.ndarray:
        """Predict by clients' models, or by the public part only (InputError: a model is not here)."""

    def take_home(self, client: str, shelf: Mapping[str, Any]) -> Self:
        """Join the public part with a client's model; only for that client.

        Raises:
            InputError: the shelf has no model of this learner.
        """
        try:
            model = self.own(shelf)
        except KeyError:
            raise InputError(
                f"client {client!r} keeps no model of {type(self).__name__}: its policy did not allow "
                "one, or it was not asked; list the kind under local in its policy and fit again"
            ) from None
        self._homes = {**self._local_models, client: model}
        return self

    def at_home(self, client: str | None, call: str = "predict(X, client={client!r})") -> Any:
        """Return a client's model (InputError: it is not here, or ``client`` is None; suggests ``call``)."""
        if client is None:
            hint = call.format(client=self.clients_[0] if self.clients_ else "...")
            raise NoCommonModel(
                f"each client has its own model, and there is no common one; write {hint}, say"
            )
        simulated: Mapping[str, Any] = vars(self).get("_simulated", {})
        if client not in (models := {**simulated, **self._local_models}):
            raise InputError(
                f"client {client!r} keeps no model: its policy allows none, or its records gave none"
                if simulated
                else f"the model of client {client!r} is not here, because it never left that client; call "
                "take_home(client, shelf) where its shelf is"
            )
        return models[client]

    def _score(
        self, measure: Callable[[np.ndarray], float], X: pd.DataFrame | np.ndarray, client: Any
    ) -> float:
        """Score as the base class; without a client or a common model, return the mean over the models here."""
        try:
            return super()._score(measure, X, client)
        except NoCommonModel:
            if not self._here:
                raise
            scores = [super(PersonalLearner, self)._score(measure, X, c) for c in self._here]
            return float(np.mean(scores))

    def _find_local_models(self, federation: Disclosure) -> None:
        models = {}
        for client, shelf in getattr(federation, "shelves", {}).items():
            with suppress(KeyError, InputError):
                models[client] = self.own(shelf)
        self._simulated = models

    @property
    def homes(self) -> tuple[str, ...]:
        """Clients whose models were joined by :meth:`take_home`."""
        return tuple(self._local_models)

    @property
    def _here(self) -> list[str]:
        """Clients whose models were joined, or are in this process by a simulation, sorted."""
        return sorted({*self._local_models, *vars(self).get("_simulated", {})})

    @property
    def _local_models(self) -> Mapping[str, Any]:
        models: Mapping[str, Any] = vars(self).get("_homes", {})
        return models


class NoCommonModel(InputError):
    """Each client has a local model, and no client was given."""


_LOCAL = ("_homes", "_simulated")  #: Attributes with clients' local models


def _row_by_row(predict: Callable[..., np.ndarray]) -> Callable[..., np.ndarray]:
    """Extend a prediction method to one client per row: each client's rows by its model."""

    @wraps(predict)
    def dispatched(
        self: PersonalLearner,
        X: pd.DataFrame | np.ndarray,
        *,
        client: str | Sequence[str] | None = None,
    ) -> np.ndarray:
        if client is None or isinstance(client, str):
            return predict(self, X, client=client)
        names = self._clients_of_rows(client, len(X))
        rows = X if hasattr(X, "iloc") else np.asarray(X)
        result: np.ndarray | None = None
        for name in np.unique(names):
            index = np.flatnonzero(names == name)
            part = rows.iloc[index] if isinstance(rows, pd.DataFrame) else rows[index]
            predicted = predict(self, part, client=str(name))
            if result is None:
                result = np.zeros((len(names), *predicted.shape[1:]), predicted.dtype)
            result[index] = predicted
        return predict(self, X, client=self.clients_[0]) if result is None else result

    vars(dispatched)["row_by_row"] = True
    return dispatched


def _from_releases(fit: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap ``fit``: check its federation, use one thread, and raise NobodyAnswered if nothing was released."""

    @wraps(fit)
    def wrapper(self: FederatedLearner, federation: Disclosure, *args: Any, **kwargs: Any) -> Any:
        name = type(self).__name__
        if not isinstance(federation, Disclosure):
            raise InputError(
                f"{name} learns from a federation, not from a {type(federation).__name__}; write "
                f"{name}().fit(LocalDisclosure.from_frame(frame, target=..., client=...))"
            )
        before = federation.released
        for attribute in _LOCAL:
            self.__dict__.pop(attribute, None)
        try:
            with one_thread():
                fitted = fit(self, federation, *args, **kwargs)
        except NobodyAnswered as error:
            if federation.released == before:
                raise nothing_released(name, error) from None
            raise
        if federation.released == before:
            raise nothing_released(name)
        check_fitted(self, fitted)
        self.privacy_ = federation.privacy()
        if isinstance(self, FederatedRegressor):
            self._note_limits()
        if isinstance(self, PersonalLearner):
            self._find_local_models(federation)
        return fitted

    return wrapper
