"""A stand-in for an LLM engine, for tests: its processes, its endpoints, its ways to stop and to fail.

Called as an engine is, by way of the interpreter beside it:

    /opt/standin/python -m sglang.launch_server --model-path M --port 30000 --tp-size 8 …
    /opt/standin/python -m vllm.entrypoints.cli.main serve M --port 8000 --tensor-parallel-size 8 …

What it copies was observed on real engines: workers that rename themselves over their own environment,
SGLang that ends a clean stop by SIGKILL on itself, vLLM whose workers survive their main process.
One file, standard library, Python 3.8 or newer.

Settings, by environment or, where that is filtered, by flag:
STANDIN_LOAD_SECONDS --standin-load · STANDIN_WARMUP_SECONDS --standin-warmup · STANDIN_WORKERS
--standin-workers · STANDIN_TOKEN_SECONDS (per token of a completion) · STANDIN_FAULT --standin-fault, a
comma list, or a file `fault` beside this program, of: hang, hang503, crash, exit0, crash_after_ready,
strip_env, override_env, no_completion, bare_child (one without any environment), brief_children (such ones
that come and go, as compilers do), nccl_extra (workers get an NCCL setting more), no_algorithm (dies as of a bare
Tree, with NCCL's line), cut_env (workers rename themselves over their environment in spite of SPT_NOENV). With
@WORD a fault is one only where the command line has this word: `crash@--standin-load`.

How fast it answers can follow a law of its environment: STANDIN_TOKEN_SECONDS a token and STANDIN_PROMPT_SECONDS a word
of the prompt are multiplied by what STANDIN_LAW says, a JSON list of ["NAME=VALUE", factor of tokens, factor of
prompts]; STANDIN_NOISE is the relative spread from start to start, which nobody can foresee.

A file `lib/libnccl.so.2` beside this program is mapped by the main process and the workers, as NCCL is.
"""

from __future__ import annotations

import argparse
import ctypes
import http.server
import json
import mmap
import os
import random
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from multiprocessing import resource_tracker
from pathlib import Path

FAULTS = frozenset(
    (
        *("hang", "hang503", "crash", "exit0", "crash_after_ready", "strip_env", "override_env", "no_completion"),
        *("bare_child", "brief_children", "nccl_extra", "no_algorithm", "cut_env"),
    )
)
SGLANG, VLLM = "sglang", "vllm"
TITLES = {SGLANG: "sglang::scheduler_TP%d", VLLM: "VLLM::Worker_TP%d"}
PORTS = {SGLANG: 30000, VLLM: 8000}
WITHOUT_DOT = ("NCCL_P2P_DISABLE", "NCCL_P2P_LEVEL")  # NCCL prints these two as it found them
PR_SET_PDEATHSIG, PR_SET_NAME = 1, 15
TRACEBACK = 'Traceback (most recent call last):\n  File "{}", line 1, in load\nRuntimeError: stand-in fault: {}'
NO_ALGORITHM = (
    "{0}:{1}:{1} [0] NCCL WARN Error : no algorithm/protocol available for function AllGather with datatype ncclInt8."
    " NCCL_ALGO was set to Tree."
)
#: For code that only looks for an engine: both are here.
FOUND = """\
import importlib.machinery, sys
found = lambda name, *_: importlib.machinery.ModuleSpec(name, None, is_package=True)
asked = lambda name, *_: found(name) if name.split(".")[0] in ("sglang", "vllm") else None
sys.meta_path.append(type("Engines", (), {"find_spec": staticmethod(asked)}))
"""
READY = {SGLANG: "The server is fired up and ready to roll!", VLLM: "Application startup complete."}


def say(text: str) -> None:
    """Print a log line at once."""
    sys.stdout.write(time.strftime("[%Y-%m-%d %H:%M:%S] ") + text + "\n")
    sys.stdout.flush()


# --- renaming, as setproctitle does it ---


