/*
 * Egress by IPv6: the claims of egress_six.h. Called by test_engine_egress.c. Must hold: what did
 * not get out is shown by what did: of two datagrams the internet hears the honest one first.
 */
#include "tests/root/engine/egress_six.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "engine/base/cleanup.h"
#include "tests/root/engine/egress_client.h"
#include "tests/root/engine/egress_world.h"

enum { PORT_HEARD = 7, HEARD_S = 10 };

static pid_t internet;

void six_begin(pid_t pid)
{
	internet = pid;
}

/* ---- what the internet hears ---- */

static int heard_open(void)
{
	const struct sockaddr_in6 at = { .sin6_family = AF_INET6, .sin6_port = htons(PORT_HEARD) };
	const struct timeval limit = { .tv_sec = HEARD_S };
	auto_close int home = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
	char path[64];
	int fd;

	(void)snprintf(path, sizeof path, "/proc/%d/ns/net", internet);
	auto_close int there = open(path, O_RDONLY | O_CLOEXEC);

	if (!expect(setns(there, CLONE_NEWNET) == 0))
		return -1;
	fd = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	(void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
	expect(bind(fd, (const struct sockaddr *)&at, sizeof at) == 0);
	expect(setns(home, CLONE_NEWNET) == 0);
	return fd;
}

/* The next datagram is this text, and comes from the host's address. */
static bool hears(int fd, const char *text)
{
	struct sockaddr_in6 from = { 0 };
	socklen_t bytes = sizeof from;
	char got[64] = "", address[INET6_ADDRSTRLEN] = "";
	ssize_t count = recvfrom(fd, got, sizeof got - 1, 0, (struct sockaddr *)&from, &bytes);

	if (count < 0)
		note("nothing was heard: %s", strerror(errno));
	(void)inet_ntop(AF_INET6, &from.sin6_addr, address, sizeof address); /* fits */
	if (count >= 0 && strcmp(got, text) != 0)
		note("\"%s\" was heard, from %s", got, address);
	return count >= 0 && !strcmp(got, text) && !strcmp(address, HOST6);
}

static bool says(struct dsec *d, struct dsec_id id, const char *script, const char *expected)
{
	auto_ran struct ran ran = shell_run(d, id, script);

	if (ran_exited(&ran, 0) && ran_wrote(&ran, 1, expected, strlen(expected)))
		return true;
	note("\"%s\" does not say \"%s\"", script, expected);
	ran_note(&ran);
	return false;
}

/* ---- claims ---- */

static struct dsec_id unpoliced_make(struct dsec *d)
{
	return networked_make(d, DSEC_NETWORK_EGRESS_UNPOLICED);
}

/* Its one address of IPv6 that is no loopback's. */
static bool own_address6(struct dsec *d, struct dsec_id id, char ret[static INET6_ADDRSTRLEN])
{
	auto_ran struct ran ran =
		shell_run(d, id,
			  "while read a i p s f dev; do [ $dev = eth0 ] && echo $a; done "
			  "</proc/net/if_inet6; :");
	uint8_t address[16];

	if (!expect(ran_exited(&ran, 0) && ran_output(&ran, 1)->head.bytes == 33))
		return false;
	for (int i = 0; i < 16; i++)
		if (!expect(sscanf((const char *)ran_output(&ran, 1)->head.data + 2 * i, "%2hhx",
				   &address[i]) == 1))
			return false;
	return inet_ntop(AF_INET6, address, ret, INET6_ADDRSTRLEN);
}

void IPv6_leads_out_and_the_internet_sees_the_hosts_address(struct engine *e)
{
	struct dsec_id id = unpoliced_make(e->d);
	auto_close int heard = heard_open();

	expect(reads(e->d, id, INTERNET6, 80, "from " HOST6 "\n"));
	expect(says(e->d, id, "probe_net send " INTERNET6 " 7 honest", ""));
	expect(hears(heard, "honest"));
	expect(reads(e->d, id, "::1", 80, ""));
	sandbox_end(e->d, id);
}

/* E57: IPV6_FREEBIND takes no privilege. */
void a_source_of_IPv6_that_is_not_its_own_never_leaves(struct engine *e)
{
	struct dsec_id id = unpoliced_make(e->d), neighbour = unpoliced_make(e->d);
	auto_close int heard = heard_open();
	char script[256], address[INET6_ADDRSTRLEN];

	if (own_address6(e->d, neighbour, address)) {
		(void)snprintf(script, sizeof script,
			       "for a in %s " HOST6 " fd00:d5ec::2 2001:db8:77::1 fd5e:ec::1 ::1; "
			       "do probe_net send " INTERNET6 " 7 spoofed $a 2>/dev/null; done; :",
			       address);
		expect(says(e->d, id, script, ""));
		expect(says(e->d, id, "probe_net send " INTERNET6 " 7 honest", ""));
		expect(hears(heard, "honest"));
	}
	sandbox_end(e->d, id);
	sandbox_end(e->d, neighbour);
}

void neither_host_nor_metadata_nor_neighbours_are_reached_by_IPv6(struct engine *e)
{
	struct dsec_id id = unpoliced_make(e->d), neighbour = unpoliced_make(e->d);
	static const char listen[] = "nc -ll -p 80 -e echo hello >/dev/null 2>&1 & sleep 600";
	const struct command c = SH(listen);
	int64_t ticket = command_start(e->d, neighbour, &c, NULL);
	char address[INET6_ADDRSTRLEN], closed[512];

	expect(until(10000, answers(e->d, neighbour, "::1", 80, "hello\n")));
	if (own_address6(e->d, neighbour, address)) {
		expect(reads(e->d, neighbour, address, 80, "hello\n"));
		(void)snprintf(closed, sizeof closed,
			       "%s " HOST6 " fd00:d5ec::1 fd00:d5ec::2 fd5e:ec::1 fe80::1 ff02::1 "
			       "fd00:ec2::254 64:ff9b::a9fe:a9fe 64:ff9b:1::a9fe:a9fe "
			       "64:ff9b:1::6464:64c8 2002:a9fe:a9fe::1 ::169.254.169.254",
			       address);
		expect(reads_none(e->d, id, closed));
	}
	/* Each of those that the internet has would have answered. */
	expect(reads(e->d, id, "64:ff9b::cb00:710a", 80, "from " HOST6 "\n"));
	expect(reads(e->d, id, INTERNET6, 80, "from " HOST6 "\n"));
	sandbox_end(e->d, id);
	sandbox_end(e->d, neighbour);
	(void)ticket_end(e->d, ticket); /* killed */
}

void nothing_of_IPv6_can_be_changed_inside_and_no_router_speaks_up(struct engine *e)
{
	static const char script[] =
		"try() { \"$@\" >/dev/null 2>&1 && echo \"$@\"; }\n"
		"try ip -6 addr add fd00:d5ec::99/126 dev eth0\n"
		"try ip -6 route add 2001:db8:9::/64 dev eth0\n"
		"try ip -6 route del default\n"
		"try ip -6 neigh add fe80::9 lladdr 02:00:00:00:00:01 dev eth0\n"
		"for s in conf/all/forwarding conf/eth0/accept_ra conf/eth0/addr_gen_mode; do\n"
		"try sh -c \"echo 0 >/proc/sys/net/ipv6/$s\"; done\n"
		"cd /proc/sys/net/ipv6/conf/eth0; cat accept_ra accept_redirects addr_gen_mode\n";
	struct dsec_id id = unpoliced_make(e->d);
	char address[INET6_ADDRSTRLEN];

	expect(says(e->d, id, script, "0\n0\n1\n"));
	/* One address, of its own range: none of the link's, which others on it could ask for. */
	expect(own_address6(e->d, id, address) && !strncmp(address, "fd00:d5ec::", 11));
	sandbox_end(e->d, id);
}

static void leads_where_it_allows6(struct engine *e, uint32_t network)
{
	struct dsec_id id = out_make(e->d, network), neighbour = out_make(e->d, network);
	auto_close int heard = heard_open();
	struct dsec_inspected seen;
	bool is_seen = false;

	expect(reads(e->d, id, INTERNET6, 80, "from " HOST6 "\n"));
	expect(says(e->d, id, "probe_net send " INTERNET6 " 7 honest", ""));
	expect(says(e->d, id, "probe_net send " INTERNET6 " 7 spoofed " OTHER6 " 2>&1 || :",
		    network == DSEC_NETWORK_SHARED ? "bind: Cannot assign requested address\n" :
						     "send: Operation not permitted\n"));
	expect(says(e->d, id, "probe_net send " INTERNET6 " 7 last", ""));
	expect(hears(heard, "honest"));
	expect(hears(heard, "last"));
	/* As what it is known there, though it has another name for itself. */
	expect(says(e->d, id, "probe_net name " INTERNET6 " 7 | cut -c1-9",
		    network == DSEC_NETWORK_SHARED ? "fd5e:ec::\n" : "fd00:d5ec\n"));
	/* Where it has no rule for, and where no rule could lead. */
	expect(says(e->d, id,
		    "for a in " INTERNET6 " " OTHER6 " " HOST6 " fd00:ec2::254 fe80::1 "
		    "64:ff9b::a9fe:a9fe 2002:a9fe:a9fe::1; do probe_net reach $a 81; done | "
		    "sort -u",
		    "Operation not permitted\n"));
	expect(reads_none(e->d, id, OTHER6 " fd5e:ec::1 fd5e:ec::2 fd00:d5ec::2 fd00:d5ec::6"));
	seen = inspected_now(e->d, id);
	expect(seen.egress.refused >= 7);
	for (uint32_t i = 0; i < seen.egress.flow_count; i++)
		is_seen |= seen.egress.flows[i].address[0] == 0x20 && /* 2001:.. */
			   seen.egress.flows[i].port == 80;
	expect(is_seen);
	sandbox_end(e->d, id);
	sandbox_end(e->d, neighbour);
}

void a_policy_leads_by_IPv6_where_it_allows_and_nowhere_else(struct engine *e)
{
	if (!policies_put(e))
		return;
	leads_where_it_allows6(e, DSEC_NETWORK_PRIVATE);
	/* For the first of them the engine loads what it keeps. */
	sandbox_end(e->d, out_make(e->d, DSEC_NETWORK_SHARED));
	engine_baseline(e);
	leads_where_it_allows6(e, DSEC_NETWORK_SHARED);
}

void where_there_is_no_range_of_IPv6_it_leads_nowhere(struct engine *e)
{
	struct dsec_id id;

	if (!policies_put(e))
		return;
	id = out_make(e->d, DSEC_NETWORK_PRIVATE);
	expect(says(e->d, id, "probe_net reach " INTERNET6 " 80", "Network is unreachable\n"));
	expect(reads(e->d, id, INTERNET, 80, "from " HOST "\n"));
	sandbox_end(e->d, id);
	id = out_make(e->d, DSEC_NETWORK_SHARED);
	engine_baseline(e); /* for the first of them the engine loads what it keeps */
	expect(says(e->d, id, "probe_net reach " INTERNET6 " 80", "Operation not permitted\n"));
	expect(reads(e->d, id, INTERNET, 80, "from " HOST "\n"));
	sandbox_end(e->d, id);
}
