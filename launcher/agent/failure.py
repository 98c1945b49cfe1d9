"""What class of failure ended a start or a server: one word for it, the line that says so, and what to do next.

The lines are those of one unit; they may hold several starts (the newest that explains itself counts), requests of
weeks, and whatever a client made an engine print. Within a start, a line of a better rank wins over an earlier one of
a worse rank: engines say the consequence (``Engine core initialization failed``) loudly, and often repeat it.

Sources: SGLang and vLLM issues, one by one in tests/failure/cases.json; recorded deaths of SGLang 0.5.17 and vLLM
0.25.0 in tests/failure/logs; systemd.exec(5) and systemd.service(5) for Result, ExecMainCode and ExecMainStatus;
waitid(2) for the codes.
"""

from __future__ import annotations

import re
from typing import Any, Dict, Iterable, List, Mapping, NamedTuple, Optional, Pattern, Tuple

from . import nccl_log
from .guard import REFUSED

Failure = NamedTuple("Failure", [("kind", str), ("line", str), ("advice", str)])
#: A lower rank is better evidence; of equal ones the first counts.
Evidence = NamedTuple("Evidence", [("rank", int), ("kind", str), ("line", str)])

UNKNOWN = "unknown"
#: What to do, by kind; the keys are all the kinds there are.
ADVICE: Dict[str, str] = {
    "refused by the guard": "the unit differs from its release: launch drift shows where, launch up deploys again",
    "refused by the waiter": "the running processes did not carry the release: see the quoted variable, then launch up",
    "arguments refused": "correct the quoted argument in engine.args (names and choices differ between versions)",
    "module missing": "install the quoted module into the engine's own environment, or correct engine.python;"
    " an undefined symbol means that torch and the engine were built for each other's other versions",
    "model not found": "check model.path on the host; if it is a name on the hub, check spelling, token and network",
    "weights broken": "compare the files with their checksums and download again; if they are whole, the engine's"
    " version, quantization or parallel size does not fit them",
    "GPU memory": "look for other processes on the GPU (nvidia-smi); then: for the KV cache raise the memory fraction"
    " or lower the context length, for activations and graphs lower the fraction or the batch sizes",
    "host memory": "free memory or raise MemoryMax; fewer workers load at once with a lower parallel size",
    "shared memory": "empty /dev/shm of leftovers of dead servers, or make it larger (mount -o remount,size=)",
    "NCCL: no algorithm": "name the collective (NCCL_ALGO=allreduce:tree), or remove NCCL_ALGO and NCCL_PROTO",
    "NCCL: invalid usage": "set NCCL_DEBUG=WARN for NCCL's own reason; a refused NCCL_* value or a library of another"
    " version is usual",
    "NCCL: system error": "set NCCL_DEBUG=INFO for NCCL's own reason; check NCCL_SOCKET_IFNAME, the firewall and"
    " LimitMEMLOCK",
    "NCCL hang": "look for a rank that died or works on something else; try NCCL_P2P_DISABLE=1 once to rule out the"
    " path between GPUs",
    "GPU error": "check dmesg for Xid; if there is none, the kernel does not fit this GPU or CUDA_VISIBLE_DEVICES names"
    " one that is not there",
    "driver": "check nvidia-smi; update the driver (and reboot) or take an engine built for an older CUDA",
    "port in use": "end what listens on the port (ss -ltnp), or change engine.port",
    "draft mismatch": "take a draft model that was trained for this very target, and an engine that knows it",
    "permission": "let the unit's user read the model and write its caches (User=, HF_HOME, XDG_CACHE_HOME)",
    "disk full": "free space where the quoted line writes, or move HF_HOME and the compile caches",
    "timeout": "if the log shows progress, raise the start's deadline; if not, ask what it waits for",
    "killed": "somebody or the kernel sent a signal: look at journalctl -k and at who stopped the unit",
    "ended by itself": "the command ended without an error: check that it is the one that serves",
    "crashed": "coredumpctl info names the library; a mix of builds (torch, NCCL, kernels) is usual",
    UNKNOWN: "read the quoted line; journalctl -u has the rest",
}