def title_area() -> tuple[int, int]:
    """Return where the process may write its title: its arguments and, without SPT_NOENV, its environment.

    The environment ends for this purpose at the first variable that was set again since the start, for
    that one lies elsewhere. Those that are given up are copied first, so the process itself keeps them.
    """
    with open("/proc/self/stat", encoding="ascii", errors="replace") as file:  # noqa: PTH123
        fields = file.read().rsplit(")", 1)[1].split()
    start, end = int(fields[45]), int(fields[46])
    if os.environ.get("SPT_NOENV") and "cut_env" not in fault_file().split(","):
        return start, end
    libc = ctypes.CDLL(None)
    libc.strdup.restype = ctypes.c_void_p
    libc.strdup.argtypes = [ctypes.c_void_p]
    environ = ctypes.POINTER(ctypes.c_void_p).in_dll(libc, "environ")
    index = 0
    while environ[index] == end:
        end += len(ctypes.string_at(end)) + 1
        environ[index] = libc.strdup(environ[index])
        index += 1
    return start, end


def rename(title: str) -> None:
    """Give the process a title in `ps`, over its arguments and perhaps its environment."""
    name = title.encode()
    start, end = title_area()
    ctypes.memset(start, 0, end - start)
    ctypes.memmove(start, name, min(len(name), end - start - 1))
    ctypes.CDLL(None).prctl(PR_SET_NAME, name, 0, 0, 0)


# --- worker ---


def map_library() -> mmap.mmap | None:
    """Map NCCL's library, where there is one, and return what keeps it mapped."""
    try:
        with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib", "libnccl.so.2"), "rb") as file:  # noqa: PTH100, PTH118, PTH120, PTH123
            return mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
    except OSError:
        return None


def nccl_lines(rank: int) -> None:
    """Print what NCCL prints about its settings when it is told to say so."""
    if os.environ.get("NCCL_DEBUG", "").upper() not in ("INFO", "TRACE"):
        return
    prefix = "{0}:{1}:{1} [{2}] NCCL INFO ".format(socket.gethostname(), os.getpid(), rank)
    sys.stdout.write(prefix + "NCCL version 2.28.9+cuda13.0\n")
    for name, value in sorted(os.environ.items()):
        if name.startswith("NCCL_") and not name.startswith("NCCL_DEBUG"):
            dot = "." if re.fullmatch(r"-?[0-9]+", value) and name not in WITHOUT_DOT else ""
            sys.stdout.write(prefix + f"{name} set by environment to {value}{dot}\n")
    communicator = f"comm 0x{os.getpid():x} rank {rank} nranks 2 cudaDev {rank} nvmlDev {rank} busId {rank}0 commId 0x1"
    sys.stdout.write(prefix + f"ncclCommInitRankConfig {communicator} - Init COMPLETE\n")
    sys.stdout.flush()


def work(flavour: str, rank: int, parent: int) -> None:
    """Be a worker until killed."""
    if flavour == SGLANG:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            return
        # Set again, as SGLang does: this is where the cut in its workers' environment ends.
        os.environ["NCCL_CUMEM_ENABLE"] = os.environ.get("NCCL_CUMEM_ENABLE", "0")
    rename(TITLES[flavour] % rank)
    library = map_library()  # noqa: F841 - mapped as long as it is held
    nccl_lines(rank)
    sys.stdout.write(f"standin worker {rank} ready\n")
    sys.stdout.flush()
    while True:
        signal.pause()


# --- main process ---


class Options:
    """What command line and environment ask for."""

    def __init__(self, argv: list[str]) -> None:
        self.flavour = VLLM if any(word.startswith("vllm") for word in argv[:2]) else SGLANG
        words = argv[2:] if argv[:1] == ["-m"] else argv
        if self.flavour == VLLM and words[:1] == ["serve"]:
            words = words[1:]
        model = words.pop(0) if words and not words[0].startswith("-") else None
        given = self._parser().parse_known_args(words)[0]
        self.host, self.port = given.host, given.port or PORTS[self.flavour]
        self.model = model or given.model or "standin"
        self.served = (given.served_model_name or [self.model])[0]
        self.load, self.warmup, self.workers = given.load, given.warmup, given.workers
        if self.workers is None:
            self.workers = min(given.tp, 2)
        self.api_key = given.api_key or config_file(given.config).get("api-key") or os.environ.get("VLLM_API_KEY")
        named = (name.partition("@") for name in ",".join(given.fault).split(",") if name)
        self.faults = frozenset(name for name, _, word in named if not word or word in argv)
        if not self.faults <= FAULTS:
            sys.exit("standin: no such fault: " + ", ".join(sorted(self.faults - FAULTS)))

    @staticmethod
    def _parser() -> argparse.ArgumentParser:
        env = os.environ
        parser = argparse.ArgumentParser(allow_abbrev=False, add_help=False)
        add = parser.add_argument
        add("--host", default="127.0.0.1")
        add("--port", type=int)
        add("--tp-size", "--tp", "-tp", "--tensor-parallel-size", dest="tp", type=int, default=1)
        add("--model-path", "--model", dest="model")
        add("--served-model-name", nargs="+")
        add("--config")
        add("--api-key")
        # A default that is text goes through `type` as well.
        add("--standin-load", dest="load", type=float, default=env.get("STANDIN_LOAD_SECONDS", "0.3"))
        add("--standin-warmup", dest="warmup", type=float, default=env.get("STANDIN_WARMUP_SECONDS", "0.2"))
        add("--standin-workers", dest="workers", type=int, default=env.get("STANDIN_WORKERS") or None)
        add("--standin-fault", dest="fault", action="append", default=[env.get("STANDIN_FAULT", ""), fault_file()])
        return parser


