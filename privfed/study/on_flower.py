"""A study on Flower: its ServerApp, and the folder for `flwr run`."""

from __future__ import annotations

import logging
from functools import partial
from pathlib import Path
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
    """Make the ServerApp that carries out a study, by ``--run-config``.

    Its keys: ``study`` (the study's file), ``out`` (the output folder), ``policy`` (default: the first),
    ``deadline`` (seconds to wait for a silent owner).
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
    """Let Flower say in one line, without a traceback, why a study was stopped."""
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
    files = {
        "pyproject.toml": PROJECT.format(
            name=name,
            package=package,
            study=(study or Path("study.toml")).resolve(),
            out=(out or Path("out")).resolve(),
        ),
        "LICENSE": "Write here under what terms others may use this app.\n",
        "README.md": README.format(name=name),
        f"{package}/__init__.py": f'"""{name}: a study carried out by privfed on Flower."""\n',
        f"{package}/server_app.py": SERVER,
        f"{package}/client_app.py": CLIENT,
    }
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, encoding="utf-8")


PROJECT = """\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "{name}"
version = "0.1.0"
description = "A study carried out by privfed on Flower."
license = {{ file = "LICENSE" }}
requires-python = ">=3.11"
dependencies = ["flwr>=1.41,<1.43", "privfed"]

[tool.hatch.build.targets.wheel]
packages = ["{package}"]

[tool.flwr.app]
publisher = "privfed"
fab-format-version = 1
flwr-version-target = "1.41.0"

[tool.flwr.app.components]
serverapp = "{package}.server_app:app"
clientapp = "{package}.client_app:app"

[tool.flwr.app.config]
study = "{study}"
out = "{out}"
policy = ""      # the study's first, unless named
deadline = 600.0 # seconds to go on asking an owner that is silent
"""
SERVER = '''\
"""The server's side: the study's learner asks the owners' gates."""

from privfed.study.on_flower import server_app

app = server_app()
'''
CLIENT = '''\
"""A node's side: bytes pass through its owner's socket, and nothing else happens here."""

from privfed.engines.flower_node import client_app, node_socket

app = client_app(node_socket)
'''
README = """\
# {name}

    flwr run . --run-config 'study="/path/study.toml" out="/path/out"'

Each node names its owner's socket: `flower-supernode --node-config 'socket="/path/server.sock"' ...`.
"""
