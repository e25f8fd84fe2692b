/*
 * Sets the router of egress.h up, and takes it away. Called by the node. Must hold: of the host's
 * network only the veth and the table of the instance's name are ever touched; no setting of the
 * host's is changed (forwarding must be on already); what is refused is refused here, once, for all
 * sandboxes.
 */
#include "backends/container/egress.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backends/container/kernel.h"
#include "backends/container/route.h"
#include "bpf/policy_shared.h"
#include "engine/base/cleanup.h"
#include "engine/base/log.h"

enum { LINK_PREFIX4 = 30, LINK_PREFIX6 = 126, HOST = 1, RULES_BYTES = 4096 };

/*
 * In the router's namespace. Nothing gets to the router itself but questions for names and what its
 * forwarder is for, nothing from one sandbox to another, to an address that means "here", or to a
 * cloud's metadata; sources are checked by rp_filter. The forwarder's own connections have the same
 * rules.
 */
static const char router_rules[] =
	"table inet dsec {\n"
	"	chain forward {\n"
	"		type filter hook forward priority 0; policy drop;\n"
	"		iifname \"up\" ct state established,related accept\n"
	"		ip daddr { 0.0.0.0/8, 127.0.0.0/8, 169.254.0.0/16, 224.0.0.0/3,\n"
	"			100.100.100.200, 168.63.129.16, 192.0.0.192 } drop\n"
	"		ip daddr { %s, 10.64.0.0/10 } drop\n"
	"		iifname \"s*\" oifname \"up\" meta nfproto ipv4 accept\n"
	"	}\n"
	"	chain input {\n"
	"		type filter hook input priority 0; policy drop;\n"
	"		iifname \"s*\" ip daddr %s meta l4proto { tcp, udp } th dport 53 accept\n"
	"		iifname \"s*\" ip daddr %s tcp dport %u accept\n"
	"		iifname \"up\" ip protocol tcp ct state established accept\n"
	"	}\n"
	"	chain output {\n"
	"		type filter hook output priority 0; policy accept;\n"
	"		oifname \"up\" ip daddr { 0.0.0.0/8, 127.0.0.0/8, 169.254.0.0/16,\n"
	"			224.0.0.0/3, 100.100.100.200, 168.63.129.16, 192.0.0.192 } drop\n"
	"		oifname \"up\" ip daddr { %s, 10.64.0.0/10 } drop\n"
	"	}\n"
	"	chain source {\n"
	"		type nat hook postrouting priority 100;\n"
	"		oifname \"up\" masquerade\n"
	"	}\n"
	"}\n";

/*
 * The same for IPv6, where it leads out: metadata services inside it, too. There is no rp_filter: a
 * source is looked up as if it were a destination. Neighbours are told by hand
 * (route_neighbour_add()), so nobody's answer counts.
 */
static const char router_rules6[] =
	"table inet dsec {\n"
	"	chain sources6 {\n"
	"		type filter hook prerouting priority -150; policy accept;\n"
	"		meta nfproto ipv6 fib saddr . iif oif missing drop\n"
	"	}\n"
	"	chain forward {\n"
	"		ip6 daddr { ::/96, ::ffff:0:0/96, fe80::/10, fec0::/10, ff00::/8,\n"
	"			fd00:ec2::/32, fd00:c1::a9fe:a9fe, fd20:ce::254,\n"
	"			64:ff9b::a9fe:0/112, 64:ff9b::6464:64c8, 64:ff9b::a83f:8110,\n"
	"			64:ff9b::c000:c0, 2002:a9fe::/32, 2002:6464:64c8::/48,\n"
	"			2002:a83f:8110::/48, 2002:c000:c0::/48 } drop\n"
	"		ip6 daddr 64:ff9b:1::/48 ip6 daddr & ::ffff:0 == ::a9fe:0 drop\n"
	"		ip6 daddr 64:ff9b:1::/48 ip6 daddr & ::ffff:ffff {\n"
	"			::6464:64c8, ::a83f:8110, ::c000:c0 } drop\n"
	"		ip6 daddr { %s, fd5e:ec::/64 } drop\n"
	"		iifname \"s*\" oifname \"up\" meta nfproto ipv6 accept\n"
	"	}\n"
	"}\n";

