"""Membership inference from a study's models only: by quantiles of public records, and by shadow models."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard, cast

import numpy as np
import pandas as pd
from scipy.stats import beta
from sklearn.base import ClassifierMixin

from privfed.attacks.deadline import MAX_WORK
from privfed.attacks.finding import POWER, Finding
from privfed.attacks.leave_one_out import DOUBTED, FEWEST
from privfed.attacks.model_values import model_values
from privfed.attacks.roc import interval
from privfed.attacks.shadow_models import (
    QUESTION,
    model_scores,
    not_read,
    quantiles,
    read_model,
    shadows,
    told_apart,
)
from privfed.errors import DataWarning, InputError, Note, PrivfedError
from privfed.exchange.transcript import Transcript
from privfed.learners.base import FederatedLearner, PersonalLearner
from privfed.learners.baselines.pooled import RawBaseline
from privfed.learners.saved import load
from privfed.owner.local_store import ENDING, LocalStore
from privfed.privacy.accountant import Budget
from privfed.questions.query import CALL, ROW
from privfed.questions.threads import one_thread
from privfed.questions.tree import Tree
from privfed.study.choices import PolicyChoice, ShadowChoice
from privfed.study.dry_run import adopt, learner
from privfed.study.metrics import probabilities_of, targets
from privfed.study.output import Output
from privfed.tables.records import Records
from privfed.tables.schema import Schema

if TYPE_CHECKING:
    from privfed.study.simulation import AnyPrepared, Prepared

#: Default shadow models of each policy.
USUAL = ShadowChoice(number=8, seconds=math.inf)
CONTROLS = 12  #: Trainings on all records that estimate how often secrets change a tree's splits


def reads_models(prepared: AnyPrepared) -> TypeGuard[Prepared]:
    """Whether a study's models are attacked: on request, or with all attacks on a table with ephemeral ledgers."""
    study = prepared.study
    default = "*" in study.attacks and study.ledgers is None
    return hasattr(prepared, "train") and (study.shadows is not None or default)


def read_models(
    prepared: Prepared,
    choice: PolicyChoice,
    output: Output,
    transcript: Transcript,
    progress: Callable[[int], object] = lambda _: None,
) -> tuple[list[Finding], dict[str, str]]:
    """Attack a policy's model, or each client's personal model, by its predictions for single records.

    Members are the clients' records, non-members the held-out ones, of the same client if models are personal.
    Scores are calibrated by public records (:func:`.quantiles`), and by shadow models (:func:`.read_model`) as
    the study sets them, or :data:`USUAL` ones if the counted work allows. ``progress`` is called after each shadow.

    Returns:
        one finding per attack; and by name the question of each attack that does not apply, as there is no
        model (training stopped, or none is released) or no target.
    """
    path = output.policy(choice.name) / "model.json"
    idle: tuple[list[Finding], dict[str, str]] = [], {"model readers": QUESTION}
    if not path.is_file() or prepared.schema.target is None:
        return idle
    target = load(path)
    if isinstance(target, PersonalLearner):
        _take_home(target, output.policy(choice.name) / "ledgers", prepared)
        homes = target.homes
        train, test = (
            table[table[prepared.owner].astype(str).isin(homes)]
            for table in (prepared.train, prepared.test)
        )
        prepared = replace(prepared, train=train, test=test)
    pool = StudyRecords(prepared, choice, progress)
    if not len(prepared.train) or not len(prepared.test):
        return idle
    try:
        model = pool.adapt(target)
        score = model_scores(model, x=pool.index, y=pool.targets)
    except InputError:
        return idle
    findings = [_by_quantiles(pool, score), *_by_shadows(pool, model, transcript)]
    if isinstance(target, PersonalLearner):
        findings += by_structure(pool, target, transcript)
        wording: dict[str, Any] = {"question": OWN_QUESTION, "harm": OWN_HARM, "at_home": True}
        findings = [replace(item, **wording, measure="", limit="") for item in findings]
    return [pool.by_client(item) for item in findings], {}


OWN_QUESTION = (
    "If a client's own model were shown to somebody, could they tell whose records it learned from?"
)
OWN_HARM = "a client's own model, if passed on, would reveal whose records it learned from"


