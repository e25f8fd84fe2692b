/*
 * Claims about the guard's stream of deaths, with real processes in a cgroup tree of its own. The
 * test process is the engine. That nothing was told is always shown by a later death which is.
 */
#include <errno.h>
#include <linux/sched.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "bpf/guard.h"
#include "tests/root/guard/tree.h"

enum { TOLD_MAX = 32768, PATIENCE_MS = 30000 };

static struct tree tree;
static struct guard *guard;
static struct guard_exits *exits[2];
static struct guard_death told[TOLD_MAX];
static int told_count;

static void guard_start(uint32_t ring_bytes, uint32_t spill_deaths_max)
{
	struct guard_options options = tree_options(&tree);
	char why[4096];

	options.ring_bytes = ring_bytes;
	options.spill_deaths_max = spill_deaths_max;
	cr_assert_eq(guard_open(&options, why, sizeof(why), &guard), 0);
	cr_assert(guard_capabilities(guard) & GUARD_EXIT_EVENTS, "%s", why);
	for (uint32_t i = 0; i < 2; i++)
		cr_assert_eq(guard_exits_open(guard, i, &exits[i]), 0);
}

static void setup(void)
{
	tree_make(&tree);
}

static void teardown(void)
{
	guard_exits_close(exits[0]);
	guard_exits_close(exits[1]);
	guard_close(guard);
	tree_remove(&tree);
}

TestSuite(deaths, .init = setup, .fini = teardown, .timeout = 240);

static void death_note(void *context, const struct guard_death *death)
{
	(void)context;
	if (told_count < TOLD_MAX)
		told[told_count] = *death;
	told_count++;
}

/* Collects until that many were told in all; false when none came for PATIENCE_MS. */
static bool deaths_await(uint32_t shard, int count)
{
	struct pollfd ready = { .fd = guard_exits_fd(exits[shard]), .events = POLLIN };
	int r;

	for (;;) {
		do
			r = guard_exits_consume(exits[shard], 100, death_note, NULL);
		while (r == 100);
		cr_assert_geq(r, 0, "consume: %s", strerror(-r));
		if (told_count >= count)
			return true;
		if (poll(&ready, 1, PATIENCE_MS) == 0)
			return false;
	}
}

static pid_t child_exit(enum tree_place place, uint64_t flags, int code)
{
	pid_t pid = tree_fork(&tree, place, flags);

	if (pid == 0)
		_exit(code);
	cr_assert(pid > 0);
	return pid;
}

/* Ends a test of silence: this one death, and nothing before it. */
static void only_marker_told(void)
{
	pid_t pid = child_exit(TREE_SLOT0, 0, 77);

	child_reap(pid);
	cr_assert(deaths_await(0, 1));
	cr_expect_eq(told_count, 1);
	cr_expect_eq(told[0].pid, pid);
	cr_expect_eq(told[0].code, 77 << 8);
	cr_expect_eq(guard_exits_consume(exits[1], 100, death_note, NULL), 0);
}

static void *thread_exit_group(void *unused)
{
	_exit(33);
	return unused;
}

static void *thread_exit_alone(void *unused)
{
	char line[256] = "";

	/* Not before the leader, whose state this is, is a zombie. */
	while (!strstr(line, ") Z ")) {
		FILE *file = fopen("/proc/self/stat", "re");

		if (!file || !fgets(line, sizeof(line), file))
			_exit(97);
		fclose(file);
	}
	syscall(SYS_exit, 44);
	return unused;
}

static void *thread_exec(void *unused)
{
	execl("/bin/sh", "sh", "-c", "exit 55", NULL);
	_exit(98);
	return unused;
}

static void *thread_pause(void *unused)
{
	pause();
	return unused;
}

enum way {
	EXIT_0,
	EXIT_7,
	KILLED,
	TERMINATED,
	SEGMENT,
	THREAD,
	LEADER_FIRST,
	EXEC,
	KILLED_THREADS
};

static const char *const ways[] = {
	[EXIT_0] = "exit 0",
	[EXIT_7] = "exit 7",
	[KILLED] = "SIGKILL",
	[TERMINATED] = "SIGTERM",
	[SEGMENT] = "SIGSEGV",
	[THREAD] = "exit from a thread",
	[LEADER_FIRST] = "the leader goes first",
	[EXEC] = "exec from a thread",
	[KILLED_THREADS] = "SIGKILL with threads",
};

