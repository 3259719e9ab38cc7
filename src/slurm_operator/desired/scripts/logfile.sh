# Turns the daemon's log file into a pipe and copies it to standard output, where the kubelet collects it.
# SOCKET: path of the log file.
set -eu
reader=
finish() {
    [ -z "$reader" ] || kill "$reader" || :
    exit "$1"
}
trap 'finish 0' TERM
trap 'finish 1' INT HUP
mkdir -p "$(dirname "$SOCKET")"
if [ ! -p "$SOCKET" ]; then
    rm -rf "$SOCKET"
    mkfifo "$SOCKET"
    chmod 777 "$SOCKET"
fi
# Open for reading and writing: the pipe does not end when a daemon closes it, and no daemon waits for a reader.
exec 3<>"$SOCKET"
# In the background, so that a signal ends the wait.
while :; do
    cat <&3 &
    reader=$!
    wait "$reader" || sleep 1
done
