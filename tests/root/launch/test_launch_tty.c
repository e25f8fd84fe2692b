/*
 * Terminals, resource limits and signals as the worker gives them. From outside: what stands in a
 * sandbox is the sandbox's.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/base/cleanup.h"
#include "tests/root/launch/harness.h"

/* A program on a terminal; its pid, or 0 with *ret_reply's error. */
static pid_t terminal_start(struct harness *h, const struct box *box, const char *const *argv,
			    struct exec_options *o, struct launch_reply *ret_reply)
{
	o->leave_alone = true;
	(void)harness_exec(h, box, argv, o, ret_reply);
	return ret_reply->error ? 0 : ret_reply->pid;
}

/* All that comes until the terminal is hung up; the program's wait status. */
static int terminal_end(struct harness *h, int master, pid_t pid)
{
	size_t filled = 0;
	ssize_t bytes;

	expect(fcntl(master, F_GETFL) & O_NONBLOCK);
	(void)fcntl(master, F_SETFL, 0); /* ours from here on */
	while ((bytes = read(master, h->output + filled, sizeof h->output - 1 - filled)) > 0)
		filled += (size_t)bytes;
	expect(bytes < 0 && errno == EIO);
	h->output[filled] = 0;
	(void)close(master); /* hung up */
	return pid ? child_reap(pid) : -1;
}

static bool terminal_probe(struct harness *h, const struct box *box, const char *user)
{
	static const char *const argv[] = { "/bin/probe", "own-terminal", NULL };
	int master = -1;
	struct exec_options o = { .user = user, .ret_tty = &master, .rows = 41, .columns = 133 };
	struct launch_reply reply;
	pid_t pid = terminal_start(h, box, argv, &o, &reply);
	int status;

	if (!expect(pid && master >= 0)) {
		note("%s at %s", strerror(reply.error), launch_step_name(reply.step));
		return false;
	}
	status = terminal_end(h, master, pid);
	if (expect(status == 0 && strcmp(h->output, "41x133\r\n") == 0))
		return true;
	note("status %x: %s", (unsigned)status, h->output);
	return false;
}

static void a_terminal_is_the_programs_own(struct harness *h)
{
	const struct box box = box_start(h, 0, LAUNCH_REBUILD);

	terminal_probe(h, &box, NULL);
	terminal_probe(h, &box, "user");
	terminal_probe(h, &box, "4000:4000");
	expect(probe(h, &box, "terminal", NULL)); /* and no one is left */
	expect(probe(h, &box, "no-terminal", NULL));
	box_end(h, &box);
}

static int pty_count(void)
{
	char text[32] = "";

	(void)text_read_at(AT_FDCWD, "/proc/sys/kernel/pty/nr", text, sizeof text);
	return atoi(text);
}

static void a_full_sandbox_is_told_and_its_neighbour_is_not(struct harness *h)
{
	static const char *const fill[] = { "/bin/probe", "fill-terminals", "hold", NULL };
	static const char *const own[] = { "/bin/probe", "own-terminal", NULL };
	const struct box box = box_start(h, 0, LAUNCH_REBUILD);
	const struct box other = box_start(h, 1, LAUNCH_REBUILD);
	int ends[2], master = -1, before = pty_count();
	char line[64] = "";
	struct launch_reply reply;
	pid_t filler;

	if (!expect(pipe2(ends, O_CLOEXEC) == 0))
		return;
	struct exec_options filling = { .leave_alone = true, .output_fd = ends[1] };
	struct exec_options wishing = { .ret_tty = &master };

	expect(harness_exec(h, &box, fill, &filling, &reply) == 0);
	filler = reply.pid;
	(void)close(ends[1]); /* the program has its own */
	expect(read(ends[0], line, sizeof line - 1) > 0);
	expect(strcmp(line, "terminals 64\n") == 0);
	expect(pty_count() >= before + 64);
	expect(terminal_start(h, &box, own, &wishing, &reply) == 0);
	expect(reply.error == EDQUOT && reply.step == LAUNCH_STEP_TTY && master < 0);
	expect(reply.pid == 0);
	terminal_probe(h, &other, NULL);
	(void)close(ends[0]); /* was read */
	box_end(h, &other);
	(void)kill(filler, SIGKILL); /* not reaped yet: the pid is its own */
	(void)child_reap(filler);
	terminal_probe(h, &box, NULL);
	box_end(h, &box);
}

