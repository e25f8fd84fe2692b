/*
 * Deaths: of launcher workers, of PID 1s, of engines and keepers, under load. Each costs what it
 * must and no more, and nothing is left.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/base/cleanup.h"
#include "tests/root/engine/engine_client.h"
#include "tests/root/engine/engine_harness.h"
#include "tests/root/engine/engine_load.h"

enum { WORKERS = 6, LIVE = 200, KILLS = 200, STOPS = 30, INSIDE_KILLS = 20 };

/* ---- workers ---- */

static void each_killed_worker_costs_at_most_one_request_and_is_replaced(struct engine *e)
{
	struct load load;
	pid_t workers[16];

	if (!load_start(&load, e, 4))
		return;
	for (unsigned i = 0; i < WORKERS; i++) {
		uint64_t done = load_done(&load), lost = holdings_now(e->d).launchers_lost;

		/* The oldest come first, so each of the first ones goes. */
		if (!expect(until(10000, engine_workers(e, workers, 16) == WORKERS)))
			break;
		(void)kill(workers[0], SIGKILL);
		expect(until(10000, load_done(&load) > done + fewer(50, 10)));
		expect(until(10000, holdings_now(e->d).launchers_lost == lost + 1));
	}
	load_end(&load);
	note("%u workers killed, %llu requests, %llu failed", WORKERS,
	     (unsigned long long)load.done, (unsigned long long)load.lost);
	expect(load.lost <= WORKERS);
	expect(load.strange == 0);
	expect(holdings_now(e->d).launchers_lost >= WORKERS);
}

static void a_stopped_worker_is_replaced_and_costs_one_request(struct engine *e)
{
	struct load load;
	pid_t workers[16];
	uint64_t before = holdings_now(e->d).launchers_lost;

	if (!load_start(&load, e, 2))
		return;
	expect(until(5000, load_done(&load) > 20));
	if (expect(until(10000, engine_workers(e, workers, 16) == WORKERS)))
		(void)kill(workers[0], SIGSTOP); /* not reaped: alive */
	double begun_ms = clock_ms();

	expect(until(30000, holdings_now(e->d).launchers_lost == before + 1));
	note("missed after %.0f ms", clock_ms() - begun_ms);
	expect(clock_ms() - begun_ms < (double)longer(30000));
	expect(until(10000, engine_workers(e, workers, 16) == WORKERS));
	load_end(&load);
	expect(load.lost <= 1 && load.strange == 0);
}

static void all_workers_at_once_can_go_and_the_waiting_are_served(struct engine *e)
{
	struct dsec_create_opts opts = create_opts(30);
	pid_t workers[16];
	unsigned count = engine_workers(e, workers, 16);
	int64_t ticket = create_start(e->d, &opts, NULL);

	for (unsigned i = 0; i < count; i++)
		(void)kill(workers[i], SIGKILL); /* as above */
	auto_made struct made made = create_wait(e->d, ticket, 30);

	if (!expect(made.created >= 30 - WORKERS && made.created + made.failed == 30))
		note("%u created, %u failed, %u refused", made.created, made.failed, made.refused);
	expect(sandboxes_end(e->d, made.ids, made.created).code == DSEC_OK);
	expect(until(10000, engine_workers(e, workers, 16) == WORKERS));
}

/* Who is killed. MEMBER: anything in a sandbox, most of them the main processes of execs. */
enum victim { WORKER, INIT, MEMBER, VICTIMS };

static unsigned victims_of(struct engine *e, enum victim kind, pid_t pids[static 256])
{
	switch (kind) {
	case WORKER:
		return engine_workers(e, pids, 256);
	case INIT:
		return engine_inits(e, pids, 256);
	default:
		return engine_members(e, pids, 256);
	}
}

/* It is among those that may be killed now: with its handle held, the pid is this process's. */
static bool is_still(struct engine *e, pid_t pid, enum victim kind)
{
	pid_t pids[256];
	unsigned count = victims_of(e, kind, pids);

	for (unsigned i = 0; i < count; i++)
		if (pids[i] == pid)
			return true;
	return false;
}

