"""Flower as the engine: a ServerApp sends queries, and each node's ClientApp calls its owner's socket."""

import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from time import monotonic, sleep
from typing import Any, TypeVar

os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")  # it would report studies to a third party
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

import numpy as np
from flwr.app import (
    Array,
    ArrayRecord,
    ConfigRecord,
    Context,
    Error,
    Message,
    MessageType,
    MetricRecord,
    RecordDict,
)
from flwr.common.constant import ErrorCode
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from privfed.engines.directory import Directory
from privfed.engines.flower_node import ACTION, LIFE, RECORD, client_app, content_bytes, content_of
from privfed.engines.local import LocalDisclosure
from privfed.engines.remote import RemoteDisclosure
from privfed.engines.simulated import behind_sockets, remote_over
from privfed.engines.updates import UpdateGate, arrays_of, mean_update
from privfed.errors import InputError
from privfed.exchange.channel import ChannelDisclosure
from privfed.questions import wire
from privfed.tables.schema import Schema

T = TypeVar("T")
log = logging.getLogger(__name__)
SHARE = "share"  #: Key of a masked update's bytes
NOTHING = "the gate answers nothing"  #: Error text of refusals and of messages other than training
POLL = 0.5  #: Seconds between checks for replies
#: Seconds after which a message may be lost, as when a node took it and was then killed.
LOST = 60.0
#: Seconds to a first answer: a node checks for messages every 3, and starts a process for the greeting and the query.
FIRST = 30.0


class FlowerDisclosure(RemoteDisclosure):
    """A federation on Flower, over the ServerApp's grid, with the owners' own names."""

    def __init__(self, grid: Grid, schema: Schema, clients: Sequence[str], **options: Any) -> None:
        # also late replies: a busy node may need longer than the greeting's limit
        awaited: set[str] = set()

        def nodes() -> Iterable[int]:
            return list(grid.get_node_ids())

        def send(batches: Mapping[int, bytes], seconds: float) -> Iterator[tuple[int, bytes]]:
            messages = [
                Message(content_of(data), node, f"query.{ACTION}", ttl=LIFE)
                for node, data in batches.items()
            ]
            latest = monotonic() + seconds
            sent = set(grid.push_messages(messages) if messages else ())
            awaited.update(sent)
            while sent and monotonic() < latest:
                for reply in grid.pull_messages(awaited):
                    awaited.discard(reply.metadata.reply_to_message_id)
                    sent.discard(reply.metadata.reply_to_message_id)
                    if reply.has_content():
                        yield reply.metadata.src_node_id, content_bytes(reply)
                sleep(POLL if sent else 0)

        directory = Directory(clients, nodes=nodes, send=send)
        directory.lost, directory.first_answer = LOST, FIRST
        super().__init__(schema, clients, directory, **options)


def simulate(federation: LocalDisclosure, job: Callable[[ChannelDisclosure], T]) -> T:
    """Run a job in Flower's simulation, with one node per gate of this process.

    InputError: the simulation does not start. The job's own exception is raised, not Flower's.
    """
    from flwr.simulation import run_simulation

    done: list[T] = []
    failed: list[Exception] = []
    app = ServerApp()
    with behind_sockets(federation) as paths:
        sockets = list(paths.values())

        def main(grid: Grid, context: Context) -> None:
            try:
                done.append(job(remote_over(federation, partial(FlowerDisclosure, grid))))
            except Exception as error:
                failed.append(error)

        app.main()(main)
        logging.getLogger("flwr").setLevel(logging.CRITICAL)
        try:
            run_simulation(
                server_app=app,
                client_app=client_app(lambda at: sockets[int(at.node_config["partition-id"])]),
                num_supernodes=len(sockets),
                backend_config={"init_args": {"include_dashboard": False, "log_to_driver": False}},
            )
        except Exception:  # Ray's errors have many lines
            failed += [
                InputError("Flower's simulation did not begin; run its own quickstart to see why")
            ]
    if not done:
        raise failed[0]
    return done[0]