_LONGEST, _QUOTE, _HEAD = 4096, 500, 400  # characters that are looked at, quoted, and that a prefix may take
_VERDICT, _CAUSE, _GENERAL, _RESULT, _LATE, _RAISED, _AFTER, _ECHO = range(8)
_COLOUR = re.compile(r"\x1b\[[0-9;]{0,20}m")
#: Of levels that no engine ends with; NCCL's own INFO stands behind its name.
_CALM = re.compile(
    r"^(?:(?!ERROR)[^\n]){0,160}?(?:^|[\s\])|>])(?<!NCCL )(?:INFO|WARNING|DEBUG)[ :]"
    r"|(?:Receive|Finish): obj=|ras/client_support"
)
_WARNING = re.compile(r"Warning: |\bwarning: |\[W\d{3}")
#: An exception's name right behind a prefix of the journal, a logger, Ray or torchrun; not one that a text mentions.
_EXCEPTION = re.compile(
    r"(?:^(?:- )?|[\]):>|] {0,2}|\d\.\d\d )((?:[A-Za-z_]\w{0,60}\.){0,6}\w{0,60}"
    r"(?:Error|Exception|NotFound|OutOfMemory))(?=: |$)"
)
_FRAME = re.compile(r'", line \d{1,7},? in ')
_INDENTED = re.compile(r"\s{4,}\S")
_CODE = re.compile(r"\s{2,}(?:raise|assert) ")
#: The message begins in the next line.
_UNFINISHED = re.compile(r"^(?:\w{1,60}\.){0,6}\w{1,60}Error:$")
#: Ray lists what may have killed an actor.
_GUESSES = re.compile(r"some potential root causes")
_MAYBE = re.compile(
    "rror|ERROR|xception|xcepthook|launch: |NCCL|nccl|Fatal|fault|SIG|[Kk]illed|memory|Memory|not found|No module|"
    "type=|refused|driver|Driver|in use|No space|denied|Xid|fallen off|[Ee]xit ?code|terminate|imed out|timeout|"
    "sigquit|died|dead|NotFound|hub|Traceback|cannot|Cannot|failed|Failed|mismatch"
)
_READY = re.compile(r"Application startup complete|The server is fired up")
#: Printed while requests are served; a few of them may come from the other ranks of a server that is dying.
_ALIVE = re.compile(r"(?:Decode|Prefill) batch|Avg prompt throughput")
_SURVIVED = 5
#: Of the guard and the waiter, bare (journalctl -o cat) or behind journalctl's own prefix.
_OURS = re.compile(r"^(?:[\w:+. -]{1,99}\[\d{1,9}\]: |<\d>)?(launch: .*)")
_STARTS = re.compile(r"^(?:[\w:+. -]{1,99}\[\d{1,9}\]: |<\d>)?launch: guard: release ")
_FRAMES = {  # which code a traceback went through
    "draft": r"spec_decode|/speculative/|eagle|draft|medusa|_mtp\b",
    "shm": r"shared_memory\.py|shm_broadcast\.py|shm_object",
    "arguments": r"arg_utils\.py|server_args\.py|/vllm/config|/arg_groups/",
    "loading": r"in (?:load_weights|weight_loader|load_model|load_state_dict)\b|weight_utils\.py|/model_loader/",
}
_INSIDE = {name: re.compile(pattern, re.IGNORECASE) for name, pattern in _FRAMES.items()}
_SHAPES = (
    r"shapes cannot be multiplied|size of tensor a|size mismatch|shape mismatch|hidden_states\.shape|vocab_size"
    r"|must match the (?:existing size|size of tensor)"
)
_NAMED_WEIGHT = r"^KeyError: ['\"](?:[\w*]+\.)+\w+['\"]"

