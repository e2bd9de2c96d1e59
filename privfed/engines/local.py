"""A federation in one process: a gate for each client, called with bytes as over a network.

In one process the gate is a convention that Python code can bypass; across processes it is
enforced.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pandas as pd

from privfed.errors import DataWarning, InputError, Note, PolicyError, no_column
from privfed.exchange.channel import ChannelDisclosure
from privfed.exchange.masked_totals import in_time
from privfed.exchange.signing import Identity, read_key
from privfed.exchange.transcript import Transcript
from privfed.ledger import Ledger
from privfed.ledger.registry import Registry
from privfed.owner.gate import Gate
from privfed.owner.local_store import StudyThings
from privfed.owner.masking import MaskingKey
from privfed.owner.noise_monitor import NoiseSums, OtherOwners
from privfed.privacy.accountant import STATED, Amount, PrivacyStatement
from privfed.privacy.loss import basis_in_words
from privfed.privacy.masked_sums import if_masks_fail
from privfed.privacy.noise import SecureNoise, TestNoise
from privfed.privacy.policy import Policy
from privfed.questions import plugins
from privfed.questions.query import Query
from privfed.tables.data_quality import DataQuality
from privfed.tables.records import Records
from privfed.tables.schema import Schema

NAMED = 3  #: Maximum data owners that a warning names

#: A policy, a path to one, the name "published", a function of the schema, or policies by client.
Policies = str | Path | Policy | Callable[[Schema], Policy] | Mapping[str, Policy]


class LocalDisclosure(ChannelDisclosure):
    """The default engine: every client's gate in this process; ``parallel`` queries all at once."""

    _own_code = True

    def __init__(self, gates: Mapping[str, Gate], *, parallel: bool = False) -> None:
        if not gates:
            raise InputError(
                "a federation needs at least one client; give a table that has records, or one gate each"
            )
        self.gates = dict(gates)
        others = OtherOwners()
        for gate in self.gates.values():
            gate.noise_monitor.others = others
        schema = next(iter(self.gates.values())).schema
        channels = {name: gate.serve for name, gate in self.gates.items()}
        keys = {
            name: Identity(name, public)
            for name, gate in self.gates.items()
            if (public := gate.ledger.public) is not None
        }
        super().__init__(schema, channels, parallel=parallel, keys=keys)

    @classmethod
    def from_frame(  # noqa: PLR0913 - by name after two
        cls,
        frame: pd.DataFrame,
        target: str | None,
        *,
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
        registry: Registry | None = None,
        keys: str | Path | None = None,
        held_out: pd.DataFrame | None = None,
    ) -> LocalDisclosure:
        """Partition one table, one row per record, among its data owners.

        Args:
            target: the column to predict.
            client: the column with each record's data owner.
            individual: the column with each record's person.
            schema: the public data dictionary; None infers it from the data, which every ledger records as an
                unprotected release, and which a policy with a budget refuses.
            policy: a policy, a path to one, one for each client, the name ``"published"``, or a function of the
                schema: ``lambda schema: learner.private(2, schema=schema)``.
            seed: None for secure noise; an integer makes everything repeatable, marked as test noise.
            ledgers: a folder for each client's SQLite file and secret; None: in memory.
            queries: query classes that are not installed as plugins.
            study: the study's name in the ledgers.
            amend: see :class:`Gate`, as ``block``.
            registry: stores the heads of persistent ledgers.
            keys: a folder with each ledger's key ``<client>.key``; None: no signatures.
            held_out: a table of further records, for queries of a model's errors; see :class:`Gate`.
        """
        groups = _split(frame, client)
        identifiers = [c for c in (client, individual) if c in frame.columns]
        known = _known(schema, frame.drop(columns=identifiers), target)
        policies = {name: _policy(policy, name, known) for name in groups}
        _check_public(known, policies, schema)
        prepared = _encoded(groups, known, individual)
        _warn_of_data(prepared, groups, known)
        books, secrets = _opened(_paths(groups, ledgers), seed, keys, registry)
        policies = _with_keys(policies, secrets)
        tested = {} if held_out is None else _encoded(_split(held_out, client), known, individual)
        shared: dict[str, Any] = {"study": study, "amend": amend, "block": block}
        shared["queries"] = tuple(queries)
        gates: dict[str, Gate] = {}
        for number, (name, records) in enumerate(prepared.items()):
            gates[name] = Gate(
                *(name, records, policies[name], books[name]),
                noise=SecureNoise() if seed is None else TestNoise(seed + 7919 * number),
                secret=secrets[name],
                held_out=tested.get(name),
                **shared,
            )
        return cls(gates)

    def transcript(self) -> Transcript:
        """Return all releases in order of time, the only input of attacks."""
        return in_time(x for gate in self.gates.values() for x in gate.ledger.disclosed())

    @property
    def shelves(self) -> dict[str, StudyThings]:
        """Each client's stored values of this study; for the client only, though readable in one process."""
        return {name: gate.shelf.of_study(gate.study) for name, gate in self.gates.items()}

    @property
    def noise(self) -> dict[str, NoiseSums]:
        """Each client's noise statistics; for the client only."""
        return {name: gate.noise_monitor.tally for name, gate in self.gates.items()}

    def budget(self) -> pd.DataFrame:
        """Return a table of each client's spending.

        Returns:
            columns client, unit, epsilon, delta (the budget; without a budget, or if the losses' own delta exceeds it,
            delta is that of spent), spent (epsilon proven for all releases so far), ceiling (epsilon proven whatever is
            still queried; None without a budget), remaining (for one more study; None if unbounded), unprotected
            (number of releases without a guarantee, and of failed protected queries), noise (``"test"`` if seeded: it
            protects no record), basis (assumptions that are not derived here; empty if there are none).
        """
        return pd.DataFrame([_line(name, gate) for name, gate in self.gates.items()])

    def privacy(self) -> dict[str, Any] | None:
        """See the base; from :meth:`budget`."""
        promised = {(gate.policy.unit, gate.policy.relation) for gate in self.gates.values()}
        if len(promised) > 1:  # no one sentence is true of all owners
            return None
        [(unit, relation)] = promised
        rows = self.budget()
        return {
            "epsilon": float(rows["spent"].max()) if np.isfinite(rows["spent"]).all() else None,
            "delta": float(rows["delta"].fillna(0.0).max()),
            "unit": unit,
            "relation": relation,
            "basis": "; ".join(sorted(set(rows["basis"]) - {""})),
            "noise": "test" if (rows["noise"] == "test").any() else "secure",
            **({"unmasked": float(rows["unmasked"].max())} if "unmasked" in rows else {}),
        }

    def _repr_html_(self) -> str:
        """Return the budget for notebooks."""
        return str(self.budget().to_html(index=False))

    def verify(self) -> None:
        """Verify every ledger's chain (LedgerError: one was rewritten)."""
        for name, gate in self.gates.items():
            gate.ledger.verify(self.heads.get(name))

    def close(self) -> None:
        """Close the ledgers and the shelves."""
        for gate in self.gates.values():
            gate.ledger.close()
            gate.shelf.close()
            gate.noise_monitor.close()


