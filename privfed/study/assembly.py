"""Jobs of the command line on a study: run, attack, report."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

from tqdm.auto import tqdm

from privfed import __version__
from privfed.attacks.finding import LEVEL, Finding, corrected
from privfed.attacks.verbatim import Verbatim
from privfed.audits.replay import audit_replay
from privfed.engines.named import engine as engine_of
from privfed.errors import InputError, Note
from privfed.exchange.transcript import Transcript
from privfed.learners.base import PersonalLearner
from privfed.learners.saved import load
from privfed.privacy.loss import foreign
from privfed.privacy.policy import Policy
from privfed.questions.threads import one_thread
from privfed.reports.account import read
from privfed.reports.budget import PolicyReport, Report, findings
from privfed.study import PolicyChoice, Study, simulation
from privfed.study.dry_run import attacks_of, check_viewpoints, dry_run, learner
from privfed.study.exposed import exposed, rows_of
from privfed.study.model_reading import read_models, read_values, reads_models
from privfed.study.output import NOISE, Output, finite, write_text, written_whole
from privfed.study.persistent_ledgers import PersistentLedgers
from privfed.study.simulation import AnyPrepared

#: File in an output folder: the modification time of the data at training.
STAMP = "data.stamp"


def run(
    study: Study,
    out: Path,
    overwrite: bool,
    attacked: bool,
    engine: str = "local",
    *,
    seconds: float | None = None,
    scores: bool = False,
) -> Report:
    """Run a study and write its output folder ``out``, whole or not at all.

    ``seconds`` is the time limit per attack; default: the study's. ``scores`` adds to the findings
    how exposed each record is.
    """
    carried_by = engine_of(engine)
    ledgers = PersistentLedgers.of(study)
    if ledgers is not None:
        ledgers.check_outside(out)
    with written_whole(out, overwrite=overwrite) as folder:
        stamped, prepared = stamp(study), simulation.prepare(study)
        prices = dry_run(study, prepared.schema)
        if attacked:
            check_viewpoints(study, prepared.owners)
        if ledgers is not None:
            ledgers.begin(study, prices[0], prepared.schema, prepared.owners)
        output = Output(folder)
        study.to_toml(folder / "study.toml")
        write_text(folder / STAMP, stamped)
        for choice in study.policies:
            label = f"{study.learner_under(choice.name).name}, {choice.name}"
            with tqdm(desc=label, unit=" question", disable=None) as bar:
                simulation.run(prepared, choice, output, bar.update, carried_by)
        if attacked:
            attack_releases(prepared, output, seconds, scores=scores)
        output.list_files()
        return write_report(output)


def attack(output: Output, *, seconds: float | None = None, scores: bool = False) -> Report:
    """Attack a finished study's releases again; InputError if the data have changed since."""
    file = output.folder / STAMP
    if file.is_file() and file.read_text(encoding="utf-8") != stamp(output.study):
        raise InputError(
            f"the data of study {output.study.name!r} have changed since it ran; attacks are scored against the "
            "data it ran on, so run it again"
        )
    attack_releases(simulation.prepare(output.study), output, seconds, scores=scores)
    return write_report(output)


def stamp(study: Study) -> str:
    """Return the latest modification time of a study's data files, as text."""
    path = study.folder / study.data.source
    files = [*path.iterdir()] if path.is_dir() else [path] if path.is_file() else []
    newest = max((file.stat().st_mtime_ns for file in files), default=0)
    return f"{len(files)} files, the newest of {newest} ns\n"


def attack_releases(
    prepared: AnyPrepared,
    output: Output,
    seconds: float | None,
    *,
    scores: bool = False,
    quiet: bool = False,
) -> None:
    """Attack a study's releases, audit its mechanisms and write the findings; ``quiet``: no progress.

    ``scores`` ranks the records by how exposed each is.
    """
    study, hidden = prepared.study, quiet or None
    for choice in study.policies:
        transcript, count = output.transcript(choice.name), len(attacks_of(study))
        policy = Policy.from_toml(output.policy(choice.name) / "policy.toml")
        with tqdm(desc=f"attacks, {choice.name}", total=count, unit="", disable=hidden) as bar:
            findings, inapplicable = simulation.attack(
                prepared, transcript, bar.update, seconds=seconds, relation=policy.relation
            )
        scans = any(isinstance(item, Verbatim) for item in attacks_of(study))
        if scans and isinstance(prepared, simulation.Prepared):
            model = output.policy(choice.name) / "model.json"
            findings += read_values(prepared, model, transcript, policy.budget)
        if reads_models(prepared):
            with tqdm(desc=f"shadow models, {choice.name}", unit="", disable=hidden) as bar:
                model_findings, skipped = read_models(
                    prepared, choice, output, transcript, bar.update
                )
            findings, inapplicable = findings + model_findings, {**inapplicable, **skipped}
        findings = corrected(findings, LEVEL / len(study.policies))
        findings += simulation.audit(prepared, choice)
        findings += _audit_replay(prepared, choice, output, transcript)
        if study.audit_training:
            findings += simulation.audit_training(prepared, choice)
        findings += map(Finding.from_dict, output.read(choice.name, NOISE) or ())
        data = {"findings": [item.to_dict() for item in findings], "inapplicable": inapplicable}
        if scores and isinstance(prepared, simulation.Prepared):
            data["records"] = exposed(findings, rows_of(prepared))
        output.write(choice.name, "findings.json", data)