#: Kind, rank, pattern, and the frames that it needs; the first that fits a line counts.
_TABLE: List[Tuple[str, int, str, str]] = [
    ("driver", _CAUSE, r"driver (?:on your system )?is too old|driver version is insufficient", ""),
    ("driver", _CAUSE, r"[Ff]ound no NVIDIA driver|Driver/library version mismatch|libcuda\.so\.1: cannot open", ""),
    ("driver", _CAUSE, r"no CUDA-capable device|No CUDA GPUs are available|system not yet initialized", ""),
    ("driver", _CAUSE, r"forward compatibility was attempted|unsupported toolchain|CUDA unknown error", ""),
    ("driver", _GENERAL, r"Failed to infer device type|NVML Shared Library Not Found|NVMLError", ""),
    ("shared memory", _CAUSE, r"No space left on device.{0,200}(?:shm|psm_|sem\.|shared mem)", ""),
    ("shared memory", _CAUSE, r"(?:/dev/shm|shared memory segment|posix_fallocate).{0,200}(?:rror|No sp|failed)", ""),
    ("shared memory", _CAUSE, r"(?:rror|failed|unable|insufficient).{0,80}(?:/dev/shm|shared memory)", ""),
    ("shared memory", _CAUSE, r"[Nn]o space left|Errno 28", "shm"),
    ("shared memory", _GENERAL, r"\b[Bb]us error|SIGBUS|[Ee]xit ?code:? -7\b", ""),
    ("GPU memory", _CAUSE, r"\bOutOfMemoryError|(?:CUDA|HIP|GPU)[\w ]{0,20}out of memory|CUDA_ERROR_OUT_OF_MEMORY", ""),
    ("GPU memory", _CAUSE, r"(?:CUDA error|[Cc]uda failure(?: \d+)?):? '?out of memory|CUBLAS_STATUS_ALLOC_FAILED", ""),
    ("GPU memory", _CAUSE, r"No available memory for the cache blocks|Not enough (?:GPU )?memory", ""),
    ("GPU memory", _CAUSE, r"[Ff]ree memory on device.{0,80}is less than|memory capacity is unbalanced", ""),
    ("GPU memory", _CAUSE, r"max(?:imum)? (?:seq|model) len.{0,200}KV cache|tokens that can be stored in KV cache", ""),
    ("GPU memory", _CAUSE, r"To serve at least one request|KV cache is needed, which is larger than", ""),
    ("GPU memory", _CAUSE, r"mem[-_]fraction[-_]static.{0,40}too small", ""),
    ("host memory", _CAUSE, r"killed by the OOM killer|Out of memory: Killed process|\boom-kill|OOM killer", ""),
    ("host memory", _CAUSE, r"DefaultCPUAllocator|[Cc]annot allocate memory|bad_alloc|^MemoryError|Errno 12\]", ""),
    ("disk full", _CAUSE, r"No space left on device|Errno 28|ENOSPC|[Nn]ot enough (?:free )?disk sp|os error 28", ""),
    ("disk full", _CAUSE, r"Disk quota exceeded", ""),
    ("port in use", _CAUSE, r"[Aa]ddress already in use|EADDRINUSE|Errno 98\]|is not available in \d+ seconds", ""),
    ("port in use", _CAUSE, r"launch: port \d+ is still taken|another process listens on its port", ""),
    ("draft mismatch", _CAUSE, r"[Tt]arget and draft model.{0,40}same|[Dd]raft.{0,60}(?:mismatch|does not match)", ""),
    ("draft mismatch", _CAUSE, r"^KeyError: '(?:.{0,99}\b)?(?:midlayer|d2t|t2d)\b", ""),
    ("draft mismatch", _CAUSE, _SHAPES + "|loaded_weight|loading state_dict|" + _NAMED_WEIGHT, "draft"),
    ("weights broken", _CAUSE, r"SafetensorError|deserializing header|PytorchStreamReader|MetadataIncomplete", ""),
    ("weights broken", _CAUSE, r"size mismatch for|Error\(s\) in loading state_dict|Attempted to load weight", ""),
    ("weights broken", _CAUSE, r"no module or parameter named|not initialized from checkpoint|param_data\.shape", ""),
    ("weights broken", _CAUSE, r"loaded_weight|exceeds dimension size|" + _NAMED_WEIGHT, ""),
    ("weights broken", _CAUSE, _SHAPES, "loading"),
    ("permission", _CAUSE, r"^PermissionError|Errno 13\]|Permission denied", ""),
    ("model not found", _CAUSE, r"\bfile named |couldn't connect to '?https?://|Repo id must", ""),
    ("model not found", _CAUSE, r"(?:LocalEntry|Repository|Revision|Entry)NotFoundError|GatedRepo|OfflineMode", ""),
    ("model not found", _CAUSE, r"not a valid model identifier|Invalid repository ID|any model weights", ""),
    ("model not found", _CAUSE, r"Can't load (?:the )?(?:config|tokenizer)|40[134] Client Error.{0,200}hugging", ""),
    ("model not found", _CAUSE, r"^FileNotFoundError.{0,300}(?:config\.json|safetensors|tokenizer|/models?)", ""),
    ("module missing", _GENERAL, r"^ImportError: \[sgl_kernel\] CRITICAL", ""),
    ("module missing", _CAUSE, r"^(?:ModuleNotFoundError|ImportError)\b|python\S*: No module named", ""),
    ("module missing", _CAUSE, r"Error while finding module spec|error while loading shared libraries", ""),
    ("arguments refused", _CAUSE, r"\S: error: (?:unrecognized arg|argument |the following arg|ambiguous|one of)", ""),
    ("arguments refused", _CAUSE, r"^\s*Value error, |\[type=\w+, input_(?:value|type)=", ""),
    ("arguments refused", _GENERAL, r"validation errors? for \w", ""),
    ("arguments refused", _CAUSE, r"User-specified max_model_len|must be divisible by|larger than the number of", ""),
    ("arguments refused", _GENERAL, r"^(?:\w+\.)*(?:Value|Assertion|Type|NotImplemented|Runtime)Error\b", "arguments"),
    ("GPU error", _CAUSE, r"illegal memory access|device-side assert|no kernel image|invalid device ordinal", ""),
    ("GPU error", _CAUSE, r"\.cuh?:\d+: .{0,200}Assertion", ""),
    ("GPU error", _CAUSE, r"uncorrectable ECC|misaligned address|unspecified launch failure|NVRM: Xid|fallen off", ""),
    ("GPU error", _GENERAL, r"\bCUDA error: |CUBLAS_STATUS_|CUDNN_STATUS_|CUDA driver error|CUDA_ERROR_", ""),
    ("NCCL hang", _GENERAL, r"[Ww]atchdog timeout|RPC call to \w+ timed out", ""),
    ("crashed", _GENERAL, r"Segmentation fault|Segfault encountered|Fatal Python error: |SIGSEGV|SIGABRT", ""),
    ("crashed", _LATE, r"terminate called|core dumped|[Ee]xit ?code:? -(?:11|6|4|8)\b", ""),
    ("killed", _AFTER, r"[Ee]xit ?code:? -9\b|line \d+:.{0,40}\bKilled\b|^Killed$", ""),
    ("timeout", _LATE, r"start operation timed out|did not get ready in time", ""),
]
_RULES: List[Tuple[str, int, Pattern[str], str]] = [(k, n, re.compile(p), f) for k, n, p, f in _TABLE]
#: Said by those that outlived the one with the cause.
_CONSEQUENCE = re.compile(
    r"Engine core init|died unexpectedly|EngineCore (?:failed|died|encountered)|EngineDead|WorkerProc init|"
    r"Worker proc|See root cause|sigquit|CancelledError|KeyboardInterrupt|BrokenPipe|EOFError|"
    r"ConnectionReset|scheduler is dead|SystemExit|stack trace above|ChildFailedError|Scheduler hit an exception"
)
#: Our kind and rank of NCCL's reasons; that of a peer that went away is not its own.
_NCCL = {
    "no algorithm": ("NCCL: no algorithm", _CAUSE),
    "refused value": ("NCCL: invalid usage", _CAUSE),
    "ranks differ": ("NCCL: invalid usage", _CAUSE),
    "invalid usage": ("NCCL: invalid usage", _GENERAL),
    "no network interface": ("NCCL: system error", _CAUSE),
    "locked memory": ("NCCL: system error", _CAUSE),
    "network": ("NCCL: system error", _GENERAL),
    "system error": ("NCCL: system error", _GENERAL),
    "internal error": ("NCCL: system error", _GENERAL),
    "other side ended": ("NCCL: system error", _LATE),
    "shared memory": ("shared memory", _CAUSE),
    "out of memory": ("GPU memory", _CAUSE),
    "hang": ("NCCL hang", _GENERAL),
    "CUDA error": ("GPU error", _GENERAL),
}
_NCCL_LINE = re.compile(r"NCCL WARN|NCCL error|\bnccl[A-Z]\w+: |Watchdog caught|no algorithm/protocol")


