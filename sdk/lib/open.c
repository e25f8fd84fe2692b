/*
 * Opening and closing a connection. Called by applications. A connection is fit for use, or it is
 * not there: what fails half-way is taken apart again.
 */
#include <errno.h>
#include <sched.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "sdk/lib/cleanup.h"
#include "sdk/lib/connection.h"
#include "sdk/lib/error.h"
#include "sdk/lib/structs.h"

enum { SPIN_US_DEFAULT = 5, SPIN_US_MAX = 1000 };

int64_t dsec__clock_ns(void)
{
	struct timespec now;

	(void)clock_gettime(CLOCK_MONOTONIC, &now); /* cannot fail */
	return now.tv_sec * 1000000000ll + now.tv_nsec;
}

bool dsec__forked(const struct dsec *d)
{
	return !__atomic_load_n(d->birth, __ATOMIC_RELAXED);
}

/* A page that reads 1 here and 0 in every child. */
static int birth_new(struct dsec *d)
{
	size_t bytes = (size_t)sysconf(_SC_PAGESIZE);
	void *page;

	page = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (page == MAP_FAILED)
		return -errno;
	if (madvise(page, bytes, MADV_WIPEONFORK) < 0) {
		int r = -errno;

		(void)munmap(page, bytes); /* it was mapped so */
		return r;
	}
	d->birth = page;
	*d->birth = 1;
	return 0;
}

static void connection_free(struct dsec *d)
{
	if (d->birth)
		(void)munmap(d->birth, (size_t)sysconf(_SC_PAGESIZE)); /* it was mapped so */
	(void)pthread_mutex_destroy(&d->lock);			       /* nobody holds it */
	free(d);
}

static struct dsec *connection_new(uint32_t spin_us)
{
	struct dsec *d = calloc(1, sizeof(*d));
	cpu_set_t cpus;

	if (!d)
		return NULL;
	(void)pthread_mutex_init(&d->lock, NULL); /* the default kind cannot fail */
	d->references = 1;
	d->socket_fd = -1;
	d->engine.lifeline_fd = d->engine.pidfd = d->engine.log_fd = -1;
	/* It fails where there are more CPUs than a cpu_set_t holds: many, then. */
	d->many_cpus = sched_getaffinity(0, sizeof(cpus), &cpus) < 0 || CPU_COUNT(&cpus) > 1;
	if (spin_us != UINT32_MAX)
		d->spin_us = spin_us ? spin_us : SPIN_US_DEFAULT;
	if (d->spin_us > SPIN_US_MAX)
		d->spin_us = SPIN_US_MAX;
	d->kick_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (d->kick_fd < 0 || birth_new(d) < 0) {
		if (d->kick_fd >= 0)
			(void)close(d->kick_fd); /* nothing to do about a failing close */
		connection_free(d);
		return NULL;
	}
	return d;
}

void dsec__unreference(struct dsec *d)
{
	bool last = --d->references == 0;

	pthread_mutex_unlock(&d->lock);
	if (last)
		connection_free(d);
}

/* "unix:/path", "stream+unix:/path", "/path", "private:". */
static int address_parse(struct dsec *d, const char *address, const char **ret_path)
{
	static const char stream[] = "stream+unix:", ring[] = "unix:";

	d->shared = true;
	*ret_path = address;
	if (strcmp(address, "private:") == 0) {
		*ret_path = NULL;
		return 0;
	}
	if (strncmp(address, stream, strlen(stream)) == 0) {
		d->shared = false;
		*ret_path = address + strlen(stream);
	} else if (strncmp(address, ring, strlen(ring)) == 0) {
		*ret_path = address + strlen(ring);
	}
	if (**ret_path != '/')
		return dsec__fail(-EINVAL, "open: %s: not unix:/path, /path or private:", address);
	return 0;
}

