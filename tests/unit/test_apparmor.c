/*
 * Profiles of AppArmor, compiled and not loaded: what apparmor_parser makes of them is read as the
 * kernel would read it. tests/root/guard/test_guard_apparmor.c loads them.
 */
#include <criterion/criterion.h>
#include <endian.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bpf/apparmor_compile.h"
#include "bpf/apparmor_profile.h"
#include "bpf/guard_policy.h"
#include "engine/base/cleanup.h"
#include "engine/policy/policies.h"

TestSuite(apparmor, .timeout = 60);

#define COUNT(array) (sizeof(array) / sizeof *(array))

/* Of a file that is the reader's own; the same again from bit 14 on for those of others. */
enum { MAY_RUN = 1, MAY_WRITE = 2, MAY_READ = 4, MAY_MAP = 0x40, OTHERS = 14 };

static const struct profile_scope alone = { .instance = "unit" };

/* ---- the table of files in a compiled profile, as the kernel walks it ---- */

enum { TABLE_ACCEPT = 1, TABLE_BASE, TABLE_CHECK, TABLE_DEFAULT, TABLE_CLASS, TABLE_NEXT = 8 };

struct dfa {
	const unsigned char *tables[TABLE_NEXT + 1], *end;
	uint16_t widths[TABLE_NEXT + 1];
	uint32_t counts[TABLE_NEXT + 1];
};

static uint32_t number_at(const unsigned char *at, unsigned bytes)
{
	uint32_t value = 0;

	while (bytes--)
		value = value << 8 | *at++;
	return value;
}

static uint32_t cell(const struct dfa *dfa, unsigned table, uint32_t at)
{
	cr_assert(at < dfa->counts[table]);
	return number_at(dfa->tables[table] + (size_t)at * dfa->widths[table], dfa->widths[table]);
}

/* A set: magic, its header's size, its own size; then tables, each aligned to 8 within it. */
static void dfa_read(const unsigned char *bytes, size_t size, struct dfa *ret)
{
	static const unsigned char magic[] = { 0x1b, 0x5e, 0x78, 0x3d };
	const unsigned char *named = memmem(bytes, size, "aadfa", 6), *set, *at;

	cr_assert(named);
	set = memmem(named, size - (size_t)(named - bytes), magic, sizeof magic);
	cr_assert(set);
	memset(ret, 0, sizeof *ret);
	ret->end = set + number_at(set + 8, 4);
	cr_assert(ret->end <= bytes + size);
	for (at = set + number_at(set + 4, 4); at + 12 <= ret->end;) {
		const uint32_t id = number_at(at, 2), width = number_at(at + 2, 2),
			       count = number_at(at + 8, 4);

		if (id == 0 || id > TABLE_NEXT)
			break;
		ret->tables[id] = at + 12;
		ret->widths[id] = (uint16_t)width;
		ret->counts[id] = count;
		at += 12 + (size_t)width * count;
		at += (8 - (size_t)(at - set) % 8) % 8;
	}
	cr_assert(ret->tables[TABLE_ACCEPT] && ret->tables[TABLE_BASE] && ret->tables[TABLE_NEXT]);
}

static uint32_t dfa_step(const struct dfa *dfa, uint32_t state, unsigned char byte)
{
	const uint32_t input = dfa->tables[TABLE_CLASS] ? cell(dfa, TABLE_CLASS, byte) : byte;

	for (;;) {
		const uint32_t base = cell(dfa, TABLE_BASE, state);
		const uint32_t at = (base & 0xffffff) + input;

		if (cell(dfa, TABLE_CHECK, at) == state)
			return cell(dfa, TABLE_NEXT, at);
		state = cell(dfa, TABLE_DEFAULT, state);
		if (!(base & 0x80000000))
			return state;
	}
}

