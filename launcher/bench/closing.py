"""The closing measurement: what a host serves once a sweep has put it back, with the loads and gates of the points.

Production is not started for it: putting it back has done that.
"""

from __future__ import annotations

import dataclasses
import time
from typing import TYPE_CHECKING, Protocol

from launcher.bench.serve import timed
from launcher.sweep.journal import CLOSING
from launcher.sweep.record import Point, Trial

if TYPE_CHECKING:
    from launcher.bench.serve import Serve
    from launcher.bench.served import Production
    from launcher.schema import Deployment
    from launcher.sweep.points import Candidate


class Restores(Protocol):
    """Puts back what was served, and lets it be measured; see `launcher.bench.hosts.OnHost`."""

    def back(self) -> Production | None:
        """Return what serves again; None where nothing was replaced."""


class Closing:
    """Measures what a host serves again; see `launcher.sweep.shared.Host`."""

    def __init__(self, baseline: Candidate, host: Restores, serve: Serve) -> None:
        self._baseline, self._host, self._serve = baseline, host, serve

    def __call__(self, order: int) -> Trial | None:
        """Put it back and measure it; None where no point replaced it.

        Raises:
            LaunchError: the host cannot be asked, or the session is over.
        """
        at, begin = time.time(), time.monotonic()
        found = self._host.back()
        if found is None:
            return None
        candidate = as_served(self._baseline, found)
        digest = found.digest or self._baseline.point.digest
        trial = self._serve.measured(candidate, found.life, Trial(digest, order, at, 0.0, kind=CLOSING))
        return timed(trial, time.monotonic() - begin, 0.0)


def as_served(baseline: Candidate, found: Production) -> Candidate:
    """Return what is measured: the baseline itself, or, where another release serves, the loads aimed at that one."""
    if found.digest in ("", baseline.release.digest):
        return baseline
    release = dataclasses.replace(baseline.release, digest=found.digest, env=dict(found.env), argv=found.argv)
    deployment = _aimed(baseline.deployment, found)
    return dataclasses.replace(
        baseline, point=Point(found.digest, "production"), deployment=deployment, release=release
    )


def _aimed(deployment: Deployment, found: Production) -> Deployment:
    """Return a deployment that answers where another release does; no band of acceptance was set for that one."""
    speculates = any(word.startswith("--speculative") for word in found.argv)
    usual = deployment.spec.method if deployment.spec.method != "off" else "ngram"
    return dataclasses.replace(
        deployment,
        engine=dataclasses.replace(deployment.engine, host=found.host, port=found.port),
        spec=dataclasses.replace(deployment.spec, method=usual if speculates else "off"),
        bench=dataclasses.replace(deployment.bench, acceptance_low=0.0, acceptance_high=0.0),
    )
