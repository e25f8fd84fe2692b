/*
 * Can sandboxes have a way out: veth pairs, and nft with address translation, of both families.
 * Called by check.c in a process of its own; everything happens in a network namespace that dies
 * with it.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/if_link.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <sched.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/base/cleanup.h"
#include "engine/check/check.h"
#include "engine/config_dns.h"

static int veth_make(void)
{
	static const struct {
		struct nlmsghdr header;
		struct ifinfomsg link;
		struct rtattr info, kind;
		char name[4];
	} question = {
		.header = { .nlmsg_len = sizeof question,
			    .nlmsg_type = RTM_NEWLINK,
			    .nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL },
		.info = { .rta_len = RTA_LENGTH(sizeof(struct rtattr) + sizeof question.name),
			  .rta_type = IFLA_LINKINFO },
		.kind = { .rta_len = RTA_LENGTH(sizeof question.name), .rta_type = IFLA_INFO_KIND },
		.name = { 'v', 'e', 't', 'h' },
	};
	struct {
		struct nlmsghdr header;
		struct nlmsgerr error;
		char rest[512];
	} answer;
	auto_close int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);

	if (fd < 0 || send(fd, &question, sizeof question, 0) < 0 ||
	    recv(fd, &answer, sizeof answer, 0) < 0)
		return -errno;
	return answer.header.nlmsg_type == NLMSG_ERROR ? answer.error.error : -EPROTO;
}

/* The exit status of nft(8) given these rules; 127: there is none. */
static int nft_run(const char *rules)
{
	static const char *const paths[] = { "/usr/sbin/nft", "/sbin/nft", "/usr/bin/nft" };
	char name[] = "nft", file[] = "-f", input[] = "-";
	char *const argv[] = { name, file, input, NULL }, *const envp[] = { NULL };
	int ends[2], status = -1;
	pid_t pid;

	if (pipe(ends) < 0 || write(ends[1], rules, strlen(rules)) < 0)
		return -1;
	(void)close(ends[1]); /* so that the rules have an end */
	pid = fork();
	if (pid == 0) {
		(void)dup2(ends[0], 0); /* without it nft fails */
		(void)close(2);		/* what it says is not the answer */
		for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++)
			(void)execve(paths[i], argv, envp);
		_exit(127);
	}
	(void)close(ends[0]); /* the child's */
	if (pid < 0 || waitpid(pid, &status, 0) < 0 || !WIFEXITED(status))
		return -1;
	return WEXITSTATUS(status);
}

static void egress_probe(const struct check_context *context, struct check_result *result)
{
	static const char rules[] = "table inet t { chain c { type nat hook postrouting priority "
				    "100; oifname \"x\" masquerade; }; chain f { type filter hook "
				    "forward priority 0; ct state established accept; }; }\n";
	int r;

	(void)context;
	if (unshare(CLONE_NEWNET) < 0) {
		check_failed(result, "network namespace");
		return;
	}
	r = veth_make();
	if (r < 0) {
		check_missing(result, "veth: %s", strerrordesc_np(-r));
		return;
	}
	r = nft_run(rules);
	if (r == 0)
		check_ok(result, "a veth pair, and nft took rules with masquerade");
	else
		check_missing(result, r == 127 ? "there is no nft" :
						 "nft: the kernel took no rules with masquerade");
}

/* What the router of IPv6 needs beside; the host's setting is an operator's to change. */
static void egress6_probe(const struct check_context *context, struct check_result *result)
{
	static const char rules[] = "table inet t { chain c { type nat hook postrouting priority "
				    "100; meta nfproto ipv6 ip6 saddr fd00::/8 masquerade; }; "
				    "chain p { type filter hook prerouting priority -150; meta "
				    "nfproto ipv6 fib saddr . iif oif missing drop; }; }\n";
	auto_close int fd = open("/proc/sys/net/ipv6/conf/all/forwarding", O_RDONLY | O_CLOEXEC);
	char forwards = '0';
	int r;

	(void)context;
	if (fd < 0 || read(fd, &forwards, 1) != 1) {
		check_missing(result, "the kernel has no IPv6");
		return;
	}
	if (unshare(CLONE_NEWNET) < 0) {
		check_failed(result, "network namespace");
		return;
	}
	r = nft_run(rules);
	if (r != 0)
		check_missing(result, r == 127 ? "there is no nft" :
						 "nft: the kernel took no rules of IPv6 with "
						 "masquerade and fib");
	else if (forwards == '0')
		check_degraded(result, "net.ipv6.conf.all.forwarding is 0: --egress6 is refused");
	else
		check_ok(result, "nft took rules of IPv6, and the host forwards it");
}

/* Says who would be asked. Whether it answers only a question would tell, and none leaves here. */
static void names_probe(const struct check_context *context, struct check_result *result)
{
	struct upstreams upstreams;

	if (upstreams_read(context->options->dns_upstream, &upstreams) < 0)
		check_missing(result, "--dns-upstream is no ADDR[:PORT]: %.64s",
			      context->options->dns_upstream);
	else if (!upstreams.count)
		check_missing(result, "no nameserver in /etc/resolv.conf");
	else
		check_ok(result, "%s%s", upstreams.all[0].text,
			 context->options->dns_upstream ? "" : ", as /etc/resolv.conf says");
}

const struct check_probe check_network_probes[] = {
	{ "egress", false, 0, egress_probe, "no sandboxes with a way out (dsecd --egress)",
	  "apt-get install nftables; modprobe veth nf_tables nft_masq nft_ct" },
	{ "egress6", false, 0, egress6_probe, "no way out by IPv6 (dsecd --egress6)",
	  "sysctl -w net.ipv6.conf.all.forwarding=1; modprobe nft_masq nft_fib_inet nft_fib_ipv6" },
	{ "names", false, 0, names_probe, "policies with host names are refused",
	  "dsecd --dns-upstream ADDR[:PORT]" },
	{ 0 },
};