def _known(schema: Schema | None, frame: pd.DataFrame, target: str | None) -> Schema:
    """Return the given schema, checked against the target; or one inferred from data, which is not public."""
    if not isinstance(schema, Schema | None):
        raise InputError(
            f"the schema is of type {type(schema).__name__}; give schema=Schema.from_toml(...), or a Schema of columns"
        )
    if not isinstance(target, str | None):
        raise InputError(
            f"the target is of type {type(target).__name__}; give the name of the column to predict, and a schema by name: "
            'LocalDisclosure.from_frame(frame, "outcome", schema=..., client="hospital")'
        )
    known = Schema.infer(frame, target) if schema is None else schema
    named = None if known.target is None else known.target.name
    if target is not None and named != target:
        raise InputError(f"the target is {target!r}, but the schema's is {named!r}; name one")
    return known


def _check_public(known: Schema, policies: Mapping[str, Policy], given: Schema | None) -> None:
    """Warn of bounds that are read off the records (InputError: a policy has a budget)."""
    if not known.inferred:
        return
    if any(policy.budget is not None for policy in policies.values()):
        raise InputError(
            "a policy with a budget needs a public schema, because bounds read off the records are a release "
            "that no epsilon covers; give schema=Schema.from_toml(...), whose template `privfed schema` writes"
        )
    inferred = f"schema {known.name!r} is an inferred one"
    warnings.warn(
        f"{'no schema was given' if given is None else inferred}: bounds are read off the records, a release that no epsilon covers; give a "
        "public one, schema=Schema.from_toml(...)",
        Note,
        stacklevel=3,
    )


