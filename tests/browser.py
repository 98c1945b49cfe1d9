"""A real browser for what is shown in one: headless Chromium, driven by a page that measures another."""

from __future__ import annotations

import base64
import html
import json
import os
import re
import shutil
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome")
DARK, LIGHT = 0, 1
_FLAGS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run")
_QUIET = ("--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-extensions")
#: Each frame holds the page at one width; being ``srcdoc``, it may be looked into.
_WRAPPER = """<!doctype html><meta charset="utf-8"><body>{frames}<script>
const measure = (window, document) => {{ {script} }};
addEventListener("load", () => setTimeout(() => {{
  const told = {{}};
  try {{ told.pages = [...document.querySelectorAll("iframe")].map(f => measure(f.contentWindow, f.contentDocument)); }}
  catch (error) {{ told.error = String(error.stack); }}
  const bytes = new TextEncoder().encode(JSON.stringify(told));
  document.body.textContent = "TOLD:" + btoa(Array.from(bytes, b => String.fromCharCode(b)).join("")) + ":";
}}, 300));
</script>"""


def find() -> str | None:
    """Return the path of a browser of the Chromium family."""
    return next(filter(None, map(shutil.which, NAMES)), None)


def require() -> str:
    """Return the browser; without one the test is skipped, with LAUNCH_REQUIRE_FLEET=1 it fails."""
    if found := find():
        return found
    reason = f"no browser is installed, none of {', '.join(NAMES)}"
    if os.environ.get("LAUNCH_REQUIRE_FLEET") == "1":
        pytest.fail(f"LAUNCH_REQUIRE_FLEET=1, but {reason}", pytrace=False)
    pytest.skip(reason)


def measure(text: str, widths: Sequence[int], script: str, folder: Path, scheme: int = LIGHT) -> list[Any]:
    """Return what a script finds in a page at each width.

    Args:
        text: the page.
        widths: of the window, in CSS pixels.
        script: body of a function of the page's ``window`` and ``document``; returns what JSON can hold.
        folder: where the browser may write.
        scheme: `DARK` or `LIGHT`, what the page's reader prefers.
    """
    frames = "".join(
        f'<iframe style="width:{width}px;height:900px;border:0" srcdoc="{html.escape(text)}"></iframe>'
        for width in widths
    )
    wrapper = folder / "wrapper.html"
    wrapper.write_text(_WRAPPER.format(frames=frames, script=script), encoding="utf-8")
    profile = f"--user-data-dir={folder / 'profile'}"
    scheme_flag = f"--blink-settings=preferredColorScheme={scheme}"
    command = [require(), *_FLAGS, *_QUIET, profile, scheme_flag, "--virtual-time-budget=5000", "--dump-dom"]
    done = subprocess.run([*command, wrapper.as_uri()], capture_output=True, text=True, timeout=180, check=False)
    told = re.search(r"TOLD:([\w+/=]*):", done.stdout)
    if not told:
        raise AssertionError(f"the browser told nothing (exit {done.returncode}): {done.stderr[-2000:]}")
    answer = json.loads(base64.b64decode(told[1]))
    assert "error" not in answer, answer["error"]
    return list(answer["pages"])
