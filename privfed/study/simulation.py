"""A study simulated in one process, which holds all records; its measurements are not publishable."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, closing, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import numpy as np
import pandas as pd

from privfed.attacks.base import HELD_OUT, Attack
from privfed.attacks.coverage import coverage
from privfed.attacks.finding import FAILED, Finding
from privfed.attacks.linkage import Linkage
from privfed.attacks.viewpoint import BY_AN_OWNER, run_as
from privfed.audits.compositions import audit_composition
from privfed.audits.guards import FAMILY_WISE, audit_guards, audit_sources, confirmed
from privfed.audits.noise import audit_noise
from privfed.audits.sensitivities import audit_sensitivities
from privfed.audits.trainings import audit_learner
from privfed.engines.local import LocalDisclosure
from privfed.engines.named import Engine, local
from privfed.errors import (
    InputError,
    LedgerError,
    NobodyAnswered,
    Note,
    StudyError,
    collected_notes,
)
from privfed.exchange.channel import ChannelDisclosure
from privfed.exchange.transcript import Transcript
from privfed.interrupts import survived
from privfed.learners.base import FederatedLearner, PersonalLearner
from privfed.learners.cohort import CohortLearner
from privfed.learners.saved import written
from privfed.ledger.registry import Registry
from privfed.owner.noise_monitor import NoiseSums
from privfed.privacy.loss import foreign
from privfed.privacy.noise import SecureNoise, TestNoise
from privfed.privacy.policy import Policy
from privfed.questions import coins
from privfed.questions.part import Relation
from privfed.questions.threads import one_thread
from privfed.study import PolicyChoice, Study, cohort_study
from privfed.study.cohort_study import PreparedCohort
from privfed.study.dry_run import adopt, attacks_of, learner
from privfed.study.groups import by_group, check_groups
from privfed.study.metrics import measure, measure_own, summarise_runs
from privfed.study.output import NOISE, SESSION, Output
from privfed.study.persistent_ledgers import PersistentLedgers
from privfed.study.price import beyond_plan, price
from privfed.study.private_evaluation import asks_evaluation, evaluated, whole_plan
from privfed.study.schema_of_study import check_owners, positive, schema_file
from privfed.study.study import KEYS
from privfed.tables import partition as clients
from privfed.tables.csv_text import FILES
from privfed.tables.records import Records
from privfed.tables.schema import Schema
from privfed.tables.sources import Dataset, bundled, columns, load
from privfed.tables.table_faults import check_table

Progress = Callable[[int], object]
#: Offset between the seeds of consecutive runs of a policy, and of audits.
NEXT_DRAW = 104_729
GROUPS = 10  #: Bins of a numeric target's range in a Dirichlet partition by coins
CANARIES = 400  #: Maximum planted records of one audited training


@dataclass(frozen=True, eq=False)
class Prepared:
    """A study's partitioned data."""

    study: Study
    dataset: Dataset  #: the table with its target and schema
    train: pd.DataFrame  #: the clients' records, with the column of owners
    test: pd.DataFrame  #: the held-out records
    owner: str  #: the column of owners

    @property
    def schema(self) -> Schema:
        """The public schema, or the one inferred from the training records."""
        if self.dataset.schema is not None:
            return self.dataset.schema
        excluded = [self.owner, self.study.data.individual]
        columns = [column for column in self.train.columns if column not in excluded]
        inferred = Schema.infer(self.train[columns], self.dataset.target)
        return positive(inferred, self.study.data.positive)

    @property
    def owners(self) -> tuple[str, ...]:
        """The clients' names."""
        return tuple(str(name) for name in self.train[self.owner].unique())

    def federate(
        self, adopted: Policy, ledgers: Path | None, block: int, registry: Registry | None = None
    ) -> LocalDisclosure:
        """Build a gate with its ledger for each client's records."""
        return LocalDisclosure.from_frame(
            self.train,
            target=self.dataset.target,
            client=self.owner,
            individual=self.study.data.individual,
            schema=self.schema if self.study.data.positive else self.dataset.schema,
            policy=adopted,
            seed=self.study.seed if self.study.noise == "test" else None,
            ledgers=ledgers,
            study=self.study.name,
            block=block,
            registry=registry,
            keys=None if registry is None else self.study.keys,
            held_out=self.test,
        )

    def score(self, model: FederatedLearner, schema: Schema) -> dict[str, Any]:
        """Score the model on held-out records; a personal learner by client."""
        if isinstance(model, PersonalLearner):
            metrics = measure_own(model, self.train, self.test, schema, self.owner)
        else:
            metrics = measure(model, self.train, self.test, schema)
        if groups := self.study.data.groups:
            metrics["groups"] = by_group(model, self.test, schema, groups, self.owner)
        return metrics

    def facts(self) -> dict[str, Any]:
        """Return each client's numbers of records and of values outside the bounds."""
        sizes = self.train[self.owner].value_counts(sort=False)
        clipped = {name: records.clipped for name, records in self.truth().items()}
        return {
            "records": {str(name): int(size) for name, size in sizes.items()},
            "clipped": {name: count for name, count in clipped.items() if count},
            **self._persons(),
        }

    def _persons(self) -> dict[str, Any]:
        """Return each client's numbers of persons and of persons with several records."""
        person = self.study.data.individual
        if person is None:
            return {}
        counts = {
            str(name): part[person].value_counts()
            for name, part in self.train.groupby(self.owner, sort=False)
        }
        return {
            "persons": {
                name: {"persons": len(sizes), "several": int((sizes > 1).sum())}
                for name, sizes in counts.items()
            }
        }

    def truth(self, transcript: Transcript | None = None) -> dict[str, Records]:
        """Return each client's records, to score attacks on a transcript.

        The members of a masked total are all owners' records; held-out ones are the non-members.
        """
        totals = _totals(transcript)
        if totals:
            members = Records.from_frame(self.train, self.schema)
            non_members = Records.from_frame(self.test, self.schema)
            return {**dict.fromkeys(totals, members), "held out": non_members}
        return dict(self._records)

    @cached_property
    def _records(self) -> dict[str, Records]:
        return self._by_owner(self.train)

    def controlled(self, transcript: Transcript | None = None) -> dict[str, Records]:
        """Return each client's records and its held-out ones, for attacks with controls; see :meth:`truth`."""
        totals = _totals(transcript)
        if totals:
            truth = self.truth(transcript)
            non_members = truth.pop("held out")
            return {**truth, **{name + HELD_OUT: non_members for name in truth}}
        held_out = self._by_owner(self.test)
        return {**{name + HELD_OUT: records for name, records in held_out.items()}, **self._records}

    def _by_owner(self, frame: pd.DataFrame) -> dict[str, Records]:
        return {
            str(name): Records.from_frame(part, self.schema, owner=str(name))
            for name, part in frame.groupby(self.owner, sort=False)
        }


