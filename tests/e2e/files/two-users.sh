#!/bin/bash
# Two people on one worker at the same time: what each sees of the other, and what happens to who takes too much.
# $1: the worker. Needs the users ada and bob where it runs, and a /home that the worker sees too.
# Prints sections that begin with a line "## NAME".
set -u
worker=$1
meet=/home/meet
rm -rf $meet
install -d -m 1777 $meet
for person in ada bob; do install -d -m 0700 -o $person -g $person /home/$person; done

as() { # PERSON COMMAND...
    local person=$1
    shift
    setpriv --reuid="$person" --regid="$person" --clear-groups env HOME="/home/$person" USER="$person" "$@"
}

submit() { # PERSON NAME OPTION...: standard input is the job's script; prints the job's number
    local person=$1 name=$2
    shift 2
    as "$person" sbatch --parsable --chdir="/home/$person" -o "/home/$person/$name.txt" -w "$worker" -n1 "$@"
}

state() { scontrol show job "$1" | sed -n 's/.*JobState=\([A-Z_]*\).*/\1/p'; }

until_ended() { # JOB
    local tries=0
    while [[ $(state "$1") =~ PENDING|CONFIGURING|RUNNING|COMPLETING ]] && ((tries++ < 300)); do sleep 0.2; done
}

ada=$(submit ada long --mem=100 <<'JOB'
#!/bin/bash
umask 077
echo "nobody else's business" >/home/ada/secret
grep Cpus_allowed_list /proc/self/status
taskset -c 0-1 grep Cpus_allowed_list /proc/self/status 2>&1
echo "pid=$$ script=$0" >/home/meet/ada.new
chmod 644 /home/meet/ada.new
mv /home/meet/ada.new /home/meet/ada
until [ -e /home/meet/end ]; do sleep 0.2; done
JOB
)
bob=$(submit bob curious --mem=100 <<'JOB'
#!/bin/bash
grep Cpus_allowed_list /proc/self/status
taskset -c 0-1 grep Cpus_allowed_list /proc/self/status 2>&1
until [ -e /home/meet/go ]; do sleep 0.2; done
. /home/meet/ada
try() { if "$@" >/dev/null 2>&1; then echo "could: $*"; else echo "could not: $*"; fi; }
try ls /home/ada
try cat /home/ada/secret
try cat "$script"
try cat "/proc/$pid/environ"
try kill -0 "$pid"
try cat /etc/slurm/slurm.key
try cat "/proc/$$/environ"
JOB
)
tries=0
until [[ -e $meet/ada && $(state "$bob") = RUNNING ]] || ((tries++ > 300)); do sleep 0.2; done
echo "## together"
squeue -h -t RUNNING -o '%u %N' | sort
touch $meet/go
until_ended "$bob"

hog=$(submit bob hog --mem=50 --wrap 'perl -e "\$x = \"a\" x (200 << 20); sleep 1"')
until_ended "$hog"
modest=$(submit bob modest --mem=100 --wrap 'perl -e "\$x = \"a\" x (50 << 20); print length(\$x)"')
until_ended "$modest"
echo "## states"
echo "ada $(state "$ada")"
echo "hog $(state "$hog")"
echo "modest $(state "$modest")"
touch $meet/end
until_ended "$ada"
echo "ada at last $(state "$ada")"
for file in ada/long bob/curious bob/hog bob/modest; do
    echo "## $file"
    cat "/home/$file.txt" 2>&1
done
exit 0
