#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# From a clone to figures: installs what is needed, builds, makes a real image, runs real work in
# a sandbox, then drives load and prints ours beside the floor and the peers, all of one run.
#
#   run.sh [--quick] [--json FILE] [--only STEP,STEP...]
#
# --quick: shorter everywhere, under five minutes on a machine that is set up. --json: one object
# per scenario, one a line. STEPs: work, load (both); and only when asked for, minutes each: storms
# (a neighbour beside sandboxes that do their worst), policy (sandboxes with ready-made policies and in network shared, and what
# calls cost in them), hostile (a good client beside hostile ones).
# In ${XDG_CACHE_HOME:-~/.cache}/dsec: the images, what was fetched, the log of the engine, and
# report.html, the figures of the last load.
# DSEC_BUILD: a build folder to use in place of build/release; it is not built then.
# DSEC_INSTANCE: the engine's name, in place of loadgen.
#
# Must hold: every step is bounded in time; the exit status is 0 only if everything was as it
# should be; the engine that is started here is stopped here, and nothing of it is left.
set -euo pipefail
shopt -s inherit_errexit

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
top=$(dirname "$here")
cache=${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/dsec
build=${DSEC_BUILD:-$top/build/release}
instance=${DSEC_INSTANCE:-loadgen}
image=debian
program=/usr/libexec/dsec/tiny-exit
quick=
json=
only=work,load
run=
engine=
failures=()
seconds=20
short=10
floor_rounds=3
floor_seconds=2
peer_seconds=3
peer_parallel=1,2,4,8
hold=5000
storm_rounds=7
hostile_rounds=7
began=$SECONDS

say() { printf '\n== %s\n' "$*"; }

die() {
	printf 'run.sh: %s\n' "$*" >&2
	exit 1
}

fail() {
	printf 'FAILED: %s\n' "$*"
	failures+=("$*")
}

# quietly LIMIT_S LOG COMMAND...: output only on a terminal, or when it fails
quietly() {
	local limit=$1 log=$2

	shift 2
	if [[ -t 1 ]]; then
		timeout --foreground -k 10 "$limit" "$@"
	elif ! timeout --foreground -k 10 "$limit" "$@" >"$log" 2>&1; then
		tail -n 60 "$log"
		return 1
	fi
}

main() {
	options_read "$@"
	cd "$top"
	setup
	run=$(mktemp -d "${TMPDIR:-/tmp}/dsec-run.XXXXXX")
	trap finish EXIT
	trap 'exit 130' INT
	trap 'exit 143' TERM
	mkdir -p "$cache"
	build_all
	[[ $only == hostile ]] || engine_steps
	[[ ,$only, != *,hostile,* ]] || hostile_run
	summary
}

engine_steps() {
	images_make
	engine_start
	[[ ,$only, != *,work,* ]] || work_run
	[[ ,$only, != *,load,* ]] || load_run
	[[ ,$only, != *,storms,* ]] || storms_run
	[[ ,$only, != *,policy,* ]] || policy_run
	engine_stop
}

options_read() {
	while [[ $# -gt 0 ]]; do
		case $1 in
		--quick) quick=1 && shift ;;
		--json | --only)
			[[ $# -ge 2 ]] || usage
			declare -g "${1#--}=$2"
			shift 2
			;;
		*) usage ;;
		esac
	done
	[[ $only =~ ^(work|load|storms|policy|hostile)(,(work|load|storms|policy|hostile))*$ ]] || usage
	[[ -z $json ]] || json=$(realpath -m "$json")
	if [[ $quick ]]; then
		seconds=4 short=3 floor_rounds=1 peer_seconds=1 peer_parallel=2,4 hold=1000
		storm_rounds=3 hostile_rounds=3
	fi
}

usage() {
	sed -n '/^#   run.sh/,/^#$/ s/^#  *//p' "${BASH_SOURCE[0]}" >&2
	exit 2
}

finish() {
	local status=$?

	trap - EXIT
	if [[ $engine ]]; then
		engine_stop || status=1
	fi
	rm -rf --one-file-system "$run"
	exit "$status"
}

# ---- what is needed ----

setup() {
	say "packages"
	timeout --foreground -k 10 1200 "$top/tests/setup.sh"
	echo "ok"
}

build_all() {
	local targets=(dsecd dsec_cli dsec examples dsec-loadgen dsec-floor dsec-storms dsec-storm)

	if [[ ${DSEC_BUILD:-} ]]; then
		return
	fi
	say "build"
	mkdir -p build
	quietly 300 "$run/cmake.log" cmake --preset release || die "cmake failed"
	[[ ,$only, != *,policy,* ]] || targets+=(bench_policy)
	[[ ,$only, != *,hostile,* ]] || targets+=("${hostile_programs[@]/#/test_hostile_}")
	quietly 900 "$run/build.log" cmake --build --preset release -j "$(nproc)" --target \
		"${targets[@]}" || die "the build failed"
	echo "ok: $build"
}

images_make() {
	say "image"
	timeout --foreground -k 10 1200 "$here/image.sh" "$cache" >"$run/image" ||
		die "no image"
	if [[ ,$only, == *,work,* ]]; then
		timeout --foreground -k 10 1200 "$here/realwork.sh" prepare "$cache" ||
			die "no real work"
		timeout --foreground -k 10 600 "$here/image.sh" --with-work "$cache" >"$run/image" ||
			die "no image with the real work"
	fi
	echo "ok: $(<"$run/image")"
}

# ---- the engine ----

engine_start() {
	local ready

	say "engine"
	rm -f "$run/ready"
	mkfifo "$run/ready"
	"$build/engine/dsecd" --instance "$instance" --socket "$run/dsec.sock" --images "$cache" --state "$run/state" \
		--ready-fd 9 9<>"$run/ready" >"$cache/dsecd.log" 2>&1 &
	engine=$!
	if ! read -t 30 -r ready <"$run/ready" || [[ $ready != ready ]]; then
		tail -n 20 "$cache/dsecd.log"
		kill -0 "$engine" 2>/dev/null || engine=
		die "dsecd did not become ready, see $cache/dsecd.log"
	fi
	export DSEC_ADDRESS=unix:$run/dsec.sock
	echo "ok: dsecd $engine, instance $instance, log in $cache/dsecd.log"
}

# Ends it, and looks for what it may have left: its cgroups, its processes.
engine_stop() {
	local pid=$engine status=0 waited tree

	engine=
	say "engine's end"
	kill -TERM "$pid" 2>/dev/null || true
	for ((waited = 0; waited < 300; waited++)); do
		kill -0 "$pid" 2>/dev/null || break
		sleep 0.1
	done
	if kill -0 "$pid" 2>/dev/null; then
		fail "dsecd did not end within 30 s of SIGTERM"
		kill -KILL "$pid"
	fi
	wait "$pid" || status=$?
	[[ $status -eq 0 ]] || fail "dsecd ended with status $status, see $cache/dsecd.log"
	tree=$(awk '$3 == "cgroup2" { print $2; exit }' /proc/mounts)
	if [[ -e $tree/dsec-$instance ]]; then
		fail "dsecd left the cgroup $tree/dsec-$instance"
	fi
	[[ ${#failures[@]} -gt 0 ]] || echo "ok: nothing of it is left"
}

# ---- real work ----

work_run() {
	local script

	say "real work: zlib's and CPython's own tests, in sandboxes"
	: >"$run/inside.txt"
	# shellcheck disable=SC2043 # the order matters to the reader of the results
	for script in zlib cpython; do
		timeout --foreground -k 10 400 "$build/sdk/dsec" run --rm --network private \
			--hostname localhost \
			--timeout 300s debian-work -- sh "/usr/libexec/dsec/realwork/$script.sh" \
			>>"$run/inside.txt" || echo "$script: status $?"
	done
	if [[ -z $quick || ! -e $cache/outside.txt ||
		$cache/outside.txt -ot $cache/debian-work.erofs ]]; then
		timeout --foreground -k 10 700 "$here/realwork.sh" outside "$cache" ||
			fail "the real work's run outside"
	fi
	grep -E '^[a-z_./]+: passed ' "$run/inside.txt" || true
	"$here/realwork.sh" compare "$run/inside.txt" "$cache/outside.txt" || {
		cp "$run/inside.txt" "$cache/inside.txt"
		fail "the real work's results differ inside and outside, see $cache/inside.txt"
	}
}

# ---- load ----

load_run() {
	say "floor, peers, load: $(uname -r), $(nproc) CPUs"
	: >"$run/report.json"
	: >"$run/peers.args"
	peers_measure
	quiet_wait 30
	scenario ready ready "$seconds"
	scenario ready-fresh ready "$short" --fresh-root
	scenario exec exec "$seconds"
	scenario live-exec live-exec "$short"
	scenario live-exec-8 live-exec "$short" --in-flight 8
	open_loop
	# On an engine that has no slots yet: what they take is a part of what sandboxes take.
	engine_stop
	engine_start
	scenario hold hold 1 --count "$hold"
	scenario call-domain call-domain "$short"
	scenario call-fresh call-fresh "$short"
	scenario no-op no-op "$short" --in-flight 1
	scenario no-op-64 no-op "$short" --in-flight 64
	scenario burst burst 1 --count "$hold"
	[[ -z $json ]] || cp "$run/report.json" "$json"
}

# The same root, program and isolation: a writable root and no way to the host's network.
peers_measure() {
	timeout --foreground -k 10 300 "$here/peers.sh" --root "$cache/root" --program "$program" \
		--seconds "$peer_seconds" --parallel "$peer_parallel" --overlay --network \
		--json "$run/peers.json" || {
		fail "the peers could not be measured"
		return 0
	}
	python3 - "$run/peers.json" >"$run/peers.args" <<-'END'
		import json, sys
		for name, peer in json.load(open(sys.argv[1])).items():
		    if "rate_per_s" in peer:
		        print(f"--peer\n{name}={peer['rate_per_s']}")
		    else:
		        print(f"{name}: {peer['error']}", file=sys.stderr)
	END
}

busy_ticks() {
	awk '/^cpu / { print $2 + $3 + $4 + $7 + $8; exit }' /proc/stat
}

# Until the machine does next to nothing: what ran last may still be freed (network namespaces of
# the peers most of all) and would be counted against what runs next. At most LIMIT_S.
quiet_wait() { # LIMIT_S
	local round before after

	for ((round = 0; round < 2 * $1; round++)); do
		before=$(busy_ticks)
		sleep 0.5
		after=$(busy_ticks)
		if ((after - before <= 5)); then
			return
		fi
	done
	echo "the machine is busy with something else: figures will be low" >&2
}

floor_measure() { # SCENARIO OPTION...; prints the median rate of some rounds
	local round

	for ((round = 0; round < floor_rounds; round++)); do
		timeout --foreground -k 10 60 "$build/loadgen/dsec-floor" --scenario "$@" \
			--seconds "$floor_seconds" --image "$cache/debian.erofs" \
			--init "$build/backends/container/init" || return 1
	done | python3 -c '
import json, statistics, sys
print(statistics.median(json.loads(line)["rate_per_s"] for line in sys.stdin))'
}

# The floor of this work, measured just before ours; nothing where it is another work's.
floor_of() { # NAME
	case $1 in
	ready | ready-fresh | exec) floor_measure "$1" ;;
	live-exec) floor_measure live-exec --workers 1 ;; # one in flight, as ours
	live-exec-8) floor_measure live-exec ;;
	esac
}

scenario() { # NAME SCENARIO SECONDS OPTION...
	local name=$1 scenario=$2 time=$3 floor arguments=()

	shift 3
	quiet_wait 5
	floor=$(floor_of "$name") || fail "the floor of $name"
	[[ -z $floor ]] || arguments+=(--floor-rate "$floor")
	if [[ $name == exec ]]; then
		mapfile -t -O "${#arguments[@]}" arguments <"$run/peers.args"
	fi
	timeout --foreground -k 10 $((time + 180)) "$build/loadgen/dsec-loadgen" \
		--instance "$instance" --name "$name" --scenario "$scenario" --seconds "$time" \
		--image "$image" --json "$run/report.json" "${arguments[@]}" "$@" ||
		fail "scenario $name"
}

# At half of what the closed loop reached, so that latency and not the queue is measured.
open_loop() {
	local rate

	rate=$(python3 - "$run/report.json" <<-'END'
		import json, sys
		rows = [json.loads(line) for line in open(sys.argv[1])]
		print(max([1] + [round(row["rate_per_s"] / 2) for row in rows if row["scenario"] == "exec"]))
	END
	)
	scenario exec-open exec "$short" --rate "$rate"
}

# ---- storms ----

# Medians of rounds, alone and beside in turn. Few processes: without a pids controller each session
# of a storm has a share of this machine, which others use too.
storms_run() {
	local setting

	say "storms: a neighbour's commands, 50 a second, alone and beside: $(uname -r), $(nproc) CPUs"
	: >"$run/storms.json"
	for setting in default sched-idle; do
		echo "-- the storming sandbox: $setting"
		quiet_wait 5
		# shellcheck disable=SC2046 # an option, or none
		timeout --foreground -k 10 900 "$build/loadgen/dsec-storms" \
			--program "$build/loadgen/dsec-storm" --image "$image" --pids 64 \
			--memory 256 --rate 50 --rounds "$storm_rounds" --name "$setting" \
			--json "$run/storms.json" \
			$([[ $setting == default ]] || echo "--$setting") ||
			fail "storms, $setting"
	done
	[[ -z $json ]] || cat "$run/storms.json" >>"$json"
}

# ---- policies ----

# In turn, so that what else the machine does falls on all of them.
policy_run() {
	local round

	say "policies and networks: $(uname -r), $(nproc) CPUs"
	: >"$run/policy.json"
	for ((round = 1; round <= floor_rounds; round++)); do
		policy_rate default none
		policy_rate no-network none
		policy_rate fncall none
		policy_rate default shared
	done
	python3 - "$run/policy.json" <<-'END'
		import collections, json, statistics, sys
		rates = collections.defaultdict(list)
		for row in map(json.loads, open(sys.argv[1])):
		    rates[row["scenario"].rpartition("-")[0]].append(row["rate_per_s"])
		base = rates["default-none"]
		for name, all in rates.items():
		    shares = sorted(100 * one / other for one, other in zip(all, base))
		    print(f"{name}: {statistics.median(all):.0f} sandboxes a second, "
		          f"{statistics.median(shares):.0f} % of default-none, the median of {len(shares)} pairs "
		          f"({shares[0]:.0f} to {shares[-1]:.0f} %)")
	END
	timeout --foreground -k 10 300 "$build/tests/root/guard/bench_policy" || fail "bench_policy"
	[[ -z $json ]] || cat "$run/policy.json" >>"$json"
}

policy_rate() { # POLICY NETWORK
	quiet_wait 5
	timeout --foreground -k 10 $((short + 180)) "$build/loadgen/dsec-loadgen" \
		--instance "$instance" --name "$1-$2-$round" --scenario ready --seconds "$short" \
		--image "$image" --policy "$1" --network "$2" --json "$run/policy.json" ||
		fail "policy $1, network $2"
}

# ---- hostile clients ----

# The tests' own clients, each program with an engine of its own. Claims that wait for timeouts of
# seconds, or fill the engine on purpose so that others are refused, are no company to compare.
hostile_programs=(ring load stream handshake input events)
declare -A hostile_claims=(
	[ring]="a_submission_tail_that_jumps_is_cut a_buffer_tail_that_jumps_is_cut
		a_completion_head_that_lies_delays_its_own_events buffers_posted_late_bring_every_last
		a_client_that_never_reads_is_held_back a_client_that_never_reads_costs_no_time
		any_need_wakeup_is_survived a_doorbell_of_any_mode_neither_blocks_nor_spins
		doorbells_for_nothing_leave_others_served
		rewriting_while_the_engine_reads_gains_nothing
		scribbling_over_the_channel_hurts_only_oneself"
	[load]="a_storm_of_cancels_ends_every_ticket connections_dropped_at_once_leave_nothing
		selections_of_many_ids_keep_no_shard large_payloads_keep_no_shard
		environments_of_many_variables_keep_no_shard"
	[stream]="garbage_is_answered_or_cut a_stream_that_is_never_read_is_held_back
		large_outputs_wait_for_a_slow_reader"
	[handshake]="unsealed_memory_cannot_fault a_flood_after_the_handshake_is_harmless"
	[input]="offsets_and_counts_that_cannot_be_are_invalid"
	[events]="a_flood_of_subscriptions_costs_nobody_anything"
)

hostile_run() {
	local program

	say "hostile clients: a good one's no-ops and execs, alone and beside: $(uname -r), $(nproc) CPUs"
	: >"$run/hostile.json"
	quiet_wait 30
	for program in "${hostile_programs[@]}"; do
		# shellcheck disable=SC2086 # words
		timeout --foreground -k 10 900 \
			"$build/tests/hostile/client/test_hostile_$program" --figures \
			"$run/hostile.json" "$hostile_rounds" ${hostile_claims[$program]} \
			>"$run/hostile.txt" || {
			tail -n 20 "$run/hostile.txt"
			fail "hostile clients, $program"
		}
		grep -E '^[a-z]|  (no-ops|execs) |  callbacks' "$run/hostile.txt" || true
	done
	[[ -z $json ]] || cat "$run/hostile.json" >>"$json"
}

# ---- the end ----

summary() {
	if [[ -s $run/report.json ]]; then
		say "figures"
		python3 "$here/report.py" "$run/report.json" "$run/peers.json"
		python3 "$here/page.py" "$run/report.json" "$run/peers.json" >"$cache/report.html"
		printf '\nas a page: %s\n' "$cache/report.html"
	fi
	say "$((SECONDS - began)) s, ${#failures[@]} failures"
	[[ ${#failures[@]} -eq 0 ]] || {
		printf 'FAILED: %s\n' "${failures[@]}"
		exit 1
	}
}

main "$@"
