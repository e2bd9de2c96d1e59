"""Makes the documentation's pictures anew: python docs/pictures.py (needs Chromium on the path)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from shutil import which
from tempfile import TemporaryDirectory

IMAGES = Path(__file__).resolve().parent / "images"


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


if __name__ == "__main__":
    IMAGES.mkdir(exist_ok=True)
    with TemporaryDirectory() as folder:
        out = Path(folder) / "audit"
        command = Path(sys.executable).parent / "privfed"
        subprocess.run([command, "audit", "--out", out], check=True)
        screenshot(out / "report.html", IMAGES / "report.png")
