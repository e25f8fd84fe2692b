/*
 * The governor: who makes processes too fast is held back, is told so, and keeps nobody waiting,
 * himself not either; shards are there at once unless they are busy; who makes many is left alone;
 * who computes long leaves a CPU to others that begin something; a fork bomb ends; what was frozen
 * when an engine died is gone.
 */
#include <errno.h>
#include <glob.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/base/cleanup.h"
#include "tests/root/engine/engine_client.h"
#include "tests/root/engine/engine_harness.h"

enum { SLOW_PER_S = 50, TIMES = 3, HONEST = 4000, PIDS_MAX = 16, FEW = 32 };

static const char storm[] = "while :; do (:); done & while :; do (:); done";

static bool is_governed(struct engine *e)
{
	const struct dsec_caps *caps;

	if (!expect(dsec_capabilities(e->d, &caps) == 0))
		return false;
	if (caps->unenforced & DSEC_LIMIT_PROCESSES)
		note("left out: no governor here");
	return !(caps->unenforced & DSEC_LIMIT_PROCESSES);
}

static struct dsec_id sandbox_of(struct engine *e, uint32_t per_s, const char *policy)
{
	struct dsec_create_opts opts = create_opts(1);
	struct dsec_id none = { 0 };

	opts.processes_per_s = per_s;
	opts.policy = policy;
	auto_made struct made made = create_run(e->d, &opts);

	return expect(made.created == 1) ? made.ids[0] : none;
}

static struct dsec_usage usage_now(struct dsec *d, struct dsec_id id)
{
	struct dsec_select select = { .size = sizeof select, .count = 1, .ids = &id };
	struct dsec_usage usage = { 0 };
	struct dsec_event *event;
	int64_t ticket = dsec_stats(d, NULL, &select);
	bool last = false;

	while (!last && dsec_wait(d, ticket, (int)longer(20000), &event) == 0) {
		last = event->flags & DSEC_LAST;
		if (event->kind == DSEC_EV_ROW && event->body)
			usage = *(const struct dsec_usage *)event->body;
		dsec_event_free(event);
	}
	expect(last);
	return usage;
}

static uint32_t taint_of(struct dsec *d, struct dsec_id id)
{
	struct dsec_event *event;
	uint32_t tainted = 0;

	if (!expect(dsec_wait(d, dsec_inspect(d, NULL, id), -1, &event) == 0))
		return 0;
	if (expect(event->body))
		tainted = ((const struct dsec_inspected *)event->body)->tainted;
	dsec_event_free(event);
	return tainted;
}

/* In a sandbox that is held back now, and so is its storm's ticket. */
static int64_t storm_begin(struct engine *e, struct dsec_id id)
{
	struct command c = SH(storm);
	int64_t ticket;

	c.timeout_ms = (uint32_t)longer(60000);
	ticket = command_start(e->d, id, &c, NULL);
	if (!expect(until(20000, usage_now(e->d, id).throttles >= TIMES)))
		note("%llu times", (unsigned long long)usage_now(e->d, id).throttles);
	return ticket;
}

static void works(struct engine *e, struct dsec_id id, const char *whose)
{
	auto_ran struct ran ran = shell_run(e->d, id, "echo well");

	if (!expect(ran_says(&ran, "well\n")) || !expect(ran.ms < (double)held_up_ms()))
		ran_note(&ran);
	note("%s: %.1f ms", whose, ran.ms);
}

static void file_works(struct engine *e, struct dsec_id id)
{
	struct dsec_file_opts opts = { .size = sizeof opts,
				       .verb = DSEC_FILE_WRITE,
				       .path = { "/tmp/note", 9 },
				       .input = { "well", 4 } };
	double begun_ms = clock_ms();

	expect(ticket_end(e->d, dsec_write(e->d, NULL, id, &opts)).code == DSEC_OK);
	expect(clock_ms() - begun_ms < (double)held_up_ms());
}

