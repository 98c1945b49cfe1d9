"""What measures points on the machine that this runs on, without systemd: the whole of ``target=process``."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from launcher.sweep.points import Points
    from launcher.sweep.session import Measure

    Tell = Callable[[str], None]


@contextlib.contextmanager
def measuring(points: Points, folder: Path, emit: Tell) -> Iterator[Measure]:
    """Give what measures the points as children of this program; leaving the context ends every one.

    Args:
        points: all of one kind of bench.
        folder: of the sweep, for logs and raw results.
        emit: told what goes on.

    Raises:
        LaunchError: nothing can be measured here.
    """
    deployments = {candidate.point.digest: candidate.deployment for candidate in points.candidates}
    deployment = points.candidates[0].deployment
    if deployment.bench.kind == "serve":
        from launcher.bench import loads
        from launcher.bench.child import Child
        from launcher.bench.serve import Serve

        candidates = {candidate.point.digest: candidate for candidate in points.candidates}
        with Child(folder / "logs", emit) as child:
            yield Serve(candidates, child, loads.loads(deployment), keeper(folder / "raw"), emit)
        return
    from launcher.bench.measure import AllReduce, Here

    where = Here()
    try:
        yield AllReduce(deployments, where, lambda _: None)
    finally:
        where.close()


def keeper(folder: Path) -> Callable[[str, str], None]:
    """Return what keeps raw results of clients in a folder, by name and text."""

    def keep(name: str, text: str) -> None:
        from launcher.sweep import disk

        with disk.told(folder / name, "a raw result is not kept"):
            folder.mkdir(exist_ok=True)
            (folder / name).write_text(text, encoding="utf-8")

    return keep