def _totals(transcript: Transcript | None) -> list[str]:
    """Return the names under which masked totals were released."""
    return sorted({entry.client for entry in transcript or () if entry.release.owners})


#: A study's data: a partitioned table, or a cohort's rules.
AnyPrepared = Prepared | PreparedCohort


def prepare(study: Study) -> AnyPrepared:
    """Load a study's data: a cohort's rules, or a table with its owners."""
    model = learner(study)
    if isinstance(model, CohortLearner):
        return cohort_study.prepare(study, model)
    return divide(study)


def divide(study: Study) -> Prepared:
    """Load a study's table, partition it among the clients and hold out a fraction of each part."""
    dataset = _dataset(study)
    if dataset.schema is not None:
        check_owners(study, dataset.schema)
        check_table(
            dataset.frame,
            dataset.schema,
            f"data file {study.data.source}" if study.data.source.endswith(FILES) else "",
            owner=study.clients.column,
            individual=study.data.individual,
        )
    if study.clients.ledgers is None:
        rng = np.random.default_rng(study.seed)
        owners = _owners(study, dataset, rng)
        held_out = _held_out(owners, study.data.test, rng)
    else:
        owners, held_out = _by_coins(study, dataset)
    column = study.clients.column or _free_name("client", dataset.frame)
    frame = dataset.frame.assign(**{column: owners})
    generated = study.clients.column is None
    clients.check_sizes(
        owners[~held_out], _names(study) if generated else tuple(dict.fromkeys(owners))
    )
    prepared = Prepared(study, dataset, frame[~held_out], frame[held_out], column)
    check_groups(study.data.groups, prepared.schema, column)
    prepared.truth()
    return prepared


