"""The typed configuration: frozen values that every other part works on.

A field without a default is required. Units stand in the names or in the comments; an empty string, an empty
tuple or 0 means "not said", so no field is ever null.
"""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003 - the converter reads these annotations at run time
from dataclasses import dataclass, field
from typing import Literal

#: What a flag of an engine may be set to; ``True`` is the bare flag, ``False`` and ``None`` leave it out.
ArgValue = str | int | float | bool | tuple[str | int | float, ...] | None


@dataclass(frozen=True)
class Hardware:
    """The GPUs of one host. Rules about hardware stay silent where a fact is not said."""

    name: str = "unknown"
    # As nvidia-smi prints it, or the part that all variants of the board share.
    gpu: str = ""
    gpu_count: int = 0
    # Of one GPU, as the data sheet prints it. Nominal: in GiB, nvidia-smi shows up to 7 % less.
    gpu_memory_gb: int = 0
    interconnect: Literal["unknown", "pcie", "nvlink"] = "unknown"
    pcie_generation: int = 0
    # Whether one GPU can reach another's memory directly with the driver as NVIDIA ships it.
    p2p: Literal["unknown", "possible", "impossible"] = "unknown"
    numa_nodes: int = 0
    # Of one GPU, in watts, as it leaves the factory.
    power_limit_w: int = 0


@dataclass(frozen=True)
class Model:
    """The model that is served, and the shape that decides its communication."""

    name: str
    path: str
    served_name: str = ""
    trust_remote_code: bool = False
    # The degree that the model is served with; the engine takes it over unless told otherwise.
    tensor_parallel: int = 1
    # Highest degree that its weights can be cut into, where that is less than its heads allow.
    max_tensor_parallel: int = 0
    # Type of the weights: int4, mxfp4, fp8, bf16.
    quantization: str = ""
    layers: int = 0
    hidden_size: int = 0
    # A degree has to divide them.
    attention_heads: int = 0
    # Heads in the cache; 1 for latent attention (MLA). A degree above them copies the cache.
    kv_heads: int = 0
    # In one forward pass with tensor parallelism.
    allreduces_per_layer: int = 0
    # Entries of the output layer; its logits are gathered in each step.
    vocab_size: int = 0
    # Layers of its own for multi-token prediction, which `spec=mtp` drafts with.
    mtp: Literal["unknown", "present", "absent"] = "unknown"


@dataclass(frozen=True)
class Speculation:
    """Speculative decoding; ``steps`` are draft steps a cycle, ``draft_tokens`` tokens a verify step."""

    method: Literal["off", "eagle3", "ngram", "mtp"] = "off"
    steps: int = 0
    topk: int = 0
    draft_tokens: int = 0
    draft_model_path: str = ""
    # The model that the draft was trained for; empty: not said.
    draft_for: str = ""
    # Longest match that vLLM looks for (prompt_lookup_max); SGLang names it differently by version.
    ngram_max: int = 0
    # EAGLE3_PROFILE=1: timing lines per cycle in a patched engine.
    profile: bool = False


@dataclass(frozen=True)
class Engine:
    """The program that serves. ``args`` holds its further flags by name, ``-`` written as ``_``."""

    name: Literal["sglang", "vllm"]
    python: str
    user: str
    # As installed on the hosts; empty: not known. Rules about versions need them.
    version: str = ""
    nccl_version: str = ""
    host: str = "0.0.0.0"  # noqa: S104 - the reference server listens on every address
    port: int = 8000
    tensor_parallel: int = 1
    memory_fraction: float = 0.0
    # Indices of the host's GPUs (CUDA_VISIBLE_DEVICES); empty: all of them.
    gpus: tuple[str, ...] = ()
    working_directory: str = ""
    args: Mapping[str, ArgValue] = field(default_factory=dict)


@dataclass(frozen=True)
class Unit:
    """Settings of the systemd unit; times are whole seconds."""

    # How long a start may take until the server answers; a large model loads for ten minutes.
    start_timeout: int = 1800
    stop_timeout: int = 120
    restart_delay: int = 10
    # A slice of one's own, below launch.slice: launch-NAME.slice.
    slice: str = "launch.slice"
    # What makes the server ready: one answered completion, or health alone (embedding models).
    ready: Literal["completion", "health"] = "completion"
    # Empty: the journal. Else a file that both streams are appended to.
    log_file: str = ""
    # Before a planned stop: how long to wait until no client is connected, in seconds.
    drain_seconds: int = 0
    # Shell commands of the host, run by root in a planned change: before the server stops, after the new one is proven.
    before_stop: str = ""
    after_start: str = ""
    # Also keep NCCL's variables in a marked block of /etc/nccl.conf, for servers that somebody starts by hand.
    nccl_conf: bool = False