def _audit_replay(
    prepared: AnyPrepared, choice: PolicyChoice, output: Output, transcript: Transcript
) -> list[Finding]:
    """Audit whether the model of another package's learner follows from its releases; empty for our learners."""
    model, path = learner(prepared.study, choice), output.policy(choice.name) / "model.json"
    if not foreign(type(model)) or isinstance(model, PersonalLearner) or not path.is_file():
        return []
    with one_thread():
        return [audit_replay(model, load(path), transcript, prepared.owners)]


def gather(output: Output) -> Report:
    """Read a finished study's ledgers, findings and metrics; warns of files that were edited since they were written."""
    if edited := output.edited():
        warnings.warn(
            f"{', '.join(edited)} in {output.folder}: not as the study wrote it, so what is stated from it may be "
            "anybody's; run the study again",
            Note,
            stacklevel=2,
        )
    reports = []
    for name in output.policies:
        policy = Policy.from_toml(output.policy(name) / "policy.toml")
        output.check_given(name)
        with output.ledgers(name) as ledgers:
            account = read(policy, ledgers, output.heads(name), output.study.name)
        data = output.read(name, "findings.json") or {}
        if isinstance(data, list):  # the format of earlier versions
            data = {"findings": data}
        results, metrics = findings(data.get("findings")), output.read(name, "metrics.json") or {}
        reports.append(PolicyReport(account, results, metrics, data.get("inapplicable", {})))
    return Report(output.study, tuple(reports), __version__)


def publishable(output: Output, *, simulation: bool = False) -> Report:
    """Read a finished study as its pages show it; ``simulation`` keeps what was scored on the records."""
    report = gather(output)
    return report if simulation else report.published()


def write_report(output: Output, *, simulation: bool = False) -> Report:
    """Write ``report.html`` and ``report.json`` of a finished study, see :func:`publishable`; return the full report."""
    from privfed.reports.page import page

    full = gather(output)
    report = full if simulation else full.published()
    models = {
        policy.name: _model_html(output, policy) for policy in report.policies if policy.finite
    }
    html, text = page(report, models), json.dumps(finite(report.to_dict()), indent=2)
    write_text(output.folder / "report.html", html)
    write_text(output.folder / "report.json", text + "\n")
    return full


def _model_html(output: Output, report: PolicyReport) -> str:
    """Return a policy's model as HTML, with the report's epsilon; empty without a model, or without a common one."""
    path = output.policy(report.name) / "model.json"
    if not path.is_file():
        return ""
    policy = report.account.policy
    try:
        model = load(path)
        if policy.masked is None:  # whose second epsilon, if masks fail, is in the report
            model.privacy_ = {
                "epsilon": report.so_far,
                "delta": report.delta,
                "unit": policy.unit,
                "relation": policy.relation,
                "basis": report.basis,
                "noise": "secure" if report.secure else "test",
            }
        return model.to_html()
    except InputError:
        return ""


def write_letter(
    output: Output, reader: str, policy: str = "", *, pdf: bool = False, simulation: bool = False
) -> Path:
    """Write a finished study's page for a board or a regulator into its folder; see :func:`publishable`.

    Returns:
        the file: ``board.html``, ``regulator.html``, or with ``pdf`` its ``.pdf``; for an
        engineer ``report.html`` or ``report.pdf``.
    """
    from privfed.reports.board import board_page
    from privfed.reports.page import write_pdf
    from privfed.reports.regulator import regulator_page

    page = output.folder / f"{reader}.html"
    if reader == "board":
        write_text(page, board_page(publishable(output, simulation=simulation), policy))
    elif reader == "regulator":
        write_text(page, regulator_page(publishable(output, simulation=simulation)))
    else:
        page = output.folder / "report.html"
        write_report(output, simulation=simulation)
    if pdf:
        write_pdf(page, page.with_suffix(".pdf"))
    output.list_pages()
    return page.with_suffix(".pdf") if pdf else page


def exported(output: Output, form: str, policy: str = "", *, simulation: bool = False) -> str:
    """Return a study's policy in a form of :data:`.FORMS`; by default the first with a guarantee."""
    from privfed.reports.board import chosen
    from privfed.reports.exports import FORMS, Source

    report = publishable(output, simulation=simulation)
    decided = chosen(report, policy)
    path = output.policy(decided.name) / "model.json"
    if not path.is_file():
        raise InputError(
            f"policy {decided.name!r}: has no model.json; name a policy that released a model"
        )
    schema = json.loads(path.read_text(encoding="utf-8"))["schema"]
    return FORMS[form][0](Source(report, decided, schema))


def write_comparison(
    output: Output, earlier: Output, *, pdf: bool = False, simulation: bool = False
) -> tuple[str, Path]:
    """Write ``comparison.html``, a finished study against an earlier one's output; see :func:`publishable`.

    Returns:
        the comparison as text, and the file, with ``pdf`` the printed one.
    """
    from privfed.reports.comparison import compared, comparison_lines, comparison_page
    from privfed.reports.page import write_pdf

    before, after = (publishable(source, simulation=simulation) for source in (earlier, output))
    comparison, page = compared(before, after), output.folder / "comparison.html"
    write_text(page, comparison_page(comparison))
    if pdf:
        write_pdf(page, page.with_suffix(".pdf"))
        page = page.with_suffix(".pdf")
    output.list_pages()
    return comparison_lines(comparison), page