def _dataset(study: Study) -> Dataset:
    """Load a study's table with its schema, or else with its target."""
    data, schema, target = study.data, None, study.data.target
    if data.schema is not None:
        header = None
        if data.source.endswith(FILES):
            _check_here(study, study.folder / data.source)
            header = columns(study.folder / data.source, text=data.text)
        schema = schema_file(study, header)
        assert schema.target is not None
        target = schema.target.name if data.source not in bundled() else data.target
    dataset = load(data.source, target, study.folder, text=data.text, schema=schema)
    dataset = dataset if schema is None else replace(dataset, schema=schema)
    if dataset.schema is not None:
        dataset = replace(dataset, schema=positive(dataset.schema, data.positive))
    _check_public(study, dataset.schema)
    return dataset


def _check_here(study: Study, path: Path) -> None:
    """Check that the data file exists (InputError: how to run a study on the owners' machines)."""
    if study.clients.names and not path.exists() and (study.folder / KEYS).is_dir():
        raise InputError(
            f"data file {path}: is not here, and the study's folder holds {KEYS}: a study on the owners' own "
            "machines is run by privfed flower new, or privfed flare new"
        )


def run(
    prepared: AnyPrepared,
    choice: PolicyChoice,
    output: Output,
    progress: Progress = lambda _: None,
    engine: Engine = local,
) -> None:
    """Train under one policy and write its ledgers, heads, model and metrics."""
    study, model = prepared.study, learner(prepared.study, choice)
    adopted = adopt(study, choice, model, prepared.schema)
    adopted = choice.masked_among(adopted, prepared.owners)
    folder, persistent = output.policy(choice.name), PersistentLedgers.of(study)
    folder.mkdir()
    adopted.to_toml(folder / "policy.toml")
    ledgers = folder / "ledgers" if persistent is None else persistent.folder
    registry = None if persistent is None else persistent.registry()
    with closing(prepared.federate(adopted, ledgers, choice.block, registry)) as federation:
        with _reserve(prepared, model, adopted, federation, persistent), collected_notes() as notes:
            metrics = _learn(prepared, model, federation, progress, engine)
        gates = federation.gates.items()
        metrics["faults"] = {name: dict(gate.faults) for name, gate in gates if gate.faults}
        metrics["breaches"] = {name: dict(gate.uncovered) for name, gate in gates if gate.uncovered}
        if foreign(type(model)) and persistent is None:  # else only its reserved share is charged
            plan = whole_plan(model, prepared.schema, adopted)
            notes += beyond_plan(plan, federation.transcript())
        metrics["warnings"] = notes
        for text in notes:
            warnings.warn(f"policy {choice.name!r}: {text}", Note, stacklevel=2)
        heads = {name: federation.heads.get(name) for name in federation.clients}
        if persistent is None and (
            unwritten := [g.ledger_fault for _, g in gates if g.ledger_fault]
        ):
            raise LedgerError(unwritten[0])  # of answers that are missing, as a disk was full
    noise = federation.noise
    if study.runs > 1:
        reruns = _rerun(prepared, choice, adopted, progress, engine, noise)
        metrics["runs"] = summarise_runs([metrics, *reruns])
    audited = audit_noise(noise, policies=len(study.policies))
    output.write(choice.name, NOISE, [finding.to_dict() for finding in audited])
    if persistent is not None:
        output.write(choice.name, SESSION, federation.session)
    output.write(choice.name, "metrics.json", metrics)
    output.write_heads(choice.name, heads)
    if "stopped" not in metrics:
        (folder / "model.json").write_text(written(model), encoding="utf-8")


