/* The file helper's verbs, natively on a scratch folder. */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/cleanup.h"
#include "tests/unit/files/run.h"

#define ASK(...) files_ask(&s, &(struct asked){ __VA_ARGS__ })
#define SAYS(script, text)                                                                         \
	do {                                                                                       \
		auto_free char *said_ = scratch_says(&s, script);                                  \
		cr_assert_str_eq(said_, text);                                                     \
	} while (0)

static struct answered write_of(const struct scratch *scratch, const char *path, const char *text)
{
	return files_ask(scratch, &(struct asked){ .verb = DSEC_FILE_WRITE,
						   .path = path,
						   .input = text,
						   .input_bytes = strlen(text) });
}

Test(files, a_write_is_whole_and_read_back)
{
	struct scratch s;

	scratch_make(&s);
	auto_answered struct answered w = write_of(&s, "/a", "text");
	auto_answered struct answered r = ASK(.verb = DSEC_FILE_READ, .path = "a");

	cr_assert(w.answered && !w.done.error && w.done.bytes == 4);
	cr_assert(r.answered && !r.done.error && r.output_bytes == 4);
	cr_assert_eq(memcmp(r.output, "text", 4), 0);
	SAYS("stat -c %a a; ls -A", "644\na\n");
	scratch_end(&s);
}

Test(files, a_write_that_nobody_commits_never_was)
{
	struct scratch s;

	scratch_make(&s);
	scratch_sh(&s, "printf old >old");
	auto_answered struct answered new = ASK(.verb = DSEC_FILE_WRITE, .path = "a",
						.input = "text", .input_bytes = 4,
						.uncommitted = true);
	auto_answered struct answered old = ASK(.verb = DSEC_FILE_WRITE, .path = "old",
						.input = "text", .input_bytes = 4,
						.uncommitted = true);
	auto_answered struct answered added = ASK(.verb = DSEC_FILE_WRITE, .path = "old",
						  .flags = DSEC_FILE_APPEND, .input = "text",
						  .input_bytes = 4, .uncommitted = true);

	cr_assert(!new.answered && !old.answered && !added.answered);
	SAYS("ls -A; cat old", "old\nold");
	scratch_end(&s);
}

Test(files, append_adds_and_makes)
{
	struct scratch s;

	scratch_make(&s);
	for (int i = 0; i < 3; i++) {
		auto_answered struct answered a = ASK(.verb = DSEC_FILE_WRITE, .path = "log",
						      .flags = DSEC_FILE_APPEND, .input = "ab",
						      .input_bytes = 2);

		cr_assert(a.answered && !a.done.error && a.done.bytes == 2);
	}
	SAYS("cat log; ls -A", "ababablog\n");
	scratch_end(&s);
}

/* Beside the root lies what nobody may touch: links of every kind lead there. */
Test(files, no_verb_leaves_the_root)
{
	static const char *const paths[] = { "leaf",
					     "middle/file",
					     "up/outside/file",
					     "../outside/file",
					     "a/../../outside/file",
					     "absolute",
					     "hop",
					     "deep/up/outside/file" };
	static const uint32_t verbs[] = { DSEC_FILE_READ, DSEC_FILE_WRITE, DSEC_FILE_REMOVE,
					  DSEC_FILE_MKDIR };
	struct scratch s;
	char script[512];

	scratch_make(&s);
	(void)snprintf(script, sizeof script,
		       "mkdir a deep; ln -s ../outside/file leaf; ln -s ../outside middle;"
		       "ln -s .. up; ln -s %s/outside/file absolute; ln -s middle/file hop;"
		       "ln -s ../.. deep/up",
		       s.path);
	scratch_sh(&s, script);
	for (unsigned v = 0; v < sizeof verbs / sizeof *verbs; v++)
		for (unsigned i = 0; i < sizeof paths / sizeof *paths; i++) {
			auto_answered struct answered a = ASK(.verb = verbs[v], .path = paths[i],
							      .input = "x", .input_bytes = 1);

			cr_assert(a.answered);
			cr_assert(!a.output_bytes, "%s", paths[i]);
		}
	scratch_end(&s);
}

Test(files, a_link_is_followed_inside_and_not_where_none_is_wanted)
{
	struct scratch s;

	scratch_make(&s);
	scratch_sh(&s, "mkdir d; printf x >d/f; ln -s /d/f abs; ln -s d/f rel; ln -s d/new fresh");
	static const char *const links[] = { "abs", "rel" };

	for (int i = 0; i < 2; i++) {
		auto_answered struct answered follow =
			ASK(.verb = DSEC_FILE_READ, .path = links[i]);
		auto_answered struct answered none =
			ASK(.verb = DSEC_FILE_READ, .path = links[i], .flags = DSEC_FILE_NO_LINKS);
		auto_answered struct answered leaf =
			ASK(.verb = DSEC_FILE_READ, .path = links[i], .flags = DSEC_FILE_NO_FOLLOW);
		auto_answered struct answered w = write_of(&s, links[i], "y");

		cr_assert(!follow.done.error && follow.output_bytes == 1);
		cr_assert_eq(none.done.error, ELOOP);
		cr_assert_eq(leaf.done.error, ELOOP);
		cr_assert_eq(w.done.error, 0);
	}
	auto_answered struct answered fresh = write_of(&s, "fresh", "z");

	cr_assert_eq(fresh.done.error, 0);
	SAYS("cat d/f d/new; readlink abs rel fresh", "yz/d/f\nd/f\nd/new\n");
	scratch_end(&s);
}

Test(files, a_list_goes_on_after_a_name)
{
	struct scratch s;

	scratch_make(&s);
	scratch_sh(&s, "touch c a e b d");
	auto_answered struct answered first = ASK(.verb = DSEC_FILE_LIST, .path = "/", .limit = 2);
	auto_answered struct answered rest =
		ASK(.verb = DSEC_FILE_LIST, .path = "/", .to = "b", .limit = 9);

	cr_assert(first.row_count == 2 && first.done.more && !strcmp(first.names[1], "b"));
	cr_assert(rest.row_count == 3 && !rest.done.more && !strcmp(rest.names[0], "c"));
	scratch_end(&s);
}

Test(files, removing_a_tree_spares_what_its_links_name)
{
	struct scratch s;

	scratch_make(&s);
	scratch_sh(&s, "mkdir -p t/a/b keep; touch t/a/b/f keep/k; ln -s ../keep t/l;"
		       "ln -s ../../outside t/o");
	auto_answered struct answered plain = ASK(.verb = DSEC_FILE_REMOVE, .path = "t");
	auto_answered struct answered tree =
		ASK(.verb = DSEC_FILE_REMOVE, .path = "t", .flags = DSEC_FILE_RECURSIVE);

	cr_assert_eq(plain.done.error, ENOTEMPTY);
	cr_assert(!tree.done.error && tree.done.entries == 6);
	SAYS("find . | sort", ".\n./keep\n./keep/k\n");
	scratch_end(&s);
}

Test(files, what_the_engine_did_not_ask_for_is_refused)
{
	struct scratch s;

	scratch_make(&s);
	auto_answered struct answered verb = ASK(.verb = 99, .path = "a");
	auto_answered struct answered empty = ASK(.verb = DSEC_FILE_READ, .path = "");
	auto_answered struct answered root =
		ASK(.verb = DSEC_FILE_REMOVE, .path = "/", .flags = DSEC_FILE_RECURSIVE);

	cr_assert_eq(verb.done.error, EOPNOTSUPP);
	cr_assert_eq(empty.done.error, ENOENT);
	cr_assert_eq(root.done.error, EBUSY);
	scratch_end(&s);
}
