# Tells slurmctld to read its configuration again whenever a mounted file has changed, or had while the pod was away.
# The operator reads the last line of this log: what became of the files with which hash.
set -eu
trap 'exit 0' TERM INT
said=
say() {
    [ "$1" = "$said" ] || echo "$1"
    said=$1
}
applied=$(told)
[ "$(fingerprint)" != "$applied" ] || say "accepted $(stamp)"
while :; do
    sleep 2 &
    wait $!
    [ "$(fingerprint)" != "$applied" ] || continue
    if tell; then
        applied=$current
        say "accepted $offered"
        continue
    fi
    words=$(echo "$words" | tr '\n' ' ')
    case $words in
    # slurmctld is not there (yet), which says nothing about its files.
    *"Unable to contact"* | *" is DOWN"*) say "waiting $offered: ${words:0:1000}" ;;
    *) say "refused $offered: ${words:0:1000}" ;;
    esac
done
