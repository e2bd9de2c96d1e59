"""Gates around any model: a client's update is released as one clipped vector, and charged.

The model may be trained by any code. Its update is charged to the same ledger and budget as queries for rules and
trees.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np

from privfed.errors import NobodyAnswered, PolicyError, QueryError
from privfed.exchange.masked_totals import with_totals
from privfed.exchange.messages import Release, Request
from privfed.ledger import Ledger
from privfed.owner.gate import Gate
from privfed.privacy.policy import Policy
from privfed.privacy.policy_objects import mechanism_of
from privfed.questions import wire
from privfed.questions.part import Bound, Part, PartType, Sensitivity
from privfed.questions.query import Query, View
from privfed.tables.records import Records
from privfed.tables.schema import Column, Schema

#: Grid units of a clip: 2^24 to 2^25, so that truncation changes a cell by at most 6e-8 of the
#: clip.
FINENESS = 24
RECORD = ("record", "add-or-remove")  #: Unit and relation of a training's own guarantee
#: The data dictionary of a client without a table.
NO_TABLE = Schema((Column("none", lower=0, upper=1),), name="a model's update")


@dataclass(frozen=True, eq=False)
class TrainedRecords(Records):
    """A client's records and last trained update, which only :class:`ModelUpdate` reads."""

    trained: dict[str, np.ndarray] = field(default_factory=dict)

    @classmethod
    def beside(cls, records: Records | None) -> TrainedRecords:
        """Return the records with a slot for an update; no records for a client without a table."""
        known = Records(NO_TABLE, np.zeros((0, 1))) if records is None else records
        return cls(known.schema, known.x, known.y, known.individual, known.clipped)

    def take(self, index: np.ndarray) -> TrainedRecords:
        """Return the records at the positions ``index``, sharing the slot."""
        kept = super().take(index)
        return replace(TrainedRecords.beside(kept), trained=self.trained)


@dataclass(frozen=True)
class ModelUpdate(Query):
    """A client's update of a model, one vector clipped to an L2 norm c.

    Sensitivity: released is t(u) = trunc(u min(1, c / ||u||) / g), towards zero, so that ||t(u)|| <= c / g in grid
    units; cells that are not finite count as zero. An absent client adds the zero vector: adding or removing a client
    changes the vector by ||t(u)|| <= c / g, and replacing one by at most 2c / g (triangle inequality, attained at -u).
    One record, or one individual, may change all of u through training: 2c / g for either relation. L1 <= sqrt(d) L2
    for d cells (Cauchy-Schwarz).
    """

    cells: int  #: number of cells of the update
    clip: float  #: L2 norm, in the update's own units
    round: int = 0  #: round of training; each is a new charge
    kind: ClassVar[str] = "model.update"
    linear: ClassVar[bool] = False

    @property
    def grid(self) -> Fraction:
        """The value of one unit, a power of two."""
        return Fraction(2) ** (math.floor(math.log2(self.clip)) - FINENESS)

    @property
    def most(self) -> int:
        """The exact maximum of the squared L2 norm, in grid units."""
        return math.floor((Fraction(self.clip) / self.grid) ** 2)

    def parts(self, schema: Schema) -> Mapping[str, Part]:
        """Return the flat part ``update``."""
        if not 1 <= self.cells <= 2**28:
            raise QueryError("malformed", "an update has from 1 to 2^28 cells")
        if not 2.0**-100 <= self.clip <= 2.0**100:
            raise QueryError("malformed", "clip is a number above 0, of no absurd size")
        l1 = math.isqrt(self.cells * self.most)  # of one cell, whose L2 norm is an integer, too
        one = Bound(l1, min(self.most, l1**2))
        two = one.times(2)
        bound = Sensitivity(two, replace_one=two, anything=two, client=one)
        return {"update": Part(PartType.SUMS, ("cell",), (self.cells,), bound, self.grid)}

    def evaluate(self, view: View) -> Mapping[str, np.ndarray]:
        """Clip and truncate to the grid; the norm is enforced in integers, so that rounding cannot exceed it."""
        assert isinstance(view.records, TrainedRecords)
        flat = view.records.trained.get("update", np.zeros(0))
        if flat.shape != (self.cells,):
            return {"update": np.zeros(self.cells, np.int64)}
        kept = np.where(np.isfinite(flat), flat, 0.0)
        top = float(np.abs(kept).max())
        if top:
            unit = kept / top  # so that neither the norm overflows nor the factor underflows
            length = float(np.linalg.norm(unit))
            kept = kept if top <= self.clip / length else unit * (self.clip / length)
        units = np.trunc(kept / float(self.grid))
        while sum(int(each) ** 2 for each in units[units != 0]) > self.most:
            units = np.trunc(units * (1 - 2.0**-30))
        return {"update": units.astype(np.int64)}