def config_file(name: str | None) -> dict[str, str]:
    """Return flags from a flat YAML file of ``name: "text"`` lines, as both engines take them by --config."""
    if not name:
        return {}
    lines = Path(name).read_text(encoding="utf-8").splitlines()
    return {key: json.loads(value) for key, value in (line.split(": ", 1) for line in lines)}


def fault_file() -> str:
    """Return the content of the file `fault` beside this program: a fault that no release names."""
    try:
        return Path(__file__).with_name("fault").read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def pace() -> tuple[float, float]:
    """Return the seconds of a token and of a word of a prompt, by the law of this environment; drawn once a start."""
    token, word = (
        float(os.environ.get(n, d)) for n, d in (("STANDIN_TOKEN_SECONDS", "0.001"), ("STANDIN_PROMPT_SECONDS", "0"))
    )
    for pair, tokens, prompts in json.loads(os.environ.get("STANDIN_LAW", "[]")):
        name, _, value = pair.partition("=")
        if os.environ.get(name) == value:
            token, word = token * tokens, word * prompts
    spread = float(os.environ.get("STANDIN_NOISE", "0"))
    draw = random.SystemRandom()
    return token * draw.lognormvariate(0, spread), word * draw.lognormvariate(0, spread)


class Engine:
    """The main process: spawns workers, serves, and ends the way its flavour ends."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.workers: list[subprocess.Popen[bytes]] = []
        self.ready = False
        self.stopping = False
        self.library = map_library()
        self.served = 0
        self.pace = pace()

    def run(self) -> None:
        """Load, serve, watch the workers; never returns."""
        signal.signal(signal.SIGTERM, self._on_stop)
        signal.signal(signal.SIGINT, self._on_stop)
        opt = self.options
        say(f"standin {opt.flavour}: loading {opt.model}, {opt.workers} workers, pid {os.getpid()}")
        self._set_environment()
        resource_tracker.ensure_running()  # type: ignore[attr-defined, unused-ignore]
        self.workers = [self._spawn(rank) for rank in range(opt.workers)]
        self._start_children()
        self._watch(opt.load / 2)
        if "crash" in opt.faults:
            self._crash("crash")
        if "no_algorithm" in opt.faults:
            print(NO_ALGORITHM.format(socket.gethostname(), os.getpid()), flush=True)
            self._crash("no_algorithm")
        if "exit0" in opt.faults:
            say("standin: leaving with 0 during load")
            self._leave(0)
        self._watch(opt.load / 2)
        if "hang" in opt.faults:
            self._watch(float("inf"))
        self._serve()
        self._watch(opt.warmup)
        self._await_titles()
        if "hang503" not in opt.faults:
            self.ready = True
            say(READY[opt.flavour])
        if "crash_after_ready" in opt.faults:
            self._watch(1.0)
            self._crash("crash_after_ready")
        self._watch(float("inf"))

    def _set_environment(self) -> None:
        if self.options.flavour == VLLM:
            os.environ["VLLM_WORKER_MULTIPROC_METHOD"] = "spawn"
            return
        os.environ.setdefault("NCCL_CUMEM_ENABLE", "0")
        os.environ["CUDA_DEVICE_MAX_CONNECTIONS"] = "8"
        os.environ["CUDA_MODULE_LOADING"] = "AUTO"

    def _await_titles(self) -> None:
        """Be ready only when every worker has come up, as an engine is, however slow the machine."""
        deadline = time.monotonic() + 20
        for rank, worker in enumerate(self.workers[: self.options.workers]):
            title = (TITLES[self.options.flavour] % rank).encode()
            path = Path(f"/proc/{worker.pid}/cmdline")
            while time.monotonic() < deadline and path.exists() and not path.read_bytes().startswith(title):
                self._watch(0.02)

    def _start_children(self) -> None:
        """Start processes without any environment: one that stays, or ever new ones that overlap."""
        if "bare_child" in self.options.faults:
            self.workers.append(subprocess.Popen(["/bin/sleep", "1000"], env={}))

        def churn() -> None:
            while True:
                subprocess.Popen(["/bin/sleep", "0.3"], env={})
                time.sleep(0.1)

        if "brief_children" in self.options.faults:
            signal.signal(signal.SIGCHLD, signal.SIG_IGN)
            threading.Thread(target=churn, daemon=True).start()

    def _spawn(self, rank: int) -> subprocess.Popen[bytes]:
        env = dict(os.environ)
        if "strip_env" in self.options.faults:
            env = {name: value for name, value in env.items() if not name.startswith("NCCL_")}
        if "override_env" in self.options.faults:
            env["NCCL_ALGO"] = "Tree"
        if "nccl_extra" in self.options.faults:
            env["NCCL_P2P_DISABLE"] = "1"
        words = ["--standin-worker", self.options.flavour, str(rank), str(os.getpid())]
        tracker = resource_tracker._resource_tracker._fd  # type: ignore[attr-defined]
        keep = [tracker] if tracker is not None else []
        return subprocess.Popen([sys.executable, os.path.abspath(__file__), *words], env=env, pass_fds=keep)  # noqa: PTH100

    def _watch(self, seconds: float) -> None:
        """Let time pass; a dead worker, or a signal to stop, ends the server."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if self.stopping:
                say("standin: asked to stop")
                self._end()
            for worker in self.workers:
                if worker.poll() is not None:
                    say(f"standin: worker process {worker.pid} died, exit {worker.returncode}")
                    if self.options.flavour == VLLM:
                        time.sleep(0.5)
                    self._end()
            time.sleep(0.02)

    def _serve(self) -> None:
        handler = type("Handler", (Endpoints,), {"engine": self})
        try:
            server = http.server.ThreadingHTTPServer((self.options.host, self.options.port), handler)
        except OSError as err:
            say(f"standin: cannot listen on {self.options.host}:{self.options.port}: {err}")
            self._leave(1)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        say(f"standin: listening on {self.options.host}:{self.options.port}")

    def _on_stop(self, _number: int, _frame: object) -> None:
        self.stopping = True  # only noted: a handler must not wait for children

    def _end(self) -> None:
        """End as the flavour does: SGLang by SIGKILL on itself, vLLM with 0."""
        if self.options.flavour == SGLANG:
            self._stop_workers(signal.SIGKILL)
            os.kill(os.getpid(), signal.SIGKILL)
        self._leave(0)

    def _crash(self, fault: str) -> None:
        sys.stderr.write(TRACEBACK.format(__file__, fault) + "\n")
        sys.stderr.flush()
        self._leave(1)

    def _leave(self, status: int) -> None:
        self._stop_workers(signal.SIGKILL if status else signal.SIGTERM)
        os._exit(status)

    def _stop_workers(self, number: signal.Signals) -> None:
        for worker in self.workers:
            worker.send_signal(number)
        for worker in self.workers:
            worker.wait()


