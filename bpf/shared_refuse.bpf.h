/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * How the programs of shared.bpf.c refuse: counted, and told where somebody was to be reached or
 * listened to. After vmlinux.h and the helpers.
 */
#pragma once

#include "bpf/metadata.bpf.h"
#include "bpf/shared_map.bpf.h"
#include "bpf/violation.bpf.h"

/* error 0: EPERM, as the kernel says by itself. */
static __always_inline int refuse(struct policy_shared *self, int error)
{
	__sync_fetch_and_add(&self->counts.refused, 1);
	if (error)
		bpf_set_retval(-error);
	return HOOK_DENY;
}

static __always_inline struct policy_violation *refusal_error(__u32 rule, __u16 hook, int error)
{
	const struct violation refusal = {
		.cgroup_id = bpf_get_current_ancestor_cgroup_id(slot_level),
		.rule = rule,
		.hook = hook,
		.verdict = POLICY_DENIED,
		.error = error,
	};

	return violation_begin(&refusal);
}

static __always_inline struct policy_violation *refusal_begin(__u32 rule, __u16 hook)
{
	return refusal_error(rule, hook, ERROR_NOT_PERMITTED);
}

/* It has as many sockets as it may have. */
static __always_inline int refuse_room(struct policy_shared *self, __u16 hook, __u32 protocol)
{
	struct policy_violation *record = refusal_error(POLICY_RULE_SOCKETS, hook, ERROR_NO_ROOM);

	if (record) {
		record->protocol = protocol;
		violation_end(record);
	}
	return refuse(self, ERROR_NO_ROOM);
}

/* An address that is not its own. IPv4 is told mapped, too. */
static __always_inline int refuse_peer(struct bpf_sock_addr *call, struct policy_shared *self,
				       const struct address6 *asked, __u16 hook)
{
	struct policy_violation *record = refusal_begin(
		metadata_is6(asked->word) ? POLICY_RULE_METADATA_ADDRESS : POLICY_RULE_NEIGHBOUR,
		hook);

	if (record) {
		record->family = is_mapped(asked) ? 4 : 6;
		__builtin_memcpy(record->address, asked, sizeof(record->address));
		record->port = bpf_ntohs(call->user_port);
		record->protocol = call->protocol;
		violation_end(record);
	}
	return refuse(self, 0);
}
