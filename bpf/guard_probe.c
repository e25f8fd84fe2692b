/*
 * Answers what the host's kernel accepts, by loading one tiny program of each kind. Called by
 * `dsecd --check`; keeps nothing.
 */
#include "bpf/guard.h"

#include <errno.h>
#include <linux/magic.h>
#include <stdio.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include "engine/base/cleanup.h"

#define BTF_PATH   "/sys/kernel/btf/vmlinux"
#define BPFFS_PATH "/sys/fs/bpf"

struct program_kind {
	enum bpf_prog_type type;
	int attach_type;    /* not of the enum where our headers are older than the hook */
	const char *target; /* what to attach to, found in the kernel's BTF; NULL: nothing */
};

struct feature {
	const char *name, *remedy;
	struct program_kind program;
};

static const struct feature features[GUARD_FEATURE_COUNT] = {
	[GUARD_FEATURE_BTF] = {
		.name = "kernel BTF",
		.remedy = "all BPF programs need it: use a kernel with CONFIG_DEBUG_INFO_BTF",
	},
	[GUARD_FEATURE_BPFFS] = {
		.name = "bpffs",
		.remedy = "the engine mounts its own: `mount -t bpf bpf /sys/fs/bpf` puts its pins "
			  "where bpftool users look",
	},
	[GUARD_FEATURE_TP_BTF] = {
		.name = "BPF tp_btf",
		.remedy = "deaths are then noticed by slower waits: run with CAP_BPF and "
			  "CAP_PERFMON on a kernel with CONFIG_BPF_EVENTS",
		.program = { BPF_PROG_TYPE_TRACING, BPF_TRACE_RAW_TP, "sched_process_exit" },
	},
	[GUARD_FEATURE_SOCK_CREATE] = {
		.name = "BPF cgroup/sock_create",
		.remedy = "network `none` is then not enforced by BPF: run with CAP_BPF and "
			  "CAP_NET_ADMIN on a kernel with CONFIG_CGROUP_BPF",
		.program = { BPF_PROG_TYPE_CGROUP_SOCK, BPF_CGROUP_INET_SOCK_CREATE, NULL },
	},
	[GUARD_FEATURE_CONNECT_UNIX] = {
		.name = "BPF cgroup/connect_unix",
		.remedy = "abstract unix names then reach other sandboxes: use a kernel of at "
			  "least 6.12 with CONFIG_CGROUP_BPF",
		.program = { BPF_PROG_TYPE_CGROUP_SOCK_ADDR, 49, NULL },
	},
	[GUARD_FEATURE_SOCKET_CALLS] = {
		.name = "BPF cgroup/bind4",
		.remedy = "there is then neither network `shared` nor egress by policy: use a "
			  "kernel with CONFIG_CGROUP_BPF, run with CAP_BPF and CAP_NET_ADMIN",
		.program = { BPF_PROG_TYPE_CGROUP_SOCK_ADDR, BPF_CGROUP_INET4_BIND, NULL },
	},
	[GUARD_FEATURE_PACKETS] = {
		.name = "BPF cgroup_skb",
		.remedy = "there is then neither network `shared` nor egress by policy: use a "
			  "kernel with CONFIG_CGROUP_BPF, run with CAP_BPF and CAP_NET_ADMIN",
		.program = { BPF_PROG_TYPE_CGROUP_SKB, BPF_CGROUP_INET_EGRESS, NULL },
	},
	[GUARD_FEATURE_SOCKET_STATES] = {
		.name = "BPF inet_sock_set_state",
		.remedy = "there is then no network `shared`: use a kernel with "
			  "CONFIG_BPF_EVENTS, run with CAP_BPF and CAP_PERFMON",
		.program = { BPF_PROG_TYPE_TRACING, BPF_TRACE_RAW_TP, "inet_sock_set_state" },
	},
	[GUARD_FEATURE_LSM] = {
		.name = "BPF LSM",
		.remedy = "file, ioctl and process policies are then not enforced by BPF: use a "
			  "kernel with CONFIG_BPF_LSM that lets LSM programs load, and `bpf` "
			  "in lsm=",
		.program = { BPF_PROG_TYPE_LSM, BPF_LSM_MAC, "file_open" },
	},
	[GUARD_FEATURE_FENTRY] = {
		.name = "BPF fentry",
		.remedy = "nothing needs it yet; where it is refused, LSM programs are too: use a "
			  "kernel with CONFIG_DYNAMIC_FTRACE_WITH_DIRECT_CALLS",
		.program = { BPF_PROG_TYPE_TRACING, BPF_TRACE_FENTRY, "vfs_open" },
	},
	[GUARD_FEATURE_XDP] = {
		.name = "BPF XDP",
		.remedy = "networks of virtual machines then have no policy: run with CAP_BPF and "
			  "CAP_NET_ADMIN",
		.program = { BPF_PROG_TYPE_XDP, BPF_XDP, NULL },
	},
};

/* Positive errno, 0 when it loads. The program returns 0, which all kinds allow. */
static int program_probe(const struct program_kind *kind)
{
	static const struct bpf_insn instructions[] = {
		{ .code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_0, .imm = 0 },
		{ .code = BPF_JMP | BPF_EXIT },
	};
	LIBBPF_OPTS(bpf_prog_load_opts, options);
	auto_close int fd = -1;
	int id;

	options.expected_attach_type = (enum bpf_attach_type)kind->attach_type;
	if (kind->target) {
		id = libbpf_find_vmlinux_btf_id(kind->target, options.expected_attach_type);
		if (id <= 0)
			return id < 0 ? -id : ENOENT;
		options.attach_btf_id = (uint32_t)id;
	}
	fd = bpf_prog_load(kind->type, "dsec_probe", "GPL", instructions, 2, &options);
	return fd < 0 ? -fd : 0;
}

static int feature_probe(enum guard_feature at)
{
	struct statfs fs;

	switch (at) {
	case GUARD_FEATURE_BTF:
		return access(BTF_PATH, R_OK) < 0 ? errno : 0;
	case GUARD_FEATURE_BPFFS:
		if (statfs(BPFFS_PATH, &fs) < 0)
			return errno;
		return fs.f_type == BPF_FS_MAGIC ? 0 : ENODEV;
	default:
		return program_probe(&features[at].program);
	}
}

int guard_feature_error(enum guard_feature feature)
{
	libbpf_print_fn_t print = libbpf_set_print(NULL);
	int error = feature_probe(feature);

	libbpf_set_print(print);
	return error;
}

int guard_probe(struct guard_probe *ret)
{
	libbpf_print_fn_t print = libbpf_set_print(NULL);
	int r = 0;

	for (int i = 0; i < GUARD_FEATURE_COUNT && r == 0; i++) {
		int error = feature_probe((enum guard_feature)i);

		if (error == ENOMEM)
			r = -ENOMEM;
		ret->features[i] = (struct guard_feature_state){
			.name = features[i].name,
			.error = error,
			.remedy = error ? features[i].remedy : NULL,
		};
	}
	libbpf_set_print(print);
	return r;
}
