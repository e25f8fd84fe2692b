/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Keeps sandboxes of network `none` from what their one network namespace would let them share:
 * inet sockets and abstract unix names; those of `shared` from the latter. Attached by guard.c to
 * the instance's root cgroup.
 *
 * Must hold: a sandbox that the engine never spoke of is `none`; tasks above the slots (launchers)
 * are not sandboxes and pass. There is no hook on bind, so an abstract name can be taken, but not
 * reached.
 */
#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>

#include "bpf/policy.h"
#include "bpf/violation.bpf.h"

char program_license[] SEC("license") = "Dual BSD/GPL";

extern void *bpf_cast_to_kern_ctx(void *context) __ksym __weak;

enum { HOOK_DENY = 0, HOOK_ALLOW = 1, HOOK_ERROR = 1 /* EPERM */ };

const volatile __u32 slot_level = 0;

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, POLICY_SANDBOXES_MAX);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct policy_cgroup);
	__type(value, struct policy_network);
} networks SEC(".maps");

/* The slot that the current task is in, if its network is `none` or `other`; else 0. */
static __always_inline __u64 slot_of_none(__u32 other)
{
	struct policy_cgroup slot = { .cgroup_id = bpf_get_current_ancestor_cgroup_id(slot_level) };
	struct policy_network *network;

	if (!slot.cgroup_id)
		return 0;
	network = bpf_map_lookup_elem(&networks, &slot);
	return !network || network->mode == POLICY_NETWORK_NONE || network->mode == other ?
		       slot.cgroup_id :
		       0;
}

static __always_inline struct policy_violation *refusal_begin(__u64 slot, __u32 rule, __u16 hook)
{
	const struct violation refusal = {
		.cgroup_id = slot,
		.rule = rule,
		.hook = hook,
		.verdict = POLICY_DENIED,
		.error = HOOK_ERROR,
	};

	return violation_begin(&refusal);
}

/* The kernel calls it for AF_INET and AF_INET6, every type and protocol, and no other family. */
SEC("cgroup/sock_create")
int dsec_socket(struct bpf_sock *socket)
{
	struct policy_violation *record;
	__u64 slot = slot_of_none(POLICY_NETWORK_NONE);

	if (!slot)
		return HOOK_ALLOW;
	record = refusal_begin(slot, POLICY_RULE_NETWORK_NONE, POLICY_HOOK_SOCKET);
	if (record) {
		record->argument = (__u64)socket->family << 32 | socket->type << 16 |
				   (socket->protocol & 0xffff);
		violation_end(record);
	}
	return HOOK_DENY;
}

/* An abstract name as people write it: "@" for its leading NUL. */
static __always_inline void name_copy(struct policy_violation *record, const void *name,
				      __u32 name_bytes)
{
	if (name_bytes > sizeof(record->text))
		name_bytes = sizeof(record->text);
	if (!name_bytes || bpf_probe_read_kernel(record->text, name_bytes, name))
		return;
	record->text[0] = '@';
	record->text_kind = POLICY_TEXT_NAME;
	record->text_bytes = name_bytes;
}

static __always_inline int unix_verdict(struct bpf_sock_addr *context, __u16 hook)
{
	const int name_at = bpf_core_field_offset(struct sockaddr_un, sun_path);
	struct policy_violation *record;
	struct bpf_sock_addr_kern *call;
	__u64 slot = slot_of_none(POLICY_NETWORK_SHARED);
	char first = 0;

	if (!slot)
		return HOOK_ALLOW;
	call = bpf_cast_to_kern_ctx(context);
	/* Without a name the kernel refuses the call itself. */
	if ((int)call->uaddrlen <= name_at)
		return HOOK_ALLOW;
	/* An address that cannot be read stays abstract and is denied. */
	(void)bpf_probe_read_kernel(&first, 1, (void *)call->uaddr + name_at);
	if (first)
		return HOOK_ALLOW;
	record = refusal_begin(slot, POLICY_RULE_ABSTRACT, hook);
	if (record) {
		name_copy(record, (void *)call->uaddr + name_at, call->uaddrlen - name_at);
		violation_end(record);
	}
	return HOOK_DENY;
}

/*
 * libbpf 1.1 has no section name for the two unix hooks: guard.c sets the attach type.
 * Until libbpf 1.3 is the minimum.
 */
SEC("cgroup/connect4")
int dsec_unix_conn(struct bpf_sock_addr *context)
{
	return unix_verdict(context, POLICY_HOOK_UNIX_CONNECT);
}

SEC("cgroup/sendmsg4")
int dsec_unix_send(struct bpf_sock_addr *context)
{
	return unix_verdict(context, POLICY_HOOK_UNIX_SEND);
}