/* On the host: nothing from there is for the host itself, on whichever of its addresses. */
static const char host_rules[] =
	"table inet %s {\n"
	"	chain input {\n"
	"		type filter hook input priority -10; policy accept;\n"
	"		iifname \"%s\" drop\n"
	"	}\n"
	"	chain source {\n"
	"		type nat hook postrouting priority 100; policy accept;\n"
	"		meta nfproto ipv4 ip saddr %s oifname != \"%s\" masquerade\n"
	"	}\n"
	"}\n";

static const char host_rules6[] =
	"table inet %s {\n"
	"	chain source {\n"
	"		meta nfproto ipv6 ip6 saddr %s oifname != \"%s\" masquerade\n"
	"	}\n"
	"}\n";

static bool has_six(const struct egress *egress)
{
	return egress->range6.prefix_bits;
}

static void names_make(struct egress *egress, const char *instance)
{
	uint32_t hash = 2166136261u;

	for (const char *at = instance; *at; at++)
		hash = (hash ^ (unsigned char)*at) * 16777619u;
	(void)snprintf(egress->link, sizeof egress->link, "dsec-%08x", hash);
	(void)snprintf(egress->table, sizeof egress->table, "dsec_%s", instance);
	for (char *at = egress->table; *at; at++)
		if (*at == '-')
			*at = '_';
}

/* ---- addresses ---- */

uint32_t egress_address4(const struct egress *egress, uint32_t network)
{
	uint8_t six[16];

	if (egress->router_ns_fd < 0 ||
	    (has_six(egress) && !egress_range6_block(&egress->range6, network, six)))
		return 0;
	return egress_range4_block(&egress->range4, network);
}

bool egress_address6(const struct egress *egress, uint32_t network, uint8_t ret[16])
{
	return egress->router_ns_fd >= 0 && egress_range6_block(&egress->range6, network, ret);
}

static struct backend_prefix prefix_mapped(uint32_t first, uint32_t bytes)
{
	const uint32_t number = htonl(first);
	struct backend_prefix prefix = { .first = { [10] = 0xff, [11] = 0xff },
					 .bits = (uint32_t)__builtin_clz(bytes) + 97 };

	memcpy(prefix.first + 12, &number, sizeof number);
	return prefix;
}

uint32_t egress_own(const struct egress *egress, struct backend_prefix ret[BACKEND_PREFIXES_MAX])
{
	const uint32_t shared6 = htonl(POLICY_SHARED_V6_0);
	uint32_t count = 0;

	ret[count++] = prefix_mapped(egress->range4.first, egress->range4.bytes);
	ret[count++] = prefix_mapped(POLICY_SHARED_V4, POLICY_SHARED_V4_COUNT);
	ret[count] = (struct backend_prefix){ .bits = 64 };
	memcpy(ret[count++].first, &shared6, sizeof shared6);
	if (!has_six(egress))
		return count;
	ret[count].bits = egress->range6.prefix_bits;
	memcpy(ret[count++].first, egress->range6.first, sizeof egress->range6.first);
	return count;
}

/* Of the link to the host. */
static struct route_prefix link4(const struct egress *egress, uint8_t which)
{
	return route_prefix4(egress->range4.first + which, LINK_PREFIX4);
}

static struct route_prefix link6(const struct egress *egress, uint8_t which)
{
	struct route_prefix own = route_prefix6(egress->range6.first, LINK_PREFIX6);

	own.address[15] |= which;
	return own;
}

/* ---- nft ---- */

/* The child: system calls only. */
static void nft_become(int rules_fd, int ns_fd)
{
	static const char *const paths[] = { "/usr/sbin/nft", "/sbin/nft", "/usr/bin/nft" };
	static const char *const argv[] = { "nft", "-f", "-", NULL }, *const envp[] = { NULL };
	long null_fd = kernel_openat(AT_FDCWD, "/dev/null", O_WRONLY, 0);

	if ((ns_fd >= 0 && kernel_setns(ns_fd, CLONE_NEWNET, 0) < 0) ||
	    kernel_dup3(rules_fd, 0, 0) < 0 || null_fd < 0 || kernel_dup3((int)null_fd, 1, 0) < 0)
		_exit(126);
	for (unsigned i = 0; i < sizeof paths / sizeof *paths; i++)
		(void)KERNEL_CALL(SYS_execve, (long)paths[i], (long)argv, (long)envp);
	_exit(127);
}

