/*
 * Attacks on the families and on the names of sockets that a policy refuses. The listener of
 * run/forbidden and of @dsec-forbidden is the attacker's own, so that what is refused is the name.
 * See attack.h.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/io_uring.h>
#include <linux/seccomp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "bpf/policy.h"
#include "tests/hostile/policy/attack.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

/* ---- families ---- */

/*
 * EPERM: every family but those; 0: not even netlink is, and no other is asked for. Of the others
 * the filter that every sandbox has refuses some first, by an errno of its own.
 */
static int all_families(int (*try)(int family, int type))
{
	const bool is_filtered = prctl(PR_GET_SECCOMP) == SECCOMP_MODE_FILTER;
	unsigned refused = 0, tried = 0;
	int r = try(AF_NETLINK, SOCK_RAW);

	if (r != EPERM && r != EAFNOSUPPORT)
		return 0;
	for (int family = 3; family < AF_MAX; family++) {
		if (family == AF_INET6)
			continue;
		const int raw = try(family, SOCK_RAW), datagram = try(family, SOCK_DGRAM);

		tried++;
		refused += raw == datagram && (raw == r || (is_filtered && raw == EAFNOSUPPORT));
	}
	return refused == tried ? r : ATTACK_MIXED;
}

static int one_socket(int family, int type)
{
	const int fd = socket(family, type, 0), error = errno;

	if (fd >= 0)
		(void)close(fd); /* never used */
	return fd < 0 ? error : 0;
}

static int one_pair(int family, int type)
{
	int ends[2];
	const int r = socketpair(family, type, 0, ends), error = errno;

	if (r == 0) {
		(void)close(ends[0]); /* never used */
		(void)close(ends[1]); /* never used */
	}
	return r < 0 ? error : 0;
}

static int any_other_family(void)
{
	return all_families(one_socket);
}

static int any_other_family_in_pairs(void)
{
	return all_families(one_pair);
}

static int netlink_by_io_uring(void)
{
	struct io_uring_sqe entry = { .opcode = IORING_OP_SOCKET,
				      .fd = AF_NETLINK,
				      .off = SOCK_RAW };

	return ring_try(&entry, RING_INLINE);
}

/* socket() has a number of its own there. */
static int netlink_by_32_bits(void)
{
	return call_32_plain(359, AF_NETLINK, SOCK_RAW, 0);
}

/* ---- names ---- */

#define PATH_NAME "run/forbidden"
#define ABSTRACT  "\0dsec-forbidden"

static socklen_t address_make(struct sockaddr_un *ret, const char *name, size_t bytes)
{
	memset(ret, 0, sizeof *ret);
	ret->sun_family = AF_UNIX;
	memcpy(ret->sun_path, name, bytes);
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + bytes);
}

#define ADDRESS(ret, name) address_make(ret, name, sizeof(name) - 1)

static int listen_at(int type, const struct sockaddr_un *address, socklen_t bytes)
{
	const int fd = socket(AF_UNIX, type, 0);

	if (fd < 0 || bind(fd, (const struct sockaddr *)address, bytes) < 0)
		return errno;
	return type == SOCK_STREAM ? TRIED(listen(fd, 1)) : 0;
}

static int reach(int type, const struct sockaddr_un *address, socklen_t bytes)
{
	const int fd = socket(AF_UNIX, type, 0);

	if (type == SOCK_STREAM)
		return TRIED(connect(fd, (const struct sockaddr *)address, bytes));
	return TRIED(sendto(fd, "x", 1, 0, (const struct sockaddr *)address, bytes));
}

static int abstract(int type)
{
	struct sockaddr_un address;
	const socklen_t bytes = ADDRESS(&address, ABSTRACT);
	const int r = listen_at(type, &address, bytes);

	return r ? r : reach(type, &address, bytes);
}

static int connect_to_an_abstract_name(void)
{
	return abstract(SOCK_STREAM);
}

