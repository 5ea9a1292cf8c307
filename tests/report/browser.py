"""A real headless Chromium, driven by its command line: what a page becomes once a browser has read it."""

import html
import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--virtual-time-budget=3000",
)
NARROWEST_WINDOW = 500  # Chromium makes no narrower one; a phone is a frame of that width


def chromium() -> str:
    """The browser. Where there is none the test is skipped, except in CI, which is where it must not be missing."""
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if found is None:
        reason = "no Chromium on this machine: install the package chromium"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    return found


def dump(page: str, folder: Path, width: int = 1280, dark: bool = False) -> str:
    """The document that Chromium makes of the page, serialised after its scripts have run."""
    file = folder / "page.html"
    file.write_text(page, encoding="utf-8")
    argv = [chromium(), *_FLAGS, f"--user-data-dir={folder / 'profile'}", f"--window-size={width},900"]
    argv += ["--blink-settings=preferredColorScheme=0"] if dark else []
    run = subprocess.run([*argv, "--dump-dom", file.as_uri()], capture_output=True, text=True, timeout=120, check=True)
    assert "</html>" in run.stdout, run.stderr
    return run.stdout


def ask(page: str, script: str, folder: Path, width: int = 1280, dark: bool = False) -> Any:
    """What `script`, the body of a function, returns in the page.

    The page's policy lets no foreign script run, so it is taken off this copy; tests of the policy use `dump`.
    """
    copy, policies = re.subn(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", page)
    assert policies == 1
    answer_in = "parent.document.documentElement"
    probe = f"<script>{answer_in}.dataset.answer = JSON.stringify((() => {{{script}}})())</script></body>"
    copy = copy.replace("</body>", probe)
    if width < NARROWEST_WINDOW:
        copy = f'<!DOCTYPE html><iframe width="{width}" height="800" srcdoc="{html.escape(copy)}"></iframe></html>'
    dumped = dump(copy, folder, width, dark)
    answer = re.search(r'<html[^>]* data-answer="([^"]*)"', dumped)
    assert answer is not None
    return json.loads(html.unescape(answer[1]))


def console(page: str, folder: Path) -> list[str]:
    """What the page, as it is, makes Chromium write to its console: errors, warnings, and breaches of its policy."""
    file = folder / "page.html"
    file.write_text(page, encoding="utf-8")
    argv = [chromium(), *_FLAGS, "--enable-logging=stderr", f"--user-data-dir={folder / 'profile'}", "--dump-dom"]
    run = subprocess.run([*argv, file.as_uri()], capture_output=True, text=True, timeout=120, check=True)
    return [line for line in run.stderr.splitlines() if ":CONSOLE" in line]
