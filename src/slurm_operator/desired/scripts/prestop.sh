# Takes the node out of service before its daemon goes. Best effort: a slurmctld that does not answer must not hold
# the pod back.
timeout 10 scontrol update NodeName="$(hostname)" State=DOWN Reason="slurm-operator: worker pod is going away" || :