static bool is_halted(pid_t pid)
{
	char path[64], name[64], state = 0;
	FILE *file;

	(void)snprintf(path, sizeof path, "/proc/%d/stat", pid);
	file = fopen(path, "re");
	if (!file)
		return false;
	if (fscanf(file, "%*d (%63[^)]) %c", name, &state) != 2)
		state = 0;
	(void)fclose(file); /* was only read */
	return state == 0 || strchr("TZX", state);
}

/* One of that kind gets the signal; false: there was none that it changes. */
static bool victim_signal(struct engine *e, enum victim kind, unsigned chance, int signal)
{
	pid_t pids[256];
	unsigned count = victims_of(e, kind, pids);

	if (!count)
		return false;
	pid_t victim = pids[chance % count];
	auto_close int fd = pidfd_open(victim, 0);

	/* By handle, and looked at again: pids are used again in no time here. */
	return fd >= 0 && is_still(e, victim, kind) && !is_halted(victim) &&
	       pidfd_send_signal(fd, signal, NULL, 0) == 0;
}

static unsigned seed_take(void)
{
	const char *text = getenv("DSEC_TEST_SEED");
	unsigned seed = text ? (unsigned)strtoul(text, NULL, 10) : (unsigned)now_ms();

	note("seed %u", seed);
	return seed;
}

static void random_kills_of_workers_and_pid_1s_leave_nothing(struct engine *e)
{
	const unsigned kills = fewer(KILLS, 25);
	unsigned seed = seed_take(), killed[VICTIMS] = { 0 }, all = 0;
	struct load load;

	if (!load_start(&load, e, 4))
		return;
	while (all < kills) {
		unsigned r = (unsigned)rand_r(&seed);
		enum victim kind = r % 8 == 0 ? WORKER : r % 8 < 5 ? INIT : MEMBER;
		uint64_t ended = load_ended(&load);

		if (!victim_signal(e, kind, r / 8, SIGKILL))
			continue;
		killed[kind]++;
		all++;
		/* Each meets requests in another state. */
		if (!expect(until(10000, load_ended(&load) > ended)))
			break;
	}
	load_end(&load);
	note("%u workers, %u PID 1s, %u others killed; %llu requests, %llu failed, %llu killed",
	     killed[WORKER], killed[INIT], killed[MEMBER], (unsigned long long)load.done,
	     (unsigned long long)load.lost, (unsigned long long)load.killed);
	if (!expect(load.lost <= killed[WORKER]))
		note("%llu lost", (unsigned long long)load.lost);
	expect(load.strange == 0);
	expect(until(20000, list_count(e->d) == 0));
}

static bool workers_are_well(const struct engine *e)
{
	pid_t workers[16];
	unsigned count = engine_workers(e, workers, 16), halted = 0;

	for (unsigned i = 0; i < count; i++)
		halted += is_halted(workers[i]);
	return count == WORKERS && !halted;
}

/* As much at once as takes every worker. */
static void burst_run(struct engine *e)
{
	struct dsec_create_opts opts = create_opts(60);
	auto_made struct made made = create_run(e->d, &opts);

	(void)sandboxes_end(e->d, made.ids, made.created); /* what is left is looked at later */
}

/* Each stop costs what a kill does: a worker is replaced, and who is in a sandbox goes with it. */
static void random_stops_of_workers_and_pid_1s_leave_nothing(struct engine *e)
{
	const unsigned stops = fewer(STOPS, 6);
	uint64_t before = holdings_now(e->d).launchers_lost, lost;
	unsigned seed = seed_take(), stopped[VICTIMS] = { 0 }, all = 0;
	struct load load;

	if (!load_start(&load, e, 4))
		return;
	while (all < stops) {
		unsigned r = (unsigned)rand_r(&seed);
		enum victim kind = r % 3 == 0 ? WORKER : INIT;
		uint64_t ended = load_ended(&load);

		if (!victim_signal(e, kind, r / 3, SIGSTOP))
			continue;
		stopped[kind]++;
		all++;
		if (!expect(until(10000, load_ended(&load) > ended)))
			break;
	}
	load_end(&load);
	/* Those that were asked nothing since were not missed yet: now all are asked. */
	expect(until(20000, (burst_run(e), workers_are_well(e))));
	lost = holdings_now(e->d).launchers_lost - before;
	note("%u workers and %u PID 1s stopped, %llu workers replaced; %llu requests, %llu failed",
	     stopped[WORKER], stopped[INIT], (unsigned long long)lost,
	     (unsigned long long)load.done, (unsigned long long)load.lost);
	expect(load.lost <= stopped[WORKER] && load.late <= stopped[INIT] && load.strange == 0);
	expect(until(20000, list_count(e->d) == 0));
}

