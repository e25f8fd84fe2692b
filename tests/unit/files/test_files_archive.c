/* Archives into a scratch folder: what an attacker writes into one. Case E28. */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#include "engine/base/cleanup.h"
#include "tests/unit/files/run.h"
#include "tests/unit/files/tar_make.h"

#define ADD(...) tar_add(&tar, &(struct tar_entry){ __VA_ARGS__ })
#define SAYS(script, text)                                                                         \
	do {                                                                                       \
		auto_free char *said_ = scratch_says(&s, script);                                  \
		cr_assert_str_eq(said_, text);                                                     \
	} while (0)

static struct answered tar_put(const struct scratch *s, const struct tar *tar, uint32_t flags)
{
	return files_ask(s, &(struct asked){ .verb = DSEC_FILE_WRITE,
					     .flags = DSEC_FILE_TAR | flags,
					     .path = "t",
					     .input = tar->bytes,
					     .input_bytes = tar->count });
}

/* One entry is left out by name with this reason; one before and one after it are there. */
static void expect_left_out(const struct tar_entry *entry, uint32_t reason, const char *name)
{
	struct scratch s;
	struct tar tar = { 0 };
	const struct guest_row *row;

	scratch_make(&s);
	scratch_sh(&s, "mkdir t; ln -s ../../outside t/out; ln -s inner t/in; mkdir t/inner");
	ADD(.name = "before", .content = "1");
	tar_add(&tar, entry);
	ADD(.name = "after", .content = "2");
	tar_end(&tar);
	auto_answered struct answered a = tar_put(&s, &tar, 0);

	row = answered_row(&a, name);
	cr_assert(a.answered && !a.done.error, "%s: error %u step %u", name, a.done.error,
		  a.done.step);
	cr_assert(row, "%s", name);
	cr_assert_eq(row->reason, reason, "%s: %u", name, row->reason);
	cr_assert_eq(a.done.left_out, 1);
	SAYS("cat t/before t/after; ls -A t t/inner",
	     "12t:\nafter\nbefore\nin\ninner\nout\n\nt/inner:\n");
	tar_done(&tar);
	scratch_end(&s);
}

Test(files_archive, names_that_lead_out_are_left_out)
{
	static const char *const names[] = { "../evil", "a/../../evil", "/evil",
					     "..",	"./../evil",	"a/.." };

	for (unsigned i = 0; i < sizeof names / sizeof *names; i++)
		expect_left_out(&(struct tar_entry){ .name = names[i], .content = "evil" },
				DSEC_FILE_REASON_OUTSIDE, names[i]);
}

Test(files_archive, nothing_is_written_through_a_link)
{
	expect_left_out(&(struct tar_entry){ .name = "out/evil", .content = "evil" },
			DSEC_FILE_REASON_LINK, "out/evil");
	expect_left_out(&(struct tar_entry){ .name = "in/evil", .content = "evil" },
			DSEC_FILE_REASON_LINK, "in/evil");
	expect_left_out(&(struct tar_entry){ .name = "out/", .type = '5' }, DSEC_FILE_REASON_LINK,
			"out/");
}

Test(files_archive, hard_links_to_outside_are_left_out)
{
	static const char *const targets[] = { "../../outside/file", "/etc/passwd", "../x", ".." };

	for (unsigned i = 0; i < sizeof targets / sizeof *targets; i++)
		expect_left_out(
			&(struct tar_entry){ .name = "hard", .type = '1', .link = targets[i] },
			DSEC_FILE_REASON_OUTSIDE, "hard");
	expect_left_out(&(struct tar_entry){ .name = "hard", .type = '1', .link = "out/file" },
			DSEC_FILE_REASON_FAILED, "hard");
	expect_left_out(&(struct tar_entry){ .name = "hard", .type = '1', .link = "out" },
			DSEC_FILE_REASON_FAILED, "hard");
}

Test(files_archive, what_is_no_file_folder_or_link_is_left_out)
{
	static const char types[] = { '3', '4', '6' };

	for (unsigned i = 0; i < sizeof types; i++)
		expect_left_out(&(struct tar_entry){ .name = "special", .type = types[i] },
				DSEC_FILE_REASON_SPECIAL, "special");
}

