/*
 * The wire by hand. Called by the attacks. Events are waited for by looking, never by a wake-up
 * that the engine might owe: what it owes is tested with libdsec.
 */
#include "tests/hostile/client/raw.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "engine/base/cleanup.h"
#include "tests/slowness.h"

enum { STEP_TIMEOUT_MS = 20000, LOOK_NS = 50000 };

static int64_t now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

struct dsec_ring_hello raw_hello(enum dsec_transport transport)
{
	return (struct dsec_ring_hello){
		.magic = DSEC_RING_MAGIC,
		.major = DSEC_RING_MAJOR,
		.minor_min = DSEC_RING_MINOR,
		.minor_max = DSEC_RING_MINOR,
		.transport = (uint16_t)transport,
	};
}

int raw_connect(struct raw *raw, const char *socket_path)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };

	*raw = (struct raw){ .fd = -1, .memory_fd = -1, .memory = MAP_FAILED };
	(void)snprintf(address.sun_path, sizeof address.sun_path, "%s", socket_path);
	raw->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (raw->fd < 0 || connect(raw->fd, (struct sockaddr *)&address, sizeof address) < 0)
		return -errno;
	return 0;
}

int raw_send(struct raw *raw, const void *bytes, size_t count)
{
	const char *at = bytes;

	while (count) {
		ssize_t sent = send(raw->fd, at, count, MSG_NOSIGNAL);

		if (sent < 0)
			return -errno;
		at += sent;
		count -= (size_t)sent;
	}
	return 0;
}

int raw_receive(struct raw *raw, void *ret_bytes, size_t count)
{
	struct pollfd wait = { .fd = raw->fd, .events = POLLIN };
	char *at = ret_bytes;

	while (count) {
		ssize_t got;

		if (poll(&wait, 1, (int)longer(STEP_TIMEOUT_MS)) == 0)
			return -ETIMEDOUT;
		got = recv(raw->fd, at, count, 0);
		if (got <= 0)
			return got && errno != ECONNRESET ? -errno : -EPIPE;
		at += got;
		count -= (size_t)got;
	}
	return 0;
}

int raw_receive_welcome(struct raw *raw)
{
	union {
		char bytes[CMSG_SPACE((RAW_DOORBELLS_MAX + 1) * sizeof(int))];
		struct cmsghdr align;
	} control;
	struct iovec part = { &raw->welcome, sizeof raw->welcome };
	struct msghdr message = { .msg_iov = &part,
				  .msg_iovlen = 1,
				  .msg_control = control.bytes,
				  .msg_controllen = sizeof control.bytes };
	struct pollfd wait = { .fd = raw->fd, .events = POLLIN };
	struct cmsghdr *header;
	ssize_t got;

	if (poll(&wait, 1, (int)longer(STEP_TIMEOUT_MS)) == 0)
		return -ETIMEDOUT;
	got = recvmsg(raw->fd, &message, MSG_CMSG_CLOEXEC | MSG_WAITALL);
	if (got != sizeof raw->welcome)
		return got < 0 && errno != ECONNRESET ? -errno : -EPIPE;
	header = CMSG_FIRSTHDR(&message);
	if (header) {
		size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		int fds[RAW_DOORBELLS_MAX + 1];

		memcpy(fds, CMSG_DATA(header), count * sizeof(int));
		raw->memory_fd = fds[0];
		for (size_t i = 1; i < count; i++)
			raw->doorbells[raw->doorbell_count++] = fds[i];
	}
	return 0;
}

int raw_map(struct raw *raw)
{
	const struct dsec_ring_welcome *w = &raw->welcome;
	char *base;

	raw->memory =
		mmap(NULL, w->memory_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, raw->memory_fd, 0);
	if (raw->memory == MAP_FAILED)
		return -errno;
	base = raw->memory + w->channel_at;
	raw->channel = (struct dsec_ring_channel *)base;
	raw->requests = (struct dsec_ring_request *)(base + w->submission_at);
	raw->events = (struct dsec_ring_event *)(base + w->completion_at);
	raw->buffers = (struct dsec_ring_buffer *)(base + w->buffer_at);
	raw->arena = raw->memory + w->arena_at;
	return 0;
}

int raw_step_mapped(struct raw *raw)
{
	const struct dsec_ring_step step = { .magic = DSEC_RING_MAGIC, .step = 1 };

	return raw_send(raw, &step, sizeof step);
}

