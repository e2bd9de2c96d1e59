"""Exports of a study: public register, impact assessment, output checkers' report, model and data cards.

Each function returns data or the text of a file; :data:`FORMS` names them. Entries that only a person can
write come from the study's ``[about]``; missing ones are an error.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from html import escape
from importlib.resources import files
from typing import Any

from privfed.attacks.finding import LEVEL, Finding
from privfed.errors import InputError, number_of
from privfed.questions.exact import shown, shown_delta
from privfed.reports.board import answers, uncovered
from privfed.reports.budget import PolicyReport, Report
from privfed.reports.metrics import MetricValue
from privfed.reports.page import SUBJECTS, claim, number, strongest, unread
from privfed.reports.provenance import provenance, utc

#: Keys that a person must fill in for a deployment, under ``[about.registry]``.
REGISTRY_KEYS = (
    *("data_curator_type", "data_product_region", "publication_date", "registry_authors"),
    "justification",
)
#: The registry's lists of allowed values for these.
REGISTRY_LISTS = {
    "data_curator_type": ("Government", "Industry", "Nonprofit"),
    "data_product_sector": (
        *("Technology", "Healthcare", "Education", "Government", "Energy", "Finance"),
    ),
}
#: Note on forms filled in from a simulation.
SIMULATED = "A simulation, in which one process held all records."


@dataclass(frozen=True)
class Source:
    """Data from which a form is filled in."""

    report: Report
    policy: PolicyReport
    schema: Mapping[str, Any]  #: the public data dictionary, as a dict

    @property
    def about(self) -> Any:
        """Who is responsible for the study, and its purpose."""
        return self.report.study.about

    @property
    def learner(self) -> str:
        """The name of the policy's learner."""
        return str(self.report.study.learner_under(self.policy.name).name)

    @property
    def columns(self) -> list[Mapping[str, Any]]:
        """The schema's columns, including the target."""
        return list(self.schema["column"])

    @property
    def heads(self) -> str:
        """Heads of all its ledgers."""
        return "; ".join(f"{c.client} {c.head[0]}:{c.head[1]}" for c in self.policy.clients)

    @property
    def audited(self) -> Finding | None:
        """The audit that proved the largest epsilon."""
        audits = [f for f in self.policy.findings if f.metric.startswith("epsilon")]
        return max(audits, key=lambda finding: finding.value, default=None)

    def written(self, needed: Mapping[str, str], form: str) -> None:
        """Check that a person filled in what the form needs; InputError names missing keys."""
        missing = [key for key, text in needed.items() if not text]
        if missing:
            raise InputError(
                f"{form}: needs {', '.join(missing)}; write them under [about] or [about.registry] in the study's "
                "file before it is run, or afterwards in the output's study.toml, which is then noted as edited"
            )


# --- the Differential Privacy Deployments Registry -----------------------------------------------


def registry_entry(source: Source) -> str:
    """Return a tier 3 entry of the Differential Privacy Deployments Registry as YAML; InputError if it cannot be filled.

    Fields and lists are those of the registry's schema of September 2026 (``opendp/deployments-registry-data``,
    commit 057e5d8).
    """
    policy, about = source.policy, source.about
    if not policy.finite or policy.silent or policy.breaches:
        raise InputError(
            f"policy {policy.name!r}: has no guarantee that holds; the registry is of deployments of "
            "differential privacy"
        )
    registry = about.registry
    needed = {key: getattr(about, key) for key in ("controller", "data_description", "purpose")}
    source.written(needed | {key: registry.get(key, "") for key in REGISTRY_KEYS}, "registry")
    _check_registry(registry)
    basic = {
        "name": source.report.study.name,
        "data_curators": [
            {
                "data_curator_name": about.controller,
                "data_curator_type": registry["data_curator_type"],
            }
        ],
        "description": about.data_description,
        "intended_use": about.purpose,
        "data_product_type": "Machine learning model",
        "data_product_region": registry["data_product_region"],
        "publication_date": registry["publication_date"],
    }
    if "data_product_sector" in registry:
        basic["data_product_sector"] = registry["data_product_sector"]
    slug = re.sub(r"[^a-z0-9]+", "-", basic["name"].lower()).strip("-")
    entry = {
        "url_slug": f"{slug}-{basic['publication_date'][:4]}",
        "deployment": {"basic": basic, **_guarantee(source), **_practice(source)},
    }
    return yaml(entry)


