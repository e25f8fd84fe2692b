/*
 * Every fallible system call of a request fails once, in turn: the reply names the step and the
 * error, nothing is left, and the same worker then serves the same request.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tests/root/launch/harness.h"

enum { NTH_MAX = 60 };

static bool nothing_is_left(struct harness *h, uint32_t slot)
{
	char path[64];
	bool gone;

	(void)snprintf(path, sizeof path, "slots/%u", slot);
	gone = faccessat(h->vault.root_fd, path, F_OK, 0) < 0 && errno == ENOENT;
	(void)snprintf(path, sizeof path, "b%u", slot);
	return faccessat(h->cgroup_fd, path, F_OK, 0) < 0 && errno == ENOENT && gone;
}

static bool worker_replace(struct harness *h, const char *fault)
{
	h->options.fault = fault;
	(void)close(h->channels[0]); /* ends the last one */
	(void)child_reap(h->workers[0]);
	return worker_start_another(h, 0);
}

/* A worker in which the nth call of the step fails with EIO. */
static bool worker_with_fault(struct harness *h, uint32_t step, unsigned nth, char fault[static 32])
{
	(void)snprintf(fault, 32, "%s:%d:%u", launch_step_name(step), EIO, nth);
	return worker_replace(h, fault);
}

/* One case; false when the step has fewer calls than nth, so that the fault never came. */
typedef bool case_run(struct harness *h, uint32_t step, const char *fault);

static void each_call_fails_once(struct harness *h, case_run *run)
{
	unsigned cases = 0;

	for (uint32_t step = 1; step < LAUNCH_STEP_COUNT; step++) {
		for (unsigned nth = 1; nth < NTH_MAX; nth++) {
			char fault[32];

			if (!worker_with_fault(h, step, nth, fault) || !run(h, step, fault))
				break;
			cases++;
		}
	}
	note("%u calls failed once", cases);
	expect(cases > 10);
}

static bool reply_is_the_fault(struct launch_reply reply, uint32_t step, const char *fault)
{
	if (expect(reply.error == EIO && reply.step == step))
		return true;
	note("%s: %s at %s", fault, strerror(reply.error), launch_step_name(reply.step));
	return false;
}

static bool build_case(struct harness *h, uint32_t step, const char *fault)
{
	struct launch_reply reply = harness_op(h, LAUNCH_BUILD, 0);
	bool came = reply.error != 0;

	if (came) {
		reply_is_the_fault(reply, step, fault);
		if (!expect(nothing_is_left(h, 0)))
			note("%s", fault);
		expect(harness_op(h, LAUNCH_BUILD, 0).error == 0);
	}
	/* A fault that did not come must not come now. */
	expect(worker_replace(h, NULL) && harness_op(h, LAUNCH_DROP, 0).error == 0);
	return came;
}

static void a_failing_build_leaves_nothing(struct harness *h)
{
	each_call_fails_once(h, build_case);
}

static bool rebuild_case(struct harness *h, uint32_t step, const char *fault)
{
	struct launch_request request = harness_request(h, LAUNCH_BUILD, 0);
	struct launch_reply reply;
	bool came;

	/* Built by the other worker, which has no fault. */
	expect(harness_ask(h, 1, &request, NULL).error == 0);
	reply = harness_op(h, LAUNCH_BUILD, 0);
	came = reply.error != 0;
	if (came) {
		reply_is_the_fault(reply, step, fault);
		if (!expect(nothing_is_left(h, 0)))
			note("%s", fault);
	}
	/* A fault that did not come must not come now. */
	expect(worker_replace(h, NULL) && harness_op(h, LAUNCH_DROP, 0).error == 0);
	return came;
}

static void a_failing_rebuild_leaves_nothing(struct harness *h)
{
	each_call_fails_once(h, rebuild_case);
}

