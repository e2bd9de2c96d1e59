"""A study at many epsilons, seeds and settings: one cell is one folder, run once.

OUT/sweep.toml                  the study
OUT/cells/KEY/params.json       a cell's factors, versions, time and memory
OUT/cells/KEY/metrics.json      its figures: utility, cost, attacks, time, memory, bytes (simulation)
OUT/cells/KEY/digests.json      SHA-256 of each of its files, by which a later run checks it
OUT/cells/KEY/study.toml, ...   the output of a study of one policy, with its ledgers and findings
OUT/sweep.csv, sweep.parquet    one row a cell
OUT/sweep.html                  the report
OUT/figure.svg, .pdf, .png      utility, attacks, audits, bytes against epsilon

KEY is a digest of the cell's study: learner, parameters, policy, epsilon, delta, mechanisms, the
contents of the data, partition, owners, masks, seed, but not its name or its attacks.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import tomllib
import traceback
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product
from pathlib import Path
from time import perf_counter
from typing import Any

import joblib
import pandas as pd
from tqdm.auto import tqdm

from privfed import __version__
from privfed.attacks.finding import Finding
from privfed.attacks.roc import FOUND_AT
from privfed.attacks.verbatim import WHOLE_RECORDS
from privfed.attacks.worst_record import WorstRecord
from privfed.errors import (
    DataWarning,
    InputError,
    LedgerError,
    Note,
    PrivfedError,
    StudyError,
    file_errors,
    number_of,
)
from privfed.interrupts import interrupted
from privfed.privacy.policy import Policy
from privfed.questions import wire
from privfed.questions.exact import text
from privfed.reports.budget import AUDITS, PolicyReport
from privfed.reports.provenance import commit
from privfed.reports.sweep_curves import NEXT, OWN
from privfed.study import PolicyChoice, Study, assembly, simulation
from privfed.study.dry_run import dry_run
from privfed.study.output import CONTENTS, FILES, Output, write_text, written_whole

_RENAMED = {"questions": "queries"}  #: Columns of earlier versions
CELLS, PARAMS, METRICS, DIGESTS = "cells", "params.json", "metrics.json", "digests.json"
#: Entries of a sweep's folder, except hidden files.
ENTRIES = {
    *(CELLS, "sweep.toml", "sweep.csv", "sweep.parquet", "sweep.html"),
    *("figure.svg", "figure.pdf", "figure.png"),
}
#: Keys that do not change a cell's run: texts, and what is done with its releases afterwards.
AFTERWARDS = ("attacks", "attack_seconds", "shadows", "audit_training")
BESIDE = ("name", "about", "together", "runs", *AFTERWARDS)
#: Keys that --vary does not accept, with the reason or the option for them.
FIXED = {
    **dict.fromkeys(BESIDE, "it changes no run"),
    **dict.fromkeys(("seed", "runs"), "write --runs"),
    "policy.epsilon": "write --epsilon",
    "policy.name": "write a [[policy]] for each",
}


@dataclass(frozen=True)
class Cell:
    """One policy of a study under one seed and one setting."""

    study: Study  #: with this policy alone
    varied: Mapping[str, Any] = field(default_factory=dict)  #: the settings, by dotted key

    @property
    def choice(self) -> PolicyChoice:
        """The cell's policy."""
        return self.study.policies[0]

    @cached_property
    def key(self) -> str:
        """The cell's name: a digest of :attr:`content`."""
        return wire.digest(json.dumps(self.content, sort_keys=True, default=str).encode())[:24]

    @cached_property
    def content(self) -> dict[str, Any]:
        """Everything that determines its run, with files by their contents when this was first read."""
        content = {k: v for k, v in self.study.to_dict().items() if k not in BESIDE}
        data, (policy,) = content["data"], content["policy"]
        for table, entry in ((data, "source"), (data, "schema"), (policy, "base")):
            if entry in table:
                table[entry] = contents(table[entry])
        for entry in ("epsilon", "delta"):
            if entry in policy:
                policy[entry] = text(getattr(self.choice, f"exact_{entry}"))
        return content

    @property
    def factors(self) -> dict[str, Any]:
        """The cell's factors that are known before it runs, in columns."""
        study, choice = self.study, self.choice
        learner, clients = study.learner_under(choice.name), study.clients
        return {
            "policy": choice.name,
            "learner": learner.name,
            "params": json.dumps(learner.params, sort_keys=True),
            "policy params": json.dumps(choice.params, sort_keys=True),
            "data": Path(study.data.source).name,
            "partition": clients.partition,
            "seed": study.seed,
            **self.varied,
        }

    @property
    def attacks(self) -> dict[str, Any]:
        """The settings of attacks on its releases."""
        data = self.study.to_dict()
        return {key: data.get(key) for key in AFTERWARDS}

    def label(self) -> str:
        """Format the cell in one line."""
        varied = "".join(f", {key} = {value}" for key, value in self.varied.items())
        return f"{self.key}  {self.series}, seed {self.study.seed}{varied}"

    @property
    def series(self) -> str:
        """The policy, and its epsilon."""
        epsilon = self.choice.epsilon
        return f"{self.choice.name}, epsilon {epsilon}" if epsilon else self.choice.name


