"""Builds the image of a guest with a real Debian kernel, for QEMU, and says in which directory it lies.

    python3 tools/guest_image.py bookworm [MIRROR..]

The directory holds `vmlinuz`, `root.img` (one partition, ext4), `id_ed25519` (lets root in), `host_key.pub` (of the guests' sshd)
and `packages` (versions of kernel, fio and sshd). Images are kept below $CALYX_LAB, else ~/.cache/calyx-orch-lab: of each suite the
one that this text of this file makes; a second call only prints. Building needs root, mmdebstrap, e2fsprogs and half a minute.
Packages come from where mmdebstrap takes that suite's from, else from the mirrors given (lines of sources.list); exit status 75
says that they could not be had.

The guest has no initrd, for the NVMe driver and ext4 are part of the kernel, and no systemd: its init below formats each NVMe
disk whose serial number is the name of a file system, mounts it at /data/NAME and keeps sshd running. So it is up in seconds,
also where QEMU has to interpret every instruction.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

PACKAGES = ("linux-image-cloud-amd64", "openssh-server", "fio", "xfsprogs", "e2fsprogs", "kmod", "busybox-static")
TOLD = ("linux-image-[0-9]*", "fio", "openssh-server", "xfsprogs")  # whose versions are written down
LEFT_OUT = ("/usr/share/man/*", "/usr/share/doc/*", "/usr/share/locale/*", "/etc/kernel/postinst.d/initramfs-tools")
TAKEN_OVER = ("Acquire::Check-Date ", "Acquire::Check-Valid-Until ", "Acquire::http")  # dates, proxies
ROOT_MIB = 1024
PARTITION_AT = 1 << 20  # bytes; the first MiB holds the partition table
DISK_SIGNATURE = 0xCA17C0DE  # the root file system is found by it, whatever order the disks come up in
PREFIX = "calyx-image-"
NO_PACKAGES = 75  # EX_TEMPFAIL: another day it may work

INIT = """\
#!/bin/sh
PATH=/usr/sbin:/usr/bin:/sbin:/bin
export PATH
box=/bin/busybox
$box mount -t proc proc /proc
$box mount -t sysfs sys /sys
[ -b /dev/nvme0n1 ] || $box mount -t devtmpfs dev /dev
$box mkdir -p /dev/pts /dev/shm
$box mount -t devpts devpts /dev/pts
$box mount -t tmpfs shm /dev/shm
$box mount -t tmpfs -o mode=755 run /run
$box mkdir -p /run/sshd
$box ln -sf /proc/self/fd /dev/fd
$box ln -sf /proc/self/mounts /etc/mtab
modprobe -a virtio_pci virtio_net virtio_rng
for word in $($box cat /proc/cmdline); do
	case $word in guest=*) $box hostname "${word#guest=}" ;; esac
done
$box ip link set lo up
# The forwarding network of QEMU always has this address for its guest.
$box ip addr add 10.0.2.15/24 dev eth0
$box ip link set eth0 up
for controller in /sys/class/nvme/nvme*; do
	kind=$($box tr -d ' ' <$controller/serial)
	disk=/dev/${controller##*/}n1
	case $kind in
	ext4) mkfs.ext4 -q -F $disk ;;
	xfs) mkfs.xfs -q -f $disk ;;
	*) continue ;;
	esac
	$box mkdir -p /data/$kind
	mount -t $kind $disk /data/$kind
