"""Deployment to release: argument list, environment, unit settings and the files that carry them."""

from launcher.render.release import File, Release, render

__all__ = ["File", "Release", "render"]