class UpdateGate:
    """One client's gate for a model's updates, and for other queries that the policy allows.

    Args:
        owner: the client's public name.
        policy: has guards for the kind ``model.update``; its unit is what is protected.
        ledger: the ledger for all charges.
        clip: L2 norm to which an update is clipped.
        records: the client's table, for rules and trees under the same budget; or None.
        rest: see :class:`.Gate`.

    Raises:
        QueryError: the clip is invalid.
        PolicyError: masked sums that allow dropouts, as training rounds have no steps to open them; or training
            costs more, by its settings, than its guard spends.
    """

    def __init__(
        self,
        owner: str,
        policy: Policy,
        ledger: Ledger,
        *,
        clip: float,
        records: Records | None = None,
        **options: Any,
    ) -> None:
        if policy.masked is not None and policy.masked.least:
            raise PolicyError("masked: a model's updates need all owners; leave least out")
        ModelUpdate(1, clip).parts(NO_TABLE)
        self.clip, self._records = clip, TrainedRecords.beside(records)
        for each in policy.guards.get(ModelUpdate.kind, ()):
            mechanism_of(each).dearest(each.amount(None))
            if "steps" in each.options and (policy.unit, policy.relation) != RECORD:
                raise PolicyError(
                    "training: its settings say what one record more or less costs; leave noise, rate and steps "
                    "out for another unit or relation, and write what its accountant says of that"
                )
        queries = (ModelUpdate, *options.pop("queries", ()))
        #: The gate, which also answers queries for rules and trees.
        self.gate = Gate(owner, self._records, policy, ledger, queries=queries, **options)

    def answer(
        self,
        update: Sequence[np.ndarray],
        *,
        round: int = 0,
        principal: str = "server",
        run: str = "",
    ) -> Release | None:
        """Return the released update as one flat part; None if the policy refuses.

        Repeating a round of a run returns the same bytes, whatever was trained meanwhile. If the policy masks, it is a
        share of all owners' total: see :func:`mean_update`.
        """
        flat = np.concatenate([np.zeros(0), *(np.ravel(each).astype(float) for each in update)])
        query = ModelUpdate(flat.size, self.clip, round)
        self._records.trained["update"] = flat
        try:
            reply = self.gate.answer(
                Request.of(f"{run}/{round}", query, principal, round=str(round))
            ).open()
        finally:
            self._records.trained.clear()
        return reply if isinstance(reply, Release) else None

    def release(self, update: Sequence[np.ndarray], **options: Any) -> list[np.ndarray] | None:
        """Return the released update in its shapes; see :meth:`answer` (PolicyError: it is a share)."""
        release = self.answer(update, **options)
        if release is not None and release.view:
            raise PolicyError("masked: an update leaves as a share; use answer() and mean_update()")
        return None if release is None else arrays_of(release, map(np.shape, update))


def arrays_of(release: Release, shapes: Iterable[Sequence[int]]) -> list[np.ndarray]:
    """Return a released update in its shapes."""
    values, arrays = np.asarray(release["update"].filled(0.0), float), []
    for shape in shapes:
        part, values = np.split(values, [math.prod(shape)])
        arrays.append(part.reshape(shape))
    return arrays


def mean_update(
    shares: Iterable[bytes], shapes: Iterable[Sequence[int]]
) -> list[np.ndarray] | None:
    """Return the mean of all owners' updates from their encoded masked shares; None while one is missing.

    The total has the noise of one owner's gate without masks; the mean has it divided by the number of owners.
    WireError, PolicyError: bytes that are no share, or shares whose masks do not cancel.
    """
    shares_by_client = {
        share.client: share for share in (wire.decode(data, Release) for data in shares)
    }
    if not shares_by_client or not all(share.view for share in shares_by_client.values()):
        return None
    try:
        (total,) = with_totals(shares_by_client).values()
    except NobodyAnswered:
        return None
    assert isinstance(total, Release)
    return [each / len(shares_by_client) for each in arrays_of(total, shapes)]
