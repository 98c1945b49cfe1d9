"""The mirror is read from whatever form apt's sources have."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.fleet import FleetError
from tests.fleet.machine import mirror

if TYPE_CHECKING:
    from pathlib import Path

DEB822 = """\
# a comment
Types: deb deb-src
URIs: http://two.example/debian/
Suites: bookworm
 bookworm-updates
Components: main contrib
"""


@pytest.fixture
def etc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("LAUNCH_FLEET_MIRROR", raising=False)
    (tmp_path / "apt/sources.list.d").mkdir(parents=True)
    (tmp_path / "os-release").write_text('ID=debian\nVERSION_CODENAME="bookworm"\n')
    return tmp_path


@pytest.mark.parametrize(
    ("name", "text", "found"),
    [
        ("sources.list", "deb http://one.example/debian bookworm main # yes", "http://one.example/debian"),
        ("sources.list", "deb [arch=amd64 trusted=yes] file:/srv/debian bookworm main", "file:/srv/debian"),
        ("sources.list.d/debian.sources", DEB822, "http://two.example/debian"),
        ("sources.list.d/debian.sources", "Enabled: no\n" + DEB822, None),
        ("sources.list", "# deb http://off.example/debian bookworm main", None),
        ("sources.list", "deb cdrom:[Debian]/ bookworm main", None),
    ],
)
def test_mirror(etc: Path, name: str, text: str, found: str | None) -> None:
    (etc / "apt" / name).write_text(text)
    if found is None:
        with pytest.raises(FleetError, match="LAUNCH_FLEET_MIRROR"):
            mirror(etc)
    else:
        assert mirror(etc) == found


def test_the_archive_of_this_release_goes_before_vendors(etc: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (etc / "apt/sources.list").write_text("deb http://vendor.example/x nodistro main\n")
    (etc / "apt/sources.list.d/debian.sources").write_text(DEB822)
    assert mirror(etc) == "http://two.example/debian"
    monkeypatch.setenv("LAUNCH_FLEET_MIRROR", "http://given.example/debian")
    assert mirror(etc) == "http://given.example/debian"