static bool spawn_case(struct harness *h, uint32_t step, const char *fault)
{
	struct launch_request request = harness_request(h, LAUNCH_SPAWN, 0);
	struct launch_reply reply;
	bool came;

	request.flags = LAUNCH_PRIVATE;
	request.op = LAUNCH_NETWORK_MAKE;
	expect(harness_ask(h, 1, &request, NULL).error == 0);
	request.op = LAUNCH_BUILD;
	expect(harness_ask(h, 1, &request, NULL).error == 0);
	request.op = LAUNCH_SPAWN;
	reply = harness_ask(h, 0, &request, NULL);
	came = reply.error != 0;
	if (came) {
		reply_is_the_fault(reply, step, fault);
		if (reply.pid > 0)
			(void)child_reap(reply.pid);
		reply = harness_ask(h, 0, &request, NULL);
		expect(reply.error == 0);
	}
	struct box box = { reply.pid, 0 };

	expect(worker_replace(h, NULL) && probe(h, &box, "loopback", "up"));
	box_end(h, &box);
	return came;
}

static void a_failing_spawn_costs_itself_only(struct harness *h)
{
	each_call_fails_once(h, spawn_case);
}

static bool exec_case(struct harness *h, uint32_t step, const char *fault)
{
	const char *const argv[] = { "probe", "exit", "0", NULL };
	const struct exec_options options = { .user = "user", .cwd = "/home", .leaf = 3 };
	struct launch_request request = harness_request(h, LAUNCH_SPAWN, 0);
	struct box box = { .slot = 0 };
	struct launch_reply reply;

	request.flags = LAUNCH_REBUILD;
	reply = harness_ask(h, 1, &request, NULL);
	expect(reply.error == 0);
	box.pid = reply.pid;
	(void)harness_exec(h, &box, argv, &options, &reply);
	if (reply.error) {
		reply_is_the_fault(reply, step, fault);
		expect(harness_exec(h, &box, argv, &options, NULL) == 0);
	}
	expect(worker_replace(h, NULL));
	box_end(h, &box);
	return reply.error != 0;
}

static void a_failing_exec_costs_itself_only(struct harness *h)
{
	each_call_fails_once(h, exec_case);
}

/* On a terminal, with a limit, as another user. */
static bool terminal_case(struct harness *h, uint32_t step, const char *fault)
{
	static const struct launch_limit limit = { 7, 0, 64, 64 }; /* RLIMIT_NOFILE */
	const char *const argv[] = { "probe", "exit", "0", NULL };
	struct box box = { .slot = 0 };
	struct launch_reply reply;
	int master = -1;
	struct exec_options options = { .user = "user",
					.leave_alone = true,
					.ret_tty = &master,
					.rows = 5,
					.columns = 6,
					.limits = &limit,
					.limit_count = 1 };
	struct launch_request request = harness_request(h, LAUNCH_SPAWN, 0);
	bool came;

	request.flags = LAUNCH_REBUILD;
	box.pid = harness_ask(h, 1, &request, NULL).pid;
	(void)harness_exec(h, &box, argv, &options, &reply);
	came = reply.error != 0;
	if (came) {
		reply_is_the_fault(reply, step, fault);
		expect(master < 0);
		expect(harness_exec(h, &box, argv, &options, &reply) == 0);
	}
	(void)close(master); /* hung up */
	(void)child_reap(reply.pid);
	expect(worker_replace(h, NULL));
	box_end(h, &box);
	return came;
}

static void a_failing_terminal_costs_itself_only(struct harness *h)
{
	each_call_fails_once(h, terminal_case);
}

static bool signal_case(struct harness *h, uint32_t step, const char *fault)
{
	const char *const argv[] = { "probe", "run-away", NULL };
	const struct exec_options options = { .leave_alone = true, .leaf = 1 };
	struct launch_request request = harness_request(h, LAUNCH_SPAWN, 0);
	struct box box = { .slot = 0 };
	struct launch_reply reply;
	pid_t pid;
	bool came;

	request.flags = LAUNCH_REBUILD;
	box.pid = harness_ask(h, 1, &request, NULL).pid;
	(void)harness_exec(h, &box, argv, &options, &reply);
	if (reply.error) { /* a step that the exec has as well: not of this test */
		box_end(h, &box);
		return false;
	}
	pid = reply.pid;
	request = harness_request(h, LAUNCH_SIGNAL, 0);
	request.leaf = 1;
	request.signal = 15;
	reply = harness_ask(h, 0, &request, NULL);
	came = reply.error != 0;
	if (came) {
		reply_is_the_fault(reply, step, fault);
		request.signal = 0; /* as the engine does after a loss */
		expect(harness_ask(h, 0, &request, NULL).error == 0);
		request.signal = 15;
		reply = harness_ask(h, 0, &request, NULL);
		expect(reply.error == 0 || reply.error == ESRCH);
	}
	(void)child_reap(pid);
	expect(worker_replace(h, NULL));
	box_end(h, &box);
	return came;
}