@dataclass(frozen=True)
class Secrets:
    """Values that no file of the configuration holds: where each is read on the deploying side.

    A source is ``file:PATH`` or ``command:COMMAND``. ``env`` are variables of the server, ``args`` flags that it
    takes only on its command line; these reach it through a configuration file that only its user can read.
    """

    env: Mapping[str, str] = field(default_factory=dict)
    args: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Accepted:
    """A difference that is known and accepted for a time; every check still shows it."""

    # A finding's id, or its id and subject: "drop-in /etc/systemd/system/service.d/10-limits.conf".
    finding: str
    reason: str
    # The last day, as 2027-01-31.
    until: str


@dataclass(frozen=True)
class Drift:
    """The check on the host by its own timer, and what it need not report."""

    accept: Mapping[str, Accepted] = field(default_factory=dict)
    # A unit that is started when something new is found, or the server was restarted again; {deployment} is the name.
    alert: str = ""
    # A file for node_exporter's textfile collector, written where its folder exists. Empty: none.
    textfile: str = "/var/lib/prometheus/node-exporter/launch.prom"


@dataclass(frozen=True)
class Load:
    """One workload of a served model, and the figure that decides it.

    What is 0 or empty is that of the default load of the same name, and for another name 1 request in flight, 512 + 128
    tokens, and tokens a second.
    """

    # Requests in flight; the client keeps so many.
    concurrency: int = 0
    # 0: eight for each one in flight, sixteen at least.
    requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    metric: Literal["", "output_tokens_per_s", "tpot_ms", "ttft_ms", "e2e_ms"] = ""


@dataclass(frozen=True)
class Bench:
    """What a sweep measures of each point, and `launch bench` of one configuration."""

    kind: Literal["off", "allreduce", "serve"] = "off"
    # Of serve: the measuring program, and what it is asked to do. `command` is a shell command that prints JSON.
    client: Literal["vllm", "sglang", "aiperf", "guidellm", "command"] = "vllm"
    # Interpreter that has it; empty: the engine's.
    client_python: str = ""
    command: str = ""
    loads: Mapping[str, Load] = field(default_factory=dict)
    # Runs of each workload within one start; they are averaged.
    runs: int = 1
    # Seconds for one run of a client, after which it is ended and the row is invalid.
    client_timeout: int = 900
    # Prompt tokens that may come from the prefix cache before a row is invalid, as a part of all.
    cache_hits: float = 0.01
    # Accepted tokens a verify step, lowest and highest; empty: any.
    acceptance_low: float = 0.0
    acceptance_high: float = 0.0
    # Regular expressions over the engine's log by name, each with one group that is a number; means go into the rows.
    log_patterns: Mapping[str, str] = field(default_factory=dict)
    # gloo tries the way without GPUs; its figures say nothing about a server.
    backend: Literal["nccl", "gloo"] = "nccl"
    # Folder of NVIDIA's nccl-tests where the measurement runs, or the path of its all_reduce_perf: they measure instead
    # of torch, with threads of one process as ranks. Empty: torch in the engine's interpreter, one process a rank.
    nccl_tests: str = ""
    # Sequences in a decode step and, with speculation, in a verify step.
    batches: tuple[int, ...] = (1, 8, 64)
    # Tokens of a prefill chunk; empty: the engine's own chunk.
    prefill_tokens: tuple[int, ...] = ()
    # Of the activations, which are what is reduced.
    dtype: Literal["bfloat16", "float16", "float32"] = "bfloat16"
    # Of replays for each size.
    seconds: float = 0.15
    # Without a sign of life, in seconds, after which the ranks count as hung.
    deadline: int = 60
    # Tokens that a verify step yields on average, measured or given; 0: not known.
    acceptance_length: float = 0.0
    # Milliseconds of a whole step of the baseline by workload, measured on the server: decode-1, verify-1, …
    step_ms: Mapping[str, ArgValue] = field(default_factory=dict)


@dataclass(frozen=True)
class Sweeping:
    """How a sweep is run and judged; a trial is one fresh start."""

    # Smallest relative difference that matters.
    effect: float = 0.02
    # Valid starts of a point before it is judged, and starts after which it stays undecided.
    repeats: int = 2
    max_repeats: int = 6
    # Points between two trials of the baseline.
    baseline_every: int = 6
    # After which no further trial begins; 0: no limit.
    minutes: float = 0.0
    # Leave out NCCL sets that bench=allreduce found slower than the default on equal hardware, and faster at no size.
    prune: bool = False
    # Of all intervals of a sweep together.
    confidence: float = 0.95
    # Folder of the results, relative to where the command was given.
    out: str = "results"
    # A host that hears nothing of its sweep for so long puts back what was served before; in seconds.
    silence: int = 120
    # When production is back on a host, measure it once more, and tell whether it serves as the baseline did.
    closing: bool = False