static uint32_t dfa_allows(const struct dfa *dfa, const char *path)
{
	uint32_t state = 1, owned;

	for (; *path; path++)
		state = dfa_step(dfa, state, (unsigned char)*path);
	owned = cell(dfa, TABLE_ACCEPT, state);
	return owned & owned >> OTHERS & (MAY_RUN | MAY_WRITE | MAY_READ | MAY_MAP);
}

/* ---- profiles ---- */

struct compiled {
	struct profile profile;
	unsigned char *bytes;
	size_t size;
	struct dfa files;
};

static void profile_compile(const struct profile_scope *scope, const struct guard_policy *policy,
			    struct compiled *ret)
{
	auto_close int fd = -1;
	struct stat st;
	char why[512];
	int r;

	memset(ret, 0, sizeof *ret);
	cr_assert_eq(profile_write(scope, policy, &ret->profile), 0);
	if (!ret->profile.text)
		return;
	r = apparmor_compile(ret->profile.text, ret->profile.bytes, why, sizeof why, &fd);
	cr_assert_eq(r, 0, "%s: %s: %s\n%s", policy->name, strerror(-r), why, ret->profile.text);
	cr_assert_eq(fstat(fd, &st), 0);
	ret->size = (size_t)st.st_size;
	ret->bytes = mmap(NULL, ret->size, PROT_READ, MAP_PRIVATE, fd, 0);
	cr_assert(ret->bytes != MAP_FAILED);
	dfa_read(ret->bytes, ret->size, &ret->files);
}

static void compiled_free(struct compiled *c)
{
	if (c->bytes)
		(void)munmap(c->bytes, c->size); /* of this test */
	free(c->profile.text);
}

static bool is_refused_anyway(const struct guard_rule *rule)
{
	return rule->kind == GUARD_RULE_FAMILY && rule->value == AF_VSOCK;
}

static void rule_is_denied(const struct compiled *c, const struct guard_rule *rule)
{
	char below[GUARD_RULE_TEXT_MAX + 8];
	uint32_t allowed, other;

	(void)snprintf(below, sizeof below, "%s/below", rule->text);
	allowed = dfa_allows(&c->files, below) & dfa_allows(&c->files, rule->text);
	(void)snprintf(below, sizeof below, "%s-beside", rule->text);
	other = dfa_allows(&c->files, below);
	cr_expect(other == (MAY_RUN | MAY_WRITE | MAY_READ | MAY_MAP), "%s: %x", below, other);
	if (rule->bits & (GUARD_FILE_WRITE | GUARD_FILE_REPLACE))
		cr_expect((allowed & MAY_WRITE) == 0, "%s: %x", rule->text, allowed);
	if (rule->bits & GUARD_FILE_EXECUTE)
		cr_expect((allowed & (MAY_RUN | MAY_MAP)) == 0, "%s: %x", rule->text, allowed);
	else if (!(rule->bits & GUARD_FILE_HIDE))
		cr_expect(allowed & MAY_READ && allowed & MAY_RUN, "%s: %x", rule->text, allowed);
	if (rule->bits & GUARD_FILE_HIDE)
		cr_expect(allowed == 0, "%s: %x", rule->text, allowed);
	(void)snprintf(below, sizeof below, "%s/",
		       rule->text); /* a folder is listed, or its cover */
	cr_expect(dfa_allows(&c->files, below) & MAY_READ, "%s", below);
}

Test(apparmor, ready_made_policies_compile_to_what_their_rules_say)
{
	struct policy_table table = { 0 };
	struct policy_mistake mistake;
	unsigned files = 0, profiles = 0;

	cr_assert(policies_open(&table, &mistake) == 0);
	for (unsigned i = 0; i < POLICIES_READY; i++) {
		const struct guard_policy *policy = &table.ready[i]->guard;
		struct compiled c;

		profile_compile(&alone, policy, &c);
		cr_expect_eq(policy->rule_count == 0, c.profile.text == NULL, "%s", policy->name);
		profiles += c.profile.text != NULL;
		for (uint32_t n = 0; n < policy->rule_count; n++) {
			const struct guard_rule *rule = &policy->rules[n];

			if (!profile_holds(&alone, policy, n) || rule->kind != GUARD_RULE_FILE)
				continue;
			rule_is_denied(&c, rule);
			files++;
		}
		compiled_free(&c);
	}
	cr_expect(files > 0 && profiles > 1);
	policies_close(&table);
}

