/*
 * The handshake, as ring.h tells it: hello, welcome, and for the ring mapped and go. Called by
 * dsec_open(), which waits between the steps, and to reconnect, which never waits.
 *
 * After the welcome was checked every size and offset in d->welcome lies within the memory and
 * within what this library is ready for; ring.c relies on it.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sdk/lib/connection.h"
#include "sdk/lib/error.h"

enum { STRIDE_BYTES_MAX = 4096, ENTRIES_MAX = 1 << 20, FDS_MAX = DSEC_CHANNELS_MAX + 1 };
#define MEMORY_BYTES_MAX (1ull << 40)

union control {
	struct cmsghdr header;
	char bytes[CMSG_SPACE(FDS_MAX * sizeof(int))];
};

static int socket_wants(struct handshake *handshake, short events)
{
	if (errno != EAGAIN && errno != EINTR)
		return -errno;
	handshake->events = events;
	return 0;
}

/* 1: all of the step's message went; 0: not yet. */
static int message_send(struct dsec *d, struct handshake *handshake, struct iovec parts[2])
{
	struct msghdr message = { .msg_iov = parts, .msg_iovlen = 2 };
	size_t skipped = handshake->done_bytes;
	ssize_t n;

	for (int part = 0; part < 2; part++) {
		size_t bytes = skipped < parts[part].iov_len ? skipped : parts[part].iov_len;

		parts[part].iov_base = (char *)parts[part].iov_base + bytes;
		parts[part].iov_len -= bytes;
		skipped -= bytes;
	}
	n = sendmsg(d->socket_fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
	if (n < 0)
		return socket_wants(handshake, POLLOUT);
	handshake->done_bytes += (size_t)n;
	handshake->events = POLLOUT;
	return (size_t)n == parts[0].iov_len + parts[1].iov_len;
}

/* Takes descriptors over: the first is the memory, the others are doorbells. */
static void descriptors_take(struct handshake *handshake, struct msghdr *message)
{
	for (struct cmsghdr *c = CMSG_FIRSTHDR(message); c; c = CMSG_NXTHDR(message, c)) {
		size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);

		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		for (size_t at = 0; at < count; at++) {
			int fd;

			memcpy(&fd, CMSG_DATA(c) + at * sizeof(fd), sizeof(fd));
			if (handshake->memory_fd < 0)
				handshake->memory_fd = fd;
			else if (handshake->doorbell_count < DSEC_CHANNELS_MAX)
				handshake->doorbell_fds[handshake->doorbell_count++] = fd;
			else
				(void)close(fd); /* one too many: nobody's */
		}
	}
}

