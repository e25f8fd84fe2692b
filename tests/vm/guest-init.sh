#!/bin/busybox sh
# shellcheck shell=dash disable=SC3045
# The first program of a guest, twice: from the initramfs, where it makes the root, then again from
# that root, where it runs the command and powers off. Called by the guest's kernel.
#
# The root is the host's, read-only, with file systems of the guest's own over /dev, /proc, /run,
# /sys, /tmp and /var/tmp. Of the initramfs, /vm/environment says which folders below these are to
# be the host's all the same: HOST_FOLDERS; and /vm/command is what to run.
# $VM_TALK is a port for what the command and the harness have to tell each other.
# Must hold: the status port gets one line, the command's exit status, only after the command ended.
set -u
export PATH=/usr/sbin:/usr/bin:/sbin:/bin

fail() {
	echo "guest-init: $*"
	sync
	poweroff -f
	sleep 60
}

root_make() {
	local folder

	for module in /modules/*.ko; do
		insmod "$module" || fail "insmod $module"
	done
	# No overlay over it: programs are to be what they are on a machine of its own.
	mount -t 9p -o ro,trans=virtio,version=9p2000.L,msize=524288,cache=loose host /host ||
		fail "no root of the host"
	for folder in $HOST_FOLDERS; do
		mkdir -p "/kept$folder"
		mount --bind "/host$folder" "/kept$folder" || fail "no $folder"
	done
	mount -t ext4 -o noatime /dev/vda /disk || fail "no disk"
	mkdir /disk/tmp /disk/var-tmp
	chmod 1777 /disk/tmp /disk/var-tmp
	mount -t proc proc /host/proc
	mount -t sysfs sys /host/sys
	mount -t tmpfs -o mode=755 run /host/run
	mount --bind /disk/tmp /host/tmp
	mount --bind /disk/var-tmp /host/var/tmp
	# Nothing may stay mounted down here: the kernel would take it for the root of namespaces.
	umount /disk
	for folder in $HOST_FOLDERS; do
		mkdir -p "/host$folder"
		mount --move "/kept$folder" "/host$folder" || fail "no $folder"
	done
	mount --move /dev /host/dev
	mkdir /host/run/vm
	cp -a /bin/busybox /init /vm/. /host/run/vm/
}

rest_mount() {
	mkdir -p /dev/pts /dev/shm /dev/mqueue /sys/fs/cgroup
	mount -t devpts -o ptmxmode=666 devpts /dev/pts
	mount -t tmpfs -o mode=1777 shm /dev/shm
	mount -t mqueue mqueue /dev/mqueue
	mount -t securityfs securityfs /sys/kernel/security
	mount -t cgroup2 -o nsdelegate cgroup2 /sys/fs/cgroup
	mount -t bpf -o mode=700 bpf /sys/fs/bpf
	mount -t tracefs tracefs /sys/kernel/tracing
	ln -sf /proc/self/fd /dev/fd
	ln -sf /proc/self/fd/0 /dev/stdin
	ln -sf /proc/self/fd/1 /dev/stdout
	ln -sf /proc/self/fd/2 /dev/stderr
	swapon /dev/vdb
	hostname guest
	ifconfig lo 127.0.0.1 up
}

port() { # NAME; prints its device
	local entry

	for entry in /sys/class/virtio-ports/*; do
		if [ "$(cat "$entry/name")" = "$1" ]; then
			echo "/dev/${entry##*/}"
		fi
	done
}

if [ $$ != 1 ]; then
	fail "not the first program"
fi
if [ -e /modules ]; then
	for applet in mount umount mkdir insmod chmod cp poweroff sleep sync switch_root cat; do
		/bin/busybox ln -s busybox "/bin/$applet"
	done
	mkdir -p /host /disk /dev
	mount -t devtmpfs dev /dev
	. /vm/environment
	root_make
	exec switch_root /host /run/vm/busybox sh /run/vm/init
fi

cd /run/vm || fail "no folder of the harness"
for applet in mount mkdir ln swapon hostname ifconfig cat poweroff sleep sync setsid; do
	ln -s busybox "$applet"
done
PATH=/run/vm:$PATH
rest_mount
ulimit -Hn 524288
output=$(port output)
env -i VM_TALK="$(port talk)" PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/tmp LANG=C.UTF-8 \
	setsid sh /run/vm/command </dev/null >"$output" 2>&1 &
wait $!
echo $? >"$(port status)"
sync
poweroff -f
