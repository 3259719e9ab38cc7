# Puts itself into control groups, lets go of the stage's lock, and becomes another program.
# $1: the lock's file descriptor, then the cgroup.procs files, then "--" and the program with its arguments.
# The lock is held until here so that whoever removes the stage finds this process in its groups.
set -eu
lock=$1
shift
while [ "$1" != -- ]; do
    echo $$ >"$1"
    shift
done
shift
eval "exec $lock>&-"
exec "$@"
