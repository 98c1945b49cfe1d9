"""The kinds of drift that the tests inject: how, what must be found, how it is undone, and what is harmless like it."""

from __future__ import annotations

from dataclasses import dataclass, field

#: What the rows below use; sourced before each. PUT_BACK copies back what `KEEP` kept right after the deploy.
KIT = r"""
N=kimi_k2_5_int4; U=launch-$N.service; UF=/etc/systemd/system/$U; ETC=/etc/launch/$N
AGENT=/usr/local/lib/launch/agent.py; KEPT=/var/tmp/kept; SMI=/opt/gpu/nvidia-smi_-q_-x
FILES="$ETC $UF /etc/launch/shared.json $AGENT /etc/systemd/system/launch.slice /opt/gpu /opt/lib"
FILES="$FILES /opt/standin/standin.py /opt/standin/python"
ENV=$(cat $KEPT/env 2>/dev/null); MAN=${ENV%.env}.json
reload() { systemctl daemon-reload; }
restart() { systemctl reset-failed $U 2>/dev/null; systemctl restart $U; }
main() { systemctl show -P MainPID $U; }
group() { echo /sys/fs/cgroup$(systemctl show -P ControlGroup $U); }
# dropin FOLDER TEXT: a drop-in x.conf.
dropin() { mkdir -p "$1"; printf '[Service]\n%b\n' "$2" > "$1/x.conf"; }
D=$UF.d
# loose FAULT: the server starts with a fault and nobody looks; then no trace of how is left.
loose() { echo "$1" > /opt/standin/fault; dropin /run/systemd/system/$U.d 'ExecStartPost='; reload; restart; up
          rm -r /run/systemd/system/$U.d /opt/standin/fault; reload; }
# up: wait until somebody listens on the port, and the workers have their names.
up() { for i in $(seq 100); do ss -Hltn sport = :8000 | grep -q . && pgrep -f ^sglang::scheduler_TP1 > /dev/null \
       && break; sleep 0.1; done; sleep 0.3; }
# back PID: wait until systemd has started the server again.
# In this order: a unit whose process was just ended is active until systemd has heard of it, and then has none.
back() { for i in $(seq 300); do n=$(main); [ "$n" != "$1" ] && [ "$n" != 0 ] &&
         [ "$(systemctl show -P ActiveState $U)" = active ] && break
         sleep 0.1; done; }
put_back() { for f in $FILES; do rm -rf "$f"; cp -a "$KEPT$f" "$f"; done; reload; }
# like PID CHANGES COMMAND...: a process with the environment of another one, changed; its number is printed.
like() { python3 -c '
import os, subprocess, sys
block = open("/proc/" + sys.argv[1] + "/environ", "rb").read().split(b"\0") if sys.argv[1] != "0" else []
env = dict(entry.split(b"=", 1) for entry in block if b"=" in entry)
env.update(word.encode().split(b"=", 1) for word in sys.argv[2].split())
null = subprocess.DEVNULL
print(subprocess.Popen(sys.argv[3:], env=env, stdin=null, stdout=null, stderr=null, start_new_session=True).pid)
' "$@"; }
# join PID: move it into the unit.
join() { echo $1 > $(group)/cgroup.procs; }
# managed FOLDER LINE: a setting of the manager.
managed() { mkdir -p $1; printf '[Manager]\n%s\n' "$2" > $1/x.conf; }
# package NAME VERSION: one that is installed for the engine.
package() { d=/opt/lib/python3.11/site-packages/$1-$2.dist-info
            mkdir -p $d; printf 'Metadata-Version: 2.1\nName: x\nVersion: %s\n' $2 > $d/METADATA; }
# conf LINE: one more in /etc/nccl.conf, until `no_conf`.
conf() { [ -e /tmp/conf ] || cp -a /etc/nccl.conf /tmp/conf 2>/dev/null; echo "$1" >> /etc/nccl.conf; }
no_conf() { rm /etc/nccl.conf; mv /tmp/conf /etc/nccl.conf 2>/dev/null; }
# note PID: what `no_guests` ends.
note() { echo $1 >> /var/tmp/guests; }
no_guests() { for p in $(cat /var/tmp/guests 2>/dev/null); do kill -9 $p 2>/dev/null; done; rm -f /var/tmp/guests
              sleep 0.1; }
# stray ENVIRONMENT: another server on the port of ours, by hand; with OURS it has all that ours has.
stray() { nohup env $1 /opt/standin/python -m sglang.launch_server --model-path /tmp/other --tp-size 2 --host 0.0.0.0 \
          --port 8000 > /dev/null 2>&1 < /dev/null & note $!; up; }
"""

#: Run once, right after the deploy.
KEEP = r"""
rm -rf $KEPT; for f in $FILES; do mkdir -p $KEPT${f%/*}; cp -a $f $KEPT$f; done
sed -n s/^EnvironmentFile=//p $UF > $KEPT/env
"""

#: Run after the deploy of another release, which is not the one that the rows are about.
KEEP_OTHER = r"""
rm -rf /var/tmp/other; mkdir /var/tmp/other
cp -a $ETC/*.env $ETC/????????????????.json /var/tmp/other; cp -a $UF /var/tmp/other.service
"""

#: Before the deploy: GPUs, packages and a library of NCCL.
FURNISH = r"""
mkdir -p /opt/gpu /opt/standin/lib /opt/other /opt/lib/python3.11/site-packages
printf '#!/bin/sh\nexec /opt/gpu/nvidia-smi "$@"\n' > /usr/bin/nvidia-smi
chmod 755 /usr/bin/nvidia-smi /opt/gpu/nvidia-smi
echo "no library, but it can be mapped" > /opt/standin/lib/libnccl.so.2
package torch 2.9.1; package nvidia_nccl_cu12 2.28.9
"""
UNFURNISH = "rm -rf /usr/bin/nvidia-smi /opt/gpu /opt/standin/lib /opt/other /opt/lib /var/tmp/kept /var/tmp/other*"


