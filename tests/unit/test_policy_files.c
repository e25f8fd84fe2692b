/*
 * Policies in files: what an engine loaded is what the next one finds, under the same number, and
 * what is no policy any more is left where it is.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "engine/policy/policy_files.h"

/* What a power cut would leave: what was synced, and nothing that came after. */
static struct {
	ino_t file;  /* the one that is on the disk, */
	off_t bytes; /* with so many bytes */
	bool has_names, fails;
} disk;

/* In place of libc's, for the files that are tested. */
int fsync(int fd)
{
	struct stat st;

	cr_assert_eq(fstat(fd, &st), 0);
	if (disk.fails) {
		errno = EIO;
		return -1;
	}
	if (S_ISDIR(st.st_mode)) {
		disk.has_names = true;
	} else {
		disk.file = st.st_ino;
		disk.bytes = st.st_size;
	}
	return 0;
}

int renameat(int from_fd, const char *from, int to_fd, const char *to)
{
	struct stat st;

	cr_assert_eq(fstatat(from_fd, from, &st, AT_SYMLINK_NOFOLLOW), 0);
	cr_expect(st.st_ino == disk.file && st.st_size == disk.bytes,
		  "%s has its name before its bytes are on the disk", to);
	disk.has_names = false;
	return (int)syscall(SYS_renameat2, from_fd, from, to_fd, to, 0);
}

int unlinkat(int fd, const char *name, int flags)
{
	disk.has_names = false;
	return (int)syscall(SYS_unlinkat, fd, name, flags);
}

static const char *const tenants[] = { "default", "team" };
static char state[64];
static struct policy_files files;
static struct policy_table table;

static uint32_t no_level(const struct policy_enforcer *e, const struct guard_policy *policy,
			 uint32_t at)
{
	(void)e;
	(void)policy;
	(void)at;
	return 0;
}

/* What sandboxes get may be named by the policy's number. */
static int walls_new(const struct policy_enforcer *e, const struct guard_policy *policy,
		     struct backend_walls **ret)
{
	(void)e;
	cr_expect_gt(policy->number, 0, "%s is armed before it has a number", policy->name);
	*ret = NULL;
	return 0;
}

static const struct policy_enforcer enforcer = { .rule_levels = no_level, .walls_new = walls_new };

static void table_open(void)
{
	struct policy_mistake mistake;

	table = (struct policy_table){ .enforcer = &enforcer, .store = &files.store };
	cr_assert_eq(policies_open(&table, &mistake), 0);
}

static void setup(void)
{
	strcpy(state, "/tmp/dsec-policies-XXXXXX");
	cr_assert(mkdtemp(state));
	files = (struct policy_files){
		.state = state, .instance = "one", .tenants = tenants, .tenant_count = 2
	};
	policy_files_init(&files);
	table_open();
}

static void teardown(void)
{
	char path[128];

	policies_close(&table);
	(void)policy_files_forget(&files);
	(void)snprintf(path, sizeof path, "%s/one", state);
	cr_expect(access(path, F_OK) < 0, "%s stays", path);
	(void)rmdir(state);
}

TestSuite(policy_files, .init = setup, .fini = teardown);

static int load(uint32_t tenant, const char *text)
{
	const struct policy_request request = {
		.tenant = tenant, .name = "", .document = text, .document_bytes = strlen(text)
	};
	struct policy_mistake mistake = { 0 };
	struct policy *policy;
	int r = policies_load(&table, &request, &policy, &mistake);

	if (r == 0)
		policy_put(policy);
	return r;
}

static int remove_it(uint32_t tenant, const char *name)
{
	return policies_remove(&table, &(struct policy_request){ .tenant = tenant, .name = name });
}

static uint32_t number_of(uint32_t tenant, const char *name)
{
	const struct policy *policy = policies_find(&table, tenant, name);

	return policy ? policy->guard.number : 0;
}

/* Another engine; how many came back. */
static uint32_t again(void)
{
	policies_close(&table);
	table_open();
	return policy_files_restore(&files, &table, 5);
}

static void file_path(const char *name, char ret[static 128])
{
	(void)snprintf(ret, 128, "%s/one/policy.%s", state, name);
}

static void file_write(const char *name, const char *text)
{
	char path[128];
	FILE *file;

	file_path(name, path);
	file = fopen(path, "we");
	cr_assert(file);
	cr_assert_geq(fputs(text, file), 0);
	cr_assert_eq(fclose(file), 0);
}

Test(policy_files, each_tenants_come_back_under_their_numbers_and_what_went_does_not)
{
	uint32_t a, b, last;

	cr_assert_eq(again(), 0);
	cr_assert_eq(load(0, "name: a\n"), 0);
	cr_assert_eq(load(0, "name: gone\n"), 0);
	cr_assert_eq(load(1, "name: a\nextends: no-network\n"), 0);
	cr_assert_eq(load(0, "name: a\nfiles: {hide: [/x]}\n"), 0);
	cr_assert_eq(remove_it(0, "gone"), 0);
	a = number_of(0, "a");
	b = number_of(1, "a");
	cr_assert_eq(again(), 2);
	cr_expect_eq(number_of(0, "a"), a);
	cr_expect_eq(number_of(1, "a"), b);
	cr_expect_eq(number_of(0, "gone"), 0);
	cr_expect_eq(policies_find(&table, 0, "a")->guard.rule_count, 1);
	cr_expect_gt(policies_find(&table, 1, "a")->guard.rule_count, 1);
	/* A number is never given twice. */
	last = a > b ? a : b;
	cr_assert_eq(load(0, "name: fresh\n"), 0);
	cr_expect_gt(number_of(0, "fresh"), last);
}

