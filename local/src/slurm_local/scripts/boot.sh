# First process of a machine of the stage, alone in its namespaces: builds the machine's file system and moves into it.
# $1: the machine's folder, $2: its name, $3: the root folder that all machines share,
# $4: the version 1 control group hierarchies (empty: version 2), then pairs SOURCE:TARGET to show inside.
set -eu
folder=$1 name=$2 shared=$3 hierarchies=$4
shift 4
root=$folder/root

mount -t overlay overlay -o "lowerdir=$shared,upperdir=$folder/upper,workdir=$folder/work" "$root"
mount -t proc proc "$root/proc"
mount -t sysfs sysfs "$root/sys"
mount --rbind /dev "$root/dev"
mount -t tmpfs -o mode=0755 tmpfs "$root/run"
mount -t tmpfs -o mode=1777 tmpfs "$root/tmp"

# The kubelet writes these settings, which belong to the whole machine: it gets copies.
for setting in kernel/panic kernel/panic_on_oops kernel/keys/root_maxbytes kernel/keys/root_maxkeys \
    vm/overcommit_memory vm/panic_on_oom; do
    if [ -e "/proc/sys/$setting" ]; then
        copy=$root/run/settings/$setting
        mkdir -p "$(dirname "$copy")"
        cat "/proc/sys/$setting" >"$copy"
        mount --bind "$copy" "$root/proc/sys/$setting"
    fi
done

# Only the machine's own control groups can be seen inside.
groups=$root/sys/fs/cgroup
if [ -n "$hierarchies" ]; then
    mount -t tmpfs -o mode=0755 tmpfs "$groups"
    for hierarchy in $hierarchies; do
        mkdir "$groups/${hierarchy#name=}"
        case $hierarchy in
        name=*) mount -t cgroup -o "none,$hierarchy" cgroup "$groups/${hierarchy#name=}" ;;
        *) mount -t cgroup -o "$hierarchy" cgroup "$groups/$hierarchy" ;;
        esac
    done
else
    mount -t cgroup2 cgroup "$groups"
    # A version 2 group with groups below it may hold no process itself.
    mkdir -p "$groups/init"
    echo 0 >"$groups/init/cgroup.procs"
    for controller in $(cat "$groups/cgroup.controllers"); do
        # Whoever started us is being taken out of the group, too.
        tries=0
        until echo "+$controller" >"$groups/cgroup.subtree_control" || [ "$tries" -gt 50 ]; do
            tries=$((tries + 1))
            sleep 0.1
        done
    done
fi

# A machine can be told to show other processors than there are: without NUMA nodes the list of CPUs is what counts.
if [ -d "$folder/cpu" ]; then
    mount -t tmpfs -o mode=0755 tmpfs "$root/sys/devices/system/node"
    mount --bind "$folder/cpu" "$root/sys/devices/system/cpu"
fi

for pair in "$@"; do
    mkdir -p "$root${pair#*:}"
    mount --rbind "${pair%%:*}" "$root${pair#*:}"
done

hostname "$name"
echo 1 >/proc/sys/net/ipv4/ip_forward
cd "$root"
mkdir -p old
pivot_root . old
exec chroot . /bin/sh -c 'umount -l /old && rmdir /old && mount --make-rshared / && exec "$@"' sh \
    /usr/bin/env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 \
    /usr/bin/tini -- /bin/sh /stage/supervise.sh </dev/null >/dev/null 2>&1
