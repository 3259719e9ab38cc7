# What slurmctld's files say now. The kubelet swaps whole directories (..data and its targets), so only the files behind
# the plain names are looked at. Keys are not: the operator says when slurmctld takes up new ones.
fingerprint() {
    find -L /etc/slurm -maxdepth 1 -type f ! -name '..*' ! -name jwt.key ! -name slurm.jwks -exec sha256sum {} + | sort | sha256sum
}
# What they said when the workers last heard of them, in a file that outlives the pod.
# TOLD: its path.
told() {
    cat "$TOLD" 2>/dev/null || fingerprint | tee "$TOLD"
}
# The hash by which the operator knows these files: the last line of slurm.conf.
stamp() {
    sed -n '$s/^# Configuration //p' /etc/slurm/slurm.conf
}
# slurmctld hands its files to the workers only when it is told to reconfigure, not when it starts. Its answer is no
# promise: with some files it answers first and ends then.
tell() {
    current=$(fingerprint) offered=$(stamp)
    words=$(scontrol reconfigure 2>&1) && sleep 2 && answers && echo "$current" >"$TOLD"
}
answers() {
    words=$(scontrol ping 2>&1) || :
    case $words in *" is UP"*) ;; *) return 1 ;; esac
}