class _Start:
    """The evidence of one start, line by line."""

    def __init__(self) -> None:
        self.best: Optional[Evidence] = None
        self.ready = False
        self._frames: Dict[str, bool] = {}
        self._code, self._heading, self._pending, self._in_frame = "", "", "", False
        self._alive = 0

    def take(self, line: str) -> None:
        """Weigh one line that has no colours and a bounded length."""
        ours = _OURS.match(line)
        if ours:
            self._launch(ours.group(1))
            return
        if "Traceback (most recent call last)" in line:
            self._frames = {}
        elif _FRAME.search(line):
            self._frames.update({name: True for name, pattern in _INSIDE.items() if pattern.search(line)})
            self._in_frame = True
        elif line[-200:].strip(" ^~"):
            line, self._pending = f"{self._pending} {line.strip()}".strip() if self._pending else line, ""
            # Source code names errors that did not happen.
            if not (self._in_frame and _INDENTED.search(line)) and not _CODE.search(line[:_HEAD]):
                self._judge(line)
            self._code, self._in_frame = re.split(r"\s{2,}", line)[-1], False

    def _launch(self, line: str) -> None:
        """Take what the guard and the waiter say; their reasons stand in the lines after the verdict."""
        if self._heading:
            by_waiter = "start before this one" in line
            self._heading = "refused by the waiter" if by_waiter else self._heading
            if not by_waiter:
                self._note(_VERDICT, self._heading, line)
                self._heading = ""
        elif line.startswith("launch: REFUSED"):
            self._heading = f"refused by the {'waiter' if 'after the start' in line else 'guard'}"
            self._note(_RESULT, self._heading, line)
        elif "NOT READY: " in line and "ended during its start" not in line:
            late = "in time" in line
            other = "another process listens" in line
            kind = "port in use" if other else "timeout" if late else "refused by the waiter"
            self._note(_CAUSE if other else _LATE if late else _VERDICT, kind, line)
        elif "is still taken by" in line:
            self._note(_CAUSE, "port in use", line)

    def _live(self, line: str) -> None:
        """Forget what the server survived."""
        ready = bool(_READY.search(line))
        self.ready |= ready
        self._alive += bool(_ALIVE.search(line))
        if self.best and self.best.rank != _VERDICT and (ready or self._alive >= _SURVIVED):
            self.best = None

    def _judge(self, line: str) -> None:
        if not _MAYBE.search(line) or _CALM.search(line[:_HEAD]):
            self._live(line)
            return
        if _UNFINISHED.search(line):
            self._pending = line.strip()
            return
        if _GUESSES.search(line):
            self._note(_ECHO, UNKNOWN, line)
            return
        raised = _EXCEPTION.search(line[:_HEAD])
        text = line[raised.start(1) :] if raised else line
        if raised and raised.end() == len(line):  # such as a bare assertion
            text = f"{text}: {self._code}" if self._code else text
        late = 2 if _WARNING.search(line[:_HEAD]) else 0
        found = self._by_rule(text) or self._by_nccl(line)
        if found:
            rank, kind = found
            self._note(rank + late, kind, text if raised else line)
        elif _CONSEQUENCE.search(line):
            self._note(_ECHO, UNKNOWN, line)
        elif raised:
            self._note(_RAISED, UNKNOWN, text)

    def _by_rule(self, text: str) -> Optional[Tuple[int, str]]:
        for kind, rank, pattern, frames in _RULES:
            if (not frames or self._frames.get(frames)) and pattern.search(text):
                return rank, kind
        return None

    def _by_nccl(self, line: str) -> Optional[Tuple[int, str]]:
        """Ask for NCCL's own reason; PyTorch repeats it below a heading, without NCCL's name."""
        if not _NCCL_LINE.search(line):
            return None
        cause = nccl_log.read([line]).cause or nccl_log.read(["Last error:", line]).cause
        kind, rank = _NCCL.get(cause.kind if cause else "", ("", _RAISED))
        return (rank, kind) if kind else None

    def _note(self, rank: int, kind: str, line: str) -> None:
        self._alive = 0
        # Requests that a living server answered with an error come before the one that it died of.
        newer = rank == _RAISED and self.ready
        if self.best is None or rank < self.best.rank or (newer and rank == self.best.rank):
            self.best = Evidence(rank, kind, line.strip()[:_QUOTE])