def cells(
    study: Study,
    epsilons: Sequence[str],
    runs: int,
    vary: Mapping[str, Sequence[Any]] | None = None,
) -> list[Cell]:
    """List a sweep's cells: every setting, seed, policy and, where it has a budget, epsilon.

    Args:
        study: what is swept.
        epsilons: budgets, nats, of every private policy and every policy file with a budget.
        runs: number of seeds from the study's on, each with its own partition, held-out records and noise.
        vary: values by dotted key of the study's file, such as ``clients.count``; a key ``policy.X`` is
            set in each policy with an epsilon.
    """
    if study.ledgers is not None:
        raise StudyError(
            "a sweep is a simulation that charges nobody, and on data with persistent ledgers every "
            "run would be a release; leave ledgers out under [clients] to sweep over simulated data"
        )
    vary, planned = vary or {}, []
    for key, levels in vary.items():
        if key in FIXED:
            raise StudyError(f"--vary {key}: is not a factor; {FIXED[key]}")
        if not levels:
            raise StudyError(
                f"--vary {key}: has no values; write {key or 'clients.count'}=3,5, say"
            )
    for values in product(*vary.values()):
        varied = dict(zip(vary, values, strict=True))
        base = _set_values(study, varied)
        for number, choice in product(range(runs), base.policies):
            single = replace(
                base, policies=(choice,), runs=1, together=False, seed=base.seed + number
            )
            private = base.budgeted(choice)
            settings = {k: v for k, v in varied.items() if private or not k.startswith("policy.")}
            planned += [
                Cell(single.at(budget), settings) for budget in (epsilons if private else [None])
            ]
    return list({cell.key: cell for cell in planned}.values())


def _set_values(study: Study, varied: Mapping[str, Any]) -> Study:
    """Return the study with values set by dotted key; StudyError as for its file."""
    if not varied:
        return study
    data = study.to_dict()
    for key, value in varied.items():
        first, *keys = key.split(".")
        policies = [
            policy
            for policy, p in zip(data["policy"], study.policies, strict=True)
            if study.budgeted(p)
        ]
        for table in policies if first == "policy" else [data]:
            path = keys if first == "policy" else [first, *keys]
            for name in path[:-1]:
                table = table.setdefault(name, {})
                if not isinstance(table, dict):
                    raise StudyError(f"--vary {key}: {name} is not a table of the study")
            if not path:
                raise StudyError(f"--vary {key}: write a key, such as policy.delta")
            table[path[-1]] = value
    text = ", ".join(f"{key} = {value}" for key, value in varied.items())
    return Study.from_dict(data, f"study with {text}", study.folder)


def values(text: str) -> list[Any]:
    """Read comma-separated values: TOML's, or words without quotes."""
    with suppress(tomllib.TOMLDecodeError):
        return list(tomllib.loads(f"v = [{text}]")["v"])
    return [part.strip() for part in text.split(",")]


def contents(name: str) -> str:
    """Return the digest of a file's contents, or of a folder's; any other name is returned unmodified."""
    path = Path(name)
    if path.is_dir() and name.endswith("/"):
        files = {file.name: wire.digest(file.read_bytes()) for file in sorted(path.iterdir())}
        return wire.digest(json.dumps(files).encode())
    return wire.digest(path.read_bytes()) if path.is_absolute() and path.is_file() else name


