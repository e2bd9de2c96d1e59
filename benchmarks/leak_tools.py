"""What other tools see of the planted leaks, and of artefacts that are innocent.

python benchmarks/leak_tools.py dump FILE      writes all artefacts as texts (in privfed's environment)
python benchmarks/leak_tools.py TOOL FILE      presidio or detect-secrets, in the tool's own environment

A leak counts as seen where a tool reports anything at all in the artefact; Presidio runs with its
recognisers of patterns alone (its language models are no package).
"""

from __future__ import annotations

import argparse
import json
import logging
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any


def _text(left: Any) -> str:
    """What a person would look at: text as it is, bytes byte by byte, JSON or a repr of the rest."""
    if isinstance(left, Path):
        return str(left)
    if isinstance(left, bytes):
        return left.decode("latin-1")
    if isinstance(left, str):
        return left
    try:
        return json.dumps(left, default=str)
    except TypeError:
        return repr(left)


def dump(file: Path) -> None:
    """The 61 planted leaks of a table of 300 records, and every innocent artefact."""
    import numpy as np
    from innocent import INNOCENT
    from leak_planted import tables
    from planted import PLANTED

    table = tables(300, 0)["plain"]
    planted = {
        name: _text(plant(table, 40, np.random.default_rng(0))) for name, plant in PLANTED.items()
    }
    innocent = {name: _text(of(np.random.default_rng(0))) for name, of in INNOCENT.items()}
    file.write_text(json.dumps({"planted": planted, "innocent": innocent}), encoding="utf-8")


def presidio() -> Callable[[str], list[str]]:
    """Names of the entities found."""
    import spacy
    from presidio_analyzer import AnalyzerEngine
    from presidio_analyzer.nlp_engine import NlpArtifacts, SpacyNlpEngine

    class Blank(SpacyNlpEngine):  # type: ignore[misc]
        def load(self) -> None:
            self.nlp = {"en": spacy.blank("en")}

        def process_text(self, text: str, language: str) -> NlpArtifacts:
            doc = self.nlp[language](text)
            lemmas = [token.text for token in doc]
            return NlpArtifacts([], doc, [token.idx for token in doc], lemmas, self, language)

    logging.disable(logging.ERROR)
    engine = AnalyzerEngine(nlp_engine=Blank())

    def seen(text: str) -> list[str]:
        found = engine.analyze(text[:100_000], language="en", score_threshold=0.5)
        return sorted({one.entity_type for one in found})

    return seen


def detect_secrets() -> Callable[[str], list[str]]:
    """Names of the kinds of secrets found."""
    from detect_secrets import SecretsCollection
    from detect_secrets.settings import default_settings

    def seen(text: str) -> list[str]:
        with tempfile.NamedTemporaryFile("w", suffix=".txt", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            secrets = SecretsCollection()
            with default_settings():
                secrets.scan_file(file.name)
            return sorted({one.type for _, one in secrets})

    return seen


TOOLS = {"presidio": presidio, "detect-secrets": detect_secrets}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "what", choices=["dump", *TOOLS], help="dump in privfed's environment, a tool in its own"
    )
    parser.add_argument("file", type=Path)
    given = parser.parse_args()
    what, path = given.what, given.file
    if what == "dump":
        dump(path)
    else:
        look = TOOLS[what]()
        for group, artefacts in json.loads(path.read_text(encoding="utf-8")).items():
            hits = {name: kinds for name, text in artefacts.items() if (kinds := look(text))}
            print(f"{what}: {len(hits)} of {len(artefacts)} {group}")
            for name, kinds in hits.items():
                print(f"  {name}: {', '.join(kinds)}")