static void what_a_sandbox_puts_in_its_place_is_no_terminal(struct harness *h)
{
	static const char *const own[] = { "/bin/probe", "own-terminal", NULL };
	static const char *const things[] = { "fifo", "node", "link", "nothing" };

	for (unsigned i = 0; i < sizeof things / sizeof *things; i++) {
		const struct box box = box_start(h, 0, LAUNCH_REBUILD);
		int master = -1;
		struct exec_options o = { .ret_tty = &master };
		struct launch_reply reply;

		expect(probe(h, &box, "hide-terminals", things[i]));
		expect(terminal_start(h, &box, own, &o, &reply) == 0);
		if (!expect(reply.error == ENODEV && reply.step == LAUNCH_STEP_TTY && master < 0))
			note("%s: %s at %s", things[i], strerror(reply.error),
			     launch_step_name(reply.step));
		box_end(h, &box);
	}
}

static void a_terminal_gets_its_new_size(struct harness *h)
{
	static const char *const argv[] = { "/bin/probe", "cat", NULL };
	const struct box box = box_start(h, 0, LAUNCH_REBUILD);
	struct launch_request request = harness_request(h, LAUNCH_RESIZE, 0);
	struct winsize size = { 0 };
	int master = -1;
	struct exec_options o = { .ret_tty = &master };
	struct launch_reply reply;
	pid_t pid = terminal_start(h, &box, argv, &o, &reply);
	const struct parcel parcel = { .fds = &master, .fd_count = 1 };

	request.rows = 7;
	request.columns = 9;
	expect(harness_ask(h, 0, &request, &parcel).error == 0);
	expect(ioctl(master, TIOCGWINSZ, &size) == 0 && size.ws_row == 7 && size.ws_col == 9);
	expect(write(master, "\4", 1) == 1); /* the end of input */
	expect(terminal_end(h, master, pid) == 0);
	/* What is no terminal. */
	struct launch_request wrong = harness_request(h, LAUNCH_RESIZE, 0);
	const struct parcel other = { .fds = &h->proc_fd, .fd_count = 1 };

	expect(harness_ask(h, 0, &wrong, &other).error != 0);
	expect(harness_op(h, LAUNCH_RESIZE, 0).error == EINVAL);
	box_end(h, &box);
}

static void a_terminal_is_hung_up_and_what_was_written_stays(struct harness *h)
{
	static const char *const argv[] = { "/bin/probe", "wait", "said", NULL };
	const struct box box = box_start(h, 0, LAUNCH_REBUILD);
	struct launch_request request = harness_request(h, LAUNCH_RESIZE, 0);
	int master = -1, status;
	struct exec_options o = { .ret_tty = &master };
	struct launch_reply reply;
	pid_t pid = terminal_start(h, &box, argv, &o, &reply);
	const struct parcel parcel = { .fds = &master, .fd_count = 1 };
	struct pollfd written = { .fd = master, .events = POLLIN };

	expect(poll(&written, 1, 5000) == 1);
	request.signal = SIGHUP;
	expect(harness_ask(h, 0, &request, &parcel).error == 0);
	status = terminal_end(h, master, pid);
	expect(WIFSIGNALED(status) && WTERMSIG(status) == SIGHUP);
	expect(!strcmp(h->output, "said\r\n"));
	box_end(h, &box);
}

/* ---- limits ---- */

static struct launch_reply limit_try(struct harness *h, const struct box *box,
				     struct launch_limit limit)
{
	static const char *const argv[] = { "/bin/probe", "exit", NULL };
	const struct exec_options o = { .limits = &limit, .limit_count = 1 };
	struct launch_reply reply;

