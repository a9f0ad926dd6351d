"""What nodes answer: an update that belongs to its assignment, or the reason why there is none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from flwr.app import Message

from heroes.errors import ExchangeError, printable, said
from heroes.messages import Assignment, Lost, Tensors, Update
from heroes.transport.engines.flower.messages import data_of, forged, tensors_of, told_fineness, values_of
from heroes.transport.wire import Frame, Parcels, read_update

_EXTRAS = 2**14  # bytes that extras may have beyond those of the model: more than those that are built in


def read_answer(
    assignment: Assignment, reply: Message, received: Callable[[], Tensors] | None
) -> Update | Lost:
    """What a node answered, as an update if its tensors can be unpacked.

    `received` gives the tensors that were sent; without it the update has none.
    """
    client = assignment.client
    if reply.has_error():
        return Lost(client, printable(f"Flower says: {' '.join(str(reply.error.reason).split())}", 300))
    try:
        values = values_of(reply.content)
        if values.get("stranger"):
            return Lost(client, "its node does not know the configuration", arrived=True)
        if "error" in values:
            return Lost(client, printable(str(values["error"]), 300))
        update = read_update(Frame(values, {}))
        if received is None:  # whatever it says of itself, it is this assignment's
            return replace(update, client=client, round=assignment.round, nonce=assignment.nonce)
        if (why := forged(update, assignment)) is not None:
            return Lost(client, why, "forged", arrived=True)
        sent = received()
        shapes = {name: tuple(tensor.shape) for name, tensor in sent.items()}
        bits, share = told_fineness(values, assignment)
        update = replace(update, tensors=tensors_of(reply.content, "tensors", shapes, bits, sent, share))
        if (extras := data_of(reply.content, "extras")) is not None:
            most = _EXTRAS + sum(tensor.nbytes for tensor in sent.values())
            update = replace(update, extras=Parcels(most).unwrap(np.frombuffer(extras, np.uint8)).tensors)
        return update
    except Exception as error:  # whatever a node may send
        return Lost(client, f"its answer is malformed: {said(error)}", arrived=True)


def is_strange(reply: Message) -> bool:
    """Whether a node answered that it does not know the configuration of its task."""
    try:
        return not reply.has_error() and values_of(reply.content).get("stranger") is True
    except ExchangeError:
        return False
