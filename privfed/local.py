"""A federation in one process: a gate for each client, reached by bytes as over a network.

In one process the gate is a convention, for Python has no walls; across processes it is real.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pandas as pd

from privfed import plugins, wire
from privfed.channel import ChannelDisclosure
from privfed.errors import InputError, Note, PolicyError
from privfed.gate import Gate
from privfed.ledger import Charge, Ledger
from privfed.loss import Loss
from privfed.noise import Noise, SecureNoise, TestNoise
from privfed.policy import Policy
from privfed.query import Query
from privfed.records import Records
from privfed.release import Release, Transcript
from privfed.schema import Schema

Policies = str | Path | Policy | Mapping[str, Policy]


class LocalDisclosure(ChannelDisclosure):
    """The embedded default: every client's gate in this process.

    Args:
        gates: the clients' gates, by name.
        parallel: whether to ask all clients at the same time, so that they wait for their disks
            together; the order of their releases in the transcript is then chance.
    """

    def __init__(self, gates: Mapping[str, Gate], parallel: bool = False) -> None:
        if not gates:
            raise InputError("a federation needs at least one client")
        self.gates = dict(gates)
        schema = next(iter(self.gates.values())).schema
        channels = {name: gate.serve for name, gate in self.gates.items()}
        super().__init__(schema, channels, parallel=parallel)

    @classmethod
    def from_frame(
        cls,
        frame: pd.DataFrame,
        target: str | None,
        client: str,
        individual: str | None = None,
        schema: Schema | None = None,
        policy: Policies = "published",
        seed: int | None = None,
        ledgers: str | Path | None = None,
        queries: Iterable[type[Query]] = (),
        study: str = "",
        amend: bool = False,
        block: int = 1,
    ) -> LocalDisclosure:
        """Split one table among its data owners.

        Args:
            frame: one row a record.
            target: the column to predict.
            client: the column that names each record's data owner.
            individual: the column that names the person behind each record.
            schema: the public data dictionary; none infers it from the data, which is recorded in
                every ledger as an unprotected release.
            policy: a policy, a path to one, one for each client, or the name ``"published"``.
            seed: none for secure noise; an integer makes everything repeatable, and the ledgers
                mark the releases as test noise.
            ledgers: a folder for one SQLite file a client; none keeps them in memory.
            queries: query classes that are not installed as plugins.
            study: a name for the ledgers.
            amend, block: see :class:`Gate`.
        """
        groups = _split(frame, client)
        columns = [c for c in frame.columns if c not in (client, individual)]
        known = schema or _inferred(frame[columns], target)
        _check_target(known, target)
        queries = tuple(queries)
        policies = {name: _policy(policy, name) for name in groups}
        folder = None if ledgers is None else _folder(ledgers)
        prepared = {
            name: Records.from_frame(part, known, individual, name) for name, part in groups.items()
        }
        gates: dict[str, Gate] = {}
        for number, (name, records) in enumerate(prepared.items()):
            ledger = _ledger(folder, name)
            gates[name] = Gate(
                *(name, records, policies[name], ledger),
                noise=_noise(seed, number),
                queries=queries,
                study=study,
                secret=_secret(seed, name),
                amend=amend,
                block=block,
            )
            if schema is None:
                _record_inferred(gates[name], known)
        return cls(gates)

    def transcript(self) -> Transcript:
        """What left, in order of time: all that an attack may read."""
        timed = [line for gate in self.gates.values() for line in gate.ledger.disclosed()]
        return Transcript(tuple(entry for _, entry in sorted(timed, key=lambda line: line[0])))

    def budget(self) -> pd.DataFrame:
        """What each client has spent.

        Returns:
            columns client, unit, epsilon, delta (the ceiling), spent (epsilon at that delta),
            remaining (none where nothing bounds it), unprotected (number of releases without any
            guarantee).
        """
        return pd.DataFrame([_line(name, gate) for name, gate in self.gates.items()])

    def verify(self) -> None:
        """Check every ledger's chain; raises LedgerError where one was rewritten."""
        for name, gate in self.gates.items():
            gate.ledger.verify(self.heads.get(name))

    def close(self) -> None:
        """Close the ledgers."""
        for gate in self.gates.values():
            gate.ledger.close()


