"""A study on Flower: its ServerApp, and the folder for `flwr run`."""

from __future__ import annotations

import logging
from functools import partial
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING

from privfed.errors import InputError, PrivfedError
from privfed.exchange.channel import RetryLimits
from privfed.study import Study
from privfed.study.deployed import Deployment
from privfed.study.output import check_empty

if TYPE_CHECKING:
    from flwr.app import Context
    from flwr.serverapp import Grid, ServerApp


def server_app() -> ServerApp:
    """Build the ServerApp that runs a study, configured by ``--run-config``.

    Its keys: ``study`` (the study's file), ``out`` (the output folder), ``policy`` (default: the first),
    ``deadline`` (seconds to wait for an owner's reply).
    """
    from flwr.serverapp import ServerApp

    from privfed.engines.flower import FlowerDisclosure

    app = ServerApp()

    def main(grid: Grid, context: Context) -> None:
        config = context.run_config
        study = Study.from_toml(str(config["study"]))
        chosen = Deployment.of(study, str(config["out"]), str(config["policy"]))
        patience = RetryLimits(deadline=float(config["deadline"]))
        chosen.run(partial(FlowerDisclosure, grid), patience=patience)

    app.main()(main)
    logging.getLogger("flwr").addFilter(_in_a_line)
    return app


def _in_a_line(record: logging.LogRecord) -> bool:
    """Shorten Flower's log record of a stopped study to one line without traceback."""
    error = record.exc_info[1] if record.exc_info else None
    if isinstance(error, PrivfedError):
        record.msg, record.args, record.exc_info = f"privfed: {error}", (), None
    return True


def write_skeleton(folder: Path, study: Path | None = None, out: Path | None = None) -> None:
    """Write an app for `flwr run` into a new folder, whose name becomes the app's.

    ``study`` and ``out`` are defaults of its configuration.
    """
    name = folder.resolve().name
    if not name.replace("-", "").isalnum() or not name[0].isalpha() or name.lower() != name:
        raise InputError(f"{folder}: name the folder with small letters, digits and hyphens")
    check_empty(folder)
    package = name.replace("-", "_")
    values = {
        "name": name,
        "package": package,
        "study": (study or Path("study.toml")).resolve(),
        "out": (out or Path("out")).resolve(),
    }
    for template in (files("privfed.study") / "flower_app").iterdir():
        file = template.name.removesuffix(".in")
        path = folder / package / file if file.endswith(".py") else folder / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(Template(template.read_text("utf-8")).substitute(values), encoding="utf-8")
