/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Connections that go by the engine's forwarder: where they were to go, for the last wall, for
 * getpeername() and for the forwarder. Part of egress.bpf.c, after vmlinux.h.
 */
#pragma once

#include <bpf/bpf_helpers.h>

#include "bpf/policy.h"
#include "bpf/policy_egress.h"

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, POLICY_REDIRECTS_MAX);
	__type(key, struct policy_redirect_key);
	__type(value, struct policy_redirect);
} redirects SEC(".maps");

/* Of sockets whose connection was redirected: where it was to go. */
struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct policy_redirect);
} redirected SEC(".maps");

/* False: there is no memory. */
static __always_inline bool redirect_keep(struct bpf_sock *socket, const __u32 *word, __u16 port)
{
	struct policy_redirect *redirect;

	if (!socket)
		return false;
	redirect = bpf_sk_storage_get(&redirected, socket, NULL, BPF_SK_STORAGE_GET_F_CREATE);
	if (!redirect)
		return false;
	__builtin_memcpy(redirect->address, word, sizeof(redirect->address));
	redirect->port = port;
	return true;
}

/* NULL: no call of it was redirected. */
static __always_inline const struct policy_redirect *redirect_of(struct bpf_sock *socket)
{
	return socket ? bpf_sk_storage_get(&redirected, socket, NULL, 0) : NULL;
}

/* From here on the forwarder finds it, by where the connection comes from, in network order. */
static __always_inline bool redirect_tell(__u32 address4, __u16 port,
					  const struct policy_redirect *redirect)
{
	const struct policy_redirect_key key = { .address4 = address4, .port = port };

	return bpf_map_update_elem(&redirects, &key, redirect, BPF_ANY) == 0;
}
