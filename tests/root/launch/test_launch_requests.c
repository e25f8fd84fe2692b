/* Requests that are not as they should be: refused, and the worker goes on with nothing kept. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "engine/base/cleanup.h"
#include "tests/root/launch/harness.h"

static unsigned worker_descriptors(const struct harness *h)
{
	char path[64];
	unsigned count = 0;
	DIR *dir;

	(void)snprintf(path, sizeof path, "/proc/%d/fd", h->workers[0]);
	dir = opendir(path);
	while (dir && readdir(dir))
		count++;
	if (dir)
		(void)closedir(dir); /* only read */
	return count;
}

struct packet {
	const void *bytes;
	size_t size;
	unsigned fd_count;
};

/* Any bytes with any number of descriptors; the reply's error. */
static int packet_send(struct harness *h, const struct packet *packet)
{
	char control[CMSG_SPACE(32 * sizeof(int))] __attribute__((aligned(8))) = { 0 };
	struct iovec part = { (void *)packet->bytes, packet->size };
	struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1 };
	int fds[32];

	for (unsigned i = 0; i < packet->fd_count; i++)
		fds[i] = h->proc_fd;
	if (packet->fd_count) {
		struct cmsghdr *c;

		message.msg_control = control;
		message.msg_controllen = CMSG_SPACE(packet->fd_count * sizeof(int));
		c = CMSG_FIRSTHDR(&message);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(packet->fd_count * sizeof(int));
		memcpy(CMSG_DATA(c), fds, packet->fd_count * sizeof(int));
	}
	if (!expect(sendmsg(h->channels[0], &message, MSG_NOSIGNAL) == (ssize_t)packet->size))
		return -1;
	struct launch_reply reply = harness_receive(h, 0);

	expect(reply.pid == 0);
	return reply.error;
}

struct exec_packet {
	struct launch_request request;
	char payload[512];
};

static struct exec_packet exec_packet(const struct harness *h, const char *payload, size_t bytes)
{
	struct exec_packet p = { .request = harness_request(h, LAUNCH_EXEC, 0) };

	p.request.pid = getpid();
	p.request.argument_count = 1;
	p.request.environment_count = 1;
	p.request.descriptor_count = 2;
	p.request.payload_bytes = (uint32_t)bytes;
	memcpy(p.payload, payload, bytes);
	return p;
}

static int exec_send(struct harness *h, const struct exec_packet *p)
{
	const struct packet packet = { p, sizeof p->request + p->request.payload_bytes,
				       p->request.descriptor_count };

	return packet_send(h, &packet);
}

static void packets_of_any_size_are_refused(struct harness *h)
{
	auto_free char *bytes = calloc(1, LAUNCH_PAYLOAD_BYTES_MAX + 4096);
	const unsigned descriptors = worker_descriptors(h);

	memset(bytes, 0xff, LAUNCH_PAYLOAD_BYTES_MAX + 4096);
	for (size_t size = 1; size < 1200; size += 7)
		expect(packet_send(h, &(struct packet){ bytes, size, size % 12 }) == EINVAL);
	expect(packet_send(h, &(struct packet){ bytes, LAUNCH_PAYLOAD_BYTES_MAX + 4096, 3 }) ==
	       EINVAL);
	expect(worker_descriptors(h) == descriptors);
	expect(harness_op(h, LAUNCH_DROP, 0).error == 0);
}

static void every_descriptor_is_closed(struct harness *h)
{
	const unsigned descriptors = worker_descriptors(h);
	struct launch_request request = harness_request(h, LAUNCH_STAT, 0);

	for (unsigned count = 0; count < 32; count++) {
		request.descriptor_count = count;
		(void)packet_send(h, &(struct packet){ &request, sizeof request, count });
		request.descriptor_count = count + 1;
		expect(packet_send(h, &(struct packet){ &request, sizeof request, count }) ==
		       EINVAL);
	}
	request.op = LAUNCH_ATTACH;
	request.image = 50;
	request.descriptor_count = 1;
	/* Not a detached mount. */
	expect(packet_send(h, &(struct packet){ &request, sizeof request, 1 }) == EINVAL);
	expect(worker_descriptors(h) == descriptors);
}

static void operations_that_do_not_exist_are_refused(struct harness *h)
{
	for (uint32_t op = LAUNCH_OP_COUNT; op < LAUNCH_OP_COUNT + 40; op++)
		expect(harness_op(h, op, 0).error == EINVAL);
	expect(harness_op(h, 0, 0).error == EINVAL);
	expect(harness_op(h, UINT32_MAX, 0).error == EINVAL);
}

