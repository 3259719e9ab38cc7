# Tells slurmctld to read its configuration again whenever a mounted file has changed, or had while the pod was away.
set -eu
trap 'exit 0' TERM INT
applied=$(told)
while :; do
    sleep 2 &
    wait $!
    [ "$(fingerprint)" = "$applied" ] && continue
    echo "configuration changed, reconfiguring"
    until tell; do
        sleep 2 &
        wait $!
    done
    applied=$current
    echo "reconfigured"
done
