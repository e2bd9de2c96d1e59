"""A study in others' forms: each read by the form's own reader where there is one, else by its rules."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml as pyyaml  # type: ignore[import-untyped]

from privfed.accountants.zcdp import ZeroConcentrated
from privfed.attacks.finding import Finding
from privfed.errors import InputError
from privfed.privacy.policy import Policy
from privfed.reports import exports
from privfed.reports.account import PolicyAccount
from privfed.reports.budget import PolicyReport, Report
from privfed.reports.exports import Source, croissant, model_card, pia, registry_entry, sacroml
from privfed.study import LearnerChoice, Study
from privfed.study.choices import AboutChoice
from tests.reported import BUDGET, NOISY, client_of

ABOUT = AboutChoice(
    *("Plan beds: for 'all'", "Ashford Trust", "dpo@ashford.example", "Ethics board 12/24", "2024"),
    *("Stays of <patients>", "A. Officer"),
    {
        "data_product_region": "United Kingdom",
        "publication_date": "2026-11-23",
        "registry_authors": "A. Officer; B. Engineer",
        "justification": "no",
        "data_curator_type": "Nonprofit",
        "data_product_sector": "Healthcare",
        "sources": "https://ashford.example/stays; Minutes of the board",
    },
)
SCHEMA = {
    "name": "stays",
    "target": "days",
    "column": [
        {"name": "age", "kind": "integer", "lower": 0, "upper": 120, "description": "in years"},
        {"name": "sex", "kind": "category", "categories": ["f", "m"]},
        {"name": "days", "lower": 0.0, "upper": 90.0},
    ],
}
FOUND = (
    Finding(
        "membership", "Was she there?", "share of pairs of a used and an unused record told apart by noisy numbers", 0.6,
        of=1.0, low=0.5, high=0.7, baseline=0.5, risk="singling out",
        detail={"members": 100, "outsiders": 50, "members found at 1 % false positives": 0.04},
    ),
    Finding("audit gaussian", "Is it?", "epsilon proven by the outputs, at least", 0.7, of=1.0),
    Finding("verbatim", "Which?", "cells found", 0, of=9.0, risk="singling out"),
)  # fmt: skip
METRICS = {"measure": "root mean squared error", "value": 3.5, "better": "lower", "baseline": 4.0}


def source(
    about: AboutChoice = ABOUT, found: tuple[Finding, ...] = FOUND, **changes: Any
) -> Source:
    """A policy of epsilon 8 at two owners."""
    line = replace(NOISY, released=3)
    policy = Policy({}, name="private", accountant="zcdp", budget=BUDGET)
    plain: dict[str, Any] = {"released": 3, "principals": {"server"}, "head": (7, "ab" * 32)}
    owners = tuple(client_of(name, **(plain | changes)) for name in ("north", "south"))
    account = PolicyAccount(policy, ZeroConcentrated(), owners, (line,))
    one = PolicyReport(account, found, METRICS)
    return Source(Report(replace(Study.built_in(), about=about), (one,), "0"), one, SCHEMA)


REGISTRY = jsonschema.Draft7Validator(
    pyyaml.safe_load((Path(__file__).parent / "registry_schema.yaml").read_text(encoding="utf-8")),
    format_checker=jsonschema.Draft7Validator.FORMAT_CHECKER,
)


def test_a_registry_entry_is_valid_under_the_registry_s_schema() -> None:
    """And says what is asked: one epsilon, dates as texts, several owners in a table; a misspelt field is found."""
    entry = pyyaml.safe_load(registry_entry(source()))
    assert not list(REGISTRY.iter_errors(entry))
    said = entry["deployment"]
    everything = REGISTRY.schema["properties"]["deployment"]["properties"]
    assert set(said) == set(everything), "tier 3 fills every section"
    assert said["basic"]["publication_date"] == "2026-11-23"
    assert said["basic"]["intended_use"] == "Plan beds: for 'all'"
    assert said["privacy_loss"]["privacy_parameters"] == {"epsilon": 8.0, "delta": 1e-5}
    assert "| south | 8 | 1e-05 | 7:abababababababab |" in str(said["privacy_loss"])
    assert said["dp_variant"]["variant_name"] == "Approximate DP"
    assert said["deployment_model"]["model_name"] == "Federated"
    assert said["implementation"]["justification"] == "no"
    assert said["implementation"]["utility"] == "root mean squared error: 3.5"
    assert "simulation" in said["implementation"]["additional_information"]
    administrative = said["administrative"]
    assert (administrative["status"], administrative["tier"]) == ("Draft", 3)
    assert administrative["registry_authors"] == ["A. Officer", "B. Engineer"]
    assert administrative["evidence_sources"]["source_2"]["misc"] == {
        "title": "Minutes of the board"
    }
    for wrong in ({"status": "draft"}, {"tiers": 3}):
        said["administrative"] = administrative | wrong
        assert list(REGISTRY.iter_errors(entry))


def test_a_registry_entry_says_on_whom_its_guarantee_rests() -> None:
    """Behind masks other owners are trusted, and of a plugin's noise its author."""
    for basis, words in (
        ("masked:0", "if no owner colludes with the server"),
        ("claimed:mixture", "on the word of"),
    ):
        said = pyyaml.safe_load(registry_entry(source(basis=(basis,))))["deployment"]
        assert words in said["deployment_model"]["trust_assumptions"]


