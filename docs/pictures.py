"""Makes the documentation's pictures anew: python docs/pictures.py (a report's needs Chromium on the path)."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from html import escape
from pathlib import Path
from shutil import which
from tempfile import TemporaryDirectory

from matplotlib import rc_context
from matplotlib.figure import Figure

ROOT = Path(__file__).resolve().parent.parent
IMAGES = Path(__file__).resolve().parent / "images"


def imports() -> dict[str, set[str]]:
    """Which rooms each room imports."""
    found: dict[str, set[str]] = {}
    for init in sorted((ROOT / "privfed").glob("*/__init__.py")):
        room = init.parent.name
        trees = [ast.parse(path.read_text(encoding="utf-8")) for path in init.parent.rglob("*.py")]
        names = [
            node.module.split(".")[1]
            for tree in trees
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("privfed.")
        ]
        found[room] = set(names) - {room, "errors"}
    return {room: others & found.keys() for room, others in found.items()}


def house(image: Path) -> None:
    """Draw every room above those that it imports, and a line to each that nothing between imports."""
    of = imports()
    floor: dict[str, int] = {}
    while len(floor) < len(of):
        for room in sorted(of.keys() - floor.keys()):
            if of[room] <= floor.keys():
                floor[room] = 1 + max((floor[one] for one in of[room]), default=-1)
    rows = [
        sorted(room for room in of if floor[room] == at) for at in range(max(floor.values()) + 1)
    ]
    place = {
        room: ((n + 0.5) / len(row), at)
        for at, row in enumerate(rows)
        for n, room in enumerate(row)
    }
    with rc_context({"svg.hashsalt": "privfed", "svg.fonttype": "none"}):
        figure = Figure(figsize=(9, 0.75 * len(rows)), layout="constrained")
        axes = figure.subplots()
        for room, others in of.items():
            direct = {one for one in others if not any(one in of[two] for two in others)}
            for one in sorted(direct):
                (x, y), (x2, y2) = place[room], place[one]
                axes.plot([x, x2], [y - 0.16, y2 + 0.16], color="#9aa5b1", lw=1, zorder=1)
        for room, (x, y) in place.items():
            size = sum(
                len(f.read_text().splitlines()) for f in (ROOT / "privfed" / room).rglob("*.py")
            )
            axes.text(
                x, y, f"{room}  {size / 1000:.1f}k", ha="center", va="center", fontsize=9, zorder=2,
                bbox={"boxstyle": "round,pad=0.4", "facecolor": "#e8f3f6", "edgecolor": "#1f6f8b"},
            )  # fmt: skip
        axes.set(xlim=(0, 1), ylim=(-0.5, len(rows) - 0.5))
        axes.axis("off")
        figure.savefig(image, metadata={"Date": None})


def screenshot(page: Path, image: Path, width: int = 1280, height: int = 900) -> None:
    """Take a picture of a page's first screen."""
    browser = which("chromium") or which("chromium-browser") or which("google-chrome")
    if browser is None:
        raise SystemExit("no Chromium on the path")
    subprocess.run(
        [
            browser,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--hide-scrollbars",
            f"--window-size={width},{height}",
            f"--screenshot={image}",
            page.as_uri(),
        ],
        check=True,
        capture_output=True,
    )


def badges() -> str:
    """Draw what pyproject.toml states: Python, licence, typing, state."""
    stated = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    project, strict = stated["project"], stated["tool"]["mypy"]["strict"]
    released = f"## {project['version']}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    facts = [f"Python {project['requires-python']}", project["license"]]
    facts += [f"{project['version']}{'' if released else ', not released yet'}"]
    facts += ["types: mypy --strict"] if strict else []
    shapes, left = [], 0
    for fact in facts:
        width = 16 + 7 * len(fact)
        shapes.append(
            f'<rect x="{left}" width="{width}" height="22" rx="4" fill="#1f6f8b"/>'
            f'<text x="{left + width / 2}" y="15" text-anchor="middle" fill="#fff">{escape(fact)}</text>'
        )
        left += width + 6
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{left}" height="22" '
        f'font-family="sans-serif" font-size="12"><title>{escape(", ".join(facts))}</title>'
        f"{''.join(shapes)}</svg>\n"
    )


if __name__ == "__main__":
    IMAGES.mkdir(exist_ok=True)
    (IMAGES / "badges.svg").write_text(badges(), encoding="utf-8")
    house(IMAGES / "architecture.svg")
    with TemporaryDirectory() as folder:
        out = Path(folder) / "audit"
        command = Path(sys.executable).parent / "privfed"
        subprocess.run([command, "audit", "--out", out], check=True)
        screenshot(out / "report.html", IMAGES / "report.png")
