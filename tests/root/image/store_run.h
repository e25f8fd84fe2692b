/* Runs of dsec-store as the engine starts it, for tests of what its verbs do, leave and survive. */
#pragma once

#include <criterion/criterion.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backends/store/verify.h"
#include "tests/unit/store_place.h"

enum { TEXT_BYTES = 16 << 10 };

struct run {
	pid_t pid;
	int scratch_fd, status_fd;
	char scratch[64];
	bool traced;	  /* it stops where its program begins */
	int further_fd;	  /* what only its verb needs; 0: none */
	const char *disk; /* where its scratch is; NULL: /var/tmp */
};

static inline void run_start(struct run *run, const struct place_of *at, const char *const *words)
{
	const char *argv[16] = { "dsec-store", words[0], "1000000000", "0" };
	int ends[2];

	for (unsigned i = 1; words[i]; i++)
		argv[i + 3] = words[i];
	(void)snprintf(run->scratch, sizeof run->scratch, "%s/dsec-store-run.XXXXXX",
		       run->disk ? run->disk : "/var/tmp");
	cr_assert_not_null(mkdtemp(run->scratch));
	run->scratch_fd = open(run->scratch, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	cr_assert_eq(pipe2(ends, O_CLOEXEC), 0);
	run->pid = fork();
	cr_assert_geq(run->pid, 0);
	if (run->pid == 0) {
		int high = fcntl(run->scratch_fd, F_DUPFD, 20), images = fcntl(at->fd, F_DUPFD, 20);
		int further = run->further_fd ? fcntl(run->further_fd, F_DUPFD, 20) : -1;

		/* It does not outlive a test that fails. */
		if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || dup2(ends[1], IMAGE_FD_STATUS) < 0 ||
		    dup2(high, IMAGE_FD_SCRATCH) < 0 || dup2(images, IMAGE_FD_IMAGES) < 0 ||
		    (further >= 0 && dup2(further, IMAGE_FD_FURTHER) < 0))
			_exit(126);
		(void)close(high); /* it is at its place */
		(void)close(images);
		if (run->traced && ptrace(PTRACE_TRACEME, 0, NULL, NULL) < 0)
			_exit(126);
		(void)execv(getenv("DSEC_STORE"), (char *const *)argv);
		_exit(127);
	}
	(void)close(ends[1]); /* so that the pipe ends with it */
	run->status_fd = ends[0];
}

/* The last frame; its exit status. */
static inline int run_end(struct run *run, struct import_frame *ret)
{
	struct import_frame frame;
	int status;
	ssize_t n;

	memset(ret, 0, sizeof *ret);
	while ((n = read(run->status_fd, &frame, sizeof frame)) > 0)
		cr_assert_eq(import_frame_read(&frame, (size_t)n, ret), 0);
	(void)close(run->status_fd);
	cr_assert_eq(waitpid(run->pid, &status, 0), run->pid);
	cr_assert(WIFEXITED(status), "killed by signal %d", WTERMSIG(status));
	return WEXITSTATUS(status);
}

static inline void run_gone(struct run *run)
{
	folder_empty(run->scratch_fd);
	cr_assert_eq(rmdir(run->scratch), 0);
}

/* What a job left there. */
static inline void left_read(const struct run *run, const char *name, char ret[TEXT_BYTES])
{
	auto_close int fd = openat(run->scratch_fd, name, O_RDONLY);
	ssize_t n = fd < 0 ? -1 : read(fd, ret, TEXT_BYTES - 1);

	cr_assert_geq(n, 0, "%s", name);
	ret[n] = 0;
}

static inline void image_add(struct place_of *at, uint32_t from, const char *path)
{
	uint8_t manifest[1][DIGEST_BYTES];
	struct sealed sealed;
	struct raw raw;

	forty(&raw, from);
	cr_assert_eq(raw_seal(at, &raw, &sealed), 0);
	raw_free(&raw);
	memcpy(manifest[0], sealed.manifest, DIGEST_BYTES);
	image_make(at, manifest, 1, path);
}

/* Before or behind its calls, at the stop of that number. False: it had ended by itself. */
static inline bool run_kill(struct run *run, uint32_t stop)
{
	int status;

	cr_assert_eq(waitpid(run->pid, &status, 0), run->pid);
	cr_assert(WIFSTOPPED(status));
	cr_assert_eq(ptrace(PTRACE_SETOPTIONS, run->pid, NULL, PTRACE_O_EXITKILL), 0);
	for (uint32_t i = 0; i < stop && WIFSTOPPED(status); i++) {
		cr_assert_eq(ptrace(PTRACE_SYSCALL, run->pid, NULL, NULL), 0);
		cr_assert_eq(waitpid(run->pid, &status, __WALL), run->pid);
	}
	(void)close(run->status_fd); /* what it told counts no more */
	if (!WIFSTOPPED(status)) {
		cr_assert(WIFEXITED(status));
		cr_assert_eq(WEXITSTATUS(status), 0);
		return false;
	}
	cr_assert_eq(kill(run->pid, SIGKILL), 0);
	cr_assert_eq(waitpid(run->pid, &status, __WALL), run->pid);
	cr_assert(WIFSIGNALED(status));
	return true;
}

static inline int fault_count(void *owner, const struct verify_fault *fault)
{
	cr_log_warn("%s is %s: %s", fault->what, fault->how, fault->digest);
	++*(uint64_t *)owner;
	return 0;
}

/* What has a name is whole, wherever it is. */
static inline void all_check(struct place_of *at, const struct run *run)
{
	auto_free struct image_record *record = calloc(1, sizeof *record);
	auto_close int result = openat(run->scratch_fd, IMPORT_RESULT, O_RDONLY | O_CLOEXEC);
	uint64_t faults = 0;
	const struct verify_wish wish = { .fault = fault_count, .owner = &faults };
	struct verify_result verified;

	cr_assert(result < 0 || image_record_read(result, record) == 0);
	cr_assert_eq(store_open(at->fd, &at->store), 0);
	cr_assert_eq(store_verify(&at->store, &wish, &verified), 0);
	cr_assert_eq(faults, 0);
	store_close(&at->store);
}
