"""Record recovery from the leaf normal equations of fuzzy regression trees, client by client."""

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from privfed.attacks.base import Attack, PublicSchema, Table, Truth, exact_parts
from privfed.attacks.deadline import Deadline
from privfed.attacks.equations import (
    PRECISION,
    NormalEquations,
    ReconstructedRecord,
    distinct,
    few_records,
    known_domain,
    single_records,
    small_groups,
)
from privfed.attacks.finding import Finding, Risk, Severity
from privfed.attacks.fuzzy import (
    LEAVES,
    Cell,
    Geometry,
    cells,
    centred_target,
    match,
    prefixes,
    renamed,
)
from privfed.attacks.ledger_rows import divided, integer_points
from privfed.attacks.reading import formed, well_formed
from privfed.attacks.verbatim import DRAWS, made_up, own_and_others, severity
from privfed.exchange.transcript import Transcript, TranscriptEntry

DOMAIN = 300_000  #: Most vectors of a domain that are enumerated
ROUNDS = 1000  #: Most rounds of claiming and taking out


class Recovery(Attack):
    """Recovers whole records from leaf equations.

    Leaves of one record are read off, taken out of all other leaves, and so on; then nodes of few
    records are diagonalised jointly; then, if every feature is an integer or a category, leaves are
    searched over the domain.

    A record counts as recovered when every feature (scaled and clipped as the tree does) and the
    target are right to 1e-4 of their range. The baseline holds the same claims against as many records that are
    drawn: of other clients', and made up in the columns' shapes, whichever gives more.
    """

    name: ClassVar[str] = "recovery"
    risk: ClassVar[Risk] = "singling out"
    harm: ClassVar[str] = "whole records can be computed from what was released"
    question: ClassVar[str] = "Which whole records can be recovered from the leaf equations?"
    kinds: ClassVar[tuple[str, ...]] = (LEAVES,)

    def run(
        self, transcript: Transcript, truth: Truth | None = None, schema: PublicSchema | None = None
    ) -> list[Finding]:
        """See :class:`Attack`: one finding, ``records recovered exactly``, over all clients."""
        entries = well_formed(transcript, schema, truth).of(LEAVES).entries
        if not entries:
            return []
        deadline, read = self.deadline(), 0
        claims = {}
        for place in deadline.range(len(entries)):
            with formed(self.name, schema is not None or truth):
                claims[entries[place]] = self.claims(entries[place], schema, deadline=deadline)
            read += not deadline.over
        partial = deadline.partial(read, len(entries), "releases")
        if truth is None:
            return [self._unscored(claims, partial)]
        return [self._scored(claims, truth, schema, partial)]

    def claims(
        self,
        entry: TranscriptEntry,
        schema: PublicSchema | None = None,
        *,
        deadline: Deadline | None = None,
    ) -> list[ReconstructedRecord]:
        """The records that one client's leaf equations give away."""
        deadline = deadline or self.deadline()
        equations = read(entry)
        if equations is None:
            return []
        paths = [entry.query["nodes"][number] for number in _heard(entry)]
        claims, equations = _peel(equations, paths, deadline)
        enumerated = _domain(equations, schema, entry.query["features"])
        if enumerated is not None:
            for leaf in deadline.range(len(equations)):
                more = known_domain(equations, leaf, enumerated)
                claims += more
                for claim in more:
                    equations = equations.without(claim)
        return claims

    def _unscored(
        self, claims: dict[TranscriptEntry, list[ReconstructedRecord]], partial: str
    ) -> Finding:
        found = sum(len(of) for of in claims.values())
        return self.finding(
            "records claimed",
            found,
            releases=(LEAVES,),
            severity="breach" if found else "none",
            detail=_methods(claims),
            simulation=False,
            partial=partial,
        )

    def _scored(
        self,
        claims: dict[TranscriptEntry, list[ReconstructedRecord]],
        truth: Truth,
        schema: PublicSchema | None,
        partial: str,
    ) -> Finding:
        attacked = [client for client in dict.fromkeys(e.client for e in claims) if client in truth]
        rng, right, chance = np.random.default_rng(0), 0, np.zeros(DRAWS)
        for client in attacked:
            of = [each for each in claims.items() if each[0].client == client]
            own, others = own_and_others(truth, client)
            hits = _hits(of, truth[client], schema)
            right += hits
            for draw in range(DRAWS if hits else 0):
                drawn = (divided(truth[client], rows) for rows in made_up(own, others, rng))
                chance[draw] += max(_hits(of, table, schema) for table in drawn)
        total = sum(len(truth[client].x) for client in attacked)
        detail = {"claimed": sum(len(of) for of in claims.values()), **_methods(claims)}
        return self.finding(
            "records recovered exactly",
            right,
            of=total,
            baseline=float(chance.mean()),
            releases=(LEAVES,),
            severity="none" if severity(right, chance, 0) == Severity.NONE else "breach",
            detail={**detail, "precision": PRECISION},
            partial=partial,
        )


