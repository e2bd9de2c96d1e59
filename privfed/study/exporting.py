"""A finished study in other people's forms: ``privfed export``."""

import json
from typing import Any

from privfed.errors import InputError
from privfed.reports.board import chosen
from privfed.reports.exports import FORMS, Source
from privfed.study.assembly import publishable
from privfed.study.output import Output


def exported(output: Output, form: str, policy: str = "", *, simulation: bool = False) -> str:
    """Return a study's policy in a form of :data:`.FORMS`; by default the first with a guarantee."""
    report = publishable(output, simulation=simulation)
    decided = chosen(report, policy)
    return FORMS[form][0](Source(report, decided, _schema(output, decided.name)))


def _schema(output: Output, policy: str) -> dict[str, Any]:
    """The public data dictionary that a policy's model was learned under."""
    path = output.policy(policy) / "model.json"
    if not path.is_file():
        raise InputError(
            f"policy {policy!r}: has no model.json; name a policy that released a model"
        )
    schema: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))["schema"]
    return schema