@dataclass(frozen=True)
class Kind:
    """One kind of drift.

    Attributes:
        name: of the test.
        inject: shell that makes it.
        found: layer, id and severity of the finding that must be there.
        part: of that finding's subject.
        control: shell that does something like it that is harmless.
        also: further findings that may come with it, as ``layer/id``.
        undo: shell that takes the drift away.
        undo_control: shell that takes the harmless act away.
        fix: how ``drift --fix`` mends it: ``files``, ``restart``; "" where it is not ours.
        code: exit code of ``drift``.
        alone: it cannot be had together with another kind.
        text: a part of what is told: the finding's text, values, cause and remedy.
    """

    name: str
    inject: str
    found: tuple[str, str, str]
    part: str
    control: str
    also: frozenset[str] = field(default_factory=frozenset)
    undo: str = "put_back"
    undo_control: str = "put_back"
    fix: str = ""
    code: int = 4
    alone: bool = False
    text: str = ""


def _kind(name: str, inject: str, found: str, part: str, control: str, **more: str | int) -> Kind:
    """Write a row: ``found`` is ``layer/id severity``, ``also`` a list in words."""
    what, severity = found.split(" ")
    layer, id_ = what.split("/")
    also = frozenset(str(more.pop("also", "")).split())
    return Kind(name, inject, (layer, id_, severity), part, control, also, **more)  # type: ignore[arg-type]


ENV = [
    _kind(
        "env: a value",
        "sed -i s/Ring/Tree/ $ENV",
        "files/env-file-edited critical",
        "NCCL_ALGO",
        "touch $ENV",
        fix="files",
        text="it takes effect at the next start",
    ),
    _kind(
        "env: a variable less",
        "sed -i /NCCL_PROTO/d $ENV",
        "files/env-file-edited critical",
        "NCCL_PROTO",
        "sort -r $ENV > /tmp/x; (echo '# by hand'; echo; cat /tmp/x; echo '; end') > $ENV",
        fix="files",
        text="is not set in",
    ),
    _kind(
        "env: a variable more",
        "echo NCCL_P2P_DISABLE=1 >> $ENV",
        "files/env-file-edited critical",
        "NCCL_P2P_DISABLE",
        "sed -i s/\\'/'\"'/g $ENV",
        fix="files",
        text="is set too in",
    ),
    _kind(
        "env: a NUL byte",
        r"printf '\0' >> $ENV",
        "files/env-file-broken critical",
        ".env",
        "sed -i s/\\'//g $ENV",
        fix="files",
        text="the next start fails",
    ),
    _kind(
        "env: an open quote",
        "sed -i \"s/^NCCL_ALGO='Ring'/NCCL_ALGO='Ring/\" $ENV",
        "files/env-file-edited critical",
        "NCCL_ALGO",
        "sed -i 's/$/\\r/' $ENV",
        fix="files",
    ),
    _kind(
        "env: named again below",
        "echo NCCL_ALGO=Tree >> $ENV",
        "files/env-file-edited critical",
        "NCCL_ALGO",
        "echo NCCL_ALGO=Ring >> $ENV",
        fix="files",
    ),
    _kind(
        "env: a byte order mark",
        r"(printf '\357\273\277'; cat $KEPT$ENV) > $ENV",
        "files/env-file-edited critical",
        ".env LAUNCH_DEPLOYMENT",
        r"sed -i 's/^/ \t/' $ENV",
        fix="files",
    ),
    _kind(
        "env: empty",
        ": > $ENV",
        "files/env-file-edited critical",
        "NCCL_ALGO",
        "cp $ENV /tmp/x; cat /tmp/x > $ENV",
        fix="files",
    ),
    _kind("env: missing", "rm $ENV", "files/env-file-missing critical", ".env", "cp $ENV $ENV.bak", fix="files"),
    _kind(
        "env: mode",
        "chmod 644 $ENV",
        "files/env-file-mode warning",
        ".env",
        "chmod 600 $ENV; chgrp daemon $ENV",
        fix="files",
    ),
    _kind(
        "env: owner",
        "chown llm $ENV",
        "files/env-file-mode warning",
        ".env",
        "chmod 700 $ETC; chmod 755 $ETC",
        fix="files",
    ),
    _kind(
        "env: a link",
        "mv $ENV /opt/x.env; ln -s /opt/x.env $ENV",
        "files/env-file-linked critical",
        ".env",
        "ln $ENV /etc/launch/hard; rm /etc/launch/hard",
        fix="files",
        text="/opt/x.env",
    ),
    _kind(
        "env: a folder",
        "rm $ENV; mkdir $ENV",
        "files/env-file-no-file critical",
        ".env",
        "mkdir $ENV.d; rmdir $ENV.d",
        alone=True,
    ),
]