static void a_failing_signal_can_be_asked_again(struct harness *h)
{
	unsigned cases = 0;
	char fault[32];

	while (cases < NTH_MAX && worker_with_fault(h, LAUNCH_STEP_SIGNAL, cases + 1, fault) &&
	       signal_case(h, LAUNCH_STEP_SIGNAL, fault))
		cases++;
	note("%u calls failed once", cases);
	expect(cases > 1);
}

static bool sweep_case(struct harness *h, uint32_t step, const char *fault)
{
	struct launch_request request = harness_request(h, LAUNCH_SPAWN, 0);
	struct launch_reply reply;
	pid_t pid;

	request.flags = LAUNCH_REBUILD;
	pid = harness_ask(h, 1, &request, NULL).pid;
	reply = harness_op(h, LAUNCH_SWEEP, 0);
	if (reply.error) {
		reply_is_the_fault(reply, step, fault);
		expect(harness_op(h, LAUNCH_SWEEP, 0).error == 0);
	}
	expect(nothing_is_left(h, 0));
	(void)child_reap(pid);
	return reply.error != 0;
}

static void a_failing_sweep_can_be_asked_again(struct harness *h)
{
	each_call_fails_once(h, sweep_case);
}

static bool network_case(struct harness *h, uint32_t step, const char *fault)
{
	static const uint32_t ops[] = { LAUNCH_NETWORK_MAKE, LAUNCH_NETWORK_PROVE, LAUNCH_PORT_LOOK,
					LAUNCH_PORT_CONNECT, LAUNCH_NETWORK_DROP };
	struct launch_request request = harness_request(h, 0, 0);
	bool came = false;

	request.port = 80;
	for (unsigned i = 0; i < sizeof ops / sizeof *ops; i++) {
		const bool asks = ops[i] == LAUNCH_PORT_LOOK || ops[i] == LAUNCH_PORT_CONNECT;
		struct launch_reply reply;

		request.op = ops[i];
		reply = harness_ask(h, 0, &request, NULL);
		if (reply.error && !(asks && reply.error == ECONNREFUSED)) {
			came = true;
			reply_is_the_fault(reply, step, fault);
			if (ops[i] == LAUNCH_NETWORK_MAKE && !expect(!network_is_there(h, 0)))
				note("%s", fault);
			reply = harness_ask(h, 0, &request, NULL);
		}
		expect(reply.error == (asks ? ECONNREFUSED : 0));
	}
	/* A drop goes without a witness, rather than not at all: so its calls may fail unseen. */
	expect(!network_is_there(h, 0));
	return came;
}

static void a_failing_network_call_can_be_asked_again(struct harness *h)
{
	each_call_fails_once(h, network_case);
}

#define TEST(name, ...)                                                                            \
	{                                                                                          \
#name, name,                                                                       \
		{                                                                                  \
			__VA_ARGS__                                                                \
		}                                                                                  \
	}

static const struct harness_test tests[] = {
	TEST(a_failing_build_leaves_nothing),
	TEST(a_failing_rebuild_leaves_nothing, .workers = 2),
	TEST(a_failing_spawn_costs_itself_only, .workers = 2),
	TEST(a_failing_exec_costs_itself_only, .workers = 2),
	TEST(a_failing_terminal_costs_itself_only, .workers = 2),
	TEST(a_failing_signal_can_be_asked_again, .workers = 2),
	TEST(a_failing_sweep_can_be_asked_again, .workers = 2),
	TEST(a_failing_network_call_can_be_asked_again, .workers = 2),
};

int main(int argc, char **argv)
{
	return harness_main(argc, argv, tests, sizeof tests / sizeof *tests);
}