/* What a parser might read something into. */
static const char *const named[] = {
	"/a*",		 "/a?",	   "/[a-z]",	"/{a,b}",  "/a{,/**}",	"/**",
	"/@{HOME}",	 "/\"",	   "/a\" rwx,", "/a\nb",   "/#",	"/a b ",
	"/\\",		 "/\\\\*", "/^",	"/a\\052", "/.a",	"/a -> /b",
	"/$(id)",	 "/...",   "/(a|b)+",	"/a,",	   "/\xff\xfe", "/\xc3(",
	"/profile x {}", "/a//b/", "/}",	"/%s",
};

enum { NAMED = COUNT(named), BYTES = 255, HOSTILE = NAMED + BYTES };

/* Those, then each byte that a name can have. */
static void hostile_path(unsigned at, char *ret, size_t bytes)
{
	const int byte = (int)(at - NAMED + 1);

	if (at < NAMED)
		(void)snprintf(ret, bytes, "%s", named[at]);
	else
		(void)snprintf(ret, bytes, byte == '/' ? "/by/te" : "/byte-%c-x%c", byte, byte);
}

/* As the kernel has it: one slash between two names, none at the end. */
static void path_clean(const char *path, char *ret)
{
	char *end = ret;

	for (; *path; path++)
		if (*path != '/' || end == ret || end[-1] != '/')
			*end++ = *path;
	if (end > ret + 1 && end[-1] == '/')
		end--;
	*end = 0;
}

Test(apparmor, every_byte_of_a_path_means_itself)
{
	enum { AT_A_TIME = 100 };
	static struct guard_rule rules[AT_A_TIME];
	static char paths[AT_A_TIME][64];

	for (unsigned first = 0; first < HOSTILE; first += AT_A_TIME) {
		struct guard_policy policy = { .number = 1, .rules = rules, .name = "hostile" };
		struct compiled c;

		for (unsigned i = first; i < HOSTILE && i < first + AT_A_TIME; i++) {
			hostile_path(i, paths[i - first], sizeof paths[0]);
			rules[policy.rule_count++] = (struct guard_rule){
				.kind = GUARD_RULE_FILE,
				.bits = GUARD_FILE_WRITE | GUARD_FILE_SUBTREE,
				.text = paths[i - first],
			};
		}
		profile_compile(&alone, &policy, &c);
		for (uint32_t n = 0; n < policy.rule_count; n++) {
			char path[80];

			cr_assert(profile_holds(&alone, &policy, n), "%s", paths[n]);
			path_clean(paths[n], path);
			cr_expect((dfa_allows(&c.files, path) & MAY_WRITE) == 0, "%s", path);
			(void)strcat(path, "/below");
			cr_expect((dfa_allows(&c.files, path) & MAY_WRITE) == 0, "%s", path);
		}
		/* What a glob, an alternation, a variable would have matched. */
		for (unsigned i = 0; i < 6; i++) {
			static const char *const others[] = { "/ab",   "/b", "/az/x",
							      "/root", "/q", "/byte-" };

			cr_expect(dfa_allows(&c.files, others[i]) & MAY_WRITE, "%s", others[i]);
		}
		compiled_free(&c);
	}
}