def _split(frame: pd.DataFrame, client: str) -> dict[str, pd.DataFrame]:
    if not isinstance(frame, pd.DataFrame):
        raise InputError(
            f"the table is of type {type(frame).__name__}; give a pandas.DataFrame, as pandas.read_csv makes one"
        )
    if client not in frame.columns:
        raise InputError(no_column(client, frame.columns, "for the clients; the"))
    if list(frame.columns).count(client) > 1:
        raise InputError(f"column {client!r} stands twice in the table; keep one")
    owners = frame[client]
    if owners.isna().any():
        raise InputError(
            f"column {client!r} leaves {int(owners.isna().sum())} of {len(owners)} records without a client; "
            "name their owner, or leave those records out"
        )
    codes, first = pd.factorize(owners)
    names = pd.Series(first).astype(str).str.strip().tolist()
    if len(set(names)) != len(names):
        raise InputError(f"column {client!r} has two clients with one name; give each its own")
    order, sizes = np.argsort(codes, kind="stable"), np.bincount(codes, minlength=len(names))
    rows = np.split(order, np.cumsum(sizes))[:-1]
    return {name: frame.take(row_numbers) for name, row_numbers in zip(names, rows, strict=True)}


def _encoded(
    groups: Mapping[str, pd.DataFrame], known: Schema, individual: str | None
) -> dict[str, Records]:
    return {
        name: Records.from_frame(part, known, individual, name) for name, part in groups.items()
    }


def _warn_of_data(
    prepared: Mapping[str, Records], tables: Mapping[str, pd.DataFrame], known: Schema
) -> None:
    """Warn of the owners whose cells the bounds clip, and of columns that are constant over all owners.

    Repeated records are told beside clipped cells only: in a table of few categories they are no fault.
    """
    clipping = {name: tables[name] for name, records in prepared.items() if records.clipped}
    of_clipping: dict[str, Any] = {"constant": ()}
    of_all: dict[str, Any] = {"clipped": {}, "infinite": {}, "duplicates": 0}
    for owners, left_out in ((clipping, of_clipping), (tables, of_all)):
        if not owners:
            continue
        several = f"{len(owners)} of {len(tables)} data owners"
        who = several if len(owners) > NAMED else ", ".join(sorted(owners))
        quality = DataQuality.of(pd.concat(list(owners.values())), known)
        for text in replace(quality, **left_out).warnings():
            warnings.warn(f"{who}: {text}", DataWarning, stacklevel=3)


def _policy(policy: Policies, client: str, schema: Schema) -> Policy:
    if isinstance(policy, Policy):
        return policy
    if isinstance(policy, Mapping):
        if client not in policy:
            raise PolicyError(f"client {client!r} has no policy; give it one")
        return policy[client]
    if callable(policy):
        made = policy(schema)
        if not isinstance(made, Policy):
            raise PolicyError(
                "policy=... must make a Policy; write lambda schema: learner.private(2, schema=schema)"
            )
        return made
    if policy == "published":
        return published()
    if str(policy).endswith(".toml"):
        return Policy.from_toml(policy)
    raise PolicyError(
        f'no policy called {str(policy)!r}; write "published", a path to a .toml file, '
        "or pass one such as FuzzyTreeRegressor().private(epsilon=2, delta=1e-5)"
    )


def _with_keys(policies: Mapping[str, Policy], secrets: Mapping[str, bytes]) -> dict[str, Policy]:
    """Fill in masking keys missing in the policies, from the owners' secrets, all known in one process."""
    masked = (policy.masked for policy in policies.values() if policy.masked is not None)
    lacking = {owner for terms in masked for owner, key in terms.keys.items() if not key}
    keys = {owner: MaskingKey(secrets[owner]).public for owner in lacking & set(secrets)}
    return {
        name: policy
        if policy.masked is None or not keys
        else replace(policy, masked=policy.masked.with_keys(keys))
        for name, policy in policies.items()
    }