@pytest.mark.parametrize(
    ("key", "wrong", "instead"),
    [
        ("data_product_sector", "Health", "Technology, Healthcare"),
        ("data_curator_type", "Trust", "Government, Industry, Nonprofit"),
        ("publication_date", "23.11.2026", "such as 2026-11-23"),
    ],
)
def test_what_is_none_of_the_registry_s_words_is_refused(
    key: str, wrong: str, instead: str
) -> None:
    """With its words: the entry would be refused there."""
    about = replace(ABOUT, registry=ABOUT.registry | {key: wrong})
    with pytest.raises(InputError, match=instead):
        registry_entry(source(about))


def test_a_registry_entry_needs_a_guarantee_and_what_a_person_must_say() -> None:
    """Neither is invented."""
    with pytest.raises(InputError, match="no guarantee that holds"):
        registry_entry(source(unprotected=1, epsilon=None, ceiling=None, risk=None))
    with pytest.raises(InputError, match="needs controller, data_description, data_curator_type"):
        registry_entry(source(AboutChoice(purpose="Plan beds")))


def test_what_yaml_is_written_is_read_the_same() -> None:
    """Whatever a person wrote: colons, quotes, lines, words that YAML takes for truth values, small numbers."""
    texts = [
        "no",
        "2026-11-23",
        "a: b",
        "it's",
        "- x",
        "two\nlines",
        "",
        "# x",
        "a #b",
        "~",
        "1e-5",
        "é",
    ]
    plain = {"texts": texts, "maps": [{"a": 1e-05, "b": {"c": [True, None, 3]}}, {"a": "x y"}]}
    assert pyyaml.safe_load(exports.yaml(plain)) == plain


def test_an_impact_assessment_is_what_the_software_imports() -> None:
    """Its reader takes lengths of all five lists and dates of all entries, and numbers of known questions."""
    said = json.loads(pia(source()))
    assert set(said) == {"pia", "answers", "measures", "evaluations", "comments"}
    assert {"name", "category", "author_name", "evaluator_name", "validator_name", "status"} <= set(
        said["pia"]
    )
    assert "dbVersion" in said["pia"], "without it the software opens no file"
    assert {one["id"] for one in said["measures"]} == set(range(1, len(said["measures"]) + 1))
    assert all(isinstance(said[key], list) for key in set(said) - {"pia"})
    by_number = {one["reference_to"]: one["data"] for one in said["answers"]}
    assert set(by_number) == {111, 112, 121, 122, 123, 211, 212, 213, 215, *range(321, 327)}
    assert all(set(data) == {"text", "gauge", "list"} for data in by_number.values())
    assert "Stays of &lt;patients&gt;" in by_number[121]["text"]
    assert "sex (category: f, m)" in by_number[121]["text"]
    assert by_number[324]["list"] == [one["title"] for one in said["measures"]]
    assert by_number[325]["gauge"] == 0, "a person judges"
    assert all(one["created_at"].endswith("Z") for one in said["answers"] + said["measures"])


def test_attacks_are_told_as_sacroml_tells_its_own() -> None:
    """What its summaries read: area, p-value and numbers of each instance; attacks without a curve are left out."""
    (said,) = json.loads(sacroml(source())).values()
    one = said["attack_experiment_logger"]["attack_instance_logger"]["instance_0"]
    assert (one["AUC"], one["TPR@0.01"]) == (0.6, 0.04)
    assert (one["n_pos_test_examples"], one["n_neg_test_examples"]) == (100, 50)
    assert one["P_HIGHER_AUC"] == pytest.approx(0.025, abs=1e-4)  # by the interval, .5 to .7
    assert said["metadata"]["global_metrics"]["n_sig_auc_p_vals"] == 1
    assert {"log_id", "log_time"} <= set(said)
    with pytest.raises(InputError, match="no membership attack has looked"):
        sacroml(source(found=()))