/* Whether this topic of the sandbox came, after those before. */
static bool is_told(struct engine *e, int64_t ticket, struct dsec_id id, uint32_t topic)
{
	uint64_t end_ms = now_ms() + longer(20000);
	struct dsec_event *event = NULL;
	bool found = false;

	while (!found && now_ms() < end_ms && dsec_wait(e->d, ticket, 1000, &event) != -ENOENT) {
		const struct dsec_news *news = event ? event->body : NULL;

		if (event && event->kind == DSEC_EV_STATE && news)
			found = news->topic == topic && news->sandbox.lo == id.lo;
		dsec_event_free(event);
		event = NULL;
	}
	return found;
}

static void a_storm_is_held_back_and_told_of_and_nobody_waits(struct engine *e)
{
	struct dsec_subscribe_opts opts = { .size = sizeof opts,
					    .topics = 1ull << DSEC_TOPIC_THROTTLED |
						      1ull << DSEC_TOPIC_UNTHROTTLED |
						      1ull << DSEC_TOPIC_ANOMALY };
	struct dsec_id neighbour, id;
	struct dsec_usage usage;
	int64_t news, ticket;
	double begun_ms;

	if (!is_governed(e))
		return;
	expect(policy_load(e->d,
			   "name: wary\n"
			   "anomalies: { storm: { limit: 2, severity: taint } }\n") == DSEC_OK);
	neighbour = sandbox_make(e->d);
	id = sandbox_of(e, SLOW_PER_S, "wary");
	news = dsec_subscribe(e->d, NULL, &opts);
	ticket = storm_begin(e, id);
	expect(is_told(e, news, id, DSEC_TOPIC_THROTTLED));
	expect(is_told(e, news, id, DSEC_TOPIC_ANOMALY));
	expect(taint_of(e->d, id) == 1u << DSEC_ANOMALY_STORM && !taint_of(e->d, neighbour));
	works(e, neighbour, "its neighbour");
	works(e, id, "an exec beside it");
	file_works(e, id);
	usage = usage_now(e->d, id);
	expect(usage.throttled_us >= TIMES * 64000ull);
	expect(!usage_now(e->d, neighbour).throttles);
	/* The first exec of the sandbox; frozen or not, it can be killed. */
	expect(ticket_end(e->d, dsec_signal(e->d, NULL, id, 1, SIGKILL | DSEC_SIGNAL_ALL)).code ==
	       DSEC_OK);
	(void)ticket_end(e->d, ticket);
	expect(is_told(e, news, id, DSEC_TOPIC_UNTHROTTLED));
	works(e, id, "an exec after it");
	expect(dsec_cancel(e->d, news) == 0);
	(void)ticket_end(e->d, news);

	/* Again, and away with it while it is frozen or about to be. */
	ticket = storm_begin(e, id);
	begun_ms = clock_ms();
	sandbox_end(e->d, id);
	expect(clock_ms() - begun_ms < (double)held_up_ms());
	note("ended in %.0f ms", clock_ms() - begun_ms);
	(void)ticket_end(e->d, ticket);
	for (int i = 0; i < 4; i++) {
		id = sandbox_make(e->d); /* one of them has its slot */
		works(e, id, "the slot's next");
		sandbox_end(e->d, id);
	}
	sandbox_end(e->d, neighbour);
	policies_remove(e->d, (const char *const[]){ "wary", NULL });
}

static void who_makes_many_is_left_alone(struct engine *e)
{
	static const char many[] = "i=0; while [ $i -lt 40 ]; do j=0; while [ $j -lt 100 ]; do "
				   "(:); j=$((j+1)); done; i=$((i+1)); sleep 0.02; done; echo $i";
	struct dsec_id id, unlimited;
	struct dsec_usage usage;

	if (!is_governed(e))
		return;
	id = sandbox_of(e, 0, NULL);
	unlimited = sandbox_of(e, DSEC_PROCESSES_UNLIMITED, NULL);
	auto_ran struct ran ran = shell_run(e->d, id, many);

	if (!expect(ran_says(&ran, "40\n")))
		ran_note(&ran);
	usage = usage_now(e->d, id);
	note("%d processes in %.0f ms", HONEST, ran.ms);
	expect(!usage.throttles && !usage.throttled_us);
	auto_ran struct ran free_ran = shell_run(
		e->d, unlimited, "i=0; while [ $i -lt 4000 ]; do (:); i=$((i+1)); done; echo $i");

	expect(ran_says(&free_ran, "4000\n"));
	expect(!usage_now(e->d, unlimited).throttles);
	sandbox_end(e->d, unlimited);
	sandbox_end(e->d, id);
}

