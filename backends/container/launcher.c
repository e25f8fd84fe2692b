/*
 * Starts launcher workers. Called by the engine's control thread. Must hold: between fork and exec
 * system calls only, since the engine has other threads; the worker gets the descriptors of
 * launch.h and standard error, and nothing else.
 */
#include "backends/container/launcher.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backends/container/kernel.h"
#include "backends/container/launch.h"
#include "backends/container/vault.h"
#include "engine/base/cleanup.h"
#include "engine/base/exec_report.h"

enum {
	CHANNEL_BUFFER_BYTES = 2 * LAUNCH_PAYLOAD_BYTES_MAX,
	STAGE_FD_MIN = 64, /* above every target, so that none is overwritten before it was used */
	STAGE_PROGRAM = LAUNCH_FD_COUNT - LAUNCH_FD_CHANNEL,
	STAGE_REPORT,
	STAGE_COUNT,
};

struct start {
	int fds[STAGE_COUNT]; /* for LAUNCH_FD_CHANNEL and up, then the program and the report */
	char *argv[5], *envp[1];
};

/* The child. Whatever fails is reported as a number; exec closes the report. */
static void start_run(const struct start *start)
{
	int staged[STAGE_COUNT];
	int32_t error = 0;
	long r = 0;

	for (unsigned i = 0; i < STAGE_COUNT && r >= 0; i++) {
		r = KERNEL_CALL(SYS_fcntl, start->fds[i], F_DUPFD_CLOEXEC, STAGE_FD_MIN);
		staged[i] = (int)r;
	}
	for (unsigned i = 0; i < STAGE_PROGRAM && r >= 0; i++)
		r = kernel_dup3(staged[i], LAUNCH_FD_CHANNEL + (int)i, 0);
	if (r >= 0)
		r = kernel_close_range(LAUNCH_FD_COUNT, ~0u, 4 /* CLOSE_RANGE_CLOEXEC */);
	if (r >= 0)
		r = KERNEL_CALL(SYS_execveat, staged[STAGE_PROGRAM], (long)"", (long)start->argv,
				(long)start->envp, AT_EMPTY_PATH);
	error = (int32_t)-r;
	(void)kernel_write(start->fds[STAGE_REPORT], &error, sizeof error); /* or it is a crash */
	_exit(127);
}

static int channel_open(int ret_ends[2])
{
	const int bytes = CHANNEL_BUFFER_BYTES;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ret_ends) < 0)
		return -errno;
	/* Where the limit of the machine is lower, a packet of full size is refused when sent. */
	(void)setsockopt(ret_ends[0], SOL_SOCKET, SO_SNDBUFFORCE, &bytes, sizeof bytes);
	return 0;
}

static int start_fork(struct start *start, int report_fd, pid_t *ret_pid)
{
	pid_t pid = fork();
	int r;

	if (pid < 0)
		return -errno;
	if (pid == 0)
		start_run(start);
	(void)close(start->fds[STAGE_REPORT]); /* so that exec ends the report */
	start->fds[STAGE_REPORT] = -1;
	r = exec_report_wait(report_fd, pid);
	if (r == 0)
		*ret_pid = pid;
	return r;
}

int launcher_start(const struct launcher_options *o, int *ret_channel, pid_t *ret_pid)
{
	const struct in_addr resolver = { htonl(o->resolver) };
	char shard[16], parent[16], address[INET_ADDRSTRLEN] = "", name[] = "dsec-launcher";
	int ends[2], report[2], r;

	r = channel_open(ends);
	if (r < 0)
		return r;
	auto_close int mine = ends[0];
	auto_close int its = ends[1];

	if (pipe2(report, O_CLOEXEC) < 0)
		return -errno;
	auto_close int report_fd = report[0];
	struct start start = {
		.fds = { its, o->vault->mount_ns_fd, o->cgroup_fd, o->init_fd,
			 o->vault->network_ns_fd, o->proc_fd, o->helper_fd,
			 o->router_ns_fd ? o->router_ns_fd : o->vault->network_ns_fd, o->program_fd,
			 report[1] },
		.argv = { name, shard, parent, address, NULL },
		.envp = { NULL },
	};

	(void)snprintf(shard, sizeof shard, "%u", o->shard);
	(void)inet_ntop(AF_INET, &resolver, address, sizeof address); /* fits, as the others */
	(void)snprintf(parent, sizeof parent, "%d", getpid());
	r = start_fork(&start, report_fd, ret_pid);
	cleanup_close(&start.fds[STAGE_REPORT]);
	if (r == 0)
		*ret_channel = take_fd(&mine);
	return r;
}
