"""Sweeps: points, trials, statistics, journal and report; what measures a point comes from `launcher.bench`."""
