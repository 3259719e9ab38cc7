"""A whole machine by emulation, with a kernel of its own: control groups version 2 where this machine has version 1.

It is slow but needs nothing of the machine, neither modules nor virtualisation. Its file system is in memory: folders
laid over one another. It runs one script, says what the script said, and is gone.
"""

import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from slurm_local.debian import Root, make_root
from slurm_local.progress import SILENT, Progress
from slurm_local.shell import ENDING_WITH_US, tail
from slurm_operator.errors import UserError

# The kernel alone: its package would bring modules, and tools to make an initial file system of them.
_KERNEL = r"""cd "$1/boot"; export APT_CONFIG="$MMDEBSTRAP_APT_CONFIG"; set -e
for package in $(apt-cache depends --recurse --important linux-image-cloud-amd64 |
    grep -E '^linux-(binary|image)-[0-9].*-cloud-amd64$'); do
    apt-get download -o APT::Sandbox::User=root "$package"
    dpkg-deb -x "$package"_*.deb unpacked
done
mv "$(find unpacked -type f -name 'vmlinuz*' | head -n 1)" vmlinuz
rm -r unpacked ./*.deb"""

EMULATOR = Root(
    name="emulator", packages=("busybox-static", "cpio", "qemu-system-x86"), hooks=(("customize", _KERNEL),)
)
ADDRESS = "10.0.0.1"

_INIT = f"""#!/usr/bin/busybox sh
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root
busybox mount -t proc proc /proc
busybox mount -t sysfs sysfs /sys
busybox mount -t devtmpfs dev /dev
busybox mkdir -p /dev/pts /dev/shm
busybox mount -t devpts devpts /dev/pts
busybox mount -t tmpfs tmpfs /dev/shm
busybox mount -t cgroup2 cgroup2 /sys/fs/cgroup
busybox ip link set lo up
# Programs that look for an address of their own do not count the loopback's.
busybox ip addr add {ADDRESS}/32 dev lo
busybox stty -F /dev/ttyS1 raw
/emulated >/dev/ttyS1 2>/dev/console </dev/null
busybox stty -F /dev/ttyS1 raw # returns when all is written
busybox poweroff -f
"""

# $1: the folder of the emulator, $2: that of the work, then the emulator's options.
_ENTER = """mount --bind "$2" "$1/mnt"; mount --rbind /dev "$1/dev"; root=$1; shift 2
exec chroot "$root" qemu-system-x86_64 "$@" </dev/null
"""

# $1: the emulator's folder, $2: the archive, then the folders that go in, each over the one before.
_PACK = """pack() { "$root/lib64/ld-linux-x86-64.so.2" --library-path "$root/usr/lib/x86_64-linux-gnu" \\
    "$root/usr/bin/cpio" --quiet -o -H newc; }
root=$1 archive=$2; shift 2; : >"$archive"
for folder; do cd "$folder"; find . -xdev | pack >>"$archive"; done
"""


def emulator_root(progress: Progress = SILENT) -> Path:
    return make_root(EMULATOR, progress, usual=60)


def emulate(
    folders: Sequence[Path], script: str, *, memory: int = 2500, timeout: float = 120, progress: Progress = SILENT
) -> str:
    """Boots a machine made of these folders, later ones over earlier ones; what the shell script printed there."""
    emulator = emulator_root(progress)
    with tempfile.TemporaryDirectory(prefix="emulated-") as name:
        work = Path(name)
        top = work / "top"
        (top / "usr/bin").mkdir(parents=True)  # a folder `bin` would take the place of the link to it
        shutil.copy2(emulator / "usr/bin/busybox", top / "usr/bin/busybox")
        for path, text in {"init": _INIT, "emulated": script}.items():
            (top / path).write_text(text)
            (top / path).chmod(0o755)
        _pack(emulator, work / "system", [*folders, top])
        _boot(emulator, work, memory, timeout)
        return (work / "said").read_text(errors="replace").replace("\r", "")


def _pack(emulator: Path, archive: Path, folders: Sequence[Path]) -> None:
    words = ["sh", "-euc", _PACK, "pack", str(emulator), str(archive), *map(str, folders)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120)
    if done.returncode:
        raise UserError(f"the file system of the emulated machine could not be written: {done.stderr.strip()}")


def _boot(emulator: Path, work: Path, memory: int, timeout: float) -> None:
    # Where the machine is busy, the emulated clocks do not tick evenly; the kernel is not to despair of them.
    clocks = "no_timer_check nowatchdog"
    kernel = f"console=ttyS0 rdinit=/init cgroup_no_v1=all panic=-1 quiet {clocks}"
    options = [
        *("-accel", "tcg,thread=multi", "-cpu", "max", "-smp", "2", "-m", str(memory)),
        *("-nodefaults", "-display", "none", "-no-reboot"),
        *("-serial", "file:/mnt/console", "-serial", "file:/mnt/said"),
        *("-kernel", "/boot/vmlinuz", "-initrd", "/mnt/system", "-append", kernel),
    ]
    alone = [*ENDING_WITH_US, "unshare", "--mount", "--pid", "--fork", "--kill-child"]
    words = [*alone, "sh", "-euc", _ENTER, "enter", str(emulator), str(work), *options]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=timeout)
    except subprocess.TimeoutExpired:
        said = tail(work / "console")
        raise UserError(f"the emulated machine did not end within {timeout:.0f} s: {said or 'silence'}") from None
    if done.returncode:
        raise UserError(f"the emulated machine did not run: {done.stderr.strip()}")
