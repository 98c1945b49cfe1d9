"""A small measuring program for tests: requests in flight against a completions endpoint, then a line of JSON."""

from __future__ import annotations

import json
import os
import statistics
import threading
import time
import urllib.request


def one(url: str, prompt: str, tokens: int, found: list[dict[str, float]]) -> None:
    """Ask for one completion as a stream, and note when its pieces came."""
    body = {"model": os.environ.get("LAUNCH_MODEL", ""), "prompt": prompt, "max_tokens": tokens, "stream": True}
    request = urllib.request.Request(
        url + "/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    begin, first, last, count = time.monotonic(), 0.0, 0.0, 0
    with urllib.request.urlopen(request, timeout=60) as answer:
        for line in answer:
            if b'"text"' in line:
                last = time.monotonic()
                first, count = first or last, count + 1
    found.append({"ttft": first - begin, "e2e": last - begin, "tpot": (last - first) / max(1, count - 1), "n": count})


def main() -> None:
    """Measure what the environment asks for."""
    ask = {
        name: int(os.environ["LAUNCH_" + name]) for name in ("CONCURRENCY", "REQUESTS", "INPUT_TOKENS", "OUTPUT_TOKENS")
    }
    url, prompt = os.environ["LAUNCH_URL"], "word " * ask["INPUT_TOKENS"]
    found: list[dict[str, float]] = []
    left = list(range(ask["REQUESTS"]))

    def work() -> None:
        while left:
            left.pop()
            one(url, prompt, ask["OUTPUT_TOKENS"], found)

    begin = time.monotonic()
    threads = [threading.Thread(target=work) for _ in range(ask["CONCURRENCY"])]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds = time.monotonic() - begin
    tokens = sum(item["n"] for item in found)
    result: dict[str, float] = {
        "completed": len(found),
        "failed": ask["REQUESTS"] - len(found),
        "duration_s": seconds,
        "output_tokens": tokens,
        "input_tokens": ask["INPUT_TOKENS"] * len(found),
    }
    for name in ("ttft", "tpot", "e2e"):
        values = [item[name] * 1000 for item in found]
        result[name + "_ms_mean"], result[name + "_ms_median"] = statistics.mean(values), statistics.median(values)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
