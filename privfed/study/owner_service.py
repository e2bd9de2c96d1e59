"""A data owner's side as a service: its sockets, and its health and metrics on this machine only."""

import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from fractions import Fraction
from typing import Self

from privfed.audits.noise import audit_noise
from privfed.engines.owner_file import OwnerFile
from privfed.engines.owner_side import OwnerSide
from privfed.errors import LedgerError
from privfed.ledger.study_blocks import committed
from privfed.owner.noise_monitor import read_tally
from privfed.privacy.accountant import fraction_of
from privfed.study.ledger_commands import currency
from privfed.study.loopback import NOT_FOUND, HttpResponse, LoopbackServer

#: Each metric's type and description.
METRICS = {
    "privfed_open": (
        "gauge",
        "1 if the gate answers, 0 if it is closed or its ledger cannot be read",
    ),
    "privfed_messages_total": ("counter", "messages since the start, by asker and outcome"),
    "privfed_charges_total": ("counter", "charges ever, by kind of question"),
    "privfed_ledger_rows": ("gauge", "rows of the ledger"),
    "privfed_budget_left_ratio": ("gauge", "share of the budget neither charged nor reserved"),
    "privfed_study_share_ratio": ("gauge", "share of the budget that a study reserved"),
    "privfed_study_charged_ratio": ("gauge", "share of the budget that a study was charged"),
    "privfed_noise_cells": ("gauge", "cells of noise that the monitor saw, ever"),
    "privfed_noise_convicted": ("gauge", "1 if a test convicts the noise: privfed ledger noise"),
}
Samples = Iterator[tuple[str, Mapping[str, str], float]]


class OwnerService:
    """Answers at an owner's sockets, and serves metrics if the owner's file names a port, until closed.

    InputError: a socket or the port is taken.
    """

    def __init__(self, side: OwnerSide, owner: OwnerFile) -> None:
        self._side, self._closing = side, ExitStack()
        gate = side.gate
        for close in (gate.noise_monitor.close, gate.shelf.close, gate.ledger.close):
            self._closing.callback(close)
        with ExitStack() as failing:
            failing.callback(self._closing.close)
            sockets = owner.open_sockets(side)
            for socket in sockets:
                self._closing.callback(socket.close)
            #: Each peer with its socket, and the port of the metrics.
            self.served = [
                f"{peer} at {opened.path}"
                for peer, opened in zip(owner.sockets, sockets, strict=True)
            ]
            if owner.metrics is not None:
                server = MetricsServer(side, owner.metrics)
                self._closing.callback(server.close)
                threading.Thread(target=server.serve, daemon=True).start()
                self.served.append(f"metrics at port {server.port}")
            failing.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        """Answer pending requests, then close the ledger."""
        self._closing.close()


class MetricsServer(LoopbackServer):
    """``/health``, 200 or 503, and ``/metrics`` in Prometheus's text format."""

    def __init__(self, side: OwnerSide, port: int) -> None:
        super().__init__(port)
        self._side = side

    def answer(self, path: str) -> HttpResponse:
        """Return health, metrics, or status 404."""
        if path == "/health":
            fault = self._fault()
            return HttpResponse(503 if fault else 200, f"{fault or 'open'}\n")
        return HttpResponse(200, _text(self._samples())) if path == "/metrics" else NOT_FOUND

    def _fault(self) -> str:
        gate = self._side.gate
        try:
            closed = bool(gate.breaches or gate.shelf.faults)
            gate.ledger.head  # noqa: B018 - whether it can be read
        except LedgerError:
            return "the ledger cannot be read"
        return "the gate is closed: privfed ledger budget says why" if closed else ""

    def _samples(self) -> Samples:
        fault = self._fault()
        yield "privfed_open", {}, not fault
        for (principal, outcome), count in sorted(self._side.outcomes.items()):
            yield "privfed_messages_total", {"asker": principal, "outcome": outcome}, count
        if fault.startswith("the ledger"):
            return
        ledger, owner = self._side.gate.ledger, self._side.gate.owner
        yield "privfed_ledger_rows", {}, ledger.head.seq
        spent = ledger.spent(self._side.gate.accountant)
        for kind, count in sorted(spent.times.items()):
            yield "privfed_charges_total", {"kind": kind}, count
        in_force = currency(ledger)
        if in_force is not None and not spent.unprotected:
            ceiling, blocks = in_force[2], ledger.study_blocks()
            taken = fraction_of(committed(spent.total, blocks.values()), ceiling)
            yield "privfed_budget_left_ratio", {}, float(max(1 - taken, Fraction(0)))
            for study, block in blocks.items():
                share, charged = (fraction_of(part, ceiling) for part in (block.share, block.spent))
                yield "privfed_study_share_ratio", {"study": study}, float(share)
                yield "privfed_study_charged_ratio", {"study": study}, float(charged)
        if ledger.path is not None:
            tally = read_tally(ledger.path, owner)
            yield "privfed_noise_cells", {}, tally.cells
            convicted = [
                finding for finding in audit_noise({owner: tally}) if finding.severity == "breach"
            ]
            yield "privfed_noise_convicted", {}, bool(convicted)


def _text(samples: Samples) -> str:
    """Format samples in Prometheus's text format, grouped by metric."""
    lines: dict[str, list[str]] = {name: [] for name in METRICS}
    for name, labels, value in samples:
        rendered = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels.items())
        lines[name].append(f"{name}{f'{{{rendered}}}' if rendered else ''} {float(value):.12g}")
    return "".join(
        f"# HELP {name} {METRICS[name][1]}\n# TYPE {name} {METRICS[name][0]}\n"
        + "".join(f"{line}\n" for line in rows)
        for name, rows in lines.items()
        if rows
    )


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