def _check_registry(registry: Mapping[str, str]) -> None:
    """Check a person's entries against the registry's lists; InputError lists the allowed values."""
    for key, allowed in REGISTRY_LISTS.items():
        if key in registry and registry[key] not in allowed:
            raise InputError(
                f"registry: [about.registry] {key} = {registry[key]!r} is not in the registry's list; write one "
                f"of {', '.join(allowed)}"
            )
    try:
        date.fromisoformat(registry["publication_date"])
    except ValueError:
        raise InputError(
            "registry: [about.registry] publication_date is not a date; write one such as 2026-11-23"
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
    policy, registry = source.policy, source.about.registry
    guards = [
        f"- `{line.kind}`: {', '.join(f'{part} by {guard}' for part, guard in line.parts.items())}"
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
    scores = [f"{score.name}: {score.text}" for score in policy.scores]
    sources = {
        f"source_{n}": {
            "evidence_source_type": "Other public source",
            "misc": {"url" if "://" in item else "title": item.strip()},
        }
        for n, item in enumerate(filter(None, registry.get("sources", "").split(";")), 1)
    }
    return {
        "deployment_model": {
            "model_name": "Federated",
            "trust_assumptions": "The server is not trusted: it may choose each query by the earlier answers, "
            "and stop at any time. Each data owner trusts her own machine."
            + (f" This holds {policy.basis}." if policy.basis else ""),
            "actors": f"{number_of(len(policy.clients), 'data owner')}, each with a gate and a ledger of her own, and who "
            f"asks them: {', '.join(policy.principals)}.",
            "release_type": "Many releases",
            "release_type_details": f"{policy.releases} to date, each charged to its owner's budget.",
            "data_source_type": "Static",
            "access_type": "Interactive",
            "access_type_details": "The server may choose each query by the earlier answers.",
        },
        "implementation": {
            "preprocessing_and_hyperparameter_tuning": registry.get(
                "preprocessing_and_hyperparameter_tuning",
                "Values are clipped to the public schema. Tuning outside this study is not known to its ledgers.",
            ),
            "mechanisms": "\n".join(
                [*guards, "", "Integer noise. Timing is not padded.", provenance()]
            ),
            "composition": f"Each owner's ledger adds up all charges by the {policy.account.accountant.name} "
            "accountant, before the data are read.",
            "post_processing": "The model, and all that is computed from the releases alone.",
            "justification": registry["justification"],
            **({"utility": "\n".join(scores)} if scores else {}),
            "additional_information": "\n".join(notes),
        },
        "administrative": {
            **({"evidence_sources": sources} if sources else {}),
            "status": "Draft",
            "registry_authors": [item.strip() for item in registry["registry_authors"].split(";")],
            "tier": 3,
        },
    }


# --- the CNIL's impact assessment ----------------------------------------------------------------


def pia(source: Source) -> str:
    """Return an impact assessment for the CNIL's PIA software, in the JSON format of its exports.

    Gauges stay undecided: severity and likelihood are judged by a person. ``dbVersion`` is that of the
    software's store, whose import requires it.
    """
    now = utc("milliseconds")
    about, name = source.about, source.report.study.name
    measures = list(_measures(source))
    times = {"created_at": now, "updated_at": now}
    answered = {"pia_id": 1, **times}
    document = _form("pia.json")
    names = {"name": name, "author_name": about.contact, "validator_name": about.approver}
    document["pia"] |= names | times
    document["answers"] = [
        {"reference_to": question, "data": data, **answered}
        for question, data in _answers(source, [title for title, _ in measures])
    ]
    document["measures"] = [
        {"id": index, "title": title, "content": _html([text]), "placeholder": "", **answered}
        for index, (title, text) in enumerate(measures, 1)
    ]
    return _json(document)


def _answers(source: Source, measures: list[str]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield answers by the number of their question: texts, or lists for risks."""
    report, policy, about = source.report, source.policy, source.about
    board = answers(report, policy)
    texts = {
        111: [
            about.purpose,
            f"Trained by {source.learner} over data owners' tables.",
        ],
        112: [about.controller, *(f"Data owner: {client.client}" for client in policy.clients)],
        121: [about.data_description, *(_described(column) for column in source.columns)],
        122: list(board.released),
        123: [provenance(), f"Ledgers: {report.kept}."],
        211: [about.purpose],
        212: [about.legal_basis],
        213: ["No other column than those under 1.2.1 can be asked for."],
        215: [about.period, f"Ledgers: {report.kept}."],
    }
    for question, lines in texts.items():
        if any(lines):
            yield question, {"text": _html(lines), "gauge": None, "list": None}
    harms = [strongest(f) + unread(f, policy.findings) for f in policy.broken]
    lists = {
        321: [f"{SUBJECTS[policy.account.policy.unit].one}: {harms[0]}"] if harms else [],
        322: sorted({finding.question for finding in policy.findings if finding.risk}),
        323: list(policy.principals),
        324: measures,
    }
    for question, entries in lists.items():
        yield question, {"text": None, "gauge": None, "list": entries}
    for question in (325, 326):
        yield question, {"text": _html([*board.risk, *uncovered(report)]), "gauge": 0, "list": None}


def _measures(source: Source) -> Iterator[tuple[str, str]]:
    policy = source.policy
    for line in policy.account.kinds:
        guards = ", ".join(f"{part} by {guard}" for part, guard in line.parts.items())
        yield f"Guard of {line.kind}", f"{line.about} {guards}"
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
    """Return membership attacks in SACRO-ML's JSON format, one entry for each, with the measured metrics."""
    known = [f for f in source.policy.findings if "members" in f.detail]
    reports = {}
    for attack in dict.fromkeys(finding.attack for finding in known):
        instances = [i for i in map(_instance, (f for f in known if f.attack == attack)) if i]
        if not instances:
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
                "target_model": source.learner,
                "target_model_params": {
                    "policy": source.policy.name,
                    "claim": claim(source.policy),
                },
                "global_metrics": _global(instances),
                "baseline_global_metrics": {},
            },
            "attack_experiment_logger": {
                "attack_instance_logger": {f"instance_{n}": i for n, i in enumerate(instances)}
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


def _instance(finding: Finding) -> dict[str, Any]:
    """Metrics of one attack; empty if it has no ROC curve.

    The p-value is the finding's, as for the report: one by the numbers of members and others alone would take records
    under the same draw of noise for independent. An AUC beside another value has none.
    """
    detail, is_area = finding.detail, finding.baseline == 0.5
    auc = finding.value if is_area else detail.get("area under the curve")
    if auc is None:
        return {}
    metrics = {
        "AUC": auc,
        "n_pos_test_examples": detail["members"],
        "n_neg_test_examples": detail["outsiders" if "outsiders" in detail else "others"],
        "privfed_metric": finding.metric,
    }
    if is_area and finding.p_value is not None:
        metrics["P_HIGHER_AUC"] = finding.p_value
    if (rate := detail.get("members found at 1 % false positives")) is not None:
        metrics["TPR@0.01"] = rate
    return metrics


def _global(instances: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    values = sorted(each["P_HIGHER_AUC"] for each in instances if "P_HIGHER_AUC" in each)
    below = [n for n, p in enumerate(values, 1) if p <= LEVEL * n / len(values)]
    significant = {
        "n_sig_auc_p_vals": sum(p <= LEVEL for p in values),
        "n_sig_auc_p_vals_corrected": max(below, default=0),
    }
    return significant if values else {}


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
    """Return a model card of the Hugging Face Hub: Markdown with metrics in its front matter."""
    report, policy = source.report, source.policy
    summary, name = answers(report, policy), report.study.name
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
        ("What was released", summary.released),
        ("How risky is it", summary.risk),
        ("What no figure above covers", uncovered(report)),
        ("Provenance", [provenance(), f"Ledger heads: {source.heads}."]),
    ]
    if report.simulated:
        parts.insert(0, ("Simulation", [SIMULATED]))
    body = "\n".join(f"## {title}\n\n{_list(lines)}\n" for title, lines in parts)
    return f"---\n{yaml(head)}---\n\n# {name}\n\n**{summary.verdict}**\n\n{body}"


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
    rates = [f for f in policy.findings if f.measure == "found at 1 %"]
    if rates:
        largest = max(rates, key=lambda finding: finding.value)
        yield {"type": "mia_tpr_at_fpr_0.01", "value": largest.value, "name": largest.metric}


def croissant(source: Source) -> str:
    """Return the public data dictionary as Croissant 1.1: columns, kinds and bounds, without rows."""
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
    description = about.data_description or f"Records of {name}."
    document = _form("croissant.json")
    document |= {
        "name": name,
        "description": f"{description} Each record stays with its owner ({owners}); this is the dictionary alone.",
        "datePublished": utc(),
    }
    document["recordSet"][0]["field"] = fields
    return _json(document)


#: Each form's function and file extension, by name.
FORMS: Mapping[str, tuple[Callable[[Source], str], str]] = {
    "registry": (registry_entry, ".yaml"),
    "cnil-pia": (pia, ".json"),
    "sacroml": (sacroml, ".json"),
    "model-card": (model_card, ".md"),
    "croissant": (croissant, ".json"),
}

# --- text --------------------------------------------------------------------------------------


def _form(name: str) -> Any:
    """Read a form's template."""
    return json.loads((files("privfed.reports") / "templates" / name).read_text("utf-8"))


def _json(data: Any) -> str:
    return json.dumps(data, indent=2, ensure_ascii=False) + "\n"


def yaml(data: Any, indent: int = 0) -> str:
    """Return JSON-like data as YAML: strings plain, quoted, or as block scalars."""
    pad, lines = "  " * indent, []
    entries = data.items() if isinstance(data, Mapping) else [(None, item) for item in data]
    for key, value in entries:
        prefix = f"{pad}-" if key is None else f"{pad}{key}:"
        if isinstance(value, Mapping) and key is None:
            lines.append(f"{prefix} {yaml(value, indent + 1).lstrip()}")
        elif isinstance(value, Mapping | list):
            lines.append(f"{prefix}\n{yaml(value, indent + 1)}")
        else:
            lines.append(f"{prefix} {_scalar(value, pad)}\n")
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