static void die(enum way way, int ready_fd)
{
	const struct rlimit none = { 0, 0 };
	pthread_t thread;

	setrlimit(RLIMIT_CORE, &none);
	signal(SIGTERM, SIG_DFL);
	signal(SIGSEGV, SIG_DFL);
	if (way == KILLED_THREADS)
		pthread_create(&thread, NULL, thread_pause, NULL);
	(void)!write(ready_fd, "r", 1);
	if (way == EXIT_0 || way == EXIT_7)
		_exit(way == EXIT_0 ? 0 : 7);
	if (way == SEGMENT)
		raise(SIGSEGV);
	if (way == THREAD)
		pthread_create(&thread, NULL, thread_exit_group, NULL);
	if (way == EXEC)
		pthread_create(&thread, NULL, thread_exec, NULL);
	if (way == LEADER_FIRST) {
		pthread_create(&thread, NULL, thread_exit_alone, NULL);
		syscall(SYS_exit, 12);
	}
	pause();
	_exit(99);
}

static void death_check(enum way way, enum tree_place place, uint64_t flags)
{
	int status, ready[2];
	char byte;
	pid_t pid;

	cr_assert_eq(pipe(ready), 0);
	pid = tree_fork(&tree, place, flags);
	if (pid == 0)
		die(way, ready[1]);
	cr_assert(pid > 0);
	cr_assert_eq(read(ready[0], &byte, 1), 1);
	if (way == KILLED || way == KILLED_THREADS)
		kill(pid, SIGKILL);
	if (way == TERMINATED)
		kill(pid, SIGTERM);
	status = child_reap(pid);
	close(ready[0]);
	close(ready[1]);

	told_count = 0;
	cr_assert(deaths_await(0, 1), "%s: not told", ways[way]);
	cr_expect_eq(told_count, 1, "%s: told %d times", ways[way], told_count);
	cr_expect_eq(told[0].pid, pid, "%s: pid", ways[way]);
	cr_expect_eq(told[0].cgroup_id, tree.ids[TREE_SLOT0], "%s: cgroup", ways[way]);
	cr_expect_eq(told[0].code & ~0x80, status & ~0x80, "%s: code %x, status %x", ways[way],
		     (unsigned int)told[0].code, (unsigned int)status);
}

Test(deaths, are_told_once_with_the_wait_status)
{
	guard_start(0, 0);
	for (enum way way = EXIT_0; way <= KILLED_THREADS; way++) {
		death_check(way, TREE_SLOT0, 0);
		death_check(way, TREE_LEAF, 0);
		/* PID 1 ignores what it does not handle. */
		if (way != TERMINATED && way != SEGMENT)
			death_check(way, TREE_SLOT0, CLONE_NEWPID);
	}
}

static uint64_t cpu_spent_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
	return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

static void cpu_spend(uint64_t us)
{
	uint64_t until_us = cpu_spent_us() + us;

	while (cpu_spent_us() < until_us)
		;
}

Test(deaths, tell_what_the_process_and_its_children_used)
{
	enum { OWN_US = 30000, CHILD_US = 50000, TOUCHED_BYTES = 64 << 20 };
	pid_t pid;

	guard_start(0, 0);
	pid = tree_fork(&tree, TREE_SLOT0, 0);
	cr_assert(pid >= 0);
	if (pid == 0) {
		pid_t child = fork();

		if (child == 0) {
			volatile char *touched = malloc(TOUCHED_BYTES);

			for (size_t at = 0; touched && at < TOUCHED_BYTES; at += 4096)
				touched[at] = 1;
			cpu_spend(CHILD_US);
			_exit(touched ? 0 : 1);
		}
		cpu_spend(OWN_US);
		_exit(waitpid(child, NULL, 0) == child ? 0 : 1);
	}
	cr_assert_eq(child_reap(pid), 0);
	cr_assert(deaths_await(0, 1));
	/* Where the kernel counts a child's time by ticks it may be a tenth off. */
	cr_expect_geq(told[0].cpu_us, (OWN_US + CHILD_US) * 9 / 10);
	cr_expect_leq(told[0].cpu_us, 10 * (OWN_US + CHILD_US));
	cr_expect_geq(told[0].peak_bytes, TOUCHED_BYTES);
	cr_expect_leq(told[0].peak_bytes, 4ull * TOUCHED_BYTES);
}

Test(deaths, of_children_of_the_engine_by_clone_parent_are_told)
{
	pid_t launcher, child, *shared;

	guard_start(0, 0);
	shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	cr_assert(shared != MAP_FAILED);
	launcher = fork();
	cr_assert(launcher >= 0);
	if (launcher == 0) {
		pid_t pid = tree_fork(&tree, TREE_SLOT1, CLONE_PARENT);

		if (pid == 0)
			_exit(21);
		*shared = pid;
		_exit(0);
	}
	child_reap(launcher);
	child = *shared;
	cr_assert_eq(WEXITSTATUS(child_reap(child)), 21);
	cr_assert(deaths_await(0, 1));
	cr_expect_eq(told_count, 1);
	cr_expect_eq(told[0].pid, child);
	cr_expect_eq(told[0].cgroup_id, tree.ids[TREE_SLOT1]);
}

