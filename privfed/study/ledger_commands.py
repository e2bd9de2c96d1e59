"""Commands on ledgers by path: one file, a folder, or a study's output."""

from __future__ import annotations

import shlex
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote

from privfed.audits.noise import audit_noise
from privfed.errors import InputError, LedgerError, Note, number_of, unknown
from privfed.exchange.messages import Head
from privfed.ledger import Ledger
from privfed.ledger.registry import Registry
from privfed.ledger.secret import beside
from privfed.ledger.statement import Line, printable
from privfed.ledger.verified_file import Verified, verified
from privfed.owner.local_store import LocalStore
from privfed.owner.noise_monitor import ENDING, read_tally
from privfed.privacy.accountant import Accountant, Amount, Budget, plus
from privfed.privacy.policy import Policy
from privfed.privacy.policy_objects import installed_accountant
from privfed.questions.exact import at_delta, shown, shown_down
from privfed.study.output import STUDY, Output
from privfed.study.persistent_ledgers import PersistentLedgers, files_in
from privfed.study.price import percent_of


def is_database(path: Path) -> bool:
    """Whether a file has SQLite's header."""
    with path.open("rb") as file:
        return file.read(16) == b"SQLite format 3\0"


def check_ledger_file(path: Path) -> None:
    """Check that a file is named as a ledger or is a database (InputError: it is neither)."""
    if path.suffix != ".db" and not is_database(path):
        raise InputError(f"{path}: is not a ledger; give a ledger's .db file, or a study's output")


def check_ledger(path: Path) -> None:
    """Check that a ledger's file exists (InputError: it does not, or is no ledger)."""
    if not path.is_file():
        raise InputError(f"{path}: there is no such ledger; give a .db file")
    check_ledger_file(path)


def is_ledger_path(path: Path, policy: str | None = None) -> bool:
    """Whether a path is one ledger's file, or a folder of them instead of a study's output; InputError: of a policy."""
    has_ledgers = path.is_file() or (not (path / STUDY).is_file() and bool(files_in(path)))
    if has_ledgers and policy is not None:
        raise InputError(
            f"--policy {policy}: {path} holds ledgers, which are of no single policy; leave it out, or give the "
            "--out of `privfed audit`"
        )
    return has_ledgers


def chosen(path: Path, client: str | None) -> dict[str, Path]:
    """Return the ledgers of a plain folder, or the file itself, by data owner; or InputError."""
    if path.is_file():
        check_ledger_file(path)
        return {path.stem: path}
    files = files_in(path)
    if not files:
        raise InputError(f"folder {path}: holds no ledgers; give a folder of .db files, or one")
    if client is not None and client not in files:
        raise InputError(unknown("client", client, files))
    return files if client is None else {client: files[client]}


class LedgerAt(NamedTuple):
    """A ledger at a path, and its heads that were published there."""

    policy: str  #: in a study's output; empty elsewhere
    owner: str  #: by the file's name
    path: Path | None  #: None if a ledger that answered before is missing
    heads: list[Head]

    @property
    def name(self) -> str:
        """Its owner, with the policy in a study's output."""
        return f"{self.policy}, {self.owner}" if self.policy else self.owner


def ledgers_at(path: Path, policy: str | None, client: str | None) -> list[LedgerAt]:
    """Return the ledgers of an output or a plain folder, or the file itself; or InputError."""
    if is_ledger_path(path, policy):
        if path.is_file() or client is not None:
            return [LedgerAt("", owner, file, []) for owner, file in chosen(path, client).items()]
        return list(expected_ledgers(path, Registry()))
    policies = Output.opened(path).policies
    if policy is not None and policy not in policies:
        raise InputError(unknown("policy", policy, policies))
    present = [
        entry for entry in expected_ledgers(path, Registry(), policy) if entry.path is not None
    ]
    owners = {entry.owner for entry in present}
    if client is not None and client not in owners:
        raise InputError(unknown("client", client, sorted(owners)))
    return [entry for entry in present if client in (None, entry.owner)]


def expected_ledgers(
    folder: Path, registry: Registry, policy: str | None = None
) -> Iterator[LedgerAt]:
    """Yield the ledgers that a folder should have, including missing ones."""
    ledgers = PersistentLedgers(folder.resolve())
    lost = {
        unquote(entry.path.stem): entry.head
        for entry in registry.under(folder)
        if not entry.path.is_file()
    }
    if is_ledger_path(folder) or (
        not (folder / STUDY).is_file() and (lost or ledgers.earlier_heads_file.is_file())
    ):
        files = {
            owner: path for owner, path in files_in(folder.resolve()).items() if _has_rows(path)
        }
        heads = {**lost, **ledgers.earlier_heads()}
        for owner in dict.fromkeys([*files, *heads]):
            yield LedgerAt("", owner, files.get(owner), [heads[owner]] if owner in heads else [])
        return
    output = Output.opened(folder)
    for name in output.policies if policy is None else (policy,):
        seen, files = output.heads(name), output.ledger_files(name)
        for owner in dict.fromkeys([*files, *seen]):
            yield LedgerAt(name, owner, files.get(owner), [seen[owner]] if owner in seen else [])


