"""A gate around somebody's model on NVIDIA FLARE: a filter of a site's results."""

from __future__ import annotations

from typing import Any

import numpy as np
from nvflare.apis.dxo import DXO, DataKind, MetaKey
from nvflare.apis.dxo_filter import DXOFilter
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable

from privfed.engines.updates import UpdateGate


class GateFilter(DXOFilter):  # type: ignore[misc, unused-ignore]
    """Lets a weight difference leave through a data owner's gate alone, and nothing else of it.

    A site names it among its ``task_result_filters``. Where the policy refuses, or anything fails, a
    difference without arrays leaves.

    Args:
        gate: the owner's.
    """

    def __init__(self, gate: UpdateGate) -> None:
        kinds = [DataKind.WEIGHT_DIFF]
        super().__init__(supported_data_kinds=kinds, data_kinds_to_filter=kinds)
        self._gate = gate

    def process_dxo(self, dxo: DXO, shareable: Shareable, fl_ctx: FLContext) -> DXO:
        """Release the difference; its metadata keep one step for every site, so that all weigh alike."""
        names, told = list(dxo.data), None
        try:
            update = [np.asarray(dxo.data[name]) for name in names]
            number = int(shareable.get_header(MetaKey.CURRENT_ROUND, 0) or 0)
            told = self._gate.release(update, round=number, run=_run(fl_ctx))
        except Exception:
            told = None
        data: dict[str, Any] = {} if told is None else dict(zip(names, told, strict=True))
        return DXO(DataKind.WEIGHT_DIFF, data=data, meta={MetaKey.NUM_STEPS_CURRENT_ROUND: 1})


def _run(fl_ctx: FLContext) -> str:
    job = fl_ctx.get_job_id()
    return "" if job is None else str(job)