def classify(lines: Iterable[str], result: Mapping[str, Any]) -> Failure:
    """Say what class of failure ended a start or a server.

    Args:
        lines: of the unit's journal or log file, oldest first, with any prefix.
        result: systemd's view of the unit: ``Result``, ``ExecMainCode`` and ``ExecMainStatus``, as ``systemctl show``
            has them; what is missing is not judged.

    Returns:
        The kind (a key of ``ADVICE``), the line that says so ("" if none does) and what to do next.
    """
    start, older = _Start(), None
    for raw in lines:
        line = _COLOUR.sub("", raw[:_LONGEST]).rstrip()
        if _STARTS.search(line):
            older, start = _better(start.best, older), _Start()
        start.take(line)
    best, told = _better(start.best, older), _told(result)
    if told and (best is None or told.rank <= best.rank):
        # A line, where there is one, says more than systemd's word.
        best = Evidence(told.rank, told.kind, best.line) if best and best.kind in (told.kind, UNKNOWN) else told
    kind, line = (best.kind, best.line) if best else (UNKNOWN, "")
    return Failure(kind, line, ADVICE[kind])


def _better(newer: Optional[Evidence], older: Optional[Evidence]) -> Optional[Evidence]:
    """Return the evidence of the newest start that explains itself."""
    return newer if newer and (newer.rank < _RAISED or not older or older.rank > newer.rank) else older or newer


