"""A measuring program that starts at once: completions as streams, and a line of JSON for `bench.client=command`.

SGLang's own client imports torch and transformers, 17 to 20 s at each of the eight times that a start of four loads
needs it (0.5.17 on a virtual machine with an H200); this one needs the standard library alone. Pieces of an answer are
only kept as they come, with the time of the first one, and read afterwards: sixty streams leave no time for more.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import statistics
import time
from urllib.parse import urlsplit

#: Ids of special tokens lie below.
LOWEST = 3
_USAGE = re.compile(rb'"completion_tokens":\s*(\d+)')
_PROMPT = re.compile(rb'"prompt_tokens":\s*(\d+)')


class Answer(asyncio.Protocol):
    """One request on a connection of its own."""

    def __init__(self, request: bytes) -> None:
        self._request = request
        self.pieces: list[bytes] = []
        self.begin = self.first = self.last = 0.0
        self.done = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the request."""
        assert isinstance(transport, asyncio.Transport)
        self.begin = time.perf_counter()
        transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        """Keep a piece; the first one with a token is an event of the stream, after the head."""
        self.last = time.perf_counter()
        if not self.first and b"data: {" in data:
            self.first = self.last
        self.pieces.append(data)

    def connection_lost(self, exc: Exception | None) -> None:
        """Note the end."""
        if not self.done.done():
            self.done.set_result(exc)


def body(seed: int, number: int, prompt: int, tokens: int, vocabulary: int) -> bytes:
    """Return the request number of a run: random tokens, the same ones for the same seed."""
    ids = random.Random(f"{seed}/{number}")
    asked = {
        "model": os.environ["LAUNCH_MODEL"],
        "prompt": [ids.randrange(LOWEST, vocabulary) for _ in range(prompt)],
        "max_tokens": tokens,
        "temperature": 0,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    return json.dumps(asked).encode()


async def ask(host: str, port: int, sent: bytes) -> tuple[float, float, int, int]:
    """Return seconds to the first token and to the last, tokens of the prompt and of the answer."""
    head = f"POST /v1/completions HTTP/1.1\r\nHost: {host}:{port}\r\nContent-Type: application/json\r\n"
    key = os.environ.get("OPENAI_API_KEY")
    head += f"Authorization: Bearer {key}\r\n" if key else ""
    request = f"{head}Content-Length: {len(sent)}\r\nConnection: close\r\n\r\n".encode() + sent
    _, answer = await asyncio.get_running_loop().create_connection(lambda: Answer(request), host, port)
    if error := await answer.done:
        raise error
    text = b"".join(answer.pieces)
    used, prompt = _USAGE.findall(text), _PROMPT.findall(text)
    if not text.startswith(b"HTTP/1.1 200") or not used or not prompt:
        raise RuntimeError(text[:300].decode("utf-8", "replace"))
    return answer.first - answer.begin, answer.last - answer.begin, int(prompt[-1]), int(used[-1])


async def measure() -> dict[str, float]:
    """Keep so many requests in flight as the environment says, and return the figures."""
    names = ("CONCURRENCY", "REQUESTS", "INPUT_TOKENS", "OUTPUT_TOKENS", "SEED")
    at_once, requests, prompt, tokens, seed = (int(os.environ[f"LAUNCH_{name}"]) for name in names)
    place = urlsplit(os.environ["LAUNCH_URL"])
    vocabulary = int(os.environ.get("VOCABULARY", "32000"))
    todo = [body(seed, number, prompt, tokens, vocabulary) for number in range(requests)]
    found: list[tuple[float, float, int, int]] = []

    async def work() -> None:
        while todo:
            found.append(await ask(place.hostname or "127.0.0.1", place.port or 80, todo.pop()))

    begin = time.perf_counter()
    await asyncio.gather(*(work() for _ in range(at_once)))
    seconds = time.perf_counter() - begin
    ttft = [1e3 * first for first, _, _, _ in found]
    tpot = [1e3 * (last - first) / max(1, count - 1) for first, last, _, count in found]
    return {
        "completed": len(found),
        "failed": 0,
        "duration_s": seconds,
        "input_tokens": sum(count for _, _, count, _ in found),
        "output_tokens": sum(count for _, _, _, count in found),
        "ttft_ms_mean": statistics.mean(ttft),
        "ttft_ms_median": statistics.median(ttft),
        "tpot_ms_mean": statistics.mean(tpot),
        "tpot_ms_median": statistics.median(tpot),
        "e2e_ms_mean": 1e3 * statistics.mean(last for _, last, _, _ in found),
    }


if __name__ == "__main__":
    print(json.dumps(asyncio.run(measure())))