UNIT = [
    _kind(
        "unit: edited and loaded",
        "sed -i s/^LimitNOFILE=.*/LimitNOFILE=1024/ $UF; reload",
        "files/unit-edited critical",
        ".service",
        "touch $UF; reload",
        also="loaded/loaded-setting",
        fix="files",
        text="LimitNOFILE=1024",
    ),
    _kind(
        "unit: edited, not loaded",
        "sed -i s/^KillMode=.*/KillMode=process/ $UF",
        "loaded/reload-pending warning",
        ".service",
        "touch $UF",
        also="files/unit-edited",
        fix="files",
    ),
    _kind(
        "unit: other order",
        "sed -i 's/^Type=exec//; s/^KillMode=mixed/KillMode=mixed\\nType=exec/' $UF",
        "files/unit-edited critical",
        ".service",
        "cp -a $UF /tmp/x; rm $UF; cp -a /tmp/x $UF",
        also="loaded/reload-pending",
        fix="files",
        text="other order of settings",
    ),
    _kind(
        "unit: comments",
        "echo '# a note' >> $UF; reload",
        "files/unit-edited info",
        ".service",
        "sed -i 's/^PrivateTmp=yes/  PrivateTmp = yes  /' $UF; reload",
        code=0,
        text="comments or blanks only",
    ),
    _kind(
        "unit: an older copy with an older time",
        "sed -i s/^KillMode=.*/KillMode=process/ $UF; touch -d 2020-01-01 $UF",
        "files/unit-edited critical",
        ".service",
        "touch -d 2020-01-01 $UF",
        also="loaded/reload-pending",
        fix="files",
    ),
    _kind(
        "unit: missing",
        "rm $UF; reload",
        "files/unit-missing critical",
        ".service",
        "cp $UF /etc/systemd/system/somebody-$U; reload",
        also="loaded/not-loaded",
        undo_control="rm /etc/systemd/system/somebody-$U; put_back",
        fix="files",
    ),
    _kind(
        "unit: missing, not loaded",
        "rm $UF",
        "loaded/reload-pending warning",
        ".service",
        "cp $UF $UF.bak; reload",
        also="files/unit-missing",
        undo_control="rm $UF.bak; put_back",
        fix="files",
    ),
    _kind(
        "unit: empty",
        ": > $UF; reload",
        "files/unit-masked critical",
        ".service",
        "echo >> $UF",
        also="loaded/not-loaded",
        fix="files",
        text="is empty",
    ),
    _kind(
        "unit: masked",
        "rm $UF; ln -s /dev/null $UF; reload",
        "files/unit-masked critical",
        ".service",
        "ln -s /dev/null /etc/systemd/system/launch-other.service; reload",
        also="loaded/not-loaded loaded/loaded-elsewhere",
        undo_control="rm /etc/systemd/system/launch-other.service; put_back",
        fix="files",
        text="systemctl mask",
    ),
    _kind(
        "unit: linked",
        "mv $UF /opt/x.service; ln -s /opt/x.service $UF; reload",
        "files/unit-linked critical",
        ".service",
        "ln -s $UF /opt/y.service; reload",
        also="loaded/loaded-elsewhere loaded/reload-pending",
        undo_control="rm /opt/y.service; put_back",
        fix="files",
        text="/opt/x.service",
    ),
    _kind(
        "unit: mode",
        "chmod 666 $UF",
        "files/unit-mode warning",
        ".service",
        "chmod 666 /etc/hosts; chmod 644 /etc/hosts",
        fix="files",
    ),
    _kind(
        "unit: disabled",
        "systemctl disable $U",
        "files/not-enabled warning",
        "launch.target.wants",
        "systemctl add-wants multi-user.target $U",
        undo="systemctl enable $U; put_back",
        undo_control="rm /etc/systemd/system/multi-user.target.wants/$U; put_back",
        fix="files",
    ),
]

OTHER_FILES = [
    _kind(
        "manifest: edited",
        "sed -i s/Ring/Tree/ $MAN",
        "files/manifest-edited critical",
        ".json",
        "touch $MAN",
        fix="files",
    ),
    _kind("manifest: missing", "rm $MAN", "files/manifest-missing critical", ".json", "cp $MAN $MAN.bak", fix="files"),
    _kind(
        "manifest: mode",
        "chmod 666 $MAN",
        "files/manifest-mode warning",
        ".json",
        "touch -d 2020-01-01 $MAN",
        fix="files",
    ),
    _kind(
        "record: edited",
        "sed -i s/Ring/Tree/g $ETC/applied.json",
        "files/record-missing unknown",
        "applied.json",
        "touch $ETC/applied.json",
        alone=True,
        text="was changed after it was written",
    ),
    _kind(
        "record: missing",
        "rm $ETC/applied.json",
        "files/record-missing unknown",
        "applied.json",
        "cp $ETC/applied.json $ETC/applied.bak",
        alone=True,
        text="what was applied is not known",
    ),
    _kind(
        "record: cut off",
        "truncate -s 2000 $ETC/applied.json",
        "files/record-missing unknown",
        "applied.json",
        "chmod 644 $ETC/applied.json",
        alone=True,
    ),
    _kind(
        "agent: edited", "echo '# x' >> $AGENT", "files/agent-edited critical", "agent.py", "touch $AGENT", fix="files"
    ),
    _kind(
        "agent: missing",
        "rm $AGENT",
        "files/agent-missing critical",
        "agent.py",
        "cp $AGENT $AGENT.bak; rm $AGENT.bak",
        fix="files",
    ),
    _kind(
        "shared unit: edited",
        "echo MemoryMax=1G >> /etc/systemd/system/launch.slice",
        "files/shared-unit-edited critical",
        "launch.slice",
        "dropin /etc/systemd/system/launch-drift.service.d 'ReadWritePaths=-/srv'; reload",
        undo_control="rm -r /etc/systemd/system/launch-drift.service.d; put_back",
        fix="files",
    ),
    _kind(
        "shared record: missing",
        "rm /etc/launch/shared.json",
        "files/shared-unknown unknown",
        "shared.json",
        "touch /etc/launch/shared.json",
    ),
    _kind(
        "secret: missing",
        "rm $ETC/secrets/HF_TOKEN",
        "files/secret-missing critical",
        "HF_TOKEN",
        "touch $ETC/secrets/HF_TOKEN",
        text="launch up",
    ),
    _kind(
        "secret: mode",
        "chmod 644 $ETC/secrets/HF_TOKEN",
        "files/secret-mode warning",
        "HF_TOKEN",
        "install -m 600 /dev/null $ETC/secrets/OTHER",
        text="chmod 600",
    ),
]