/* The rules are short: a pipe takes them whole. ns_fd -1: the host's. -ENOENT: there is no nft. */
static int nft_run(const char *rules, int ns_fd)
{
	int ends[2], status;
	pid_t pid;

	if (pipe2(ends, O_CLOEXEC) < 0)
		return -errno;
	auto_close int from = ends[0];
	auto_close int to = ends[1];

	if (write(to, rules, strlen(rules)) != (ssize_t)strlen(rules))
		return -EIO;
	(void)close(take_fd(&to)); /* so that it has an end */
	pid = fork();
	if (pid < 0)
		return -errno;
	if (pid == 0)
		nft_become(from, ns_fd);
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	if (WIFEXITED(status) && WEXITSTATUS(status) == 127)
		return -ENOENT;
	return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : -EOPNOTSUPP;
}

/* Whether it was there or not: it is made, if need be, and deleted. */
static int table_delete(const struct egress *egress)
{
	char rules[128];

	(void)snprintf(rules, sizeof rules, "table inet %s\ndelete table inet %s\n", egress->table,
		       egress->table);
	return nft_run(rules, -1);
}

/* ---- the namespace and its link ---- */

static long setting_write(const char *path, const char *value)
{
	long r, fd = kernel_openat(AT_FDCWD, path, O_WRONLY | O_CLOEXEC, 0);

	if (fd < 0)
		return fd;
	r = kernel_write((int)fd, value, strlen(value));
	(void)kernel_close((int)fd); /* taken at once */
	return r < 0 ? r : 0;
}

struct setting {
	const char *path, *value;
};

/* Up to one without a path. A kernel without IPv6 has not all of them. */
static long settings_write(const struct setting *settings)
{
	long r = 0;

	for (; r >= 0 && settings->path; settings++) {
		r = setting_write(settings->path, settings->value);
		if (r == -ENOENT)
			r = 0;
	}
	return r;
}

static long router_furnish(bool has_six)
{
	static const struct setting always[] = {
		{ "/proc/sys/net/ipv4/ip_forward", "1" },
		{ "/proc/sys/net/ipv4/conf/all/rp_filter", "1" },
		{ "/proc/sys/net/ipv4/conf/default/rp_filter", "1" },
		{ "/proc/sys/net/ipv4/conf/all/send_redirects", "0" },
		{ "/proc/sys/net/ipv4/conf/default/send_redirects", "0" },
		{ 0 },
	};
	static const struct setting without[] = {
		{ "/proc/sys/net/ipv6/conf/all/disable_ipv6", "1" },
		{ "/proc/sys/net/ipv6/conf/default/disable_ipv6", "1" },
		{ 0 },
	};
	/* Forwarding makes a router of each link: none takes an advertisement or a redirect. */
	static const struct setting with[] = {
		{ "/proc/sys/net/ipv6/conf/all/disable_ipv6", "0" },
		{ "/proc/sys/net/ipv6/conf/default/disable_ipv6", "0" },
		{ "/proc/sys/net/ipv6/conf/all/forwarding", "1" },
		{ "/proc/sys/net/ipv6/conf/default/accept_ra", "0" },
		{ "/proc/sys/net/ipv6/conf/all/accept_redirects", "0" },
		{ "/proc/sys/net/ipv6/conf/default/accept_redirects", "0" },
		{ "/proc/sys/net/ipv6/conf/default/addr_gen_mode", "1" }, /* none of its own */
		{ 0 },
	};
	long r = settings_write(always);

	return r < 0 ? r : settings_write(has_six ? with : without);
}

/* The calling thread is in the host's again when it returns. */
static int router_make(struct egress *egress, int host_fd)
{
	int r = unshare(CLONE_NEWNET) < 0 ? -errno : 0;

	if (r < 0)
		return r;
	r = (int)router_furnish(has_six(egress));
	if (r >= 0) {
		egress->router_ns_fd = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
		r = egress->router_ns_fd < 0 ? -errno : 0;
	}
	if (setns(host_fd, CLONE_NEWNET) < 0)
		abort(); /* in the wrong network there is nothing right to do */
	return r;
}