/* By a neighbour in the sandbox, whatever it is: the program's end is told as what it was. */
static void main_processes_killed_from_inside_end_as_killed_by_a_signal(struct engine *e)
{
	const struct command victim = SH("echo up; exec sleep 300");
	struct dsec_id id = sandbox_make(e->d);

	for (unsigned i = 0; i < fewer(INSIDE_KILLS, 5); i++) {
		int64_t ticket = command_start(e->d, id, &victim, NULL);

		expect(until(10000, engine_running(e, "sleep") == 1));
		auto_ran struct ran killer = shell_run(e->d, id, "kill -9 $(pidof sleep)");
		auto_ran struct ran ran = command_wait(e->d, ticket);

		expect(ran_exited(&killer, 0));
		if (!expect(ran.status.code == DSEC_OK && ran.result && ran.result->signal == 9))
			ran_note(&ran);
	}
	sandbox_end(e->d, id);
}

/* ---- the engine ---- */

static void a_killed_engine_is_replaced_and_swept_after(struct engine *e)
{
	const unsigned live = fewer(LIVE, 40);
	struct dsec_create_opts opts = create_opts(live);
	const struct command c = SH("setsid sleep 300 & exec sleep 300");
	auto_made struct made made = create_run(e->d, &opts);
	pid_t pid = engine_pid(e), pids[ENGINE_PIDS_MAX];
	int64_t tickets[20];
	double begun_ms;

	expect(made.created == live);
	for (unsigned i = 0; i < 20; i++)
		tickets[i] = command_start(e->d, made.ids[i * live / 20], &c, NULL);
	expect(until(10000, engine_running(e, "sleep") == 40));
	begun_ms = clock_ms();
	(void)kill(pid, SIGKILL); /* the keeper has not reaped it yet */
	for (int i = 0; i < 20; i++) {
		auto_ran struct ran ran = command_wait(e->d, tickets[i]);

		expect(ran.status.code == DSEC_LOST);
	}
	dsec_close(e->d);
	e->d = NULL;
	expect(until(20000, engine_pid(e) && engine_pid(e) != pid));
	e->d = engine_connect(e);
	if (!e->d)
		return;
	/* Who can ask can be sure that the sweep is over. */
	expect(holdings_now(e->d).sandboxes == 0 && list_count(e->d) == 0);
	note("%.0f ms from the kill to an answer of the next engine", clock_ms() - begun_ms);
	expect(engine_members(e, pids, ENGINE_PIDS_MAX) == 0);
	auto_ran struct ran old = shell_run(e->d, made.ids[0], "true");

	expect(old.status.code == DSEC_ABSENT);
	struct dsec_id id = sandbox_make(e->d);
	auto_ran struct ran ran = shell_run(e->d, id, "echo new");

	expect(ran_says(&ran, "new\n"));
	sandbox_end(e->d, id);
}

static void an_engine_killed_while_it_makes_and_ends_is_swept_after(struct engine *e)
{
	for (int i = 0; i < 3; i++) {
		struct load load;
		pid_t pid = engine_pid(e);

		if (!load_start(&load, e, 4))
			return;
		expect(until(10000, load_done(&load) > (unsigned)(30 + i * 17)));
		(void)kill(pid, SIGKILL); /* as above */
		load_end(&load);
		dsec_close(e->d);
		e->d = NULL;
		expect(until(20000, engine_pid(e) && engine_pid(e) != pid));
		e->d = engine_connect(e);
		if (!e->d)
			return;
		engine_expect_idle(e);
	}
}

/* ---- keepers, instances, lifelines ---- */

