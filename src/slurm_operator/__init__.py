"""slurm-operator: whole Slurm clusters on Kubernetes."""

__version__ = "0.1.0"