class Sweep:
    """A sweep's folder."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    @property
    def cells(self) -> Path:
        """The folder of the cells."""
        return self.folder / CELLS

    def read(self, cell: Cell, file: str) -> Any:
        """Read one JSON file of a finished cell."""
        return json.loads((self.cells / cell.key / file).read_text(encoding="utf-8"))

    def state(self, cell: Cell) -> str:
        """Return ``"done"``, ``"attacked"`` (done, by the study's present attacks), or ``"new"``.

        A cell is also new if one of its files was changed; further files, such as the page of ``privfed report``,
        are ignored.
        """
        folder = self.cells / cell.key
        try:
            if not self.read(cell, DIGESTS).items() <= digests(folder).items():
                return "new"
            return "attacked" if self.read(cell, PARAMS)["attacks"] == cell.attacks else "done"
        except (OSError, ValueError, KeyError, AttributeError, TypeError):
            return "new"

    def holds(self, planned: Sequence[Cell]) -> str:
        """Return in words how many of the planned cells are done."""
        done = sum(self.state(cell) != "new" for cell in planned)
        return f"{self.folder} holds {done} of {number_of(len(planned), 'run')}"

    def others(self, planned: Sequence[Cell]) -> int:
        """Return the number of finished cells that are not among the planned ones."""
        finished = {path.parent.name for path in self.cells.glob(f"[!.]*/{DIGESTS}")}
        return len(finished - {cell.key for cell in planned})

    @contextmanager
    def opened(self, *, overwrite: bool = False) -> Iterator[None]:
        """Lock the folder, new or of an earlier sweep, and remove the remains of killed runs.

        InputError: the folder cannot be written, or another sweep runs in it.
        """
        with file_errors(f"--out {self.folder}", "written"):
            self.cells.mkdir(parents=True, exist_ok=True)
            lock = (self.folder / ".lock").open("w")
        with lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise InputError(
                    f"--out {self.folder}: another sweep is running in it; wait for it, or name "
                    "another folder"
                ) from None
            for entry in self.cells.iterdir():
                if overwrite or entry.name.startswith("."):
                    shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
            yield

    def check(self) -> None:
        """Check that the folder is new or holds only a sweep (InputError: what else)."""
        if not self.folder.exists():
            return
        if not self.folder.is_dir():
            raise InputError(f"--out {self.folder}: is a file; name a folder")
        entries = {path.name for path in self.folder.iterdir() if not path.name.startswith(".")}
        foreign = entries - ENTRIES
        if foreign:
            raise InputError(
                f"--out {self.folder}: holds {min(foreign)!r}, which no sweep wrote; name a new folder"
            )


def digests(folder: Path) -> dict[str, str]:
    """Return the digest of each file of a cell by its path, except the lists of files, which an attack rewrites."""
    return {
        str(path.relative_to(folder)): wire.digest(path.read_bytes())
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name not in (DIGESTS, CONTENTS, FILES)
    }


def sweep(
    planned: Sequence[Cell], out: Path, *, attacked: bool = False, jobs: int = 1
) -> tuple[pd.DataFrame, dict[str, str]]:
    """Run the cells that are not done, and attack those that are not attacked.

    Args:
        planned: the cells; all are built and priced before the first is run.
        out: the sweep's folder, opened.
        attacked: whether releases are attacked and mechanisms audited.
        jobs: number of processes; -1 for one a core.

    Returns:
        one row for each cell that could be run (a simulation, which charges no budget); and the fault of
        each other one, by its line.
    """
    store = Sweep(out)
    target = "attacked" if attacked else "done"
    pending = [cell for cell in planned if store.state(cell) not in (target, "attacked")]
    _check(pending, attacked)
    work = joblib.Parallel(n_jobs=jobs, return_as="generator_unordered")
    tasks = (joblib.delayed(carry_out)(cell, out, attacked) for cell in pending)
    faults: dict[str, str] = {}
    remarks: dict[str, list[str]] = {}  # warnings on records by text without digits
    bar = tqdm(work(tasks), desc="sweep", total=len(pending), unit=" run", disable=None)
    for cell, fault, messages in bar:
        if interrupted():
            raise KeyboardInterrupt  # a library may have turned it into another error
        faults |= {cell.label(): fault} if fault else {}
        for remark in messages:
            remarks.setdefault(re.sub(r"\d", "", remark), []).append(f"{cell.label()}: {remark}")
    for group in remarks.values():
        count = f"{len(group)} runs, one of them " if len(group) > 1 else ""
        warnings.warn(count + group[0], DataWarning, stacklevel=2)
    return table(planned, store), faults


def table(planned: Sequence[Cell], store: Sweep) -> pd.DataFrame:
    """Return one row for each finished cell: its factors, figures, versions and key."""
    rows = []
    for cell in planned:
        with suppress(OSError, ValueError):
            params = store.read(cell, PARAMS)
            # without what another sweep varied
            stored = {k: v for k, v in params["factors"].items() if "." not in k}
            figures = {_RENAMED.get(k, k): v for k, v in store.read(cell, METRICS).items()}
            figures |= params["made"]
            rows.append({**stored, **cell.factors, **figures, "key": cell.key})
    frame = pd.DataFrame(rows)
    for column in (name for name in frame if frame[name].dtype == object):
        # Parquet has no columns of tables, or of numbers and words
        frame[column] = frame[column].map(str, na_action="ignore")
    if len(frame):
        made = frame["version"] + frame["commit"].map(
            lambda commit: f" (commit {commit})" if commit else ""
        )
        if len(versions := made.unique()) > 1:
            warnings.warn(
                f"the runs were made by {len(versions)} versions of privfed: {', '.join(versions)}; add --overwrite "
                "to run all of them again",
                Note,
                stacklevel=2,
            )
    return frame


def _check(pending: Sequence[Cell], attacked: bool) -> None:
    """Build and price every cell of the first seed (StudyError: what is wrong with one)."""
    first = min((cell.study.seed for cell in pending), default=0)
    for cell in pending:
        if cell.study.seed == first:
            dry_run(cell.study, simulation.prepare(cell.study).schema, attacks=attacked)


def carry_out(cell: Cell, out: Path, attacked: bool) -> tuple[Cell, str, list[str]]:
    """Run one cell, or attack it if it is done; return it, its fault or "", and warnings on its records."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", DataWarning)  # notes are in its metrics
        fault = _fault(cell, out, attacked)
    return cell, fault, [str(note.message) for note in caught if note.category is DataWarning]


