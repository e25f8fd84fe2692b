/*
 * An engine that does what a test tells it: lines are read from the descriptor named by
 * FAKE_COMMANDS, answers are written to the one named by FAKE_EVENTS. Linked with the real keeper
 * and main.c into the dsecd of test_keeper.py. Every engine of a keeper reads the same pipe, so a
 * command goes to the one that lives.
 */
#include "engine/engine.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "engine/base/cleanup.h"
#include "engine/config.h"
#include "engine/keeper/keeper.h"
#include "engine/keeper/sweep.h"
#include "engine/keeper/keeper_wire.h"

struct fake {
	const struct engine_handover *handover;
	int commands, events, signals;
	bool hangs; /* deaf to SIGTERM */
	int status; /* -1: goes on */
};

/* `argument` is what follows the name and a space. */
struct command {
	const char *name;
	void (*run)(struct fake *f, const char *argument);
};

static void tell(const struct fake *f, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

static void tell(const struct fake *f, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	if (vdprintf(f->events, format, arguments) < 0)
		abort();
	va_end(arguments);
}

static void do_exit(struct fake *f, const char *argument)
{
	f->status = atoi(argument);
}

static void do_hang(struct fake *f, const char *argument)
{
	(void)argument;
	f->hangs = true;
	tell(f, "hangs\n");
}

/* Like an engine that was not yet ready to be told to stop. */
static void do_deafen(struct fake *f, const char *argument)
{
	(void)argument;
	tell(f, "deaf\n");
	(void)sigprocmask(SIG_SETMASK, &(sigset_t){ 0 }, NULL); /* default actions from here on */
	for (;;)
		pause();
}

/* A grandchild whose parent is gone: it ends with a status, as an orphan. */
static void do_orphan(struct fake *f, const char *argument)
{
	int ends[2], pid;

	if (pipe2(ends, O_CLOEXEC) < 0)
		abort();
	pid = fork();
	if (pid == 0) {
		int orphan = fork();
		char byte;

		if (orphan == 0) {
			(void)close(ends[1]); /* its end of file says that the parent is gone */
			if (read(ends[0], &byte, 1) != 0)
				abort();
			_exit(atoi(argument));
		}
		tell(f, "orphan %d\n", orphan);
		_exit(0);
	}
	(void)waitpid(pid, NULL, 0); /* it told what there is to tell */
	(void)close(ends[0]);	     /* now the orphan goes on */
	(void)close(ends[1]);
}

/* A child of the engine that outlives it; in a cgroup of the instance when `cgroup_fd` is one. */
static int child_fork(const struct fake *f, int cgroup_fd)
{
	int pid = fork();

	if (pid)
		return pid;
	if (cgroup_fd >= 0) {
		int fd = openat(cgroup_fd, "cgroup.procs", O_WRONLY | O_CLOEXEC);

		if (fd < 0 || write(fd, "0", 1) != 1)
			abort();
	}
	tell(f, "child %d\n", getpid());
	(void)close_range(0, ~0u, 0); /* or the test waits for the end of the pipes for ever */
	for (;;)
		pause();
}

static void do_child(struct fake *f, const char *argument)
{
	(void)argument;
	(void)child_fork(f, -1); /* the child tells */
}

static void do_cgroup(struct fake *f, const char *argument)
{
	int root = f->handover->cgroup_fd;
	auto_close int fd = -1;

	(void)argument;
	if ((mkdirat(root, "shard", 0755) < 0 && errno != EEXIST) ||
	    (mkdirat(root, "shard/slot", 0755) < 0 && errno != EEXIST))
		abort();
	fd = openat(root, "shard/slot", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	(void)child_fork(f, fd); /* the child tells */
}

static void do_ask(struct fake *f, const char *argument)
{
	uint64_t time_ns;
	int status, r;

	r = keeper_ask(f->handover->keeper_fd, atoi(argument), &status, &time_ns);
	if (r < 0)
		tell(f, "ask %s\n", strerrorname_np(-r));
	else
		tell(f, "ask %d %d\n",
		     WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status), time_ns > 0);
}

/* Asks while the keeper is stopped, so that the question and SIGCHLD wait for it together. */
static void do_ask_stopped(struct fake *f, const char *argument)
{
	const struct keeper_request request = { .tag = 4, .op = KEEPER_ASK, .pid = atoi(argument) };
	struct keeper_reply reply;
	int got = -1;

	if (keeper_wire_send(f->handover->keeper_fd, &request, sizeof(request), -1, 0) < 0)
		abort();
	(void)kill(getppid(), SIGCONT); /* ours, and alive */
	if (keeper_wire_receive(f->handover->keeper_fd, &reply, sizeof(reply), 0, &got) < 0)
		abort();
	tell(f, "ask %s\n", reply.error ? strerrorname_np(reply.error) : "found");
}

static void result_tell(const struct fake *f, const char *what, int r)
{
	tell(f, "%s %s\n", what, r < 0 ? strerrorname_np(-r) : "ok");
}

/* Parks the reading end of a pipe that holds the name. */
static void do_put(struct fake *f, const char *argument)
{
	int ends[2];

	if (pipe2(ends, O_CLOEXEC) < 0 || write(ends[1], argument, strlen(argument)) < 0)
		abort();
	result_tell(f, "put", keeper_put(f->handover->keeper_fd, argument, ends[0]));
	(void)close(ends[0]); /* the keeper has its own */
	(void)close(ends[1]); /* so a reader sees the end after the name */
}

static void do_get(struct fake *f, const char *argument)
{
	char text[128] = "";
	auto_close int fd = -1;
	int r;

	r = keeper_get(f->handover->keeper_fd, argument, &fd);
	if (r < 0) {
		result_tell(f, "get", r);
		return;
	}
	if (read(fd, text, sizeof(text) - 1) < 0)
		abort();
	tell(f, "get %s %s\n", text, fcntl(fd, F_GETFD) & FD_CLOEXEC ? "cloexec" : "inherited");
}

static void do_drop(struct fake *f, const char *argument)
{
	result_tell(f, "drop", keeper_drop(f->handover->keeper_fd, argument));
}

static void do_names(struct fake *f, const char *argument)
{
	char name[PARKING_NAME_BYTES_MAX + 1];
	uint32_t at = 0;

	(void)argument;
	while (!keeper_name(f->handover->keeper_fd, at, name))
		at++;
	tell(f, "names %u %s\n", at, at ? name : "-");
}

static void do_fill(struct fake *f, const char *argument)
{
	char name[32];
	int r = 0, count = 0;

	while (r == 0) {
		snprintf(name, sizeof(name), "%s%d", argument, count);
		r = keeper_put(f->handover->keeper_fd, name, f->handover->listen_fds[0]);
		count += r == 0;
	}
	tell(f, "fill %d %s\n", count, strerrorname_np(-r));
}

/* More descriptors in one packet than the keeper takes. */
static void surplus_send(const struct fake *f, const struct keeper_request *request)
{
	union {
		char bytes[CMSG_SPACE(3 * sizeof(int))];
		struct cmsghdr align;
	} control = { 0 };
	struct iovec part = { .iov_base = (void *)request, .iov_len = sizeof(*request) };
	struct msghdr message = { .msg_iov = &part,
				  .msg_iovlen = 1,
				  .msg_control = control.bytes,
				  .msg_controllen = sizeof(control.bytes) };
	const int fds[3] = { f->events, f->events, f->events };
	struct cmsghdr *header = CMSG_FIRSTHDR(&message);

	header->cmsg_level = SOL_SOCKET;
	header->cmsg_type = SCM_RIGHTS;
	header->cmsg_len = CMSG_LEN(sizeof(fds));
	memcpy(CMSG_DATA(header), fds, sizeof(fds));
	if (sendmsg(f->handover->keeper_fd, &message, MSG_NOSIGNAL) < 0)
		abort();
}

/* What the wire must refuse; then an honest question must still be answered. */
static void do_garbage(struct fake *f, const char *argument)
{
	int fd = f->handover->keeper_fd, got = -1;
	struct keeper_request request = { .tag = 1, .op = 99 };
	struct keeper_reply unknown, unterminated, bare;

	(void)argument;
	(void)keeper_wire_send(fd, "x", 1, -1, 0);
	(void)keeper_wire_send(fd, "xx", 2, f->handover->listen_fds[0], 0);
	(void)keeper_wire_send(fd, &request, sizeof(request), -1, 0);
	if (keeper_wire_receive(fd, &unknown, sizeof(unknown), 0, &got) < 0)
		abort();
	surplus_send(f, &request);
	if (keeper_wire_receive(fd, &unknown, sizeof(unknown), 0, &got) < 0)
		abort();
	request.op = KEEPER_PUT;
	(void)keeper_wire_send(fd, &request, sizeof(request), -1, 0);
	if (keeper_wire_receive(fd, &bare, sizeof(bare), 0, &got) < 0)
		abort();
	memset(request.name, 'n', sizeof(request.name));
	(void)keeper_wire_send(fd, &request, sizeof(request), f->handover->listen_fds[0], 0);
	if (keeper_wire_receive(fd, &unterminated, sizeof(unterminated), 0, &got) < 0)
		abort();
	tell(f, "garbage %s %s %s\n", strerrorname_np(unknown.error), strerrorname_np(bare.error),
	     strerrorname_np(unterminated.error));
}

/* Asks without fetching answers until the socket is full, then fetches what is there. */
static void do_flood(struct fake *f, const char *argument)
{
	const struct keeper_request request = { .tag = 2, .op = KEEPER_NAME };
	int fd = f->handover->keeper_fd, sent = 0, got = -1;
	struct keeper_reply reply;

	(void)argument;
	for (int i = 0; i < 20000; i++)
		sent += keeper_wire_send(fd, &request, sizeof(request), -1, 0) == 0;
	while (!keeper_wire_receive(fd, &reply, sizeof(reply), MSG_DONTWAIT, &got))
		;
	tell(f, "flood %d\n", sent);
}

/* Parks so many descriptors without waiting for an answer, and dies. */
static void do_last_act(struct fake *f, const char *argument)
{
	struct keeper_request request = { .tag = 3, .op = KEEPER_PUT };

	for (int i = 0; i < atoi(argument); i++) {
		snprintf(request.name, sizeof(request.name), "late%d", i);
		if (keeper_wire_send(f->handover->keeper_fd, &request, sizeof(request),
				     f->handover->listen_fds[0], MSG_DONTWAIT) < 0)
			abort();
	}
	(void)raise(SIGKILL);
}

static void do_stop_keeper(struct fake *f, const char *argument)
{
	(void)argument;
	(void)kill(getppid(), SIGKILL); /* ours: PR_SET_PDEATHSIG says so to us */
	tell(f, "killed\n");
}

static const struct command commands[] = {
	{ "exit", do_exit },
	{ "hang", do_hang },
	{ "orphan", do_orphan },
	{ "child", do_child },
	{ "cgroup", do_cgroup },
	{ "ask", do_ask },
	{ "ask_stopped", do_ask_stopped },
	{ "put", do_put },
	{ "get", do_get },
	{ "drop", do_drop },
	{ "names", do_names },
	{ "fill", do_fill },
	{ "garbage", do_garbage },
	{ "deafen", do_deafen },
	{ "flood", do_flood },
	{ "last_act", do_last_act },
	{ "stop_keeper", do_stop_keeper },
};

static void command_run(struct fake *f, char *line)
{
	char *argument = strchr(line, ' ');

	if (argument)
		*argument++ = '\0';
	for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++) {
		if (!strcmp(commands[i].name, line)) {
			commands[i].run(f, argument ? argument : "");
			return;
		}
	}
	abort();
}

