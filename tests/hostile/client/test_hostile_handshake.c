/*
 * Attacks on the handshake: every field, every step, every moment to leave, and the memory before
 * and after it is sealed.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <linux/falloc.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/base/cleanup.h"
#include "tests/hostile/client/claims.h"
#include "tests/hostile/client/raw.h"

enum { HANDSHAKE_S = 10, PAGE_BYTES = 4096 };

/* The engine's answer to a hello: its code, or -EPIPE when it hung up without a word. */
static int hello_code(struct scene *scene, const struct dsec_ring_hello *hello)
{
	struct raw raw;
	int r = raw_connect(&raw, scene->engine.socket);

	if (r >= 0)
		r = raw_send(&raw, hello, sizeof *hello);
	if (r >= 0)
		r = raw_receive_welcome(&raw);
	if (r >= 0 && raw.welcome.code && !raw_is_cut(&raw, 5000))
		r = -EBUSY; /* refused, and yet connected */
	r = r < 0 ? r : (int)raw.welcome.code;
	raw_close(&raw);
	return r;
}

static bool a_wrong_hello_is_refused(struct scene *scene)
{
	struct dsec_ring_hello hello = raw_hello(DSEC_TRANSPORT_RING);

	hello.magic ^= 1;
	CHECK(hello_code(scene, &hello) == -EPIPE);
	hello = raw_hello(DSEC_TRANSPORT_RING);
	hello.major = 0;
	CHECK(hello_code(scene, &hello) == DSEC_UNSUPPORTED);
	hello.major = UINT16_MAX;
	CHECK(hello_code(scene, &hello) == DSEC_UNSUPPORTED);
	hello = raw_hello(DSEC_TRANSPORT_RING);
	hello.minor_min = hello.minor_max = UINT16_MAX;
	CHECK(hello_code(scene, &hello) == DSEC_UNSUPPORTED);
	for (unsigned i = 0; i < sizeof hello.reserved / sizeof *hello.reserved; i++) {
		hello = raw_hello(DSEC_TRANSPORT_RING);
		hello.reserved[i] = 1u << i;
		CHECK(hello_code(scene, &hello) == DSEC_INVALID);
	}
	for (unsigned transport = 0; transport <= UINT16_MAX; transport += 4369) {
		hello = raw_hello((enum dsec_transport)transport);
		CHECK(hello_code(scene, &hello) == DSEC_UNSUPPORTED);
	}
	/* A tenant's name ends, has nothing behind it, and no letters of others. */
	for (unsigned i = 0; i < 4; i++) {
		hello = raw_hello(DSEC_TRANSPORT_RING);
		memset(hello.tenant, 'a', i == 0 ? sizeof hello.tenant : 3);
		hello.tenant[i == 1 ? sizeof hello.tenant - 1 : 1] = i == 2 ? '/' : 'a';
		hello.tenant[0] = i == 3 ? '*' : 'a';
		CHECK(hello_code(scene, &hello) == DSEC_INVALID);
	}
	/* Whether there is one of that name is nobody's to know. */
	for (unsigned i = 0; i < 3; i++) {
		static const char *const names[] = { "a", "*", "aaaaaaaaaaaaaaaaaaaaaaaa" };

		hello = raw_hello(DSEC_TRANSPORT_RING);
		memcpy(hello.tenant, names[i], strlen(names[i]));
		CHECK(hello_code(scene, &hello) == DSEC_DENIED);
	}
	hello = raw_hello(DSEC_TRANSPORT_RING);
	hello.token_bytes = DSEC_TOKEN_BYTES_MAX + 1;
	CHECK(hello_code(scene, &hello) == DSEC_INVALID);
	hello.token_bytes = UINT32_MAX;
	CHECK(hello_code(scene, &hello) == DSEC_INVALID);
	return true;
}

static bool sizes_asked_for_are_clamped(struct scene *scene)
{
	static const uint64_t arenas[] = { 1, 4095, 4097, 1ull << 32, UINT64_MAX };
	static const uint32_t counts[] = { 0, 1, 7, 9, 513, 1u << 31, UINT32_MAX };

	for (unsigned i = 0; i < sizeof arenas / sizeof *arenas; i++) {
		for (unsigned k = 0; k < sizeof counts / sizeof *counts; k++) {
			struct dsec_ring_hello hello = raw_hello(DSEC_TRANSPORT_RING);
			struct raw raw;
			const struct dsec_ring_welcome *w = &raw.welcome;
			struct stat st;

			hello.arena_bytes = arenas[i];
			hello.requests_max = counts[k];
			hello.channels = counts[k];
			CHECK(raw_open_hello(&raw, scene->engine.socket, &hello) == 0);
			CHECK(w->arena_bytes >= 128 << 10);
			CHECK(w->arena_bytes <= 4 << 20); /* CLIENT_ARENA_BYTES_MAX */
			CHECK(w->submission_entries >= 8);
			CHECK(w->submission_entries <= (counts[k] ? 512 : 64));
			CHECK(w->completion_entries == 4 * w->submission_entries);
			CHECK(w->arena_at + w->arena_bytes == w->memory_bytes);
			CHECK(fstat(raw.memory_fd, &st) == 0);
			CHECK((uint64_t)st.st_size == w->memory_bytes);
			raw_close(&raw);
		}
	}
	return true;
}