/* With LSM programs behind it a profile keeps out of their way, or nobody would be told. */
Test(apparmor, what_lsm_programs_tell_of_is_left_to_them)
{
	static const struct guard_rule rules[] = {
		{ .kind = GUARD_RULE_FILE, .bits = GUARD_FILE_WRITE, .text = "/kept" },
		{ .kind = GUARD_RULE_FILE, .bits = GUARD_FILE_HIDE, .text = "/hidden" },
		{ .kind = GUARD_RULE_FAMILY, .value = AF_INET6 },
		{ .kind = GUARD_RULE_FAMILY, .value = AF_VSOCK },
		{ .kind = GUARD_RULE_FILE,
		  .bits = GUARD_FILE_WRITE,
		  .text = "/a",
		  .is_audit = true },
		{ .kind = GUARD_RULE_FILE, .bits = GUARD_FILE_METADATA, .text = "/mode" },
		{ .kind = GUARD_RULE_FILE, .bits = GUARD_FILE_WRITE, .text = "/a/../b" },
		{ .kind = GUARD_RULE_IOCTL, .value = 0x586d },
		{ .kind = GUARD_RULE_FAMILY, .value = AF_UNIX },
		{ .kind = GUARD_RULE_FAMILY, .value = 4000 },
		{ .kind = GUARD_RULE_PROCESS, .value = GUARD_PROCESS_PTRACE },
	};
	static const bool held[2][COUNT(rules)] = {
		{ true, true, true, true, [10] = true },
		{ false, true, false, true },
	};
	const struct guard_policy policy = { .rules = rules, .rule_count = COUNT(rules) };

	for (unsigned tells = 0; tells < 2; tells++) {
		const struct profile_scope scope = { "unit", tells, is_refused_anyway };

		for (uint32_t i = 0; i < COUNT(rules); i++)
			cr_expect_eq(profile_holds(&scope, &policy, i), held[tells][i], "%u %u",
				     tells, i);
	}
}

Test(apparmor, a_profile_grows_no_further_than_its_bound)
{
	static char texts[GUARD_POLICY_RULES_MAX][GUARD_RULE_TEXT_MAX + 1];
	static struct guard_rule rules[GUARD_POLICY_RULES_MAX];
	const struct guard_policy policy = { .rule_count = GUARD_POLICY_RULES_MAX, .rules = rules };
	struct compiled c;
	uint32_t held = 0;

	for (uint32_t i = 0; i < GUARD_POLICY_RULES_MAX; i++) {
		memset(texts[i], 'x', 200);
		(void)snprintf(texts[i], sizeof texts[i], "/%x", i * 2654435761u);
		texts[i][strlen(texts[i])] = '/'; /* and the rest of it */
		rules[i] = (struct guard_rule){ .kind = GUARD_RULE_FILE,
						.bits = GUARD_FILE_WRITE | GUARD_FILE_SUBTREE,
						.text = texts[i] };
	}
	while (held < policy.rule_count && profile_holds(&alone, &policy, held))
		held++;
	cr_expect(held > 10 && held < 100, "%u", held);
	for (uint32_t i = held; i < policy.rule_count; i++)
		cr_expect(!profile_holds(&alone, &policy, i));
	profile_compile(&alone, &policy, &c);
	compiled_free(&c);
}

Test(apparmor, a_version_has_a_name_of_its_own_and_a_wrong_text_is_told)
{
	static const struct guard_rule rule = { .kind = GUARD_RULE_FILE,
						.bits = GUARD_FILE_WRITE,
						.text = "/kept" };
	struct guard_policy policy = { .number = 1, .rule_count = 1, .rules = &rule };
	struct profile one, other;
	char why[256];
	int fd = -1;

	cr_assert_eq(profile_write(&alone, &policy, &one), 0);
	policy.number = 2;
	cr_assert_eq(profile_write(&alone, &policy, &other), 0);
	cr_expect_str_neq(one.name, other.name);
	cr_expect(profile_name_is_of(one.name, "unit"));
	cr_expect(!profile_name_is_of(one.name, "uni") && !profile_name_is_of(one.name, "unit-"));
	cr_expect(!profile_name_is_of("dsec-unit", "unit") && !profile_name_is_of("unit", "unit"));
	cr_expect_eq(apparmor_compile("profile x {", 11, why, sizeof why, &fd), -EINVAL);
	cr_expect(*why && fd == -1);
	free(one.text);
	free(other.text);
}
