/*
 * Owns the rules of residue and what one packing selected of them. Called by scan.c for every path.
 * Must hold: what a guest named decides nothing but whether it matches, in bounded time.
 */
#include "backends/store/residue.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/cleanup.h"

static const struct residue_rule rules[] = {
	{ "history",
	  "/**/.bash_history /**/.zsh_history /**/.zhistory /**/.sh_history /**/.ash_history "
	  "/**/.history /**/.python_history /**/.node_repl_history /**/.psql_history "
	  "/**/.mysql_history /**/.sqlite_history /**/.rediscli_history /**/.irb_history "
	  "/**/.lesshst /**/.viminfo /**/.wget-hsts /**/.local/share/fish/fish_history "
	  "/**/.ipython/profile_*/history.sqlite*",
	  false, "what shells, REPLs and viewers remember of what was typed and seen" },
	{ "caches",
	  "/**/.cache /**/.npm/_cacache /**/.npm/_logs /**/.ccache /**/.cargo/registry/cache "
	  "/**/.gradle/caches /**/.pytest_cache /**/.mypy_cache /**/.ruff_cache "
	  "/**/node_modules/.cache /**/.local/share/Trash /var/cache/apt/** /var/cache/dnf/** "
	  "/var/cache/yum/** /var/cache/apk/** /var/lib/apt/lists/**",
	  false, "copies of what was fetched or computed, and what was thrown away" },
	{ "logs", "/var/log/** /**/npm-debug.log* /**/nohup.out", false,
	  "what programs wrote of what they did; folders stay" },
	{ "git",
	  "/**/.git/logs /**/.git/ORIG_HEAD /**/.git/FETCH_HEAD /**/.git/COMMIT_EDITMSG "
	  "/**/.git/hooks /**/.git/lost-found /**/.git/objects/info/alternates "
	  "/**/.git/modules/**/logs /**/.git/worktrees/*/logs /**/*.git/logs "
	  "/**/*.git/FETCH_HEAD /**/*.git/hooks /**/*.git/objects/info/alternates",
	  false,
	  "reflogs and heads that lead to commits that were taken back; programs that git runs" },
	{ "credentials",
	  "/**/.netrc /**/.aws /**/.azure /**/.config/gcloud /**/.kube /**/.docker/config.json "
	  "/**/.git-credentials /**/.config/git/credentials /**/.config/gh /**/.npmrc /**/.pypirc "
	  "/**/.pgpass /**/.my.cnf /**/.ssh/id_* /**/.ssh/*.pem /**/.ssh/agent* "
	  "/**/.gnupg/private-keys-v1.d /**/.cargo/credentials* /**/.gem/credentials "
	  "/**/.huggingface/token /**/.cache/huggingface/token /**/.vault-token "
	  "/**/.terraform.d/credentials.tfrc.json /**/.config/rclone/rclone.conf "
	  "/etc/ssh/ssh_host_*_key",
	  false, "keys, tokens and passwords where programs keep them" },
	{ "bytecode", "/**/__pycache__ /**/*.pyc /**/*.pyo", false,
	  "Python's compiled files: they hold constants of sources that were deleted" },
	{ "cores", "/**/core /**/core.* /**/*.core", true,
	  "the memory of programs that crashed; only what is an ELF core file" },
	{ "editors", "/**/.*.sw? /**/*~ /**/.#* /**/#*#", false,
	  "swap files, backups and locks of editors" },
	{ "temporary", "/tmp/* /var/tmp/*", false, "what was never meant to stay" },
	{ "machine", "/etc/machine-id /var/lib/dbus/machine-id /var/lib/systemd/random-seed", false,
	  "what makes this machine this one" },
};

enum { RULES = sizeof rules / sizeof *rules };

_Static_assert((int)RULES <= (int)RESIDUE_RULES_MAX, "a bit for each");

const struct residue_rule *residue_rule(size_t at)
{
	return at < RULES ? &rules[at] : NULL;
}

/* ---- globs ---- */

struct part {
	const char *at;
	size_t bytes;
};

/* The name at `*path`, which stands on its slash; `*path` comes to stand on the next. */
static struct part part_take(const char **path)
{
	struct part part = { *path + 1, strcspn(*path + 1, "/") };

	*path = part.at + part.bytes;
	return part;
}

static bool part_matches(struct part glob, struct part name)
{
	size_t g = 0, n = 0, star = SIZE_MAX, from = 0;

	while (n < name.bytes) {
		if (g < glob.bytes && glob.at[g] == '*') {
			star = g++;
			from = n;
		} else if (g < glob.bytes && (glob.at[g] == '?' || glob.at[g] == name.at[n])) {
			g++;
			n++;
		} else if (star != SIZE_MAX) {
			g = star + 1;
			n = ++from;
		} else {
			return false;
		}
	}
	while (g < glob.bytes && glob.at[g] == '*')
		g++;
	return g == glob.bytes;
}

static bool is_any(struct part part)
{
	return part.bytes == 2 && part.at[0] == '*' && part.at[1] == '*';
}

