/*
 * Runs on the control thread: admission, the process, its end, the sweep. Called by job_run.c, and
 * by control.c at the start and the end. Must hold: whatever happens to the process, its scratch is
 * swept and gone() called once; nothing of it lives when ended() is called.
 */
#include "engine/image/run.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statfs.h>
#include <unistd.h>

#include "engine/base/cleanup.h"
#include "engine/base/log.h"
#include "engine/config.h"
#include "engine/control.h"
#include "engine/image/image_drop.h"
#include "engine/shard.h"

/* ---- the end ---- */

/* What of it is left dies now. */
static void group_drop(struct image_run *run)
{
	int r;

	if (run->group_fd < 0)
		return;
	r = import_group_remove(control_cgroup(run->control), run->group, run->group_fd);
	if (r < 0)
		log_error("image group stays number=%llu err=%s, continuing",
			  (unsigned long long)run->group, strerror(-r));
	cleanup_close(&run->group_fd);
	run->group_fd = -1;
}

void image_run_kill(struct image_run *run)
{
	if (run->pid > 0)
		import_group_kill(run->group_fd);
}

static void run_swept(struct scratch *scratch)
{
	struct image_run *run = scratch->owner;
	struct image_run **at = &control_image_runs(scratch->control)->live;

	while (*at != run)
		at = &(*at)->next;
	*at = run->next;
	run->gone(run);
}

static void run_reaped(struct io_op *op, int res)
{
	struct image_run *run = container_of(op, struct image_run, op);

	run->pid = 0;
	group_drop(run);
	if (run->is_late)
		run->result = -ETIMEDOUT;
	else if (res < 0 || run->info.si_code != CLD_EXITED)
		run->result = -EOWNERDEAD; /* its children may have told what came of that */
	else
		run->result = run->info.si_status ? -EPROTO : 0; /* it told why */
	run->ended(run);
	scratch_sweep(&run->scratch, control_scratches(run->control));
}

/* ---- the beginning ---- */

/* What of the disk must stay free: the rest above the mark. As df counts it. */
static uint64_t disk_reserve(const struct config *config, const struct statfs *fs)
{
	uint64_t blocks = fs->f_blocks - fs->f_bfree + fs->f_bavail;

	return blocks / 100 * (100 - config->images_full_percent) * (uint64_t)fs->f_bsize;
}

/* Of several tenants each may have one: a slow one keeps nobody else waiting. */
static bool may_begin(const struct image_runs *runs, const struct image_run *run, bool is_alone)
{
	uint32_t count = 0;

	for (const struct image_run *one = runs->live; one; one = one->next)
		count += one->tenant == run->tenant;
	return count < (is_alone || !run->tenant ? IMAGE_RUNS_MAX : 1);
}

static int run_admit(struct image_run *run, int images_fd, uint64_t *ret_free_min)
{
	const struct image_runs *runs = control_image_runs(run->control);
	struct statfs fs;

	run->step = "stop";
	if (runs->stopping)
		return -ECANCELED;
	run->step = "imports_max";
	if (!may_begin(runs, run, control_config(run->control)->tenant_count < 2))
		return -EAGAIN;
	run->step = "images";
	if (images_fd < 0)
		return images_fd;
	if (fstatfs(images_fd, &fs) < 0)
		return -errno;
	*ret_free_min = disk_reserve(control_config(run->control), &fs);
	run->step = "disk";
	return (uint64_t)fs.f_bavail * (uint64_t)fs.f_bsize < *ret_free_min ? -ENOSPC : 0;
}

static int run_launch(struct image_run *run, struct image_run_place *place)
{
	int r;

	run->step = "cgroup";
	run->group = ++control_image_runs(run->control)->groups_made;
	r = import_group_make(control_cgroup(run->control), run->group, &run->group_fd);
	if (r < 0)
		return r;
	place->group_fd = run->group_fd;
	place->scratch_fd = run->scratch.fd;
	run->step = "start";
	r = run->start(run, place, &run->pid);
	if (r < 0)
		group_drop(run);
	return r;
}

int image_run_begin(struct image_run *run)
{
	struct image_runs *runs = control_image_runs(run->control);
	auto_close int images_fd =
		open(control_config(run->control)->images_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct image_run_place place = { .images_fd = images_fd < 0 ? -errno : images_fd };
	int r = run_admit(run, place.images_fd, &place.free_min);

	run->group_fd = -1;
	if (r < 0)
		return r;
	run->step = "images";
	run->scratch.owner = run;
	run->scratch.gone = run_swept;
	r = scratch_make(run->control, &runs->scratches, &run->scratch);
	if (r < 0)
		return r;
	run->next = runs->live;
	runs->live = run;
	run->result = run_launch(run, &place);
	if (run->result < 0) {
		scratch_sweep(&run->scratch, &runs->scratches);
		return 0;
	}
	if (run->limit_s)
		run->until_ns =
			io_clock_ns(control_io(run->control)) + run->limit_s * 1000000000ull;
	run->op.done = run_reaped;
	io_wait_pid(control_io(run->control), &run->op, run->pid, &run->info);
	return 0;
}

/* ---- with the engine ---- */

void image_runs_open(struct control *control)
{
	images_drop_left(control_config(control));
	scratches_open(control, control_scratches(control));
}

void image_runs_tick(struct control *control)
{
	uint64_t now_ns = io_clock_ns(control_io(control));

	for (struct image_run *run = control_image_runs(control)->live; run; run = run->next) {
		if (!run->limit_s || run->is_late || run->pid <= 0 || now_ns < run->until_ns)
			continue;
		run->is_late = true;
		image_run_kill(run);
	}
}

void image_runs_stop(struct control *control)
{
	struct image_runs *runs = control_image_runs(control);

	runs->stopping = true;
	for (struct image_run *run = runs->live; run; run = run->next)
		image_run_kill(run);
}

bool image_runs_live(struct control *control)
{
	const struct image_runs *runs = control_image_runs(control);

	return runs->live || runs->scratches.sweeping;
}

void image_runs_close(struct control *control)
{
	scratches_close(control_scratches(control));
}
