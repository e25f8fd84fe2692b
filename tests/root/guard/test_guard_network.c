/*
 * Claims about what sandboxes of network `none` and `private` can do with sockets, tried by real
 * processes in a cgroup tree of its own. They share the test's network namespace, as sandboxes of
 * `none` share one.
 */
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "bpf/guard.h"
#include "engine/base/cleanup.h"
#include "tests/root/guard/tree.h"

static struct tree tree;
static struct guard *guard;

static void setup(void)
{
	struct guard_options options;
	char why[4096];
	const uint32_t needed = GUARD_NETWORK_NONE | GUARD_ABSTRACT;

	tree_make(&tree);
	options = tree_options(&tree);
	cr_assert_eq(guard_open(&options, why, sizeof(why), &guard), 0);
	cr_assert_eq(guard_capabilities(guard) & needed, needed, "%s", why);
}

static void teardown(void)
{
	guard_close(guard);
	tree_remove(&tree);
}

TestSuite(network, .init = setup, .fini = teardown, .timeout = 240);

struct kind {
	int family, type, protocol;
};

/* The errno of socket(). */
static int socket_try(const void *with)
{
	const struct kind *kind = with;
	auto_close int fd = socket(kind->family, kind->type | SOCK_CLOEXEC, kind->protocol);

	return fd < 0 ? errno : 0;
}

static const struct kind inet_kinds[] = {
	{ AF_INET, SOCK_STREAM, 0 },	     { AF_INET, SOCK_DGRAM, 0 },
	{ AF_INET, SOCK_RAW, IPPROTO_ICMP }, { AF_INET6, SOCK_STREAM, 0 },
	{ AF_INET6, SOCK_DGRAM, 0 },	     { AF_INET6, SOCK_RAW, IPPROTO_ICMPV6 },
};

static void inet_expect(enum tree_place place, int expected)
{
	for (unsigned int i = 0; i < sizeof(inet_kinds) / sizeof(*inet_kinds); i++) {
		int error = tree_run(&tree, place, socket_try, &inet_kinds[i]);

		cr_expect_eq(error, expected, "place %d, family %d, type %d: %s", place,
			     inet_kinds[i].family, inet_kinds[i].type, strerror(error));
	}
}

Test(network, none_is_the_default_and_has_no_inet_sockets)
{
	inet_expect(TREE_SLOT0, EPERM);
	inet_expect(TREE_SLOT2, EPERM);
}

Test(network, none_is_inherited_by_nested_cgroups)
{
	inet_expect(TREE_LEAF, EPERM);
}

Test(network, private_has_inet_sockets_in_nested_cgroups_too)
{
	cr_assert_eq(guard_network_set(guard, tree.ids[TREE_SLOT0], true), 0);
	inet_expect(TREE_SLOT0, 0);
	inet_expect(TREE_LEAF, 0);
	inet_expect(TREE_SLOT1, EPERM);
}

Test(network, private_ends_when_it_is_taken_back)
{
	cr_assert_eq(guard_network_set(guard, tree.ids[TREE_SLOT0], true), 0);
	inet_expect(TREE_SLOT0, 0);
	cr_assert_eq(guard_network_set(guard, tree.ids[TREE_SLOT0], false), 0);
	inet_expect(TREE_SLOT0, EPERM);
	cr_expect_eq(guard_network_set(guard, tree.ids[TREE_SLOT0], false), 0);
}

Test(network, what_is_no_sandbox_is_left_alone)
{
	const struct kind stream = { AF_INET, SOCK_STREAM, 0 };

	inet_expect(TREE_ROOT, 0);
	inet_expect(TREE_SHARD0, 0);
	inet_expect(TREE_STRANGER, 0);
	cr_expect_eq(socket_try(&stream), 0);
}

/* An address as a caller may give it, and how it is used. */
struct peer {
	struct sockaddr_un address;
	socklen_t bytes;
	int type;
	bool send; /* sendto, else connect */
};

/* The errno of reaching it from a new socket. */
static int peer_try(const void *with)
{
	const struct peer *peer = with;
	const struct sockaddr *address = (const struct sockaddr *)&peer->address;
	auto_close int fd = socket(AF_UNIX, peer->type | SOCK_CLOEXEC, 0);
	ssize_t r;

	if (fd < 0)
		return 254;
	if (peer->send)
		r = sendto(fd, "x", 1, 0, address, peer->bytes);
	else
		r = connect(fd, address, peer->bytes);
	return r < 0 ? errno : 0;
}

static int peer_listen(const struct peer *peer)
{
	int fd = socket(AF_UNIX, peer->type | SOCK_CLOEXEC, 0);

	cr_assert(fd >= 0);
	cr_assert_eq(bind(fd, (const struct sockaddr *)&peer->address, peer->bytes), 0);
	if (peer->type != SOCK_DGRAM)
		cr_assert_eq(listen(fd, 8), 0);
	return fd;
}

/* name_bytes counts the leading NUL. */
static struct peer peer_abstract(int type, const char *name, size_t name_bytes)
{
	struct peer peer = { .type = type };

