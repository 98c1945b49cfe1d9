"""What NCCL says in a server's log: facts, the cause of a death, and per variable whether it is in force.

Lines are found behind any prefix (journal, Ray, engine loggers, torchrun); one that another process wrote into is not
believed. Silence proves nothing: most variables are read at first use, some are never logged.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Counter as Count
from typing import Dict, Iterable, Iterator, List, Mapping, NamedTuple, Optional, Tuple

PROVED, CONTRADICTED, SILENT = "proved", "contradicted", "silent"
Process = Tuple[str, int]  # host and pid
Channels = NamedTuple("Channels", [("coll", int), ("nvls", int), ("p2p", int)])
Communicator = NamedTuple("Communicator", [("process", Process), ("address", str), ("rank", int), ("nranks", int)])
#: As NCCL writes them, such as RING and LL (up to 2.21 by number, and without function).
Choice = NamedTuple("Choice", [("function", str), ("size", int), ("algorithm", str), ("protocol", str)])
Cause = NamedTuple("Cause", [("kind", str), ("line", str)])
#: The word is one of the three above; the quote is NCCL's line, or "".
Verdict = NamedTuple("Verdict", [("word", str), ("quote", str), ("reason", str)])


@dataclass
class Log:
    """Facts of one log; dictionaries end in a count, or in the first line of NCCL that says so.

    ``taken`` goes by name, process and value, ``unparsed`` by the list that NCCL could not read, ``matrix`` by function
    and algorithm or protocol; ``deduplicated``: Ray left lines out.
    """

    versions: Count[str] = field(default_factory=Counter)
    cuda: Count[str] = field(default_factory=Counter)
    taken: Dict[str, Dict[Tuple[Process, str], str]] = field(default_factory=dict)
    altered: Dict[str, str] = field(default_factory=dict)
    unparsed: Dict[str, str] = field(default_factory=dict)
    matrix: Dict[str, Dict[str, bool]] = field(default_factory=dict)
    rows: Dict[str, str] = field(default_factory=dict)
    channels: Dict[Channels, str] = field(default_factory=dict)
    transports: Count[str] = field(default_factory=Counter)
    networks: Count[str] = field(default_factory=Counter)
    choices: Count[Choice] = field(default_factory=Counter)
    unfinished: Dict[Communicator, str] = field(default_factory=dict)
    completed: Dict[Communicator, str] = field(default_factory=dict)
    warnings: List[str] = field(default_factory=list)
    errors: List[str] = field(default_factory=list)
    info: bool = False
    deduplicated: bool = False

    @property
    def cause(self) -> Optional[Cause]:
        """What a dead server most likely died of; one that lives can have warnings too."""
        lines = [line for line in self.warnings if not _HARMLESS.search(line)] + self.errors
        causes = [Cause(_kind(line), line) for line in lines]
        special = [cause for cause in causes if cause.kind not in _GENERAL]
        if causes:
            return special[0] if special else Cause(next((c.kind for c in causes if c.kind), "other"), lines[0])
        return next((Cause("not completed", line) for line in self.unfinished.values()), None)


_KEEP, _LONGEST, _ROWS = 20, 8192, 200  # warnings; characters of a line; lines in which a matrix is complete
_ALGORITHMS = dict(zip("0123456", ["TREE", "RING", "COLLNET_DIRECT", "COLLNET_CHAIN", "NVLS", "NVLS_TREE", "PAT"]))
_PROTOCOLS = {"0": "LL", "1": "LL128", "2": "SIMPLE"}
_FUNCTIONS = ("Broadcast", "Reduce", "AllGather", "ReduceScatter", "AllReduce")
_NOISE = re.compile(r"\x1b\[[0-9;]*m|[\r\n]+$")
_REPEATED = re.compile(r" ?\[repeated \d+x across cluster\].*")
_LEVEL = re.compile(r" NCCL (INFO|WARN|ATTN|ABORT|TRACE|CALL)(?: |$)")
_HEAD = re.compile(r"([^\s:\[\]]{1,255}):(\d{1,10}):\d+ \[-?\d+\](?: \S{1,99}:\d+(?: \([^)]{0,99}\))?)?$")
_VERSION = re.compile(r"NCCL version (\d[\d.]*\d)(?:\+cuda(\d[\d.]*))?|is using nccl==(\d[\d.]*\d)")
_TAKEN = re.compile(r"(NCCL_\w+) set (?:by \w+ )?to (.*)|reset to (NCCL_\w+)=(.*)|variable (NCCL_\w+)=(.*) to ")
_ALTERED = re.compile(r"Invalid (?:value .* for )?(NCCL_\w+)|(NCCL_(?:ALGO|PROTO)) was set to|asked for a (m..)imum of")
_UNPARSED = re.compile(r'Unrecognized \w+ token ".*" when parsing "(.+?)"')
_CHANNELS = re.compile(r"(\d{1,6}) coll channels,(?: \d+ collnet \w+,)?(?: (\d{1,6}) nvls \w+,)? (\d{1,6}) p2p")
_VIA = re.compile(r"(?:Channel|Ring) \d+(?:/\d+)? ?: \d+\[\w+\] -> \d+\[\w+\] (?:\[\w+\] )?via (.+)")
_NETWORK = re.compile(r"Using network (\S+)")
_INIT = re.compile(r"comm (0x\w+) rank (\d{1,9}) n[rR]anks (\d{1,9}) .*Init (START|COMPLETE)")
_CHOICE = re.compile(r"(?:\b(\w+): )?(\d{1,18}) Bytes -> Algo (\w+) proto (\w+)")
_ERROR = re.compile(r"NCCL error(?: in)?:(?! ?\{)|\bnccl[A-Z]\w+(?:Error|Usage|Argument): |Watchdog caught collective")
_HARMLESS = re.compile(r"Invalid NCCL_NTHREADS|asked for a m..imum")
_GENERAL = ("", "CUDA error", "invalid usage", "system error", "internal error")  # engines say them, and little more
_KINDS = [
    ("no algorithm", "no algorithm/protocol available"),
    ("refused value", "unrecognized element token"),
    ("no network interface", "no socket interface found"),
    ("shared memory", r"dev/shm\b|shared memory segment|posix_fallocate"),
    ("locked memory", "ibv_(?:create|reg)_.*(?:allocate memory|errno 12)|memlock"),
    ("out of memory", "out of memory"),
    ("ranks differ", "message truncated|mismatch"),
    ("other side ended", "closed by remote peer|remote process.* exited|reset by peer|ncclRemoteError"),
    ("network", r"connect.*(?:refused|failed|timed out)|no route to host|got completion|net/\w+ ?: .*(?:error|failed)"),
    ("hang", "watchdog caught|timed out"),
    ("CUDA error", "cu(?:da)? ?(?:failure|error)|ncclUnhandledCudaError"),
    ("invalid usage", "invalid (?:usage|argument)|ncclInvalid"),
    ("system error", "system error|ncclSystemError"),
    ("internal error", "internal (?:error|check failed)|ncclInternalError"),
]
_WHY = {  # by the first word of log_evidence
    "": "NCCL reads no such name",
    "none": "never logged",
    "api": "a typed parameter: never logged",
    "level": "logged only when accepted and looked at",
    "custom": "logged only in some cases",
}


def _kind(line: str) -> str:
    return next((kind for kind, pattern in _KINDS if re.search(pattern, line, re.IGNORECASE)), "")


def read(lines: Iterable[str]) -> Log:
    """Read a log line by line."""
    log, columns, rows, quoting = Log(), [""], 0, 0
    for raw in lines:
        if rows and "|" in raw:
            columns = _row(log, raw[:_LONGEST], columns)
        rows -= rows > 0
        if quoting and _kind(raw[:_LONGEST]) not in _GENERAL:  # PyTorch repeats NCCL's last warning at any NCCL_DEBUG
            _note(log.errors, raw[:_LONGEST])
        quoting = 4 if "Last error:" in raw else quoting - (quoting > 0)
        if "NCCL" not in raw and "nccl" not in raw:
            continue
        line = _NOISE.sub("", raw[:_LONGEST])
        log.deduplicated |= "repeated" in line and bool(_REPEATED.search(line))
        for process, level, text, quote in _heard(log, _REPEATED.sub("", line)):
            _take(log, process, text, quote)
            log.info |= level == "INFO"
            _note(log.warnings, quote if level == "WARN" else "")
            rows = _ROWS if "Func/Proto/Algo Matrix" in text else rows
    return log


def _note(notes: List[str], line: str) -> None:
    if line and len(notes) < _KEEP and line.strip() not in notes:
        notes.append(line.strip())


def _heard(log: Log, line: str) -> Iterator[Tuple[Process, str, str, str]]:
    """Yield what NCCL says in a line; when another message cuts it off, only a warning counts."""
    heads = []
    for level in _LEVEL.finditer(line):
        start = max(0, level.start() - 600)
        head = _HEAD.search(line[start : level.start()])
        if head:
            heads.append((start + head.start(), (head.group(1), int(head.group(2))), level.group(1), level.end()))
    for (start, process, word, end), following in zip(heads, [*heads[1:], None]):
        stop = following[0] if following else len(line)
        if word == "WARN" or not following:
            yield process, word, line[end:stop], line[start:stop].strip()
    for version in _VERSION.finditer(line):
        log.versions[version.group(1) or version.group(3)] += 1
        log.cuda.update([version.group(2)] if version.group(2) else [])
    if not heads and _ERROR.search(line):
        _note(log.errors, line)


def _take(log: Log, process: Process, text: str, quote: str) -> None:
    for match in _TAKEN.finditer(text):
        name, value = (group for group in match.groups() if group is not None)
        log.taken.setdefault(name, {}).setdefault((process, value.strip()), quote)
    for match in _ALTERED.finditer(text):
        name = match.group(1) or match.group(2) or f"NCCL_{match.group(3).upper()}_NCHANNELS"
        log.altered.setdefault(name, quote)
    for names in _UNPARSED.findall(text):
        log.unparsed.setdefault(names.lower(), quote)
    for counts in _CHANNELS.findall(text):
        log.channels.setdefault(Channels(*(int(count or 0) for count in counts)), quote)
    log.transports.update(_VIA.findall(text))
    log.networks.update(_NETWORK.findall(text))
    for address, rank, nranks, stage in _INIT.findall(text):
        communicator = Communicator(process, address, int(rank), int(nranks))
        log.unfinished[communicator] = quote
        if stage == "COMPLETE":
            log.completed.setdefault(communicator, log.unfinished.pop(communicator))
    for function, size, algorithm, protocol in _CHOICE.findall(text):
        words = _ALGORITHMS.get(algorithm, algorithm), _PROTOCOLS.get(protocol, protocol)
        log.choices[Choice(function, int(size), *words)] += 1


def _row(log: Log, raw: str, columns: List[str]) -> List[str]:
    """Take a row of the matrix of what ALGO and PROTO leave; rows have no prefix of NCCL, and can be torn."""
    match = re.search(r"(Function|Broadcast|(?:All)?Reduce|AllGather|ReduceScatter) \|(.*)", raw)
    function, words = (match.group(1), match.group(2).replace("|", " ").split()) if match else ("", [])
    if function == "Function":
        return [word.lower() for word in words]
    if match and len(words) == len(columns) and all(word in "012" for word in words):
        log.matrix[function] = {column: word != "0" for column, word in zip(columns, words)}
        log.rows[function] = " ".join(match.group().split())
    return columns


def verdicts(log: Log, env: Mapping[str, str], evidence: Mapping[str, str]) -> Dict[str, Verdict]:
    """Judge every NCCL variable of an environment; ``evidence`` is the catalogue's ``log_evidence`` by name."""
    return {n: _verdict(log, n, env, evidence.get(n, "")) for n in sorted(env) if n.startswith("NCCL_")}


