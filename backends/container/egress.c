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
#include "engine/base/cleanup.h"
#include "engine/base/log.h"

enum { PREFIX_MIN = 8, PREFIX_MAX = 28, LINK_PREFIX = 30, HOST = 1 };

/*
 * In the router's namespace. Nothing gets to the router itself but questions for names, from one
 * sandbox to another, to an address that means "here", or to a cloud's metadata; sources are
 * checked by rp_filter.
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
	"	}\n"
	"	chain source {\n"
	"		type nat hook postrouting priority 100;\n"
	"		oifname \"up\" masquerade\n"
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

/* ---- the range ---- */

static int range_parse(struct egress *egress, const char *range)
{
	char text[INET_ADDRSTRLEN], *end = NULL;
	const char *slash = strchr(range, '/');
	unsigned long prefix = slash ? strtoul(slash + 1, &end, 10) : 0;
	struct in_addr address;

	if (!slash || (size_t)(slash - range) >= sizeof text || !end || *end ||
	    prefix < PREFIX_MIN || prefix > PREFIX_MAX)
		return -EINVAL;
	(void)snprintf(text, sizeof text, "%.*s", (int)(slash - range), range);
	if (inet_pton(AF_INET, text, &address) != 1)
		return -EINVAL;
	egress->first = ntohl(address.s_addr);
	egress->bytes = 1u << (32 - prefix);
	return egress->first & (egress->bytes - 1) ? -EINVAL : 0;
}

/* Every route of the host's but the default ones. */
static int range_check(const struct egress *egress)
{
	auto_close int fd = open("/proc/thread-self/net/route", O_RDONLY | O_CLOEXEC);
	char line[256], name[17];
	unsigned destination, mask;
	FILE *routes = fd < 0 ? NULL : fdopen(take_fd(&fd), "re");
	int r = 0;

	if (!routes)
		return -errno;
	while (r == 0 && fgets(line, sizeof line, routes)) {
		if (sscanf(line, "%16s %x %*x %*x %*d %*d %*d %x", name, &destination, &mask) !=
			    3 ||
		    !mask)
			continue;
		destination = ntohl(destination);
		mask = ntohl(mask);
		if ((egress->first & mask) == destination ||
		    (destination & ~(egress->bytes - 1)) == egress->first)
			r = -EADDRINUSE;
	}
	(void)fclose(routes); /* only read */
	return r;
}

uint32_t egress_address(const struct egress *egress, uint32_t network)
{
	/* The first block is the link's. */
	uint64_t at = ((uint64_t)network + 1) * EGRESS_BLOCK;

	return egress->router_ns_fd >= 0 && at + EGRESS_BLOCK <= egress->bytes ?
		       egress->first + (uint32_t)at :
		       0;
}