def _reserve(
    prepared: AnyPrepared,
    model: FederatedLearner,
    adopted: Policy,
    federation: LocalDisclosure,
    persistent: PersistentLedgers | None,
) -> AbstractContextManager[None]:
    """Reserve the study's share of persistent budgets while it runs; of each individual's in a cohort."""
    if persistent is None or adopted.budget is None:
        return nullcontext()
    cost = price(whole_plan(model, prepared.schema, adopted), prepared.schema, adopted)
    ledgers = {name: gate.ledger for name, gate in federation.gates.items()}
    return persistent.study_block(prepared.study, cost, ledgers)


def _rerun(
    prepared: AnyPrepared,
    choice: PolicyChoice,
    adopted: Policy,
    progress: Progress,
    engine: Engine,
    noise: Mapping[str, NoiseSums],
) -> list[dict[str, Any]]:
    """Repeat the training ``runs - 1`` times with fresh noise and ephemeral ledgers; add up sums of noise."""
    study, metrics = prepared.study, []
    for number in range(1, study.runs):
        fresh = replace(prepared, study=replace(study, seed=study.seed + NEXT_DRAW * number))
        with TemporaryDirectory() as folder, warnings.catch_warnings():
            warnings.simplefilter("ignore", Note)
            ledgers, model = Path(folder) / "ledgers", learner(study, choice)
            with closing(fresh.federate(adopted, ledgers, choice.block)) as federation:
                metrics.append(_learn(prepared, model, federation, progress, engine))
            for owner, tally in federation.noise.items():
                noise[owner].add_all(tally)
    return metrics


def attack(
    prepared: AnyPrepared,
    transcript: Transcript,
    progress: Progress = lambda _: None,
    *,
    seconds: float | None = None,
    relation: Relation = "add-or-remove",
) -> tuple[list[Finding], dict[str, str]]:
    """Run a study's attacks on a transcript, under the policy's neighbouring relation.

    Returns:
        their findings, including partial ones, and the kinds of release that no attack reads; and by name the
        question of each attack that does not apply, which is no pass. An attack that fails is *not looked*.
    """
    truth = prepared.truth(transcript)
    findings: list[Finding] = []
    failed: list[Attack] = []
    inapplicable = {}
    attacks = attacks_of(prepared.study)
    for attack in attacks:
        attack.time_limit, attack.relation = seconds or attack.time_limit, relation
        name = attack.name + BY_AN_OWNER * bool(attack.viewpoint)
        try:
            results = _run_attack(attack, prepared, transcript, truth)
        except Exception as error:
            survived(error)  # the study continues: its budget may be spent
            results = [attack.failure(error)]
            failed.append(attack)
        findings += [
            replace(finding, attack=name) if finding.attack == attack.name else finding
            for finding in results
        ]
        if not results:
            inapplicable[name] = attack.question
        progress(1)
    finished = [attack for attack in attacks if attack not in failed]
    return findings + coverage(transcript, finished) * bool(attacks), inapplicable