def _has_rows(path: Path) -> bool:
    """Whether a file holds rows; also True if it cannot be read, which its verification reports."""
    try:
        return Ledger.begun(path)
    except LedgerError:
        return True


def check_exists(path: Path | None, heads: Sequence[Head]) -> Path:
    """Return the file of a ledger that answered before (LedgerError: it is missing)."""
    if path is None:
        raise LedgerError(f"it answered before (head {heads[0]}), and there is no such file")
    return path


def amendments(path: Path, epsilon: str, delta: str | None) -> tuple[str, dict[str, Policy]]:
    """Return a ledger's owner, and each study's policy with another budget; nothing is written.

    PolicyError: more than that budget was spent or reserved. LedgerError: see :func:`writable`.
    """
    with opened(path), writable(path) as ledger:
        changed = {}
        for study, policy in ledger.policies().items():
            value = delta if delta is not None else (policy.budget.delta if policy.budget else 0)
            changed[study] = replace(policy, budget=Budget.of(epsilon, value))
            ledger.has_in_force(changed[study], study, amend=True)
        if not changed:
            raise InputError(
                f"{path}: holds no policy yet; the first study's budget will be in force"
            )
        return ledger.dataset, changed


def amended(paths: Iterable[Path], epsilon: str, delta: str | None) -> Iterator[str]:
    """Set the budget of all studies in several ledgers, all or none; yield a line for each."""
    changes = {path: amendments(path, epsilon, delta) for path in paths}
    for path, (dataset, policies) in changes.items():
        with writable(path) as ledger:
            for study, policy in policies.items():
                ledger.adopt(policy, study, amend=True)
        budget = policy.budget
        assert budget is not None
        yield f"{dataset}: {budget} is in force from now on, recorded as an amendment"


@contextmanager
def writable(path: Path, key: bytes | None = None) -> Iterator[Ledger]:
    """Open a verified ledger for writing, by its owner's decision; ``key`` signs it now.

    LedgerError: it is a copy, whose chain would fork from the ledger's, or does not verify.
    """
    check_ledger(path)
    registry = Registry()
    state = verified(path, registry)
    if state.copy_of is not None:
        raise LedgerError(
            f"ledger {path}: is a copy of {state.copy_of}, which is still there, and a copy is never written; "
            "give that one's path"
        )
    dataset = state.dataset
    remembered = None if registry.at(path) is None else registry
    with closing(Ledger(path, dataset, key=key, registry=remembered)) as ledger:
        yield ledger


@contextmanager
def opened(path: Path, heads: Iterable[Head] = ()) -> Iterator[Ledger]:
    """Verify a ledger's file against all its known heads, and open it for reading."""
    check_ledger_file(path)
    state = verified(path, Registry(), heads)
    if state.copy_of is not None:
        warnings.warn(
            f"{path} is a copy of {state.copy_of}, which holds what is spent", Note, stacklevel=3
        )
    elif not state.known:
        warnings.warn(f"{path}: {UNKNOWN}", Note, stacklevel=3)
    with closing(Ledger.read(path)) as ledger:
        yield ledger


UNKNOWN = "no head of it is known here, so an older copy would not be noticed"


def intact(state: Verified) -> str:
    """Format the result of verifying a ledger."""
    known = "" if state.known else f", and {UNKNOWN}"
    if state.copy_of is not None:
        known = f", a copy of {state.copy_of}, which holds what is spent"
    keys = "".join(
        f"; at row {row} a key was replaced without its signature" for row in state.unvouched
    )
    refusal = "" if state.secret_fault is None else f"; but no gate opens it: {state.secret_fault}"
    return f"{number_of(state.head.seq, 'row')}, head {state.head}{known}{keys}{refusal}"


def budget(ledger: Ledger, by: str | None, *, named: bool = False) -> str:
    """Format what is spent, reserved and remaining, one line per value of an aspect."""
    owner = f"{ledger.dataset}: " if named else ""
    lines = ledger.budget(by)
    in_force = None if lines[0].unprotected else currency(ledger)
    by_study = {} if in_force is None else dict(_study_shares(ledger, *in_force))
    rows = [] if by == "study" else list(by_study.values())
    for line in lines:
        taken = "" if line.by == "all" or line.share else share_of(ledger, line)
        rows.append(_format_line(line, by_study.pop(line.name, "") if line.share else "", taken))
    rows += by_study.values() if by == "study" else ()  # what charged nothing yet
    rest = remaining_text(ledger)
    rows += [_in_force(ledger, *in_force)] if in_force else []
    rows += filter(None, [rest and f"remaining: {rest}", not_installed(ledger), closed(ledger)])
    return "\n".join(owner + line for line in rows)


