/*
 * Scratch directories of runs. Called on the control thread. Trees may be large, so a process
 * removes them. Must hold: a folder is swept by others only when no engine has locked it, and a
 * lock is held from before anything is made in it.
 */
#include "engine/image/scratch.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backends/image.h"
#include "engine/base/cleanup.h"
#include "engine/base/log.h"
#include "engine/config.h"
#include "engine/control.h"

#define FOLDER ".import" /* no image is named so: no part of a name begins with a dot */

enum { OWN_TRIES = 16 };

static int directory_open(int parent_fd, const char *name)
{
	int fd = openat(parent_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	return fd < 0 ? -errno : fd;
}

/* ---- the end of one ---- */

static void scratch_end(struct scratch *scratch)
{
	struct scratches *scratches = control_scratches(scratch->control);

	if (unlinkat(scratch->parent_fd, scratch->name, AT_REMOVEDIR) < 0)
		log_error("scratch is left name=\"%s\" err=%s, the next engine sweeps it",
			  scratch->name, strerror(errno));
	cleanup_close(&scratch->fd);
	scratch->fd = -1;
	scratch->gone(scratch);
	if (!--scratches->live)
		scratches_close(scratches);
}

static void scratch_swept(struct io_op *op, int res)
{
	struct scratch *scratch = container_of(op, struct scratch, op);

	if (res < 0 || scratch->info.si_code != CLD_EXITED || scratch->info.si_status)
		log_error("scratch sweep failed name=\"%s\"", scratch->name);
	control_scratches(scratch->control)->sweeping--;
	scratch_end(scratch);
}

void scratch_sweep(struct scratch *scratch, struct scratches *scratches)
{
	pid_t pid;
	int r = import_sweep(control_config(scratch->control)->import_path, scratch->fd, &pid);

	if (r < 0) {
		log_error("scratch sweep cannot start err=%s", strerror(-r));
		scratch_end(scratch);
		return;
	}
	scratches->sweeping++;
	scratch->op.done = scratch_swept;
	io_wait_pid(control_io(scratch->control), &scratch->op, pid, &scratch->info);
}

/* ---- ours ---- */

static int all_open(struct control *control, struct scratches *s)
{
	int images;

	if (s->all_fd >= 0)
		return 0;
	images = open(control_config(control)->images_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (images < 0)
		return -errno;
	auto_close int images_fd = images;
	if (mkdirat(images_fd, FOLDER, 0700) < 0 && errno != EEXIST)
		return -errno;
	s->all_fd = directory_open(images_fd, FOLDER);
	return s->all_fd < 0 ? s->all_fd : 0;
}

/* Between making and locking it another engine may take it for a dead one's. */
static int own_make(struct scratches *s, const char *name)
{
	for (int tries = 0; tries < OWN_TRIES; tries++) {
		struct stat st;

		if (mkdirat(s->all_fd, name, 0700) < 0 && errno != EEXIST)
			return -errno;
		auto_close int fd = directory_open(s->all_fd, name);
		if (fd == -ENOENT)
			continue;
		if (fd < 0)
			return fd;
		if (flock(fd, LOCK_EX | LOCK_NB) == 0 && fstat(fd, &st) == 0 && st.st_nlink) {
			s->own_fd = take_fd(&fd);
			return 0;
		}
	}
	return -EBUSY;
}

static int one_make(struct scratches *s, struct scratch *scratch)
{
	(void)snprintf(scratch->name, sizeof scratch->name, "%llu", (unsigned long long)++s->made);
	if (mkdirat(s->own_fd, scratch->name, 0700) < 0)
		return -errno;
	scratch->fd = directory_open(s->own_fd, scratch->name);
	return scratch->fd < 0 ? scratch->fd : 0;
}

int scratch_make(struct control *control, struct scratches *s, struct scratch *ret)
{
	int r = all_open(control, s);

	/* Not the name of a dead engine of this instance: its folder may be there still. */
	if (r >= 0 && s->own_fd < 0) {
		(void)snprintf(s->own_name, sizeof s->own_name, "%s-%d",
			       control_config(control)->instance, (int)getpid());
		r = own_make(s, s->own_name);
	}
	*ret = (struct scratch){
		.control = control, .parent_fd = s->own_fd, .owner = ret->owner, .gone = ret->gone
	};
	if (r >= 0)
		r = one_make(s, ret);
	if (r >= 0)
		s->live++;
	else if (!s->live)
		scratches_close(s);
	return r;
}

/* ---- dead engines' ---- */

static void dead_gone(struct scratch *scratch)
{
	free(scratch);
}

static void dead_sweep(struct control *control, struct scratches *s, const char *name)
{
	struct scratch *scratch;
	int fd = directory_open(s->all_fd, name);

	if (fd < 0)
		return;
	scratch = flock(fd, LOCK_EX | LOCK_NB) == 0 ? calloc(1, sizeof *scratch) : NULL;
	if (!scratch || strlen(name) >= sizeof scratch->name) {
		free(scratch);
		(void)close(fd); /* somebody's, or for another time */
		return;
	}
	log_info("sweeping what a dead engine's imports left name=\"%s\"", name);
	scratch->control = control;
	memcpy(scratch->name, name, strlen(name) + 1);
	scratch->parent_fd = s->all_fd;
	scratch->fd = fd;
	scratch->gone = dead_gone;
	s->live++;
	scratch_sweep(scratch, s);
}

void scratches_open(struct control *control, struct scratches *s)
{
	char path[4096];
	const struct dirent *entry;
	DIR *dir;

	*s = (struct scratches){ .all_fd = -1, .own_fd = -1 };
	if (snprintf(path, sizeof path, "%s/" FOLDER, control_config(control)->images_path) >=
	    (int)sizeof path)
		return;
	dir = opendir(path);
	if (!dir || all_open(control, s) < 0) {
		if (dir)
			(void)closedir(dir); /* was only read */
		return;
	}
	while ((entry = readdir(dir)))
		if (entry->d_name[0] != '.')
			dead_sweep(control, s, entry->d_name);
	(void)closedir(dir); /* was only read */
	if (!s->live)
		scratches_close(s);
}

void scratches_close(struct scratches *s)
{
	if (s->own_fd >= 0 && unlinkat(s->all_fd, s->own_name, AT_REMOVEDIR) < 0)
		log_error("scratch is left err=%s, the next engine sweeps it", strerror(errno));
	cleanup_close(&s->own_fd);
	cleanup_close(&s->all_fd);
	s->own_fd = s->all_fd = -1;
}
