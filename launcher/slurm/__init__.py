"""Sweeps as jobs of Slurm (``target=slurm``): what is submitted, what runs in a job, and what became of it."""
