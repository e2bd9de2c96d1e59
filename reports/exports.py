"""A study in other people's forms: a public register's, an impact assessment's, output checkers', model and data cards.

Each function gives plain data, or the text of a file; :data:`FORMS` names them. What only a person can say
is taken from the study's ``[about]``, and asked for where it is missing.
"""

from __future__ import annotations

import json
import math
import re
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from html import escape
from importlib.resources import files
from typing import Any

from scipy.special import ndtr

from privfed.attacks.finding import LEVEL, Finding
from privfed.errors import InputError, number_of
from privfed.questions.exact import shown, shown_delta
from privfed.reports.board import answers, uncovered
from privfed.reports.budget import PolicyReport, Report
from privfed.reports.metrics import MetricValue
from privfed.reports.page import SUBJECTS, claim, number, strongest
from privfed.reports.provenance import provenance

#: What a person must say of a deployment, under ``[about.registry]``.
REGISTRY_KEYS = (
    *("data_curator_type", "data_product_region", "publication_date", "registry_authors"),
    "justification",
)
#: The registry's lists, of what a person says.
REGISTRY_LISTS = {
    "data_curator_type": ("Government", "Industry", "Nonprofit"),
    "data_product_sector": (
        *("Technology", "Healthcare", "Education", "Government", "Energy", "Finance"),
    ),
}
#: What a form that is filled in from records' truth says of itself.
SIMULATED = "A simulation, in which one process held all records."


@dataclass(frozen=True)
class Source:
    """What a form is filled in from."""

    report: Report
    policy: PolicyReport
    schema: Mapping[str, Any]  #: the public data dictionary, as plain data

    @property
    def about(self) -> Any:
        """Who answers for the study, and why it is done."""
        return self.report.study.about

    @property
    def columns(self) -> list[Mapping[str, Any]]:
        """The schema's columns, the target among them."""
        return list(self.schema["column"])

    @property
    def heads(self) -> str:
        """The heads of all ledgers behind it."""
        return "; ".join(f"{c.client} {c.head[0]}:{c.head[1]}" for c in self.policy.clients)

    @property
    def audited(self) -> Finding | None:
        """The audit that proved the largest epsilon."""
        found = [f for f in self.policy.findings if f.metric.startswith("epsilon")]
        return max(found, key=lambda one: one.value, default=None)

    def written(self, needed: Mapping[str, str], form: str) -> None:
        """Check that a person wrote what the form needs (InputError: names what is missing)."""
        missing = [key for key, text in needed.items() if not text]
        if missing:
            raise InputError(
                f"{form}: needs {', '.join(missing)}; write them in the output's study.toml, under "
                "[about] or [about.registry]"
            )


# --- the Differential Privacy Deployments Registry -----------------------------------------------


def registry_entry(source: Source) -> str:
    """An entry of the Differential Privacy Deployments Registry, of tier 3, as YAML; InputError if it cannot be filled.

    Fields and lists are those of the registry's schema of September 2026 (``opendp/deployments-registry-data``,
    commit 057e5d8).
    """
    policy, about = source.policy, source.about
    if not policy.finite or policy.silent or policy.breaches:
        raise InputError(
            f"policy {policy.name!r}: has no guarantee that holds; the registry is of deployments of "
            "differential privacy"
        )
    given = about.registry
    needed = {key: getattr(about, key) for key in ("controller", "data_description", "purpose")}
    source.written(needed | {key: given.get(key, "") for key in REGISTRY_KEYS}, "registry")
    _registered(given)
    basic = {
        "name": source.report.study.name,
        "data_curators": [
            {
                "data_curator_name": about.controller,
                "data_curator_type": given["data_curator_type"],
            }
        ],
        "description": about.data_description,
        "intended_use": about.purpose,
        "data_product_type": "Machine learning model",
        "data_product_region": given["data_product_region"],
        "publication_date": given["publication_date"],
    }
    if "data_product_sector" in given:
        basic["data_product_sector"] = given["data_product_sector"]
    slug = re.sub(r"[^a-z0-9]+", "-", basic["name"].lower()).strip("-")
    entry = {
        "url_slug": f"{slug}-{basic['publication_date'][:4]}",
        "deployment": {"basic": basic, **_guarantee(source), **_practice(source)},
    }
    return yaml(entry)


