/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Numbers of processes as the engine sees them, for BPF programs. After vmlinux.h. */
#pragma once

#include <bpf/bpf_core_read.h>

#include "bpf/policy.h"

/* The process' number in the engine's pid namespace; 0 when it has none there. */
static __always_inline int pid_number(struct signal_struct *signal,
				      const struct policy_engine *engine)
{
	/* By value: the verifier lets nobody index behind a typed pointer. */
	__u64 pid = (__u64)BPF_CORE_READ(signal, pids[PIDTYPE_TGID]);
	const __u32 level = engine->pidns_level;
	struct upid upid = {};

	if (!pid || BPF_CORE_READ((struct pid *)pid, level) < level)
		return 0;
	pid += bpf_core_field_offset(struct pid, numbers) + level * bpf_core_type_size(struct upid);
	if (bpf_core_read(&upid, sizeof(upid), (struct upid *)pid))
		return 0;
	if (BPF_CORE_READ(upid.ns, ns.inum) != engine->pidns_inode)
		return 0;
	return upid.nr;
}