/* 1: all of the step's message came; 0: not yet. Descriptors are taken where they may come. */
static int message_receive(struct dsec *d, struct handshake *handshake, void *data, size_t bytes)
{
	union control control;
	struct iovec part = { (char *)data + handshake->done_bytes, bytes - handshake->done_bytes };
	struct msghdr message = {
		.msg_iov = &part,
		.msg_iovlen = 1,
		.msg_control = &control,
		.msg_controllen = sizeof(control),
	};
	ssize_t n;

	n = recvmsg(d->socket_fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	if (n == 0)
		return -ECONNRESET;
	if (n < 0)
		return socket_wants(handshake, POLLIN);
	descriptors_take(handshake, &message);
	if (message.msg_flags & MSG_CTRUNC)
		return dsec__fail(-EMFILE, "open: no room for the engine's descriptors: "
					   "RLIMIT_NOFILE, ulimit -n");
	handshake->done_bytes += (size_t)n;
	handshake->events = POLLIN;
	return handshake->done_bytes == bytes;
}

static bool power_of_two(uint32_t value)
{
	return value && !(value & (value - 1));
}

static bool within(uint64_t at, uint64_t bytes, uint64_t limit)
{
	return at <= limit && bytes <= limit - at;
}

static bool stride_good(uint32_t stride, size_t least)
{
	return stride >= least && stride <= STRIDE_BYTES_MAX && stride % 8 == 0;
}

static bool ring_good(uint32_t at, uint32_t entries, uint32_t stride, uint32_t limit)
{
	if (!power_of_two(entries) || entries > ENTRIES_MAX || at % 8)
		return false;
	return within(at, (uint64_t)entries * stride, limit);
}

/* Everything that ring.c computes addresses with. */
static bool layout_good(const struct dsec_ring_welcome *w, const struct handshake *handshake)
{
	struct stat st;
	uint32_t limit = w->channel_bytes;

	if (handshake->memory_fd < 0 || fstat(handshake->memory_fd, &st) < 0)
		return false;
	/* Never map what could shrink: touching it would be SIGBUS. */
	if (!(fcntl(handshake->memory_fd, F_GET_SEALS) & F_SEAL_SHRINK))
		return false;
	if (!w->memory_bytes || w->memory_bytes > MEMORY_BYTES_MAX ||
	    w->memory_bytes > (uint64_t)st.st_size)
		return false;
	if (!w->channels || handshake->doorbell_count != w->channels)
		return false;
	if (w->channel_at % 8 || w->channel_bytes % 8 || w->arena_at % 8)
		return false;
	if (!within(w->arena_at, w->arena_bytes, w->memory_bytes) ||
	    !within(w->channel_at, (uint64_t)w->channels * limit, w->memory_bytes) ||
	    limit < sizeof(struct dsec_ring_channel))
		return false;
	if (!stride_good(w->request_bytes, sizeof(struct dsec_ring_request)) ||
	    !stride_good(w->event_bytes, sizeof(struct dsec_ring_event)))
		return false;
	return ring_good(w->submission_at, w->submission_entries, w->request_bytes, limit) &&
	       ring_good(w->completion_at, w->completion_entries, w->event_bytes, limit) &&
	       ring_good(w->buffer_at, w->buffer_entries, sizeof(struct dsec_ring_buffer), limit);
}

/* What the engine says about not letting us in, as errno. */
static int refusal_errno(uint32_t code)
{
	switch (code) {
	case DSEC_REFUSED:
		return -EBUSY;
	case DSEC_DENIED:
		return -EACCES;
	case DSEC_UNSUPPORTED:
		return -EPROTO;
	case DSEC_INVALID:
		return -EINVAL;
	case DSEC_ABSENT:
		return -ENXIO; /* the tenant; ENOENT: no engine */
	default:
		return -EIO;
	}
}

static int welcome_check(struct dsec *d, const struct handshake *handshake)
{
	struct dsec_ring_welcome *w = &d->welcome;

	if (w->magic != DSEC_RING_MAGIC)
		return dsec__fail(-EPROTO, "open: whatever listens there is no engine");
	w->text[sizeof(w->text) - 1] = '\0';
	if (w->code != DSEC_OK)
		return dsec__fail(refusal_errno(w->code), "open: the engine refused: %s", w->text);
	if (w->major != DSEC_RING_MAJOR || w->minor > DSEC_RING_MINOR)
		return dsec__fail(-EPROTO,
				  "open: the engine speaks %u.%u, this library %u.0 to %u.%u",
				  w->major, w->minor, DSEC_RING_MAJOR, DSEC_RING_MAJOR,
				  DSEC_RING_MINOR);
	if (!w->shards)
		return dsec__fail(-EPROTO, "open: the engine has no shards");
	if (d->shared && !layout_good(w, handshake))
		return dsec__fail(-EPROTO, "open: the engine's memory is not as its welcome says");
	return 0;
}

static int hello_send(struct dsec *d, struct handshake *handshake)
{
	const struct dsec_open_opts *opts = &d->reconnect.opts;
	const char *token = opts->token ? opts->token : "";
	size_t token_bytes = strlen(token);
	struct dsec_ring_hello hello = {
		.magic = DSEC_RING_MAGIC,
		.major = DSEC_RING_MAJOR,
		.minor_max = DSEC_RING_MINOR,
		.transport = d->shared ? DSEC_TRANSPORT_RING : DSEC_TRANSPORT_STREAM,
		.arena_bytes = opts->arena_bytes,
		.requests_max = opts->requests_max,
		.channels = d->shared ? opts->channels : 0,
		.token_bytes = (uint32_t)token_bytes,
	};
	struct iovec parts[2] = {
		{ &hello, sizeof(hello) },
		{ (void *)(uintptr_t)token, token_bytes },
	};

	if (opts->tenant && strlen(opts->tenant) >= sizeof(hello.tenant))
		return dsec__fail(-EINVAL, "open: the tenant's name is too long");
	if (opts->tenant)
		memcpy(hello.tenant, opts->tenant, strlen(opts->tenant));
	if (token_bytes > DSEC_TOKEN_BYTES_MAX)
		return dsec__fail(-EINVAL, "open: the token is longer than %d bytes",
				  DSEC_TOKEN_BYTES_MAX);
	return message_send(d, handshake, parts);
}

static int welcome_receive(struct dsec *d, struct handshake *handshake)
{
	int r;

	r = message_receive(d, handshake, &d->welcome, sizeof(d->welcome));
	if (r <= 0)
		return r;
	d->welcomed_ns = dsec__clock_ns();
	r = welcome_check(d, handshake);
	if (r == 0)
		r = d->shared ? dsec__ring_open(d, handshake) : dsec__stream_open(d);
	if (r < 0)
		return r;
	if (!d->shared)
		handshake->step = HANDSHAKE_STEPS;
	return 1;
}

static int mapped_send(struct dsec *d, struct handshake *handshake)
{
	struct dsec_ring_step step = { .magic = DSEC_RING_MAGIC, .step = 1 };
	struct iovec parts[2] = { { &step, sizeof(step) }, { &step, 0 } };

	return message_send(d, handshake, parts);
}

/* A malicious client could punch holes; so the engine seals once we mapped, and says go. */
static int go_receive(struct dsec *d, struct handshake *handshake)
{
	int wanted = F_SEAL_FUTURE_WRITE | F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW;
	struct dsec_ring_step *word = &handshake->word;
	int seals, r;

	r = message_receive(d, handshake, word, sizeof(*word));
	if (r <= 0)
		return r;
	if (word->magic != DSEC_RING_MAGIC || word->step != 2)
		return dsec__fail(-EPROTO, "open: the engine did not say go");
	seals = fcntl(handshake->memory_fd, F_GET_SEALS);
	if (seals < 0 || (seals & wanted) != wanted)
		return dsec__fail(-EPROTO, "open: the engine did not seal its memory");
	return 1;
}

int dsec__handshake_step(struct dsec *d, struct handshake *handshake)
{
	static int (*const steps[HANDSHAKE_STEPS])(struct dsec *, struct handshake *) = {
		hello_send,
		welcome_receive,
		mapped_send,
		go_receive,
	};
	int r = 1;

	while (handshake->step < HANDSHAKE_STEPS) {
		r = steps[handshake->step](d, handshake);
		if (r <= 0)
			return r;
		handshake->done_bytes = 0;
		if (handshake->step < HANDSHAKE_STEPS)
			handshake->step++;
	}
	return 1;
}

void dsec__handshake_init(struct handshake *handshake)
{
	*handshake = (struct handshake){ .memory_fd = -1 };
}

void dsec__handshake_done(struct handshake *handshake)
{
	if (handshake->memory_fd >= 0)
		(void)close(handshake->memory_fd); /* nothing to do about a failing close */
	for (uint32_t k = 0; k < handshake->doorbell_count; k++)
		(void)close(handshake->doorbell_fds[k]); /* as above */
	dsec__handshake_init(handshake);
}
