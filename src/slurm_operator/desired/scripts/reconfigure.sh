# Tells slurmctld to read its configuration again whenever a mounted file has changed.
# The kubelet swaps whole directories (..data and its targets); only the files behind the plain names are looked at.
# Keys are not: the operator says when slurmctld takes up new ones.
set -eu
trap 'exit 0' TERM INT
fingerprint() {
    find -L /etc/slurm -maxdepth 1 -type f ! -name '..*' ! -name jwt.key ! -name slurm.jwks -exec sha256sum {} + | sort | sha256sum
}
applied=$(fingerprint)
while :; do
    sleep 2 &
    wait $!
    current=$(fingerprint)
    [ "$current" = "$applied" ] && continue
    echo "configuration changed, reconfiguring"
    until scontrol reconfigure; do
        sleep 2 &
        wait $!
        current=$(fingerprint)
    done
    applied=$current
    echo "reconfigured"
done
