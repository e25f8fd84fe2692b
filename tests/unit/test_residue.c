/* Rules of residue: what globs match, what a selection is, and that the documentation has them. */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/store/residue.h"

Test(residue, a_glob_matches_whole_paths_only)
{
	static const struct {
		const char *glob, *path;
		bool is_directory, matches;
	} rows[] = {
		{ "/a", "/a", false, true },
		{ "/a", "/ab", false, false },
		{ "/a", "/a/b", false, false },
		{ "/*", "/a/b", false, false },
		{ "/a*c", "/abbc", false, true },
		{ "/a*c*", "/abcbd", false, true },
		{ "/?", "/", false, false },
		{ "/?b", "/ab", false, true },
		{ "/**/x", "/x", false, true },
		{ "/**/x", "/a/b/x", false, true },
		{ "/**/x", "/a/b/xx", false, false },
		{ "/**/x", "/a/x/b", false, false },
		{ "/**/.git/logs", "/w/.git/logs", true, true },
		{ "/**/.git/logs", "/w/.git/x/logs", true, false },
		{ "/**/.git/**/logs", "/w/.git/x/y/logs", true, true },
		{ "/**/a/b", "/a/a/b", false, true },
		{ "/**/a/**/b", "/a/b/a/c", false, false },
		{ "/v/**", "/v/x", false, true },
		{ "/v/**", "/v/x/y", false, true },
		{ "/v/**", "/v/x", true, false },
		{ "/v/**", "/v", true, false },
		{ "/v/**", "/v", false, false },
		{ "/**/*.pyc", "/a/.pyc", false, true },
		{ "/**/*~", "/a/b~", false, true },
	};

	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
		cr_expect_eq(residue_glob_matches(rows[i].glob, rows[i].path, rows[i].is_directory),
			     rows[i].matches, "%s %s", rows[i].glob, rows[i].path);
}

/* Stars without end against a path without end: a backtracking matcher would not return. */
Test(residue, a_hostile_name_costs_no_more_than_its_length, .timeout = 20)
{
	char glob[RESIDUE_GLOB_BYTES_MAX + 1], path[32768];

	for (size_t i = 0; i < sizeof glob - 1; i++)
		glob[i] = i % 2 ? '*' : i % 4 ? 'a' : '/';
	glob[sizeof glob - 1] = 0;
	for (size_t i = 0; i < sizeof path - 1; i++)
		path[i] = i % 251 ? 'a' : '/';
	path[sizeof path - 1] = 0;
	cr_expect_not(residue_glob_matches(glob, path, false));
	cr_expect_not(residue_glob_matches("/**/a*a*a*a*a*a*a*a*a*a*b", path, false));
	cr_expect_not(residue_glob_matches("/**/a*/**/a*/**/a*/**/a*b", path, false));
}

static bool finds(const char *const *words, size_t count, const char *path)
{
	struct residue *residue;
	struct residue_hit hit;
	size_t word;
	bool found;

	cr_assert_eq(residue_new(words, count, &residue, &word), 0);
	found = residue_find(residue, path, false, &hit);
	residue_free(residue);
	return found;
}

Test(residue, a_selection_is_what_it_names)
{
	cr_expect(finds((const char *[]){ "all" }, 1, "/root/.bash_history"));
	cr_expect(finds((const char *[]){ "logs", "history" }, 2, "/root/.bash_history"));
	cr_expect_not(finds((const char *[]){ "logs" }, 1, "/root/.bash_history"));
	cr_expect_not(finds((const char *[]){ "none" }, 1, "/root/.bash_history"));
	cr_expect_not(finds(NULL, 0, "/root/.bash_history"));
	cr_expect(finds((const char *[]){ "/w/**" }, 1, "/w/secret"));
}

Test(residue, a_word_that_is_wrong_is_named)
{
	static const struct {
		const char *words[2];
		size_t wrong;
		int error;
	} rows[] = {
		{ { "logs", "historie" }, 1, -EINVAL }, { { "none", "logs" }, 0, -EINVAL },
		{ { "", "logs" }, 0, -EINVAL },		{ { "logs", "/" }, 1, -EINVAL },
		{ { "logs", "/a//b" }, 1, -EINVAL },	{ { "logs", "/a/" }, 1, -EINVAL },
	};
	char long_glob[RESIDUE_GLOB_BYTES_MAX + 2];
	struct residue *residue;
	size_t word;

	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		cr_expect_eq(residue_new(rows[i].words, 2, &residue, &word), rows[i].error, "%zu",
			     i);
		cr_expect_eq(word, rows[i].wrong, "%zu", i);
	}
	memset(long_glob, '/', 1);
	memset(long_glob + 1, 'a', sizeof long_glob - 2);
	long_glob[sizeof long_glob - 1] = 0;
	cr_expect_eq(residue_new((const char *[]){ long_glob }, 1, &residue, &word), -E2BIG);
}

/* What issue 6 and the cases name, by the rule that has it. */
Test(residue, what_builders_leave_is_found_by_its_rule)
{
	static const char *const rows[][2] = {
		{ "history", "/root/.bash_history" },
		{ "history", "/home/a/.python_history" },
		{ "caches", "/root/.cache" },
		{ "caches", "/var/cache/apt/archives/a.deb" },
		{ "caches", "/root/.ccache" },
		{ "caches", "/root/.npm/_cacache" },
		{ "logs", "/var/log/dpkg.log" },
		{ "git", "/w/.git/logs" },
		{ "git", "/w/.git/ORIG_HEAD" },
		{ "git", "/w/.git/FETCH_HEAD" },
		{ "git", "/w/.git/objects/info/alternates" },
		{ "git", "/w/.git/hooks" },
		{ "credentials", "/root/.netrc" },
		{ "credentials", "/root/.aws" },
		{ "credentials", "/root/.ssh/id_ed25519" },
		{ "credentials", "/root/.docker/config.json" },
		{ "credentials", "/root/.git-credentials" },
		{ "bytecode", "/w/__pycache__" },
		{ "bytecode", "/w/a.pyc" },
		{ "cores", "/w/core" },
		{ "cores", "/w/core.123" },
		{ "editors", "/w/.a.c.swp" },
		{ "editors", "/w/a.c~" },
		{ "temporary", "/tmp/x" },
		{ "temporary", "/var/tmp/x" },
		{ "machine", "/etc/machine-id" },
	};

	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
		cr_expect(finds(&rows[i][0], 1, rows[i][1]), "%s %s", rows[i][0], rows[i][1]);
	cr_expect_not(finds((const char *[]){ "all" }, 1, "/w/.git/refs/heads/main"));
	cr_expect_not(finds((const char *[]){ "all" }, 1, "/w/main.py"));
	cr_expect_not(finds((const char *[]){ "all" }, 1, "/var/log"));
}

Test(residue, the_documentation_has_every_rule)
{
	char *text = calloc(1, 1 << 16), line[4096];
	FILE *page = fopen(getenv("DSEC_PAGE"), "r");
	const struct residue_rule *rule;

	cr_assert(page);
	cr_assert(text);
	cr_assert_gt(fread(text, 1, (1 << 16) - 1, page), 0);
	(void)fclose(page);
	for (size_t i = 0; (rule = residue_rule(i)); i++) {
		snprintf(line, sizeof line, "| `%s` | `%s` | %s |", rule->name, rule->globs,
			 rule->why);
		cr_expect(strstr(text, line), "docs/pack.md lacks: %s", line);
	}
	free(text);
}