static void strings_must_be_as_announced(struct harness *h)
{
	static const struct {
		uint32_t arguments, environment;
		const char *payload;
		size_t bytes;
	} wrong[] = {
		{ 1, 1, "a\0b\0/", 5 },	     /* the last has no end */
		{ 1, 1, "a\0b\0", 4 },	     /* one is missing */
		{ 1, 1, "a\0b\0/\0c\0", 8 }, /* one too many */
		{ 0, 2, "a\0b\0/\0", 6 },    /* no program */
		{ 1, 1, "", 0 },
		{ UINT32_MAX, 3, "a\0b\0/\0", 6 },
		{ 3, UINT32_MAX, "a\0b\0/\0", 6 },
		{ LAUNCH_ARGUMENTS_MAX, 1, "a\0b\0/\0", 6 },
	};

	for (unsigned i = 0; i < sizeof wrong / sizeof *wrong; i++) {
		struct exec_packet p = exec_packet(h, wrong[i].payload, wrong[i].bytes);

		p.request.argument_count = wrong[i].arguments;
		p.request.environment_count = wrong[i].environment;
		if (!expect(exec_send(h, &p) == EINVAL))
			note("case %u", i);
	}
}

static void fields_out_of_range_are_refused(struct harness *h)
{
	struct exec_packet p = exec_packet(h, "a\0b\0/\0", 6);
	struct launch_request build = harness_request(h, LAUNCH_BUILD, 0);

	memset(p.request.user, 'x', sizeof p.request.user);
	expect(exec_send(h, &p) == EINVAL);
	p = exec_packet(h, "a\0b\0/\0", 6);
	p.request.pid = 0;
	expect(exec_send(h, &p) == EINVAL);
	p.request.pid = -1;
	expect(exec_send(h, &p) == EINVAL);
	p.request.pid = getpid();
	for (unsigned count = 0; count < 6; count++) {
		p.request.descriptor_count = count;
		if (count != 2 && count != 3)
			expect(exec_send(h, &p) == EINVAL);
	}
	build.uid_base = 0; /* the host's own */
	expect(harness_ask(h, 0, &build, NULL).error == EINVAL);
	build.uid_base = UINT32_MAX - 100;
	expect(harness_ask(h, 0, &build, NULL).error == EINVAL);
	build = harness_request(h, LAUNCH_BUILD, 0);
	build.disk_bytes = 0; /* tmpfs takes it for no limit */
	expect(harness_ask(h, 0, &build, NULL).error == EINVAL);
	build = harness_request(h, LAUNCH_SPAWN, 0);
	build.flags = LAUNCH_REBUILD;
	memset(build.hostname, 'x', sizeof build.hostname);
	expect(harness_ask(h, 0, &build, NULL).error == EINVAL);
}

static void terminals_and_limits_must_be_as_announced(struct harness *h)
{
	static const struct {
		struct launch_limit limit;
		uint32_t count;
		int error;
	} limits[] = {
		{ { 7, 0, 5, 4 }, 1, EINVAL },		       /* soft over hard */
		{ { LAUNCH_LIMITS_MAX, 0, 1, 1 }, 1, EINVAL }, /* no resource */
		{ { 7, 1, 1, 1 }, 1, EINVAL },		       /* reserved */
		{ { 7, 0, 1, 1 }, 2, EINVAL },		       /* the strings are no limits */
		{ { 7, 0, 1, 1 }, LAUNCH_LIMITS_MAX + 1, EINVAL },
		{ { 7, 0, 1, 1 }, UINT32_MAX, EINVAL },
		{ { 7, 0, 1, 1 }, 1, ENOENT }, /* as it should be; there is no such slot */
	};
	struct launch_request request = harness_request(h, LAUNCH_SIGNAL, 0);
	char payload[sizeof(struct launch_limit) + 6];

	for (unsigned i = 0; i < sizeof limits / sizeof *limits; i++) {
		memcpy(payload, &limits[i].limit, sizeof limits[i].limit);
		memcpy(payload + sizeof limits[i].limit, "a\0b\0/\0", 6);
		struct exec_packet p = exec_packet(h, payload, sizeof payload);

		p.request.limit_count = limits[i].count;
		if (!expect(exec_send(h, &p) == limits[i].error))
			note("case %u", i);
	}
	/* A terminal is made here: none comes along. */
	struct exec_packet p = exec_packet(h, "a\0b\0/\0", 6);

	p.request.flags = LAUNCH_TTY;
	expect(exec_send(h, &p) == EINVAL);
	for (int signal = 65; signal < 70; signal++) {
		request.signal = signal;
		expect(harness_ask(h, 0, &request, NULL).error == EINVAL);
	}
	request.signal = 15;
	request.limit_count = 1;
	expect(harness_ask(h, 0, &request, NULL).error == EINVAL);
}

