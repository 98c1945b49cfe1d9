"""What runs on a host: probe, apply, guard and waiter. Standard library only, Python 3.8 or newer."""