def _in_force(ledger: Ledger, accountant: Accountant, budget: Budget, ceiling: Amount) -> str:
    """Format the budget in force: what percentages are of, and whether it was amended.

    In the unit that adds up it is rounded up, as what is spent of it.
    """
    unit = accountant.components[0]
    of = "" if unit == "epsilon" else f", which is {unit} {shown(ceiling[0])}"
    amended = "; it replaced an earlier one after the first charge" if ledger.amended else ""
    return f"budget in force: {budget}{of}{amended}"


def share_of(ledger: Ledger, line: Line) -> str:
    """Format a line's fraction of the budget in the accountant's currency; empty if there is none."""
    in_force = None if line.unprotected else currency(ledger)
    total = plus(line.spent, line.reserved)
    return "" if in_force is None else percent_of(total, in_force[2])


def remaining_text(ledger: Ledger) -> str:
    """Format the budget that is neither reserved nor spent; empty if there is none."""
    total = ledger.budget()[0]
    in_force = None if total.unprotected else currency(ledger)
    if in_force is None:
        return ""
    accountant, budget, ceiling = in_force
    taken = ledger.taken(accountant)
    room = accountant.left(taken, budget)
    if not room:
        return "nothing"
    fraction = percent_of(taken, ceiling, rest=True)
    return f"{fraction} of the budget, room for a study of epsilon {shown_down(room)}{at_delta(budget.delta)}"


def closed(ledger: Ledger) -> str:
    """Report that a protected query failed, as recorded in the owner's local store; empty if none did."""
    with closing(LocalStore.beside(ledger.path, ledger.dataset)) as shelf:
        failures, faults = shelf.faults_ever, shelf.faults
    if not failures:
        return ""
    kinds = ", ".join(f"{kind} {count}" for kind, count in failures.items())
    message = f"NO FINITE GUARANTEE: a protected query failed ({kinds}), and no epsilon covers what the failure revealed"
    remedy = f"; the gate is closed: once its cause is corrected, privfed ledger reopen {shlex.quote(str(ledger.path))}"
    return message + remedy * bool(faults)


def reopen(path: Path) -> str:
    """Reopen a gate that closed after a protected query failed; return a line that reports it."""
    with opened(path) as ledger:
        dataset = ledger.dataset
    with closing(LocalStore.beside(path, dataset)) as shelf:
        if not shelf.faults:
            return f"{dataset}: its gate is open"
        shelf.clear_faults()
    return f"{dataset}: open again; its budget says from now on that no epsilon covers what the failure revealed"


def sealed(path: Path, study: str) -> str:
    """Seal a study in one ledger, permanently (InputError: the ledger has no such study)."""
    with opened(path) as ledger:
        dataset, blocks, studies = ledger.dataset, ledger.study_blocks(), ledger.policies()
    if study not in blocks and study in studies:
        raise InputError(
            f"{dataset}: study {study!r} reserved no share of the budget; nothing to give back"
        )
    if study not in blocks:
        raise InputError(unknown("study", study, dict.fromkeys([*studies, *blocks])))
    if blocks[study].sealed:
        return f"{dataset}: study {study} was sealed already"
    with writable(path) as writer:
        writer.seal_study(study)
    return f"{dataset}: study {study} is sealed; the unused part of its share is returned to the budget"


#: Explains why a budget statement is in shares.
WHY_SHARES = (
    "shares are of the budget's rho, which adds up over studies. Epsilon does not: "
    "it grows about as the square root of rho. At delta 1e-05, for example, a budget of epsilon 8 minus a study of 6 "
    "leaves room for one of 4.591, not 2 (rho 1.23 minus 0.755 leaves 0.475)"
)


def currency(ledger: Ledger) -> tuple[Accountant, Budget, Amount] | None:
    """Return the accountant, budget and ceiling in force; None without a budget, or if the accountant is not installed."""
    terms = ledger.terms or {}
    accountant = installed_accountant(terms.get("accountant"))
    if accountant is None or terms.get("budget") is None:
        return None
    budget = Budget.of(**terms["budget"])
    return accountant, budget, accountant.ceiling(budget)


