/*
 * What walls make of policies, without a sandbox: tests/root/launch/test_launch_walls.c has those.
 */
#include <criterion/criterion.h>
#include <linux/audit.h>
#include <linux/seccomp.h>
#include <sys/syscall.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "backends/backend.h"
#include "backends/container/filter.h"
#include "backends/container/walls.h"
#include "bpf/guard_policy.h"
#include "engine/policy/policies.h"

TestSuite(walls, .timeout = 60);

/* A rule of a ready-made policy that no wall holds is one of these. */
static bool needs_more(const struct guard_rule *rule)
{
	return rule->kind == GUARD_RULE_UNIX;
}

Test(walls, ready_made_policies_have_walls_for_each_of_their_rules)
{
	struct policy_table table = { 0 };
	struct policy_mistake mistake;
	unsigned files = 0;

	cr_assert(policies_open(&table, &mistake) == 0);
	for (unsigned i = 0; i < POLICIES_READY; i++) {
		const struct guard_policy *policy = &table.ready[i]->guard;
		struct backend_walls *walls = NULL;

		cr_expect(backend_walls_new(policy, false, "", &walls) == 0, "%s", policy->name);
		for (uint32_t n = 0; n < policy->rule_count; n++) {
			const struct guard_rule *rule = &policy->rules[n];

			files += rule->kind == GUARD_RULE_FILE;
			cr_expect(needs_more(rule) || rule->is_audit ||
					  backend_rule_levels(rule, false),
				  "%s: %s", policy->name, rule->label);
		}
		if (policy->rule_count == 0) {
			cr_expect(walls_for_spawn(walls) == -1);
			cr_expect(walls_for_exec(walls) == -1);
		}
		backend_walls_free(walls);
	}
	cr_expect(files > 0);
	policies_close(&table);
}

Test(walls, mounts_alone_go_with_no_exec)
{
	const struct guard_rule rule = {
		.kind = GUARD_RULE_FILE,
		.bits = GUARD_FILE_WRITE | GUARD_FILE_SUBTREE,
		.text = "/usr",
	};
	const struct guard_policy policy = { .number = 1, .rule_count = 1, .rules = &rule };
	struct backend_walls *walls;

	cr_assert(backend_walls_new(&policy, false, "", &walls) == 0);
	cr_expect(walls_for_spawn(walls) >= 0);
	cr_expect(walls_for_exec(walls) == -1);
	backend_walls_free(walls);
	backend_walls_free(NULL);
	cr_expect(walls_for_spawn(NULL) == -1 && walls_for_exec(NULL) == -1);
}

/* As many as there may be, each of its own, and the longest texts. */
Test(walls, the_largest_policy_has_a_sheet_that_is_read_again)
{
	static char texts[GUARD_POLICY_RULES_MAX][GUARD_RULE_TEXT_MAX + 1];
	static struct guard_rule rules[GUARD_POLICY_RULES_MAX];
	static char buffer[WALLS_BYTES_MAX] __attribute__((aligned(8)));
	const struct guard_policy policy = { .number = 1,
					     .rule_count = GUARD_POLICY_RULES_MAX,
					     .rules = rules };
	struct backend_walls *walls;
	struct walls sheet;

	for (uint32_t i = 0; i < GUARD_POLICY_RULES_MAX; i++) {
		memset(texts[i], '/', GUARD_RULE_TEXT_MAX);
		rules[i] = (struct guard_rule){ .kind = GUARD_RULE_FILE,
						.bits = GUARD_FILE_HIDE,
						.text = texts[i] };
	}
	cr_assert(backend_walls_new(&policy, false, "", &walls) == 0);
	cr_assert(walls_read(walls_for_spawn(walls), buffer, &sheet) == 0);
	cr_expect(sheet.head->mount_count == GUARD_POLICY_RULES_MAX);
	cr_expect(strcmp(sheet.text + sheet.mounts[1023].path, texts[1023]) == 0);
	backend_walls_free(walls);
	rules[5].text = "relative";
	cr_expect(backend_walls_new(&policy, false, "", &walls) == -EINVAL);
}

Test(walls, as_many_ioctls_as_a_policy_has_rules_fit_into_a_filter)
{
	static struct guard_rule rules[GUARD_POLICY_RULES_MAX];
	struct guard_policy policy = { .number = 1, .rules = rules };
	struct sock_filter filter[WALLS_FILTER_MAX];
	uint32_t count = 0;

	for (uint32_t i = 0; i < GUARD_POLICY_RULES_MAX; i++)
		rules[i] = (struct guard_rule){ .kind = GUARD_RULE_IOCTL, .value = 0x7000 + i };
	policy.rule_count = GUARD_POLICY_RULES_MAX;
	int r = filter_compile(&policy, filter, &count);

	cr_expect(r == 0 && count > GUARD_POLICY_RULES_MAX, "%d, %u", r, count);
	for (uint32_t i = 1; i < GUARD_POLICY_RULES_MAX; i++)
		rules[i].bits = GUARD_IOCTL_ALLOW;
	rules[0] = (struct guard_rule){ .kind = GUARD_RULE_IOCTL,
					.bits = GUARD_IOCTL_OTHERS,
					.value = GUARD_IOCTL_NONE };
	r = filter_compile(&policy, filter, &count);
	cr_expect(r == 0 && count > 2 * (GUARD_POLICY_RULES_MAX - 1), "listed: %d, %u", r, count);
	rules[0].is_audit = true;
	r = filter_compile(&policy, filter, &count);
	cr_expect(r == 0 && count == 0, "what is only watched no filter refuses: %d, %u", r, count);
}