/* An end of the link; `far` is the other one. */
static int link_end(const struct egress *egress, int fd, const struct route_end *own,
		    const struct route_end *far)
{
	const bool is_host = own->mac[1] == EGRESS_MAC_OTHER;
	const uint8_t here = is_host ? HOST : EGRESS_ROUTER_ADDRESS;
	const uint8_t there = is_host ? EGRESS_ROUTER_ADDRESS : HOST;
	const struct route_prefix own4 = link4(egress, here), far4 = link4(egress, there);
	const struct route_prefix own6 = link6(egress, here), far6 = link6(egress, there);
	const struct route_prefix all4 = route_prefix4(0, 0), all6 = { .family = AF_INET6 };
	long r = fd < 0 ? fd : route_address_add(fd, own->name, &own4);

	if (r >= 0)
		r = route_link_up(fd, own->name);
	if (r >= 0 && has_six(egress))
		r = route_address_add(fd, own->name, &own6);
	if (r >= 0 && has_six(egress))
		r = route_neighbour_add(fd, own->name, &far6, far->mac);
	if (r >= 0 && !is_host)
		r = route_via_add(fd, &all4, &far4);
	if (r >= 0 && !is_host && has_six(egress))
		r = route_via_add(fd, &all6, &far6);
	return r < 0 ? (int)r : 0;
}

static int link_make(const struct egress *egress, int host_fd)
{
	const struct route_end outer =
		route_end_of(egress->link, EGRESS_MAC_OTHER, EGRESS_LINK_NETWORK);
	const struct route_end inner = route_end_of("up", EGRESS_MAC_ROUTER, EGRESS_LINK_NETWORK);
	auto_close int host = (int)route_open();
	int r = host < 0 ? host : 0;

	if (r >= 0)
		r = (int)route_pair_make(host, &outer, &inner, egress->router_ns_fd);
	if (r >= 0)
		r = link_end(egress, host, &outer, &inner);
	if (r < 0)
		return r;
	if (setns(egress->router_ns_fd, CLONE_NEWNET) < 0)
		return -errno;
	auto_close int router = (int)route_open();

	r = link_end(egress, router, &inner, &outer);
	if (setns(host_fd, CLONE_NEWNET) < 0)
		abort(); /* as above */
	return r;
}

static void link_delete(const struct egress *egress)
{
	auto_close int fd = (int)route_open();
	long r = fd < 0 ? fd : route_link_delete(fd, egress->link);

	if (r < 0 && r != -ENODEV)
		log_error("egress: a link is left name=%s err=%s", egress->link, strerror((int)-r));
}

/* ---- all of it ---- */

static bool host_forwards(const char *path)
{
	auto_close int fd = open(path, O_RDONLY | O_CLOEXEC);
	char value = '0';

	return fd >= 0 && read(fd, &value, 1) == 1 && value != '0';
}

/* Both of them at once: the rules of IPv6 come behind the others of their chains. */
static int rules_load(const struct egress *egress)
{
	char rules[RULES_BYTES], all[24], link[24], address[INET_ADDRSTRLEN];
	char all6[EGRESS_RANGE6_TEXT_BYTES], link6[EGRESS_RANGE6_TEXT_BYTES];
	struct egress_range6 block6 = egress->range6;
	struct in_addr resolver;
	int r, at;

	egress_range4_print(egress->range4.first, egress->range4.bytes, all);
	egress_range4_print(egress->range4.first, EGRESS_BLOCK, link);
	egress_range6_print(&egress->range6, all6);
	block6.prefix_bits = LINK_PREFIX6;
	egress_range6_print(&block6, link6);
	resolver.s_addr = htonl(egress->range4.first + EGRESS_ROUTER_ADDRESS);
	(void)inet_ntop(AF_INET, &resolver, address, sizeof address); /* fits, as below */
	at = snprintf(rules, sizeof rules, router_rules, all, address, address, EGRESS_PORT_TLS,
		      all);
	if (has_six(egress))
		(void)snprintf(rules + at, sizeof rules - (size_t)at, router_rules6, all6);
	r = nft_run(rules, egress->router_ns_fd);
	if (r < 0)
		return r;
	at = snprintf(rules, sizeof rules, host_rules, egress->table, egress->link, link,
		      egress->link);
	if (has_six(egress))
		(void)snprintf(rules + at, sizeof rules - (size_t)at, host_rules6, egress->table,
			       link6, egress->link);
	return nft_run(rules, -1);
}