def _run_attack(
    attack: Attack, prepared: AnyPrepared, transcript: Transcript, truth: Mapping[str, Any]
) -> list[Finding]:
    """Return the findings of one attack, scored by the records that it needs; empty if it does not apply."""
    if not attack.attackable(transcript):
        return []
    records: Mapping[str, Any] = truth
    single = len(prepared.owners) == 1  # its only controls are held-out records
    if isinstance(prepared, Prepared) and (attack.controls or attack.viewpoint or single):
        records = prepared.controlled(None if attack.viewpoint else transcript)
    if isinstance(prepared, PreparedCohort) and isinstance(attack, Linkage):
        records = prepared.books()
    with one_thread():
        if attack.viewpoint:
            findings = run_as(attack.viewpoint, attack, transcript, records, prepared.schema)
        else:
            findings = attack.findings(transcript, records, prepared.schema)
    timed_out = not findings and attack.bounds and attack.bounds.over
    return [attack.unfinished()] if timed_out else findings


def audit(prepared: AnyPrepared, choice: PolicyChoice) -> list[Finding]:
    """Audit one policy's mechanisms and its owners' sources of noise, without reading records."""
    study, model = prepared.study, learner(prepared.study, choice)
    test = study.noise == "test"
    adopted = adopt(study, choice, model, prepared.schema)
    arguments = whole_plan(model, prepared.schema, adopted), prepared.schema, adopted
    return [
        *audit_composition(adopted, price(*arguments).losses),
        *audit_sensitivities(*arguments),
        *audit_guards(*arguments, TestNoise(study.seed) if test else None),
        *audit_sources(
            *arguments, lambda owner: TestNoise(study.seed + owner) if test else SecureNoise()
        ),
    ]


def audit_training(prepared: AnyPrepared, choice: PolicyChoice) -> list[Finding]:
    """Audit whole trainings under one policy on planted records; empty unless its unit is a record with a budget."""
    study, model = prepared.study, learner(prepared.study, choice)
    adopted = adopt(study, choice, model, prepared.schema)
    of_records = (adopted.unit, adopted.relation) == ("record", "add-or-remove")
    if not of_records or adopted.budget is None or adopted.masked is not None:
        return []
    noise = TestNoise(study.seed) if study.noise == "test" else None
    settings: dict[str, Any] = {"canaries": CANARIES, "search": True, "alpha": FAMILY_WISE}
    seeds = count(study.seed, NEXT_DRAW)
    with one_thread():
        arguments = model, adopted, prepared.schema
        return [
            confirmed(lambda: audit_learner(*arguments, noise=noise, seed=next(seeds), **settings))
        ]


def _learn(
    prepared: AnyPrepared,
    model: FederatedLearner,
    gates: LocalDisclosure,
    progress: Progress,
    engine: Engine = local,
) -> dict[str, Any]:

    def learn(disclosure: ChannelDisclosure) -> dict[str, Any]:
        disclosure.people, disclosure.progress = gates.people, progress
        started = perf_counter()
        metrics: dict[str, Any] = {"simulation": True, "note": "not publishable for real data"}
        try:
            model.fit(disclosure)
            if isinstance(model, PersonalLearner):
                for client, shelf in gates.shelves.items():
                    with suppress(InputError):  # the metrics list clients without a model
                        model.take_home(client, shelf)
            metrics |= prepared.score(model, disclosure.schema)
            written(model)
            if asks_evaluation(next(iter(gates.gates.values())).policy):
                metrics["evaluation"] = evaluated(model, disclosure)
        except NobodyAnswered as no_answer:
            metrics["stopped"] = str(no_answer)
        except Exception as error:
            if not (foreign(type(model)) and disclosure.questions):
                raise
            metrics["stopped"] = metrics[FAILED] = survived(error)  # as for an attack
        return metrics | {
            "seconds": perf_counter() - started,
            "queries": disclosure.questions,
            "rounds": disclosure.rounds,
            **prepared.facts(),
        }

    return engine(gates, learn)