	(void)harness_exec(h, box, argv, &o, &reply);
	return reply;
}

static void limits_are_the_programs_alone(struct harness *h)
{
	static const char *const argv[] = { "/bin/probe", "limits-say", NULL };
	static const struct launch_limit limits[] = {
		{ RLIMIT_NOFILE, 0, 3, 4 }, /* fewer than are open on the way */
		{ RLIMIT_NPROC, 0, 5, 5 },
	};
	const struct exec_options o = { .user = "user", .limits = limits, .limit_count = 2 };
	const struct box box = box_start(h, 0, LAUNCH_REBUILD);
	struct launch_reply reply;

	if (!expect(harness_exec(h, &box, argv, &o, &reply) == 0))
		note("%s at %s: %s", strerror(reply.error), launch_step_name(reply.step),
		     h->output);
	expect(strcmp(h->output, "core 1:1 nofile 3:4 nproc 5:5\n") == 0);
	expect(probe(h, &box, "limits", NULL)); /* the next has the usual ones */
	box_end(h, &box);
}

/* CAP_SYS_RESOURCE: some hosts keep it from root. */
static bool may_raise(void)
{
	char text[4096] = "";
	const char *line;

	(void)text_read_at(AT_FDCWD, "/proc/self/status", text, sizeof text);
	line = strstr(text, "CapEff:");
	return line && strtoull(line + 7, NULL, 16) & 1 << 24;
}

static void cores_are_written_only_where_asked_for(struct harness *h)
{
	static const char *const argv[] = { "/bin/probe", "limits-say", NULL };
	const struct launch_limit limit = { RLIMIT_CORE, 0, 1 << 20, UINT64_MAX };
	const struct exec_options o = { .limits = &limit, .limit_count = 1 };
	const struct box box = box_start(h, 0, LAUNCH_REBUILD);
	int status;
	struct launch_reply reply;

	expect(probe(h, &box, "limits", NULL)); /* none */
	status = harness_exec(h, &box, argv, &o, &reply);
	if (may_raise())
		expect(status == 0 && !strncmp(h->output, "core 1048576:-1 ", 16));
	else
		expect(reply.error == EPERM && reply.step == LAUNCH_STEP_LIMIT &&
		       reply.limit == RLIMIT_CORE);
	box_end(h, &box);
}

static void a_limit_above_the_hard_one_is_named(struct harness *h)
{
	const struct box box = box_start(h, 0, LAUNCH_REBUILD);
	struct launch_reply reply =
		limit_try(h, &box, (struct launch_limit){ RLIMIT_NOFILE, 0, 10, 1 << 20 });

	expect(reply.error == EPERM && reply.step == LAUNCH_STEP_LIMIT && reply.pid == 0);
	expect(reply.limit == RLIMIT_NOFILE);
	/* What makes no sense never gets so far. */
	reply = limit_try(h, &box, (struct launch_limit){ RLIMIT_NOFILE, 0, 5, 4 });
	expect(reply.error == EINVAL && reply.step == LAUNCH_STEP_REQUEST);
	reply = limit_try(h, &box, (struct launch_limit){ 16, 0, 1, 1 });
	expect(reply.error == EINVAL && reply.step == LAUNCH_STEP_REQUEST);
	reply = limit_try(h, &box, (struct launch_limit){ RLIMIT_NOFILE, 1, 1, 1 });
	expect(reply.error == EINVAL && reply.step == LAUNCH_STEP_REQUEST);
	box_end(h, &box);
}

/* ---- signals ---- */

struct group {
	pid_t pid;
	int output_fd;
};

/* A program in leaf 2 that has said that it is there. */
static struct group group_start(struct harness *h, const struct box *box, const char *what,
				const char *argument)
{
	const char *const argv[] = { "/bin/probe", what, argument, NULL };
	struct launch_reply reply = { 0 };
	char line[64] = "";
	int ends[2];

	if (!expect(pipe2(ends, O_CLOEXEC) == 0))
		return (struct group){ 0, -1 };
	const struct exec_options o = { .leave_alone = true, .output_fd = ends[1], .leaf = 2 };

	expect(harness_exec(h, box, argv, &o, &reply) == 0);
	(void)close(ends[1]); /* the program has its own */
	expect(read(ends[0], line, sizeof line - 1) > 0);
	return (struct group){ reply.pid, ends[0] };
}

