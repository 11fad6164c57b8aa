#!/bin/bash
# Process 1 of the bare machine. In mount, process, network and cgroup namespaces that are already its own, it makes the new
# root the only one there is, and then becomes the command. When it ends, the kernel ends and unmounts everything in here.
# Usage: boot.sh ROOT DESCRIPTION COMMAND...    (DESCRIPTION: lines `bind FROM TO`, `readonly TO`,
# `cgroup TYPE OPTIONS TO`, `env NAME=VALUE`; a TO has no / in front)
set -eu
root=$1 description=$2
shift 2
mount --make-rprivate /
mount --bind "$root" "$root"
cd "$root"
mount -t proc proc proc
mount -t sysfs sysfs sys
mount --rbind /dev dev
mount -t devpts -o newinstance,ptmxmode=0666,mode=620,gid=5 devpts dev/pts
mount -t tmpfs -o mode=1777 tmpfs dev/shm
mount -t tmpfs -o mode=755 tmpfs run
mkdir -p run/lock
mount -t tmpfs -o mode=755 tmpfs sys/fs/cgroup 2>/dev/null || true
settings=() own_groups=
while read -r kind rest; do
    case $kind in
    env) settings+=("$rest") ;;
    bind)
        read -r from to <<<"$rest"
        if [ -d "$from" ]; then mkdir -p "./$to"; else mkdir -p "./$(dirname "$to")"; touch "./$to"; fi
        mount --rbind "$from" "./$to"
        ;;
    readonly) mount -o remount,bind,ro "./$rest" ;;
    cgroup)
        read -r type options to <<<"$rest"
        mkdir -p "./$to"
        mount -t "$type" -o "$options" cgroup "./$to"
        own_groups=yes
        ;;
    esac
done <"$description"
# cgroup v2: a group with processes of its own hands no controllers down, and process 1 is in the topmost that is seen here.
for top in sys/fs/cgroup sys/fs/cgroup/*; do
    if [ "$own_groups" ] && [ -f "$top/cgroup.controllers" ]; then
        mkdir -p "$top/init"
        echo 0 >"$top/init/cgroup.procs"
        for controller in $(cat "$top/cgroup.controllers"); do
            echo "+$controller" >"$top/cgroup.subtree_control" 2>/dev/null || true
        done
    fi
done
hostname fresh
pivot_root . mnt
cd /
umount -l /mnt
exec env -i "${settings[@]}" "$@"