def published() -> Policy:
    """Return the union of the learners' ``published`` policies, without baselines."""
    union = Policy({}, name="published")
    for name in sorted(plugins.available("learners")):
        learner = plugins.load("learners", name)
        if not learner.baseline:
            union = union.union(learner().published())
    return union.renamed("published")


def _opened(
    paths: Mapping[str, Path | None],
    seed: int | None,
    keys: str | Path | None,
    registry: Registry | None,
) -> tuple[dict[str, Ledger], dict[str, bytes]]:
    signing = dict.fromkeys(paths) if keys is None else signing_keys(Path(keys), paths)
    books = {
        name: Ledger(path, name, key=signing[name], registry=registry)
        for name, path in paths.items()
    }
    if seed is not None:
        return books, {name: f"test secret {seed} {name}".encode() for name in books}
    return books, {name: book.secret() for name, book in books.items()}


def _paths(owners: Iterable[str], ledgers: str | Path | None) -> dict[str, Path | None]:
    """Return the path of each owner's ledger."""
    if ledgers is None:
        return dict.fromkeys(owners)
    folder = Path(ledgers)
    folder.mkdir(parents=True, exist_ok=True)
    return {name: folder / f"{quote(name, safe=' ')}.db" for name in owners}


def signing_keys(folder: Path, owners: Iterable[str]) -> dict[str, bytes | None]:
    """Read each owner's key, ``<client>.key`` in a folder (InputError: one is missing, or readable by others)."""
    return {name: read_key(folder / f"{quote(name, safe=' ')}.key") for name in owners}


def _line(name: str, gate: Gate) -> dict[str, Any]:
    """Return one client's row of :meth:`LocalDisclosure.budget`."""
    spent, budget = gate.ledger.spent(gate.accountant), gate.policy.budget
    unprotected = spent.unprotected + sum(gate.uncovered.values())
    row = {
        "client": name,
        "unit": gate.policy.unit,
        "epsilon": None if budget is None else float(budget.epsilon),
        "delta": None if budget is None else float(budget.delta),
        **proved(gate, spent.total, unprotected),
        "unprotected": unprotected,
        "noise": "secure" if gate.secure else "test",
        "basis": basis_in_words(spent.basis),
    }
    return row | _unmasked(gate, spent.total)


def _unmasked(gate: Gate, total: Amount) -> dict[str, Any]:
    """Return the column for the total's cost if the masks fail; empty without masks."""
    masked = gate.policy.masked
    if masked is None:
        return {}
    delta = _stated(gate, total).delta or STATED
    fixed = gate.ledger.fixed_totals(gate.accountant)
    if_unmasked = [masked.at_most(amount, gate.accountant) for amount in fixed]
    alone = masked.at_most(total, gate.accountant)
    spent = if_masks_fail(gate.accountant, alone, delta, if_unmasked)
    return {"unmasked": float(spent)}


def _stated(gate: Gate, total: Amount) -> PrivacyStatement:
    fixed, accountant = gate.ledger.fixed_totals(gate.accountant), gate.accountant
    return accountant.stated(total, gate.policy.budget, amended=gate.ledger.amended, fixed=fixed)


def proved(gate: Gate, total: Amount, unprotected: int) -> dict[str, Any]:
    """Return a total's guarantee as columns spent, delta, ceiling and remaining; see :class:`.PrivacyStatement`."""
    if unprotected:
        return {"spent": math.inf, "ceiling": None, "remaining": None}
    budget, stated = gate.policy.budget, _stated(gate, total)
    exceeds = stated.delta > (0 if budget is None else budget.delta)
    return {
        **({"delta": float(stated.delta)} if exceeds else {}),
        "spent": float(stated.epsilon),
        "ceiling": None if stated.ceiling is None else float(stated.ceiling),
        "remaining": None
        if budget is None
        else float(gate.accountant.left(gate.ledger.taken(gate.accountant), budget)),
    }
