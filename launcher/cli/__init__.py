"""The command line: parse, dispatch, print, exit; nothing else."""

from launcher.cli.main import main

__all__ = ["main"]