_FOLDERS = {
    "own, /etc": "/etc/systemd/system/$U.d",
    "own, /run": "/run/systemd/system/$U.d",
    "own, /usr/local": "/usr/local/lib/systemd/system/$U.d",
    "own, /usr": "/usr/lib/systemd/system/$U.d",
    "own, attached": "/etc/systemd/system.attached/$U.d",
    "all launch-*": "/etc/systemd/system/launch-.service.d",
    "all services": "/etc/systemd/system/service.d",
}
_HARMLESS = {
    "own, /etc": "dropin $D ''; mv $D/x.conf $D/x.conf.bak; reload",
    "own, /run": "dropin /run/systemd/system/ssh.service.d LimitCORE=1M; reload",
    "own, /usr/local": "dropin /usr/local/lib/systemd/system/$U.d '# LimitNOFILE=1'; reload",
    "own, /usr": "dropin /usr/lib/systemd/system/$U.d LimitNOFILE=9; mkdir -p $D; ln -s /dev/null $D/x.conf; reload",
    "own, attached": "dropin $D LimitNOFILE=9; mv $D/x.conf $D/.x.conf; reload",
    "all launch-*": "dropin /etc/systemd/system/launch-kimi.service.d LimitNOFILE=9; reload",
    "all services": "dropin /etc/systemd/system/socket.d TimeoutSec=99; reload",
}
_CLEAR = (
    "rm -rf $D /run/systemd/system/ssh.service.d /run/systemd/system/$U.d /usr/*/systemd/system/$U.d"
    " /usr/local/lib/systemd/system/$U.d /etc/systemd/system.attached /etc/systemd/system/launch-.service.d"
    " /etc/systemd/system/launch-kimi.service.d /etc/systemd/system/*service.d /etc/systemd/system/socket.d; put_back"
)

DROP_INS = [
    *(
        _kind(
            f"drop-in: {name}",
            f"dropin {folder} LimitNOFILE=1024; reload",
            "files/drop-in warning",
            "x.conf",
            _HARMLESS[name],
            also="loaded/loaded-setting",
            undo=_CLEAR,
            undo_control=_CLEAR,
            text=" and to others" if name.startswith("all") else "applies to the unit",
        )
        for name, folder in _FOLDERS.items()
    ),
    _kind(
        "drop-in: not loaded",
        "dropin $D Environment=NCCL_P2P_DISABLE=1",
        "loaded/reload-pending warning",
        ".service",
        "dropin $D ''",
        also="files/drop-in",
        undo=_CLEAR,
        undo_control=_CLEAR,
    ),
    _kind(
        "drop-in: loaded, then removed",
        "dropin $D LimitNOFILE=1024; reload; rm -r $D",
        "loaded/reload-pending warning",
        ".service",
        "dropin $D LimitNOFILE=1024; reload; rm -r $D; reload",
        also="loaded/loaded-setting",
        undo=_CLEAR,
        undo_control=_CLEAR,
        fix="files",
        text="(gone)",
    ),
    _kind(
        "drop-in: Environment=",
        "dropin $D Environment=NCCL_P2P_DISABLE=1; reload",
        "loaded/loaded-environment critical",
        " Environment",
        "dropin /etc/systemd/system/ssh.service.d Environment=NCCL_P2P_DISABLE=1; reload",
        also="files/drop-in",
        undo=_CLEAR,
        undo_control=_CLEAR,
    ),
    _kind(
        "drop-in: ExecStart=",
        "dropin $D 'ExecStart=\\nExecStart=/bin/sleep 99'; reload",
        "loaded/loaded-command critical",
        " ExecStart",
        "dropin /etc/systemd/system/ssh.service.d 'ExecStartPre=\\nExecStartPre=/bin/true'; reload",
        also="files/drop-in",
        undo=_CLEAR,
        undo_control=_CLEAR,
        text="/bin/sleep 99",
    ),
    _kind(
        "drop-in: ExecStartPost=",
        "dropin $D ExecStartPost=; reload",
        "loaded/loaded-command critical",
        " ExecStartPost",
        "dropin $D '[Unit]\\n# ExecStartPost='; reload",
        also="files/drop-in",
        undo=_CLEAR,
        undo_control=_CLEAR,
    ),
    _kind(
        "drop-in: UnsetEnvironment=",
        "dropin $D UnsetEnvironment=NCCL_PROTO; reload",
        "loaded/loaded-environment critical",
        " UnsetEnvironment",
        "dropin $D ';UnsetEnvironment=NCCL_PROTO'; reload",
        also="files/drop-in",
        undo=_CLEAR,
        undo_control=_CLEAR,
    ),
    _kind(
        "drop-in: EnvironmentFile=",
        "echo NCCL_ALGO=Tree > /etc/other.env; dropin $D EnvironmentFile=/etc/other.env; reload",
        "loaded/loaded-environment critical",
        " EnvironmentFiles",
        "echo NCCL_ALGO=Tree > /etc/other.env",
        also="files/drop-in",
        undo="rm /etc/other.env;" + _CLEAR,
        undo_control="rm /etc/other.env; put_back",
        text="/etc/other.env",
    ),
    _kind(
        "drop-in: User=",
        "dropin $D User=root; reload",
        "files/drop-in critical",
        "x.conf",
        "dropin $D '#User=root\\n\\n'; reload",
        also="loaded/loaded-setting",
        undo=_CLEAR,
        undo_control=_CLEAR,
    ),
    _kind(
        "drop-in: set-property",
        "systemctl set-property $U CPUWeight=50",
        "files/drop-in warning",
        "system.control",
        "systemctl set-property ssh.service CPUWeight=50",
        also="loaded/loaded-setting",
        undo="systemctl revert $U; rm -rf /etc/systemd/system.control; put_back",
        undo_control="rm -rf /etc/systemd/system.control; put_back",
        text="systemctl set-property",
        alone=True,
    ),
    _kind(
        "drop-in: set-property --runtime",
        "systemctl set-property --runtime $U TasksMax=999",
        "loaded/loaded-setting warning",
        " TasksMax",
        "systemctl set-property --runtime ssh.service TasksMax=999",
        also="files/drop-in",
        undo="rm -rf /run/systemd/system.control; put_back",
        undo_control="rm -rf /run/systemd/system.control; put_back",
        alone=True,
    ),
]

