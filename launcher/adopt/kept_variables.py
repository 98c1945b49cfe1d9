"""What of a process's whole environment belongs to its server, and what to the session that it was started from."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
#: Names of a session by the reason why a server does not need them. Everything else is kept.
_SESSION = {
    "systemd sets it for the unit's user": r"HOME|USER|LOGNAME|SHELL",
    "of the login": r"SSH_.*|SUDO_.*|MAIL|MOTD_SHOWN|KRB5CCNAME|GPG_.*|XDG_(SESSION|SEAT|VTNR|CURRENT|MENU).*"
    r"|XDG_(RUNTIME_DIR|DATA_DIRS|CONFIG_DIRS|GREETER_DATA_DIR)|DBUS_.*|DESKTOP_.*|GNOME_.*|SELINUX_.*|PAM_.*",
    "of the terminal": r"TERM|TERM_.*|COLORTERM|TERMINFO.*|LS_COLORS|LSCOLORS|LINES|COLUMNS|DISPLAY|XAUTHORITY"
    r"|WAYLAND_DISPLAY|WINDOWID|VTE_.*|TMUX|TMUX_.*|STY|WINDOW|VSCODE_.*|BROWSER|WT_.*|WSL.*|LC_TERMINAL.*",
    "of the shell": r"PWD|OLDPWD|SHLVL|_|PS[0-4]|PROMPT_COMMAND|HIST.*|LESS.*|PAGER|MANPAGER|EDITOR|VISUAL|GIT_.*"
    r"|BASH.*|ZSH.*|ZDOTDIR|FPATH|MANPATH|INFOPATH|which_declare|NVM_.*|PYENV_.*|FZF_.*|STARSHIP_.*|_CE_.*"
    r"|CONDA_(SHLVL|PROMPT_MODIFIER|EXE|PYTHON_EXE|DEFAULT_ENV|PREFIX_\d+)|_CONDA_.*|VIRTUAL_ENV_PROMPT",
    "how a session writes dates, paper and numbers; a server prints none": r"LC_(TIME|PAPER|MONETARY|MEASUREMENT|NAME"
    r"|ADDRESS|TELEPHONE|IDENTIFICATION|NUMERIC|COLLATE|MESSAGES)|LANGUAGE",
    "of another manager of processes": r"SLURM.*|PMI.*|SUPERVISOR_.*|PM2_.*|KUBERNETES_.*|DOCKER_.*|container",
}
_PATTERNS = {reason: re.compile(names) for reason, names in _SESSION.items()}
#: systemd.exec(5): what a service manager sets for each start.
_SYSTEMDS = re.compile(
    r"MAINPID|MANAGERPID|INVOCATION_ID|JOURNAL_STREAM|NOTIFY_SOCKET|CREDENTIALS_DIRECTORY|RUNTIME_DIRECTORY"
    r"|STATE_DIRECTORY|CACHE_DIRECTORY|LOGS_DIRECTORY|CONFIGURATION_DIRECTORY|WATCHDOG_(PID|USEC)|SERVICE_RESULT"
    r"|EXIT_(CODE|STATUS)|SYSTEMD_EXEC_PID|MEMORY_PRESSURE_.*|LISTEN_.*"
)


def left_out(env: Mapping[str, str], *, whole: bool) -> dict[str, str]:
    """Return the variables that are no part of the configuration, each with the reason.

    Args:
        env: of the server.
        whole: whether it is all of a process; what a text sets was set on purpose.
    """
    found: dict[str, str] = {}
    for name in env:
        if not _NAME.fullmatch(name):
            found[name] = "no name that a unit can set"
        elif name.startswith("LAUNCH_"):
            found[name] = "launch sets its own"
        elif _SYSTEMDS.fullmatch(name):
            found[name] = "systemd sets it for each start"
        elif whole and (reason := _reason(name)):
            found[name] = reason
    return found


def _reason(name: str) -> str:
    return next((reason for reason, pattern in _PATTERNS.items() if pattern.fullmatch(name)), "")
