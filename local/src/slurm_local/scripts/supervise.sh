# Keeps the programs in /stage/services running, each with a log of its own, until the machine is told to stop.
loops=""

stop() {
    trap '' TERM
    kill $loops 2>/dev/null
    kill -TERM -1
    tries=0
    # What is left then is the first process, this one and its sleep.
    while [ "$(ls -d /proc/[0-9]* | wc -l)" -gt 4 ] && [ "$tries" -lt 50 ]; do
        tries=$((tries + 1))
        sleep 0.1
    done
    exit 0
}

keep() {
    while :; do
        /bin/sh "$1" >>"/var/log/$2.log" 2>&1
        echo "$2 ended with code $?; it is started again" >>"/var/log/$2.log"
        sleep 1
    done
}

trap stop TERM
for service in /stage/services/*; do
    keep "$service" "$(basename "$service")" &
    loops="$loops $!"
done
while :; do wait; sleep 1; done
