/*
 * How rules are enforced here. Called by policies.c for each version, on the control thread. What
 * is said is what every sandbox has, whatever its policy: namespaces, and the filter of
 * backends/container/seccomp.c. Nothing enforces a policy's own rules yet; what does adds its
 * levels. Must hold: never more than is so.
 */
#include "engine/policy/levels.h"

#include <sys/socket.h>

#include "bpf/guard_policy.h"

static uint32_t process_levels(uint32_t process)
{
	switch (process) {
	case GUARD_PROCESS_PTRACE_OUTSIDE: /* there is nobody outside to name */
	case GUARD_PROCESS_SIGNAL_OUTSIDE:
		return GUARD_LEVEL_NAMESPACE;
	case GUARD_PROCESS_BPF:
	case GUARD_PROCESS_PERF:
	case GUARD_PROCESS_USERFAULTFD:
	case GUARD_PROCESS_KEYCTL:
	case GUARD_PROCESS_USERNS:
	case GUARD_PROCESS_IO_URING:
	case GUARD_PROCESS_CORE_SCHED:
	case GUARD_PROCESS_MOUNT:
		return GUARD_LEVEL_SECCOMP;
	default:
		return 0;
	}
}

uint32_t policy_rule_levels(const struct guard_rule *rule)
{
	if (rule->kind == GUARD_RULE_PROCESS)
		return process_levels(rule->value);
	if (rule->kind == GUARD_RULE_FAMILY && rule->value != AF_UNIX && rule->value != AF_INET &&
	    rule->value != AF_INET6 && rule->value != AF_NETLINK)
		return GUARD_LEVEL_SECCOMP;
	return 0;
}
