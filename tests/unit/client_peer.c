/*
 * The engine's side of a connection, for tests. What it does wrong it does because a test asked for
 * it; everything else follows ring.h, sleeping and waking included.
 */
#include "tests/unit/client_peer.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

enum { PEER_BUFFER_ENTRIES = 64 };

static void bytes_send(struct peer *peer, const void *data, size_t bytes)
{
	const char *at = data;

	while (bytes && peer->serving) {
		ssize_t n = send(peer->fd, at, bytes, MSG_NOSIGNAL);

		if (n <= 0) {
			peer->serving = false;
			return;
		}
		at += n;
		bytes -= (size_t)n;
	}
}

static bool bytes_receive(struct peer *peer, void *data, size_t bytes)
{
	char *at = data;

	while (bytes) {
		ssize_t n = recv(peer->fd, at, bytes, 0);

		if (n <= 0)
			return false;
		at += n;
		bytes -= (size_t)n;
	}
	return true;
}

/* ---- the handshake ---- */

static uint32_t or_default(uint32_t value, uint32_t otherwise)
{
	return value ? value : otherwise;
}

static void layout_fill(struct peer *peer)
{
	const struct peer_options *o = &peer->options;
	struct dsec_ring_welcome *w = &peer->layout;
	uint32_t shards = or_default(o->shards, 1);

	*w = (struct dsec_ring_welcome){
		.magic = DSEC_RING_MAGIC,
		.major = DSEC_RING_MAJOR,
		.minor = DSEC_RING_MINOR,
		.features = DSEC_FEATURE_RING | DSEC_FEATURE_STREAM,
		.epoch = o->epoch ? o->epoch : 7,
		.clock_ms = 1700000000000ull,
		.channels = peer->hello.channels == UINT32_MAX ? shards : 1,
		.shards = shards,
		.request_bytes =
			sizeof(struct dsec_ring_request) + 64, /* a newer engine's stride */
		.event_bytes = sizeof(struct dsec_ring_event) + 8,
		.op_count = DSEC_OP_COUNT,
		.buffer_bytes_min = DSEC_BUFFER_BYTES_MIN,
		.submission_entries = or_default(o->submission_entries, 64),
		.completion_entries = or_default(o->completion_entries, 256),
		.buffer_entries = PEER_BUFFER_ENTRIES,
		.stream_payload_max = DSEC_PAYLOAD_BYTES_MAX,
		.arena_bytes = o->arena_bytes ? o->arena_bytes : 1 << 20,
	};
	w->submission_at = sizeof(struct dsec_ring_channel);
	w->completion_at = w->submission_at + w->submission_entries * w->request_bytes;
	w->buffer_at = w->completion_at + w->completion_entries * w->event_bytes;
	w->channel_bytes =
		w->buffer_at + w->buffer_entries * (uint32_t)sizeof(struct dsec_ring_buffer);
	w->channel_bytes = (w->channel_bytes + 4095) & ~4095u;
	w->arena_at = (uint64_t)w->channels * w->channel_bytes;
	w->memory_bytes = w->arena_at + w->arena_bytes;
}

