"""Gates around models on NVIDIA FLARE: a filter of a site's results, and an aggregator of masked shares."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np
from nvflare.apis.dxo import DXO, DataKind, MetaKey, from_shareable
from nvflare.apis.dxo_filter import DXOFilter
from nvflare.apis.fl_constant import FLContextKey, ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import ReservedHeaderKey, Shareable
from nvflare.app_common.abstract.aggregator import Aggregator

from privfed.engines.updates import UpdateGate, arrays_of, mean_update
from privfed.questions import wire

#: Keys of a masked update: its bytes, and its model's arrays
SHARE, SHAPES = "privfed share", "privfed shapes"


ALIKE = {MetaKey.NUM_STEPS_CURRENT_ROUND: 1}  #: One step per site, for equal weights
#: Headers of a result that stay, for routing; they do not depend on records.
ROUTING = (
    ReservedHeaderKey.RC,
    ReservedHeaderKey.COOKIE_JAR,
    ReservedHeaderKey.TASK_NAME,
    ReservedHeaderKey.TASK_ID,
    ReservedHeaderKey.WORKFLOW,
    ReservedHeaderKey.AUDIT_EVENT_ID,
    ReservedHeaderKey.MSG_ROOT_ID,
    ReservedHeaderKey.MSG_ROOT_TTL,
    MetaKey.CURRENT_ROUND,
)


class GateFilter(DXOFilter):  # type: ignore[misc, unused-ignore]
    """Releases weight differences only through a data owner's gate, and nothing else.

    A site lists it in its ``task_result_filters``. If the policy refuses, or anything fails, or training returns no
    weight difference (whole weights, metrics, several kinds at once), a difference without arrays is sent; if the
    policy masks, a share for :class:`MaskedAggregator`. FLARE itself passes on data kinds that a filter does not
    support. The round is in the result's header, else it is the task.

    Args:
        gate: the owner's gate.
    """

    def __init__(self, gate: UpdateGate) -> None:
        kinds = [DataKind.WEIGHT_DIFF]
        super().__init__(supported_data_kinds=kinds, data_kinds_to_filter=kinds)
        self._gate = gate

    def process(self, shareable: Shareable, fl_ctx: FLContext) -> Shareable:
        """Return a result with only the released difference and headers for routing."""
        filtered_dxo, remaining = DXO(DataKind.WEIGHT_DIFF, data={}, meta=dict(ALIKE)), Shareable()
        if shareable.get_return_code() == ReturnCode.OK:
            with suppress(Exception):  # it has no DXO
                dxo = from_shareable(shareable)
                if dxo.data_kind == DataKind.WEIGHT_DIFF and dxo.data:
                    filtered_dxo = self.process_dxo(dxo, shareable, fl_ctx)
        for key in ROUTING:
            if (value := shareable.get_header(key)) is not None:
                remaining.set_header(key, value)
        filtered: Shareable = filtered_dxo.update_shareable(remaining)
        return filtered

    def process_dxo(self, dxo: DXO, shareable: Shareable, fl_ctx: FLContext) -> DXO:
        """Release the difference; its metadata have one step per site, for equal weights."""
        meta: dict[str, Any] = dict(ALIKE)
        data: dict[str, Any] = {}
        try:
            shapes = {name: np.shape(part) for name, part in dxo.data.items()}
            update = [np.asarray(part) for part in dxo.data.values()]
            number = shareable.get_header(MetaKey.CURRENT_ROUND)
            run = _run(fl_ctx)
            if number is None:  # an executor's result without a round is identified by its task
                run = f"{run}/{fl_ctx.get_prop(FLContextKey.TASK_ID)}"
            release = self._gate.answer(update, round=int(number or 0), run=run)
            if release is not None and release.view:
                data = {SHARE: wire.encode(release)}
                meta[SHAPES] = {name: list(shape) for name, shape in shapes.items()}
            elif release is not None:
                data = dict(zip(shapes, arrays_of(release, shapes.values()), strict=True))
        except Exception:
            data = {}
        return DXO(DataKind.WEIGHT_DIFF, data=data, meta=meta)


class MaskedAggregator(Aggregator):  # type: ignore[misc, unused-ignore]
    """Computes the mean of masked weight differences from sites with :class:`GateFilter`.

    All owners of the policies' roster take part in each round, numbered in their results, with equal weights. If one of
    them is silent or refuses, the round has a difference without arrays.
    """

    def __init__(self) -> None:
        super().__init__()
        self._shares: list[bytes] = []
        self._shapes: dict[str, list[int]] = {}

    def reset(self, fl_ctx: FLContext) -> None:
        """Begin a round."""
        self._shares, self._shapes = [], {}

    def accept(self, shareable: Shareable, fl_ctx: FLContext) -> bool:
        """Accept a site's share; return whether it is one."""
        dxo = from_shareable(shareable)
        share = dxo.data.get(SHARE)
        if isinstance(share, bytes):
            self._shares.append(share)
            self._shapes = dxo.get_meta_prop(SHAPES)
        return isinstance(share, bytes)

    def aggregate(self, fl_ctx: FLContext) -> Shareable:
        """Return the mean difference (PolicyError: the owners' policies do not agree)."""
        mean = mean_update(self._shares, self._shapes.values())
        data = {} if mean is None else dict(zip(self._shapes, mean, strict=True))
        self.reset(fl_ctx)
        return DXO(DataKind.WEIGHT_DIFF, data=data).to_shareable()


def _run(fl_ctx: FLContext) -> str:
    job = fl_ctx.get_job_id()
    return "" if job is None else str(job)