Test(files_archive, a_link_and_then_a_file_through_it_stays_inside)
{
	struct scratch s;
	struct tar tar = { 0 };

	scratch_make(&s);
	scratch_sh(&s, "mkdir t");
	ADD(.name = "l", .type = '2', .link = "../../outside");
	ADD(.name = "l/evil", .content = "evil");
	ADD(.name = "m", .type = '2', .link = "../../outside/file");
	ADD(.name = "m", .content = "replaces the link");
	ADD(.name = "n", .type = '2', .link = "/");
	ADD(.name = "n/tmp/evil", .content = "evil");
	tar_end(&tar);
	auto_answered struct answered a = tar_put(&s, &tar, 0);

	cr_assert(a.answered && !a.done.error && a.done.left_out == 2);
	cr_assert(answered_row(&a, "l/evil") && answered_row(&a, "n/tmp/evil"));
	SAYS("cat t/m; readlink t/l; ls -A t", "replaces the link../../outside\nl\nm\nn\n");
	tar_done(&tar);
	scratch_end(&s);
}

Test(files_archive, setuid_setgid_and_sticky_are_taken_off_and_said)
{
	struct scratch s;
	struct tar tar = { 0 };

	scratch_make(&s);
	scratch_sh(&s, "mkdir t");
	ADD(.name = "su", .mode = 06755, .content = "x");
	ADD(.name = "d", .type = '5', .mode = 03777);
	tar_end(&tar);
	auto_answered struct answered a = tar_put(&s, &tar, 0);

	cr_assert(a.answered && !a.done.error && a.done.left_out == 0 && a.row_count == 2);
	cr_assert_eq(a.rows[0].reason, DSEC_FILE_REASON_BITS);
	SAYS("stat -c '%n %a' t/su t/d", "t/su 755\nt/d 777\n");
	tar_done(&tar);
	scratch_end(&s);
}

Test(files_archive, the_later_of_two_with_one_name_counts_and_names_are_no_options)
{
	struct scratch s;
	struct tar tar = { 0 };

	scratch_make(&s);
	scratch_sh(&s, "mkdir t");
	ADD(.name = "--checkpoint-action=exec=evil", .content = "a");
	ADD(.name = "twice", .content = "first");
	ADD(.name = "twice", .content = "second");
	ADD(.name = "./twice", .content = "third");
	ADD(.name = "a/b/c", .content = "deep"); /* folders nobody named */
	ADD(.name = "hard", .type = '1', .link = "twice");
	tar_end(&tar);
	auto_answered struct answered a = tar_put(&s, &tar, 0);

	cr_assert(a.answered && !a.done.error && !a.done.left_out && a.done.entries == 6);
	SAYS("cat t/--checkpoint-action=exec=evil t/twice t/a/b/c t/hard; ls -A t",
	     "athirddeepthird--checkpoint-action=exec=evil\na\nhard\ntwice\n");
	tar_done(&tar);
	scratch_end(&s);
}

Test(files_archive, records_that_override_are_checked_as_what_they_override)
{
	static const char *const rows[][2] = {
		{ "path", "../evil" },
		{ "path", "/evil" },
	};
	struct scratch s;
	struct tar tar = { 0 };

	scratch_make(&s);
	scratch_sh(&s, "mkdir t");
	for (unsigned i = 0; i < 2; i++) {
		tar_pax(&tar, rows[i][0], rows[i][1]);
		ADD(.name = "innocent", .content = "evil");
	}
	tar_pax(&tar, "linkpath", "../../outside/file");
	ADD(.name = "hard", .type = '1', .link = "innocent");
	tar_pax(&tar, "path", "renamed\n\033[31m\377");
	ADD(.name = "x", .content = "y");
	tar_end(&tar);
	auto_answered struct answered a = tar_put(&s, &tar, 0);

	cr_assert(a.answered && !a.done.error && a.done.left_out == 3, "%u %u", a.done.error,
		  (unsigned)a.done.left_out);
	SAYS("cat t/renamed*; ls -A t | wc -l", "y2\n"); /* the name has a newline */
	tar_done(&tar);
	scratch_end(&s);
}