def not_installed(ledger: Ledger) -> str:
    """Report that charges cannot be composed because the accountant is not installed; empty if it is."""
    name = (ledger.terms or {}).get("accountant")
    if name is None or installed_accountant(name) is not None:
        return ""
    return f"accountant {name!r} is not installed here, and only it can state what its sums prove: install its package"


def _study_shares(
    ledger: Ledger, accountant: Accountant, budget: Budget, ceiling: Amount
) -> Iterator[tuple[str, str]]:
    """Yield each study with its share, as a fraction of the budget and as its permanent guarantee."""
    for block in ledger.study_blocks().values():
        epsilon, delta = accountant.guarantee(block.share, budget.delta)
        state = "sealed, charged" if block.sealed else "charged so far"
        text = (
            f"study {block.study}: a share of {percent_of(block.share, ceiling)}, {state} "
            f"{percent_of(block.spent, ceiling)} of the budget; epsilon {shown(epsilon)}{at_delta(delta)} given "
            "everything before it, for any later queries"
        )
        yield block.study, text


def noise(name: str, path: Path, ledgers: int = 1, heads: Iterable[Head] = ()) -> tuple[str, bool]:
    """Test whether the noise of a ledger's releases followed the laws that were charged.

    Reads the sums that the owner's gate keeps in the ledger's folder. ``ledgers`` is the number tested together;
    ``heads`` are known heads of this one.

    Returns:
        one line for the owner only, and whether a test rejects the noise.
    """
    with opened(path, heads) as ledger:
        owner, total = ledger.dataset, ledger.budget()[0]
    tally = beside(path, ENDING)
    if not tally.is_file() and total.releases > total.unprotected:
        why = (
            f"{tally.name} is not in its folder: the sums of noise stay with the owner's own ledger"
        )
        return f"{name}: NOT LOOKED, {why}", False
    findings = audit_noise({owner: read_tally(path, owner)}, policies=ledgers)
    if not findings:
        return f"{name}: NOT LOOKED, its gate watched no noise", False
    (finding,) = findings
    cells, detail = finding.detail["cells"], finding.detail
    partial = f"; {finding.partial}" if finding.partial else ""
    if finding.severity == "breach":
        by = ", ".join(detail["convicted"])
        verdict = f"CONVICTED by {by} (p {detail['least p']:.2g}, level {detail['level']:.2g})"
    elif cells:
        verdict = (
            f"none of {int(finding.of or 0)} tests convicts it; they would find Gaussian noise too narrow by a factor of "
            f"{detail['narrower gaussian found with chance .8']:.3g}, or Laplace noise by "
            f"{detail['narrower laplace found with chance .8']:.3g}, with probability .8"
        )
    else:
        verdict = "NOT LOOKED"
    return (
        f"{name}: {number_of(cells, 'cell')} of noise; {verdict}{partial}",
        finding.severity == "breach",
    )


def _is_loose(line: Line) -> bool:
    """Whether the proven bound reaches the budget although over 1 % of the budget remains."""
    budget, remaining = line.budget, line.remaining
    if budget is None or remaining is None or line.epsilon is None:
        return False
    return line.epsilon >= budget.epsilon and remaining > budget.epsilon / 100


def _format_line(line: Line, share: str = "", taken: str = "") -> str:
    """Format one line of a budget statement; a study's share, if any, comes first.

    ``taken`` is the line's fraction of the budget.
    """
    label = printable(f"{line.by} {line.name}".strip())
    if line.unprotected:
        return f"{label}: NO FINITE GUARANTEE, {line.unprotected} of {line.releases} unprotected"
    names = line.components or [f"amount {n}" for n, _ in enumerate(line.spent, 1)]
    pairs = list(zip(names, line.spent, line.reserved, strict=False))
    # no delta where none is spent
    pairs = pairs[:1] + [pair for pair in pairs[1:] if any(pair[1:])]
    parts = [number_of(line.releases, "charge")]
    parts += [f"{name} {shown(s)} spent + {shown(r)} reserved" for name, s, r in pairs]
    parts += [f"{taken} of the budget"] if taken else []
    if line.epsilon is not None and not share:
        proven = " (a loose bound: it holds wherever a study stops)" if _is_loose(line) else ""
        alone = "by itself " if line.alone else ""
        at = at_delta(line.delta)
        parts.append(f"{alone}at most epsilon {shown(line.epsilon)} so far{at}{proven}")
    if line.ceiling is not None:
        parts.append(f"epsilon {shown(line.ceiling)} for any further queries")
    if line.remaining is not None and line.by != "all":
        parts.append(f"epsilon {shown_down(line.remaining)} remaining")
    if line.basis_in_words:
        parts.append(line.basis_in_words)
    if not line.secure:
        parts.append("TEST NOISE, which protects nobody")
    return (share or label) + ("; " if share else ": ") + "; ".join(parts)
