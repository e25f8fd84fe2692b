/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What a policy says of processes, for the programs that ask: places in policy_summary.processes.
 */
#pragma once

/* As in guard_policy.h. */
enum {
	PTRACE_OUTSIDE = 1,
	SIGNAL_OUTSIDE,
	PTRACE_INSIDE,
	BPF_CALL,
	PERF,
	USERFAULTFD,
	KEYCTL,
	USERNS,
	IO_URING,
	SETSCHEDULER,
	CORE_SCHED,
	MOUNT,
};