static int send_to_an_abstract_name(void)
{
	return abstract(SOCK_DGRAM);
}

static int by_path(int type)
{
	struct sockaddr_un address;
	const socklen_t bytes = ADDRESS(&address, PATH_NAME);
	const int r = listen_at(type, &address, bytes);

	return r ? r : reach(type, &address, bytes);
}

static int connect_to_a_path(void)
{
	return by_path(SOCK_STREAM);
}

static int send_to_a_path(void)
{
	return by_path(SOCK_DGRAM);
}

static int connect_by_a_link(void)
{
	struct sockaddr_un address, other;
	const int r = listen_at(SOCK_STREAM, &address, ADDRESS(&address, PATH_NAME));

	if (r)
		return r;
	if (symlink("../" PATH_NAME, "home/link") < 0)
		return errno;
	return reach(SOCK_STREAM, &other, ADDRESS(&other, "home/link"));
}

static int connect_by_io_uring(void)
{
	const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
	struct sockaddr_un address;
	const socklen_t bytes = ADDRESS(&address, ABSTRACT);
	struct io_uring_sqe entry = { .opcode = IORING_OP_CONNECT,
				      .fd = fd,
				      .addr = (uint64_t)(uintptr_t)&address,
				      .off = bytes };
	const int r = listen_at(SOCK_STREAM, &address, bytes);

	return r ? r : ring_try(&entry, RING_WORKER);
}

static int rename_the_socket(void)
{
	struct sockaddr_un address;
	const int r = listen_at(SOCK_STREAM, &address, ADDRESS(&address, PATH_NAME));

	return r ? r : TRIED(rename(PATH_NAME, "run/other"));
}

static int link_the_socket(void)
{
	struct sockaddr_un address;
	const int r = listen_at(SOCK_STREAM, &address, ADDRESS(&address, PATH_NAME));

	return r ? r : TRIED(link(PATH_NAME, "run/other"));
}

static const struct attack attacks[] = {
	ATTACK(any_other_family, EPERM, 0, EAFNOSUPPORT, 0, SOCKET, NETLINK, NULL),
	ATTACK(any_other_family_in_pairs, EPERM, 0, EAFNOSUPPORT, EAFNOSUPPORT, SOCKET, NETLINK,
	       NULL),
	ATTACK(netlink_by_io_uring, EPERM, 0, ENOSYS, ENOSYS, SOCKET, NETLINK, NULL),
	ATTACK(netlink_by_32_bits, EPERM, 0, ENOSYS, ENOSYS, SOCKET, NETLINK, NULL),
	ATTACK(connect_to_an_abstract_name, EPERM, 0, EPERM, EPERM, UNIX_CONNECT, ABSTRACT,
	       "@dsec-forbidden"),
	ATTACK(send_to_an_abstract_name, EPERM, 0, EPERM, EPERM, UNIX_SEND, ABSTRACT,
	       "@dsec-forbidden"),
	ATTACK(connect_to_a_path, EPERM, 0, 0, 0, UNIX_CONNECT, SOCKET, PATH_NAME),
	ATTACK(send_to_a_path, EPERM, 0, 0, 0, UNIX_SEND, SOCKET, PATH_NAME),
	ATTACK(connect_by_a_link, EPERM, 0, 0, 0, UNIX_CONNECT, SOCKET, PATH_NAME),
	ATTACK(connect_by_io_uring, EPERM, 0, ENOSYS, ENOSYS, UNIX_CONNECT, ABSTRACT,
	       "@dsec-forbidden"),
	ATTACK(rename_the_socket, EPERM, 0, 0, 0, RENAME, SOCKET, PATH_NAME),
	ATTACK(link_the_socket, EPERM, 0, 0, 0, LINK, SOCKET, PATH_NAME),
};

const struct attack_group sockets_group = { "sockets", attacks, COUNT(attacks) };
