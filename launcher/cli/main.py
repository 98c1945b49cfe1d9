"""Entry point of the ``launch`` command."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from launcher.cli.parser import parse
from launcher.errors import LaunchError

if TYPE_CHECKING:
    from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``launch`` and return its exit code; a user's mistake never gives a traceback, a bug always does."""
    words = sys.argv[1:] if argv is None else list(argv)
    as_json = "--json" in words
    try:
        line = parse(words)
        from launcher.cli import verbs

        return verbs.VERBS[line.verb](line)
    except LaunchError as error:
        if as_json:
            import json

            print(json.dumps({"error": type(error).__name__, "message": str(error), "exit_code": error.exit_code}))
        else:
            for text in str(error).splitlines():
                print(f"launch: {text}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("launch: interrupted; a change under way on a host goes on there: launch status", file=sys.stderr)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(130)  # threads that still wait for hosts would hold a normal exit for minutes
    except BrokenPipeError:
        sys.stderr.close()
        return 1
