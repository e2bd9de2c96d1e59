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
from privfed.attacks.ledger_rows import as_table, integer_points
from privfed.attacks.reading import formed, well_formed
from privfed.attacks.verbatim import DRAWS, SyntheticRecords, own_and_others, severity
from privfed.exchange.transcript import Transcript, TranscriptEntry

DOMAIN = 300_000  #: Most vectors of a domain that are enumerated
ROUNDS = 1000  #: Most rounds of claiming records and subtracting them


class Recovery(Attack):
    """Recovers whole records from leaf equations.

    Records alone in a leaf are claimed and subtracted from all other leaves, repeatedly; then nodes of few
    records are diagonalised jointly; then, if every feature is an integer or a category, leaves are
    searched over the domain.

    A record counts as recovered if every feature (scaled and clipped as by the tree) and the
    target are correct to 1e-4 of their range. The baseline compares the same claims with as many drawn records:
    other clients', and synthetic ones in the columns' shapes, whichever gives more.
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
        for entry in deadline.each(entries):
            with formed(self.name, schema is not None or truth):
                claims[entry] = self.claims(entry, schema, deadline=deadline)
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
        """The records that one client's leaf equations disclose."""
        deadline = deadline or self.deadline()
        equations = read(entry)
        if equations is None:
            return []
        paths = [entry.query["nodes"][number] for number in _readable_leaves(entry)]
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
        n_claims = sum(len(group) for group in claims.values())
        return self.finding(
            "records claimed",
            n_claims,
            releases=(LEAVES,),
            severity="breach" if n_claims else "none",
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
        rng, right, by_chance = np.random.default_rng(0), 0, np.zeros(DRAWS)
        for client in attacked:
            group = [item for item in claims.items() if item[0].client == client]
            synthetic = SyntheticRecords(*own_and_others(truth, client))
            hits = _hits(group, truth[client], schema)
            right += hits
            for draw in range(DRAWS if hits else 0):
                drawn = (as_table(truth[client], rows) for rows in synthetic.draw(rng))
                by_chance[draw] += max(_hits(group, table, schema) for table in drawn)
        total = sum(len(truth[client].x) for client in attacked)
        detail = {"claimed": sum(len(group) for group in claims.values()), **_methods(claims)}
        return self.finding(
            "records recovered exactly",
            right,
            of=total,
            baseline=float(by_chance.mean()),
            releases=(LEAVES,),
            severity="none" if severity(right, by_chance, 0) == Severity.NONE else "breach",
            detail={**detail, "precision": PRECISION},
            partial=partial,
        )


def read(entry: TranscriptEntry) -> NormalEquations | None:
    """A release's equations; None if noisy or withheld.

    Suppressed leaves are left out, and those whose path uses a feature missing from the equations:
    a claimed record's activation is unknown there.
    """
    parts = exact_parts(entry)
    if not {"gram", "moment"} <= set(parts):
        return None
    readable, leaves = _readable_leaves(entry), _leaves(entry)
    if not readable:
        return None
    gram, moment = (np.asarray(parts[name].values.data)[readable] for name in ("gram", "moment"))
    records = np.maximum(gram[:, 0, 0], 8.0)
    return NormalEquations(
        tuple(leaf for leaf in (leaves[number] for number in readable) if leaf is not None),
        _geometry(entry),
        gram,
        moment,
        records * float(parts["gram"].grid),
    )


def _geometry(entry: TranscriptEntry) -> Geometry:
    """The geometry of the features that the equations are about."""
    return Geometry.of(entry.query).only(entry.query["features"])


def _leaves(entry: TranscriptEntry) -> list[Cell | None]:
    """The leaves by the equations' features; None for leaves that use others."""
    return [renamed(leaf, entry.query["features"]) for leaf in cells(entry.query["nodes"])]


def _readable_leaves(entry: TranscriptEntry) -> list[int]:
    """Indices of the leaves that can be attacked."""
    moment, gram = (np.ma.getmaskarray(entry.release[name]) for name in ("moment", "gram"))
    withheld = np.asarray(moment.any(axis=1) | gram.any(axis=(1, 2)))
    return [n for n, leaf in enumerate(_leaves(entry)) if leaf is not None and not withheld[n]]


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
    groups = deadline.each(small_groups(equations, nodes))
    return distinct(few_records(equations, group) for group in groups)


def _domain(
    equations: NormalEquations, schema: PublicSchema | None, features: Sequence[int]
) -> np.ndarray | None:
    """Every possible row; None if a feature is continuous or there are too many."""
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
    """Count the records of a table that some claim matches, each once."""
    hit, target = np.zeros(len(table.x), bool), centred_target(table, schema)
    for entry, group in claims:
        if group:
            known = _geometry(entry).unit(table.x[:, list(entry.query["features"])]) - 0.5
            claimed = np.array([claim.coordinates for claim in group])
            if target is None:
                claimed = claimed[:, :-1]
            else:
                known = np.column_stack([known, target])
            hit |= match(claimed, known, PRECISION)
    return int(hit.sum())


def _methods(claims: dict[TranscriptEntry, list[ReconstructedRecord]]) -> dict[str, int]:
    named = [claim.method for group in claims.values() for claim in group]
    return {f"claimed by {method}": named.count(method) for method in sorted(set(named))}