def read_values(
    prepared: Prepared, path: Path, transcript: Transcript, budget: Budget | None
) -> list[Finding]:
    """Search a policy's model for the records' numbers (:func:`.model_values`); empty without a model."""
    numbers = [column.name for column in prepared.schema.columns if column.kind != "category"]
    columns = {name: prepared.train[name].to_numpy() for name in numbers}
    stored = path.read_bytes() if path.is_file() else b""
    allowed = (math.inf, 0.0) if budget is None else (float(budget.epsilon), float(budget.delta))
    arguments = columns, prepared.schema, transcript, allowed
    return model_values(stored, *arguments) if stored else []


def _take_home(target: PersonalLearner, shelves: Path, prepared: Prepared) -> None:
    for owner in prepared.owners:
        shelf = shelves / f"{owner}{ENDING}"
        if shelf.is_file():
            with closing(LocalStore(shelf, owner)) as store, suppress(InputError):
                target.take_home(owner, store.of_study(prepared.study.name))


def _by_quantiles(pool: StudyRecords, score: np.ndarray) -> Finding:
    try:
        judged = quantiles(score, x=pool.known, member=pool.member, seed=pool.prepared.study.seed)
    except InputError as error:
        return not_read("quantile", str(error))
    return told_apart(judged, pool.member, "quantile", {})


