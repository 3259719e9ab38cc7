"""Slurm's configuration files: reading, writing, and checking them before they are applied."""
