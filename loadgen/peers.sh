#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Measures other sandboxes at the work that ours is measured at: create a sandbox on a root, run a
# program in it, wait for its end, remove everything. Each is given what is cheapest for it among
# what is comparable, and the best of several degrees of parallelism counts.
#
#   peers.sh --root DIR --program PATH [--seconds N] [--parallel N,N...] [--json FILE]
#            [--overlay] [--network] [--only NAME,NAME...] [--driver FILE] [--no-install]
#
# PATH is the program's path inside DIR; N seconds (2) for each degree of parallelism (1,2,4,8).
# --overlay gives each run a writable root of its own as ours has, an overlay of DIR with a tmpfs,
# which the driver mounts and unmounts; without it the root is DIR, read-only. --network adds a new
# network namespace, without which a peer does not keep the program from the host's network.
# NAMEs: direct (no sandbox at all, for context), bubblewrap, crun, runc. The driver is the built
# drive.c; without one it is compiled for this run. Writes (to standard output without --json):
#
#   { NAME: { "rate_per_s", "p50_us", "p99_us", "parallel", "duration_s", "done", "failed",
#             "version", "rates_by_parallel": { N: rate }, "includes": [], "lacks": [] }, ...
#     NAME: { "error": why it cannot run here } }
#
# Must hold: a peer is measured or stands in the result with the reason; nothing is left behind.
set -euo pipefail
shopt -s inherit_errexit

self=$(readlink -f "${BASH_SOURCE[0]}")
here=$(dirname "$self")
root=
program=
seconds=2
parallel=1,2,4,8
json=
only=direct,bubblewrap,crun,runc
driver=
root_path=
install=1
overlay=0
network=0
tmp=
cgroup=
command=()
includes=()
lacks=()

say() { echo "peers: $*" >&2; }

die() {
	echo "peers: $*" >&2
	exit 1
}

usage() {
	sed -n '/^#   peers.sh/,/^#$/ s/^#  *//p' "$self" >&2
	exit 2
}

main() {
	options_read "$@"
	[[ $(id -u) -eq 0 ]] || die "must be root (namespaces, cgroups)"
	root=$(cd "$root" && pwd -P)
	[[ -x $root$program ]] || die "no program $root$program"
	scratch_make
	if [[ -z $driver ]]; then
		driver=$tmp/drive
		${CC:-cc} -O2 -o "$driver" "$here/peers/drive.c" || die "cannot build drive.c"
	fi
	driver=$(readlink -f "$driver")
	[[ -x $driver ]] || die "no driver"
	install_missing

	# Into namespaces where a cgroup of our own is all there is: the runtimes see a pure cgroup
	# v2, and what they leave is found below it.
	(
		echo "$BASHPID" >"$cgroup/cgroup.procs"
		exec unshare --mount --cgroup --propagation private "$self" --in-namespaces \
			"$tmp" "$root" "$program" "$seconds" "$parallel" "$only" "$driver" \
			"$overlay" "$network"
	) &
	wait $! || die "measuring failed"
	if [[ -n $json ]]; then
		mv "$tmp/result.json" "$json.new.$$"
		mv "$json.new.$$" "$json"
	else
		cat "$tmp/result.json"
	fi
}

