/*
 * What a policy refuses beyond the filter of every sandbox, as a second filter that a worker's
 * children put on themselves. Called on the engine's control thread, once per version of a policy.
 * Must hold: what the kernel ignores of an argument is ignored here too; the other ways into this
 * kernel are refused as a whole, by this filter as well.
 */
#include "backends/container/filter.h"

#include <errno.h>
#include <linux/audit.h>
#include <linux/seccomp.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
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

/* ---- ioctls that may be, and no others ---- */

/* The library has no rule for all values but some: these instructions go before its own. */
static bool is_of_list(const struct guard_rule *rule)
{
	return rule->kind == GUARD_RULE_IOCTL &&
	       rule->bits & (GUARD_IOCTL_ALLOW | GUARD_IOCTL_OTHERS);
}

static bool has_list(const struct guard_policy *policy)
{
	for (uint32_t i = 0; i < policy->rule_count; i++) {
		const struct guard_rule *rule = &policy->rules[i];

		if (rule->kind == GUARD_RULE_IOCTL && rule->bits & GUARD_IOCTL_OTHERS)
			return !rule->is_audit;
	}
	return false;
}

#ifdef __x86_64__
enum { OWN_ARCHITECTURE = AUDIT_ARCH_X86_64, FOREIGN_BIT = 0x40000000 }; /* x32 */
#else
enum { OWN_ARCHITECTURE = AUDIT_ARCH_AARCH64, FOREIGN_BIT = 0 };
#endif

#define AT(field) ((uint32_t)offsetof(struct seccomp_data, field))

/*
 * What is refused returns; all else goes on behind the last one. Each allowed value takes two, and
 * ten are around them: there are at most as many as rules. ret: WALLS_FILTER_MAX.
 */
static uint32_t list_write(const struct guard_policy *policy, struct sock_filter *ret)
{
	const struct sock_filter begin[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, AT(arch)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, OWN_ARCHITECTURE, 1, 0),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, AT(nr)),
		BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, FOREIGN_BIT, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_ioctl, 1, 0),
		BPF_STMT(BPF_JMP | BPF_JA, 0), /* to the end, once that is known */
		/* The lower half: these machines are little-endian. */
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, AT(args[1])),
		BPF_STMT(BPF_ALU | BPF_AND | BPF_K, 0xffff),
	};
	const struct sock_filter refuse = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM);
	uint32_t count = COUNT(begin);

	memcpy(ret, begin, sizeof begin);
	for (uint32_t i = 0; i < policy->rule_count; i++) {
		const struct guard_rule *rule = &policy->rules[i];

		if (rule->kind != GUARD_RULE_IOCTL || !(rule->bits & GUARD_IOCTL_ALLOW))
			continue;
		ret[count++] =
			(struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, rule->value, 0, 1);
		ret[count++] = (struct sock_filter)BPF_STMT(BPF_JMP | BPF_JA, 0);
	}
	ret[count++] = refuse;
	for (uint32_t i = 0; i < count; i++)
		if (ret[i].code == (BPF_JMP | BPF_JA))
			ret[i].k = count - i - 1;
	return count;
}

_Static_assert(2 * (int)GUARD_POLICY_RULES_MAX + 16 < (int)WALLS_FILTER_MAX, "a list fits");

/* Twice the same rule is one: the library says EEXIST. */
static int rules_add(scmp_filter_ctx filter, const struct guard_policy *policy, bool *ret_any)
{
	int r = 0;

	for (uint32_t i = 0; r == 0 && i < policy->rule_count; i++) {
		const struct guard_rule *rule = &policy->rules[i];

		if (rule->is_audit || filter_refuses(rule) || !filter_can_refuse(rule) ||
		    is_of_list(rule))
			continue;
		r = rule_add(filter, rule);
		r = r == -EEXIST ? 0 : r;
		*ret_any = true;
	}
	return r;
}

/* The library writes a program to a descriptor, and nowhere else. `room`: instructions. */
static int filter_export(scmp_filter_ctx filter, struct sock_filter *ret, uint32_t room,
			 uint32_t *ret_count)
{
	auto_close int fd = memfd_create("filter", MFD_CLOEXEC);
	int r = fd < 0 ? -errno : seccomp_export_bpf(filter, fd);
	off_t bytes;

	if (r < 0)
		return r;
	bytes = lseek(fd, 0, SEEK_END);
	if (bytes <= 0 || (uint64_t)bytes > room * sizeof *ret)
		return bytes < 0 ? -errno : -E2BIG;
	if (pread(fd, ret, (size_t)bytes, 0) != bytes)
		return -EIO;
	*ret_count = (uint32_t)((size_t)bytes / sizeof *ret);
	return 0;
}

int filter_compile(const struct guard_policy *policy, struct sock_filter *ret, uint32_t *ret_count)
{
	scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ALLOW);
	const uint32_t before = has_list(policy) ? list_write(policy, ret) : 0;
	uint32_t count = 0;
	bool any = before;
	int r = filter ? filter_attributes(filter) : -ENOMEM;

	if (r == 0)
		r = rules_add(filter, policy, &any);
	if (r == 0 && any)
		r = filter_export(filter, ret + before, WALLS_FILTER_MAX - before, &count);
	seccomp_release(filter);
	if (r == 0)
		*ret_count = before + count;
	return r;
}