int raw_step_go(struct raw *raw)
{
	struct dsec_ring_step step;
	int r = raw_receive(raw, &step, sizeof step);

	if (r < 0)
		return r;
	return step.magic == DSEC_RING_MAGIC && step.step == 2 ? 0 : -EPROTO;
}

int raw_open_hello(struct raw *raw, const char *socket_path, const struct dsec_ring_hello *hello)
{
	int r = raw_connect(raw, socket_path);

	raw->hello = *hello;
	if (r >= 0)
		r = raw_send(raw, hello, sizeof *hello);
	if (r >= 0)
		r = raw_receive_welcome(raw);
	if (r >= 0 && raw->welcome.code)
		r = -EACCES;
	if (r >= 0 && hello->transport == DSEC_TRANSPORT_RING) {
		r = raw_map(raw);
		if (r >= 0)
			r = raw_step_mapped(raw);
		if (r >= 0)
			r = raw_step_go(raw);
		if (r >= 0)
			raw_buffers_post(
				raw, (uint32_t)(raw->welcome.arena_bytes / 2 / RAW_BUFFER_BYTES));
	}
	if (r < 0)
		raw_close(raw);
	return r;
}

int raw_open(struct raw *raw, const char *socket_path, enum dsec_transport transport)
{
	const struct dsec_ring_hello hello = raw_hello(transport);

	return raw_open_hello(raw, socket_path, &hello);
}

void raw_close(struct raw *raw)
{
	if (raw->memory != MAP_FAILED)
		(void)munmap(raw->memory, raw->welcome.memory_bytes);
	raw->memory = MAP_FAILED;
	for (uint32_t i = 0; i < raw->doorbell_count; i++)
		(void)close(raw->doorbells[i]);
	raw->doorbell_count = 0;
	cleanup_close(&raw->memory_fd);
	cleanup_close(&raw->fd);
	raw->fd = raw->memory_fd = -1;
	free(raw->payload);
	raw->payload = NULL;
}

bool raw_is_cut(struct raw *raw, int timeout_ms)
{
	int64_t end_ms = now_ms() + (int64_t)longer((unsigned)timeout_ms);
	char bytes[4096];

	for (int64_t left = end_ms - now_ms(); left >= 0; left = end_ms - now_ms()) {
		struct pollfd wait = { .fd = raw->fd, .events = POLLIN };
		ssize_t got;

		if (poll(&wait, 1, (int)left) <= 0)
			return false;
		got = recv(raw->fd, bytes, sizeof bytes, 0);
		if (got == 0 || (got < 0 && errno == ECONNRESET))
			return true;
	}
	return false;
}

/* ---- requests ---- */

uint64_t raw_payload_at(const struct raw *raw)
{
	uint64_t half = raw->welcome.arena_bytes / 2;

	return half + raw->submitted % RAW_PAYLOADS * (half / RAW_PAYLOADS);
}

void raw_put(struct raw *raw, const struct dsec_ring_request *entry)
{
	uint32_t mask = raw->welcome.submission_entries - 1;

	raw->requests[raw->submitted & mask] = *entry;
	raw->submitted++;
	__atomic_store_n(&raw->channel->submission_tail, raw->submitted, __ATOMIC_RELEASE);
}

void raw_put_payload(struct raw *raw, struct dsec_ring_request *entry, const void *payload,
		     uint32_t bytes)
{
	uint64_t half = raw->welcome.arena_bytes / 2;

	/* A large one has no place of its own: then nothing else may be in flight. */
	assert(bytes <= half);
	entry->payload_at = bytes > half / RAW_PAYLOADS ? half : raw_payload_at(raw);
	entry->payload_bytes = bytes;
	if (bytes)
		memcpy(raw->arena + entry->payload_at, payload, bytes);
	raw_put(raw, entry);
}

void raw_doorbell(struct raw *raw)
{
	const uint64_t one = 1;

	/* A full counter is readable already: the engine was told. */
	(void)!write(raw->doorbells[0], &one, sizeof one);
}

int raw_ask(struct raw *raw, struct dsec_ring_request *entry, const void *payload, uint32_t bytes)
{
	int r;

	if (raw->hello.transport == DSEC_TRANSPORT_RING) {
		raw_put_payload(raw, entry, payload, bytes);
		raw_doorbell(raw);
		return 0;
	}
	entry->payload_bytes = bytes;
	r = raw_send(raw, entry, sizeof *entry);
	return r < 0 || !bytes ? r : raw_send(raw, payload, bytes);
}