def guard(gate: UpdateGate) -> Callable[[Message, Context, Callable[..., Message]], Message]:
    """Return a mod that releases a trained update only through a data owner's gate.

    The update is the trained model minus the received one. It is released as one clipped vector with integer noise,
    added to the received model, with ``num-examples`` = 1, for equal weights, and nothing else of the app's reply. A
    refusal is an error, which strategies skip; so is the reply to any other message, such as an evaluation, which is
    not passed on. Failed training is an update of zero. The round is the message's ``server-round``, else the message.
    Use it as the outermost mod: ``ClientApp(mods=[guard(UpdateGate(...))])``. If the policy masks, a share is sent, for
    the server's :class:`MaskedFedAvg`.

    Args:
        gate: the owner's gate, whose policy states protection and cost.
    """

    def mod(message: Message, context: Context, call_next: Callable[..., Message]) -> Message:
        message_type, content = message.metadata.message_type.partition(".")[0], RecordDict()
        if message_type == MessageType.TRAIN and len(message.content.array_records) == 1:
            ((name, sent),) = message.content.array_records.items()
            before = sent.to_numpy_ndarrays()
            update = _trained(before, lambda: call_next(message, context))
            configs = message.content.config_records.values()
            rounds = (int(each["server-round"]) for each in configs if "server-round" in each)
            number, run = next(rounds, None), str(context.run_id)
            run = run if number is not None else f"{run}/{message.metadata.message_id}"
            release = gate.answer(update, round=number or 0, run=run)
            if release is not None and release.view:
                content[RECORD] = ConfigRecord({SHARE: wire.encode(release)})
            elif release is not None:
                content[name] = _added(sent, arrays_of(release, map(np.shape, before)))
                content["metrics"] = MetricRecord({"num-examples": 1})
        if (
            not content
        ):  # without arrays it would end the run: strategies require them in each reply
            nothing = Error(ErrorCode.MOD_FAILED_PRECONDITION, NOTHING)
            return Message(nothing, reply_to=message)
        return Message(content, reply_to=message)

    return mod


class MaskedFedAvg(FedAvg):  # type: ignore[misc, unused-ignore]
    """Federated averaging of masked updates, of which only the mean is revealed, with :func:`guard`.

    All owners of the policies' roster take part in each round, with equal weights. If one of them is silent or refuses,
    the round leaves the model unchanged.
    """

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Send the model, to which the mean is added."""
        self._sent = arrays
        messages: Iterable[Message] = super().configure_train(server_round, arrays, config, grid)
        return messages

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Return the model plus the mean update (PolicyError: the owners' policies do not agree)."""
        valid, _ = self._check_and_log_replies(replies, is_train=True, validate=False)
        shares = {share for m in valid if (share := content_bytes(m, SHARE))}  # each counts once
        mean = mean_update(shares, [each.shape for each in self._sent.to_numpy_ndarrays()])
        if mean is None:
            log.warning("round %d: a share is missing; the model remains unchanged", server_round)
            return None, None
        return _added(self._sent, mean), MetricRecord({"num-examples": len(shares)})


def _added(model: ArrayRecord, update: Sequence[np.ndarray]) -> ArrayRecord:
    kept = [
        Array(np.asarray(old + new))
        for old, new in zip(model.to_numpy_ndarrays(), update, strict=True)
    ]
    return ArrayRecord(dict(zip(model.keys(), kept, strict=True)))


def _trained(before: Sequence[np.ndarray], train: Callable[[], Message]) -> list[np.ndarray]:
    """Return the update; zeros if training failed or changed shapes, which would depend on records."""
    try:
        (made,) = train().content.array_records.values()
        after = made.to_numpy_ndarrays()
        if [each.shape for each in after] == [each.shape for each in before]:
            return [np.subtract(new, old) for new, old in zip(after, before, strict=True)]
    except Exception:
        log.warning("training failed; an update of zero is released")
    return [np.zeros(each.shape) for each in before]