Test(files_archive, sizes_that_lie_are_an_error_and_leave_nothing)
{
	static const uint64_t sizes[] = { 1ull << 33, 1ull << 40, 1ull << 62, 5000 };

	for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++) {
		struct scratch s;
		struct tar tar = { 0 };

		scratch_make(&s);
		scratch_sh(&s, "mkdir t");
		ADD(.name = "good", .content = "g");
		ADD(.name = "liar", .content = "short", .size = sizes[i]);
		auto_answered struct answered a = tar_put(&s, &tar, 0);

		cr_assert(a.answered && a.done.error == EBADMSG, "%u", a.done.error);
		SAYS("ls -A t", "good\n");
		tar_done(&tar);
		scratch_end(&s);
	}
}

Test(files_archive, larger_than_bytes_max_is_left_out_or_ends_it)
{
	struct scratch s;
	struct tar tar = { 0 };

	scratch_make(&s);
	scratch_sh(&s, "mkdir t");
	ADD(.name = "large", .content = "0123456789");
	ADD(.name = "one", .content = "12345");
	ADD(.name = "two", .content = "12345");
	tar_end(&tar);
	auto_answered struct answered a = files_ask(&s, &(struct asked){ .verb = DSEC_FILE_WRITE,
									 .flags = DSEC_FILE_TAR,
									 .path = "t",
									 .input = tar.bytes,
									 .input_bytes = tar.count,
									 .bytes_max = 9 });

	cr_assert(a.answered && a.done.error == EFBIG);
	cr_assert(answered_row(&a, "large"));
	SAYS("ls -A t", "one\n");
	tar_done(&tar);
	scratch_end(&s);
}

Test(files_archive, what_is_no_archive_is_said)
{
	static const char *const texts[] = { "", "x",
					     "no archive at all, and longer than a little" };

	for (unsigned i = 0; i < 3; i++) {
		struct scratch s;
		struct tar tar = { (char *)texts[i], strlen(texts[i]) };

		scratch_make(&s);
		scratch_sh(&s, "mkdir t");
		auto_answered struct answered a = tar_put(&s, &tar, 0);

		cr_assert(a.answered && a.done.error == EBADMSG, "%u: %u", i, a.done.error);
		SAYS("ls -A t", "");
		scratch_end(&s);
	}
}

Test(files_archive, folders_get_their_modes_and_times_at_the_end)
{
	struct scratch s;
	struct tar tar = { 0 };

	scratch_make(&s);
	ADD(.name = "d", .type = '5', .mode = 0555);
	ADD(.name = "d/f", .mode = 0400, .content = "x");
	tar_end(&tar);
	auto_answered struct answered absent = tar_put(&s, &tar, 0);
	auto_answered struct answered a = tar_put(&s, &tar, DSEC_FILE_PARENTS);

	cr_assert_eq(absent.done.error, ENOENT);
	cr_assert(a.answered && !a.done.error && !a.done.left_out);
	SAYS("stat -c '%a %Y' t/d t/d/f", "555 1000000000\n400 1000000000\n");
	tar_done(&tar);
	scratch_end(&s);
}

/* Of files below "from", made again below "to" out of one archive. */
static void tree_copy(const struct scratch *s, uint64_t entries)
{
	auto_answered struct answered out = files_ask(s, &(struct asked){ .verb = DSEC_FILE_READ,
									  .flags = DSEC_FILE_TAR,
									  .path = "from" });
	auto_answered struct answered in =
		files_ask(s, &(struct asked){ .verb = DSEC_FILE_WRITE,
					      .flags = DSEC_FILE_TAR | DSEC_FILE_PARENTS,
					      .path = "to",
					      .input = out.output,
					      .input_bytes = out.output_bytes });

	cr_assert(out.answered && !out.done.error && !out.row_count);
	cr_assert(in.answered && !in.done.error && !in.row_count, "%u rows", in.row_count);
	cr_assert_eq(out.done.entries, entries);
	cr_assert_eq(in.done.entries, entries);
}

Test(files_archive, names_of_one_file_stay_one_file)
{
	struct scratch s;

	scratch_make(&s);
	/* The last has names outside of the tree only: a file of its own there. */
	scratch_sh(&s, "mkdir -p from/d; printf content >from/a; ln from/a from/d/b; "
		       "ln from/a from/c; printf other >x; ln x from/x; printf alone >from/y");
	tree_copy(&s, 7);
	SAYS("cat to/a to/d/b to/c to/x to/y; cd to; stat -c '%n %h' a c d/b x y",
	     "contentcontentcontentotheralonea 3\nc 3\nd/b 3\nx 1\ny 1\n");
	SAYS("[ to/a -ef to/c ] && [ to/a -ef to/d/b ] && ! [ to/x -ef x ] && echo one", "one\n");
	scratch_end(&s);
}