static int cpus_of(pid_t pid)
{
	cpu_set_t mask;

	return sched_getaffinity(pid, sizeof mask, &mask) < 0 ? 0 : CPU_COUNT(&mask);
}

/* How many of this name are kept off a CPU, or are not. */
static unsigned yielding(const struct engine *e, const char *name, bool yields)
{
	pid_t pids[PIDS_MAX];
	unsigned count = engine_named(e, name, pids, PIDS_MAX), found = 0;

	for (unsigned i = 0; i < count; i++)
		found += (cpus_of(pids[i]) < cpus_of(0)) == yields;
	return found;
}

static void all_signal(const struct engine *e, const char *name, int signal)
{
	pid_t pids[PIDS_MAX];
	unsigned count = engine_named(e, name, pids, PIDS_MAX);

	for (unsigned i = 0; i < count; i++)
		expect(kill(pids[i], signal) == 0);
}

/* A moment later, in which the neighbour, if there is one, ran something; false: no more time. */
static bool goes_on(struct engine *e, const struct dsec_id *neighbour, uint64_t give_up_ms)
{
	if (now_ms() > give_up_ms)
		return false;
	if (neighbour) {
		auto_ran struct ran ran = shell_run(e->d, *neighbour, "echo well");

		expect(ran_says(&ran, "well\n"));
	}
	(void)usleep(20000); /* waking early only costs a look */
	return true;
}

/* Whether so many do, while the neighbour runs something again and again, or does not. */
static bool become(struct engine *e, const struct dsec_id *neighbour, bool yields, unsigned count)
{
	const uint64_t give_up_ms = now_ms() + longer(20000);

	while (yielding(e, "sh", yields) != count) {
		if (!goes_on(e, neighbour, give_up_ms))
			return false;
	}
	return true;
}

/* How many of the engine's workers are kept off a CPU. */
static unsigned workers_moved(const struct engine *e)
{
	const pid_t engine = engine_pid(e);
	unsigned count = 0;
	glob_t found;

	if (glob("/proc/[0-9]*/stat", 0, NULL, &found) != 0)
		return 0;
	for (size_t i = 0; i < found.gl_pathc; i++) {
		FILE *file = fopen(found.gl_pathv[i], "re");
		int pid, parent;

		if (!file)
			continue; /* it has ended */
		if (fscanf(file, "%d (dsec-launch-%*[^)]) %*c %d", &pid, &parent) == 2 &&
		    parent == engine)
			count += cpus_of(pid) < cpus_of(0);
		(void)fclose(file); /* was only read */
	}
	globfree(&found);
	return count;
}

/* A worker is moved while it is idle: as many as there are is a matter of moments. */
static bool workers_become(struct engine *e, const struct dsec_id *neighbour, bool moved)
{
	const uint64_t give_up_ms = now_ms() + longer(20000);

	while ((workers_moved(e) > 0) != moved) {
		if (!goes_on(e, neighbour, give_up_ms))
			return false;
	}
	return true;
}

