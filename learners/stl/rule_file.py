"""Rule files: one formula per line; empty lines and lines that start with ``#`` are skipped."""

from collections.abc import Iterable
from pathlib import Path

from privfed.errors import InputError
from privfed.learners.stl.canonical import canonical
from privfed.learners.stl.formula import Formula, RuleError, show
from privfed.learners.stl.grammar import Grammar
from privfed.learners.stl.parser import parse

ENDINGS = (".stl", ".txt")  #: Ends of rule files' names


def read_rules(path: str | Path, grammar: Grammar) -> list[Formula]:
    """Read a client's rules in canonical form (RuleError: names the line, without its text)."""
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise RuleError(f"rule file {path}: {type(error).__name__}; give a text file") from None
    return parse_rules(lines, grammar, f"rule file {path}")


def parse_rules(lines: Iterable[str], grammar: Grammar, where: str = "rules") -> list[Formula]:
    """Read rules from lines of text; see :func:`read_rules`."""
    rules = []
    for number, line in enumerate(lines, start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        try:
            rule = canonical(parse(line))
            grammar.structure(rule)
            check_parameters(rule)
        except RuleError as error:
            raise RuleError(f"{where}, line {number}: {error}") from None
        rules.append(rule)
    return rules


def check_parameters(rule: Formula) -> None:
    """Check that a client's rule has no open threshold or interval."""
    if "?" in show(rule):
        raise RuleError("a client's rule must be complete, without '?'")


def write_rules(path: str | Path, rules: Iterable[Formula]) -> None:
    """Write rules so that :func:`read_rules` restores them exactly."""
    text = "".join(f"{show(rule)}\n" for rule in rules)
    Path(path).write_text(text, encoding="utf-8")


def rule_files(folder: Path) -> list[Path]:
    """Return a folder's files, one per individual, by name (InputError: none, or two of one)."""
    if not folder.is_dir():
        raise InputError(f"folder {folder}: there is none; name a folder of rule files")
    files = sorted(path for path in folder.iterdir() if path.suffix in ENDINGS)
    if not files:
        raise InputError(
            f"folder {folder}: holds no rule file; write one .stl file for each "
            "individual, one formula a line"
        )
    if len({path.stem for path in files}) != len(files):
        raise InputError(f"folder {folder}: two files are of one individual; keep one")
    return files