def _verdict(log: Log, name: str, env: Mapping[str, str], kind: str) -> Verdict:
    value, said = env[name].strip(), log.taken.get(name, {})
    against = next((line for (_, text), line in said.items() if not _same(text, value)), "")
    against = against or log.altered.get(name, "") or _effect(log, name, value)
    if against:
        return Verdict(CONTRADICTED, against, f"{value!r} was given")
    taken, complete = {process for process, _ in said}, {c.process for c in log.completed}
    if not taken:
        return Verdict(SILENT, "", _why(log, re.split("[^a-z]", kind)[0]))
    quote, share = next(iter(said.values())), f"taken by {len(taken & complete)} of {len(complete)} with a communicator"
    share += " (Ray left lines out: RAY_DEDUP_LOGS=0)" if log.deduplicated else ""
    return Verdict(PROVED if complete and complete <= taken else SILENT, quote, share)


def _why(log: Log, kind: str) -> str:
    if kind in ("", "none", "api"):
        return _WHY[kind]
    if not log.completed:
        return "no communicator came up" if log.info else "no INFO lines of NCCL: set NCCL_DEBUG=INFO"
    return _WHY.get(kind, "read at first use: not used so far, not delivered, or NCCL_DEBUG_SUBSYS lacks ENV")


def _same(text: str, value: str) -> bool:
    """Compare what NCCL took with what was given; whole numbers end with a dot in its log."""
    number = re.fullmatch(r"[+-]?(?:0[xX][0-9a-fA-F]{1,16}|[0-9]{1,20})", value)
    if number and re.fullmatch(r"-?[0-9]{1,20}\.?", text):
        return int(text.rstrip(".")) == int(value, 16 if "x" in value.lower() else 10)
    return text == value