/* A hello with a token, one byte at a time, ends well. */
static bool a_hello_may_come_byte_by_byte(struct scene *scene)
{
	struct {
		struct dsec_ring_hello hello;
		char token[300];
	} message = { raw_hello(DSEC_TRANSPORT_STREAM), "" };
	struct raw raw;

	message.hello.token_bytes = sizeof message.token;
	CHECK(raw_connect(&raw, scene->engine.socket) == 0);
	for (unsigned i = 0; i < sizeof message; i++)
		CHECK(raw_send(&raw, (const char *)&message + i, 1) == 0);
	CHECK(raw_receive_welcome(&raw) == 0);
	CHECK(raw.welcome.code == DSEC_OK);
	raw_close(&raw);
	return true;
}

static bool leaving_at_every_byte_leaves_nothing(struct scene *scene)
{
	const struct dsec_ring_hello hello = raw_hello(DSEC_TRANSPORT_RING);
	const struct dsec_ring_step step = { .magic = DSEC_RING_MAGIC, .step = 1 };
	struct raw raw;

	for (unsigned bytes = 0; bytes <= sizeof hello; bytes++) {
		CHECK(raw_connect(&raw, scene->engine.socket) == 0);
		CHECK(raw_send(&raw, &hello, bytes) == 0);
		raw_close(&raw);
	}
	for (unsigned bytes = 0; bytes <= sizeof step; bytes++) {
		CHECK(raw_connect(&raw, scene->engine.socket) == 0);
		CHECK(raw_send(&raw, &hello, sizeof hello) == 0);
		CHECK(raw_receive_welcome(&raw) == 0);
		CHECK(raw_send(&raw, &step, bytes) == 0);
		raw_close(&raw);
	}
	return true;
}

/* One stops in each state; all are gone when the handshake's time is over, and not before. */
static bool a_handshake_that_stalls_ends(struct scene *scene)
{
	struct dsec_ring_hello hello = raw_hello(DSEC_TRANSPORT_RING);
	struct raw stalled[4];
	uint64_t began_us = claim_now_us();

	for (int i = 0; i < 4; i++)
		CHECK(raw_connect(&stalled[i], scene->engine.socket) == 0);
	CHECK(raw_send(&stalled[1], &hello, 17) == 0);
	hello.token_bytes = 4096;
	CHECK(raw_send(&stalled[2], &hello, sizeof hello) == 0);
	hello.token_bytes = 0;
	CHECK(raw_send(&stalled[3], &hello, sizeof hello) == 0);
	CHECK(raw_receive_welcome(&stalled[3]) == 0);
	claim_sleep_ms((HANDSHAKE_S - 2) * 1000);
	for (int i = 0; i < 4; i++)
		CHECK(!raw_is_cut(&stalled[i], 0));
	for (int i = 0; i < 4; i++)
		CHECK(raw_is_cut(&stalled[i], 8000));
	CHECK(claim_now_us() - began_us > (HANDSHAKE_S - 1) * 1000000ull);
	CHECK(scene_settles(scene, 1000));
	for (int i = 0; i < 4; i++)
		raw_close(&stalled[i]);
	return true;
}

static bool a_wrong_step_ends_the_connection(struct scene *scene)
{
	static const struct dsec_ring_step steps[] = {
		{ DSEC_RING_MAGIC, 0, 0 }, { DSEC_RING_MAGIC, 2, 0 },
		{ DSEC_RING_MAGIC, 3, 0 }, { 0, 1, 0 },
		{ UINT64_MAX, 1, 0 },	   { DSEC_RING_MAGIC, 1, 7 },
	};
	const struct dsec_ring_hello hello = raw_hello(DSEC_TRANSPORT_RING);

	for (unsigned i = 0; i < sizeof steps / sizeof *steps; i++) {
		struct raw raw;

		CHECK(raw_connect(&raw, scene->engine.socket) == 0);
		CHECK(raw_send(&raw, &hello, sizeof hello) == 0);
		CHECK(raw_receive_welcome(&raw) == 0);
		CHECK(raw_send(&raw, &steps[i], sizeof steps[i]) == 0);
		CHECK(raw_is_cut(&raw, 5000));
		raw_close(&raw);
	}
	return true;
}

