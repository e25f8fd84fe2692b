/*
 * What changes in a folder, until the engine has heard enough. Called for the verb watch. Must
 * hold: what could not be told in time is told as lost; a folder that goes ends it.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <sys/inotify.h>
#include <unistd.h>

#include "engine/base/cleanup.h"
#include "backends/guest/files/files.h"

enum {
	WATCHED = IN_CREATE | IN_MOVED_TO | IN_DELETE | IN_MOVED_FROM | IN_MODIFY | IN_CLOSE_WRITE |
		  IN_ATTRIB | IN_DELETE_SELF | IN_MOVE_SELF | IN_ONLYDIR,
	GONE = IN_DELETE_SELF | IN_MOVE_SELF | IN_UNMOUNT | IN_IGNORED,
};

static uint32_t change_of(uint32_t mask)
{
	uint32_t change = 0;

	if (mask & (IN_CREATE | IN_MOVED_TO))
		change |= DSEC_FILE_CHANGE_CREATED;
	if (mask & (IN_DELETE | IN_MOVED_FROM))
		change |= DSEC_FILE_CHANGE_REMOVED;
	if (mask & IN_MODIFY)
		change |= DSEC_FILE_CHANGE_CONTENT;
	if (mask & IN_CLOSE_WRITE)
		change |= DSEC_FILE_CHANGE_CLOSED;
	if (mask & IN_ATTRIB)
		change |= DSEC_FILE_CHANGE_ATTRIBUTES;
	if (mask & IN_Q_OVERFLOW)
		change |= DSEC_FILE_CHANGE_LOST;
	if (mask & GONE)
		change |= DSEC_FILE_CHANGE_GONE;
	return change;
}

static int change_tell(struct files *f, uint32_t mask, const char *name)
{
	struct guest_row row = {
		.change = change_of(mask),
		.type = mask & IN_ISDIR ? DSEC_FILE_TYPE_FOLDER : DSEC_FILE_TYPE_OTHER,
	};

	f->done.entries++;
	return talk_row(f, &row, name, NULL);
}

/* 1: the folder has gone. */
static int changes_tell(struct files *f, int watch_fd)
{
	ssize_t bytes = read(watch_fd, f->buffer, FILES_BUFFER_BYTES);
	int r = bytes < 0 ? -errno : 0;

	for (ssize_t at = 0; r == 0 && at < bytes;) {
		const struct inotify_event *event = (const void *)(f->buffer + at);

		r = change_tell(f, event->mask, event->len ? event->name : "");
		if (r == 0 && event->mask & GONE)
			r = 1;
		at += (ssize_t)(sizeof *event + event->len);
	}
	return r;
}

static int changes_await(struct files *f, int watch_fd)
{
	struct pollfd ends[] = {
		{ .fd = watch_fd, .events = POLLIN },
		{ .fd = f->control_fd, .events = POLLRDHUP },
	};
	int r = 0;

	while (r == 0) {
		if (poll(ends, 2, -1) < 0 && errno != EINTR)
			return -errno;
		if (ends[1].revents)
			return -ECANCELED;
		if (ends[0].revents)
			r = changes_tell(f, watch_fd);
	}
	return r < 0 ? r : 0;
}

int verb_watch(struct files *f)
{
	int fd = path_open(f, f->path, O_PATH | O_DIRECTORY);
	auto_close int watch_fd = -1;
	struct guest_row begins = { 0 };
	char path[32];
	int r;

	if (fd < 0)
		return files_failed(f, GUEST_STEP_OPEN, fd);
	watch_fd = inotify_init1(IN_CLOEXEC);
	/* This very folder, whatever has its name by now. */
	(void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	r = watch_fd < 0 || inotify_add_watch(watch_fd, path, WATCHED) < 0 ? -errno : 0;
	cleanup_close(&fd); /* who holds it does not hear that it goes */
	if (r < 0)
		return files_failed(f, GUEST_STEP_WATCH, r);
	r = talk_row(f, &begins, "", NULL);
	if (r == 0)
		r = changes_await(f, watch_fd);
	return r < 0 ? files_failed(f, GUEST_STEP_WATCH, r) : 0;
}
