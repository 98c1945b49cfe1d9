"""Measurements against peers, from the same run; never tests."""