/* ---- a bound worker's filter says what the policy's own says, but to who has the secret ---- */

/* What filters are made of, and nothing else. */
static uint32_t filter_asks(const struct sock_filter *filter, const struct seccomp_data *data)
{
	uint32_t a = 0;

	for (uint32_t at = 0;; at++) {
		const struct sock_filter *i = &filter[at];

		switch (i->code) {
		case BPF_LD | BPF_W | BPF_ABS:
			memcpy(&a, (const char *)data + i->k, sizeof a);
			break;
		case BPF_ALU | BPF_AND | BPF_K:
			a &= i->k;
			break;
		case BPF_JMP | BPF_JA:
			at += i->k;
			break;
		case BPF_JMP | BPF_JEQ | BPF_K:
			at += a == i->k ? i->jt : i->jf;
			break;
		case BPF_JMP | BPF_JGT | BPF_K:
			at += a > i->k ? i->jt : i->jf;
			break;
		case BPF_JMP | BPF_JGE | BPF_K:
			at += a >= i->k ? i->jt : i->jf;
			break;
		case BPF_JMP | BPF_JSET | BPF_K:
			at += a & i->k ? i->jt : i->jf;
			break;
		case BPF_RET | BPF_K:
			return i->k;
		default:
			cr_assert_fail("instruction %u: 0x%x", at, i->code);
		}
	}
}

struct two_filters {
	struct sock_filter alone[WALLS_FILTER_MAX], bound[WALLS_FILTER_MAX + WALLS_BOUND_MAX];
	uint64_t refused; /* of what was asked */
};

enum { SECRET_LOW = 0x89abcdef, SECRET_HIGH = 0x01234567 };
static const uint64_t secret = (uint64_t)SECRET_HIGH << 32 | SECRET_LOW;

static void both_say_the_same(struct two_filters *two, uint32_t arch, int nr, uint64_t first,
			      uint64_t second)
{
	/* The first knows it; the others know one half, none, or have what the registers have. */
	const uint64_t sixths[] = { secret, SECRET_LOW, secret ^ 1, secret ^ 1ull << 63, 0, ~0ull };

	for (unsigned i = 0; i < sizeof sixths / sizeof *sixths; i++) {
		const struct seccomp_data data = { .nr = nr,
						   .arch = arch,
						   .args = { first, second, 0, 0, 0, sixths[i] } };
		const bool passes = i == 0 && arch == AUDIT_ARCH_X86_64 &&
				    (nr == SYS_ioctl || nr == SYS_sched_setscheduler);
		const uint32_t alone = filter_asks(two->alone, &data);

		two->refused += alone != SECCOMP_RET_ALLOW;
		cr_expect(filter_asks(two->bound, &data) == (passes ? SECCOMP_RET_ALLOW : alone),
			  "arch 0x%x call %d 0x%llx 0x%llx sixth %u", arch, nr,
			  (unsigned long long)first, (unsigned long long)second, i);
	}
}

static void all_say_the_same(struct two_filters *two)
{
	static const uint32_t arches[] = { AUDIT_ARCH_X86_64, AUDIT_ARCH_I386, AUDIT_ARCH_AARCH64 };

	for (unsigned i = 0; i < sizeof arches / sizeof *arches; i++) {
		for (int nr = -1; nr < 600; nr++) {
			both_say_the_same(two, arches[i], nr, 0, 0);
			both_say_the_same(two, arches[i], nr | 0x40000000, 0, 0);
		}
		for (uint64_t family = 0; family < 64; family++) {
			both_say_the_same(two, arches[i], SYS_socket, family, 0);
			both_say_the_same(two, arches[i], SYS_socket, family | 1ull << 32, 1);
			both_say_the_same(two, arches[i], SYS_socketpair, family, 1);
		}
	}
	for (uint64_t command = 0; command < 65536; command++)
		both_say_the_same(two, AUDIT_ARCH_X86_64, SYS_ioctl, 0, 0xc0200000 | command);
}

Test(walls, a_bound_filter_says_what_the_policys_own_says)
{
	static char buffer[WALLS_BYTES_MAX] __attribute__((aligned(8)));
	static struct two_filters two;
	struct policy_table table = { 0 };
	struct policy_mistake mistake;
	unsigned filters = 0;

	cr_assert(policies_open(&table, &mistake) == 0);
	for (unsigned i = 0; i < POLICIES_READY; i++) {
		struct backend_walls *walls = NULL;
		struct walls sheet;

		cr_assert(backend_walls_new(&table.ready[i]->guard, false, "", &walls) == 0);
		if (walls_for_exec(walls) >= 0) {
			const struct sock_filter *kept;

			cr_assert(walls_read(walls_for_exec(walls), buffer, &sheet) == 0);
			cr_expect(walls_filter(walls, &kept) == sheet.head->filter_count);
			cr_expect(!memcmp(kept, sheet.filter,
					  sheet.head->filter_count * sizeof *kept));
			memcpy(two.alone, kept, sheet.head->filter_count * sizeof *kept);
			(void)walls_bound_write(&sheet, secret, two.bound);
			two.refused = 0;
			all_say_the_same(&two);
			cr_expect(two.refused > 0, "%s", table.ready[i]->guard.name);
			filters++;
		}
		backend_walls_free(walls);
	}
	cr_expect(filters >= 3);
	policies_close(&table);
}
