#!/bin/bash
# A Slurm of two containers on one emulated machine, each started as Kubernetes starts a privileged one: in a control
# group below its pod's, with processes, hostname and mounts of its own, seeing the whole tree of control groups.
# /pods/NAME: what to run in the container NAME; /pods/NAME.limits: CPUs and MiB; /pods/NAME.etc: its /etc/slurm.
set -u

delegate() { # GROUP...: lets the groups below each of them have what it has itself
    local group controller
    for group; do
        for controller in $(cat "$group/cgroup.controllers"); do echo "+$controller" >"$group/cgroup.subtree_control"; done
    done
}

container() { # NAME: named like its host
    local name=$1 pod=$pods/pod-$1 cpus memory
    local group=$pod/container
    mkdir -p "$group"
    delegate "$pod"
    read -r cpus memory <"/pods/$name.limits"
    ((cpus)) && echo "${cpus}00000 100000" >"$group/cpu.max"
    ((memory)) && echo "$((memory << 20))" >"$group/memory.max"
    # The group is entered from inside: slurmd refuses one that also holds a process from outside its namespace.
    unshare --mount --uts --ipc --pid --fork --kill-child --mount-proc bash -c '
        echo $$ >"$2/cgroup.procs"; hostname "$1"; mount --bind "/pods/$1.etc" /etc/slurm; exec "/pods/$1"' \
        start "$name" "$group" >"/var/log/$name.log" 2>&1 &
}

logs() {
    echo "## groups"
    find /sys/fs/cgroup/kubepods -type d
    echo "## logs"
    tail -n 40 /var/log/*.log /var/log/slurm/*.log
}

pods=/sys/fs/cgroup/kubepods/burstable
mkdir -p "$pods"
delegate /sys/fs/cgroup /sys/fs/cgroup/kubepods "$pods"
hostname emulated
container slurm-controller-0
container work-0
export SLURM_CONF=/pods/slurm-controller-0.etc/slurm.conf
tries=0
until [[ $(sinfo -h -n work-0 -o %T 2>/dev/null) = idle ]] || ((tries++ > 200)); do sleep 0.2; done
echo "## controllers"
cat /sys/fs/cgroup/cgroup.controllers
trap logs EXIT
[[ $(sinfo -h -n work-0 -o %T) = idle ]] || exit 1
echo "## before"
sinfo -N -h -o '%N %T %c %m'
scontrol show config | grep -E '^(ProctrackType|TaskPlugin|CgroupPlugin|ConstrainCores|ConstrainRAMSpace) '
/two-users work-0