static const char *const small[] = { "--sandboxes-max", "16", "--shards", "2", NULL };

static void a_killed_keeper_takes_its_engine_along_and_the_next_cleans_up(struct engine *e)
{
	struct engine_options options = { .arguments = small, .instance = e->instance };
	auto_free struct engine *next = calloc(1, sizeof *next);
	struct dsec_id id = sandbox_make(e->d);
	const struct command c = SH("setsid sleep 300 & exec sleep 300");
	int64_t ticket = command_start(e->d, id, &c, NULL);
	pid_t pids[8];

	expect(until(5000, engine_running(e, "sleep") == 2));
	(void)kill(e->keeper, SIGKILL); /* our child */
	auto_ran struct ran ran = command_wait(e->d, ticket);

	expect(ran.status.code == DSEC_LOST || (ran.result && ran.result->reason == DSEC_KILLED));
	dsec_close(e->d);
	e->d = NULL;
	expect(engine_wait(e, 10000) == SIGKILL);
	/* The engine is ours now; it gives everything back and ends. */
	expect(until(20000, engine_members(e, pids, 8) == 0));
	expect(until(20000, waitpid(e->first_pid, NULL, WNOHANG) == e->first_pid));
	if (engine_start(next, &options)) {
		struct dsec_id other = sandbox_make(next->d);

		sandbox_end(next->d, other);
		engine_expect_idle(next);
		engine_end(next);
	}
	engine_expect_gone(e);
}

static void a_keeper_and_engine_killed_at_once_are_cleaned_up_by_the_next(struct engine *e)
{
	struct engine_options options = { .arguments = small };
	auto_free struct engine *first = calloc(1, sizeof *first);
	auto_free struct engine *next = calloc(1, sizeof *next);
	const struct command c = SH("setsid sleep 300 & exec sleep 300");
	pid_t pids[64], engine;
	struct stat info;

	(void)e; /* its keeper is gone by now; this one starts its own */
	if (!engine_start(first, &options))
		return;
	struct dsec_create_opts opts = create_opts(10);
	auto_made struct made made = create_run(first->d, &opts);

	(void)command_start(first->d, made.ids[0], &c, NULL);
	expect(made.created == 10 && until(5000, engine_running(first, "sleep") == 2));
	engine = engine_pid(first);
	(void)kill(first->keeper, SIGSTOP); /* so that it starts no other; our child */
	(void)kill(engine, SIGKILL);	    /* not reaped by it */
	(void)kill(first->keeper, SIGKILL);
	dsec_close(first->d);
	first->d = NULL;
	expect(engine_wait(first, 10000) == SIGKILL);
	expect(until(10000, waitpid(engine, NULL, WNOHANG) == engine));
	/* What ran runs on, with us as its parent, until the next start. */
	expect(engine_members(first, pids, 64) >= 10);
	expect(stat(first->cgroup, &info) == 0);
	options.instance = first->instance;
	if (engine_start(next, &options)) {
		expect(engine_members(next, pids, 64) == 0);
		engine_end(next);
	}
	engine_expect_gone(first);
}

static void one_of_two_instances_dies_alone(struct engine *e)
{
	struct engine_options options = { .arguments = small };
	auto_free struct engine *a = calloc(1, sizeof *a), *b = calloc(1, sizeof *b);
	struct dsec_id in_a, in_b;
	pid_t pids[8];

	(void)e;
	if (!engine_start(a, &options))
		return;
	if (!engine_start(b, &options)) {
		engine_end(a);
		return;
	}
	in_a = sandbox_make(a->d);
	in_b = sandbox_make(b->d);
	/* Each knows its own only. */
	auto_ran struct ran foreign = shell_run(a->d, in_b, "true");

	expect(foreign.status.code == DSEC_ABSENT && list_count(a->d) == 1);
	(void)kill(engine_pid(a), SIGKILL); /* not reaped by its keeper yet */
	auto_ran struct ran ran = shell_run(b->d, in_b, "echo alive");

	expect(ran_says(&ran, "alive\n"));
	dsec_close(a->d);
	a->d = NULL;
	expect(until(20000, engine_pid(a) && engine_members(a, pids, 8) == 0));
	a->d = engine_connect(a); /* it is ready */
	auto_ran struct ran again = shell_run(b->d, in_b, "echo alive");

	expect(ran_says(&again, "alive\n") && engine_members(b, pids, 8) == 1);
	engine_end(a);
	auto_ran struct ran last = shell_run(b->d, in_b, "echo alive");

	expect(ran_says(&last, "alive\n"));
	(void)in_a; /* went with its engine */
	engine_end(b);
}

