"""A small Slurm of Debian's own packages on this machine, and what launch does with it."""