def _told(result: Mapping[str, Any]) -> Optional[Evidence]:
    """Return what systemd alone can tell: how the main process ended, and whether by its own will."""
    word, status = str(result.get("Result", "")), _number(result.get("ExecMainStatus"))
    code = {"exited": 1, "killed": 2, "dumped": 3}.get(str(result.get("ExecMainCode")), result.get("ExecMainCode"))
    by_signal = word in ("signal", "core-dump") or _number(code) in (2, 3)
    quote = f"systemd: Result={word}, ExecMainStatus={status}"
    if word == "oom-kill":
        return Evidence(_VERDICT, "host memory", quote)
    if word in ("timeout", "watchdog"):
        return Evidence(_LATE, "timeout", quote)
    if by_signal and status == 7:
        return Evidence(_LATE, "shared memory", quote)
    if by_signal:
        # SGLang kills itself when a child has failed (real_engine: SIGKILL after "Received sigquit").
        rank = _ECHO + 1 if status == 9 else _RAISED
        return Evidence(rank, "killed" if status in (1, 2, 9, 15) else "crashed", quote)
    if status == REFUSED and _number(code) in (0, 1):
        return Evidence(_LATE, "refused by the guard", quote)
    if status == 0 and _number(code) == 1:
        return Evidence(_RAISED, "ended by itself", quote)
    return None


def _number(value: object) -> int:
    try:
        return int(str(value))
    except (TypeError, ValueError):
        return -1
