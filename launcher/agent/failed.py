"""What can go wrong on a host while it is changed, without being a mistake of ours."""

from __future__ import annotations

import subprocess
from typing import List, Optional

from .nccl_conf import BlockError
from .systemd import SystemdError


class ChangeError(Exception):
    """A change failed; ``lines`` are the evidence."""

    def __init__(self, message: str, lines: Optional[List[str]] = None) -> None:
        super().__init__(message)
        self.lines = lines or []


FAILURES = (OSError, SystemdError, subprocess.SubprocessError, ChangeError, BlockError)