static void a_process_that_is_no_sandbox_is_not_entered(struct harness *h)
{
	struct exec_packet p = exec_packet(h, "/bin/true\0b\0/\0", 14);

	/* The slot's cgroup does not exist; the process is our own. */
	expect(exec_send(h, &p) == ENOENT);
}

static uint64_t random_next(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

static void random_changes_never_end_the_worker(struct harness *h)
{
	struct box box = box_start(h, 0, LAUNCH_REBUILD);
	uint64_t seed = 0x5eed;

	for (unsigned round = 0; round < 4000; round++) {
		struct exec_packet p = exec_packet(h, "probe\0b\0/\0", 10);
		static const uint32_t ops[] = { LAUNCH_EXEC, LAUNCH_STAT, LAUNCH_BUILD,
						LAUNCH_SIGNAL, LAUNCH_RESIZE };
		const uint32_t op = ops[random_next(&seed) % (sizeof ops / sizeof *ops)];
		struct launch_reply reply;

		/* Only what cannot start anything or wait: execs of nobody, statistics, builds. */
		p.request.op = op;
		for (unsigned i = 0; i < 4; i++)
			((uint8_t *)&p)[random_next(&seed) % sizeof p] =
				(uint8_t)random_next(&seed);
		p.request.slot |= 0x100;
		p.request.op = op;
		p.request.flags = 0;
		if (!expect(send(h->channels[0], &p, sizeof p.request + random_next(&seed) % 20,
				 MSG_NOSIGNAL) > 0))
			break;
		if (!expect(recv(h->channels[0], &reply, sizeof reply, 0) == sizeof reply))
			break;
		if (p.request.op == LAUNCH_BUILD && reply.error == 0)
			expect(harness_op(h, LAUNCH_DROP, p.request.slot).error == 0);
	}
	expect(probe(h, &box, "exit", "0"));
	box_end(h, &box);
}

static void an_image_cannot_lead_mounts_elsewhere(struct harness *h)
{
	struct launch_reply reply = harness_op(h, LAUNCH_BUILD, 0);

	expect(reply.error == ELOOP && reply.step == LAUNCH_STEP_DEVPTS);
	expect(faccessat(h->vault.root_fd, "slots/0", F_OK, 0) < 0);
}

static void an_image_cannot_lead_proc_elsewhere(struct harness *h)
{
	struct launch_request request = harness_request(h, LAUNCH_SPAWN, 0);
	struct launch_reply reply;

	request.flags = LAUNCH_REBUILD;
	reply = harness_ask(h, 0, &request, NULL);
	expect(reply.error == ENOTDIR && reply.step == LAUNCH_STEP_PROC && reply.pid > 0);
	(void)child_reap(reply.pid);
	expect(harness_op(h, LAUNCH_DROP, 0).error == 0);
}

#define TEST(name, ...)                                                                            \
	{                                                                                          \
#name, name,                                                                       \
		{                                                                                  \
			__VA_ARGS__                                                                \
		}                                                                                  \
	}

static void a_bare_directory_gets_what_programs_expect(struct harness *h)
{
	struct launch_request request = harness_request(h, LAUNCH_SPAWN, 0);
	struct launch_reply reply;

	request.flags = LAUNCH_REBUILD;
	reply = harness_ask(h, 0, &request, NULL);
	expect(reply.error == 0);
	struct box box = { reply.pid, 0 };

	expect(probe(h, &box, "devices", ""));
	box_end(h, &box);
}

static const struct harness_test tests[] = {
	TEST(packets_of_any_size_are_refused),
	TEST(every_descriptor_is_closed),
	TEST(operations_that_do_not_exist_are_refused),
	TEST(strings_must_be_as_announced),
	TEST(fields_out_of_range_are_refused),
	TEST(terminals_and_limits_must_be_as_announced),
	TEST(a_process_that_is_no_sandbox_is_not_entered),
	TEST(random_changes_never_end_the_worker),
	TEST(an_image_cannot_lead_mounts_elsewhere, .image = "link"),
	TEST(an_image_cannot_lead_proc_elsewhere, .image = "proclink"),
	TEST(an_image_cannot_lead_mounts_elsewhere, .image = "devlink"),
	TEST(a_bare_directory_gets_what_programs_expect, .image = "bare"),
};

int main(int argc, char **argv)
{
	return harness_main(argc, argv, tests, sizeof tests / sizeof *tests);
}
