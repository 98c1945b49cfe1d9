"""What a shell may offer at the cursor of a ``launch`` command line.

Called at each press of TAB, so nothing here imports Hydra or OmegaConf, and no YAML is parsed: files are listed by
name, keys and values come from the schema and the catalogues. Libraries were looked at: shtab writes a fixed script
from the flags alone, and argcomplete completes the flags of argparse, while nearly every word here is a name or an
override with a grammar of its own; both would leave all of this to be written, and the scripts are twenty lines each.
"""

from __future__ import annotations

from pathlib import Path

SHELLS = ("bash", "zsh", "fish")


def script(shell: str) -> str:
    """Return what one of the shells has to read once."""
    return Path(__file__).with_name(f"launch.{shell}").read_text(encoding="utf-8")