/* Every process is gone: only they held the pipe. */
static void group_expect_end(struct group *group)
{
	char bytes[256];
	ssize_t n;

	while ((n = read(group->output_fd, bytes, sizeof bytes)) > 0)
		;
	expect(n == 0);
	(void)child_reap(group->pid);
	cleanup_close(&group->output_fd);
}

static struct launch_reply leaf_signal(struct harness *h, int signal)
{
	struct launch_request request = harness_request(h, LAUNCH_SIGNAL, 0);

	request.leaf = 2;
	request.signal = signal;
	return harness_ask(h, 0, &request, NULL);
}

static void a_signal_reaches_every_session_of_a_leaf(struct harness *h)
{
	const struct box box = box_start(h, 0, LAUNCH_REBUILD);
	struct launch_reply reply;
	struct group group;

	expect(leaf_signal(h, SIGTERM).error == ESRCH); /* there is no such leaf */
	group = group_start(h, &box, "tree", "200");
	reply = leaf_signal(h, SIGTERM);
	if (!expect(reply.error == 0 && reply.processes == 401))
		note("%s, %u processes", strerror(reply.error), reply.processes);
	group_expect_end(&group);
	expect(leaf_signal(h, SIGTERM).error == ESRCH); /* nobody is in it */
	expect(leaf_signal(h, 65).error == EINVAL);
	expect(leaf_signal(h, -1).error == EINVAL);
	box_end(h, &box);
}

static void a_signal_reaches_who_runs_away(struct harness *h)
{
	const struct box box = box_start(h, 0, LAUNCH_REBUILD);

	for (unsigned i = 0; i < 5; i++) {
		struct group group = group_start(h, &box, "run-away", NULL);
		struct launch_reply reply = leaf_signal(h, SIGTERM);

		if (!expect(reply.error == 0))
			note("%s at %s", strerror(reply.error), launch_step_name(reply.step));
		group_expect_end(&group);
	}
	box_end(h, &box);
}

static void a_frozen_leaf_is_thawed_on_request(struct harness *h)
{
	const struct box box = box_start(h, 0, LAUNCH_REBUILD);
	struct group group = group_start(h, &box, "wait", "x");
	auto_close int fd = openat(h->cgroup_fd, "b0/e2/cgroup.freeze", O_RDWR | O_CLOEXEC);
	char state = 0;

	expect(write(fd, "1", 1) == 1);
	expect(leaf_signal(h, 0).error == 0);
	expect(pread(fd, &state, 1, 0) == 1 && state == '0');
	expect(leaf_signal(h, SIGKILL).error == 0);
	group_expect_end(&group);
	box_end(h, &box);
}

#define TEST(name, ...)                                                                            \
	{                                                                                          \
#name, name,                                                                       \
		{                                                                                  \
			__VA_ARGS__                                                                \
		}                                                                                  \
	}

static const struct harness_test tests[] = {
	TEST(a_terminal_is_the_programs_own),
	TEST(a_full_sandbox_is_told_and_its_neighbour_is_not),
	TEST(what_a_sandbox_puts_in_its_place_is_no_terminal, .image = "bare"),
	TEST(a_terminal_gets_its_new_size),
	TEST(a_terminal_is_hung_up_and_what_was_written_stays),
	TEST(limits_are_the_programs_alone),
	TEST(cores_are_written_only_where_asked_for),
	TEST(a_limit_above_the_hard_one_is_named),
	TEST(a_signal_reaches_every_session_of_a_leaf),
	TEST(a_signal_reaches_who_runs_away),
	TEST(a_frozen_leaf_is_thawed_on_request),
};

int main(int argc, char **argv)
{
	return harness_main(argc, argv, tests, sizeof tests / sizeof *tests);
}
