/*
 * The server of names of dns_world.h: one process, one question after the other. Called by
 * test_engine_names.c.
 */
#include "tests/root/engine/dns_world.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/root/engine/egress_world.h"

enum { MESSAGE_BYTES = 4096, PORT_DNS = 53, BIG_COUNT = 40 };

struct writer {
	uint8_t bytes[MESSAGE_BYTES];
	size_t count;
};

static void add(struct writer *w, const void *bytes, size_t count)
{
	memcpy(w->bytes + w->count, bytes, count);
	w->count += count;
}

static void add_record(struct writer *w, const char *owner, const char *address)
{
	static const uint8_t middle[] = { 0, 1, 0, 1, 0, 0, 0, 60, 0, 4 };
	uint8_t number[4];

	add(w, owner, strlen(owner) + 1);
	add(w, middle, sizeof middle);
	(void)inet_pton(AF_INET, address, number); /* ours */
	add(w, number, sizeof number);
	w->bytes[7]++;
}

#define ALIAS "\3www\6mirror\7example"
#define EDGE  "\4edge\7example"

static void add_alias(struct writer *w)
{
	static const uint8_t middle[] = { 0, 5, 0, 1, 0, 0, 0, 60, 0, sizeof EDGE };

	add(w, ALIAS, sizeof ALIAS);
	add(w, middle, sizeof middle);
	add(w, EDGE, sizeof EDGE);
	w->bytes[7]++;
}

/* "api.example" of the wire's form; and how long it is there. */
static size_t name_print(const uint8_t *wire, size_t most, char ret[256])
{
	size_t at = 0, used = 0;

	while (at < most && wire[at] && at + wire[at] + 1u < most && used + wire[at] + 2u < 256) {
		if (used)
			ret[used++] = '.';
		memcpy(ret + used, wire + at + 1, wire[at]);
		used += wire[at];
		at += wire[at] + 1u;
	}
	ret[used] = 0;
	return at + 1;
}

/* False: nothing is answered. */
static bool answer_write(struct writer *w, const char *name, const uint8_t *owner, bool is_tcp)
{
	const char *o = (const char *)owner;

	if (!strcmp(name, "slow.example"))
		return false;
	if (!strcmp(name, "api.example") || !strcmp(name, "edge.example")) {
		add_record(w, o, INTERNET);
	} else if (!strcmp(name, "front.example")) {
		add_record(w, o, OTHER);
	} else if (!strcmp(name, "www.mirror.example")) {
		add_alias(w);
		add_record(w, EDGE, INTERNET);
	} else if (!strcmp(name, "rebind.example")) {
		add_record(w, o, "169.254.169.254");
		add_record(w, o, "127.0.0.1");
		add_record(w, o, "10.200.0.1");
	} else if (!strcmp(name, "mixed.example")) {
		add_record(w, o, "127.0.0.1");
		add_record(w, o, INTERNET);
	} else if (!strcmp(name, "big.example") && !is_tcp) {
		w->bytes[2] |= 2;
	} else if (!strcmp(name, "big.example")) {
		add_record(w, o, INTERNET);
		for (int i = 1; i < BIG_COUNT; i++)
			add_record(w, o, OTHER);
	} else {
		w->bytes[3] |= 3;
	}
	return true;
}

/* How many bytes of answer are in `w`; 0: none. */
static size_t question_take(struct dns_log *log, const uint8_t *query, size_t bytes, bool is_tcp,
			    struct writer *w)
{
	char name[256];
	size_t name_bytes;

	if (bytes < 17)
		return 0;
	name_bytes = name_print(query + 12, bytes - 12, name);
	memcpy(log->last, name, sizeof log->last);
	__atomic_fetch_add(&log->asked, 1, __ATOMIC_RELEASE);
	*w = (struct writer){ 0 };
	add(w, query, 12 + name_bytes + 4);
	w->bytes[2] = 0x81;
	w->bytes[3] = 0x80;
	memset(w->bytes + 6, 0, 6);
	return answer_write(w, name, query + 12, is_tcp) ? w->count : 0;
}

static void datagram_answer(int fd, struct dns_log *log)
{
	struct sockaddr_in from;
	socklen_t from_bytes = sizeof from;
	uint8_t query[MESSAGE_BYTES];
	struct writer w;
	ssize_t got = recvfrom(fd, query, sizeof query, 0, (struct sockaddr *)&from, &from_bytes);
	size_t count = got > 0 ? question_take(log, query, (size_t)got, false, &w) : 0;

	if (count && !strcmp(log->last, "www.mirror.example")) {
		struct writer wrong = w;

		wrong.bytes[1] ^= 1;
		wrong.bytes[count - 1] = 20; /* OTHER */
		(void)!sendto(fd, wrong.bytes, count, 0, (struct sockaddr *)&from, from_bytes);
	}
	if (count)
		(void)!sendto(fd, w.bytes, count, 0, (struct sockaddr *)&from, from_bytes);
}

static void stream_answer(int listen_fd, struct dns_log *log)
{
	int fd = accept(listen_fd, NULL, NULL);
	uint8_t query[2 + MESSAGE_BYTES], head[2];
	ssize_t got = recv(fd, query, sizeof query, 0); /* small enough to come at once */
	struct writer w;
	size_t count = got > 2 ? question_take(log, query + 2, (size_t)got - 2, true, &w) : 0;

	head[0] = (uint8_t)(count >> 8);
	head[1] = (uint8_t)count;
	if (count && send(fd, head, 2, MSG_NOSIGNAL) == 2)
		(void)!send(fd, w.bytes, count, MSG_NOSIGNAL);
	(void)close(fd);
}

static void server_run(const char *address, struct dns_log *log)
{
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_port = htons(PORT_DNS) };
	struct pollfd fds[] = { { .fd = socket(AF_INET, SOCK_DGRAM, 0), .events = POLLIN },
				{ .fd = socket(AF_INET, SOCK_STREAM, 0), .events = POLLIN } };
	const int on = 1;

	(void)inet_pton(AF_INET, address, &at.sin_addr); /* ours */
	(void)setsockopt(fds[1].fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
	if (bind(fds[0].fd, (struct sockaddr *)&at, sizeof at) < 0 ||
	    bind(fds[1].fd, (struct sockaddr *)&at, sizeof at) < 0 || listen(fds[1].fd, 16) < 0)
		_exit(1);
	while (poll(fds, 2, -1) > 0) {
		if (fds[0].revents)
			datagram_answer(fds[0].fd, log);
		if (fds[1].revents)
			stream_answer(fds[1].fd, log);
	}
}

pid_t dns_start(pid_t world, const char *address, struct dns_log **ret)
{
	char path[64];
	pid_t pid;

	*ret = mmap(NULL, sizeof **ret, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (*ret == MAP_FAILED)
		return -1;
	pid = fork();
	if (pid)
		return pid;
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	(void)snprintf(path, sizeof path, "/proc/%d/ns/net", world);
	if (setns(open(path, O_RDONLY | O_CLOEXEC), CLONE_NEWNET) == 0)
		server_run(address, *ret);
	_exit(1);
}