/* Has a child, and a PID 1 of a nested pid namespace, and outlives both. */
static int family(const void *unused)
{
	pid_t pid = fork();

	(void)unused;
	if (pid == 0)
		_exit(1);
	if (pid < 0 || waitpid(pid, NULL, 0) != pid || unshare(CLONE_NEWPID) < 0)
		return 1;
	pid = fork();
	if (pid == 0)
		_exit(2);
	return pid < 0 || waitpid(pid, NULL, 0) != pid;
}

Test(deaths, of_grandchildren_and_nested_init_are_silent)
{
	guard_start(0, 0);
	cr_assert_eq(tree_run(&tree, TREE_SLOT0, family, NULL), 0);
	cr_assert(deaths_await(0, 1));
	cr_expect_eq(told_count, 1, "told of %d deaths, one is the engine's child", told_count);
	told_count = 0;
	only_marker_told();
}

Test(deaths, outside_the_slots_are_silent)
{
	const enum tree_place silent[] = { TREE_ROOT, TREE_SHARD0, TREE_STRANGER, TREE_UNTOLD };

	guard_start(0, 0);
	for (unsigned int i = 0; i < sizeof(silent) / sizeof(*silent); i++)
		child_reap(child_exit(silent[i], 0, 3));
	child_reap(fork() ?: (_exit(4), 0));
	only_marker_told();
}

Test(deaths, of_another_process_children_are_silent)
{
	pid_t other;

	guard_start(0, 0);
	other = fork();
	cr_assert(other >= 0);
	if (other == 0)
		_exit(waitpid(child_exit(TREE_SLOT0, 0, 5), NULL, 0) < 0);
	cr_assert_eq(child_reap(other), 0);
	only_marker_told();
}

Test(deaths, are_told_to_their_own_shard_only)
{
	guard_start(0, 0);
	for (int i = 0; i < 50; i++)
		child_reap(child_exit(i % 2 ? TREE_SLOT2 : TREE_SLOT1, 0, i % 2));
	for (uint32_t shard = 0; shard < 2; shard++) {
		told_count = 0;
		cr_assert(deaths_await(shard, 25));
		cr_expect_eq(told_count, 25);
		for (int i = 0; i < told_count; i++) {
			cr_expect_eq(told[i].code, (int)shard << 8);
			cr_expect_eq(told[i].cgroup_id, tree.ids[shard ? TREE_SLOT2 : TREE_SLOT1]);
		}
	}
}

Test(deaths, carry_pids_of_the_engine_namespace)
{
	pid_t engine = tree_fork(&tree, TREE_STRANGER, CLONE_NEWPID);

	cr_assert(engine >= 0);
	if (engine == 0) {
		pid_t pid;

		guard_start(0, 0);
		pid = child_exit(TREE_SLOT0, 0, 9);
		if (waitpid(pid, NULL, 0) != pid || !deaths_await(0, 1) || told_count != 1)
			_exit(1);
		guard_close(guard);
		_exit(told[0].pid == pid && pid < 10 ? 0 : 2);
	}
	cr_expect_eq(child_reap(engine), 0);
}

/* Behind a cgroup namespace the level that user space counts is too small. */
Test(deaths, are_told_whatever_level_the_caller_believes)
{
	tree.root_level = 0;
	guard_start(0, 0);
	only_marker_told();
}

/* Apart, so that the child shares no frame in which something changes. */
__attribute__((noinline)) static pid_t child_exit_fast(int code)
{
	pid_t pid = vfork();

	if (pid == 0)
		_exit(code);
	return pid;
}

/* Many deaths, reaped at once, with codes 0 to 127 in turn; this process must be in the slot. */
static void deaths_make(int count)
{
	for (int i = 0; i < count; i++) {
		pid_t pid = child_exit_fast(i & 0x7f);

		while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
			;
	}
}

/* Each of `makers` made `count`: pids may come again meanwhile, codes tell what is missing. */
static void codes_expect(int makers, int count)
{
	int codes[0x80] = {};

	cr_assert_eq(told_count, makers * count);
	for (int i = 0; i < told_count; i++)
		codes[(told[i].code >> 8) & 0x7f]++;
	for (int i = 0; i < 0x80; i++)
		cr_expect_eq(codes[i], makers * ((count - i + 0x7f) / 0x80), "code %d: %d", i,
			     codes[i]);
}