static void the_end_of_a_lifeline_ends_everything(struct engine *e)
{
	struct engine_options options = { .arguments = small, .has_lifeline = true };
	auto_free struct engine *own = calloc(1, sizeof *own);
	struct dsec_create_opts opts = create_opts(8);
	const struct command c = SH("setsid sleep 300 & exec sleep 300");
	int status;

	(void)e;
	if (!engine_start(own, &options))
		return;
	auto_made struct made made = create_run(own->d, &opts);

	expect(made.created == 8);
	int64_t ticket = command_start(own->d, made.ids[0], &c, NULL);

	expect(until(5000, engine_running(own, "sleep") == 2));
	cleanup_close(&own->lifeline);
	own->lifeline = -1;
	auto_ran struct ran ran = command_wait(own->d, ticket);

	expect(ran.status.code == DSEC_LOST || (ran.result && ran.result->reason == DSEC_KILLED));
	dsec_close(own->d);
	own->d = NULL;
	status = engine_wait(own, 20000);
	expect(status != -1 && WIFEXITED(status) && WEXITSTATUS(status) == 0);
	expect(engine_log_has(own, "stopped, nothing is left"));
	engine_expect_gone(own);
}

static void a_stop_under_load_ends_cleanly(struct engine *e)
{
	struct engine_options options = { .arguments = small };
	auto_free struct engine *own = calloc(1, sizeof *own);

	(void)e;
	for (unsigned i = 0; i < fewer(5, 2); i++) {
		struct load load;

		if (!engine_start(own, &options))
			return;
		if (load_start(&load, own, 3)) {
			expect(until(10000, load_done(&load) > 10 + i * 7));
			engine_end(own);
			load_end(&load);
		} else {
			engine_end(own);
		}
	}
}

static const struct claim workers[] = {
	CLAIM(each_killed_worker_costs_at_most_one_request_and_is_replaced),
	CLAIM(a_stopped_worker_is_replaced_and_costs_one_request),
	CLAIM(all_workers_at_once_can_go_and_the_waiting_are_served),
	CLAIM(random_kills_of_workers_and_pid_1s_leave_nothing),
	CLAIM(random_stops_of_workers_and_pid_1s_leave_nothing),
	CLAIM(main_processes_killed_from_inside_end_as_killed_by_a_signal),
};
/* Without death events a lost worker's child is nobody's, and its sandbox cannot end. */
static const struct claim workers_without[] = {
	CLAIM(all_workers_at_once_can_go_and_the_waiting_are_served),
};
static const struct claim engines[] = {
	CLAIM(a_killed_engine_is_replaced_and_swept_after),
	CLAIM(an_engine_killed_while_it_makes_and_ends_is_swept_after),
};
static const struct claim keepers[] = {
	CLAIM(a_killed_keeper_takes_its_engine_along_and_the_next_cleans_up),
	CLAIM(a_keeper_and_engine_killed_at_once_are_cleaned_up_by_the_next),
	CLAIM(one_of_two_instances_dies_alone),
	CLAIM(the_end_of_a_lifeline_ends_everything),
	CLAIM(a_stop_under_load_ends_cleanly),
};

static const char *const large[] = { "--sandboxes-max", "256", "--shards", "2", NULL };
static const struct suite suites[] = {
	SUITE("workers", workers, .arguments = large),
	SUITE("workers without BPF", workers_without, .arguments = large, .has_no_bpf = true),
	SUITE("engines", engines, .arguments = large, .is_hurt = true),
	SUITE("keepers", keepers, .arguments = small, .is_hurt = true),
};

int main(int argc, char **argv)
{
	return suites_main(argc, argv, suites, sizeof suites / sizeof *suites);
}