/* ---- events ---- */

void raw_buffers_post(struct raw *raw, uint32_t count)
{
	uint32_t mask = raw->welcome.buffer_entries - 1;
	uint64_t places = raw->welcome.arena_bytes / 2 / RAW_BUFFER_BYTES;

	/* They are used in the order posted: the place of the oldest is free again. */
	if (count > mask + 1)
		count = mask + 1;
	for (; count; count--) {
		raw->buffers[raw->posted & mask] = (struct dsec_ring_buffer){
			.at = raw->posted % places * RAW_BUFFER_BYTES,
			.bytes = RAW_BUFFER_BYTES,
		};
		raw->posted++;
	}
	__atomic_store_n(&raw->channel->buffer_tail, raw->posted, __ATOMIC_RELEASE);
}

static int stream_next(struct raw *raw, int timeout_ms, struct dsec_ring_event *ret,
		       const char **ret_payload)
{
	struct pollfd wait = { .fd = raw->fd, .events = POLLIN };
	int r;

	if (poll(&wait, 1, (int)longer((unsigned)timeout_ms)) == 0)
		return -ETIMEDOUT;
	r = raw_receive(raw, ret, sizeof *ret);
	if (r < 0)
		return r;
	free(raw->payload);
	raw->payload = malloc(ret->bytes + 1);
	if (!raw->payload)
		return -ENOMEM;
	if (ret_payload)
		*ret_payload = raw->payload;
	return raw_receive(raw, raw->payload, ret->bytes);
}

static int ring_wait(struct raw *raw, int timeout_ms)
{
	const struct timespec look = { .tv_nsec = LOOK_NS };
	int64_t end_ms = now_ms() + (int64_t)longer((unsigned)timeout_ms);

	while (__atomic_load_n(&raw->channel->completion_tail, __ATOMIC_ACQUIRE) ==
	       raw->completed) {
		if (now_ms() >= end_ms)
			return raw_is_cut(raw, 0) ? -EPIPE : -ETIMEDOUT;
		(void)nanosleep(&look, NULL);
	}
	return 0;
}

int raw_next(struct raw *raw, int timeout_ms, struct dsec_ring_event *ret, const char **ret_payload)
{
	uint32_t mask = raw->welcome.completion_entries - 1;
	int r;

	if (raw->hello.transport == DSEC_TRANSPORT_STREAM)
		return stream_next(raw, timeout_ms, ret, ret_payload);
	r = ring_wait(raw, timeout_ms);
	if (r < 0)
		return r;
	*ret = raw->events[raw->completed & mask];
	raw->completed++;
	__atomic_store_n(&raw->channel->completion_head, raw->completed, __ATOMIC_RELEASE);
	if (!ret->bytes)
		return 0;
	free(raw->payload);
	raw->payload = malloc(ret->bytes);
	if (!raw->payload)
		return -ENOMEM;
	memcpy(raw->payload,
	       raw->arena + raw->buffers[ret->buffer & (raw->welcome.buffer_entries - 1)].at,
	       ret->bytes);
	raw_buffers_post(raw, 1);
	if (ret_payload)
		*ret_payload = raw->payload;
	return 0;
}

int raw_last(struct raw *raw, uint64_t ticket, int timeout_ms, struct dsec_ring_event *ret,
	     struct dsec_wire_status *ret_status)
{
	const char *payload = NULL;
	int r;

	do {
		r = raw_next(raw, timeout_ms, ret, &payload);
		if (r < 0)
			return r;
	} while (ret->ticket != ticket || !(ret->flags & DSEC_EVENT_LAST));
	if (ret_status && (ret->flags & DSEC_EVENT_STATUS) && ret->bytes >= sizeof *ret_status)
		memcpy(ret_status, payload + ret->bytes - sizeof *ret_status, sizeof *ret_status);
	return 0;
}

int raw_code(struct raw *raw, struct dsec_ring_request *entry, const void *payload, uint32_t bytes)
{
	struct dsec_ring_event last;
	int r = raw_ask(raw, entry, payload, bytes);

	if (r >= 0)
		r = raw_last(raw, entry->ticket, STEP_TIMEOUT_MS, &last, NULL);
	return r < 0 ? r : last.code;
}