options_read() {
	while [[ $# -gt 0 ]]; do
		case $1 in
		--no-install) install=0 && shift && continue ;;
		--overlay) overlay=1 && shift && continue ;;
		--network) network=1 && shift && continue ;;
		esac
		[[ $# -ge 2 ]] || usage
		case $1 in
		--root) root=$2 ;;
		--program) program=$2 ;;
		--seconds) seconds=$2 ;;
		--parallel) parallel=$2 ;;
		--json) json=$2 ;;
		--only) only=$2 ;;
		--driver) driver=$2 ;;
		*) usage ;;
		esac
		shift 2
	done
	[[ -d $root && $program == /* ]] || usage
	[[ $overlay -eq 0 || $root != *[,:\\%]* ]] || die "--overlay: no , : \\ or % in $root"
	[[ $seconds =~ ^[1-9][0-9]*$ && $parallel =~ ^[1-9][0-9]*(,[1-9][0-9]*)*$ ]] || usage
	[[ $only =~ ^(direct|bubblewrap|crun|runc)(,(direct|bubblewrap|crun|runc))*$ ]] || usage
}

scratch_make() {
	local tree

	tree=$(awk '$3 == "cgroup2" { print $2; exit }' /proc/mounts)
	[[ -n $tree ]] || die "no cgroup v2 tree is mounted"
	tmp=$(mktemp -d "${TMPDIR:-/tmp}/dsec-peers.XXXXXX")
	cgroup=$tree/dsec-peers-$$
	trap cleanup EXIT
	trap 'exit 130' INT
	trap 'exit 143' TERM
	mkdir "$cgroup"
}

# Also the way out of an interrupted run. Whatever still runs below our cgroup is killed; an empty
# one can be removed a moment later.
cleanup() {
	local try

	if [[ -d $cgroup ]]; then
		echo 1 >"$cgroup/cgroup.kill" || true
		for ((try = 0; try < 100; try++)); do
			find "$cgroup" -mindepth 1 -depth -type d -exec rmdir {} + 2>/dev/null || true
			! rmdir "$cgroup" 2>/dev/null || break
			sleep 0.05
		done
		[[ ! -d $cgroup ]] || say "cannot remove $cgroup"
	fi
	rm -rf --one-file-system "$tmp"
}

install_missing() {
	local missing=() name

	for name in ${only//,/ }; do
		[[ $name == direct ]] || command -v "$(executable "$name")" >/dev/null ||
			missing+=("$name")
	done
	[[ ${#missing[@]} -gt 0 && $install -eq 1 ]] || return 0
	for name in "${missing[@]}"; do
		say "installing $name"
		DEBIAN_FRONTEND=noninteractive timeout --foreground -k 10 300 apt-get -qq install -y \
			--no-install-recommends "$name" >"$tmp/apt" 2>&1 ||
			say "$name cannot be installed: $(tail -n 1 "$tmp/apt")"
	done
}

executable() { # NAME
	[[ $1 == bubblewrap ]] && echo bwrap || echo "$1"
}

# ---- in namespaces of our own ----

in_namespaces() { # as main passes it
	local name row comma=

	tmp=$1 root=$2 program=$3 seconds=$4 parallel=$5 only=$6 driver=$7 overlay=$8 network=$9
	mount -t cgroup2 cgroup2 /sys/fs/cgroup
	# A cgroup with processes in it cannot give controllers to those below it.
	mkdir /sys/fs/cgroup/driver
	echo $$ >/sys/fs/cgroup/driver/cgroup.procs
	{
		printf '{'
		for name in ${only//,/ }; do
			row=$(peer_measure "$name")
			printf '%s\n  "%s": %s' "$comma" "$name" "$row"
			comma=,
		done
		printf '\n}\n'
	} >"$tmp/result.json"
}

peer_measure() { # NAME; prints its row
	local name=$1

	if [[ $name != direct ]] && ! command -v "$(executable "$name")" >/dev/null; then
		row_error "$name" "not installed"
		return
	fi
	"${name}_set"
	peer_probe || {
		row_error "$name" "cannot run here: $(tail -n 1 "$tmp/probe")"
		return
	}
	row_measure "$name"
}

# Once by hand, for the message that the driver does not see.
peer_probe() {
	local words=("${command[@]//%d/probe}") result=0

	words=("${words[@]//%t/0}")
	if [[ $overlay -eq 1 ]]; then
		mkdir -p "$tmp/roots/0/root"
		mount -t tmpfs tmpfs "$tmp/roots/0/root"
		mkdir "$tmp"/roots/0/root/{u,w}
		mount -t overlay overlay "$tmp/roots/0/root" -o \
			"lowerdir=$root,upperdir=$tmp/roots/0/root/u,workdir=$tmp/roots/0/root/w"
	fi
	# A runtime may give its stdin to the user inside: nothing of the host's.
	timeout --foreground -k 2 20 "${words[@]}" < <(:) >"$tmp/probe" 2>&1 || result=$?
	[[ -s $tmp/probe ]] || echo "exit status $result" >"$tmp/probe"
	if [[ $overlay -eq 1 ]]; then
		umount -l "$tmp/roots/0/root"
		umount -l "$tmp/roots/0/root"
	fi
	return $result
}

row_error() { # NAME REASON
	say "$1: $2"
	printf '{"error": %s}' "$(quoted "$2")"
}

row_measure() { # NAME
	local name=$1 degree line rate best='' best_rate=0 rates='' options=()

	if [[ $overlay -eq 1 && $name != direct ]]; then
		options=(--lower "$root" --scratch "$tmp/roots")
	fi
	for degree in ${parallel//,/ }; do
		line=$(timeout --foreground -k 2 $((seconds + 30)) "$driver" --parallel "$degree" \
			--seconds "$seconds" "${options[@]}" -- "${command[@]}" 2>"$tmp/drive.err") || {
			row_error "$name" "parallel $degree: $(tail -n 1 "$tmp/drive.err")"
			return
		}
		rate=${line#*\"rate_per_s\": }
		rate=${rate%%,*}
		say "$name: parallel $degree: $rate/s"
		rates+="${rates:+, }\"$degree\": $rate"
		if [[ -z $best ]] || awk "BEGIN { exit !($rate > $best_rate) }"; then
			best=$line
			best_rate=$rate
		fi
	done
	printf '%s, "version": %s, "rates_by_parallel": {%s}, "includes": [%s], "lacks": [%s]}' \
		"${best%\}}" "$(quoted "$(version "$name")")" "$rates" \
		"$(list "${includes[@]}")" "$(list "${lacks[@]}")"
}

version() { # NAME
	[[ $1 == direct ]] || "$(executable "$1")" --version | awk 'NR == 1 { print $NF }'
}

list() { # WORD...
	local word comma=

	for word in "$@"; do
		printf '%s%s' "$comma" "$(quoted "$word")"
		comma=', '
	done
}

quoted() { # TEXT; as a JSON string
	printf '"%s"' "$(tr -c '[:print:]' ' ' <<<"$1" | sed 's/ *$//; s/[\\"]/\\&/g')"
}

# ---- the peers ----

# Common to the peers. /dev is the root's own, one bind in place of a tmpfs full of nodes: less work
# for them, and what ours has.
peer_set() { # sets root_path, what both kinds of peer include and lack
	includes=("new mnt, pid, ipc, uts, cgroup and user namespaces" "no_new_privs")
	lacks=("seccomp filter" "uid range of its own" "exec into a living sandbox")
	if [[ $overlay -eq 1 ]]; then
		root_path=$tmp/roots/%t/root
		includes+=("writable root: overlay with a tmpfs, mounted and unmounted by the driver")
	else
		root_path=$root
		includes+=("read-only root, tmpfs on /tmp")
		lacks+=("writable root")
	fi
	if [[ $network -eq 1 ]]; then
		includes+=("new net namespace")
	else
		lacks+=("any isolation of the network")
	fi
}

direct_set() {
	command=("$root$program")
	includes=("a process of the host")
	lacks=("a sandbox of any kind")
}

bubblewrap_set() {
	peer_set
	command=(bwrap --unshare-user --uid 0 --gid 0 --unshare-ipc --unshare-pid --unshare-uts
		--unshare-cgroup --hostname sandbox --cap-drop ALL --chdir /)
	[[ $network -eq 0 ]] || command+=(--unshare-net)
	if [[ $overlay -eq 1 ]]; then
		command+=(--dev-bind "$root_path" /)
	else
		command+=(--ro-bind "$root_path" / --dev-bind "$root/dev" /dev --tmpfs /tmp)
	fi
	command+=(--proc /proc -- "$program")
	includes+=("/proc, read-only where it matters" "PID 1 that reaps, the program its child")
	lacks+=("cgroup" "hidden /proc files")
}

crun_set() {
	oci_set crun --cgroup-manager=cgroupfs
}

runc_set() {
	oci_set runc
}

# A bundle for each of the driver's threads: they differ in the root's path.
oci_set() { # RUNTIME OPTION...
	local thread threads=1 degree

	peer_set
	for degree in ${parallel//,/ }; do
		threads=$((degree > threads ? degree : threads))
	done
	for ((thread = 0; thread < threads; thread++)); do
		mkdir -p "$tmp/$1/$thread"
		oci_config "${root_path/\%t/$thread}" >"$tmp/$1/$thread/config.json"
	done
	command=("$@" --root "$tmp/$1/state" run --bundle "$tmp/$1/%t" "dsec-$1-%d")
	includes+=("/proc with hidden and read-only files" "capability set"
		"cgroup made and removed" "the program is PID 1")
}

oci_config() { # ROOT
	local capabilities readonly=true tmp_mount network_type=''

	tmp_mount=',{ "destination": "/tmp", "type": "tmpfs", "source": "tmpfs",
				"options": ["nosuid", "nodev", "mode=1777"] }'
	if [[ $overlay -eq 1 ]]; then
		readonly=false
		tmp_mount=
	fi
	[[ $network -eq 0 ]] || network_type=', { "type": "network" }'
	capabilities='["CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_FSETID", "CAP_KILL",
		"CAP_SETGID", "CAP_SETUID", "CAP_SETPCAP", "CAP_NET_BIND_SERVICE"]'
	cat <<-END
		{
		"ociVersion": "1.0.2",
		"hostname": "sandbox",
		"root": { "path": $(quoted "$1"), "readonly": $readonly },
		"process": {
			"terminal": false, "user": { "uid": 0, "gid": 0 }, "cwd": "/",
			"args": [$(quoted "$program")], "env": ["PATH=/usr/bin:/bin"],
			"noNewPrivileges": true,
			"capabilities": { "bounding": $capabilities, "effective": $capabilities,
				"permitted": $capabilities }
		},
		"mounts": [
			{ "destination": "/proc", "type": "proc", "source": "proc" },
			{ "destination": "/dev", "type": "bind", "source": $(quoted "$root/dev"),
				"options": ["bind", "rw"] }$tmp_mount
		],
		"linux": {
			"namespaces": [ { "type": "mount" }, { "type": "pid" }, { "type": "ipc" },
				{ "type": "uts" }, { "type": "cgroup" }, { "type": "user" }$network_type ],
			"uidMappings": [ { "containerID": 0, "hostID": 0, "size": 65536 } ],
			"gidMappings": [ { "containerID": 0, "hostID": 0, "size": 65536 } ],
			"resources": {},
			"maskedPaths": ["/proc/kcore", "/proc/keys", "/proc/timer_list",
				"/proc/sched_debug", "/proc/acpi", "/proc/scsi"],
			"readonlyPaths": ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys",
				"/proc/sysrq-trigger"]
		}
		}
	END
}

if [[ ${1:-} == --in-namespaces ]]; then
	in_namespaces "${@:2}"
else
	main "$@"
fi
