/*
 * Globs of residue over paths, and words that select rules: both are hostile. Must hold: a glob
 * says what a plain search by its definition says, and in bounded time.
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "backends/store/residue.h"

/* By the definition it may take long: so short ones only. */
enum { WORDS_MAX = 8, PLAIN_BYTES_MAX = 20 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

/* ---- by the definition ---- */

static bool name_plain(const char *glob, const char *glob_end, const char *name, const char *end)
{
	if (glob == glob_end)
		return name == end;
	if (*glob == '*')
		return name_plain(glob + 1, glob_end, name, end) ||
		       (name < end && name_plain(glob, glob_end, name + 1, end));
	return name < end && (*glob == '?' || *glob == *name) &&
	       name_plain(glob + 1, glob_end, name + 1, end);
}

/* Both stand on a slash, or at their end. */
static bool path_plain(const char *glob, const char *path, bool is_directory)
{
	const char *glob_end, *end;

	if (!*glob || !*path)
		return !*glob && !*path;
	glob_end = glob + 1 + strcspn(glob + 1, "/");
	end = path + 1 + strcspn(path + 1, "/");
	if (glob_end - glob == 3 && !strncmp(glob, "/**", 3)) {
		if (!*glob_end)
			return !is_directory;
		return path_plain(glob_end, path, is_directory) ||
		       path_plain(glob, end, is_directory);
	}
	return name_plain(glob + 1, glob_end, path + 1, end) &&
	       path_plain(glob_end, end, is_directory);
}

/* ---- what is asked ---- */

static void words_check(char **texts, size_t count, const char *path, bool is_directory)
{
	const char *const *words = (const char *const *)texts;
	struct residue *residue = NULL;
	struct residue_hit hit;
	uint64_t counted = 0;
	size_t wrong = count;
	int r = residue_new(words, count, &residue, &wrong);

	if (r < 0) {
		assert(r == -EINVAL || r == -E2BIG);
		assert(wrong < count);
		return;
	}
	if (*path == '/' && residue_find(residue, path, is_directory, &hit)) {
		residue_count(residue, &hit);
		assert(residue_counted(residue, hit.rule, &counted));
		assert(counted == 1);
		assert(!hit.only_cores || !is_directory);
	}
	residue_free(residue);
}

/* A flag, then a path and words, each of which ends with a NUL. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	char *text = malloc(bytes + 1), *words[WORDS_MAX];
	const bool is_directory = bytes && data[0] & 1;
	size_t count = 0;
	const char *path;

	assert(text);
	if (bytes)
		memcpy(text, data, bytes);
	text[bytes] = 0;
	path = bytes ? text + 1 : text;
	for (char *at = text + (bytes > 0) + strlen(path) + 1;
	     at < text + bytes && count < WORDS_MAX; at += strlen(at) + 1)
		words[count++] = at;
	words_check(words, count, path, is_directory);
	for (size_t i = 0; i < count && *path == '/'; i++) {
		bool matches = *words[i] == '/' &&
			       residue_glob_matches(words[i], path, is_directory);

		if (*words[i] == '/' && strlen(words[i]) + strlen(path) <= PLAIN_BYTES_MAX)
			assert(matches == path_plain(words[i], path, is_directory));
	}
	free(text);
	return 0;
}