static int socket_connect(struct dsec *d, const char *path)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	size_t bytes = strlen(path);
	int r;

	if (bytes >= sizeof(address.sun_path))
		return dsec__fail(-ENAMETOOLONG, "open: %s: too long for a socket", path);
	memcpy(address.sun_path, path, bytes);
	d->socket_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (d->socket_fd < 0)
		return dsec__fail(-errno, "open: no socket: %s", strerror(errno));
	/* EAGAIN: its queue of connections is full. */
	while (connect(d->socket_fd, (struct sockaddr *)&address, sizeof(address)) < 0) {
		r = -errno;
		if (r == -EAGAIN && dsec__clock_ns() - d->opened_ns < HANDSHAKE_WAIT_MS * 1000000ll)
			(void)usleep(2000); /* a listener's queue has no event to wait for */
		else if (r != -EINTR)
			return dsec__fail(r, "open: no engine at %s: %s", path, strerror(-r));
	}
	return 0;
}

static void handshake_done(struct handshake *handshake)
{
	if (handshake->memory_fd >= 0)
		(void)close(handshake->memory_fd); /* nothing to do about a failing close */
	for (uint32_t k = 0; k < handshake->doorbell_count; k++)
		(void)close(handshake->doorbell_fds[k]); /* as above */
}

static int connection_shake(struct dsec *d, const struct dsec_open_opts *opts)
{
	struct handshake handshake = { .opts = opts, .memory_fd = -1 };
	bool shared = d->shared;
	int r;

	r = dsec__handshake_begin(d, &handshake);
	if (r == 0 && !shared)
		r = dsec__stream_open(d);
	if (r == 0 && shared)
		r = dsec__ring_open(d, &handshake);
	if (r == 0 && shared)
		r = dsec__handshake_finish(d, &handshake);
	handshake_done(&handshake);
	return r;
}

static void connection_close(struct dsec *d)
{
	if (d->transport)
		d->transport->close(d);
	if (d->socket_fd >= 0)
		(void)close(d->socket_fd); /* nothing to do about a failing close */
	(void)close(d->kick_fd);	   /* as above */
	dsec__private_stop(d);
}

static int connection_build(struct dsec *d, const struct dsec_open_opts *opts)
{
	const char *address = opts->address, *path;
	int r;

	if (!address)
		address = getenv("DSEC_ADDRESS");
	if (!address || !*address)
		address = "unix:/run/dsec.sock";
	r = address_parse(d, address, &path);
	if (r < 0)
		return r;
	if (!path) {
		r = dsec__private_start(d, opts->images);
		if (r < 0)
			return r;
		path = d->engine.socket;
	}
	d->opened_ns = dsec__clock_ns();
	r = socket_connect(d, path);
	if (r < 0)
		return r;
	return connection_shake(d, opts);
}

int dsec_open(const struct dsec_open_opts *opts, struct dsec **ret)
{
	struct dsec_open_opts known = { 0 };
	struct dsec *d;
	int r = 0;

	if (!ret)
		return dsec__fail(-EINVAL, "open: NULL");
	if (opts)
		r = dsec__struct_take(&known, sizeof(known), opts, "open");
	if (r < 0)
		return r;
	d = connection_new(known.spin_us);
	if (!d)
		return dsec__fail(-ENOMEM, "open: no memory, or no descriptor");
	r = connection_build(d, &known);
	if (r < 0) {
		connection_close(d);
		connection_free(d);
		return r;
	}
	*ret = d;
	return 0;
}

/* Only descriptors: while a child keeps the socket, the engine believes its client lives. */
static void child_close(struct dsec *d)
{
	(void)close(d->socket_fd); /* nothing to do about a failing close, here and below */
	d->socket_fd = -1;
	if (d->engine.lifeline_fd >= 0)
		(void)close(d->engine.lifeline_fd);
	d->engine.lifeline_fd = -1;
}

void dsec_close(struct dsec *d)
{
	if (!d)
		return;
	if (dsec__forked(d)) {
		child_close(d);
		return;
	}
	pthread_mutex_lock(&d->lock);
	d->closed = true;
	dsec__tickets_done(d);
	while (d->queues) {
		struct dsec_queue *q = d->queues;

		d->queues = q->next;
		dsec__queue_free(q);
	}
	connection_close(d);
	dsec__unreference(d);
}
