"""Whole jobs over a study for the command line: run, attack, report, sweep."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import pandas as pd
from tqdm import tqdm

from privfed import __version__
from privfed.attacks.finding import LEVEL, Finding, corrected
from privfed.engines.named import engine as engine_of
from privfed.errors import InputError, StudyError
from privfed.ledger import Ledger
from privfed.privacy.policy import Policy
from privfed.reports.account import read
from privfed.reports.budget import PolicyReport, Report, findings
from privfed.reports.metrics import MetricValue
from privfed.study import PolicyChoice, Study, simulation
from privfed.study.dry_run import attacks_of, dry_run
from privfed.study.model_reading import read_models
from privfed.study.output import NOISE, Output, finite, write_text, written_whole
from privfed.study.persistent_ledgers import PersistentLedgers
from privfed.study.simulation import AnyPrepared

if TYPE_CHECKING:
    from collections.abc import Iterator


#: File in an output folder: when the data were last written, before they were learned from.
STAMP = "data.stamp"


def run(
    study: Study,
    out: Path,
    overwrite: bool,
    attacked: bool,
    engine: str = "local",
    *,
    seconds: float | None = None,
) -> Report:
    """Carry a study out and write its output folder ``out``, which appears only if all goes well.

    ``seconds`` is the time limit per attack; default: the study's.
    """
    carried_by = engine_of(engine)
    lasting = PersistentLedgers.of(study)
    if lasting is not None:
        lasting.check_outside(out)
    with written_whole(out, overwrite=overwrite) as folder:
        stamp, prepared = _stamp(study), simulation.prepare(study)
        prices = dry_run(study, prepared.schema)
        if lasting is not None:
            lasting.begin(study, prices[0], prepared.schema, prepared.owners)
        output = Output(folder)
        study.to_toml(folder / "study.toml")
        write_text(folder / STAMP, stamp)
        for choice in study.policies:
            with _bar(study, choice) as bar:
                simulation.run(prepared, choice, output, bar.update, carried_by)
        if attacked:
            _attack(prepared, output, seconds)
        return write_report(output)


def attack(output: Output, *, seconds: float | None = None) -> Report:
    """Attack a finished study's releases again; InputError if the data have changed since."""
    known = output.folder / STAMP
    if known.is_file() and known.read_text(encoding="utf-8") != _stamp(output.study):
        raise InputError(
            f"the data of study {output.study.name!r} have changed since it ran; attacks are scored "
            "against what it ran on, so run it anew"
        )
    _attack(simulation.prepare(output.study), output, seconds)
    return write_report(output)


def _stamp(study: Study) -> str:
    """Return when the newest of a study's data files was written."""
    path = study.folder / study.data.source
    files = [*path.iterdir()] if path.is_dir() else [path] if path.is_file() else []
    newest = max((file.stat().st_mtime_ns for file in files), default=0)
    return f"{len(files)} files, the newest of {newest} ns\n"


def _attack(prepared: AnyPrepared, output: Output, seconds: float | None) -> None:
    study = prepared.study
    for choice in study.policies:
        heard, count = output.transcript(choice.name), len(attacks_of(study))
        policy = Policy.from_toml(output.policy(choice.name) / "policy.toml")
        with tqdm(desc=f"attacks, {choice.name}", total=count, unit="", disable=None) as bar:
            found, inapplicable = simulation.attack(
                prepared, heard, bar.update, seconds=seconds, relation=policy.relation
            )
        if study.shadows is not None and isinstance(prepared, simulation.Prepared):
            with tqdm(desc=f"shadow models, {choice.name}", unit="", disable=None) as bar:
                read, idle = read_models(prepared, choice, output, study.shadows, bar.update)
            found, inapplicable = found + read, {**inapplicable, **idle}
        found = corrected(found, LEVEL / len(study.policies))
        found += simulation.audit(prepared, choice)
        if study.audit_training:
            found += simulation.audit_training(prepared, choice)
        found += map(Finding.from_dict, output.read(choice.name, NOISE) or ())
        told = {"findings": [each.to_dict() for each in found], "inapplicable": inapplicable}
        output.write(choice.name, "findings.json", told)


def gather(output: Output) -> Report:
    """Read a finished study's ledgers, findings and metrics."""
    reports = []
    for name in output.policies:
        policy = Policy.from_toml(output.policy(name) / "policy.toml")
        with output.ledgers(name) as ledgers:
            account = read(
                _in_force(policy, output.study, ledgers),
                ledgers,
                output.heads(name),
                output.study.name,
            )
        told = output.read(name, "findings.json") or {}
        told = {"findings": told} if isinstance(told, list) else told  # as it was once written
        found, metrics = findings(told.get("findings")), output.read(name, "metrics.json") or {}
        reports.append(PolicyReport(account, found, metrics, told.get("inapplicable", {})))
    return Report(output.study, tuple(reports), __version__)


