"""A small server with counters, as a process of its own, and clients that misbehave."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

from launcher.agent.load import FOLDER

if TYPE_CHECKING:
    from collections.abc import Iterator

KEY = "sk-very-secret-1"
#: Answers /metrics with a counter that each /work adds to, /server_info, and flushes; dies at /die.
SERVER = """
import http.server, json, os, subprocess, sys, threading, time
count = {"work": 0, "flush": 0}
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path == "/metrics":
            text = f"# TYPE t:work_total counter\\nt:work_total {count['work']}\\nt:other_total 1\\nsecret_line 3\\n"
        elif self.path == "/server_info":
            key = self.headers.get("Authorization", "none")
            text = json.dumps({"api_key": "KEY", "states": [{"flushed": count["flush"]}], "asked_with": key})
        else:
            text = "ok"
        self.answer(200, text)
    def do_POST(self):
        if self.path == "/work": count["work"] += 1; print("work", count["work"] * 1.5, "ms", flush=True)
        if self.path == "/flush": count["flush"] += 1
        if self.path == "/lose": child.kill(); child.wait()
        if self.path == "/die": os._exit(3)
        self.answer(404 if self.path == "/none" else 200, "")
    def answer(self, status, text):
        self.send_response(status); self.send_header("Content-Length", str(len(text.encode()))); self.end_headers()
        self.wfile.write(text.encode())
    def log_message(self, *_): pass
class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
Server(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""
#: What every client below begins with.
CLIENT = """
import json, os, signal, subprocess, sys, time, urllib.request
def post(path):
    urllib.request.urlopen(urllib.request.Request(os.environ["SERVER"] + path, b"", method="POST"), timeout=5).read()
folder = sys.argv[1]
def result(**fields):
    with open(os.path.join(folder, "result.json"), "w") as stream:
        json.dump(fields, stream)
"""


class Server:
    """The server while a test runs."""

    def __init__(self, folder: Path, env: dict[str, str]) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port: int = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.log = folder / "server.log"
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-c", SERVER.replace("KEY", KEY), str(self.port)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **env},
                start_new_session=True,
            )
        self.manifest = {
            "env": env, "engine": "vllm", "host": "127.0.0.1", "port": self.port, "argv": ["x"], "name": "x",
        }  # fmt: skip
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError):
                urllib.request.urlopen(self.url, timeout=1)
                return
            time.sleep(0.05)
        raise AssertionError(self.log.read_text())

    def stop(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, 9)
        self.process.wait(10)


@contextlib.contextmanager
def served(folder: Path, env: dict[str, str] | None = None) -> Iterator[Server]:
    server = Server(folder, env if env is not None else {"NCCL_PROTO": "LL"})
    try:
        yield server
    finally:
        server.stop()


def client(code: str, result: str = "result.json", **fields: Any) -> dict[str, Any]:
    """Return a client made of Python code."""
    return {"argv": [sys.executable, "-c", CLIENT + code, FOLDER], "result": result, "drop": [], **fields}


def request(server: Server, code: str, **fields: Any) -> dict[str, Any]:
    """Return a request; what the client is asked is in ``code``."""
    return {
        "client": client(code),
        "version": [],
        "warmup": [],
        "warmup_env": {},
        "env": {"SERVER": server.url},
        "cwd": "",
        "user": "",
        "timeout": 15,
        "flush": [],
        "pages": [
            {"path": "/metrics", "lines": ["t:work"]},
            {"path": "/server_info", "keys": [["states", 0, "flushed"], ["asked_with"], ["states", 9]]},
        ],
        "patterns": {},
        "server": {"manifest": server.manifest, "main": server.process.pid, "log": {"file": str(server.log)}},
        **fields,
    }


def leftovers(word: str) -> list[int]:
    """Return the processes whose command line holds a word."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with contextlib.suppress(OSError):
                if word.encode() in (entry / "cmdline").read_bytes():
                    found.append(int(entry.name))
    return found


def told(answer: dict[str, Any]) -> str:
    """Return everything that an answer says, as text."""
    return json.dumps(answer, ensure_ascii=False)
