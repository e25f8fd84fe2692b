/*
 * Plays the engine for launcher tests: a vault, a cgroup folder, an EROFS image with a probe
 * program, workers, and the parent that reaps. Each test gets all of it fresh, and fails when it
 * leaves a process, a cgroup or a mount behind.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "backends/container/launch.h"
#include "backends/container/vault.h"

enum {
	HARNESS_WORKERS_MAX = 8,
	HARNESS_OUTPUT_BYTES = 16 * 1024,
	HARNESS_IMAGE = 7,
};

struct harness_options {
	const char *image;	   /* another image than the standard one */
	unsigned workers;	   /* 0: one */
	unsigned processes_max;	   /* of a slot */
	unsigned limit_ms;	   /* of a request; 0: 2,000 */
	unsigned disk_mib, inodes; /* 0: 16 MiB, 4,096 */
};

struct harness {
	struct harness_options options;
	struct vault vault;
	int cgroup_fd, init_fd, helper_fd, proc_fd;
	char cgroup_path[128];
	int channels[HARNESS_WORKERS_MAX];
	pid_t workers[HARNESS_WORKERS_MAX];
	unsigned worker_count;
	uint32_t uid_base; /* of slot 0; each slot has the next 65,536 */
	uint64_t tag;
	int walls_fd;			   /* the sheet that spawns and execs get; 0: none */
	struct launch_reply spawned;	   /* of the last box_start() */
	char output[HARNESS_OUTPUT_BYTES]; /* of the last harness_exec() */
};

/* What goes with a request. */
struct parcel {
	const char *const *argv, *const *envp;
	const char *cwd;
	const int *fds;
	unsigned fd_count;
	const struct launch_limit *limits; /* request.limit_count of them */
};

struct exec_options {
	const char *user, *cwd;
	const char *const *envp;
	uint32_t leaf, flags;
	unsigned worker;  /* that is asked */
	int input_fd;	  /* 0: none */
	bool leave_alone; /* do not wait: the caller reaps reply.pid */
	int output_fd;	  /* of one that is left alone; 0: /dev/null */
	const struct launch_limit *limits;
	uint32_t limit_count;
	int *ret_tty; /* on a terminal, left alone: its master; -1: none came */
	uint16_t rows, columns;
};

/* A sandbox: PID 1, 0 where it could not be made. */
struct box {
	pid_t pid;
	uint32_t slot;
};

/* A test's body. `expect` notes a failure and goes on. */
struct harness_test {
	const char *name;
	void (*run)(struct harness *h);
	struct harness_options options;
};

bool expect_at(bool holds, const char *file, int line, const char *what);
#define expect(condition) expect_at((condition), __FILE__, __LINE__, #condition)
void note(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Runs all tests, or the one named on the command line; main() returns what it returns. */
int harness_main(int argc, char **argv, const struct harness_test *tests, size_t count);

/* One request to a worker, and its reply; a lost worker gives error EPIPE. */
struct launch_reply harness_ask(struct harness *h, unsigned worker, struct launch_request *request,
				const struct parcel *parcel);
/* The same in two halves. */
bool harness_send(struct harness *h, unsigned worker, struct launch_request *request,
		  const struct parcel *parcel);
struct launch_reply harness_receive(struct harness *h, unsigned worker);
/* The same, with the descriptor that came with it; -1: none. */
struct launch_reply harness_receive_fd(struct harness *h, unsigned worker, int *ret_fd);

/* A request for this slot with everything a build needs. */
struct launch_request harness_request(const struct harness *h, uint32_t op, uint32_t slot);
struct launch_reply harness_op(struct harness *h, uint32_t op, uint32_t slot);

/* A new sandbox, or a noted failure. With LAUNCH_PRIVATE in the network of the slot's number. */
struct box box_start(struct harness *h, uint32_t slot, uint32_t flags);
void box_stop(const struct box *box);
void box_end(struct harness *h, const struct box *box); /* and drop the slot and its network */
bool network_is_there(const struct harness *h, uint32_t slot);

/* Runs argv in the sandbox; its wait status, or -1 with *ret_reply's error. Output in h->output. */
int harness_exec(struct harness *h, const struct box *box, const char *const *argv,
		 const struct exec_options *options, struct launch_reply *ret_reply);
/* /bin/probe with one or two words; true when it exits with 0. Notes its output otherwise. */
bool probe(struct harness *h, const struct box *box, const char *what, const char *argument);

int child_reap(pid_t pid);			/* its wait status */
bool child_reap_within(pid_t pid, unsigned ms); /* whether it ended in time */
void worker_kill(struct harness *h, unsigned worker);
bool worker_start_another(struct harness *h, unsigned worker);
long text_read_at(int dir_fd, const char *path, char *text, size_t size);
void sleep_ms(unsigned ms); /* a bound of a poll, never a synchronisation */
