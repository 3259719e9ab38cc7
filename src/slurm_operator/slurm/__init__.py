"""Everything that is Slurm's: its REST API, the live view of a cluster, its files, keys, names and states.

Start at `views` (all clusters), `view` (one cluster) and `known` (the value a decision sees).
"""
