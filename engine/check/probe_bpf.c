/*
 * Probes of BPF: what the guard needs. None is required: without them the guard does less, and the
 * engine says so. Called by check.c, each in a process of its own.
 */
#include "engine/check/probe_bpf.h"

#include <string.h>

#include "engine/check/check.h"

static void kind_report(enum bpf_kind kind, const char *good, struct check_result *result)
{
	int error = bpf_kind_probe(kind);

	if (error)
		check_missing(result, "%s", strerrordesc_np(error));
	else
		check_ok(result, "%s", good);
}

/* All of them, or the first that is not there. */
static void kinds_report(const enum bpf_kind *kinds, uint32_t count, struct check_result *result)
{
	static const char *const names[BPF_KIND_COUNT] = {
		[BPF_KIND_SOCK_CREATE] = "cgroup/sock_create",
		[BPF_KIND_CONNECT_UNIX] = "cgroup/connect_unix",
		[BPF_KIND_SOCKET_CALLS] = "cgroup/bind4, connect4",
		[BPF_KIND_PACKETS] = "cgroup_skb",
		[BPF_KIND_SOCKET_STATES] = "tp_btf/inet_sock_set_state",
	};
	int error = 0;

	for (uint32_t i = 0; i < count && !error; i++) {
		error = bpf_kind_probe(kinds[i]);
		if (error)
			check_missing(result, "%s: %s", names[kinds[i]], strerrordesc_np(error));
	}
	if (!error)
		check_ok(result, "programs of each kind load");
}

static void shared_probe(const struct check_context *context, struct check_result *result)
{
	static const enum bpf_kind kinds[] = { BPF_KIND_SOCK_CREATE, BPF_KIND_CONNECT_UNIX,
					       BPF_KIND_SOCKET_CALLS, BPF_KIND_PACKETS,
					       BPF_KIND_SOCKET_STATES };

	(void)context;
	kinds_report(kinds, sizeof(kinds) / sizeof(kinds[0]), result);
}

static void egress_probe(const struct check_context *context, struct check_result *result)
{
	static const enum bpf_kind kinds[] = { BPF_KIND_SOCK_CREATE, BPF_KIND_SOCKET_CALLS,
					       BPF_KIND_PACKETS };

	(void)context;
	kinds_report(kinds, sizeof(kinds) / sizeof(kinds[0]), result);
}

#define KIND_PROBE(name, kind, good)                                                               \
	static void name(const struct check_context *context, struct check_result *result)         \
	{                                                                                          \
		(void)context;                                                                     \
		kind_report(kind, good, result);                                                   \
	}

KIND_PROBE(btf_probe, BPF_KIND_BTF, "/sys/kernel/btf/vmlinux")
KIND_PROBE(bpffs_probe, BPF_KIND_BPFFS, "/sys/fs/bpf")
KIND_PROBE(tp_btf_probe, BPF_KIND_TP_BTF, "a program for sched_process_exit loads")
KIND_PROBE(sock_create_probe, BPF_KIND_SOCK_CREATE, "a program loads")
KIND_PROBE(connect_unix_probe, BPF_KIND_CONNECT_UNIX, "a program loads")
KIND_PROBE(lsm_probe, BPF_KIND_LSM, "a program for file_open loads")
KIND_PROBE(fentry_probe, BPF_KIND_FENTRY, "a program for vfs_open loads")
KIND_PROBE(xdp_probe, BPF_KIND_XDP, "a program loads")

const struct check_probe check_bpf_probes[] = {
	{ "btf", false, 0, btf_probe, "no BPF program of ours loads",
	  "use a kernel with CONFIG_DEBUG_INFO_BTF" },
	{ "bpffs", false, 0, bpffs_probe, "pins are not where users of bpftool look",
	  "mount -t bpf bpf /sys/fs/bpf" },
	{ "bpf-tp_btf", false, 0, tp_btf_probe, "ends of processes are noticed by slower waits",
	  "use a kernel with CONFIG_BPF_EVENTS; keep CAP_BPF and CAP_PERFMON" },
	{ "bpf-sock_create", false, 0, sock_create_probe, "network `none` is not enforced by BPF",
	  "use a kernel with CONFIG_CGROUP_BPF; keep CAP_BPF and CAP_NET_ADMIN" },
	{ "bpf-connect_unix", false, 0, connect_unix_probe,
	  "abstract unix names reach other sandboxes", "use Linux 6.12 with CONFIG_CGROUP_BPF" },
	{ "bpf-shared", false, 0, shared_probe,
	  "no network `shared`: a create that asks is refused",
	  "use Linux 6.12 with CONFIG_CGROUP_BPF and CONFIG_BPF_EVENTS; keep CAP_BPF, "
	  "CAP_PERFMON and CAP_NET_ADMIN" },
	{ "bpf-egress", false, 0, egress_probe,
	  "no way out by a policy's rules: a create that asks is refused",
	  "use a kernel with CONFIG_CGROUP_BPF; keep CAP_BPF and CAP_NET_ADMIN" },
	{ "bpf-lsm", false, 0, lsm_probe,
	  "rules on files, ioctls and processes are not enforced by BPF",
	  "use a kernel with CONFIG_BPF_LSM that lets LSM programs load; boot with bpf in lsm=" },
	{ "bpf-fentry", false, 0, fentry_probe, "nothing yet; where it is refused, so is LSM",
	  "use a kernel with CONFIG_DYNAMIC_FTRACE_WITH_DIRECT_CALLS" },
	{ "bpf-xdp", false, 0, xdp_probe, "networks of virtual machines have no policy",
	  "keep CAP_BPF and CAP_NET_ADMIN" },
	{ 0 },
};
