#!/bin/sh
# Enters what a Pod gives the launcher: own mounts, a small /dev without /dev/kvm, a passwd with uid 107, no capabilities.
# Run it inside `unshare --mount --pid --fork`. $1 is the box's directory, the rest is the command.
set -e
box=$1
shift
mount --make-rprivate /
sed '/:x:107:/d' /etc/passwd >"$box/passwd"
echo 'qemu:x:107:107:qemu:/nonexistent:/usr/sbin/nologin' >>"$box/passwd"
mount --bind "$box/passwd" /etc/passwd
sed '/:x:107:/d' /etc/group >"$box/group"
echo 'qemu:x:107:' >>"$box/group"
mount --bind "$box/group" /etc/group
mkdir -p "$box/dev"
mount -t tmpfs -o mode=755 tmpfs "$box/dev"
for node in null zero full random urandom tty; do
    touch "$box/dev/$node"
    mount --bind "/dev/$node" "$box/dev/$node"
done
mkdir -p "$box/dev/net" "$box/dev/shm" "$box/dev/pts"
if mknod -m 666 "$box/dev/net/tun" c 10 200; then :; fi
if [ -n "$BOX_DISK" ]; then # a name and the two numbers of a block device
    set -- $BOX_DISK "$@"
    mknod -m 600 "$box/dev/$1" b "$2" "$3"
    chown 107:107 "$box/dev/$1"
    shift 3
fi
mount -t tmpfs -o mode=1777 tmpfs "$box/dev/shm"
mount --bind /dev/pts "$box/dev/pts"
ln -s pts/ptmx "$box/dev/ptmx"
ln -s /proc/self/fd "$box/dev/fd"
install -m 666 /dev/null "$box/dev/termination-log"
mount --rbind "$box/dev" /dev
mount -t proc proc /proc
if [ -n "$BOX_HUGE_PAGES" ]; then
    mkdir /dev/hugepages
    mount -t hugetlbfs -o mode=0777,pagesize=2M hugetlbfs /dev/hugepages
fi
if [ -n "$BOX_TAP" ]; then
    ip tuntap add dev "$BOX_TAP" mode tap user 107 group 107
    ip link set "$BOX_TAP" up
fi
if [ -n "$BOX_AT" ]; then
    mount --rbind "$box" "$BOX_AT"
fi
exec setpriv --reuid 107 --regid 107 --clear-groups --inh-caps=-all --bounding-set=-all "$@"