def _registered(given: Mapping[str, str]) -> None:
    """Check what a person wrote against the registry's lists (InputError: what to write instead)."""
    for key, allowed in REGISTRY_LISTS.items():
        if key in given and given[key] not in allowed:
            raise InputError(
                f"registry: [about.registry] {key} = {given[key]!r} is none of the registry's; write one of "
                f"{', '.join(allowed)}"
            )
    try:
        date.fromisoformat(given["publication_date"])
    except ValueError:
        raise InputError(
            "registry: [about.registry] publication_date is no day; write one such as 2026-11-23"
        ) from None


def _guarantee(source: Source) -> dict[str, Any]:
    policy = source.policy
    rules, delta = policy.account.policy, policy.delta
    rows = [
        f"| {c.client} | {shown(c.proved or 0.0)} | {shown_delta(c.delta)} | {c.head[0]}:{c.head[1][:16]} |"
        for c in policy.clients
    ]
    parameters = {"epsilon": float(shown(policy.epsilon or 0.0))}
    cap = f", each with at most {number_of(rules.cap, 'record')}" if rules.cap else ""
    table = ["| owner | epsilon | delta | ledger head |", "|---|---|---|---|", *rows]
    return {
        "dp_variant": {
            "variant_name": "Approximate DP" if delta else "Pure DP",
            "data_domain": f"Tables of the public columns {', '.join(c['name'] for c in source.columns)}.",
            "unprotected_quantities": "The schema, the policy, and who was asked what and when.",
        },
        "privacy_loss": {
            "privacy_unit": rules.unit,
            "privacy_unit_details": f"Neighbours differ by one {rules.unit}{cap}, by {rules.relation}.",
            "privacy_parameters": parameters | ({"delta": delta} if delta else {}),
            "privacy_parameters_details": "\n".join([claim(policy), "", *table]),
        },
    }


def _practice(source: Source) -> dict[str, Any]:
    policy, given = source.policy, source.about.registry
    guards = [
        f"- `{line.kind}`: {', '.join(f'{part} by {how}' for part, how in line.parts.items())}"
        for line in policy.account.kinds
    ]
    audited = source.audited
    notes = [f"Ledger heads: {source.heads}."]
    if audited is not None:
        notes.append(
            f"Largest epsilon that an audit proved of one mechanism: {number(audited.value)}."
        )
    if source.report.simulated:
        notes.append(SIMULATED)
    scores = [f"{score.name}: {score.told}" for score in policy.scores]
    sources = {
        f"source_{place}": {
            "evidence_source_type": "Other public source",
            "misc": {"url" if "://" in one else "title": one.strip()},
        }
        for place, one in enumerate(filter(None, given.get("sources", "").split(";")), 1)
    }
    return {
        "deployment_model": {
            "model_name": "Federated",
            "trust_assumptions": "The server is not trusted: it may choose each query by the earlier answers, "
            "and stop at any time. Each data owner trusts her own machine."
            + (f" This holds {policy.basis}." if policy.basis else ""),
            "actors": f"{number_of(len(policy.clients), 'data owner')}, each with a gate and a ledger of her own, and the "
            f"server ({', '.join(policy.principals)}).",
            "release_type": "Many releases",
            "release_type_details": f"{number_of(policy.released, 'release')} to date, charged to one budget.",
            "data_source_type": "Static",
            "access_type": "Interactive",
            "access_type_details": "The server may choose each query by the earlier answers.",
        },
        "implementation": {
            "preprocessing_and_hyperparameter_tuning": given.get(
                "preprocessing_and_hyperparameter_tuning",
                "Values are clipped to the public schema. Tuning outside this study is not known to its ledgers.",
            ),
            "mechanisms": "\n".join(
                [*guards, "", "Integer noise. Timing is not padded.", provenance()]
            ),
            "composition": f"Each owner's ledger adds up all charges by the {policy.account.accountant.name} "
            "accountant, before the data are read.",
            "post_processing": "The model, and all that is computed from the releases alone.",
            "justification": given["justification"],
            **({"utility": "\n".join(scores)} if scores else {}),
            "additional_information": "\n".join(notes),
        },
        "administrative": {
            **({"evidence_sources": sources} if sources else {}),
            "status": "Draft",
            "registry_authors": [one.strip() for one in given["registry_authors"].split(";")],
            "tier": 3,
        },
    }


