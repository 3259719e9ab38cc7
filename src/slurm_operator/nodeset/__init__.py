"""NodeSet: workers of a Slurm cluster, each a pod, none of them ever taken from a running job."""