def _by_shadows(pool: StudyRecords, model: Regressor, transcript: Transcript) -> list[Finding]:
    """Return the findings by shadow models; *not looked* if the default ones exceed the work, or training fails."""
    settings, study = pool.prepared.study.shadows or USUAL, pool.prepared.study
    parts = max(2, round(len(pool.rows) / max(len(pool.prepared.test), 1)))
    number = max(2, -(-settings.number // parts)) * parts
    work = number * training_work(transcript, pool.prepared, model.model)
    if study.shadows is None and work > MAX_WORK:
        why = f"{number} shadow models take {work:.1g} operations, more than {MAX_WORK:.1g}; write [shadows]"
        return [not_read(kind, why) for kind in settings.ways]
    records: dict[str, Any] = {"x": pool.index, "y": pool.targets}
    try:
        with one_thread():
            trained = shadows(
                pool.train,
                **records,
                number=number,
                seed=study.seed,
                time_limit=settings.seconds,
                parts=parts,
            )
        findings = [
            read_model(model, **records, member=pool.member, known=trained, way=kind)
            for kind in settings.ways
        ]
    except PrivfedError as error:
        if study.shadows is None:
            return [not_read(kind, f"a shadow failed: {error}") for kind in settings.ways]
        raise InputError(f"policy {pool.choice.name!r}, [shadows]: {error}") from None
    except Exception as error:  # noqa: BLE001  # a learner's error: it stops no study, and its text may hold data
        return [
            not_read(kind, f"a shadow failed with {type(error).__name__}") for kind in settings.ways
        ]
    short = len(trained.scores) < number
    partial = f"{len(trained.scores)} of {number} shadows in {settings.seconds:g} s"
    return [replace(finding, partial=partial if short else "") for finding in findings]


def by_structure(
    pool: StudyRecords, target: PersonalLearner, transcript: Transcript
) -> list[Finding]:
    """Infer membership from the splits of clients' personal trees only, without leaf values or predictions.

    The attacker knows all other records, and leaves one out at a time: a record whose absence changes a split was
    a member. A client's secret may change splits, too. So only clients whose splits two trainings under other
    secrets reproduce are attacked, and the rate of changes in further trainings on all records is the baseline (0
    if splits follow from the records: each detection is then a proof). Without releases, clients learn
    independently, and a training leaves one record out at every client; else at one. Empty for other models.
    """
    members = pool.index[pool.member]
    splits = {client: splits_of(target, client) for client in target.homes}
    work = training_work(transcript, pool.prepared, target) + ROW * len(members)
    trainings = int(MAX_WORK // work) - CONTROLS - 2
    if None in splits.values():
        return []
    if trainings < FEWEST:
        minimum = FEWEST + CONTROLS + 2
        why = f"{minimum} trainings take {work * minimum:.1g} operations, more than {MAX_WORK:.1g}"
        return [not_read("structure", why)]

    def changed(without: Mapping[str, int]) -> dict[str, bool]:
        index = np.delete(members, list(without.values()), axis=0)
        model = pool.train(index, pool.targets[index[:, 0].astype(int)]).model
        return {client: splits_of(model, client) != splits[client] for client in splits}

    repeats = [changed({}) for _ in range(2)]
    stable = [client for client in splits if not any(run[client] for run in repeats)]
    if not stable:
        return [not_read("structure", "secrets or noise decide the splits of every client's tree")]
    turns = _left_out(pool, stable, together=not len(transcript))
    hits = [hit[c] for turn in turns[:trainings] for hit in [changed(turn)] for c in turn]
    controls = [hit[c] for hit in [changed({}) for _ in range(CONTROLS)] for c in stable]
    (low, high), baseline = interval(sum(hits), len(hits)), interval(sum(controls), len(controls))
    finding = replace(
        not_read("structure", ""),
        metric="share of the used records in doubt found by the splits of a client's tree",
        value=float(np.mean(hits)),
        low=low,
        high=high,
        baseline=float(np.mean(controls)),
        measure="",
        severity="some" if low > baseline[1] else "none",
        detail={
            "the attacker knows": "every other record of the client",
            "records in doubt": len(hits),
            "clients": len(stable),
            "changed by secrets alone, at most": baseline[1],
        },
        detectable=_detectable(len(hits), baseline[1]),
    )
    return [finding]


def _left_out(
    pool: StudyRecords, clients: Sequence[str], *, together: bool
) -> list[dict[str, int]]:
    """Draw the record of a client (``together``: of every client) that each training leaves out."""
    rng, owner = np.random.default_rng(pool.prepared.study.seed), pool.owners[pool.member]
    by_client = [
        [(client, int(i)) for i in rng.permutation(np.flatnonzero(owner == client))[:DOUBTED]]
        for client in clients
    ]
    if together:
        return [dict(filter(None, turn)) for turn in zip_longest(*by_client)]
    doubts = [pair for pairs in by_client for pair in pairs]
    return [dict([doubts[index]]) for index in rng.permutation(len(doubts))]


def _detectable(number: int, baseline: float) -> float:
    """Return the rate that ``number`` trials detect over ``baseline`` with probability :data:`.POWER`; 2 if none."""
    hits = next((k for k in range(1, number + 1) if interval(k, number)[0] > baseline), 0)
    return float(beta.ppf(POWER, hits, number - hits + 1)) if hits else 2.0


def splits_of(model: FederatedLearner, client: str) -> bytes | None:
    """Return the splits of a client's personal tree, as bytes; None if its model is no tree."""
    tree = getattr(cast(PersonalLearner, model).at_home(client), "tree", None)
    if not isinstance(tree, Tree):
        return None
    parts = (tree.feature, tree.children, tree.cuts)
    return np.concatenate([array.ravel().astype(float) for array in parts]).tobytes()


def training_work(transcript: Transcript, prepared: Prepared, model: FederatedLearner) -> float:
    """Estimate one training's multiply-adds: each query once, times the trees of a forest on pooled records."""
    sizes = prepared.train[prepared.owner].astype(str).value_counts()
    records = [int(sizes.get(entry.client, len(prepared.train))) for entry in transcript]
    trees = getattr(model, "n_estimators", 1) if isinstance(model, RawBaseline) else 1
    return float(trees * sum(CALL + ROW * count for count in records))


@dataclass(frozen=True, eq=False)
class StudyRecords:
    """All records of a study, the clients' first, by their indices in one table."""

    prepared: Prepared  #: the study
    choice: PolicyChoice  #: the shadows' policy
    progress: Callable[[int], object]  #: called after each shadow

    @cached_property
    def rows(self) -> pd.DataFrame:
        """The table, with the column of owners."""
        return pd.concat([self.prepared.train, self.prepared.test], ignore_index=True)

    @property
    def index(self) -> np.ndarray:
        """Each record's index, shape (records, 1)."""
        return np.arange(len(self.rows), dtype=float)[:, None]

    @property
    def member(self) -> np.ndarray:
        """Whether each record is a client's, shape (records,)."""
        return np.arange(len(self.rows)) < len(self.prepared.train)

    @cached_property
    def known(self) -> np.ndarray:
        """Encoded records with their targets, float, shape (records, columns)."""
        records = Records.from_frame(self.rows, self.prepared.schema)
        return np.column_stack([records.x, self.targets])

    @property
    def owners(self) -> np.ndarray:
        """Each record's owner, text, shape (records,)."""
        return self.rows[self.prepared.owner].astype(str).to_numpy()

    @property
    def targets(self) -> np.ndarray:
        """Encoded targets, shape (records,)."""
        assert self.prepared.schema.target is not None
        return targets(self.rows, self.prepared.schema.target)

    def by_client(self, finding: Finding) -> Finding:
        """Return a finding with ``exposed`` by client, in the order of each client's table."""
        if not finding.exposed:
            return finding
        owners = self.prepared.train[self.prepared.owner].astype(str).to_numpy()
        exposed = np.asarray(finding.exposed[""])
        by_client = {owner: exposed[owners == owner] for owner in self.prepared.owners}
        return replace(finding, exposed=by_client)

    def train(self, index: np.ndarray, _: np.ndarray) -> Regressor:
        """Train a shadow model on the records at ``index``, shape (n, 1), under the study's policy, without notes."""
        prepared, shadow = self.prepared, learner(self.prepared.study, self.choice)
        adopted = adopt(prepared.study, self.choice, shadow, prepared.schema)
        subset = replace(prepared, train=self.rows.iloc[index[:, 0].astype(int)])
        with warnings.catch_warnings():
            for category in (DataWarning, Note):
                warnings.simplefilter("ignore", category)
            with closing(subset.federate(adopted, None, self.choice.block)) as federation:
                shadow.fit(federation)
        self.progress(1)
        return self.adapt(shadow)

    def adapt(self, model: FederatedLearner) -> Regressor:
        """Return a model with the interface of shadow-model attacks."""
        proba = isinstance(model, ClassifierMixin) and hasattr(model, "predict_proba")
        personal = isinstance(model, PersonalLearner)
        owner = self.owners if personal else None
        return (Classifier if proba else Regressor)(model, self.rows, self.prepared.schema, owner)


@dataclass(frozen=True, eq=False)
class Regressor:
    """Predicts records by their indices, with a personal learner each by its owner's model."""

    model: FederatedLearner
    records: pd.DataFrame
    schema: Schema
    #: of each record, for a personal learner, shape (records,); else None
    owner: np.ndarray | None = None

    def predict(self, index: np.ndarray) -> np.ndarray:
        """Return predictions, shape (indices,)."""
        return self._each(
            index, lambda rows, client: np.asarray(self.model.predict(rows, client=client), float)
        )

    def _each(
        self, index: np.ndarray, predict: Callable[[pd.DataFrame, str | None], np.ndarray]
    ) -> np.ndarray:
        positions = index[:, 0].astype(int)
        rows = self.records.iloc[positions][list(self.schema.names)]
        if self.owner is None:
            return predict(rows, None)
        owner = self.owner[positions]
        parts = {name: predict(rows[owner == name], name) for name in dict.fromkeys(owner)}
        predictions = np.empty((len(positions), *next(iter(parts.values())).shape[1:]))
        for name, predicted in parts.items():
            predictions[owner == name] = predicted
        return predictions


class Classifier(Regressor):
    """A :class:`Regressor` with class probabilities; classes are the schema's codes."""

    def predict_proba(self, index: np.ndarray) -> np.ndarray:
        """Return class probabilities, shape (indices, classes)."""

        def predict(rows: pd.DataFrame, client: str | None) -> np.ndarray:
            probabilities = probabilities_of(self.model, rows, client)
            assert probabilities is not None
            return probabilities

        return self._each(index, predict)

    @property
    def classes_(self) -> np.ndarray:
        """Codes of the classes."""
        return np.arange(self.predict_proba(np.zeros((1, 1))).shape[1], dtype=float)