_NAMESAKE = "mkdir -p {0}; printf '[Service]\\nExecStart=/bin/sleep 99\\n' > {0}/$U; reload"
_SHADOW = (
    "loaded/loaded-elsewhere loaded/loaded-setting loaded/loaded-command loaded/loaded-environment"
    " loaded/reload-pending"
)

NAMESAKES = [
    _kind(
        "namesake: system.control",
        _NAMESAKE.format("/etc/systemd/system.control"),
        "files/unit-shadowed critical",
        "system.control",
        "mkdir -p /etc/systemd/system.control; touch /etc/systemd/system.control/$U.bak; reload",
        also=_SHADOW,
        undo="rm -r /etc/systemd/system.control; put_back",
        undo_control="rm -r /etc/systemd/system.control; put_back",
        alone=True,
    ),
    _kind(
        "namesake: transient",
        _NAMESAKE.format("/run/systemd/transient"),
        "loaded/loaded-elsewhere critical",
        ".service",
        "systemd-run --quiet --unit=launch-x /bin/true",
        also=_SHADOW + " files/unit-shadowed",
        undo="rm /run/systemd/transient/$U; put_back",
        alone=True,
    ),
    _kind(
        "namesake: generator.early",
        _NAMESAKE.format("/run/systemd/generator.early").replace("; reload", ""),
        "files/unit-shadowed critical",
        "generator.early",
        "mkdir -p /run/systemd/generator.early; touch /run/systemd/generator.early/$U.wants",
        also=_SHADOW,
        undo="rm -r /run/systemd/generator.early; put_back",
        undo_control="rm -r /run/systemd/generator.early; put_back",
        alone=True,
    ),
    _kind(
        "namesake: a weaker folder",
        _NAMESAKE.format("/run/systemd/system"),
        "files/unit-namesake warning",
        "/run/systemd/system",
        _NAMESAKE.format("/run/systemd/system").replace("$U", "launch-x.service"),
        undo="rm /run/systemd/system/$U; put_back",
        undo_control="rm /run/systemd/system/launch-x.service; put_back",
    ),
]

#: Starts past the guard: the unit's environment, another command's name.
_BARE = "ExecStart=\\nExecStart=/opt/standin/python -m sglang.launch_server --tp-size 2 --host 0.0.0.0 --port 8000"
_ANY_ENV = "processes/env-missing processes/env-different processes/env-extra"
_RESTART = "restart; put_back"

