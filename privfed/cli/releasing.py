"""The command that decides by rule whether a model may be released, and checks certificates."""

from pathlib import Path

import click

from privfed.cli.common import BREACH, FINE, PATH
from privfed.errors import InputError


@click.command()
@click.argument("paths", nargs=-1, required=True, type=PATH)
@click.option("--check", is_flag=True, help="Check CERTIFICATE for MODEL, offline.")
@click.option("--policy", default="", help="The policy whose model leaves; default: the only one.")
@click.option("--thresholds", type=PATH, help="The officer's file of thresholds.")
@click.option("--approver", default="", help="The person who approves, by name.")
@click.option("--key", type=PATH, help="The officer's key; with --check its public part.")
@click.option("--out", type=PATH, help="Where to write the certificate.")
def release(
    paths: tuple[Path, ...],
    check: bool,
    policy: str,
    thresholds: Path | None,
    approver: str,
    key: Path | None,
    out: Path | None,
) -> int:
    """Decide by rule whether the model in FOLDER may leave. A certificate records the decision.

    \b
    privfed release FOLDER --thresholds thresholds.toml
    privfed release FOLDER --thresholds thresholds.toml --approver NAME --key officer.key --out certificate.json
    privfed release --check certificate.json model.json --key officer.key.pub

    Exit status 1: it may not.
    """
    if check:
        return _check(paths, key, thresholds)
    if len(paths) != 1 or thresholds is None:
        raise InputError("write privfed release FOLDER --thresholds thresholds.toml")
    return _certify(paths[0], policy, thresholds, approver, key, out)


def _check(paths: tuple[Path, ...], key: Path | None, thresholds: Path | None) -> int:
    from privfed.reports import check_certificate

    if len(paths) != 2:
        raise InputError("write privfed release --check CERTIFICATE MODEL --key officer.key.pub")
    options = [("--key", key), ("--thresholds", thresholds)]
    arguments = [word for name, path in options if path is not None for word in (name, str(path))]
    return check_certificate.main([*map(str, paths), *arguments])


def _certify(
    folder: Path, policy: str, thresholds: Path, approver: str, key: Path | None, out: Path | None
) -> int:
    from privfed.reports.certificate import certificate, signed, written
    from privfed.reports.check_certificate import MET, UNKNOWN
    from privfed.study.assembly import gather
    from privfed.study.output import FILES, Output, write_text

    if out is not None and out.exists():
        raise InputError(f"--out {out}: exists already; name another file")
    output = Output.opened(folder)
    if edited := output.edited():
        raise InputError(
            f"{', '.join(edited)} in {folder}: not as the study wrote it, and a certificate is made from what it wrote; "
            "run the study again"
        )
    if (listed := output.listed()) is None:
        raise InputError(
            f"{folder}: has no {FILES}, which the study wrote and a certificate states, so an edit would not be noticed; "
            "run the study again"
        )
    names = output.policies
    if not policy and len(names) > 1:
        raise InputError(f"the study has several models; write --policy {' or '.join(names)}")
    name = policy or names[0]
    model = output.policy(name) / "model.json"
    document = certificate(gather(output), name, model, thresholds, approver=approver)
    document["files"] = listed
    for row in document["criteria"]:
        mark = {MET: "ok", UNKNOWN: "??"}.get(row["state"], "NO")
        click.echo(f"{mark} {row['criterion']:32} {row['found']:34} required: {row['required']}")
    if document["decision"] != "release":
        click.echo("refused: not every criterion is met (NO: not met; ??: not examined)")
    elif key is None:
        click.echo("may leave once a person approves: write --approver NAME --key KEY --out FILE")
    else:
        document = signed(document, key)
        click.echo(f"release: {model}, approved by {approver}")
    if out is not None:
        write_text(out, written(document))
        click.echo(f"certificate: {out}{'' if 'signature' in document else ', unsigned'}")
    return FINE if document["decision"] == "release" else BREACH
