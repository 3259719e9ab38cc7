# Takes the node out of service before its daemon goes. A drain, DOWN or FAIL that does not carry our reason is an
# administrator's (or Slurm's own) and must outlive the pod, so the node is read first; a node that cannot be read is
# left alone, since slurmctld notices by itself when the daemon is gone. Neither command may hold the pod back.
node=$(hostname)
node=${node%%.*} # slurmd registers under the first label
shown=$(timeout 5 scontrol -o show node "$node") || exit 0
case $shown in *" State="*) ;; *) exit 0 ;; esac
# Both fields come before those that hold free text (Reason itself, Comment, Extra): the first match is the field.
state=${shown#* State=}
reason=${shown#* Reason=}
case +${state%% *} in
*+DOWN* | *+DRAIN* | *+FAIL*)
    case $reason in "slurm-operator: "*) ;; *) exit 0 ;; esac
    ;;
esac
timeout 5 scontrol update NodeName="$node" State=DOWN Reason="slurm-operator: worker pod is going away" || :