PROCESSES = [
    _kind(
        "server: stopped",
        "systemctl stop $U",
        "processes/not-running critical",
        ".service",
        "restart",
        undo=_RESTART,
        fix="restart",
        text="systemctl stop",
        alone=True,
    ),
    _kind(
        "server: failed",
        "echo NCCL_P2P_DISABLE=1 >> $ENV; systemctl restart $U; put_back",
        "processes/not-running critical",
        ".service",
        "systemctl reload-or-restart $U",
        undo=_RESTART,
        fix="restart",
        alone=True,
        text="exit 78",
    ),
    _kind(
        "server: restarted by systemd",
        "m=$(main); kill -9 $m; back $m",
        "restarts/restarted warning",
        ".service",
        "systemctl kill -s CONT $U; restart",
        undo="systemctl reset-failed $U; put_back",
        alone=True,
        text="1 time",
    ),
    _kind(
        "server: crashes again and again",
        "echo crash > /opt/standin/fault; systemctl restart --no-block $U; sleep 3.5",
        "restarts/restarted warning",
        ".service",
        "echo '' > /opt/standin/fault; restart",
        also="processes/not-running",
        undo="rm /opt/standin/fault; restart; put_back",
        alone=True,
    ),
    _kind(
        "past the guard",
        f"dropin $D 'ExecStartPost=\\n{_BARE}'; reload; restart; up; rm -r $D; reload",
        "processes/unguarded critical",
        "guard",
        "systemctl kill -s HUP --kill-who=main ssh.service",
        also="processes/argv-different processes/env-missing",  # the guard also hands over the secret
        undo=_RESTART,
        fix="restart",
        text="ExecStart=",
    ),
    _kind(
        "past the guard with an edited environment",
        "sed -i '/NCCL_PROTO/d; s/Ring/Tree/' $ENV;"
        f" dropin $D 'ExecStartPost=\\n{_BARE}'; reload; restart; up; rm -r $D",
        "processes/env-missing critical",
        "NCCL_PROTO",
        "cp $ENV /tmp/x; sed -i s/Ring/Tree/ /tmp/x",
        also="files/env-file-edited loaded/loaded-command loaded/reload-pending processes/unguarded"
        " processes/argv-different processes/env-different library/nccl-not-proved library/nccl-contradicted",
        undo="rm -rf $D; put_back; restart",
        fix="restart",
        alone=True,
    ),
    _kind(
        "workers: a changed value",
        "loose override_env",
        "processes/env-different critical",
        "NCCL_ALGO",
        "loose brief_children",
        also="library/nccl-contradicted",
        undo=_RESTART,
        undo_control=_RESTART,
        fix="restart",
        text="Tree",
    ),
    _kind(
        "workers: no variables of NCCL",
        "loose strip_env",
        "processes/env-missing critical",
        "NCCL_ALGO",
        "loose no_completion",
        also="library/nccl-not-proved",
        undo=_RESTART,
        undo_control=_RESTART,
        fix="restart",
        text="sglang::scheduler_TP0",
    ),
    _kind(
        "workers: a setting more",
        "loose nccl_extra",
        "processes/env-extra critical",
        "NCCL_P2P_DISABLE",
        "note $(like $(main) NCCL_P2P_DISABLE=1 /bin/sleep 1000)",
        undo=_RESTART,
        undo_control="no_guests",
        fix="restart",
    ),
    _kind(
        "workers: one without any environment",
        "loose bare_child",
        "processes/env-missing critical",
        "NCCL_ALGO",
        "(exec env -i /bin/sleep 0.4) & join $!",
        undo=_RESTART,
        fix="restart",
    ),
    _kind(
        "workers: an overwritten environment",
        "loose cut_env",
        "processes/env-cut unknown",
        "sglang::scheduler",
        "restart",
        undo=_RESTART,
    ),
    _kind(
        "another release by hand, not started",
        "cp /var/tmp/other/* $ETC; cp /var/tmp/other.service $UF; reload",
        "files/unit-edited critical",
        ".service",
        "cp /var/tmp/other/* $ETC",
        also="loaded/loaded-command loaded/loaded-environment",
        fix="files",
        alone=True,
    ),
    _kind(
        "another release by hand, started",
        "cp /var/tmp/other/* $ETC; cp /var/tmp/other.service $UF; reload; restart; put_back",
        "processes/other-release critical",
        "LAUNCH_DIGEST",
        "restart",
        also="processes/env-different library/nccl-contradicted",
        undo=_RESTART,
        fix="restart",
        alone=True,
    ),
    _kind(
        "a process of another start",
        "p=$(like $(main) INVOCATION_ID=0123456789abcdef0123456789abcdef /bin/sleep 1000); note $p; join $p",
        "processes/survivor warning",
        "/bin/sleep",
        "p=$(like $(main) A=b /bin/sleep 1000); note $p; join $p",
        undo="no_guests",
        undo_control="no_guests",
        fix="restart",
    ),
    _kind(
        "a process from elsewhere",
        "p=$(like 0 A=b /bin/sleep 1000); note $p; join $p",
        "processes/env-missing critical",
        "NCCL_ALGO",
        "note $(like 0 A=b /bin/sleep 1000)",
        undo="no_guests",
        undo_control="no_guests",
        fix="restart",
        text="/bin/sleep",
    ),
    _kind(
        "limits: core",
        "runuser -u llm -- prlimit --pid $(main) --core=0:0",
        "processes/limit-changed warning",
        "Max core file size",
        "prlimit --pid $(pgrep -o sshd) --core=0:",
        undo=_RESTART,
        fix="restart",
        text="prlimit",
    ),
    _kind(
        "limits: locked memory",
        "runuser -u llm -- prlimit --pid $(main) --memlock=65536:65536",
        "processes/limit-changed warning",
        "Max locked memory",
        "prlimit --pid $(main) --memlock",
        undo=_RESTART,
        fix="restart",
    ),
    _kind(
        "library: replaced",
        "cd /opt/standin/lib; cp libnccl.so.2 new; mv new libnccl.so.2",
        "processes/library-replaced warning",
        "libnccl.so.2",
        "touch /opt/standin/lib/libnccl.so.2; cp /opt/standin/lib/libnccl.so.2 /opt/standin/lib/libnccl.so.2.bak",
        undo=_RESTART,
        undo_control="rm /opt/standin/lib/libnccl.so.2.bak",
        fix="restart",
    ),
    _kind(
        "library: another one",
        "cp /opt/standin/lib/libnccl.so.2 /opt/other; p=$(like $(main) A=b /usr/bin/python3 -c '"
        'import mmap, time; f = open("/opt/other/libnccl.so.2"); m = mmap.mmap(f.fileno(), 0, prot=1); time.sleep(999)'
        "'); note $p; join $p; sleep 0.3",
        "processes/library-other warning",
        "/opt/other/libnccl.so.2",
        "cp /opt/standin/lib/libnccl.so.2 /opt/other",
        undo="no_guests",
        undo_control="rm -f /opt/other/*",
        fix="restart",
    ),
    _kind(
        "interpreter: replaced",
        "echo '# new' >> /opt/standin/python",
        "processes/interpreter-replaced warning",
        "/opt/standin/python",
        "cd /opt/standin; touch python; cp -a python /tmp/x; rm python; mv /tmp/x python",
        undo="cp -a $KEPT/opt/standin/python /opt/standin/python",
        undo_control="true",
        text="launch up",
    ),
    _kind(
        "interpreter: missing",
        "rm /opt/standin/python",
        "processes/interpreter-replaced critical",
        "/opt/standin/python",
        "cp /opt/standin/python /opt/standin/python3",
        undo="cp -a $KEPT/opt/standin/python /opt/standin/python",
        undo_control="rm /opt/standin/python3",
        alone=True,
    ),
    _kind(
        "libfaketime by a drop-in",
        "cp /usr/lib/x86_64-linux-gnu/libm.so.6 /opt/other/libfaketime.so.1;"
        " dropin $D Environment=LD_PRELOAD=/opt/other/libfaketime.so.1; reload; restart",
        "processes/env-extra warning",
        "LD_PRELOAD",
        "cp /usr/lib/x86_64-linux-gnu/libm.so.6 /opt/other/libfaketime.so.1; restart",
        also="files/drop-in loaded/loaded-environment processes/library-other",
        undo="rm -rf $D; put_back; restart",
        alone=True,
    ),
]