Test(policy_files, what_extends_comes_back_with_what_that_says_by_now)
{
	uint32_t child;

	cr_assert_eq(load(0, "name: base\n"), 0);
	cr_assert_eq(load(0, "name: child\nextends: base\n"), 0);
	child = number_of(0, "child");
	cr_assert_eq(load(0, "name: base\nfiles: {hide: [/x, /y]}\nphases: {judge: child}\n"), 0);
	cr_assert_eq(again(), 2);
	cr_expect_eq(number_of(0, "child"), child);
	cr_expect_eq(policies_find(&table, 0, "child")->guard.rule_count, 2);
	cr_assert_eq(remove_it(0, "base"), 0);
	cr_expect_eq(again(), 0); /* and it stays where it is */
	cr_assert_eq(load(0, "name: base\n"), 0);
	cr_expect_eq(again(), 2);
}

Test(policy_files, what_is_no_policy_is_passed_over_and_left_where_it_is)
{
	static const char *const names[] = { "default.cut",  "default.other", "default.wrong",
					     "stranger.a",   "default.link",  "default.long",
					     "default.name", "default.fifo" };
	char path[128];

	cr_assert_eq(load(0, "name: good\n"), 0);
	file_write(names[0], "dsec-policy 9 100\nname: cut\n");
	file_write(names[1], "name: other\n");
	file_write(names[2], "dsec-policy 9 12\nname: wrong!\n");
	file_write(names[3], "dsec-policy 9 8\nname: a\n");
	file_path(names[4], path);
	cr_assert_eq(symlink("/etc/passwd", path), 0);
	file_write(names[5], "dsec-policy 99999999999999999999 8\nname: a\n");
	file_write(names[6], "dsec-policy 9 8\nname: a\n"); /* of another name */
	file_path(names[7], path);
	cr_assert_eq(mkfifo(path, 0600), 0);
	cr_expect_eq(again(), 1);
	cr_expect_gt(number_of(0, "good"), 0);
	for (unsigned i = 0; i < sizeof names / sizeof *names; i++) {
		struct stat st;

		file_path(names[i], path);
		cr_expect_eq(lstat(path, &st), 0, "%s went", path);
	}
}

Test(policy_files, a_tenants_limit_holds_for_what_comes_back_too)
{
	char text[64];

	for (int i = 0; i < POLICIES_OWN_MAX; i++) {
		(void)snprintf(text, sizeof text, "name: p%d\n", i);
		cr_assert_eq(load(0, text), 0);
	}
	cr_expect_eq(load(0, "name: more\n"), -ENOSPC);
	file_write("default.more", "dsec-policy 900 11\nname: more\n");
	cr_expect_eq(again(), POLICIES_OWN_MAX);
	cr_expect_eq(load(0, "name: still\n"), -ENOSPC);
	cr_expect_eq(load(1, "name: still\n"), 0);
}

Test(policy_files, what_cannot_be_kept_is_not_loaded_and_what_stays_is_not_removed)
{
	char path[128];

	(void)snprintf(path, sizeof path, "%s/one", state);
	close(open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600)); /* in the folder's place */
	cr_expect_eq(load(0, "name: a\n"), -EIO);
	cr_expect_eq(number_of(0, "a"), 0);
	cr_assert_eq(unlink(path), 0);
	cr_assert_eq(load(0, "name: a\n"), 0);
	files.state = "/proc/self/fd/nowhere";
	cr_expect_eq(load(0, "name: a\nfiles: {hide: [/x]}\n"), -EIO);
	cr_expect_eq(policies_find(&table, 0, "a")->guard.rule_count, 0);
	files.state = state;
	file_path("default.a", path);
	cr_assert_eq(unlink(path), 0);
	cr_assert_eq(mkdir(path, 0700), 0);
	cr_expect_eq(remove_it(0, "a"), -EIO);
	cr_expect_gt(number_of(0, "a"), 0);
	cr_assert_eq(rmdir(path), 0);
}

Test(policy_files, what_was_told_to_be_kept_is_on_the_disk_and_a_cut_leaves_the_old)
{
	uint32_t number;

	cr_assert_eq(load(0, "name: a\n"), 0);
	cr_expect(disk.has_names);
	number = number_of(0, "a");
	/* The bytes do not get there: the old one is what the next engine finds. */
	disk.fails = true;
	cr_expect_eq(load(0, "name: a\nfiles: {hide: [/x]}\n"), -EIO);
	cr_expect_eq(number_of(0, "a"), number);
	disk.fails = false;
	cr_assert_eq(again(), 1);
	cr_expect_eq(policies_find(&table, 0, "a")->guard.rule_count, 0);
	cr_expect_eq(number_of(0, "a"), number);
	disk.fails = true;
	cr_expect_eq(remove_it(0, "a"), -EIO);
	cr_expect_eq(number_of(0, "a"), number);
	disk.fails = false;
	cr_assert_eq(remove_it(0, "a"), 0);
	cr_expect(disk.has_names);
	cr_expect_eq(number_of(0, "a"), 0);
}
