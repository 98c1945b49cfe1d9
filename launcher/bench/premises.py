"""What a start on this machine needs, and what a stopped server has to give back."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from launcher.agent import bench, leftovers, manifest, ports, preflight_host
from launcher.bench import gpus
from launcher.errors import LaunchError
from launcher.host import foreground

if TYPE_CHECKING:
    from collections.abc import Mapping

    from launcher.sweep.points import Candidate

#: Seconds that port and GPU memory get to be free when all processes are gone.
_FREE = 20.0


@dataclass
class Start:
    """A point that is served here, or is about to be; its environment is that of `launch run`."""

    candidate: Candidate
    #: Environment variables by name, flags as ``arg.KEY``.
    secrets: Mapping[str, str]
    log: Path = field(default_factory=Path)
    #: Of this machine before the start.
    memory: dict[str, int] = field(default_factory=dict)
    segments: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        release = self.candidate.release
        self.env, self.left_out = foreground.environment(os.environ, release.env, self.secrets)
        self.cwd = release.settings.get("WorkingDirectory") or str(Path.cwd())
        self.manifest: dict[str, Any] = manifest.parse(release.manifest.text, "the release's manifest")
        # A scheduler's choice is the one that counts where the configuration names none.
        visible = [word for word in self.env.get("CUDA_VISIBLE_DEVICES", "").split(",") if word.isdigit()]
        self.gpus = list(self.candidate.deployment.engine.gpus) or visible

    @property
    def key(self) -> str:
        """What the server asks a client for."""
        return next((self.secrets[id_] for id_ in ("arg.api_key", "VLLM_API_KEY") if id_ in self.secrets), "")

    def look(self) -> None:
        """See that it can be started, and remember what this machine is like.

        Raises:
            LaunchError: it cannot; says why, and who is in the way.
        """
        python = self.candidate.release.argv[0]
        problems = []
        if not (os.path.isfile(python) and os.access(python, os.X_OK)):  # noqa: PTH113 - False for what may not be seen
            problems.append(f"engine.python={python} is not there, or cannot be executed")
        problems += self._port()
        alone = "gpu-busy" not in self.candidate.deployment.allow
        problems += bench.busy(self.gpus) if alone else []
        if problems:
            raise LaunchError("\n".join(problems))
        self.segments = leftovers.segments()
        self.memory = gpus.used(self.gpus) if alone else {}  # what others take meanwhile is their own

    def not_free(self) -> list[str]:
        """Wait until port and GPU memory are free; return what is not."""
        engine = self.candidate.deployment.engine
        deadline = time.monotonic() + _FREE
        while ports.listening(engine.port, engine.host) and time.monotonic() < deadline:
            time.sleep(0.1)
        return self._port() + gpus.held(self.gpus, self.memory, _FREE)

    def remove_segments(self) -> int:
        """Remove what this server's processes left in /dev/shm, and nothing that was there before; return how many.

        Raises:
            OSError: one cannot be removed.
        """
        return leftovers.remove_of(os.geteuid(), self.segments)

    def _port(self) -> list[str]:
        engine = self.candidate.deployment.engine
        return [obstacle.text for obstacle in preflight_host.port(engine.port, engine.host, set())]