/* Of what a worker starts that was moved: PID 1 from its start, a program within a moment. */
static void all_cpus_are_its_own(struct engine *e, struct dsec_id neighbour)
{
	const struct dsec_id anew = sandbox_make(e->d);
	char program[160];

	(void)snprintf(program, sizeof program,
		       "i=0; until [ $(busybox nproc) = %d ]; do [ $i -lt 100 ] || exit 1; "
		       "i=$((i+1)); sleep 0.1; done",
		       cpus_of(0));
	for (int i = 0; i < 8; i++) { /* each worker's turn comes */
		auto_ran struct ran ran = shell_run(e->d, i % 2 ? anew : neighbour, program);

		if (!expect(ran.result && ran.result->exit_code == 0))
			ran_note(&ran);
	}
	auto_ran struct ran init = shell_run(
		e->d, anew,
		"sleep 0.2; [ $(busybox awk '/^Cpus_allowed:/ {print $2}' /proc/1/status) ="
		" $(busybox awk '/^Cpus_allowed:/ {print $2}' /proc/self/status) ]");

	if (!expect(init.result && init.result->exit_code == 0))
		ran_note(&init);
	sandbox_end(e->d, anew);
}

/* Once what others began before is a second old: programs of one's own are no reason to yield. */
static void nobody_yields_to_what_its_own_sandbox_begins(struct engine *e)
{
	struct command hog = SH("while :; do :; done");
	struct dsec_id id;
	int64_t ticket;

	if (!is_governed(e))
		return;
	id = sandbox_of(e, DSEC_PROCESSES_UNLIMITED, NULL);
	ticket = command_start(e->d, id, &hog, NULL);
	for (int i = 0; i < 40; i++) {
		auto_ran struct ran ran = shell_run(e->d, id, "echo well");

		expect(ran_says(&ran, "well\n"));
		(void)usleep(50000); /* two seconds, or more */
		if (i > 30)
			expect(yielding(e, "sh", true) == 0 && workers_moved(e) == 0);
	}
	sandbox_end(e->d, id);
	(void)ticket_end(e->d, ticket);
}

/* Three shells that compute, one of them in a session of its own, and one that is born later. */
static void who_computes_long_leaves_a_cpu_to_others_that_begin(struct engine *e)
{
	struct command hog = SH("yes='while :; do :; done'; setsid sh -c \"$yes\" & "
				"(sleep 1; exec sh -c \"$yes\") & while :; do :; done");
	struct dsec_id id, neighbour;
	int64_t ticket;

	if (!is_governed(e))
		return;
	if (cpus_of(0) < 2) {
		note("left out: there is one CPU");
		return;
	}
	neighbour = sandbox_make(e->d);
	id = sandbox_of(e, DSEC_PROCESSES_UNLIMITED, NULL);
	ticket = command_start(e->d, id, &hog, NULL);
	expect(become(e, &neighbour, true, 3));
	expect(workers_become(e, &neighbour, true)); /* and so does the engine */
	all_cpus_are_its_own(e, neighbour);
	expect(become(e, NULL, false, 3)); /* nobody else wants anything */
	expect(workers_become(e, NULL, false));
	expect(become(e, &neighbour, true, 3));
	all_signal(e, "sh", SIGSTOP);
	expect(become(e, &neighbour, false, 3)); /* they rest */
	all_signal(e, "sh", SIGCONT);
	expect(become(e, &neighbour, true, 3));

	/* What runs there next is another, and is left alone. */
	expect(ticket_end(e->d, dsec_signal(e->d, NULL, id, 1, SIGKILL | DSEC_SIGNAL_ALL)).code ==
	       DSEC_OK);
	(void)ticket_end(e->d, ticket);
	works(e, id, "an exec after it");
	sandbox_end(e->d, id);
	sandbox_end(e->d, neighbour);
}