# --- the CNIL's impact assessment ----------------------------------------------------------------


def pia(source: Source) -> str:
    """An impact assessment to be opened by the CNIL's PIA software: JSON of its own export's form.

    Gauges stay undecided: severity and likelihood are a person's judgement, beside the figures. ``dbVersion`` is the
    software's own store's: its import refuses a file that names none.
    """
    now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    about, name = source.about, source.report.study.name
    measures = list(_measures(source))
    times = {"created_at": now, "updated_at": now}
    answered = {"pia_id": 1, **times}
    plain = _form("pia.json")
    said = {"name": name, "author_name": about.contact, "validator_name": about.approver}
    plain["pia"] |= said | times
    plain["answers"] = [
        {"reference_to": question, "data": data, **answered}
        for question, data in _answers(source, [title for title, _ in measures])
    ]
    plain["measures"] = [
        {"id": at, "title": title, "content": _html([text]), "placeholder": "", **answered}
        for at, (title, text) in enumerate(measures, 1)
    ]
    return _json(plain)


def _answers(source: Source, measures: list[str]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Answers by the number of their question: texts, and of risks lists."""
    report, policy, about = source.report, source.policy, source.about
    said = answers(report, policy)
    texts = {
        111: [
            about.purpose,
            f"Trained by {', '.join(report.study.learners)} over data owners' tables.",
        ],
        112: [about.controller, *(f"Data owner: {client.client}" for client in policy.clients)],
        121: [about.data_description, *(_described(column) for column in source.columns)],
        122: list(said.left),
        123: [provenance(), f"Ledgers: {report.kept}."],
        211: [about.purpose],
        212: [about.legal_basis],
        213: ["No other column than those under 1.2.1 can be asked for."],
        215: [about.period, f"Ledgers: {report.kept}."],
    }
    for question, lines in texts.items():
        if any(lines):
            yield question, {"text": _html(lines), "gauge": None, "list": None}
    found = [strongest(one) for one in policy.broken]
    lists = {
        321: [f"{SUBJECTS[policy.account.policy.unit].one}: {found[0]}"] if found else [],
        322: sorted({one.question for one in policy.findings if one.risk}),
        323: list(policy.principals),
        324: measures,
    }
    for question, entries in lists.items():
        yield question, {"text": None, "gauge": None, "list": entries}
    for question in (325, 326):
        yield question, {"text": _html([*said.risk, *uncovered(report)]), "gauge": 0, "list": None}


def _measures(source: Source) -> Iterator[tuple[str, str]]:
    policy = source.policy
    for line in policy.account.kinds:
        how = ", ".join(f"{part} by {guard}" for part, guard in line.parts.items())
        yield f"Guard of {line.kind}", f"{line.about} {how}"
    yield "Guarantee", claim(policy)
    yield "Ledgers", f"Hash-chained, verified when this was written. Heads: {source.heads}"


def _described(column: Mapping[str, Any]) -> str:
    kind = column.get("kind", "number")
    allowed = ", ".join(map(str, column.get("categories", ())))
    if not allowed:
        ends = (str(column.get(end, "")) for end in ("lower", "upper"))
        allowed = " to ".join(end.removesuffix(".0") for end in ends)
    text = column.get("description", "")
    return f"{column['name']} ({kind}: {allowed}){f': {text}' if text else ''}"


def _html(lines: Sequence[str]) -> str:
    return "".join(f"<p>{escape(line)}</p>" for line in lines if line)


# --- SACRO-ML's attack reports -------------------------------------------------------------------


def sacroml(source: Source) -> str:
    """Membership attacks as SACRO-ML writes its own: JSON, one entry for each, of the metrics that were measured."""
    known = [f for f in source.policy.findings if "members" in f.detail]
    reports = {}
    for attack in dict.fromkeys(one.attack for one in known):
        found = [i for i in map(_instance, (f for f in known if f.attack == attack)) if i]
        if not found:
            continue
        log = str(uuid.uuid5(uuid.NAMESPACE_URL, f"{source.heads} {attack}"))
        reports[f"{attack}_{log}"] = {
            "log_id": log,
            "log_time": datetime.now(UTC).strftime("%d/%m/%Y %H:%M:%S"),
            "metadata": {
                "attack_name": f"privfed {attack}",
                "attack_params": {
                    "reads": list(dict.fromkeys(k for f in known for k in f.releases))
                },
                "target_model": ", ".join(source.report.study.learners),
                "target_model_params": {
                    "policy": source.policy.name,
                    "claim": claim(source.policy),
                },
                "global_metrics": _global(found),
                "baseline_global_metrics": {},
            },
            "attack_experiment_logger": {
                "attack_instance_logger": {f"instance_{n}": one for n, one in enumerate(found)}
            },
        }
    if not reports:
        if source.report.withheld:
            raise InputError(
                "sacroml: attacks are left out where ledgers are persistent; add --simulation"
            )
        raise InputError(
            f"policy {source.policy.name!r}: no membership attack has looked; run `privfed audit`, or "
            "`privfed attack` on the folder"
        )
    return _json(reports)


def _instance(found: Finding) -> dict[str, Any]:
    """One attack's metrics, or nothing if it has no curve. The p-value is of equal scores, as if normal."""
    detail = found.detail
    area = found.value if found.baseline == 0.5 else detail.get("area under the curve")
    if area is None:
        return {}
    members, others = detail["members"], detail["outsiders" if "outsiders" in detail else "others"]
    metrics = {
        "AUC": area,
        "P_HIGHER_AUC": float(ndtr((0.5 - area) / _spread(members, others))),
        "n_pos_test_examples": members,
        "n_neg_test_examples": others,
        "privfed_metric": found.metric,
    }
    if (rate := detail.get("members found at 1 % false positives")) is not None:
        metrics["TPR@0.01"] = rate
    return metrics


def _spread(members: int, others: int) -> float:
    """Standard deviation of an area under the curve where scores of both are alike."""
    return math.sqrt((members + others + 1) / (12 * members * others))


def _global(areas: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    spread = 3 * _spread(areas[0]["n_pos_test_examples"], areas[0]["n_neg_test_examples"])
    values = sorted(one["P_HIGHER_AUC"] for one in areas)
    below = [n for n, p in enumerate(values, 1) if p <= LEVEL * n / len(values)]
    return {
        "null_auc_3sd_range": f"{0.5 - spread:.4f} -> {0.5 + spread:.4f}",
        "n_sig_auc_p_vals": sum(p <= LEVEL for p in values),
        "n_sig_auc_p_vals_corrected": max(below, default=0),
    }


# --- cards -------------------------------------------------------------------------------------

#: Names of scores in model cards.
METRICS = {
    "root mean squared error": "rmse",
    "mean absolute error": "mae",
    "R squared": "r_squared",
    "area under the curve": "roc_auc",
    "accuracy": "accuracy",
    "log loss": "log_loss",
    "Brier score": "brier_score",
}


def model_card(source: Source) -> str:
    """A model card of the Hugging Face Hub: Markdown with figures in its head."""
    report, policy = source.report, source.policy
    said, name = answers(report, policy), report.study.name
    target = next((c for c in source.columns if c["name"] == source.schema.get("target")), {})
    classes = target.get("kind") == "category" or any(s.name == "accuracy" for s in policy.scores)
    task = f"tabular-{'classification' if classes else 'regression'}" if target else "other"
    result = {
        "task": {"type": task},
        "dataset": {"type": "private", "name": str(source.schema.get("name") or name)},
        "metrics": [*map(_metric, policy.scores), *_privacy_metrics(source)],
    }
    head = {
        "library_name": "privfed",
        "tags": ["federated-learning", "interpretable"]
        + ["differential-privacy"] * (policy.finite and not policy.silent),
        **({"pipeline_tag": task} if target else {}),
        "model-index": [{"name": name, "results": [result]}],
    }
    about = source.about
    parts = [
        ("Intended use", [about.purpose or "Not stated."]),
        ("Data", [about.data_description or "Not stated.", *map(_described, source.columns)]),
        ("What was released", said.left),
        ("How risky is it", said.risk),
        ("What no figure above covers", uncovered(report)),
        ("Provenance", [provenance(), f"Ledger heads: {source.heads}."]),
    ]
    if report.simulated:
        parts.insert(0, ("Simulation", [SIMULATED]))
    body = "\n".join(f"## {title}\n\n{_list(lines)}\n" for title, lines in parts)
    return f"---\n{yaml(head)}---\n\n# {name}\n\n**{said.verdict}**\n\n{body}"


def _list(lines: Sequence[str]) -> str:
    return "\n".join(f"- {line}" for line in lines) if len(lines) > 1 else lines[0]


def _metric(score: MetricValue) -> dict[str, Any]:
    return {"type": METRICS.get(score.name, score.name), "value": score.value, "name": score.name}


def _privacy_metrics(source: Source) -> Iterator[dict[str, Any]]:
    policy = source.policy
    if policy.finite and policy.epsilon is not None and not policy.silent:
        value = float(shown(policy.epsilon))
        yield {
            "type": "epsilon",
            "value": value,
            "name": f"claimed epsilon at delta {shown_delta(policy.delta)}",
        }
    if source.audited is not None:
        name = "epsilon that an audit proved of one mechanism"
        yield {"type": "audited_epsilon_lower", "value": source.audited.value, "name": name}
    tries = [f for f in policy.findings if f.measure == "found at 1 %"]
    if tries:
        most = max(tries, key=lambda one: one.value)
        yield {"type": "mia_tpr_at_fpr_0.01", "value": most.value, "name": most.metric}


def croissant(source: Source) -> str:
    """The public data dictionary as Croissant 1.1: columns, kinds and bounds, and no row."""
    about, name = source.about, str(source.schema.get("name") or source.report.study.name)
    types = {"integer": "sc:Integer", "category": "sc:Text"}
    fields = [
        {
            "@type": "cr:Field",
            "@id": f"records/{column['name']}",
            "name": column["name"],
            "description": _described(column),
            "dataType": types.get(column.get("kind", "number"), "sc:Float"),
            "source": {
                "fileObject": {"@id": "records.csv"},
                "extract": {"column": column["name"]},
            },
        }
        for column in source.columns
    ]
    owners = ", ".join(client.client for client in source.policy.clients)
    described = about.data_description or f"Records of {name}."
    plain = _form("croissant.json")
    plain |= {
        "name": name,
        "description": f"{described} Each record stays with its owner ({owners}); this is the dictionary alone.",
        "datePublished": date.today().isoformat(),
    }
    plain["recordSet"][0]["field"] = fields
    return _json(plain)


#: Each form's maker and the ending of its file, by name.
FORMS: Mapping[str, tuple[Callable[[Source], str], str]] = {
    "registry": (registry_entry, ".yaml"),
    "cnil-pia": (pia, ".json"),
    "sacroml": (sacroml, ".json"),
    "model-card": (model_card, ".md"),
    "croissant": (croissant, ".json"),
}

# --- text --------------------------------------------------------------------------------------


def _form(name: str) -> Any:
    """What a form says of every study; the rest is empty."""
    return json.loads((files("privfed.reports") / "templates" / name).read_text("utf-8"))


def _json(plain: Any) -> str:
    return json.dumps(plain, indent=2, ensure_ascii=False) + "\n"


def yaml(plain: Any, indent: int = 0) -> str:
    """Plain data as YAML: strings as they are, quoted, or as blocks of lines."""
    pad, lines = "  " * indent, []
    entries = plain.items() if isinstance(plain, Mapping) else [(None, one) for one in plain]
    for key, value in entries:
        start = f"{pad}-" if key is None else f"{pad}{key}:"
        if isinstance(value, Mapping) and key is None:
            lines.append(f"{start} {yaml(value, indent + 1).lstrip()}")
        elif isinstance(value, Mapping | list):
            lines.append(f"{start}\n{yaml(value, indent + 1)}")
        else:
            lines.append(f"{start} {_scalar(value, pad)}\n")
    return "".join(lines)


def _scalar(value: Any, pad: str) -> str:
    if not isinstance(value, str):  # YAML 1.1 takes 1e-05 for a text
        return re.sub(r"^(-?\d+)e", r"\1.0e", json.dumps(value))
    if "\n" in value or ": " in value or " #" in value:
        return "|-\n" + "\n".join(f"{pad}  {line}".rstrip() for line in value.split("\n"))
    if re.fullmatch(r"[A-Za-z][^:#\[\]{}&*!|>'\"%@`]*[^:#\s]", value) and value.lower() not in (
        *("yes", "no", "true", "false", "null", "on", "off"),
    ):
        return value
    return "'" + value.replace("'", "''") + "'"