/* One line, byte by byte: what follows may be for the next engine. */
static void command_read(struct fake *f)
{
	char line[256];
	size_t bytes = 0;

	while (bytes < sizeof(line) - 1 && read(f->commands, line + bytes, 1) == 1) {
		if (line[bytes] == '\n') {
			line[bytes] = '\0';
			command_run(f, line);
			return;
		}
		bytes++;
	}
	abort();
}

static int descriptor_of(const char *variable)
{
	const char *text = getenv(variable);

	if (!text)
		abort();
	return atoi(text);
}

/* Tells of the signals as the keeper left them, after ours were set up: a test may stop us now. */
static void start_tell(struct fake *f, const struct config *config)
{
	struct timespec now;
	struct sigaction hangup, pipe_signal;
	sigset_t blocked, mask;

	sigemptyset(&mask);
	sigaddset(&mask, SIGTERM);
	sigaddset(&mask, SIGINT);
	(void)sigprocmask(SIG_BLOCK, &mask, &blocked); /* a valid mask */
	f->signals = signalfd(-1, &mask, SFD_CLOEXEC);
	(void)clock_gettime(CLOCK_MONOTONIC, &now); /* cannot fail */
	(void)sigaction(SIGHUP, NULL, &hangup);
	(void)sigaction(SIGPIPE, NULL, &pipe_signal);
	tell(f, "start %d %lld %u %s %s %s\n", getpid(),
	     (long long)now.tv_sec * 1000 + now.tv_nsec / 1000000, f->handover->uid_first,
	     config->instance,
	     sigismember(&blocked, SIGCHLD) || sigismember(&blocked, SIGTERM) ? "blocked" : "open",
	     hangup.sa_handler == SIG_DFL && pipe_signal.sa_handler == SIG_DFL ? "default" :
										 "ignored");
}