static void memory_new(struct peer *peer)
{
	struct dsec_ring_welcome *w = &peer->layout;

	peer->memory_fd = memfd_create("peer", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	assert(peer->memory_fd >= 0);
	assert(ftruncate(peer->memory_fd, (off_t)w->memory_bytes) == 0);
	assert(fcntl(peer->memory_fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0);
	peer->memory =
		mmap(NULL, w->memory_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, peer->memory_fd, 0);
	assert(peer->memory != MAP_FAILED);
	peer->arena = peer->memory + w->arena_at;
	peer->channel_count = w->channels;
	for (uint32_t k = 0; k < w->channels; k++) {
		struct peer_channel *channel = &peer->channels[k];
		unsigned char *base = peer->memory + (size_t)k * w->channel_bytes;

		channel->shared = (struct dsec_ring_channel *)base;
		channel->requests = base + w->submission_at;
		channel->events = base + w->completion_at;
		channel->buffers = base + w->buffer_at;
		channel->doorbell_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
		assert(channel->doorbell_fd >= 0);
	}
}

static void welcome_send(struct peer *peer, const struct dsec_ring_welcome *welcome)
{
	union {
		struct cmsghdr header;
		char bytes[CMSG_SPACE((PEER_CHANNELS_MAX + 1) * sizeof(int))];
	} control;
	struct iovec part = { (void *)(uintptr_t)welcome, sizeof(*welcome) };
	struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1 };
	int fds[PEER_CHANNELS_MAX + 1] = { peer->memory_fd };
	size_t count = 1;

	if (peer->transport == DSEC_TRANSPORT_RING) {
		for (uint32_t k = 0; k < peer->channel_count; k++)
			fds[count++] = peer->channels[k].doorbell_fd;
		if (peer->options.doorbells_missing)
			count = 1;
		message.msg_control = &control;
		message.msg_controllen = CMSG_SPACE(count * sizeof(int));
		control.header.cmsg_level = SOL_SOCKET;
		control.header.cmsg_type = SCM_RIGHTS;
		control.header.cmsg_len = CMSG_LEN(count * sizeof(int));
		memcpy(CMSG_DATA(&control.header), fds, count * sizeof(int));
	}
	if (sendmsg(peer->fd, &message, MSG_NOSIGNAL) != sizeof(*welcome))
		peer->serving = false; /* the client went first */
}

static bool shake_hands(struct peer *peer)
{
	struct dsec_ring_step step;
	struct dsec_ring_welcome welcome;
	char token[DSEC_TOKEN_BYTES_MAX];

	if (peer->options.goes_before == PEER_HELLO ||
	    !bytes_receive(peer, &peer->hello, sizeof(peer->hello)))
		return false;
	assert(peer->hello.magic == DSEC_RING_MAGIC);
	assert(peer->hello.transport == peer->transport);
	if (peer->hello.token_bytes && !bytes_receive(peer, token, peer->hello.token_bytes))
		return false;
	if (peer->options.goes_before == PEER_WELCOME)
		return false;
	layout_fill(peer);
	if (peer->transport == DSEC_TRANSPORT_RING)
		memory_new(peer);
	welcome = peer->layout;
	if (peer->options.welcome)
		peer->options.welcome(peer, &welcome);
	welcome_send(peer, &welcome);
	if (peer->transport == DSEC_TRANSPORT_STREAM)
		return true;
	if (peer->options.goes_before == PEER_MAPPED || !bytes_receive(peer, &step, sizeof(step)))
		return false;
	assert(step.magic == DSEC_RING_MAGIC);
	assert(step.step == 1);
	if (!peer->options.seals_missing)
		assert(fcntl(peer->memory_fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE | F_SEAL_SEAL) == 0);
	if (peer->options.goes_before == PEER_GO)
		return false;
	step.step = 2;
	bytes_send(peer, &step, sizeof(step));
	return true;
}

/* ---- events ---- */

struct dsec_ring_event peer_event(const struct dsec_ring_request *request, uint16_t kind,
				  uint16_t flags)
{
	return (struct dsec_ring_event){
		.ticket = request->ticket,
		.kind = kind,
		.flags = flags,
		.subject = request->subject,
	};
}

void peer_done(struct peer *peer, uint32_t channel, const struct dsec_ring_request *request)
{
	struct dsec_ring_event event = peer_event(request, DSEC_EV_DONE, DSEC_EVENT_LAST);

	peer_post(peer, channel, &event, NULL);
}

static void client_wake(struct peer *peer, struct peer_channel *channel)
{
	uint32_t *word = &channel->shared->need_wakeup, mode;

	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	mode = __atomic_exchange_n(word, DSEC_AWAKE, __ATOMIC_SEQ_CST);
	if (mode == DSEC_SLEEP_FUTEX)
		(void)syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
	else if (mode == DSEC_SLEEP_FD)
		(void)send(peer->fd, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
}

/* Waiting for room is in vain: the client went, or the test ends. */
static bool client_gone(struct peer *peer)
{
	struct pollfd fds[2] = {
		{ .fd = peer->fd, .events = POLLRDHUP },
		{ .fd = peer->quit_fd, .events = POLLIN },
	};

	if (poll(fds, 2, 0) > 0)
		peer->serving = false;
	return !peer->serving;
}

static void ring_post(struct peer *peer, struct peer_channel *channel,
		      const struct dsec_ring_event *event)
{
	const struct dsec_ring_welcome *w = &peer->layout;
	uint32_t tail = channel->completion_tail;
	size_t at = (size_t)(tail & (w->completion_entries - 1)) * w->event_bytes;

	while (tail - __atomic_load_n(&channel->shared->completion_head, __ATOMIC_ACQUIRE) >=
	       w->completion_entries) {
		if (client_gone(peer))
			return;
		client_wake(peer, channel);
		sched_yield();
	}
	memcpy(channel->events + at, event, sizeof(*event));
	channel->completion_tail = tail + 1;
	__atomic_store_n(&channel->shared->completion_tail, tail + 1, __ATOMIC_RELEASE);
	client_wake(peer, channel);
}

static void buffer_fill(struct peer *peer, struct peer_channel *channel,
			struct dsec_ring_event *event, const void *payload)
{
	struct dsec_ring_buffer buffer;
	size_t at = (size_t)(channel->buffer_head & (PEER_BUFFER_ENTRIES - 1)) * sizeof(buffer);

	while (__atomic_load_n(&channel->shared->buffer_tail, __ATOMIC_ACQUIRE) ==
	       channel->buffer_head) {
		if (client_gone(peer)) {
			event->bytes = 0;
			return;
		}
		client_wake(peer, channel);
		sched_yield();
	}
	memcpy(&buffer, channel->buffers + at, sizeof(buffer));
	assert(event->bytes <= buffer.bytes);
	assert(buffer.at + buffer.bytes <= peer->layout.arena_bytes);
	memcpy(peer->arena + buffer.at, payload, event->bytes);
	event->buffer = channel->buffer_head++;
	__atomic_store_n(&channel->shared->buffer_head, channel->buffer_head, __ATOMIC_RELEASE);
}

void peer_post(struct peer *peer, uint32_t channel, const struct dsec_ring_event *event,
	       const void *payload)
{
	struct dsec_ring_event copy = *event;

	if (peer->transport == DSEC_TRANSPORT_STREAM) {
		bytes_send(peer, &copy, sizeof(copy));
		bytes_send(peer, payload, copy.bytes);
		return;
	}
	if (copy.bytes)
		buffer_fill(peer, &peer->channels[channel], &copy, payload);
	ring_post(peer, &peer->channels[channel], &copy);
}

void peer_post_raw(struct peer *peer, uint32_t channel, const struct dsec_ring_event *event)
{
	if (peer->transport == DSEC_TRANSPORT_STREAM)
		bytes_send(peer, event, sizeof(*event));
	else
		ring_post(peer, &peer->channels[channel], event);
}

/* ---- requests ---- */

static bool channel_serve(struct peer *peer, uint32_t number)
{
	struct peer_channel *channel = &peer->channels[number];
	const struct dsec_ring_welcome *w = &peer->layout;
	uint32_t head = channel->submission_head;
	size_t at = (size_t)(head & (w->submission_entries - 1)) * w->request_bytes;
	struct dsec_ring_request request;
	void *payload = NULL;

	if (__atomic_load_n(&channel->shared->submission_tail, __ATOMIC_ACQUIRE) == head)
		return false;
	memcpy(&request, channel->requests + at, sizeof(request));
	if (request.payload_bytes) {
		assert(request.payload_at + request.payload_bytes <= w->arena_bytes);
		payload = malloc(request.payload_bytes);
		assert(payload);
		memcpy(payload, peer->arena + request.payload_at, request.payload_bytes);
	}
	channel->submission_head = head + 1;
	__atomic_store_n(&channel->shared->submission_head, head + 1, __ATOMIC_RELEASE);
	peer->options.serve(peer, number, &request, payload);
	free(payload);
	return true;
}

static bool channels_serve(struct peer *peer)
{
	bool any = false;

	for (uint32_t k = 0; k < peer->channel_count && peer->serving; k++)
		any |= channel_serve(peer, k);
	return any;
}

static void engine_awake_set(struct peer *peer, uint32_t awake)
{
	for (uint32_t k = 0; k < peer->channel_count; k++) {
		uint32_t *word = &peer->channels[k].shared->engine_awake;

		__atomic_store_n(word, awake, __ATOMIC_SEQ_CST);
	}
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
}

static void ring_sleep(struct peer *peer)
{
	struct pollfd fds[PEER_CHANNELS_MAX + 2] = {
		{ .fd = peer->fd, .events = POLLIN },
		{ .fd = peer->quit_fd, .events = POLLIN },
	};
	eventfd_t count;

	for (uint32_t k = 0; k < peer->channel_count; k++)
		fds[k + 2] = (struct pollfd){ peer->channels[k].doorbell_fd, POLLIN, 0 };
	(void)poll(fds, peer->channel_count + 2, -1);
	/* Clients say nothing over the socket: only its end makes it readable. */
	if (fds[0].revents || fds[1].revents)
		peer->serving = false;
	for (uint32_t k = 0; k < peer->channel_count; k++)
		(void)eventfd_read(peer->channels[k].doorbell_fd, &count);
}

static void ring_serve(struct peer *peer)
{
	while (peer->serving) {
		if (channels_serve(peer))
			continue;
		engine_awake_set(peer, 0);
		if (!channels_serve(peer) && peer->serving)
			ring_sleep(peer);
		engine_awake_set(peer, 1);
	}
}

static void stream_serve(struct peer *peer)
{
	struct dsec_ring_request request;

	while (peer->serving) {
		struct pollfd fds[2] = {
			{ .fd = peer->fd, .events = POLLIN },
			{ .fd = peer->quit_fd, .events = POLLIN },
		};
		void *payload = NULL;

		(void)poll(fds, 2, -1);
		if (fds[1].revents || !bytes_receive(peer, &request, sizeof(request)))
			return;
		if (request.payload_bytes) {
			payload = malloc(request.payload_bytes);
			assert(payload);
			if (!bytes_receive(peer, payload, request.payload_bytes))
				peer->serving = false;
		}
		if (peer->serving)
			peer->options.serve(peer, 0, &request, payload);
		free(payload);
	}
}

static void connection_end(struct peer *peer)
{
	(void)shutdown(peer->fd, SHUT_RDWR);
	(void)close(peer->fd);
	for (uint32_t k = 0; k < peer->channel_count; k++)
		(void)close(peer->channels[k].doorbell_fd);
	if (peer->memory)
		(void)munmap(peer->memory, peer->layout.memory_bytes);
	if (peer->memory_fd >= 0)
		(void)close(peer->memory_fd);
	memset(peer->channels, 0, sizeof(peer->channels));
	peer->memory = NULL;
	peer->memory_fd = peer->fd = -1;
	peer->channel_count = 0;
}

/* False: the test ends. */
static bool connection_serve(struct peer *peer)
{
	struct pollfd fds[2] = {
		{ .fd = peer->listen_fd, .events = POLLIN },
		{ .fd = peer->quit_fd, .events = POLLIN },
	};

	(void)poll(fds, 2, -1);
	if (fds[1].revents)
		return false;
	peer->fd = accept4(peer->listen_fd, NULL, NULL, SOCK_CLOEXEC);
	assert(peer->fd >= 0);
	peer->serving = true;
	if (peer->options.arrive)
		peer->options.arrive(peer);
	if (shake_hands(peer)) {
		if (peer->transport == DSEC_TRANSPORT_RING)
			ring_serve(peer);
		else
			stream_serve(peer);
	}
	connection_end(peer);
	return true;
}

static void *peer_run(void *argument)
{
	struct peer *peer = argument;
	uint32_t connections = or_default(peer->options.connections, 1);

	while (peer->connection < connections && connection_serve(peer))
		(void)__atomic_add_fetch(&peer->connection, 1, __ATOMIC_SEQ_CST);
	return NULL;
}

void peer_hang_up(struct peer *peer)
{
	peer->serving = false;
}

struct peer *peer_start(enum dsec_transport transport, const struct peer_options *options)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	struct peer *peer = calloc(1, sizeof(*peer));
	char folder[] = "/tmp/dsec-peer-XXXXXX";

	assert(peer);
	peer->options = *options;
	peer->transport = transport;
	peer->fd = peer->memory_fd = -1;
	peer->quit_fd = eventfd(0, EFD_CLOEXEC);
	assert(mkdtemp(folder));
	(void)snprintf(peer->path, sizeof(peer->path), "%s/socket", folder);
	(void)snprintf(peer->address, sizeof(peer->address), "%sunix:%s",
		       transport == DSEC_TRANSPORT_STREAM ? "stream+" : "", peer->path);
	peer->listen_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert(peer->listen_fd >= 0);
	memcpy(address.sun_path, peer->path, strlen(peer->path));
	assert(bind(peer->listen_fd, (struct sockaddr *)&address, sizeof(address)) == 0);
	assert(listen(peer->listen_fd, 8) == 0);
	assert(pthread_create(&peer->thread, NULL, peer_run, peer) == 0);
	return peer;
}

void peer_stop(struct peer *peer)
{
	(void)eventfd_write(peer->quit_fd, 1);
	assert(pthread_join(peer->thread, NULL) == 0);
	(void)close(peer->listen_fd);
	(void)close(peer->quit_fd);
	(void)unlink(peer->path);
	*strrchr(peer->path, '/') = '\0';
	(void)rmdir(peer->path);
	free(peer);
}

struct dsec *peer_connect(struct peer *peer, uint32_t channels)
{
	return peer_connect_for(peer, channels, UINT32_MAX);
}

struct dsec *peer_connect_for(struct peer *peer, uint32_t channels, uint32_t reconnect_ms)
{
	struct dsec_open_opts opts = {
		.size = sizeof(opts),
		.address = peer->address,
		.channels = channels,
		.reconnect_ms = reconnect_ms,
	};
	struct dsec *d;

	if (dsec_open(&opts, &d) < 0) {
		fprintf(stderr, "peer_connect: %s\n", dsec_error(NULL, -1));
		abort();
	}
	return d;
}