	peer.address.sun_family = AF_UNIX;
	memcpy(peer.address.sun_path, name, name_bytes);
	peer.bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + name_bytes);
	return peer;
}

static const int unix_types[] = { SOCK_STREAM, SOCK_DGRAM, SOCK_SEQPACKET };

enum { UNIX_TYPES = sizeof(unix_types) / sizeof(*unix_types) };

static void peer_expect(struct peer peer, int expected_none)
{
	for (int send = 0; send <= (peer.type == SOCK_DGRAM); send++) {
		peer.send = send;
		cr_expect_eq(peer_try(&peer), 0, "the test itself cannot reach type %d", peer.type);
		cr_expect_eq(tree_run(&tree, TREE_SLOT0, peer_try, &peer), expected_none,
			     "none, type %d, send %d", peer.type, send);
		cr_expect_eq(tree_run(&tree, TREE_LEAF, peer_try, &peer), expected_none,
			     "none nested, type %d, send %d", peer.type, send);
		cr_expect_eq(tree_run(&tree, TREE_SLOT1, peer_try, &peer), 0,
			     "private, type %d, send %d", peer.type, send);
	}
}

Test(network, none_cannot_reach_abstract_names)
{
	char name[32] = "";

	cr_assert_eq(guard_network_set(guard, tree.ids[TREE_SLOT1], true), 0);
	snprintf(name + 1, sizeof(name) - 1, "dsec-test-%d", getpid());
	for (int i = 0; i < UNIX_TYPES; i++) {
		struct peer peer = peer_abstract(unix_types[i], name, 1 + strlen(name + 1));
		auto_close int fd = peer_listen(&peer);

		cr_assert_geq(fd, 0);
		peer_expect(peer, EPERM);
	}
}

Test(network, none_cannot_reach_the_shortest_abstract_name)
{
	struct peer peer = peer_abstract(SOCK_DGRAM, "", 1);
	auto_close int fd = peer_listen(&peer);

	cr_assert_geq(fd, 0);
	cr_assert_eq(guard_network_set(guard, tree.ids[TREE_SLOT1], true), 0);
	peer_expect(peer, EPERM);
}

Test(network, none_cannot_reach_names_the_kernel_chose)
{
	auto_close int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	struct peer peer = { .type = SOCK_DGRAM, .bytes = sizeof(peer.address) };
	const sa_family_t family = AF_UNIX;

	cr_assert_eq(guard_network_set(guard, tree.ids[TREE_SLOT1], true), 0);
	cr_assert_eq(bind(fd, (const struct sockaddr *)&family, sizeof(family)), 0);
	cr_assert_eq(getsockname(fd, (struct sockaddr *)&peer.address, &peer.bytes), 0);
	cr_assert_eq(peer.address.sun_path[0], '\0');
	cr_assert_gt(peer.bytes, sizeof(family) + 1);
	peer_expect(peer, EPERM);
}

Test(network, none_gets_the_kernels_answer_to_no_name)
{
	struct peer peer = peer_abstract(SOCK_STREAM, "", 0);

	cr_expect_eq(peer_try(&peer), EINVAL);
	cr_expect_eq(tree_run(&tree, TREE_SLOT0, peer_try, &peer), EINVAL);
}

Test(network, none_reaches_sockets_by_path)
{
	cr_assert_eq(guard_network_set(guard, tree.ids[TREE_SLOT1], true), 0);
	for (int i = 0; i < UNIX_TYPES; i++) {
		struct peer peer = { .type = unix_types[i], .bytes = sizeof(peer.address) };
		auto_close int fd = -1;

		peer.address.sun_family = AF_UNIX;
		snprintf(peer.address.sun_path, sizeof(peer.address.sun_path),
			 "/tmp/dsec-test-%d.sock", getpid());
		fd = peer_listen(&peer);
		peer_expect(peer, 0);
		unlink(peer.address.sun_path);
	}
}

static int pair_try(const void *with)
{
	int pair[2];
	char byte = 0;

	if (socketpair(AF_UNIX, *(const int *)with | SOCK_CLOEXEC, 0, pair) < 0)
		return errno;
	if (write(pair[0], "p", 1) != 1 || read(pair[1], &byte, 1) != 1)
		return errno;
	return byte != 'p';
}

Test(network, none_has_socket_pairs)
{
	for (int i = 0; i < UNIX_TYPES; i++)
		cr_expect_eq(tree_run(&tree, TREE_SLOT0, pair_try, &unix_types[i]), 0);
}

/* One process, one name in its own sandbox: `none` has no abstract names at all. */
static int own_name_try(const void *with)
{
	const struct peer *peer = with;
	auto_close int fd = socket(AF_UNIX, peer->type | SOCK_CLOEXEC, 0);

	if (bind(fd, (const struct sockaddr *)&peer->address, peer->bytes) < 0 || listen(fd, 1) < 0)
		return 253;
	return peer_try(with);
}

Test(network, none_cannot_reach_its_own_abstract_names_either)
{
	struct peer peer = peer_abstract(SOCK_STREAM, "\0dsec-test-own", 14);

	cr_expect_eq(tree_run(&tree, TREE_SLOT0, own_name_try, &peer), EPERM);
}