/* What follows a `**` is tried at one name after another: the latest `**` alone need be tried. */
bool residue_glob_matches(const char *glob, const char *path, bool is_directory)
{
	const char *again_glob = NULL, *again_path = NULL;

	while (*path) {
		const char *glob_rest = glob, *path_rest = path;
		struct part want = *glob ? part_take(&glob_rest) : (struct part){ "", 0 };

		if (*glob && is_any(want)) {
			if (!*glob_rest)
				return !is_directory;
			again_glob = glob = glob_rest;
			again_path = path;
			continue;
		}
		if (*glob && part_matches(want, part_take(&path_rest))) {
			glob = glob_rest;
			path = path_rest;
			continue;
		}
		if (!again_glob)
			return false;
		(void)part_take(&again_path);
		path = again_path;
		glob = again_glob;
	}
	return !*glob;
}

/* ---- a selection ---- */

struct glob {
	char *text; /* owned */
	uint32_t rule;
	bool only_cores;
};

struct residue {
	struct glob *globs;
	size_t count, size;
	uint64_t counts[RULES + 1]; /* the last: of its own globs */
};

static int glob_add(struct residue *residue, const char *text, size_t bytes, uint32_t rule)
{
	struct glob *globs;
	char *copy;

	if (residue->count == residue->size) {
		globs = realloc(residue->globs, (2 * residue->size + 64) * sizeof *globs);
		if (!globs)
			return -ENOMEM;
		residue->globs = globs;
		residue->size = 2 * residue->size + 64;
	}
	copy = strndup(text, bytes);
	if (!copy)
		return -ENOMEM;
	residue->globs[residue->count++] =
		(struct glob){ copy, rule, rule < RULES && rules[rule].only_cores };
	return 0;
}

static int rule_add(struct residue *residue, uint32_t rule)
{
	const char *at = rules[rule].globs;
	int r = 0;

	while (r >= 0 && *at) {
		size_t bytes = strcspn(at, " ");

		r = glob_add(residue, at, bytes, rule);
		at += bytes + (at[bytes] == ' ');
	}
	return r;
}

static int word_rule(const char *word, uint32_t *ret_rules)
{
	if (!strcmp(word, "all")) {
		*ret_rules = (1u << RULES) - 1;
		return 0;
	}
	for (uint32_t i = 0; i < RULES; i++)
		if (!strcmp(rules[i].name, word))
			*ret_rules |= 1u << i;
	return *ret_rules || !strcmp(word, "none") ? 0 : -EINVAL;
}

/* Its own: a path of names, none of them empty, and not all that there is. */
static int word_glob(const char *word)
{
	size_t bytes = strlen(word);

	if (bytes > RESIDUE_GLOB_BYTES_MAX)
		return -E2BIG;
	return bytes < 2 || strstr(word, "//") || word[bytes - 1] == '/' ? -EINVAL : 0;
}

static int words_take(struct residue *residue, const char *const *words, size_t count,
		      size_t *ret_word)
{
	uint32_t selected = 0, own = 0;
	int r = 0;

	for (size_t i = 0; r >= 0 && i < count; i++) {
		uint32_t found = 0;

		*ret_word = i;
		if (*words[i] != '/') {
			r = word_rule(words[i], &found);
			if (r >= 0 && !found && count > 1)
				r = -EINVAL; /* none, and something */
			selected |= found;
			continue;
		}
		r = own++ < RESIDUE_GLOBS_MAX ? word_glob(words[i]) : -E2BIG;
		if (r >= 0)
			r = glob_add(residue, words[i], strlen(words[i]), RULES);
	}
	for (uint32_t i = 0; r >= 0 && i < RULES; i++)
		if (selected & 1u << i)
			r = rule_add(residue, i);
	return r;
}

int residue_new(const char *const *words, size_t count, struct residue **ret, size_t *ret_word)
{
	struct residue *residue = calloc(1, sizeof *residue);
	int r;

	if (!residue)
		return -ENOMEM;
	r = words_take(residue, words, count, ret_word);
	if (r < 0) {
		residue_free(residue);
		return r;
	}
	*ret = residue;
	return 0;
}

void residue_free(struct residue *residue)
{
	if (!residue)
		return;
	for (size_t i = 0; i < residue->count; i++)
		free(residue->globs[i].text);
	free(residue->globs);
	free(residue);
}

bool residue_find(const struct residue *residue, const char *path, bool is_directory,
		  struct residue_hit *ret)
{
	for (size_t i = 0; i < residue->count; i++) {
		const struct glob *glob = &residue->globs[i];

		if (glob->only_cores && is_directory)
			continue;
		if (!residue_glob_matches(glob->text, path, is_directory))
			continue;
		*ret = (struct residue_hit){ glob->rule, glob->only_cores };
		return true;
	}
	return false;
}

void residue_count(struct residue *residue, const struct residue_hit *hit)
{
	residue->counts[hit->rule]++;
}

const char *residue_counted(const struct residue *residue, size_t at, uint64_t *ret_count)
{
	if (at > RULES)
		return NULL;
	*ret_count = residue->counts[at];
	return at < RULES ? rules[at].name : "globs";
}