/* A mark that it was asked, beside the socket. */
int engine_sweep(const struct config *config, const struct engine_handover *handover)
{
	char path[160];
	FILE *mark;

	(void)handover;
	(void)snprintf(path, sizeof(path), "%s.swept", config->socket_path);
	mark = fopen(path, "w");
	return mark && fclose(mark) == 0 ? 0 : -1;
}

int engine_uninstall(const struct config *config, const struct engine_handover *handover)
{
	(void)config, (void)handover; /* it left nothing */
	return 0;
}

int engine_run(const struct config *config, const struct engine_handover *handover)
{
	struct fake f = {
		.handover = handover,
		.commands = descriptor_of("FAKE_COMMANDS"),
		.events = descriptor_of("FAKE_EVENTS"),
		.status = -1,
	};
	struct signalfd_siginfo info;

	start_tell(&f, config);
	if (config->ready_fd >= 0 && write(config->ready_fd, "ready\n", 6) != 6)
		abort();
	while (f.status < 0) {
		struct pollfd fds[] = {
			{ .fd = f.commands, .events = POLLIN },
			{ .fd = f.signals, .events = POLLIN },
		};

		if (poll(fds, 2, -1) < 0)
			abort();
		if (fds[1].revents && read(f.signals, &info, sizeof(info)) == sizeof(info)) {
			tell(&f, "stop %s\n", sigabbrev_np((int)info.ssi_signo));
			if (!f.hangs)
				f.status = 0;
		} else if (fds[0].revents) {
			command_read(&f);
		}
	}
	(void)close(f.signals); /* we end */
	return f.status;
}

/* It has no sandboxes. */
void sweep_kill(int cgroup_fd)
{
	(void)cgroup_fd;
}