def _inferred(frame: pd.DataFrame, target: str | None) -> Schema:
    """Read a schema off the data, which is a release without any guarantee."""
    warnings.warn(
        "no schema was given: bounds are read off the records, a release that no epsilon covers; "
        "give a public one, schema=Schema.from_toml(...)",
        Note,
        stacklevel=3,
    )
    return Schema.infer(frame, target)


def _split(frame: pd.DataFrame, client: str) -> dict[str, pd.DataFrame]:
    if client not in frame.columns:
        known = ", ".join(str(column) for column in frame.columns)
        raise InputError(f"no column {client!r} for the clients; the columns are {known}")
    if list(frame.columns).count(client) > 1:
        raise InputError(f"column {client!r} stands twice in the table; keep one")
    owners = frame[client]
    if owners.isna().any():
        raise InputError(
            f"column {client!r} leaves {int(owners.isna().sum())} records without a client"
        )
    names = owners.astype(str).str.strip()
    if names.nunique() != owners.nunique():
        raise InputError(f"column {client!r} has two clients with one name; give each its own")
    return {str(name): part for name, part in frame.groupby(names.to_numpy(), sort=False)}


def _check_target(schema: Schema, target: str | None) -> None:
    named = None if schema.target is None else schema.target.name
    if target is not None and named != target:
        raise InputError(f"the target is {target!r}, but the schema's is {named!r}; name one")


def _policy(policy: Policies, client: str) -> Policy:
    if isinstance(policy, Policy):
        return policy
    if isinstance(policy, Mapping):
        if client not in policy:
            raise PolicyError(f"client {client!r} has no policy; give it one")
        return policy[client]
    if policy == "published":
        return published()
    if str(policy).endswith(".toml"):
        return Policy.from_toml(policy)
    raise PolicyError(
        f'no policy called {str(policy)!r}; write "published", a path to a .toml file, '
        "or pass one such as FuzzyTreeRegressor().private(epsilon=2, delta=1e-5)"
    )


def published() -> Policy:
    """What the papers release: the union of ``published`` over the learners, baselines left out."""
    union = Policy({}, name="published")
    for name in sorted(plugins.available("learners")):
        learner = plugins.load("learners", name)
        if not learner.baseline:
            union = union.union(learner().published())
    return union.renamed("published")


def _folder(path: str | Path) -> Path:
    folder = Path(path)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _ledger(folder: Path | None, name: str) -> Ledger:
    path = None if folder is None else folder / f"{quote(name, safe=' ')}.db"
    return Ledger(path, dataset=name)


def _noise(seed: int | None, number: int) -> Noise:
    return SecureNoise() if seed is None else TestNoise(seed + 7919 * number)


def _secret(seed: int | None, name: str) -> bytes:
    if seed is None:
        return np.random.SeedSequence().entropy.to_bytes(32, "big")  # type: ignore[union-attr]
    return f"test secret {seed} {name}".encode()


def _record_inferred(gate: Gate, schema: Schema) -> None:
    """Bounds read off the data have left, once: an unprotected release like any other."""
    fields = wire.encode(schema.to_dict())
    digest = wire.digest(fields)
    request = f"schema {digest}"
    if gate.ledger.find("server", request) is not None:
        return
    loss = Loss.open("the schema's bounds and categories were read off the data")
    charge = Charge("server", request, "schema.infer", digest, loss, gate.study, client=gate.owner)
    gate.ledger.reserve(charge, gate.accountant, lambda spent: None, wire.encode({}))
    release = Release(gate.owner, request, "schema.infer", digest, {})
    gate.ledger.release(charge, wire.encode(release))


def remaining(ceiling: Fraction, spent: Fraction) -> float:
    """What is left of an epsilon; the crumbs of rounding are nothing."""
    return max(0.0, round(float(ceiling - spent), 9))


def _line(name: str, gate: Gate) -> dict[str, Any]:
    spent = gate.ledger.spent(gate.accountant)
    budget = gate.policy.budget
    epsilon, _ = gate.accountant.stated(spent.total, budget)
    bounded = budget is not None and not spent.unprotected
    return {
        "client": name,
        "unit": gate.policy.unit,
        "epsilon": None if budget is None else float(budget.epsilon),
        "delta": None if budget is None else float(budget.delta),
        "spent": float("inf") if spent.unprotected else float(epsilon),
        "remaining": remaining(budget.epsilon, epsilon) if budget and bounded else None,
        "unprotected": spent.unprotected,
    }