/* Its mask is its own to set; it may make as many processes as it likes, so that is not why. */
static void who_takes_its_cpu_back_each_time_is_held_back(struct engine *e)
{
	struct command taker =
		SH("while :; do busybox taskset -p ffff $$ >/tmp/told || exit; done");
	struct dsec_id id, neighbour;
	uint64_t give_up_ms;
	int64_t ticket;

	if (!is_governed(e))
		return;
	if (cpus_of(0) < 2 || cpus_of(0) > 16) {
		note("left out: it sets sixteen CPUs, and there are %d", cpus_of(0));
		return;
	}
	neighbour = sandbox_make(e->d);
	id = sandbox_of(e, DSEC_PROCESSES_UNLIMITED, NULL);
	ticket = command_start(e->d, id, &taker, NULL);
	give_up_ms = now_ms() + longer(20000);
	while (usage_now(e->d, id).throttles < 2 && now_ms() < give_up_ms) {
		auto_ran struct ran ran = shell_run(e->d, neighbour, "echo well");

		expect(ran_says(&ran, "well\n"));
	}
	expect(usage_now(e->d, id).throttles >= 2 && !usage_now(e->d, neighbour).throttles);
	expect(ticket_end(e->d, dsec_signal(e->d, NULL, id, 1, SIGKILL | DSEC_SIGNAL_ALL)).code ==
	       DSEC_OK);
	(void)ticket_end(e->d, ticket);
	sandbox_end(e->d, id);
	sandbox_end(e->d, neighbour);
}

/* How many shards are realtime threads; *ret_count: of so many. */
static unsigned shards_realtime(const struct engine *e, unsigned *ret_count)
{
	char pattern[64], name[32];
	unsigned found = 0;
	glob_t threads;

	*ret_count = 0;
	(void)snprintf(pattern, sizeof pattern, "/proc/%d/task/*/comm", engine_pid(e));
	if (glob(pattern, 0, NULL, &threads) != 0)
		return 0;
	for (size_t i = 0; i < threads.gl_pathc; i++) {
		const char *tid = strstr(threads.gl_pathv[i], "/task/") + strlen("/task/");
		FILE *file = fopen(threads.gl_pathv[i], "re");

		if (file && fgets(name, sizeof name, file) && !strncmp(name, "shard-", 6)) {
			++*ret_count;
			found += (sched_getscheduler(atoi(tid)) & ~SCHED_RESET_ON_FORK) == SCHED_RR;
		}
		if (file)
			(void)fclose(file); /* was only read */
	}
	globfree(&threads);
	return found;
}

static bool may_be_realtime(void)
{
	const struct sched_param first = { .sched_priority = 1 }, none = { 0 };

	if (sched_setscheduler(0, SCHED_RR, &first) < 0)
		return false;
	return expect(sched_setscheduler(0, SCHED_OTHER, &none) == 0);
}

/* Here a hundredth of a CPU is much; nothing is asked of it while it rests. */
static void shards_are_realtime_until_they_are_busy(struct engine *e)
{
	const uint64_t give_up_ms = now_ms() + longer(20000);
	unsigned count;

	if (!may_be_realtime()) {
		note("left out: no realtime threads here");
		return;
	}
	expect(until(20000, shards_realtime(e, &count) == 2 && count == 2));
	while (shards_realtime(e, &count) == 2 && now_ms() < give_up_ms)
		for (int i = 0; i < 200; i++)
			expect(ticket_end(e->d, dsec_check(e->d, NULL)).code == DSEC_OK);
	expect(shards_realtime(e, &count) < 2);
	expect(until(20000, shards_realtime(e, &count) == 2));
}

/* Of a limit that a bomb is at soon. Its rate does not matter: it makes none any more. */
static struct dsec_id sandbox_of_few(struct engine *e)
{
	struct dsec_create_opts opts = create_opts(1);
	struct dsec_id none = { 0 };

	opts.processes_per_s = DSEC_PROCESSES_UNLIMITED;
	opts.pids_max = FEW;
	auto_made struct made made = create_run(e->d, &opts);

	return expect(made.created == 1) ? made.ids[0] : none;
}

