"""The clients by the word of ``bench.client``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from launcher.bench.clients import aiperf, command, guidellm, sglang, vllm

if TYPE_CHECKING:
    from launcher.bench.clients.ask import Client

CLIENTS: dict[str, Client] = {
    "vllm": vllm.CLIENT,
    "sglang": sglang.CLIENT,
    "aiperf": aiperf.CLIENT,
    "guidellm": guidellm.CLIENT,
    "command": command.CLIENT,
}
