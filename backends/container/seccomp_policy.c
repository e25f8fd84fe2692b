/*
 * What a policy refuses beyond the filter of every sandbox, as a second filter that a worker's
 * children put on themselves. Called on the engine's control thread, once per version of a policy.
 * Must hold: what the kernel ignores of an argument is ignored here too; the other ways into this
 * kernel are refused as a whole, by this filter as well.
 */
#include "backends/container/filter.h"

#include <errno.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "backends/container/walls.h"
#include "bpf/guard_policy.h"
#include "engine/base/cleanup.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

struct process_calls {
	enum guard_process what;
	int calls[5]; /* ends with 0 */
};

static const struct process_calls process_calls[] = {
	{ GUARD_PROCESS_PTRACE,
	  { SCMP_SYS(ptrace), SCMP_SYS(process_vm_readv), SCMP_SYS(process_vm_writev),
	    SCMP_SYS(kcmp) } },
	/* Which CPUs it runs on stays a program's own affair: its cpuset bounds them. */
	{ GUARD_PROCESS_SETSCHEDULER,
	  { SCMP_SYS(sched_setscheduler), SCMP_SYS(sched_setparam), SCMP_SYS(sched_setattr) } },
};

static const struct process_calls *process_find(const struct guard_rule *rule)
{
	for (unsigned i = 0; i < COUNT(process_calls); i++)
		if ((uint32_t)process_calls[i].what == rule->value)
			return &process_calls[i];
	return NULL;
}

bool filter_can_refuse(const struct guard_rule *rule)
{
	return rule->kind == GUARD_RULE_FAMILY || rule->kind == GUARD_RULE_IOCTL ||
	       (rule->kind == GUARD_RULE_PROCESS && (filter_refuses(rule) || process_find(rule)));
}

static int family_refuse(scmp_filter_ctx filter, uint32_t family)
{
	const struct scmp_arg_cmp asked = filter_masked(0, UINT32_MAX, family);
	int r = filter_rule(filter, (struct refusal){ SCMP_SYS(socket), EAFNOSUPPORT }, 1, &asked);

	return r < 0 ? r :
		       filter_rule(filter, (struct refusal){ SCMP_SYS(socketpair), EAFNOSUPPORT },
				   1, &asked);
}

static int rule_add(scmp_filter_ctx filter, const struct guard_rule *rule)
{
	const struct scmp_arg_cmp asked = filter_masked(1, 0xffff, rule->value & 0xffff);
	const struct process_calls *found;
	int r = 0;

	if (rule->kind == GUARD_RULE_FAMILY)
		return family_refuse(filter, rule->value);
	if (rule->kind == GUARD_RULE_IOCTL)
		return filter_rule(filter, (struct refusal){ SCMP_SYS(ioctl), EPERM }, 1, &asked);
	found = process_find(rule);
	for (const int *call = found ? found->calls : NULL; r == 0 && call && *call; call++)
		r = filter_rule(filter, (struct refusal){ *call, EPERM }, 0, NULL);
	return r;
}

/* Twice the same rule is one: the library says EEXIST. */
static int rules_add(scmp_filter_ctx filter, const struct guard_policy *policy, bool *ret_any)
{
	int r = 0;

	for (uint32_t i = 0; r == 0 && i < policy->rule_count; i++) {
		const struct guard_rule *rule = &policy->rules[i];

		if (rule->is_audit || filter_refuses(rule) || !filter_can_refuse(rule))
			continue;
		r = rule_add(filter, rule);
		r = r == -EEXIST ? 0 : r;
		*ret_any = true;
	}
	return r;
}

/* The library writes a program to a descriptor, and nowhere else. */
static int filter_export(scmp_filter_ctx filter, struct sock_filter *ret, uint32_t *ret_count)
{
	auto_close int fd = memfd_create("filter", MFD_CLOEXEC);
	int r = fd < 0 ? -errno : seccomp_export_bpf(filter, fd);
	off_t bytes;

	if (r < 0)
		return r;
	bytes = lseek(fd, 0, SEEK_END);
	if (bytes <= 0 || (uint64_t)bytes > WALLS_FILTER_MAX * sizeof *ret)
		return bytes < 0 ? -errno : -E2BIG;
	if (pread(fd, ret, (size_t)bytes, 0) != bytes)
		return -EIO;
	*ret_count = (uint32_t)((size_t)bytes / sizeof *ret);
	return 0;
}

int filter_compile(const struct guard_policy *policy, struct sock_filter *ret, uint32_t *ret_count)
{
	scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ALLOW);
	uint32_t count = 0;
	bool any = false;
	int r = filter ? filter_attributes(filter) : -ENOMEM;

	if (r == 0)
		r = rules_add(filter, policy, &any);
	if (r == 0 && any)
		r = filter_export(filter, ret, &count);
	seccomp_release(filter);
	if (r == 0)
		*ret_count = count;
	return r;
}