/* One that its exec waits for, and one that an exec left behind: that one has no end to tell. */
static void a_fork_bomb_ends_by_its_own_reason_and_so_does_one_left_behind(struct engine *e)
{
	const struct command bomb = { .argv = { "/bin/probe_sched", "bomb" },
				      .timeout_ms = (uint32_t)longer(60000) };
	struct dsec_id id, other;
	pid_t pids[2 * FEW];
	int64_t ticket;

	if (!is_governed(e))
		return;
	if (cpus_of(0) < 2) {
		note("left out: there is one CPU");
		return;
	}
	id = sandbox_of_few(e);
	other = sandbox_of_few(e);
	ticket = command_start(e->d, id, &bomb, NULL);
	auto_ran struct ran leaver = shell_run(e->d, other, "/bin/probe_sched bomb & echo left");

	expect(ran_says(&leaver, "left\n"));
	expect(until(20000, engine_named(e, "probe_sched", pids, 2 * FEW) > FEW));
	auto_ran struct ran ran = command_wait(e->d, ticket);

	if (!expect(ran.status.code == DSEC_OK && ran.result &&
		    ran.result->reason == DSEC_FORK_BOMB && ran.result->signal == SIGKILL &&
		    ran.result->processes_killed > FEW / 2))
		ran_note(&ran);
	expect(until(20000, engine_named(e, "probe_sched", pids, 2 * FEW) == 0));
	works(e, id, "its sandbox");
	works(e, other, "the other's sandbox");
	sandbox_end(e->d, id);
	sandbox_end(e->d, other);
}

/* How many leaves are to be frozen, whoever is in them. */
static unsigned frozen_count(const struct engine *e)
{
	char pattern[256], state = 0;
	unsigned count = 0;
	glob_t found;

	(void)snprintf(pattern, sizeof pattern, "%s/s*/b*/e*/cgroup.freeze", e->cgroup);
	if (glob(pattern, 0, NULL, &found) != 0)
		return 0;
	for (size_t i = 0; i < found.gl_pathc; i++) {
		FILE *file = fopen(found.gl_pathv[i], "re");

		if (!file)
			continue;
		count += fread(&state, 1, 1, file) == 1 && state == '1';
		(void)fclose(file); /* was only read */
	}
	globfree(&found);
	return count;
}

static void an_engine_that_dies_leaves_nobody_frozen(struct engine *e)
{
	pid_t before = engine_pid(e);
	struct dsec_id id;

	if (!is_governed(e))
		return;
	id = sandbox_of(e, SLOW_PER_S, NULL);
	(void)storm_begin(e, id); /* it ends with the engine */
	expect(until(20000, frozen_count(e) > 0));
	(void)kill(before, SIGKILL); /* the keeper's child, not reaped yet */
	expect(until(30000, engine_pid(e) > 0 && engine_pid(e) != before));
	expect(until(30000, frozen_count(e) == 0 && engine_members(e, NULL, 0) == 0));
	/* Over a connection of its own: the suite's was the dead one's. */
	struct dsec *d = engine_connect(e);

	if (!d)
		return;
	id = sandbox_make(d);
	auto_ran struct ran ran = shell_run(d, id, "echo well");

	expect(ran_says(&ran, "well\n"));
	sandbox_end(d, id);
	dsec_close(d);
}

static const struct claim claims[] = {
	CLAIM(shards_are_realtime_until_they_are_busy),
	CLAIM(a_storm_is_held_back_and_told_of_and_nobody_waits),
	CLAIM(who_makes_many_is_left_alone),
	CLAIM(nobody_yields_to_what_its_own_sandbox_begins),
	CLAIM(who_computes_long_leaves_a_cpu_to_others_that_begin),
	CLAIM(who_takes_its_cpu_back_each_time_is_held_back),
	CLAIM(a_fork_bomb_ends_by_its_own_reason_and_so_does_one_left_behind),
};
static const struct claim hurting[] = { CLAIM(an_engine_that_dies_leaves_nobody_frozen) };
static const char *const arguments[] = {
	"--sandboxes-max", "16", "--shards", "2", "--realtime", "1", "--fork-bomb", "1", NULL
};
static const struct suite suites[] = {
	SUITE("governor", claims, .arguments = arguments),
	SUITE("governor-dies", hurting, .arguments = arguments, .is_hurt = true),
};

int main(int argc, char **argv)
{
	return suites_main(argc, argv, suites, sizeof suites / sizeof *suites);
}
