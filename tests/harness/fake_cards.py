"""GPUs that a container may be given, on a test host without a card.

There are device nodes, what the driver says of them, and a CDI spec as nvidia-ctk writes it. The nodes are those of
/dev/null: engines take only real devices. Minors are in the reverse order of indexes, as they may be on real machines.
All of it is gone after a reboot of the host, but for the spec.
"""

from __future__ import annotations

LIBRARY, SPEC = "/opt/cards/libcuda.so.550.54.15", "/etc/cdi/nvidia.yaml"
# /dev is that of this machine: the host gets one of its own, in which it may have more.
_OWN_DEV = """
set -e
mkdir -p /opt/dev
mount -t tmpfs -o mode=755 tmpfs /opt/dev
for node in null zero full random urandom tty fuse; do cp -a /dev/$node /opt/dev/; done
cp -a /dev/fd /dev/stdin /dev/stdout /dev/stderr /opt/dev/
mkdir /opt/dev/net /opt/dev/pts /opt/dev/shm /opt/dev/mqueue
[ ! -e /dev/net/tun ] || cp -a /dev/net/tun /opt/dev/net/
mount --bind /dev/pts /opt/dev/pts
mount --bind /dev/shm /opt/dev/shm
ln -s pts/ptmx /opt/dev/ptmx
for name in {names}; do mknod -m 666 /opt/dev/$name c 1 3; done
mount --make-private /opt/dev
mount --rbind /opt/dev /dev
"""
_DRIVER = """
set -e
mount -t tmpfs -o mode=755 tmpfs /proc/driver
mkdir -p {places}
"""
_HEAD = """---
cdiVersion: 0.5.0
containerEdits:
  deviceNodes:
  - path: /dev/nvidiactl
  env:
  - NVIDIA_VISIBLE_DEVICES=void
  mounts:
  - containerPath: /usr/lib/x86_64-linux-gnu/libcuda.so.550.54.15
    hostPath: {library}
    options:
    - ro
    - nosuid
    - nodev
    - bind
devices:
"""
_DEVICE = """- containerEdits:
    deviceNodes:
    - path: /dev/nvidia{minor}
  name: {name}
"""
_FOOT = "kind: nvidia.com/gpu\n"


def make_nodes(host, count=8):
    """The nodes of the cards and the one that all share, and a library of the driver."""
    names = " ".join([*(f"nvidia{minor}" for minor in range(count)), "nvidiactl"])
    host.run_inside("sh", "-c", _OWN_DEV.format(names=names))
    host.path("/opt/cards").mkdir()
    host.write(LIBRARY, "the driver's\n")


def tell_minors(host):
    """What the driver says of its cards in /proc."""
    uuids = host.gpu_uuids()
    places = [f"/proc/driver/nvidia/gpus/0000:{16 + index:02x}:00.0" for index in range(len(uuids))]
    host.run_inside("sh", "-c", _DRIVER.format(places=" ".join(places)))
    for place, uuid, minor in zip(places, uuids, minors_of(len(uuids)), strict=True):
        host.write(f"{place}/information", f"GPU UUID: \t {uuid}\nDevice Minor: \t {minor}\n")


def write_spec(host, names):
    """`names`: what the spec calls the cards, in the order of their indexes."""
    parts = [_HEAD.format(library=LIBRARY)]
    minors = minors_of(len(names))
    parts += [_DEVICE.format(minor=minor, name=name) for name, minor in zip(names, minors, strict=True)]
    host.path("/etc/cdi").mkdir(exist_ok=True)
    host.write(SPEC, "".join(parts) + _FOOT)


def minors_of(count):
    return list(range(count))[::-1]