INPUTS = [
    _kind(
        "manager: a setting of the catalogue",
        "systemctl set-environment NCCL_P2P_DISABLE=1",
        "inputs/manager-environment critical",
        "NCCL_P2P_DISABLE",
        "systemctl set-environment SOMETHING=1 NCCL_ALGO=Tree",
        undo="systemctl unset-environment NCCL_P2P_DISABLE",
        undo_control="systemctl unset-environment SOMETHING NCCL_ALGO",
        text="systemctl unset-environment NCCL_P2P_DISABLE",
    ),
    _kind(
        "manager: an unknown name of NCCL",
        "systemctl set-environment NCCL_NOBODY_KNOWS=1",
        "inputs/manager-environment warning",
        "NCCL_NOBODY_KNOWS",
        "systemctl set-environment XNCCL_NOBODY_KNOWS=1",
        undo="systemctl unset-environment NCCL_NOBODY_KNOWS",
        undo_control="systemctl unset-environment XNCCL_NOBODY_KNOWS",
    ),
    _kind(
        "manager: DefaultEnvironment=",
        "managed /etc/systemd/system.conf.d DefaultEnvironment=NCCL_P2P_DISABLE=1; reload",
        "inputs/manager-environment critical",
        "NCCL_P2P_DISABLE",
        "managed /etc/systemd/system.conf.d DefaultEnvironment=TZ=UTC; reload",
        undo="rm -r /etc/systemd/system.conf.d; reload",
        undo_control="rm -r /etc/systemd/system.conf.d; reload",
        text="/etc/systemd/system.conf.d/x.conf",
    ),
    _kind(
        "manager: DefaultEnvironment=, not read",
        "managed /run/systemd/system.conf.d 'DefaultEnvironment=\"NCCL_P2P_DISABLE=1\"'",
        "inputs/manager-environment warning",
        "NCCL_P2P_DISABLE",
        "managed /run/systemd/system.conf.d '#DefaultEnvironment=NCCL_P2P_DISABLE=1'",
        undo="rm -r /run/systemd/system.conf.d",
        undo_control="rm -r /run/systemd/system.conf.d",
        text="from the next boot on",
    ),
    _kind(
        "/etc/nccl.conf",
        "conf NCCL_SHM_DISABLE=1",
        "inputs/nccl-file critical",
        "/etc/nccl.conf NCCL_SHM_DISABLE",
        "conf '# NCCL_SHM_DISABLE=1'; conf NCCL_ALGO=Tree",
        undo="no_conf",
        undo_control="no_conf",
    ),
    _kind(
        ".nccl.conf of the user",
        "echo NCCL_NOBODY_KNOWS=1 > /var/lib/llm/.nccl.conf",
        "inputs/nccl-file warning",
        "/var/lib/llm/.nccl.conf NCCL_NOBODY_KNOWS",
        "echo NCCL_NOBODY_KNOWS=1 > /root/.nccl.conf",
        undo="rm /var/lib/llm/.nccl.conf",
        undo_control="rm /root/.nccl.conf",
    ),
    _kind(
        "/etc/ld.so.preload",
        "echo /usr/lib/x86_64-linux-gnu/libm.so.6 > /etc/ld.so.preload",
        "inputs/preload warning",
        "/etc/ld.so.preload",
        "echo > /etc/ld.so.preload; echo /usr/lib > /etc/ld.so.conf.d/x.conf",
        undo="rm /etc/ld.so.preload",
        undo_control="rm /etc/ld.so.preload /etc/ld.so.conf.d/x.conf",
    ),
]

LIBRARY = [
    _kind(
        "NCCL: another value by its log",
        "sed -i 's/in sorted(os.environ.items())/in sorted(dict(os.environ, NCCL_ALGO=\"Tree\").items())/'"
        " /opt/standin/standin.py; restart",
        "library/nccl-contradicted critical",
        "NCCL_ALGO",
        "sed -i 's/standin worker {rank} ready/standin worker {rank} is ready/' /opt/standin/standin.py; restart",
        undo="put_back; restart",
        undo_control="put_back; restart",
        alone=True,
    ),
    _kind(
        "NCCL: another version",
        "sed -i s/2.28.9+/2.29.1+/ /opt/standin/standin.py; restart",
        "library/nccl-version warning",
        "version",
        "touch /opt/standin/standin.py; restart",
        undo="put_back; restart",
        alone=True,
        text="2.29.1",
    ),
    _kind(
        "NCCL: silent about a variable",
        'sed -i \'s/and not name.startswith("NCCL_DEBUG")/and name != "NCCL_ALGO"/\' /opt/standin/standin.py; restart',
        "library/nccl-not-proved warning",
        "NCCL_ALGO",
        "restart; journalctl --rotate",
        undo="put_back; restart",
        alone=True,
    ),
    _kind(
        "NCCL: its log is gone",
        "journalctl --sync; journalctl -q --rotate --vacuum-time=1s; sleep 1; journalctl -q --rotate --vacuum-time=1s",
        "library/nccl-silent unknown",
        "log",
        "restart",
        undo="restart",
        code=0,
        alone=True,
    ),
]

