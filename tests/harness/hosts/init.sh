#!/bin/sh
# Process 1 of a test host in namespaces. Environment: DIR (DIR/disk is its root) SHARED NAME ADDRESS SECOND GATEWAY BOOT_ID BINDS CGROUPS. Reads "go" when eth0 is there.
set -e
read -r OUTER _ < /proc/self/stat
echo "$OUTER" > "$DIR/pid"
ROOT=$DIR/disk
mount --rbind /usr "$ROOT/usr"
mount -o remount,bind,ro "$ROOT/usr"
mount --bind "$ROOT/local-bin" "$ROOT/usr/local/bin"
mount --bind "$DIR/ledger" "$ROOT/var/ledger"
mkdir -p "$ROOT/mnt/shared"
mount --bind "$SHARED" "$ROOT/mnt/shared"
printf %s "$BINDS" | while read -r SOURCE TARGET; do
  mkdir -p "$ROOT$TARGET"
  mount --bind "$SOURCE" "$ROOT$TARGET"
  mount -o remount,bind,ro "$ROOT$TARGET"
done
mount -t proc proc "$ROOT/proc"
mount -t sysfs sysfs "$ROOT/sys" || mount --rbind /sys "$ROOT/sys"
# Engines of containers make cgroups for them.
[ -z "$CGROUPS" ] || mount --rbind /sys/fs/cgroup "$ROOT/sys/fs/cgroup"
mount --rbind /dev "$ROOT/dev"
mount -t devpts -o newinstance,ptmxmode=0666,mode=620,gid=5 devpts "$ROOT/dev/pts"
mount -t tmpfs -o size=64m tmpfs "$ROOT/dev/shm"
mount -t tmpfs -o mode=755,size=16m tmpfs "$ROOT/run"
mount -t tmpfs -o mode=1777,size=128m tmpfs "$ROOT/tmp"
mkdir "$ROOT/run/sshd" "$ROOT/run/host"
if [ -n "$BOOT_ID" ]; then
  echo "$BOOT_ID" > "$ROOT/run/host/boot_id"
  mount --bind "$ROOT/run/host/boot_id" "$ROOT/proc/sys/kernel/random/boot_id"
  # The kernel counts for all hosts of this machine: what it kills on one of them must not look like a loss of another.
  cp "$ROOT/proc/vmstat" "$ROOT/run/host/vmstat"
  mount --bind "$ROOT/run/host/vmstat" "$ROOT/proc/vmstat"
  # The kernel lets a login mount a /proc for its containers only where the host has one with nothing mounted over it.
  mkdir "$ROOT/run/host/proc"
  mount -t proc proc "$ROOT/run/host/proc"
fi
hostname "$NAME"
read -r _
printf 'link set lo up\naddr add %s/16 dev eth0\nlink set eth0 up\nroute add default via %s\n' "$ADDRESS" "$GATEWAY" | ip -batch -
[ -z "$SECOND" ] || printf 'addr add %s/16 dev eth1\nlink set eth1 up\n' "$SECOND" | ip -batch -
cd "$ROOT"
pivot_root . .
umount -l .
exec /usr/sbin/chroot . /bin/sh -c '
  exec </dev/null >>/var/log/console.log 2>&1
  trap "" HUP INT TERM
  /usr/sbin/sshd -f /etc/ssh/sshd_config -E /var/log/sshd.log
  : > /run/host/up
  while :; do sleep 2147483647 & wait; done'