def _fault(cell: Cell, out: Path, attacked: bool) -> str:
    store = Sweep(out)
    folder = store.cells / cell.key
    try:
        if store.state(cell) == "new":
            shutil.rmtree(folder, ignore_errors=True)
            with written_whole(folder) as partial:
                _run(cell, Output(partial), attacked)
                write_text(partial / DIGESTS, json.dumps(digests(partial), indent=1))
        elif attacked:
            _attack(cell, Output(folder), _prepared(cell), store.read(cell, PARAMS))
            write_text(folder / DIGESTS, json.dumps(digests(folder), indent=1))
    except (OSError, LedgerError):  # a full disk, say, of which no other cell would know better
        raise
    except PrivfedError as error:
        return str(error)
    except Exception as error:  # noqa: BLE001 - a plugin may raise anything
        if os.environ.get("PRIVFED_TRACEBACK"):
            traceback.print_exc()
        return f"internal error ({type(error).__name__})"
    return ""


def _prepared(cell: Cell) -> simulation.AnyPrepared:
    """Load a cell's data (StudyError: a file is no longer the one that its key was made from)."""
    prepared = simulation.prepare(cell.study)
    if Cell(cell.study).key != cell.key:
        raise StudyError(
            "the data, the schema or the policy's file was changed while the sweep ran; run the same command again"
        )
    return prepared


def _run(cell: Cell, output: Output, attacked: bool) -> None:
    study, started = cell.study, perf_counter()
    _reset_memory()
    stamped, prepared = assembly.stamp(study), _prepared(cell)
    study.to_toml(output.folder / "study.toml")
    write_text(output.folder / assembly.STAMP, stamped)
    simulation.run(prepared, cell.choice, output)
    output.list_files()
    adopted = Policy.from_toml(output.policy(cell.choice.name) / "policy.toml")
    used = {guard.called for guards in adopted.guards.values() for guard in guards}
    params = {
        "factors": {
            **cell.factors,
            "owners": len(prepared.owners),
            "unit": adopted.unit,
            "relation": adopted.relation,
            "accountant": adopted.accountant,
            "mechanism": "+".join(sorted(used)),
            "masked": adopted.masked is not None,
            "delta": None if adopted.budget is None else float(adopted.budget.delta),
            "data digest": cell.content["data"]["source"],
        },
        "made": {
            "run seconds": perf_counter() - started,
            "memory MB": _peak_memory(),
            "version": __version__,
            "commit": commit(),
        },
        "attacks": None,
    }
    _write(output, params)
    if attacked:
        _attack(cell, output, prepared, params)