HOST = [
    _kind(
        "GPU: power limit",
        "sed -i '0,/<current_power_limit>700.00/s//<current_power_limit>500.00/' $SMI",
        "host/power-limit-changed warning",
        "of GPU 0",
        "sed -i 's/<sm_clock>[0-9]*/<sm_clock>345/' $SMI",
        also="host/hw-power-limit host/hw-power",
        text="500",
    ),
    _kind(
        "GPU: driver",
        "sed -i s/580.159.04/581.1.1/ $SMI",
        "host/driver-changed warning",
        "driver of GPU 0",
        "sed -i 's/<timestamp>.*</<timestamp>now</' $SMI",
        text="581.1.1",
    ),
    _kind(
        "GPU: gone",
        "sed -i '/<gpu id=\"00000000:00:07.0\">/,/<.gpu>/d' $SMI",
        "host/gpu-changed critical",
        "00:07.0",
        "sed -i 's/^\\t\\t<product_architecture>.*//' $SMI",
        also="host/hw-gpu-count host/hw-interconnect host/hw-p2p",
    ),
    _kind(
        "GPU: a narrower link",
        "sed -i 's/<max_link_width>16x/<max_link_width>8x/; s/<current_link_width>16x/<current_link_width>8x/' $SMI",
        "host/pcie-width-changed warning",
        "of GPU 1",
        "sed -i 's/<fan_speed>.*</<fan_speed>9 %</' $SMI",
        also="host/hw-pcie-width host/hw-pcie host/hw-pcie-generation",
    ),
    _kind(
        "GPU: a process of somebody's",
        "p=$(like 0 A=b /bin/sleep 1000); note $p;"
        ' sed -i "0,/<processes>/s//<processes><process_info><pid>$p<\\/pid><type>C<\\/type><\\/process_info>/" $SMI',
        "strays/gpu-taken critical",
        "GPU 0",
        'sed -i "0,/<processes>/s//<processes><process_info><pid>$(main)<\\/pid><type>C<\\/type><\\/process_info>'
        '<process_info><pid>1<\\/pid><type>G<\\/type><\\/process_info>/" $SMI',
        undo="no_guests; put_back",
    ),
    _kind(
        "packages: another version",
        "sed -i s/2.9.1/2.9.2/ /opt/lib/python3.11/site-packages/torch-*/METADATA",
        "host/package-changed warning",
        "package torch",
        "package numpy 2.0.0",
        text="2.9.2",
    ),
]

_OURS = "$(tr '\\0' ' ' < /proc/$(main)/environ)"

STRAYS = [
    _kind(
        "stray: by hand with no variables",
        "systemctl stop $U; stray A=b",
        "strays/port-taken critical",
        "port 8000",
        "p=$(like 0 A=b /usr/bin/python3 -m http.server 8001); note $p; sleep 0.5",
        also="processes/not-running",
        undo="no_guests; restart",
        undo_control="no_guests",
        alone=True,
        text="lacks or changes NCCL_ALGO, NCCL_BUFFSIZE",
    ),
    _kind(
        "stray: by hand with all variables",
        'systemctl stop $U; stray "$(sed s/\\\'//g $ENV)"',
        "strays/port-taken critical",
        "port 8000",
        "restart",
        also="processes/not-running",
        undo="no_guests; restart",
        undo_control="no_guests",
        alone=True,
        text="it carries all 6 tuned variables",
    ),
    _kind(
        "stray: systemd-run",
        "systemctl stop $U; systemd-run --quiet --unit=run-x"
        " /opt/standin/python -m sglang.launch_server --host 0.0.0.0 --port 8000 --tp-size 2; up",
        "strays/port-taken critical",
        "port 8000",
        "systemd-run --quiet --unit=run-y --wait /bin/true",
        also="processes/not-running",
        undo="systemctl stop run-x; restart",
        undo_control="true",
        alone=True,
        text="systemctl stop run-x.service",
    ),
    _kind(
        "stray: beside the server",
        "p=$(like 0 A=b /usr/bin/python3 -c '"
        "import socket, time; s = socket.socket(socket.AF_INET6); s.setsockopt(41, 26, 1); "
        's.bind(("::", 8000)); s.listen(); time.sleep(999)'
        "'); note $p; sleep 0.5",
        "strays/port-taken critical",
        "port 8000",
        "p=$(like 0 A=b /usr/bin/python3 -c '"
        'import socket, time; s = socket.create_connection(("127.0.0.1", 8000)); time.sleep(999)'
        "'); note $p; sleep 0.5",
        text="by hand or by a job, through ssh.service",
        undo="no_guests",
        undo_control="no_guests",
    ),
]

#: Kinds of different groups can be had together, unless they are `alone`.
GROUPS = {
    "env": ENV,
    "unit": [*UNIT, *DROP_INS, *NAMESAKES],
    "files": OTHER_FILES,
    "processes": PROCESSES,
    "inputs": INPUTS,
    "library": LIBRARY,
    "host": HOST,
    "strays": STRAYS,
}
KINDS = [kind for group in GROUPS.values() for kind in group]
