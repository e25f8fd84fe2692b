/* Workers that are killed in the middle of a request: another one sweeps, and nothing is left. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/root/launch/harness.h"
#include "tests/slowness.h"

enum { LOSSES = 300, SLOT = 9 };

static void nap_us(long us)
{
	const struct timespec pause = { 0, us * 1000 };

	(void)nanosleep(&pause, NULL); /* any length will do */
}

static bool nothing_is_left(struct harness *h)
{
	bool gone = faccessat(h->vault.root_fd, "slots/9", F_OK, 0) < 0 && errno == ENOENT;

	return faccessat(h->cgroup_fd, "b9", F_OK, 0) < 0 && errno == ENOENT && gone;
}

static unsigned children_count(void)
{
	char path[64], text[4096];
	unsigned count = 0;

	(void)snprintf(path, sizeof path, "/proc/self/task/%d/children", getpid());
	expect(text_read_at(AT_FDCWD, path, text, sizeof text) >= 0);
	for (const char *at = text; *at; at++)
		count += *at == ' ';
	return count;
}

/* Children that no reply named, until none but the two workers are left. */
static unsigned strays_reap(void)
{
	unsigned strays = 0;

	for (unsigned ms = 0; ms < 5000 && children_count() > 2; ms++) {
		while (waitpid(-1, NULL, WNOHANG | __WALL) > 0)
			strays++;
		sleep_ms(1);
	}
	expect(children_count() == 2);
	return strays;
}

struct loss {
	uint32_t op, flags;
	long after_us;
};

static unsigned one_loss(struct harness *h, const struct loss *loss)
{
	struct launch_request request = harness_request(h, loss->op, SLOT);

	request.flags = loss->flags;
	if (loss->flags & LAUNCH_PRIVATE && !network_is_there(h, SLOT))
		expect(harness_op(h, LAUNCH_NETWORK_MAKE, SLOT).error == 0);
	expect(harness_send(h, 0, &request, NULL));
	nap_us(loss->after_us);
	worker_kill(h, 0);
	request = harness_request(h, LAUNCH_SWEEP, SLOT);
	if (!expect(harness_ask(h, 1, &request, NULL).error == 0))
		note("killed after %ld us", loss->after_us);
	expect(nothing_is_left(h));
	expect(worker_start_another(h, 0));
	return strays_reap();
}

/* Twice what a spawn takes on this machine: some of the kills must come after its clone. */
static long spawn_span_us(struct harness *h)
{
	struct timespec begun, ended;

	(void)clock_gettime(CLOCK_MONOTONIC, &begun);
	struct box box = box_start(h, SLOT, LAUNCH_REBUILD);

	(void)clock_gettime(CLOCK_MONOTONIC, &ended);
	box_end(h, &box);
	return 2 *
	       ((ended.tv_sec - begun.tv_sec) * 1000000 + (ended.tv_nsec - begun.tv_nsec) / 1000);
}

static void a_worker_killed_while_it_builds_or_spawns_leaves_nothing(struct harness *h)
{
	const long span_us = spawn_span_us(h);
	unsigned strays = 0;

	for (unsigned i = 0; i < fewer(LOSSES, 60); i++) {
		const struct loss loss = { .op = i % 3 == 0 ? LAUNCH_BUILD : LAUNCH_SPAWN,
					   .flags = LAUNCH_REBUILD |
						    (i % 3 == 2 ? LAUNCH_PRIVATE : 0),
					   .after_us = i * 7919 % span_us };

		strays += one_loss(h, &loss);
	}
	note("%u children of lost workers were reaped, killed within %ld us", strays, span_us);
	expect(strays > 0);
	struct box box = box_start(h, SLOT, LAUNCH_REBUILD);

	expect(probe(h, &box, "exit", "0"));
	box_end(h, &box);
}

static void exec_send(struct harness *h, const struct box *box)
{
	static const char *const argv[] = { "/bin/probe", "wait", NULL };
	static const char *const envp[] = { NULL };
	struct launch_request request = harness_request(h, LAUNCH_EXEC, box->slot);
	const int fds[] = { 2, 2 };
	const struct parcel parcel = { argv, envp, "/", fds, 2, NULL };

	request.pid = box->pid;
	expect(harness_send(h, 0, &request, &parcel));
}

static void a_worker_killed_while_it_enters_leaves_nothing(struct harness *h)
{
	unsigned strays = 0;

	for (unsigned i = 0; i < fewer(LOSSES / 3, 30); i++) {
		struct launch_request request = harness_request(h, LAUNCH_SPAWN, SLOT);

		request.flags = LAUNCH_REBUILD;
		struct box box = { harness_ask(h, 1, &request, NULL).pid, SLOT };

		expect(box.pid > 0);
		exec_send(h, &box);
		nap_us((long)longer(i * 7919 % 400));
		worker_kill(h, 0);
		request = harness_request(h, LAUNCH_SWEEP, SLOT);
		expect(harness_ask(h, 1, &request, NULL).error == 0);
		expect(nothing_is_left(h));
		expect(worker_start_another(h, 0));
		strays += strays_reap() - 1; /* PID 1 is known */
	}
	note("%u children of lost workers were reaped", strays);
}

#define TEST(name, ...)                                                                            \
	{                                                                                          \
#name, name,                                                                       \
		{                                                                                  \
			__VA_ARGS__                                                                \
		}                                                                                  \
	}

static const struct harness_test tests[] = {
	TEST(a_worker_killed_while_it_builds_or_spawns_leaves_nothing, .workers = 2),
	TEST(a_worker_killed_while_it_enters_leaves_nothing, .workers = 2),
};

int main(int argc, char **argv)
{
	return harness_main(argc, argv, tests, sizeof tests / sizeof *tests);
}