class Endpoints(http.server.BaseHTTPRequestHandler):
    """The few paths of an OpenAI-compatible server that tests and clients use."""

    engine: Engine
    protocol_version = "HTTP/1.1"

    def _refused(self) -> bool:
        """Ask for the API key on everything but health, as both engines do."""
        key = self.engine.options.api_key
        if not key or self.headers.get("Authorization") == "Bearer " + key or self.path.startswith("/health"):
            return False
        self._json(401, {"error": "Unauthorized"})
        return True

    def do_GET(self) -> None:
        """Answer health, models, metrics and version."""
        options, path = self.engine.options, self.path.split("?")[0]
        if self._refused():
            return
        if path in ("/health", "/health_generate"):
            self._send(200 if self.engine.ready else 503, b"", "text/plain")
        elif path == "/v1/models":
            model = {"id": options.served, "object": "model", "owned_by": "standin", "root": options.model}
            self._json(200, {"object": "list", "data": [model]})
        elif path == "/metrics":
            prefix = options.flavour + ":"
            names = {"num_requests_running": 0, "num_requests_total": self.engine.served}
            lines = "".join(f"# TYPE {prefix}{n} gauge\n{prefix}{n} {v}.0\n" for n, v in names.items())
            self._send(200, lines.encode(), "text/plain; version=0.0.4")
        elif path == "/version":
            self._json(200, {"version": "0.0.0+standin"})
        else:
            self._json(404, {"error": {"message": "Not Found", "code": 404}})

    def do_POST(self) -> None:
        """Answer completions, whole or as a stream."""
        text = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path = self.path.split("?")[0]
        if self._refused():
            return
        if path not in ("/v1/completions", "/v1/chat/completions"):
            self._json(404, {"error": {"message": "Not Found", "code": 404}})
        elif not self.engine.ready or "no_completion" in self.engine.options.faults:
            self._json(500, {"error": {"message": "stand-in: no completion", "code": 500}})
        else:
            try:
                asked = json.loads(text or b"{}")
            except ValueError:
                self._json(400, {"error": {"message": "not JSON", "code": 400}})
                return
            self.engine.served += 1
            self._complete(asked, chat="chat" in path)

    def _complete(self, asked: dict[str, object], *, chat: bool) -> None:
        count = int(str(asked.get("max_tokens") or asked.get("max_completion_tokens") or 16))
        pause, each = self.engine.pace
        words = len(str(asked.get("prompt") or "").split())
        time.sleep(each * words)
        kind = "chat.completion" if chat else "text_completion"
        base = {"id": "standin-1", "created": int(time.time()), "model": self.engine.options.served}
        usage = {"prompt_tokens": words, "completion_tokens": count, "total_tokens": count + words}
        if not asked.get("stream"):
            time.sleep(pause * count)
            text = "ok " * count
            said = {"message": {"role": "assistant", "content": text}} if chat else {"text": text}
            choice = {"index": 0, "finish_reason": "length", **said}
            self._json(200, {**base, "object": kind, "choices": [choice], "usage": usage})
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        for index in range(count):
            time.sleep(pause)
            part = {"delta": {"content": "ok "}} if chat else {"text": "ok "}
            choice = {"index": 0, "finish_reason": "length" if index == count - 1 else None, **part}
            self._event({**base, "object": kind + ".chunk" if chat else kind, "choices": [choice]})
        self._event({**base, "object": kind + ".chunk" if chat else kind, "choices": [], "usage": usage})
        self.wfile.write(b"data: [DONE]\n\n")
        self.close_connection = True

    def _event(self, data: dict[str, object]) -> None:
        self.wfile.write(b"data: " + json.dumps(data).encode() + b"\n\n")
        self.wfile.flush()

    def _json(self, status: int, data: dict[str, object]) -> None:
        self._send(status, json.dumps(data).encode(), "application/json")

    def _send(self, status: int, body: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Log as the engines do, one line per request, on standard output."""
        say(f'{self.client_address[0]} - "{self.requestline}" {code} {size}')


def main() -> None:
    """Be an interpreter, a worker or the server, by the command line."""
    argv = sys.argv[1:]
    if argv[:1] and os.path.basename(argv[0]) == "python":  # noqa: PTH119
        # Started through the shebang of /opt/standin/python: start again without that word, in the same
        # process, with the environment to the byte.
        argv.pop(0)
        with open("/proc/self/environ", "rb") as file:  # noqa: PTH123
            block = file.read().split(b"\0")[:-1]
        if argv[:1] == ["-c"]:
            argv[1:2] = [FOUND + code for code in argv[1:2]]
        engine = argv[:1] == ["-m"] and argv[1:2] and argv[1].split(".")[0] in (SGLANG, VLLM)
        words = [sys.executable, *([os.path.abspath(__file__)] if engine else []), *argv]  # noqa: PTH100
        os.execve(sys.executable.encode(), words, dict(e.split(b"=", 1) for e in block if b"=" in e))
    if argv[:1] == ["--standin-worker"]:
        work(argv[1], int(argv[2]), int(argv[3]))
    else:
        Engine(Options(argv)).run()


if __name__ == "__main__":
    main()
