/*
 * A remote on 3FS, read by USRBIO. Called by remote.c on the shard's thread, and by two threads of
 * its own: an *asker*, which opens files and submits, and a *reaper*, which waits for completions,
 * for USRBIO has nothing that a ring can wait for. Both tell the shard by an eventfd.
 *
 * Must hold: the library and the mounted file system are entered by these two threads only, so what
 * hangs there holds them and never the shard; a flight is the shard's, the asker's or the reaper's,
 * as its state says, and its part of the shared buffer is its own until it came home; nothing waits
 * while the lock is held.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/limits.h>
#include <linux/openat2.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "engine/base/cleanup.h"
#include "engine/base/io.h"
#include "engine/serve/remote_class.h"
#include "engine/serve/remote_usrbio.h"
#include "engine/shard.h"

#define BLOBS "/blobs/sha256"

enum { FILES = 64, WAIT_S = 1, RETRY_MS = 50 };

enum state { FREE, ASKED, FLYING, HOME };

struct flight {
	enum state state;
	struct remote_read *read; /* the shard's. NULL: nobody waits for it any more */
	uint8_t blob[DIGEST_BYTES];
	uint64_t offset;
	uint32_t bytes, number;
	uint64_t ticket; /* what the library is told that it is, each time another */
	int result;
	struct file *file; /* the asker's */
};

/* The asker's, but for users and, with the lock, the blob. */
struct file {
	int fd; /* -1: none */
	uint32_t users;
	bool is_bad; /* a read failed, or had other bytes: it is opened anew */
	uint64_t used, bytes;
	uint8_t blob[DIGEST_BYTES];
};

/* Lives as long as the shard or one of the threads needs it. */
struct usrbio {
	struct remote remote;
	struct usrbio_api api;
	struct io_op home_op;
	int home_fd; /* an eventfd: flights are HOME */
	bool is_polling, is_closed;
	pthread_mutex_t lock;
	pthread_cond_t asked, flew; /* for the asker, for the reaper */
	uint32_t holders;	    /* the shard, the threads */
	bool stopping;
	uint32_t flying;
	struct flight flights[REMOTE_FLIGHTS];
	/* the asker's */
	struct hf3fs_iov iov;
	struct hf3fs_ior ior;
	bool has_ring;
	struct file files[FILES];
	uint64_t uses, tickets;
	char path[]; /* of the folder of blobs */
};

/* ---- ends ---- */

/* The last one; what is under way still keeps its ring and its memory. */
static void usrbio_free(struct usrbio *u)
{
	if (u->flying)
		return;
	for (struct file *f = u->files; f < u->files + FILES; f++) {
		if (f->fd < 0)
			continue;
		u->api.dereg_fd(f->fd);
		(void)close(f->fd); /* was only read */
	}
	if (u->has_ring) {
		u->api.iordestroy(&u->ior);
		u->api.iovdestroy(&u->iov);
	}
	(void)close(u->home_fd); /* an eventfd */
	pthread_cond_destroy(&u->asked);
	pthread_cond_destroy(&u->flew);
	pthread_mutex_destroy(&u->lock);
	free(u);
}

static void usrbio_let_go(struct usrbio *u)
{
	bool is_last;

	pthread_mutex_lock(&u->lock);
	is_last = --u->holders == 0;
	pthread_mutex_unlock(&u->lock);
	if (is_last)
		usrbio_free(u);
}

/* With the lock. */
static void flight_home(struct usrbio *u, struct flight *flight, int result)
{
	const uint64_t one = 1;

	u->flying -= flight->state == FLYING;
	if (flight->file && flight->state == FLYING && result < 0)
		flight->file->is_bad = true;
	if (flight->file)
		flight->file->users--;
	flight->file = NULL;
	flight->result = result;
	flight->state = HOME;
	(void)!write(u->home_fd, &one, sizeof one); /* a count: it cannot overflow */
}

/* ---- the asker ---- */

static int ring_make(struct usrbio *u)
{
	char mount_point[USRBIO_PATH_BYTES];
	int r;

	if (u->has_ring)
		return 0;
	r = u->api.extract_mount_point(mount_point, sizeof mount_point, u->path);
	if (r < 1 || r > (int)sizeof mount_point)
		return -ENODEV; /* it is not on 3FS, or not mounted now */
	r = u->api.iovcreate(&u->iov, mount_point, (size_t)REMOTE_FLIGHTS * REMOTE_BYTES_MAX, 0,
			     -1);
	if (r)
		return r < 0 ? r : -r;
	r = u->api.iorcreate4(&u->ior, mount_point, 2 * REMOTE_FLIGHTS, true, 0, 0, -1,
			      USRBIO_FORBID_READ_HOLES);
	if (r) {
		u->api.iovdestroy(&u->iov);
		return r < 0 ? r : -r;
	}
	u->has_ring = true;
	return 0;
}