def _attack(
    cell: Cell, output: Output, prepared: simulation.AnyPrepared, params: dict[str, Any]
) -> None:
    """Attack a cell's releases, audit its mechanisms, and rewrite its figures."""
    assembly.attack_releases(prepared, output, None, quiet=True)
    if failed := assembly.gather(output).failed:
        raise StudyError(*failed)
    _write(output, {**params, "attacks": cell.attacks})


def _write(output: Output, params: Mapping[str, Any]) -> None:
    figures = figures_of(assembly.gather(output).policies[0])
    for file, data in ((PARAMS, params), (METRICS, figures)):
        write_text(output.folder / file, json.dumps(data, indent=1, allow_nan=False) + "\n")


def figures_of(policy: PolicyReport) -> dict[str, Any]:
    """Return a run's figures in columns.

    ``epsilon`` is the budget (None without a guarantee), ``claimed`` the proven epsilon of the whole exchange,
    ``bound`` the maximum TPR of any attack at 1 % FPR, ``found`` the largest one that an attack measured over the
    records (.01 by chance; 1 if all were released), ``worst record`` the one expected, over draws of noise, for the record
    that the releases expose most, ``area`` the largest area under an attack's ROC curve (.5 by chance),
    ``audited`` the largest epsilon that outputs of one mechanism
    prove, ``audited training`` the one that whole trainings prove, if the study audits them; ``attack X`` the
    success of attack X, from the baseline without releases (0) to its maximum (1). ``scored`` marks scores that are
    means over clients, each by its own model and beside its own constant; ``held out`` is the number of held-out records.
    """
    metrics, budget = policy.metrics, policy.account.policy.budget
    finite = policy.account.finite
    proved = policy.epsilon if finite else None
    return {
        "epsilon": proved if budget is None or not finite else float(budget.epsilon),
        **{key: metrics.get(key) for key in ("measure", "better", "value", "baseline")},
        "scored": OWN if metrics.get("personal") else None,
        "held out": metrics.get("held_out"),
        **{score.name: score.value for score in policy.scores[1:]},
        **{f"constant {score.name}": score.constant for score in policy.scores[1:]},
        "claimed": proved,
        "spent": policy.so_far if finite else None,
        "bound": policy.detection,
        **_attack_columns(policy.findings),
        "released": policy.released,
        "unprotected": policy.unprotected,
        "bytes": sum(client.bytes for client in policy.clients),
        "queries": metrics.get("queries", metrics.get("questions")),  # see _RENAMED
        **{key: metrics.get(key) for key in ("rounds", "seconds", "stopped")},
        "notes": NEXT.join(metrics.get("warnings", [])) or None,
        "secure": policy.secure,
    }


def _attack_columns(findings: Sequence[Finding]) -> dict[str, float]:
    """Return columns of the results of attacks and audits; an attack that did not look has none."""
    looked = [finding for finding in findings if finding.state != "not looked"]
    audits = [finding for finding in looked if finding.metric.startswith("epsilon proven")]
    columns: dict[str, float] = {}
    for name, value in (figure for finding in looked for figure in _members_found(finding)):
        columns[name] = max(columns.get(name, 0.0), value)
    for finding in audits:
        name = "audited training" if "answers" in finding.detail else "audited"
        columns[name] = max(columns.get(name, 0.0), finding.value)
    for finding in looked:
        if not finding.attack.startswith((*AUDITS, "coverage")):
            name, baseline = f"attack {finding.attack}", finding.baseline or 0.0
            limit = finding.of or max(finding.value, baseline + 1.0)
            score = (finding.value - baseline) / (limit - baseline) if limit > baseline else 0.0
            columns[name] = max(columns.get(name, 0.0), score)
    return columns


def _members_found(finding: Finding) -> Iterator[tuple[str, float]]:
    """Yield an attack's figures on membership, by their column: see :func:`figures_of`."""
    if finding.measure == "area":
        yield "area", finding.value
        rates = finding.detail.get(FOUND_AT, {})
        if "1 %" in rates and "note" not in finding.detail:  # of too few records or draws
            yield "found", rates["1 %"]
    elif finding.measure == "found at 1 %":
        expected = finding.attack.startswith(WorstRecord.name)
        yield "worst record" if expected else "found", finding.value
    elif finding.metric == WHOLE_RECORDS and finding.of:
        yield "found", finding.value / finding.of


def _reset_memory() -> None:
    """Reset the process's peak memory (Linux only)."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def _peak_memory() -> float | None:
    """Return the process's peak memory since the last reset, MB; None if the system does not report it."""
    with suppress(OSError):
        for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1000
    return None