def _effect(log: Log, name: str, value: str) -> str:
    """Return a line that shows NCCL doing what a variable forbids, or nothing."""
    if name == "NCCL_MAX_NCHANNELS" and re.fullmatch("[0-9]{1,9}", value):
        return next((line for c, line in log.channels.items() if c.coll > max(int(value), c.nvls, 1)), "")
    known = {"NCCL_ALGO": _ALGORITHMS, "NCCL_PROTO": _PROTOCOLS}.get(name, {})
    words, lists = [word.lower().replace("_", "") for word in known.values()], value.lower()
    rules = {function: names for function, _, names in (part.rpartition(":") for part in lists.split(";"))}
    found = [line for names, line in log.unparsed.items() if known and names in lists]
    for function, row in log.matrix.items():
        names = rules.get(function.lower(), rules.get("", ""))
        if names and any(row.get(word) == (not _allows(names, word)) for word in words):
            found.append(log.rows[function])
    for choice in log.choices:
        names = rules.get(choice.function.lower(), rules.get("", ""))
        word = (choice.algorithm if name == "NCCL_ALGO" else choice.protocol).lower().replace("_", "")
        certain = choice.function in _FUNCTIONS or (not choice.function and len(rules) == 1)
        if certain and names and word in words and not _allows(names, word):
            found.append("{}: {} Bytes -> Algo {} proto {}".format(*choice))
    return found[0] if found else ""


def _allows(names: str, word: str) -> bool:
    return (word in names.lstrip("^").split(",")) != names.startswith("^")