def _in_force(policy: Policy, study: Study, ledgers: Mapping[str, Ledger]) -> Policy:
    """Return a policy under the budget of persistent ledgers, which may have been amended."""
    if study.ledgers is None:
        return policy
    held = {name: ledger.policies().get(study.name) for name, ledger in ledgers.items()}
    known = next((one for one in held.values() if one is not None), policy)
    return known.renamed(policy.name)


def write_report(output: Output) -> Report:
    """Write ``report.html`` and ``report.json`` of a finished study."""
    from privfed.reports.page import page

    report = gather(output)
    html, plain = page(report), json.dumps(finite(report.to_dict()), indent=2)
    write_text(output.folder / "report.html", html)
    write_text(output.folder / "report.json", plain + "\n")
    return report


def write_letter(output: Output, reader: str, policy: str = "", *, pdf: bool = False) -> Path:
    """Write the page for a board or a regulator of a finished study, beside its report.

    Returns:
        the file: ``board.html``, ``regulator.html``, or with ``pdf`` the same as ``.pdf``; for an
        engineer ``report.html`` or ``report.pdf``.
    """
    from privfed.reports import letters

    page = output.folder / f"{reader}.html"
    if reader == "board":
        write_text(page, letters.board(gather(output), policy))
    elif reader == "regulator":
        write_text(page, letters.regulator(gather(output)))
    else:
        page = output.folder / "report.html"
        write_report(output)
    if not pdf:
        return page
    letters.write_pdf(page, page.with_suffix(".pdf"))
    return page.with_suffix(".pdf")


def sweep(study: Study, epsilons: Sequence[str], seeds: int) -> pd.DataFrame:
    """Run a study repeatedly: every private policy at each epsilon, all policies under each seed.

    Returns:
        one row per run: policy, epsilon (None without a guarantee), seed, measure, value, baseline,
        released, unprotected, seconds, secure; then each further score under its own name, and a
        constant baseline's under ``constant`` and that name. It uses the truth and charges nobody:
        a simulation. A study's ``runs`` has no effect.
    """
    if study.ledgers is not None:
        raise StudyError(
            "a sweep is a simulation that charges nobody, and on data with persistent ledgers every "
            "run would be a release; leave ledgers out under [clients] to sweep over simulated data"
        )
    jobs = [
        (varied, choice)
        for number in range(seeds)
        for index, epsilon in enumerate(epsilons)
        for varied in (study.under(epsilon, study.seed + number),)
        for choice in varied.policies
        if index == 0 or choice.base == "private"
    ]
    bar = tqdm(jobs, desc="sweep", unit=" run", disable=None)
    return pd.DataFrame([_one(varied, choice) for varied, choice in bar])


def _one(study: Study, choice: PolicyChoice) -> dict[str, Any]:
    alone = replace(study, policies=(choice,), runs=1)
    with TemporaryDirectory() as folder:
        output = Output(folder)
        alone.to_toml(Path(folder) / "study.toml")
        simulation.run(simulation.prepare(alone), choice, output)
        policy = gather(output).policies[0]
    metrics = policy.metrics
    return {
        "policy": choice.name,
        "epsilon": _ceiling(policy),
        "seed": study.seed,
        "measure": metrics.get("measure"),
        "value": metrics.get("value"),
        "baseline": metrics.get("baseline"),
        "released": policy.released,
        "unprotected": policy.unprotected,
        "seconds": metrics.get("seconds"),
        "secure": policy.secure,
        **{name: figure for score in policy.scores[1:] for name, figure in _columns(score)},
    }


def _columns(score: MetricValue) -> list[tuple[str, float | None]]:
    """Return a score's columns in a sweep's table: its value, and the constant baseline's."""
    return [(score.name, score.value), (f"constant {score.name}", score.constant)]


def _ceiling(policy: PolicyReport) -> float | None:
    """Return a run's budget, or its epsilon without one; None without a guarantee."""
    if not policy.account.finite:
        return None
    budget = policy.account.policy.budget
    return policy.epsilon if budget is None else float(budget.epsilon)


@contextmanager
def _bar(study: Study, choice: PolicyChoice) -> Iterator[Any]:
    """Show progress in queries."""
    name = study.learner_under(choice.name).name
    with tqdm(desc=f"{name}, {choice.name}", unit=" question", disable=None) as bar:
        yield bar
