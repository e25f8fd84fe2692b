/*
 * Starting the importer, and reading what it tells. Called by the engine's control thread. Must
 * hold: between fork and exec system calls only, since the engine has other threads; the program
 * gets the descriptors of import.h and standard error, and ends when its parent does.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backends/image/import.h"
#include "engine/base/cleanup.h"
#include "engine/base/exec_report.h"

enum { STAGE_FD_MIN = 64 };

struct start {
	const char *program;
	char *const *argv;
	int stream_fd, status_fd, scratch_fd, report_fd; /* stream, status: -1: /dev/null */
	int group_fd;					 /* -1: where the engine is */
	pid_t parent;
};

static int stage(int fd)
{
	return fcntl(fd, F_DUPFD_CLOEXEC, STAGE_FD_MIN);
}

/* The child. exec closes the report. */
static void start_child(const struct start *start)
{
	static char *const environment[] = { NULL };
	sigset_t none;
	int32_t error;
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	int stream = stage(start->stream_fd >= 0 ? start->stream_fd : null);
	int status = stage(start->status_fd >= 0 ? start->status_fd : null);
	int scratch = stage(start->scratch_fd), report = stage(start->report_fd);

	sigemptyset(&none);
	if (stream >= 0 && status >= 0 && scratch >= 0 && report >= 0 &&
	    prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) == 0 && getppid() == start->parent &&
	    sigprocmask(SIG_SETMASK, &none, NULL) == 0 && dup2(stream, IMPORT_FD_STREAM) >= 0 &&
	    dup2(status, IMPORT_FD_STATUS) >= 0 && dup2(scratch, IMPORT_FD_SCRATCH) >= 0 &&
	    syscall(SYS_close_range, IMPORT_FD_COUNT, ~0u, 4 /* CLOSE_RANGE_CLOEXEC */) == 0)
		(void)execve(start->program, start->argv, environment);
	error = errno;
	(void)!write(report, &error, sizeof error); /* or it is a crash */
	_exit(127);
}

/* As fork(), and where it is born is said. No handler of the C library runs. */
static pid_t start_clone(int group_fd)
{
	struct clone_args args = { .exit_signal = SIGCHLD };

	if (group_fd >= 0) {
		args.flags = CLONE_INTO_CGROUP;
		args.cgroup = (uint64_t)group_fd;
	}
	return (pid_t)syscall(SYS_clone3, &args, sizeof args);
}

static int start_fork(struct start *start, pid_t *ret_pid)
{
	int ends[2], r;
	pid_t pid;

	if (pipe2(ends, O_CLOEXEC) < 0)
		return -errno;
	auto_close int report = ends[0];
	auto_close int its = ends[1];

	start->report_fd = its;
	start->parent = getpid();
	pid = start_clone(start->group_fd);
	if (pid < 0)
		return -errno;
	if (pid == 0)
		start_child(start);
	(void)close(take_fd(&its)); /* so that exec ends the report */
	r = exec_report_wait(report, pid);
	if (r == 0)
		*ret_pid = pid;
	return r;
}

int import_start(const struct import_options *o, pid_t *ret_pid)
{
	char name[] = "dsec-import", text[5][24], tag[IMPORT_TAG_BYTES];
	char *const argv[] = { name, text[0], text[1], text[2], text[3], text[4], tag, NULL };
	struct start start = { .program = o->program_path,
			       .argv = argv,
			       .stream_fd = o->stream_fd,
			       .status_fd = o->status_fd,
			       .scratch_fd = o->scratch_fd,
			       .group_fd = o->group_fd };

	if (snprintf(tag, sizeof tag, "%s", o->tag) >= (int)sizeof tag)
		return -EINVAL;
	(void)snprintf(text[0], sizeof text[0], "%u", o->kind);
	(void)snprintf(text[1], sizeof text[1], "%llu", (unsigned long long)o->limits.bytes_max);
	(void)snprintf(text[2], sizeof text[2], "%llu", (unsigned long long)o->limits.free_min);
	(void)snprintf(text[3], sizeof text[3], "%u", o->limits.files_max);
	(void)snprintf(text[4], sizeof text[4], "%u", o->limits.layers_max);
	return start_fork(&start, ret_pid);
}

int import_sweep(const char *program_path, int directory_fd, pid_t *ret_pid)
{
	char name[] = "dsec-import", verb[] = "sweep";
	char *const argv[] = { name, verb, NULL };
	struct start start = { .program = program_path,
			       .argv = argv,
			       .stream_fd = -1,
			       .status_fd = -1,
			       .scratch_fd = directory_fd,
			       .group_fd = -1 };

	return start_fork(&start, ret_pid);
}

/* ---- frames ---- */

static int text_check(const char *text, size_t bytes)
{
	const char *end = memchr(text, 0, bytes);

	if (!end)
		return -EPROTO;
	for (; text < end; text++)
		if ((unsigned char)*text < 32 || *text == 127)
			return -EPROTO;
	return 0;
}

int import_frame_read(const void *bytes, size_t count, struct import_frame *ret)
{
	struct import_frame frame;

	if (count != sizeof frame)
		return -EPROTO;
	memcpy(&frame, bytes, sizeof frame);
	if (frame.kind < IMPORT_PROGRESS || frame.kind > IMPORT_FAILED ||
	    text_check(frame.step, sizeof frame.step) < 0 ||
	    text_check(frame.reason, sizeof frame.reason) < 0 ||
	    text_check(frame.name, sizeof frame.name) < 0 ||
	    text_check(frame.digest, sizeof frame.digest) < 0 ||
	    (frame.kind == IMPORT_FAILED && (frame.error <= 0 || frame.error >= 4096)))
		return -EPROTO;
	*ret = frame;
	return 0;
}