/* All but "mapped". */
static bool connect_and_map(struct scene *scene, struct raw *raw)
{
	CHECK(raw_connect(raw, scene->engine.socket) == 0);
	raw->hello = raw_hello(DSEC_TRANSPORT_RING);
	CHECK(raw_send(raw, &raw->hello, sizeof raw->hello) == 0);
	CHECK(raw_receive_welcome(raw) == 0);
	CHECK(raw_map(raw) == 0);
	return true;
}

/* Requests before "mapped" are not looked at: there is no channel yet. */
static bool requests_before_mapped_are_not_served(struct scene *scene)
{
	const struct dsec_ring_request nop = { .ticket = 7 };
	struct raw raw;

	CHECK(connect_and_map(scene, &raw));
	raw_put(&raw, &nop);
	raw_doorbell(&raw);
	claim_sleep_ms(300);
	CHECK(raw.channel->submission_head == 0);
	CHECK(raw.channel->completion_tail == 0);
	raw_close(&raw);
	return true;
}

/* Descriptors sent along with every byte: the engine keeps none. */
static bool descriptors_sent_are_not_kept(struct scene *scene)
{
	const struct dsec_ring_hello hello = raw_hello(DSEC_TRANSPORT_STREAM);
	uint32_t before = engine_descriptors(&scene->engine);
	union {
		char bytes[CMSG_SPACE(16 * sizeof(int))];
		struct cmsghdr align;
	} control = { 0 };
	struct raw raw;
	int fds[16];

	CHECK(raw_connect(&raw, scene->engine.socket) == 0);
	for (int i = 0; i < 16; i++)
		fds[i] = raw.fd;
	for (unsigned i = 0; i < sizeof hello; i++) {
		struct iovec part = { (char *)&hello + i, 1 };
		struct msghdr message = { .msg_iov = &part,
					  .msg_iovlen = 1,
					  .msg_control = control.bytes,
					  .msg_controllen = sizeof control.bytes };
		struct cmsghdr *header = CMSG_FIRSTHDR(&message);

		header->cmsg_level = SOL_SOCKET;
		header->cmsg_type = SCM_RIGHTS;
		header->cmsg_len = CMSG_LEN(sizeof fds);
		memcpy(CMSG_DATA(header), fds, sizeof fds);
		CHECK(sendmsg(raw.fd, &message, MSG_NOSIGNAL) == 1);
	}
	CHECK(raw_receive_welcome(&raw) == 0);
	CHECK(engine_descriptors(&scene->engine) <= before + 2); /* the connection's own */
	raw_close(&raw);
	return true;
}

/* ---- memory ---- */

static bool is_refused(int result)
{
	return result < 0 && errno == EPERM;
}

/* Everything that could make the engine's accesses fail or wait. */
static bool memory_cannot_be_touched(struct raw *raw)
{
	size_t bytes = raw->welcome.memory_bytes;
	char *map;

	CHECK(is_refused(ftruncate(raw->memory_fd, 0)));
	CHECK(is_refused(ftruncate(raw->memory_fd, (off_t)bytes * 2)));
	CHECK(is_refused(fallocate(raw->memory_fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
				   (off_t)bytes)));
	CHECK(is_refused(fallocate(raw->memory_fd, 0, 0, (off_t)bytes * 2)));
	CHECK(is_refused((int)pwrite(raw->memory_fd, "x", 1, 0)));
	CHECK(is_refused(madvise(raw->memory, bytes, MADV_REMOVE)) || errno == EACCES);
	CHECK(is_refused(fcntl(raw->memory_fd, F_ADD_SEALS, F_SEAL_WRITE)));
	map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, raw->memory_fd, 0);
	CHECK(map == MAP_FAILED);
	map = mmap(NULL, bytes, PROT_READ, MAP_SHARED, raw->memory_fd, 0);
	CHECK(map != MAP_FAILED);
	CHECK(mprotect(map, bytes, PROT_READ | PROT_WRITE) < 0);
	CHECK(munmap(map, bytes) == 0);
	return true;
}

static bool sealed_memory_cannot_be_touched(struct scene *scene)
{
	struct dsec_ring_request nop = { .ticket = 1 };
	struct raw raw;
	char path[64];
	int again;

	CHECK(raw_open(&raw, scene->engine.socket, DSEC_TRANSPORT_RING) == 0);
	CHECK(memory_cannot_be_touched(&raw));
	/* Nor through a new open file of the same memory. */
	(void)snprintf(path, sizeof path, "/proc/self/fd/%d", raw.memory_fd);
	again = open(path, O_RDWR | O_CLOEXEC);
	CHECK(again >= 0);
	(void)close(raw.memory_fd);
	raw.memory_fd = again;
	CHECK(memory_cannot_be_touched(&raw));
	CHECK(raw_code(&raw, &nop, NULL, 0) == DSEC_OK);
	raw_close(&raw);
	return true;
}