def test_a_p_value_is_the_report_s_own() -> None:
    """Of 100 records under three draws of noise, no p-value as of 100 draws; none beside another value than the area."""
    few = replace(FOUND[0], value=0.8, low=0.6, high=1.0, chance=0.07)
    rate = replace(
        FOUND[0],
        attack="pool",
        value=0.05,
        low=0.03,
        high=0.08,
        baseline=0.01,
        detail={"members": 100, "outsiders": 50, "area under the curve": 0.64},
    )
    told = [*json.loads(sacroml(source(found=(few, rate)))).values()]
    ones = [one["attack_experiment_logger"]["attack_instance_logger"]["instance_0"] for one in told]
    assert [one["AUC"] for one in ones] == [0.8, 0.64]
    assert [one.get("P_HIGHER_AUC") for one in ones] == [0.07, None]
    assert told[0]["metadata"]["global_metrics"] == {
        "n_sig_auc_p_vals": 0,
        "n_sig_auc_p_vals_corrected": 0,
    }
    assert told[1]["metadata"]["global_metrics"] == {}


def test_a_form_names_the_learner_of_its_policy_alone() -> None:
    """Another policy's baseline trained no model of this one."""
    one = source()
    study = Study.built_in()
    other = replace(study.policies[0], name="pooled", learner=LearnerChoice("CentralRuleFit"))
    both = replace(study, policies=(*study.policies, other))
    told = replace(one, report=replace(one.report, study=both))
    assert len(both.learners) == 2
    for form in (pia, sacroml):
        assert "CentralRuleFit" not in form(told) and study.learner.name in form(told)


def test_a_model_card_is_read_by_the_hub_s_own_reader(tmp_path: Path) -> None:
    """With claimed, audited and attacked figures among its metrics."""
    hub = pytest.importorskip("huggingface_hub")
    path = tmp_path / "README.md"
    path.write_text(model_card(source()), encoding="utf-8")
    card = hub.ModelCard.load(path)
    figures = {one.metric_type: one.metric_value for one in card.data.eval_results}
    assert figures["epsilon"] == 8.0 and figures["audited_epsilon_lower"] == 0.7
    assert figures["rmse"] == 3.5
    assert card.data.library_name == "privfed" and "differential-privacy" in card.data.tags
    assert "finds at most 20 on average" in card.text
    assert card.data.pipeline_tag == "tabular-regression"
    own = source()
    named = [{**c, "kind": "category"} if c["name"] == "days" else c for c in own.columns]
    told = replace(
        own, schema={**own.schema, "column": named}
    )  # no score is told where ledgers last
    assert "pipeline_tag: tabular-classification" in model_card(told)
    rules = {"column": [{"name": "pulse", "lower": 20.0, "upper": 220.0}]}  # nothing is predicted
    card = model_card(replace(own, schema=rules))
    assert (
        "pipeline_tag" not in card and "type: other" in card and "pulse (number: 20 to 220)" in card
    )


def test_a_dictionary_is_dated_in_utc_with_its_zone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not by the local date, which may be tomorrow's or yesterday's."""
    monkeypatch.setenv("TZ", "Pacific/Kiritimati")
    time.tzset()
    dated = json.loads(croissant(source()))["datePublished"]
    monkeypatch.undo()
    time.tzset()
    assert abs((datetime.fromisoformat(dated) - datetime.now(UTC)).total_seconds()) < 60
    assert dated.endswith("Z")


def test_a_dictionary_is_read_by_croissant_s_own_reader(tmp_path: Path) -> None:
    """Columns with their types; its validator finds no error; no row and no file."""
    reader = pytest.importorskip("mlcroissant")
    path = tmp_path / "croissant.json"
    path.write_text(croissant(source()), encoding="utf-8")
    (records,) = reader.Dataset(path).metadata.record_sets
    assert [field.name for field in records.fields] == [
        "age",
        "sex",
        "days",
    ]
    assert "(number: 0 to 90)" in records.fields[2].description
    assert "sha256" not in path.read_text() and '"data"' not in json.dumps(
        json.loads(path.read_text())["recordSet"]
    )
