/*
 * Where sandboxes with a way out are tried: a cgroup tree and a network namespace of the test's, a
 * guard, and behind a veth pair a world that answers on every address of its. TREE_SLOT0 has policy
 * EGRESS_POLICY, its neighbours have none.
 */
#pragma once

#include <netinet/in.h>
#include <stdbool.h>
#include <sys/socket.h>

#include "bpf/guard.h"
#include "bpf/guard_policy.h"
#include "tests/root/guard/tree.h"

#define OWN4   "198.51.100.2"
#define OWN6   "2001:db8::2"
#define WORLD4 "203.0.113.10"
#define OTHER4 "203.0.113.20"
#define WORLD6 "2001:db8:1::10"
#define OTHER6 "2001:db8:1::20"
#define CLOUD4 "169.254.169.254"
#define CLOUD6 "fd00:ec2::254"

enum { EGRESS_POLICY = 7, SILENCE_MS = 300 };
enum { PORT_OPEN = 80, PORT_SHUT = 81, PORT_DNS = 53, PORT_QUIC = 443 };

extern struct tree tree;
extern struct guard *guard;
extern struct guard_violations *stream;

void egress_setup(void);
void egress_teardown(void);
/* By `guard`: everything but one place of each family; QUIC nowhere. */
void egress_policy_load(uint32_t number);

struct guard_destination destination(const char *address, unsigned prefix_bits, uint32_t rule);
/* Ports 1 to 80 of both protocols. */
struct guard_destination allowed(const char *address, unsigned prefix_bits, uint32_t rule);
/* TREE_SLOT0's way out. */
struct guard_egress own(uint32_t policy);

enum how { CONNECT, SENDTO, FASTOPEN };

struct attempt {
	const char *address;
	uint16_t port;
	int type;
	enum how how;
	bool is_silent; /* nothing is to answer: it is not waited for long */
};

/* IPv4 may be asked through an IPv6 socket. */
socklen_t address_make(const char *text, uint16_t port, struct sockaddr_storage *ret);
/* Of a struct attempt, for tree_run(). 0: it was answered; else the errno that it got. */
int attempt_run(const void *with);
int attempt(enum tree_place place, const char *address, uint16_t port, int type, enum how how);
/* By connect of both protocols and by sendto. */
void expect_all(enum tree_place place, const char *address, uint16_t port, int error);
struct guard_egress_counts counts_now(enum tree_place place);