static void attribute_is(const struct scratch *s, const char *name, const char *key, size_t bytes)
{
	static char value[8192];
	char path[128];

	(void)snprintf(path, sizeof path, "%s/root/%s", s->path, name);
	cr_assert_eq(getxattr(path, key, value, sizeof value), (ssize_t)bytes, "%s %s: %s", name,
		     key, strerror(errno));
	for (size_t i = 0; i < bytes; i++)
		cr_assert_eq(value[i], (char)i, "%s %s", name, key);
}

static void attribute_set(const struct scratch *s, const char *name, const char *key, size_t bytes)
{
	char path[128], value[2048];

	for (size_t i = 0; i < bytes; i++)
		value[i] = (char)i; /* every byte there is */
	(void)snprintf(path, sizeof path, "%s/root/%s", s->path, name);
	cr_assert_eq(setxattr(path, key, value, bytes, 0), 0, "%s", strerror(errno));
}

Test(files_archive, attributes_come_along_byte_for_byte)
{
	struct scratch s;

	scratch_make(&s);
	scratch_sh(&s, "mkdir -p from/d; touch from/f; ln from/f from/g; ln -s f from/l");
	attribute_set(&s, "from/f", "user.long", 2000);
	attribute_set(&s, "from/f", "user.empty", 0);
	attribute_set(&s, "from/f", "user.A.b/!~", 10);
	attribute_set(&s, "from/d", "user.folder", 300);
	attribute_set(&s, "from", "user.top", 7);
	tree_copy(&s, 5);
	for (int i = 0; i < 2; i++) {
		attribute_is(&s, i ? "to/g" : "to/f", "user.long", 2000);
		attribute_is(&s, i ? "to/g" : "to/f", "user.empty", 0);
		attribute_is(&s, i ? "to/g" : "to/f", "user.A.b/!~", 10);
	}
	attribute_is(&s, "to/d", "user.folder", 300);
	/* A name that a header would not carry as it is is told, and its folder is there. */
	attribute_set(&s, "from/d", "user.A=b", 1);
	auto_answered struct answered out = files_ask(&s, &(struct asked){ .verb = DSEC_FILE_READ,
									   .flags = DSEC_FILE_TAR,
									   .path = "from" });

	cr_assert(out.answered && !out.done.error && !out.done.left_out && out.row_count == 1);
	cr_assert(answered_row(&out, "d") && out.rows[0].reason == DSEC_FILE_REASON_ATTRIBUTES);
	cr_assert_eq(out.rows[0].error, EILSEQ);
	scratch_end(&s);
}

Test(files_archive, attributes_that_cannot_be_are_said_and_others_are_nobodys)
{
	struct scratch s;
	struct tar tar = { 0 };
	char path[128], value[16];

	scratch_make(&s);
	scratch_sh(&s, "mkdir t");
	tar_pax(&tar, "SCHILY.xattr.security.capability", "no capability");
	ADD(.name = "f", .content = "x");
	tar_pax(&tar, "SCHILY.xattr.trusted.overlay.opaque", "y");
	ADD(.name = "d", .type = '5', .mode = 0755);
	tar_pax(&tar, "SCHILY.xattr.security.selinux", "anything");
	ADD(.name = "g", .content = "y");
	tar_end(&tar);
	auto_answered struct answered a = tar_put(&s, &tar, 0);

	cr_assert(a.answered && !a.done.error && !a.done.left_out && a.done.entries == 3);
	cr_assert(a.row_count == 1 && answered_row(&a, "f"));
	cr_assert_eq(a.rows[0].reason, DSEC_FILE_REASON_ATTRIBUTES);
	cr_assert(a.rows[0].error == EINVAL || a.rows[0].error == EPERM);
	SAYS("cat t/f t/g", "xy");
	(void)snprintf(path, sizeof path, "%s/root/t/d", s.path);
	cr_assert_lt(getxattr(path, "trusted.overlay.opaque", value, sizeof value), 0);
	tar_done(&tar);
	scratch_end(&s);
}
