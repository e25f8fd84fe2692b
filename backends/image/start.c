/*
 * Starting the programs that work on images, and reading what they tell. Called by the engine's
 * control thread. Must hold: between fork and exec system calls only, since the engine has other
 * threads; a program gets the descriptors of image.h and standard error, and ends when its parent
 * does.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backends/image.h"
#include "engine/base/cleanup.h"
#include "engine/base/exec_report.h"

enum { STAGE_FD_MIN = 64, NUMBER_BYTES = 24 };

struct start {
	const struct image_start *wanted;
	char *const *argv;
	int report_fd;
	pid_t parent;
};

/* Out of the way of the numbers that are to be taken; -1: /dev/null. */
static int stage(int fd, int null)
{
	return fcntl(fd >= 0 ? fd : null, F_DUPFD_CLOEXEC, STAGE_FD_MIN);
}

static int fds_place(const struct image_start *wanted)
{
	const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	const int from[IMAGE_FD_COUNT] = {
		[IMAGE_FD_STREAM] = stage(wanted->stream_fd, null),
		[IMAGE_FD_STATUS] = stage(wanted->status_fd, null),
		[IMAGE_FD_SCRATCH] = stage(wanted->scratch_fd, null),
		[IMAGE_FD_IMAGES] = stage(wanted->images_fd, null),
		[IMAGE_FD_FURTHER] = stage(wanted->further_fd, null),
	};

	for (int to = 0; to < IMAGE_FD_COUNT; to++)
		if (to != STDERR_FILENO && (from[to] < 0 || dup2(from[to], to) < 0))
			return -1;
	return (int)syscall(SYS_close_range, IMAGE_FD_COUNT, ~0u, 4 /* CLOSE_RANGE_CLOEXEC */);
}

/* The child. exec closes the report. */
static void start_child(const struct start *start)
{
	char memory[] = IMAGE_PROGRAM_ENVIRONMENT, *const environment[] = { memory, NULL };
	sigset_t none;
	int32_t error;
	int report = stage(start->report_fd, -1);

	sigemptyset(&none);
	if (report >= 0 && prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) == 0 &&
	    getppid() == start->parent && sigprocmask(SIG_SETMASK, &none, NULL) == 0 &&
	    fds_place(start->wanted) == 0)
		(void)execve(start->wanted->program_path, start->argv, environment);
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
	pid = start_clone(start->wanted->group_fd);
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

static void number_print(uint64_t number, char ret[static NUMBER_BYTES])
{
	(void)snprintf(ret, NUMBER_BYTES, "%llu", (unsigned long long)number); /* fits */
}

int import_start(const struct image_start *wanted, enum import_kind kind, const char *tag,
		 pid_t *ret_pid)
{
	const uint64_t numbers[] = { kind,
				     wanted->limits.bytes_max,
				     wanted->limits.free_min,
				     wanted->limits.files_max,
				     wanted->limits.layers_max,
				     wanted->flags };
	char name[] = "dsec-import", text[6][NUMBER_BYTES], own_tag[IMPORT_TAG_BYTES];
	char *const argv[] = { name,	text[0], text[1], text[2], text[3],
			       text[4], text[5], own_tag, NULL };
	struct start start = { .wanted = wanted, .argv = argv };

	if (snprintf(own_tag, sizeof own_tag, "%s", tag) >= (int)sizeof own_tag)
		return -EINVAL;
	for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
		number_print(numbers[i], text[i]);
	return start_fork(&start, ret_pid);
}

/* Arguments are shown to all who see the process. Sealed: nobody writes to it any more. */
static int words_file(const struct store_words *words, int *ret_fd)
{
	const char *end = words->texts;
	auto_close int fd = memfd_create("words", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (fd < 0)
		return -errno;
	for (uint32_t i = 0; i < words->text_count; i++)
		end += strlen(end) + 1;
	for (const char *at = words->texts; at < end;) {
		ssize_t n = write(fd, at, (size_t)(end - at));

		if (n < 0)
			return -errno;
		at += n;
	}
	if (fcntl(fd, F_ADD_SEALS, STORE_WORDS_SEALS) < 0)
		return -errno;
	*ret_fd = take_fd(&fd);
	return 0;
}

int store_start(const struct image_start *wanted, const struct store_words *words, pid_t *ret_pid)
{
	struct image_start with_words = *wanted;
	char name[] = "dsec-store", text[3][NUMBER_BYTES];
	char *const argv[] = { name,	(char *)words->verb, text[0], text[1],
			       text[2], (char *)words->name, NULL }; /* execve() changes none */
	struct start start = { .wanted = &with_words, .argv = argv };
	int r = words->text_count ? words_file(words, &with_words.stream_fd) : 0;

	if (r < 0)
		return r;
	number_print(wanted->limits.bytes_max, text[0]);
	number_print(wanted->limits.free_min, text[1]);
	number_print(wanted->flags, text[2]);
	r = start_fork(&start, ret_pid);
	if (with_words.stream_fd != wanted->stream_fd)
		cleanup_close(&with_words.stream_fd);
	return r;
}

int import_sweep(const char *program_path, int directory_fd, pid_t *ret_pid)
{
	char name[] = "dsec-import", verb[] = "sweep";
	char *const argv[] = { name, verb, NULL };
	const struct image_start wanted = { .program_path = program_path,
					    .stream_fd = -1,
					    .status_fd = -1,
					    .scratch_fd = directory_fd,
					    .images_fd = -1,
					    .further_fd = -1,
					    .group_fd = -1 };
	struct start start = { .wanted = &wanted, .argv = argv };

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