/* Before the seals it may be punched and written, but never made smaller or larger. */
static bool unsealed_memory_cannot_fault(struct scene *scene)
{
	struct dsec_ring_request nop = { .ticket = 1 };
	struct raw raw;
	size_t bytes;

	CHECK(connect_and_map(scene, &raw));
	bytes = raw.welcome.memory_bytes;
	CHECK(is_refused(ftruncate(raw.memory_fd, 0)));
	CHECK(is_refused(ftruncate(raw.memory_fd, PAGE_BYTES)));
	CHECK(is_refused(ftruncate(raw.memory_fd, (off_t)bytes * 2)));
	memset(raw.memory, 0xff, bytes);
	CHECK(fallocate(raw.memory_fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
			(off_t)bytes) == 0);
	CHECK(raw_step_mapped(&raw) == 0);
	CHECK(raw_step_go(&raw) == 0);
	CHECK(memory_cannot_be_touched(&raw));
	CHECK(raw_code(&raw, &nop, NULL, 0) == DSEC_OK);
	raw_close(&raw);
	return true;
}

struct busy_file {
	int fd;
	_Atomic bool over;
};

/* Holds the file's lock nearly all the time, which whoever seals it waits for. */
static void *keep_busy(void *argument)
{
	struct busy_file *file = argument;
	static const char bytes[1 << 20];

	while (!atomic_load(&file->over))
		if (pwrite(file->fd, bytes, sizeof bytes, 0) < 0)
			break; /* sealed */
	return NULL;
}

static bool busy_handshake(struct scene *scene, uint32_t *served)
{
	struct busy_file file = { 0 };
	struct service service;
	pthread_t thread;
	struct raw raw;
	int r;

	CHECK(connect_and_map(scene, &raw));
	file.fd = raw.memory_fd;
	CHECK(pthread_create(&thread, NULL, keep_busy, &file) == 0);
	claim_sleep_ms(2);
	r = raw_step_mapped(&raw);
	if (r >= 0)
		r = neighbour_serve(scene, 10, &service);
	if (r >= 0)
		*served += raw_step_go(&raw) == 0;
	atomic_store(&file.over, true);
	(void)pthread_join(thread, NULL);
	raw_close(&raw);
	CHECK(r >= 0);
	CHECK(service.median_us < claim_held_up_us());
	return true;
}

static bool a_file_kept_busy_holds_up_nobody_else(struct scene *scene)
{
	uint32_t served = 0;

	for (int i = 0; i < 20; i++)
		CHECK(busy_handshake(scene, &served));
	printf("  %u of 20 were served themselves\n", served);
	CHECK(served > 0);
	return true;
}

/* A client that seals first, so that the engine cannot, is not served. */
static bool foreign_seals_end_the_connection(struct scene *scene)
{
	struct raw raw;

	CHECK(connect_and_map(scene, &raw));
	CHECK(fcntl(raw.memory_fd, F_ADD_SEALS, F_SEAL_SEAL) == 0);
	CHECK(raw_step_mapped(&raw) == 0);
	CHECK(raw_step_go(&raw) == -EPIPE);
	raw_close(&raw);
	return true;
}

static bool a_flood_after_the_handshake_is_harmless(struct scene *scene)
{
	struct service service;
	char bytes[4096] = "";
	struct raw raw;

	CHECK(raw_open(&raw, scene->engine.socket, DSEC_TRANSPORT_RING) == 0);
	for (int i = 0; i < 200; i++)
		(void)send(raw.fd, bytes, sizeof bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
	CHECK(neighbour_serve(scene, 200, &service) == 0);
	CHECK(service.median_us < claim_held_up_us());
	raw_close(&raw);
	return true;
}

int main(int argc, char **argv)
{
	static const struct claim claims[] = {
#define CLAIM(name) { #name, name }
		CLAIM(a_wrong_hello_is_refused),
		CLAIM(sizes_asked_for_are_clamped),
		CLAIM(a_hello_may_come_byte_by_byte),
		CLAIM(leaving_at_every_byte_leaves_nothing),
		CLAIM(a_handshake_that_stalls_ends),
		CLAIM(a_wrong_step_ends_the_connection),
		CLAIM(requests_before_mapped_are_not_served),
		CLAIM(descriptors_sent_are_not_kept),
		CLAIM(sealed_memory_cannot_be_touched),
		CLAIM(unsealed_memory_cannot_fault),
		CLAIM(a_file_kept_busy_holds_up_nobody_else),
		CLAIM(foreign_seals_end_the_connection),
		CLAIM(a_flood_after_the_handshake_is_harmless),
#undef CLAIM
	};
	const struct engine_options options = { .arguments = { "--sandboxes-max", "128" } };

	(void)argc;
	return claims_run(claims, sizeof claims / sizeof *claims, &options, argv + 1);
}
