/*
 * One operation from its request to its answer. Called by main(), and by tests with a root of their
 * own.
 */
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "backends/guest/files/files.h"

static int verb_run(struct files *f)
{
	switch (f->ask.verb) {
	case DSEC_FILE_READ:
		return f->ask.flags & DSEC_FILE_TAR ? verb_tar_out(f) : verb_read(f);
	case DSEC_FILE_WRITE:
		if (f->ask.flags & DSEC_FILE_TAR)
			return verb_tar_in(f);
		return f->ask.flags & DSEC_FILE_APPEND ? verb_append(f) : verb_write(f);
	case DSEC_FILE_STAT:
		return verb_stat(f);
	case DSEC_FILE_LIST:
		return verb_list(f);
	case DSEC_FILE_MKDIR:
		return verb_mkdir(f);
	case DSEC_FILE_REMOVE:
		return verb_remove(f);
	case DSEC_FILE_RENAME:
		return verb_rename(f);
	case DSEC_FILE_WATCH:
		return verb_watch(f);
	default:
		return files_failed(f, GUEST_STEP_ASK, -EOPNOTSUPP);
	}
}

int files_serve(int root_fd, int in_fd, int out_fd, int control_fd)
{
	struct files f = {
		.root_fd = root_fd,
		.in_fd = in_fd,
		.out_fd = out_fd,
		.control_fd = control_fd,
		.buffer = malloc(FILES_BUFFER_BYTES),
	};
	int r = f.buffer ? talk_ask(&f) : -ENOMEM;

	r = r < 0 ? files_failed(&f, GUEST_STEP_ASK, r) : verb_run(&f);
	/* So that whoever writes sees that nobody reads, and whoever reads its end. */
	(void)close(in_fd);
	(void)close(out_fd);
	r = r == -ECANCELED ? r : talk_done(&f, r);
	free(f.path);
	free(f.to);
	free(f.buffer);
	return r < 0;
}