static void range_print(uint32_t first, uint32_t bytes, char ret[static 24])
{
	const struct in_addr address = { htonl(first) };
	char text[INET_ADDRSTRLEN] = "";

	(void)inet_ntop(AF_INET, &address, text, sizeof text); /* fits */
	(void)snprintf(ret, 24, "%s/%d", text, __builtin_clz(bytes) + 1);
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

static long router_furnish(void)
{
	static const struct {
		const char *path, *value;
	} settings[] = {
		{ "/proc/sys/net/ipv4/ip_forward", "1" },
		{ "/proc/sys/net/ipv4/conf/all/rp_filter", "1" },
		{ "/proc/sys/net/ipv4/conf/default/rp_filter", "1" },
		{ "/proc/sys/net/ipv4/conf/all/send_redirects", "0" },
		{ "/proc/sys/net/ipv4/conf/default/send_redirects", "0" },
		{ "/proc/sys/net/ipv6/conf/all/disable_ipv6", "1" },
		{ "/proc/sys/net/ipv6/conf/default/disable_ipv6", "1" },
	};
	long r = 0;

	for (unsigned i = 0; r >= 0 && i < sizeof settings / sizeof *settings; i++) {
		r = setting_write(settings[i].path, settings[i].value);
		if (r == -ENOENT) /* a kernel without IPv6 */
			r = 0;
	}
	return r;
}

/* The calling thread is in the host's again when it returns. */
static int router_make(struct egress *egress, int host_fd)
{
	int r = unshare(CLONE_NEWNET) < 0 ? -errno : 0;

	if (r < 0)
		return r;
	r = (int)router_furnish();
	if (r >= 0) {
		egress->router_ns_fd = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
		r = egress->router_ns_fd < 0 ? -errno : 0;
	}
	if (setns(host_fd, CLONE_NEWNET) < 0)
		abort(); /* in the wrong network there is nothing right to do */
	return r;
}

static int link_end(int fd, const char *name, uint32_t address, uint32_t gateway)
{
	long r = fd < 0 ? fd : route_address_add(fd, name, address, LINK_PREFIX);

	if (r >= 0)
		r = route_link_up(fd, name);
	if (r >= 0 && gateway)
		r = route_via_add(fd, 0, 0, gateway);
	return r < 0 ? (int)r : 0;
}

static int link_make(const struct egress *egress, int host_fd)
{
	auto_close int host = (int)route_open();
	int r = host < 0 ? host : 0;

	if (r >= 0)
		r = (int)route_pair_make(host, egress->link, "up", egress->router_ns_fd);
	if (r >= 0)
		r = link_end(host, egress->link, egress->first + HOST, 0);
	if (r < 0)
		return r;
	if (setns(egress->router_ns_fd, CLONE_NEWNET) < 0)
		return -errno;
	auto_close int router = (int)route_open();

	r = link_end(router, "up", egress->first + EGRESS_ROUTER_ADDRESS, egress->first + HOST);
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

static bool host_forwards(void)
{
	auto_close int fd = open("/proc/sys/net/ipv4/ip_forward", O_RDONLY | O_CLOEXEC);
	char value = '0';

	return fd >= 0 && read(fd, &value, 1) == 1 && value != '0';
}

static int rules_load(const struct egress *egress)
{
	char rules[2048], all[24], link[24], address[INET_ADDRSTRLEN];
	struct in_addr resolver;
	int r;

	range_print(egress->first, egress->bytes, all);
	range_print(egress->first, EGRESS_BLOCK, link);
	resolver.s_addr = htonl(egress->first + EGRESS_ROUTER_ADDRESS);
	(void)inet_ntop(AF_INET, &resolver, address, sizeof address); /* fits, as below */
	(void)snprintf(rules, sizeof rules, router_rules, all, address);
	r = nft_run(rules, egress->router_ns_fd);
	if (r < 0)
		return r;
	(void)snprintf(rules, sizeof rules, host_rules, egress->table, egress->link, link,
		       egress->link);
	return nft_run(rules, -1);
}

static int egress_fail(int error, const char *range)
{
	const char *why = strerror(-error);

	if (error == -EINVAL)
		why = "a range is wanted, as 10.200.0.0/16: its first address, and /8 to /28";
	else if (error == -EADDRINUSE)
		why = "a route of this host lies in it: choose another range";
	else if (error == -ENETDOWN)
		why = "this host does not forward: sysctl -w net.ipv4.ip_forward=1";
	else if (error == -ENOENT)
		why = "there is no nft: apt-get install nftables";
	else if (error == -EOPNOTSUPP)
		why = "this kernel lacks veth or nf_tables with NAT: modprobe veth nft_masq";
	log_error("egress refused range=\"%s\": %s", range, why);
	return error;
}

int egress_open(struct egress *egress, const char *range, const char *instance)
{
	auto_close int host_fd = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
	int r = host_fd < 0 ? -errno : range_parse(egress, range);

	if (r < 0)
		return egress_fail(r, range);
	r = egress_sweep(instance);
	names_make(egress, instance);
	if (r >= 0)
		r = range_check(egress);
	if (r >= 0 && !host_forwards())
		r = -ENETDOWN;
	if (r >= 0)
		r = router_make(egress, host_fd);
	if (r >= 0)
		r = link_make(egress, host_fd);
	if (r >= 0)
		r = rules_load(egress);
	if (r >= 0) {
		log_info("egress range=%s link=%s table=\"inet %s\"", range, egress->link,
			 egress->table);
		return 0;
	}
	egress_close(egress);
	return egress_fail(r, range);
}

void egress_close(struct egress *egress)
{
	egress_resolver_close(egress);
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
