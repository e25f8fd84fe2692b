/*
 * Shared memory of a client and its doorbells. Called by client.c, on the control thread; the
 * mapping is used by the channels of all shards until every one of them has settled.
 */
#include "engine/client/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/memfd.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "engine/base/cleanup.h"
#include "engine/request/records.h"
#include "engine/shard.h"

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 8u
#endif

enum {
	ARENA_BYTES_DEFAULT = 1 << 20,
	ARENA_BYTES_MIN = 128 << 10,
	PAGE_BYTES = 4096,
	BUFFER_ENTRIES = 64,
	REQUESTS_DEFAULT = 64, /* of a client that does not ask for more */
};

static uint32_t power_of_two(uint32_t n)
{
	uint32_t p = 8;

	while (p < n)
		p *= 2;
	return p;
}

static uint64_t clamp(uint64_t value, uint64_t low, uint64_t high)
{
	return value < low ? low : value > high ? high : value;
}

static uint32_t round_up(uint32_t bytes, uint32_t to)
{
	return (bytes + to - 1) / to * to;
}

static void layout_fill(struct dsec_ring_welcome *w, const struct node *node,
			const struct dsec_ring_hello *hello)
{
	uint32_t requests = hello->requests_max ? hello->requests_max : REQUESTS_DEFAULT;

	w->magic = DSEC_RING_MAGIC;
	w->major = DSEC_RING_MAJOR;
	w->minor = DSEC_RING_MINOR;
	w->code = DSEC_OK;
	w->features = node->features;
	w->epoch = node->epoch;
	w->clock_ms = records_clock_ms(node->epoch, node->epoch_ns);
	w->shards = node->shard_count;
	w->request_bytes = sizeof(struct dsec_ring_request);
	w->event_bytes = sizeof(struct dsec_ring_event);
	w->op_count = DSEC_OP_COUNT;
	w->buffer_bytes_min = DSEC_BUFFER_BYTES_MIN;
	w->stream_payload_max = DSEC_PAYLOAD_BYTES_MAX;
	w->submission_entries =
		power_of_two((uint32_t)clamp(requests, 8, node->config->requests_max));
	w->completion_entries = w->submission_entries * 4;
	w->buffer_entries = BUFFER_ENTRIES;
}

static int doorbells_make(struct client_memory *memory, unsigned int channels)
{
	memory->doorbells = malloc(channels * sizeof *memory->doorbells);
	if (!memory->doorbells)
		return -ENOMEM;
	for (unsigned int i = 0; i < channels; i++)
		memory->doorbells[i] = -1;
	for (unsigned int i = 0; i < channels; i++) {
		memory->doorbells[i] = eventfd(0, EFD_CLOEXEC);
		if (memory->doorbells[i] < 0)
			return -errno;
	}
	return 0;
}

int client_memory_init(struct client_memory *memory, const struct node *node,
		       const struct dsec_ring_hello *hello, unsigned int channels)
{
	struct dsec_ring_welcome *w = &memory->layout;
	uint64_t arena = hello->arena_bytes ? hello->arena_bytes : ARENA_BYTES_DEFAULT;

	*memory = (struct client_memory){ .fd = -1 };
	layout_fill(w, node, hello);
	w->channels = channels;
	if (hello->transport == DSEC_TRANSPORT_STREAM)
		return 0;
	w->submission_at = sizeof(struct dsec_ring_channel);
	w->completion_at = w->submission_at + w->submission_entries * w->request_bytes;
	w->buffer_at = w->completion_at + w->completion_entries * w->event_bytes;
	w->channel_bytes = round_up(
		w->buffer_at + w->buffer_entries * (uint32_t)sizeof(struct dsec_ring_buffer),
		PAGE_BYTES);
	w->arena_at = (uint64_t)w->channel_bytes * channels;
	w->arena_bytes =
		clamp(arena, ARENA_BYTES_MIN, CLIENT_ARENA_BYTES_MAX) / PAGE_BYTES * PAGE_BYTES;
	w->memory_bytes = w->arena_at + w->arena_bytes;
	auto_close int fd =
		memfd_create("dsec-client", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);

	if (fd < 0 || ftruncate(fd, (off_t)w->memory_bytes) < 0 ||
	    fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) < 0)
		return -errno;
	void *base = mmap(NULL, w->memory_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	if (base == MAP_FAILED)
		return -errno;
	memory->base = base;
	memory->bytes = w->memory_bytes;
	memory->fd = take_fd(&fd);
	return doorbells_make(memory, channels);
}

int client_memory_send(const struct client_memory *memory, int socket_fd)
{
	union {
		char bytes[CMSG_SPACE((DSEC_CHANNELS_MAX + 1) * sizeof(int))];
		size_t align; /* as a cmsghdr is */
	} control;
	const struct dsec_ring_welcome *welcome = &memory->layout;
	struct iovec part = { (void *)welcome, sizeof *welcome };
	struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1 };

	if (memory->doorbells) {
		const size_t bytes = welcome->channels * sizeof(int);

		message.msg_control = control.bytes;
		message.msg_controllen = CMSG_SPACE(sizeof(int) + bytes);
		struct cmsghdr *header = CMSG_FIRSTHDR(&message);

		header->cmsg_level = SOL_SOCKET;
		header->cmsg_type = SCM_RIGHTS;
		header->cmsg_len = CMSG_LEN(sizeof(int) + bytes);
		memcpy(CMSG_DATA(header), &memory->fd, sizeof(int));
		memcpy(CMSG_DATA(header) + sizeof(int), memory->doorbells, bytes);
	}
	return sendmsg(socket_fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL) == sizeof *welcome ?
		       0 :
		       -EPIPE;
}

int client_memory_take_doorbell(struct client_memory *memory, unsigned int channel)
{
	int fd = memory->doorbells ? memory->doorbells[channel] : -1;

	if (memory->doorbells)
		memory->doorbells[channel] = -1;
	return fd;
}

int client_memory_seal(struct client_memory *memory)
{
	const int wanted = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL;
	int seals;

	if (fcntl(memory->fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE | F_SEAL_SEAL) < 0)
		return -errno;
	seals = fcntl(memory->fd, F_GET_SEALS);
	if (seals < 0 || (seals & wanted) != wanted)
		return -EPERM;
	cleanup_close(&memory->fd);
	memory->fd = -1;
	return 0;
}

void client_memory_done(struct client_memory *memory)
{
	if (memory->base)
		(void)munmap(memory->base, memory->bytes);
	for (uint32_t i = 0; memory->doorbells && i < memory->layout.channels; i++)
		cleanup_close(&memory->doorbells[i]);
	free(memory->doorbells);
	cleanup_close(&memory->fd);
	*memory = (struct client_memory){ .fd = -1 };
}
