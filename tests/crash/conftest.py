"""Fixtures of the system tests, for the test that boots what a power cut left."""

from tests.system.conftest import host, launch

__all__ = ["host", "launch"]