def _check_public(study: Study, schema: Schema | None) -> None:
    """Check that private policies have public bounds, not inferred ones."""
    private = [choice.name for choice in study.policies if choice.base == "private"]
    if private and schema is not None and schema.inferred:
        raise StudyError(
            f"policy {private[0]!r} needs a public schema, and {study.data.schema} was read off the "
            "data, a release without any guarantee; put public bounds there and remove inferred = true"
        )
    if private and schema is None:
        raise StudyError(
            f"policy {private[0]!r} needs a public schema, because bounds read off the data are a "
            'release without any guarantee; write schema = "schema.toml" under [data]'
        )


def _owners(study: Study, dataset: Dataset, rng: np.random.Generator) -> np.ndarray:
    chosen, frame = study.clients, dataset.frame
    if chosen.column is not None:
        return clients.by_column(frame, chosen.column)
    names = _names(study)
    if chosen.partition == "dirichlet":
        return clients.dirichlet(frame[dataset.target], names, chosen.alpha, rng)
    if chosen.partition == "quantity":
        return clients.by_quantity(len(frame), names, chosen.alpha, rng)
    owners = clients.iid(len(frame), names, rng)
    clients.check_sizes(owners, names)
    return owners


def _names(study: Study) -> tuple[str, ...]:
    return clients.named(study.clients.count, study.clients.names)


def _held_out(owners: np.ndarray, fraction: float, rng: np.random.Generator) -> np.ndarray:
    """Mark a random fraction of each client's records, shape (records,), but keep the minimum for training."""
    mask = np.zeros(len(owners), dtype=bool)
    for name in dict.fromkeys(owners):
        index = rng.permutation(np.flatnonzero(owners == name))
        mask[index[: max(0, min(round(fraction * len(index)), len(index) - clients.FEWEST))]] = True
    return mask


def _by_coins(study: Study, dataset: Dataset) -> tuple[np.ndarray, np.ndarray]:
    """Partition a table, and hold records out, by a coin of each record, or of each person that a column names.

    A coin depends only on the record (person), and for the held-out part on the study's seed; the owners'
    fractions, under ``dirichlet`` by class or tenth of the target's range, depend on no record. So adding or
    removing a record moves no other one between owners or parts, and no study moves one to another owner: each
    ledger's guarantee for an owner's part under add-or-remove holds for the table, unlike with a partition by row
    numbers. Under replace-one it does not: the replacing record may go to another owner, and the policy is refused.

    Returns:
        owners, and whether each record is held out, both of shape (records,).
    """
    chosen, frame, person = study.clients, dataset.frame, study.data.individual
    keys = coins.table_keys(frame, f"study {study.seed}".encode(), person)
    held_out = coins.held_out(keys, study.data.test)
    if chosen.column is not None:
        return clients.by_column(frame, chosen.column), held_out
    names = _names(study)
    fractions = np.full(len(names), 1 / len(names))
    if chosen.partition != "iid":
        group, number = _groups(dataset) if chosen.partition == "dirichlet" else (0, 1)
        alphas = np.full(len(names), chosen.alpha)
        fractions = np.random.default_rng(0).dirichlet(alphas, number)[group]
    owner_keys = coins.table_keys(frame, b"owners", person)
    return clients.by_coins(coins.toss(owner_keys, "owner"), fractions, names), held_out


def _groups(dataset: Dataset) -> tuple[np.ndarray, int]:
    """Return each record's class, or the tenth of the target's public range, and the number of possible ones."""
    schema = dataset.schema
    if schema is None or schema.target is None:
        raise StudyError(
            'partition = "dirichlet" needs public classes or bounds of the target where ledgers are persistent; write '
            'schema = "schema.toml" under [data]'
        )
    target, values = schema.target, Records.from_frame(dataset.frame, schema).target
    if not target.numeric:
        return values.astype(int), len(target.categories)
    low, high = target.bounds
    tenths = np.floor((values - low) / (high - low) * GROUPS).clip(0, GROUPS - 1)
    return np.asarray(tenths.astype(int)), GROUPS


def _free_name(name: str, frame: pd.DataFrame) -> str:
    while name in frame.columns:
        name += "_"
    return name
