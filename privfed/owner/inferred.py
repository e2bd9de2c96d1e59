"""Bounds read off the data are an unprotected release like any other, recorded once."""

from __future__ import annotations

from privfed.exchange.messages import Release
from privfed.ledger import Charge, Ledger
from privfed.privacy.accountant import Accountant
from privfed.privacy.loss import Loss
from privfed.questions import wire
from privfed.tables.schema import Schema

KIND = "schema.infer"  #: What a ledger calls it


def record_inferred(
    ledger: Ledger, accountant: Accountant, owner: str, schema: Schema, study: str
) -> None:
    """Charge and release an inferred schema, unless the ledger has it already."""
    fields = wire.encode(schema.to_dict())
    digest = wire.digest(fields)
    request = f"schema {digest}"
    if ledger.find("server", request) is not None:
        return
    loss = Loss.open("the schema's bounds and categories were read off the data")
    charge = Charge("server", request, KIND, digest, loss, study, client=owner)
    ledger.reserve(charge, accountant, lambda spent: None, wire.encode({}))
    release = Release(owner, request, KIND, digest, {})
    ledger.release(charge, wire.encode(release))
