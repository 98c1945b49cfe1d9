"""Entry point of the ``launch`` command."""

from __future__ import annotations

import errno
import io
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from launcher.cli import completion
from launcher.cli.parser import parse
from launcher.errors import LaunchError

if TYPE_CHECKING:
    from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``launch`` and return its exit code; a user's mistake never gives a traceback, a bug always does."""
    words = sys.argv[1:] if argv is None else list(argv)
    as_json = "--json" in words
    _prepare_output()
    try:
        if words[:1] == [completion.HIDDEN]:
            return completion.answer(words[1:])
        line = parse(words)
        if line.verb == completion.VERB:  # read whenever a shell starts, so without all that the others import
            code = completion.script(line)
        else:
            from launcher.cli import verbs

            code = verbs.VERBS[line.verb](line)
        sys.stdout.flush()
        return code  # noqa: TRY300 - a full disk shows at the flush
    except LaunchError as error:
        if as_json:
            import json

            print(json.dumps({"error": type(error).__name__, "message": str(error), "exit_code": error.exit_code}))
        else:
            for text in str(error).splitlines():
                print(f"launch: {text}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        # A sweep tells by itself what its hosts do.
        is_sweep = not {"-m", "--multirun", "bench"}.isdisjoint(words)
        goes_on = "" if is_sweep else "; a change under way on a host goes on there: launch status"
        print(f"launch: interrupted{goes_on}", file=sys.stderr)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(130)  # threads that still wait for hosts would hold a normal exit for minutes
    except PermissionError as error:
        print(f"launch: {error.filename}: permission denied", file=sys.stderr)
        return 1
    except OSError as error:
        if error.filename is not None or error.errno not in {errno.EPIPE, errno.ENOSPC, errno.EIO}:
            raise
        # The reader of the output is gone, or its disk is full.
        sys.stdout = _nowhere()
        if error.errno != errno.EPIPE:
            print(f"launch: the output cannot be written: {error.strerror}", file=sys.stderr)
        return 1


def _prepare_output() -> None:
    """Make printing safe where there is no output, or one that cannot show every character."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, _nowhere())
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _nowhere() -> TextIO:
    return Path(os.devnull).open("w", encoding="utf-8")