static int egress_fail(int error, const char *option, const char *range)
{
	const bool is_six = strcmp(option, "egress6") == 0;
	const char *why = strerror(-error);

	if (error == -EINVAL && is_six)
		why = "a private range is wanted, as fd00:d5ec::/64: its first address, and /32 to"
		      " /112";
	else if (error == -EINVAL)
		why = "a range is wanted, as 10.200.0.0/16: its first address, and /8 to /28";
	else if (error == -EADDRNOTAVAIL)
		why = "it holds addresses of network shared (10.64.0.0/10, fd5e:ec::/64) or of"
		      " metadata services: choose another range";
	else if (error == -EADDRINUSE)
		why = "a route of this host lies in it: choose another range";
	else if (error == -ENETDOWN && is_six)
		why = "this host does not forward IPv6: sysctl -w net.ipv6.conf.all.forwarding=1";
	else if (error == -ENETDOWN)
		why = "this host does not forward: sysctl -w net.ipv4.ip_forward=1";
	else if (error == -EAFNOSUPPORT || error == -EACCES)
		why = "IPv6 is off on this host: sysctl -w net.ipv6.conf.default.disable_ipv6=0;"
		      " boot without ipv6.disable=1";
	else if (error == -ENOENT)
		why = "there is no nft: apt-get install nftables";
	else if (error == -EOPNOTSUPP)
		why = "this kernel lacks veth or nf_tables with NAT: modprobe veth nft_masq; for"
		      " --egress6 nft_fib_inet nft_fib_ipv6, too";
	log_error("%s refused range=\"%s\": %s", option, range, why);
	return error;
}

static int range6_fits(const struct egress *egress)
{
	int r = egress_range6_check(&egress->range6);

	return r < 0 || host_forwards("/proc/sys/net/ipv6/conf/all/forwarding") ? r : -ENETDOWN;
}

static int range4_fits(const struct egress *egress)
{
	int r = egress_range4_check(&egress->range4);

	return r < 0 || host_forwards("/proc/sys/net/ipv4/ip_forward") ? r : -ENETDOWN;
}

int egress_open(struct egress *egress, const char *range4, const char *range6, const char *instance)
{
	int host_fd = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
	int r = host_fd < 0 ? -errno : egress_range4_read(range4, &egress->range4), swept;

	egress->host_ns_fd = host_fd;
	if (r < 0)
		return egress_fail(r, "egress", range4);
	swept = egress_sweep(instance);
	names_make(egress, instance);
	r = range4_fits(egress);
	if (r < 0)
		return egress_fail(r, "egress", range4);
	r = range6 ? egress_range6_read(range6, &egress->range6) : 0;
	if (r >= 0 && range6)
		r = range6_fits(egress);
	if (r < 0)
		return egress_fail(r, "egress6", range6);
	r = swept < 0 ? swept : router_make(egress, host_fd);
	if (r >= 0)
		r = link_make(egress, host_fd);
	if (r >= 0)
		r = rules_load(egress);
	if (r >= 0) {
		log_info("egress range=%s range6=%s link=%s table=\"inet %s\"", range4,
			 range6 ? range6 : "none", egress->link, egress->table);
		return 0;
	}
	egress_close(egress);
	return egress_fail(r, r == -EACCES && range6 ? "egress6" : "egress", range4);
}

void egress_close(struct egress *egress)
{
	egress_resolver_close(egress);
	cleanup_close(&egress->host_ns_fd);
	egress->host_ns_fd = -1;
	if (egress->router_ns_fd < 0)
		return;
	link_delete(egress);
	if (table_delete(egress) < 0)
		log_error("egress: a table is left name=\"inet %s\"", egress->table);
	cleanup_close(&egress->router_ns_fd);
	egress->router_ns_fd = -1;
}

int egress_sweep(const char *instance)
{
	struct egress dead = { .router_ns_fd = -1 };

	names_make(&dead, instance);
	link_delete(&dead);
	return table_delete(&dead);
}