Test(deaths, survive_a_stalled_consumer)
{
	enum { DEATHS = 20000 };
	struct guard_exits_counts counts;

	guard_start(4096, 0);
	tree_enter(&tree, TREE_SLOT0);
	deaths_make(DEATHS);
	tree_leave(&tree);
	guard_exits_counts(exits[0], &counts);
	cr_assert_gt(counts.spilled, DEATHS / 2, "the ring was large enough: nothing is tested");
	cr_assert(deaths_await(0, DEATHS));
	codes_expect(1, DEATHS);
	cr_expect_eq(counts.dropped, 0);
	cr_expect_eq(guard_exits_consume(exits[0], 100, death_note, NULL), 0);
}

/* At the first one, two more die: one takes the room it left, the other finds the ring full. */
static void death_note_and_make(void *context, const struct guard_death *death)
{
	int *making = context;

	if (*making) {
		*making = 0;
		child_reap(child_exit(TREE_SLOT0, 0, 0));
		child_reap(child_exit(TREE_SLOT0, 0, 0));
	}
	death_note(NULL, death);
}

Test(deaths, spilled_while_the_ring_is_drained_do_not_wait)
{
	struct guard_exits_counts before, after;
	int making = 1, made = 0;

	guard_start(4096, 0);
	do {
		child_reap(child_exit(TREE_SLOT0, 0, 0));
		made++;
		guard_exits_counts(exits[0], &before);
	} while (!before.spilled);
	/* Takes the spilled one out, so that the sweep before the drain is behind us. */
	cr_assert_eq(guard_exits_consume(exits[0], 1, death_note, NULL), 1);
	cr_expect_eq(guard_exits_consume(exits[0], TOLD_MAX, death_note_and_make, &making),
		     made + 1);
	guard_exits_counts(exits[0], &after);
	cr_expect_eq(after.spilled, 2, "nothing was spilled meanwhile: nothing is tested");
	cr_expect_eq(told_count, made + 2);
}

static void *maker_run(void *count)
{
	deaths_make(*(int *)count);
	return NULL;
}

Test(deaths, made_while_others_are_told_are_all_told)
{
	pthread_t makers[2];
	int count = 5000;

	guard_start(4096, 0);
	tree_enter(&tree, TREE_SLOT0);
	for (int i = 0; i < 2; i++)
		cr_assert_eq(pthread_create(&makers[i], NULL, maker_run, &count), 0);
	cr_expect(deaths_await(0, 2 * count), "stuck after %d", told_count);
	for (int i = 0; i < 2; i++)
		pthread_join(makers[i], NULL);
	tree_leave(&tree);
	codes_expect(2, count);
}

Test(deaths, beyond_ring_and_spill_are_owned_up_to)
{
	enum { DEATHS = 1000, SPILL = 64 };
	struct guard_exits_counts counts;

	guard_start(4096, SPILL);
	tree_enter(&tree, TREE_SLOT0);
	deaths_make(DEATHS);
	tree_leave(&tree);
	guard_exits_counts(exits[0], &counts);
	cr_expect_eq(counts.spilled, SPILL);
	cr_expect_gt(counts.dropped, 0);
	cr_expect_eq(guard_exits_consume(exits[0], 100, death_note, NULL), -ENOBUFS);
	cr_expect_eq(told_count, 0);
	cr_assert(deaths_await(0, DEATHS - (int)counts.dropped));
	cr_expect_eq(told_count, DEATHS - (int)counts.dropped);
	told_count = 0;
	only_marker_told();
}

struct start {
	int waiting;
};

static void *thread_race(void *context)
{
	struct start *start = context;

	__atomic_fetch_sub(&start->waiting, 1, __ATOMIC_SEQ_CST);
	while (__atomic_load_n(&start->waiting, __ATOMIC_SEQ_CST) > 0)
		;
	syscall(SYS_exit, 0);
	return NULL;
}

Test(deaths, of_threads_in_the_same_instant_are_told_once)
{
	enum { PROCESSES = 800 };

	guard_start(0, 0);
	for (int i = 0; i < PROCESSES; i++) {
		struct start start = { .waiting = 2 };
		pid_t pid = tree_fork(&tree, TREE_SLOT0, 0);
		pthread_t thread;

		if (pid == 0) {
			if (pthread_create(&thread, NULL, thread_race, &start))
				_exit(1);
			thread_race(&start);
		}
		child_reap(pid);
	}
	cr_assert(deaths_await(0, PROCESSES));
	cr_expect_eq(told_count, PROCESSES);
	told_count = 0;
	only_marker_told();
}

Test(deaths, of_a_shard_that_is_not_there_cannot_be_opened)
{
	struct guard_exits *none = NULL;

	guard_start(0, 0);
	cr_expect_eq(guard_exits_open(guard, 2, &none), -EINVAL);
	cr_expect_null(none);
}