static int file_open(struct usrbio *u, struct file *file, const uint8_t *blob)
{
	const struct open_how how = {
		.flags = O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC,
		.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS,
	};
	char name[DIGEST_HEX_BYTES];
	struct stat st;
	int r;

	auto_close int folder = open(u->path, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (folder < 0)
		return -errno;
	digest_hex(blob, name);
	auto_close int fd = (int)syscall(SYS_openat2, folder, name, &how, sizeof how);
	if (fd < 0 || fstat(fd, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode))
		return -EIO;
	r = u->api.reg_fd(fd, 0);
	if (r > 0)
		return -r;
	pthread_mutex_lock(&u->lock);
	file->fd = take_fd(&fd);
	file->bytes = (uint64_t)st.st_size;
	memcpy(file->blob, blob, DIGEST_BYTES);
	pthread_mutex_unlock(&u->lock);
	return 0;
}

/* With the lock, for users of others may go meanwhile. There are more than flights. */
static struct file *file_find(struct usrbio *u, const uint8_t *blob)
{
	struct file *oldest = NULL;

	for (struct file *f = u->files; f < u->files + FILES; f++) {
		if (f->fd >= 0 && !f->is_bad && memcmp(f->blob, blob, DIGEST_BYTES) == 0)
			return f;
		if (!f->users && (!oldest || f->used < oldest->used))
			oldest = f;
	}
	return oldest;
}

static int file_take(struct usrbio *u, struct flight *flight)
{
	struct file *file;
	bool is_open;

	pthread_mutex_lock(&u->lock);
	file = file_find(u, flight->blob);
	is_open = file->fd >= 0 && !file->is_bad &&
		  memcmp(file->blob, flight->blob, DIGEST_BYTES) == 0;
	file->is_bad = false;
	file->users++;
	file->used = ++u->uses;
	flight->file = file;
	pthread_mutex_unlock(&u->lock);
	if (is_open)
		return 0;
	if (file->fd >= 0) {
		u->api.dereg_fd(file->fd);
		(void)close(take_fd(&file->fd)); /* was only read */
	}
	return file_open(u, file, flight->blob);
}

/* 1: it flies. Else it is over, with that many bytes or -errno. */
static int flight_submit(struct usrbio *u, struct flight *flight, int *ret_result)
{
	int r = ring_make(u);

	*ret_result = r;
	if (r < 0)
		return 0;
	*ret_result = r = file_take(u, flight);
	if (r < 0 || flight->offset >= flight->file->bytes)
		return 0;
	if (flight->bytes > flight->file->bytes - flight->offset)
		flight->bytes = (uint32_t)(flight->file->bytes - flight->offset);
	pthread_mutex_lock(&u->lock);
	flight->state = FLYING;
	flight->ticket = ++u->tickets * REMOTE_FLIGHTS + flight->number;
	u->flying++;
	pthread_mutex_unlock(&u->lock);
	r = u->api.prep_io(&u->ior, &u->iov, true,
			   u->iov.base + (size_t)flight->number * REMOTE_BYTES_MAX,
			   flight->file->fd, flight->offset, flight->bytes,
			   (const void *)(uintptr_t)flight->ticket);
	*ret_result = r;
	if (r < 0)
		return 0;
	r = u->api.submit_ios(&u->ior);
	/* It is in the ring either way: what failed to be told of goes with the next. */
	pthread_mutex_lock(&u->lock);
	pthread_cond_signal(&u->flew);
	pthread_mutex_unlock(&u->lock);
	return 1;
}

static struct flight *flight_asked(struct usrbio *u)
{
	for (struct flight *f = u->flights; f < u->flights + REMOTE_FLIGHTS; f++)
		if (f->state == ASKED)
			return f;
	return NULL;
}

static void *asker_run(void *argument)
{
	struct usrbio *u = argument;
	struct flight *flight;
	int result;

	pthread_mutex_lock(&u->lock);
	while (!u->stopping) {
		flight = flight_asked(u);
		if (!flight) {
			pthread_cond_wait(&u->asked, &u->lock);
			continue;
		}
		pthread_mutex_unlock(&u->lock);
		if (flight_submit(u, flight, &result)) {
			pthread_mutex_lock(&u->lock);
			continue;
		}
		pthread_mutex_lock(&u->lock);
		flight_home(u, flight, result);
	}
	pthread_mutex_unlock(&u->lock);
	usrbio_let_go(u);
	return NULL;
}

/* ---- the reaper ---- */

/* What a library says of a flight that is none, or has ended, is ignored. */
static void completions_take(struct usrbio *u, const struct hf3fs_cqe *cqes, int count)
{
	for (int i = 0; i < count && i < REMOTE_FLIGHTS; i++) {
		const uint64_t ticket = (uintptr_t)cqes[i].userdata;
		struct flight *flight = &u->flights[ticket % REMOTE_FLIGHTS];
		int64_t result = cqes[i].result;

		if (flight->state != FLYING || flight->ticket != ticket)
			continue;
		if (result > flight->bytes || result < -4095)
			result = -EIO;
		flight_home(u, flight, (int)result);
	}
}

static void *reaper_run(void *argument)
{
	struct usrbio *u = argument;
	struct hf3fs_cqe cqes[REMOTE_FLIGHTS];
	struct timespec until;
	int r;

	pthread_mutex_lock(&u->lock);
	while (!u->stopping) {
		if (!u->flying) {
			pthread_cond_wait(&u->flew, &u->lock);
			continue;
		}
		pthread_mutex_unlock(&u->lock);
		(void)clock_gettime(CLOCK_REALTIME, &until); /* as the library counts */
		until.tv_sec += WAIT_S;
		r = u->api.wait_for_ios(&u->ior, cqes, REMOTE_FLIGHTS, 1, &until);
		pthread_mutex_lock(&u->lock);
		completions_take(u, cqes, r);
		if (r >= 0 || r == -ETIMEDOUT || u->stopping)
			continue;
		/* It does not wait: not at full speed. */
		(void)clock_gettime(CLOCK_REALTIME, &until);
		until.tv_nsec += RETRY_MS * 1000000L;
		until.tv_sec += until.tv_nsec / 1000000000L;
		until.tv_nsec %= 1000000000L;
		(void)pthread_cond_timedwait(&u->flew, &u->lock, &until);
	}
	pthread_mutex_unlock(&u->lock);
	usrbio_let_go(u);
	return NULL;
}

/* ---- the shard ---- */

static void flights_came(struct usrbio *u)
{
	uint64_t count;

	(void)!read(u->home_fd, &count, sizeof count); /* or nothing came since */
	for (struct flight *f = u->flights; f < u->flights + REMOTE_FLIGHTS; f++) {
		struct remote_read *read = f->read;

		pthread_mutex_lock(&u->lock);
		if (f->state != HOME) {
			pthread_mutex_unlock(&u->lock);
			continue;
		}
		pthread_mutex_unlock(&u->lock);
		if (read && f->result > 0)
			memcpy(read->buffer, u->iov.base + (size_t)f->number * REMOTE_BYTES_MAX,
			       (size_t)f->result);
		f->read = NULL;
		if (read)
			remote_end(&u->remote, read, f->result);
		pthread_mutex_lock(&u->lock);
		f->state = FREE;
		pthread_mutex_unlock(&u->lock);
	}
	remote_next(&u->remote);
}

static void home_told(struct io_op *op, int res)
{
	struct usrbio *u = container_of(op, struct usrbio, home_op);

	(void)res; /* whatever it is: looked at, and waited for again */
	u->is_polling = false;
	if (u->is_closed) {
		usrbio_let_go(u);
		return;
	}
	flights_came(u);
	u->is_polling = true;
	io_poll_once(u->remote.shard->io, &u->home_op, u->home_fd, POLLIN);
}

static struct usrbio *usrbio_of(struct remote *remote)
{
	return container_of(remote, struct usrbio, remote);
}

static int usrbio_start(struct remote *remote, struct remote_read *read)
{
	struct usrbio *u = usrbio_of(remote);
	struct flight *flight = u->flights;

	if (read->offset > (uint64_t)INT64_MAX - read->bytes)
		return -EINVAL;
	pthread_mutex_lock(&u->lock);
	while (flight < u->flights + REMOTE_FLIGHTS && flight->state != FREE)
		flight++;
	if (flight < u->flights + REMOTE_FLIGHTS) {
		*flight = (struct flight){
			.state = ASKED,
			.read = read,
			.offset = read->offset,
			.bytes = read->bytes,
			.number = (uint32_t)(flight - u->flights),
		};
		memcpy(flight->blob, read->blob, DIGEST_BYTES);
		read->flight = flight;
		pthread_cond_signal(&u->asked);
	}
	pthread_mutex_unlock(&u->lock);
	return read->flight ? 0 : -EAGAIN;
}

static void usrbio_drop(struct remote *remote, struct remote_read *read)
{
	struct flight *flight = read->flight;

	(void)remote;
	flight->read = NULL;
}

static void usrbio_doubt(struct remote *remote, const uint8_t *blob)
{
	struct usrbio *u = usrbio_of(remote);

	pthread_mutex_lock(&u->lock);
	for (struct file *f = u->files; f < u->files + FILES; f++)
		f->is_bad |= !memcmp(f->blob, blob, DIGEST_BYTES);
	pthread_mutex_unlock(&u->lock);
}

static void usrbio_close(struct remote *remote)
{
	struct usrbio *u = usrbio_of(remote);

	pthread_mutex_lock(&u->lock);
	u->stopping = true;
	pthread_cond_broadcast(&u->asked);
	pthread_cond_broadcast(&u->flew);
	pthread_mutex_unlock(&u->lock);
	u->is_closed = true;
	if (u->is_polling)
		io_cancel(remote->shard->io, &u->home_op);
	else
		usrbio_let_go(u);
}

static int usrbio_check(const char *where, const char **ret_why)
{
	struct usrbio_api api;

	if (*where != '/')
		*ret_why = "3fs: wants an absolute path";
	else if (strlen(where) + sizeof BLOBS + DIGEST_HEX_BYTES > PATH_MAX)
		*ret_why = "its path is too long";
	else if (usrbio_find(&api) < 0)
		*ret_why = "no " USRBIO_LIBRARY " here: install 3FS's client, or read the mounted "
			   "file system by dir:";
	else
		return 0;
	return -EINVAL;
}

static int thread_start(struct usrbio *u, void *(*run)(void *))
{
	const struct sched_param other = { 0 };
	sigset_t all, before;
	pthread_attr_t attr;
	pthread_t thread;
	int r;

	(void)pthread_attr_init(&attr);
	/* A shard may be a realtime thread; these are not. */
	(void)pthread_attr_setinheritsched(&attr, PTHREAD_EXPLICIT_SCHED);
	(void)pthread_attr_setschedpolicy(&attr, SCHED_OTHER);
	(void)pthread_attr_setschedparam(&attr, &other);
	(void)pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	sigfillset(&all);
	(void)pthread_sigmask(SIG_SETMASK, &all, &before);
	u->holders++; /* no thread of ours lets go before the lock is free */
	r = pthread_create(&thread, &attr, run, u);
	(void)pthread_sigmask(SIG_SETMASK, &before, NULL);
	(void)pthread_attr_destroy(&attr);
	u->holders -= r != 0;
	return -r;
}

static int usrbio_open(const char *where, struct shard *shard, struct remote **ret)
{
	const size_t bytes = strlen(where) + sizeof BLOBS;
	struct usrbio *u = calloc(1, sizeof *u + bytes);
	int r;

	if (!u)
		return -ENOMEM;
	remote_init(&u->remote, &remote_3fs, shard);
	(void)snprintf(u->path, bytes, "%s" BLOBS, where);
	(void)pthread_mutex_init(&u->lock, NULL);
	(void)pthread_cond_init(&u->asked, NULL);
	(void)pthread_cond_init(&u->flew, NULL);
	for (struct file *f = u->files; f < u->files + FILES; f++)
		f->fd = -1;
	u->holders = 1;
	u->home_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	r = u->home_fd < 0 ? -errno : usrbio_find(&u->api);
	pthread_mutex_lock(&u->lock);
	if (r >= 0)
		r = thread_start(u, asker_run);
	if (r >= 0)
		r = thread_start(u, reaper_run);
	pthread_mutex_unlock(&u->lock);
	if (r < 0) {
		usrbio_close(&u->remote);
		return r;
	}
	u->is_polling = true;
	u->home_op.done = home_told;
	io_poll_once(shard->io, &u->home_op, u->home_fd, POLLIN);
	*ret = &u->remote;
	return 0;
}

const struct remote_class remote_3fs = {
	.scheme = "3fs:",
	.check = usrbio_check,
	.open = usrbio_open,
	.start = usrbio_start,
	.drop = usrbio_drop,
	.doubt = usrbio_doubt,
	.close = usrbio_close,
};