@dataclass(frozen=True)
class Place:
    """How to get to a host that an inventory knows by another name; what is empty or 0 is as the target says."""

    address: str = ""
    user: str = ""
    port: int = 0
    identity_file: str = ""


@dataclass(frozen=True)
class Target:
    """Where the release goes; ``process``, ``slurm``: nowhere, what is measured is a child, here or in a job."""

    kind: Literal["render", "local", "ssh", "process", "slurm"] = "render"
    # With an inventory its groups and patterns too; without one patterns over the hosts of the SSH configuration.
    hosts: tuple[str, ...] = ()
    # An inventory of Ansible. Empty: none.
    inventory: str = ""
    # Patterns, separated by commas, that choose among these hosts: --limit.
    limit: str = ""
    # How to get to a host, by its name; filled from the inventory.
    places: Mapping[str, Place] = field(default_factory=dict)
    # Folder for ``render``, relative to where the command was given.
    out: str = "rendered"
    # Empty and 0 in what follows: as the SSH configuration says.
    user: str = ""
    port: int = 0
    # Tried before every other key.
    identity_file: str = ""
    # The only file that host keys are looked up in.
    known_hosts: str = ""
    # Read in place of the user's and the system's.
    ssh_config: str = ""
    # A file of mode 0600 with the password for sudo in its first line. Empty: it is asked for at the terminal.
    sudo_password_file: str = ""
    # The host's own interpreter, 3.8 or newer; it runs probe, guard and waiter.
    python: str = "/usr/bin/python3"
    # Before a new server starts, a few collectives under its environment: they find links that hang or bring wrong
    # sums before the model is loaded. ``stopped``: when the old server is gone; ``beside``: while it serves.
    link_test: Literal["off", "stopped", "beside"] = "off"
    # Hosts worked on at the same time.
    parallel: int = 16
    # After the proof a host waits for a second connection of its client, and goes back without it; in seconds.
    confirm_timeout: int = 120
    # Hosts that switch together or not at all, in the order of `hosts`. 0: all of them.
    hosts_per_world: int = 0
    # Between two worlds, in seconds; the first one is the canary.
    pause: int = 0
    # Worlds that may fail before no further one is begun.
    max_failures: int = 0
    # In seconds, for each step of each hop. 0: ConnectTimeout of the SSH configuration, else 10.
    connect_timeout: int = 0


@dataclass(frozen=True)
class Runtime:
    """What holds the engine: a virtual environment of the host, or a container of podman.

    Image and mounts are also those of what ``launch render --format`` writes for podman, docker and Kubernetes.
    """

    kind: Literal["venv", "podman"] = "venv"
    # NAME@sha256:DIGEST. A tag can be moved, and then restarts differ without a change here.
    image: str = ""
    # Folders of the host beside those of model and draft model, read only: PATH, PATH:TARGET, PATH:TARGET:rw.
    mounts: tuple[str, ...] = ()


@dataclass(frozen=True)
class Slurm:
    """What a batch script (`launch render --format sbatch`), and each job of a sweep with ``target=slurm``, asks for.

    Empty and 0: what the cluster says.
    """

    partition: str = ""
    account: str = ""
    # Time limit; minutes, because YAML 1.1 reads 1:30 as a number of its own.
    minutes: int = 0
    # Each serves the same release; a job of a sweep has one.
    nodes: int = 1
    # Of a node: a number, or TYPE:NUMBER; empty: engine.tensor_parallel; none: the line is left out.
    gpus: str = ""
    # CPUs of the server; 0: the whole node, with --exclusive.
    cpus: int = 0
    # Further options of sbatch: [--constraint=h200, --reservation=llm].
    extra: tuple[str, ...] = ()
    # Of a sweep: jobs that share the points, each with a baseline of its own. 0: one for each point.
    jobs: int = 0


@dataclass(frozen=True)
class Deployment:
    """One served model under one name: everything that its release is rendered from."""

    name: str
    model: Model
    engine: Engine
    hw: Hardware = field(default_factory=Hardware)
    nccl: Mapping[str, str] = field(default_factory=dict)
    spec: Speculation = field(default_factory=Speculation)
    unit: Unit = field(default_factory=Unit)
    drift: Drift = field(default_factory=Drift)
    secrets: Secrets = field(default_factory=Secrets)
    bench: Bench = field(default_factory=Bench)
    sweep: Sweeping = field(default_factory=Sweeping)
    target: Target = field(default_factory=Target)
    slurm: Slurm = field(default_factory=Slurm)
    runtime: Runtime = field(default_factory=Runtime)
    # Rules that may not refuse this deployment.
    allow: tuple[str, ...] = ()
    # A server that somebody started otherwise and that this deployment takes the place of: SHA-256 over its command,
    # working folder and user, as `launch adopt` writes it. Of no use once it has.
    takes_over: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
