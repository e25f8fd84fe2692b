/*
 * Opening and closing a connection. Called by applications. A connection is fit for use, or it is
 * not there: what fails half-way is taken apart again.
 */
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "sdk/lib/cleanup.h"
#include "sdk/lib/connection.h"
#include "sdk/lib/error.h"
#include "sdk/lib/structs.h"

enum {
	SPIN_US_DEFAULT = 5,
	SPIN_US_MAX = 1000,
	RECONNECT_MS_DEFAULT = 30 * 1000,
	RESET_WAIT_MS = 10
};

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

int dsec__owned(const struct dsec *d, const char *what)
{
	if (!d)
		return dsec__fail(-EINVAL, "%s: no connection", what);
	if (dsec__forked(d))
		return dsec__fail(-EOWNERDEAD, "%s: the connection is the parent process's", what);
	return 0;
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
	while (d->caps) {
		struct caps_kept *kept = d->caps;

		d->caps = kept->next;
		free(kept);
	}
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
	d->ssh.pidfd = d->ssh.log_fd = -1;
	/* It fails where there are more CPUs than a cpu_set_t holds: many, then. */
	d->many_cpus = sched_getaffinity(0, sizeof(cpus), &cpus) < 0 || CPU_COUNT(&cpus) > 1;
	if (spin_us != UINT32_MAX)
		d->spin_us = spin_us ? spin_us : SPIN_US_DEFAULT;
	if (d->spin_us > SPIN_US_MAX)
		d->spin_us = SPIN_US_MAX;
	d->resend_due_ns = d->timer_ns = INT64_MAX;
	d->kick_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	d->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	if (d->kick_fd < 0 || d->timer_fd < 0 || birth_new(d) < 0) {
		if (d->kick_fd >= 0)
			(void)close(d->kick_fd); /* nothing to do about a failing close */
		if (d->timer_fd >= 0)
			(void)close(d->timer_fd); /* as above */
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

/* "unix:/path", "stream+unix:/path", "/path", "ssh:host", "private:". */
static int address_parse(struct dsec *d, const char *address, const char **ret_path)
{
	static const char stream[] = "stream+unix:", ring[] = "unix:", ssh[] = "ssh:";

	d->shared = true;
	*ret_path = address;
	if (strcmp(address, "private:") == 0) {
		*ret_path = NULL;
		return 0;
	}
	if (strncmp(address, ssh, strlen(ssh)) == 0) {
		d->shared = false;
		return dsec__ssh_parse(d, address + strlen(ssh));
	}
	if (strncmp(address, "tls:", 4) == 0)
		return dsec__fail(-EOPNOTSUPP, "open: %s: tls: is not there yet; ssh: is", address);
	if (strncmp(address, stream, strlen(stream)) == 0) {
		d->shared = false;
		*ret_path = address + strlen(stream);
	} else if (strncmp(address, ring, strlen(ring)) == 0) {
		*ret_path = address + strlen(ring);
	}
	if (**ret_path != '/')
		return dsec__fail(-EINVAL,
				  "open: %s: not unix:/path, /path, ssh:host or private:", address);
	return 0;
}

int dsec__connect(struct dsec *d)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	size_t bytes = strlen(d->reconnect.path);
	auto_close int fd = -1;
	int r;

	if (d->ssh.text)
		return dsec__ssh_connect(d);
	if (bytes >= sizeof(address.sun_path))
		return -ENAMETOOLONG;
	memcpy(address.sun_path, d->reconnect.path, bytes);
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -errno;
	do {
		r = connect(fd, (struct sockaddr *)&address, sizeof(address));
	} while (r < 0 && errno == EINTR);
	if (r < 0)
		return -errno;
	d->socket_fd = take_fd(&fd);
	return 0;
}

static int socket_connect(struct dsec *d, int64_t end_ns)
{
	int r;

	/* EAGAIN: its queue of connections is full, for which there is no event to wait for. */
	while ((r = dsec__connect(d)) == -EAGAIN && dsec__clock_ns() < end_ns)
		(void)usleep(2000);
	if (r == -ENAMETOOLONG)
		return dsec__fail(r, "open: %s: too long for a socket", d->reconnect.path);
	if (r < 0 && !d->ssh.text) /* that has said it */
		return dsec__fail(r, "open: no engine at %s: %s", d->reconnect.path, strerror(-r));
	return r;
}

static int socket_await(struct dsec *d, short events, int64_t end_ns)
{
	struct pollfd fd = { .fd = d->socket_fd, .events = events };
	int r;

	do {
		int64_t left_ms = (end_ns - dsec__clock_ns()) / 1000000;

		if (left_ms <= 0)
			return -ETIMEDOUT;
		r = poll(&fd, 1, (int)left_ms);
	} while (r < 0 && errno == EINTR);
	if (r < 0)
		return -errno;
	return r ? 0 : -ETIMEDOUT;
}

/* What was asked did not answer, whatever it is. */
static bool away(int r)
{
	return r == -ETIMEDOUT || r == -ECONNRESET || r == -EPIPE;
}

static int connection_shake(struct dsec *d, int64_t end_ns)
{
	struct handshake handshake;
	int r;

	dsec__handshake_init(&handshake);
	while ((r = dsec__handshake_step(d, &handshake)) == 0) {
		r = socket_await(d, handshake.events, end_ns);
		if (r < 0)
			break;
	}
	if (away(r))
		(void)dsec__fail(r, "open: the engine did not answer: %s", strerror(-r));
	dsec__handshake_done(&handshake);
	return r < 0 ? r : 0;
}

static void socket_drop(struct dsec *d)
{
	if (d->transport)
		d->transport->close(d);
	if (d->socket_fd >= 0)
		(void)close(d->socket_fd); /* nothing to do about a failing close */
	d->socket_fd = -1;
}

/*
 * The socket outlives an engine: who came by it as that ended is reset, and then asks the next one.
 */
static int connection_make(struct dsec *d, uint32_t connect_ms)
{
	int64_t end_ns =
		dsec__clock_ns() + (connect_ms ? connect_ms : HANDSHAKE_WAIT_MS) * 1000000ll;
	int r;

	for (;;) {
		r = socket_connect(d, end_ns);
		if (r == 0)
			r = connection_shake(d, end_ns);
		if (d->ssh.text)
			return away(r) ? dsec__ssh_failed(d, r) : r;
		if ((r != -ECONNRESET && r != -EPIPE) || dsec__clock_ns() >= end_ns)
			return r;
		socket_drop(d);
		(void)usleep(RESET_WAIT_MS * 1000);
	}
}

static void connection_close(struct dsec *d)
{
	if (d->ssh.text && d->transport && d->link == LINK_UP && !d->lost)
		dsec__ssh_finish(d);
	dsec__reconnect_done(d);
	socket_drop(d);
	dsec__ssh_stop(d);
	free(d->ssh.text);
	(void)close(d->kick_fd); /* nothing to do about a failing close, here and below */
	(void)close(d->timer_fd);
	dsec__private_stop(d);
}

/* What connecting needs again later: all of it is ours. */
static int options_keep(struct dsec *d, const struct dsec_open_opts *opts)
{
	struct reconnect *reconnect = &d->reconnect;
	const char *address = opts->address;
	uint32_t ms = opts->reconnect_ms ? opts->reconnect_ms : RECONNECT_MS_DEFAULT;

	if (!address)
		address = getenv("DSEC_ADDRESS");
	if (!address || !*address)
		address = "unix:/run/dsec.sock";
	reconnect->address = strdup(address);
	reconnect->token = opts->token ? strdup(opts->token) : NULL;
	reconnect->tenant = opts->tenant ? strdup(opts->tenant) : NULL;
	if (!reconnect->address || (opts->token && !reconnect->token) ||
	    (opts->tenant && !reconnect->tenant))
		return dsec__fail(-ENOMEM, "open: no memory");
	reconnect->opts = *opts;
	reconnect->opts.address = reconnect->address;
	reconnect->opts.token = reconnect->token;
	reconnect->opts.tenant = reconnect->tenant;
	if (ms != UINT32_MAX)
		reconnect->patience_ns = ms * 1000000ll;
	return 0;
}

static int connection_build(struct dsec *d, const struct dsec_open_opts *opts)
{
	struct reconnect *reconnect = &d->reconnect;
	int r;

	r = options_keep(d, opts);
	if (r == 0)
		r = address_parse(d, reconnect->address, &reconnect->path);
	if (r < 0)
		return r;
	if (!reconnect->path) {
		r = dsec__private_start(d, opts->images);
		if (r < 0)
			return r;
		reconnect->path = d->engine.socket;
		reconnect->patience_ns = 0; /* when it goes it is gone, with all it had */
	}
	reconnect->opts.images = NULL; /* the caller's, and of no more use */
	r = connection_make(d, opts->connect_ms);
	reconnect->up_ns = dsec__clock_ns();
	reconnect->heard = true;
	return r;
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
	if (d->socket_fd >= 0)
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