def read(entry: TranscriptEntry) -> NormalEquations | None:
    """A release's equations; None if noisy or withheld.

    Suppressed leaves are left out, and those whose path uses a feature that the equations lack:
    there a claimed record's activation is unknown.
    """
    parts = exact_parts(entry)
    if not {"gram", "moment"} <= set(parts):
        return None
    heard, leaves = _heard(entry), _leaves(entry)
    if not heard:
        return None
    gram, moment = (np.asarray(parts[name].values.data)[heard] for name in ("gram", "moment"))
    records = np.maximum(gram[:, 0, 0], 8.0)
    return NormalEquations(
        tuple(leaf for leaf in (leaves[number] for number in heard) if leaf is not None),
        _geometry(entry),
        gram,
        moment,
        records * float(parts["gram"].grid),
    )


def _geometry(entry: TranscriptEntry) -> Geometry:
    """The geometry of the features that the equations are about."""
    return Geometry.of(entry.query).only(entry.query["features"])


def _leaves(entry: TranscriptEntry) -> list[Cell | None]:
    """The leaves by those features; None for leaves that use others."""
    return [renamed(leaf, entry.query["features"]) for leaf in cells(entry.query["nodes"])]


def _heard(entry: TranscriptEntry) -> list[int]:
    """Indices of the leaves that can be attacked."""
    moment, gram = (np.ma.getmaskarray(entry.release[name]) for name in ("moment", "gram"))
    silent = np.asarray(moment.any(axis=1) | gram.any(axis=(1, 2)))
    return [n for n, leaf in enumerate(_leaves(entry)) if leaf is not None and not silent[n]]


def _peel(
    equations: NormalEquations, paths: list[list[list[int]]], deadline: Deadline
) -> tuple[list[ReconstructedRecord], NormalEquations]:
    nodes = sorted(prefixes(paths).values(), key=len)
    claims: list[ReconstructedRecord] = []
    for _ in deadline.range(ROUNDS):
        more = single_records(equations) or _small_group(equations, nodes, deadline)
        if not more:
            break
        claims += more
        for claim in more:
            equations = equations.without(claim)
    return claims, equations


def _small_group(
    equations: NormalEquations, nodes: list[list[int]], deadline: Deadline
) -> list[ReconstructedRecord]:
    groups = small_groups(equations, nodes)
    return distinct(few_records(equations, groups[at]) for at in deadline.range(len(groups)))


def _domain(
    equations: NormalEquations, schema: PublicSchema | None, features: Sequence[int]
) -> np.ndarray | None:
    """Every row that a record can have; None if a feature is continuous or there are too many."""
    if schema is None:
        return None
    points = integer_points([schema.features[feature] for feature in features], DOMAIN)
    if points is None:
        return None
    vectors = equations.geometry.unit(points)
    return np.column_stack([np.ones(len(vectors)), vectors - 0.5])


def _hits(
    claims: Sequence[tuple[TranscriptEntry, list[ReconstructedRecord]]],
    table: Table,
    schema: PublicSchema | None,
) -> int:
    """How many records of a table some claim is right about; each counts once, however many releases give it."""
    hit, target = np.zeros(len(table.x), bool), centred_target(table, schema)
    for entry, of in claims:
        if of:
            known = _geometry(entry).unit(table.x[:, list(entry.query["features"])]) - 0.5
            claimed = np.array([claim.coordinates for claim in of])
            if target is None:
                claimed = claimed[:, :-1]
            else:
                known = np.column_stack([known, target])
            hit |= match(claimed, known, PRECISION)
    return int(hit.sum())


def _methods(claims: dict[TranscriptEntry, list[ReconstructedRecord]]) -> dict[str, int]:
    named = [claim.method for of in claims.values() for claim in of]
    return {f"claimed by {method}": named.count(method) for method in sorted(set(named))}