done
exec $box init
"""
INITTAB = """\
::respawn:/usr/sbin/sshd -D -e
::ctrlaltdel:/bin/busybox poweroff -f
"""
SSHD_CONFIG = """\
HostKey /etc/ssh/ssh_host_ed25519_key
PermitRootLogin prohibit-password
PasswordAuthentication no
UsePAM no
UseDNS no
Subsystem sftp internal-sftp
"""


class NoPackagesError(Exception):
    """The packages of an image could not be had."""


def main(arguments: list[str]) -> int:
    """Build the image of the suite that is named unless it is there; print its directory."""
    if not arguments:
        print((__doc__ or "").strip(), file=sys.stderr)
        return 2
    suite, *mirrors = arguments
    directory = cache() / f"{suite}-{fingerprint()}"
    if not (directory / "packages").exists():
        if os.geteuid() != 0:
            print("guest_image: building needs root; run this once with sudo and CALYX_LAB set", file=sys.stderr)
            return 1
        try:
            build(suite, mirrors, directory)
        except NoPackagesError as error:
            print(f"guest_image: {error}", file=sys.stderr)
            return NO_PACKAGES
    print(directory)
    return 0


def cache() -> Path:
    """Where images are kept."""
    return Path(os.environ.get("CALYX_LAB") or Path.home() / ".cache" / "calyx-orch-lab")


def fingerprint() -> str:
    """A digest of this file, so that another recipe is another image."""
    return hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[:12]


def build(suite: str, mirrors: list[str], directory: Path) -> None:
    """Make the image in a directory beside its place and move it there when it is whole."""
    directory.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=PREFIX, dir=directory.parent) as made:
        root, image = Path(made) / "root", Path(made) / "image"
        image.mkdir()
        for key in ("id_ed25519", "host_key"):
            call("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "calyx-orch guests", "-f", str(image / key))
        install(suite, mirrors, root)
        configure(root, image)
        shutil.copy(next((root / "boot").glob("vmlinuz-*")), image / "vmlinuz")
        make_disk(root, image / "root.img")
        versions = subprocess.run(
            ["chroot", root, "dpkg-query", "-W", *TOLD], check=True, stdout=subprocess.PIPE, text=True
        ).stdout
        (image / "packages").write_text(versions)
        image.rename(directory)
    for older in set(directory.parent.glob(f"{suite}-*")) - {directory}:
        shutil.rmtree(older)


def install(suite: str, mirrors: list[str], root: Path) -> None:
    """A minimal Debian of that suite; its apt is told what this machine's was told of dates and proxies."""
    told = subprocess.run(["apt-config", "dump", "Acquire"], check=True, stdout=subprocess.PIPE, text=True).stdout
    fetching = [line.rstrip(";") for line in told.splitlines() if line.startswith(TAKEN_OVER)]
    words = [
        "mmdebstrap",
        "--quiet",
        "--mode=root",
        "--variant=minbase",
        f"--include={','.join(PACKAGES)}",
        '--aptopt=APT::Install-Recommends "false"',
        "--aptopt=Acquire::Retries 5",
        *(f"--aptopt={line}" for line in fetching),
        *(f"--dpkgopt=path-exclude={path}" for path in LEFT_OUT),
        "--dpkgopt=force-unsafe-io",
    ]
    try:
        call(*words, suite, str(root), *mirrors)
    except subprocess.CalledProcessError as error:
        raise NoPackagesError(
            f"mmdebstrap could not make a Debian {suite}, see its words above; try again later"
        ) from error


def configure(root: Path, image: Path) -> None:
    """Our init, sshd with its key, and whose key root is let in with."""
    write(root / "sbin" / "calyx-init", INIT, 0o755)
    write(root / "etc" / "inittab", INITTAB)
    write(root / "etc" / "ssh" / "sshd_config", SSHD_CONFIG)
    for key in (root / "etc" / "ssh").glob("ssh_host_*"):
        key.unlink()
    shutil.copy(image / "host_key", root / "etc" / "ssh" / "ssh_host_ed25519_key")
    (image / "host_key").unlink()
    (root / "root" / ".ssh").mkdir(mode=0o700, exist_ok=True)
    write(root / "root" / ".ssh" / "authorized_keys", (image / "id_ed25519.pub").read_text(), 0o600)


def make_disk(root: Path, disk: Path) -> None:
    """A disk with a partition table of one partition that holds what lies in `root`, as ext4."""
    size = PARTITION_AT + (ROOT_MIB << 20)
    with disk.open("wb") as file:
        file.truncate(size)
        # The classic table: a signature at 440, four entries of 16 bytes at 446, the mark at 510. Sectors of 512 bytes.
        entry = struct.pack("<B3xB3xII", 0, 0x83, PARTITION_AT // 512, (ROOT_MIB << 20) // 512)
        file.seek(440)
        file.write(struct.pack("<IH", DISK_SIGNATURE, 0) + entry)
        file.seek(510)
        file.write(b"\x55\xaa")
    options = f"offset={PARTITION_AT},lazy_itable_init=0,nodiscard"
    call("mke2fs", "-q", "-F", "-t", "ext4", "-m", "0", "-E", options, "-d", str(root), str(disk), f"{ROOT_MIB}M")


def write(path: Path, text: str, mode: int = 0o644) -> None:
    """A file with these contents and permissions."""
    path.write_text(text)
    path.chmod(mode)


def call(*argv: str) -> None:
    """Run a program; what it says goes to stderr, for stdout is the answer."""
    subprocess.run(argv, check=True, stdout=sys.stderr, stdin=subprocess.DEVNULL)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
