/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Keeps sandboxes of network `none` from what their one network namespace would let them share:
 * inet sockets and abstract unix names. Attached by guard.c to the instance's root cgroup.
 *
 * Must hold: a sandbox that the engine never spoke of is `none`; tasks above the slots (launchers)
 * are not sandboxes and pass. There is no hook on bind, so an abstract name can be taken, but not
 * reached.
 */
#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>

#include "bpf/policy.h"

char program_license[] SEC("license") = "Dual BSD/GPL";

extern void *bpf_cast_to_kern_ctx(void *context) __ksym __weak;

enum { HOOK_DENY = 0, HOOK_ALLOW = 1 };

const volatile __u32 slot_level = 0;

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, POLICY_SANDBOXES_MAX);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct policy_cgroup);
	__type(value, struct policy_network);
} networks SEC(".maps");

static __always_inline bool current_is_none(void)
{
	struct policy_cgroup slot = { .cgroup_id = bpf_get_current_ancestor_cgroup_id(slot_level) };
	struct policy_network *network;

	if (!slot.cgroup_id)
		return false;
	network = bpf_map_lookup_elem(&networks, &slot);
	return !network || network->mode == POLICY_NETWORK_NONE;
}

/* The kernel calls it for AF_INET and AF_INET6, every type and protocol, and no other family. */
SEC("cgroup/sock_create")
int dsec_socket(struct bpf_sock *socket)
{
	return current_is_none() ? HOOK_DENY : HOOK_ALLOW;
}

static __always_inline int unix_verdict(struct bpf_sock_addr *context)
{
	const int name_at = bpf_core_field_offset(struct sockaddr_un, sun_path);
	struct bpf_sock_addr_kern *call;
	char first = 0;

	if (!current_is_none())
		return HOOK_ALLOW;
	call = bpf_cast_to_kern_ctx(context);
	/* Without a name the kernel refuses the call itself. */
	if ((int)call->uaddrlen <= name_at)
		return HOOK_ALLOW;
	/* An address that cannot be read stays abstract and is denied. */
	(void)bpf_probe_read_kernel(&first, 1, (void *)call->uaddr + name_at);
	return first ? HOOK_ALLOW : HOOK_DENY;
}

/*
 * libbpf 1.1 has no section name for the two unix hooks: guard.c sets the attach type.
 * Until libbpf 1.3 is the minimum.
 */
SEC("cgroup/connect4")
int dsec_unix_conn(struct bpf_sock_addr *context)
{
	return unix_verdict(context);
}

SEC("cgroup/sendmsg4")
int dsec_unix_send(struct bpf_sock_addr *context)
{
	return unix_verdict(context);
}
