/*
 * A run: one process that makes or looks after images (dsec-import, dsec-store), with a scratch
 * directory and a control group of its own. The control thread's: job_run.c makes them for
 * requests.
 *
 *	image_run_begin() ── admitted, started ──► the process ends ── ended(): what it left in
 *	the scratch is taken ── swept ──► gone()
 */
#pragma once

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

#include "backends/image.h"
#include "engine/base/io.h"
#include "engine/image/scratch.h"

struct control;
struct tenant;

/*
 * At once, of one tenant alone; of several one each; as many of the engine's own. Each may use a
 * CPU and the disk's time.
 */
enum { IMAGE_RUNS_MAX = 2 };

/* What start() is given: all but these is its own affair. Descriptors stay the run's. */
struct image_run_place {
	uint64_t free_min; /* of the disk: below it a run ends */
	int images_fd, scratch_fd, group_fd;
};

struct image_run {
	struct control *control;
	const struct tenant *tenant; /* whose; NULL: the engine's own */
	/* A process, started there. -errno: none was. */
	int (*start)(struct image_run *run, const struct image_run_place *place, pid_t *ret_pid);
	/* It ended, and its scratch is still there. */
	void (*ended)(struct image_run *run);
	/* Nothing of it is left: the run may be freed. */
	void (*gone)(struct image_run *run);
	/*
	 * Before ended(): 0: it exited with 0; -EPROTO: with another status, and told why;
	 * -EOWNERDEAD: it was killed. Also -errno of what did not begin in `step`.
	 */
	int result;
	const char *step;
	uint32_t limit_s; /* it is killed then, and its result is -ETIMEDOUT; 0: never */
	struct scratch scratch;
	/* run.c's */
	struct image_run *next;
	uint64_t until_ns;
	bool is_late;
	int pid;	/* 0: none to kill */
	uint64_t group; /* the number of its control group */
	int group_fd;	/* -1: none */
	struct io_op op;
	siginfo_t info;
};

struct image_runs {
	struct image_run *live;
	struct scratches scratches;
	uint64_t groups_made;
	bool stopping;
};

/*
 * control, tenant and the calls are set, the rest is zero. 0: gone() will be called, and ended()
 * before it where a process was started. Else nothing began and none is called: -ECANCELED (the
 * engine stops), -EAGAIN (as many as may be), -ENOSPC (the disk is full to its mark), …, in `step`.
 */
int image_run_begin(struct image_run *run);
/* All of it at once: no child of it outlives the moment. Whatever it left is swept. */
void image_run_kill(struct image_run *run);

/* What dead engines left is swept. Never fails: without a place for them, runs do. */
void image_runs_open(struct control *control);
/* Now and then: what has had its time ends. */
void image_runs_tick(struct control *control);
/* The engine stops: all are killed, and no other begins. */
void image_runs_stop(struct control *control);
bool image_runs_live(struct control *control);
void image_runs_close(struct control *control);
