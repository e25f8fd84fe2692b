/*
 * The environment that a command line asks for: files of NAME=VALUE lines, and --env over them.
 * Called by main.c, once. A line that makes no sense is refused by its number; values are bytes, as
 * they stand: no quotes, no expansion.
 */
#include "sdk/cli/environment.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sdk/cli/cleanup.h"

enum { FILE_BYTES_MAX = 1 << 20 };

static int problem(struct options *options, const char *path, unsigned line, const char *what)
{
	/* Cut is fine. */
	if (line)
		(void)snprintf(options->problem, sizeof(options->problem),
			       "--env-file: %.120s: line %u %s", path, line, what);
	else
		(void)snprintf(options->problem, sizeof(options->problem), "--env-file: %.120s: %s",
			       path, what);
	return -EINVAL;
}

/* All of it, with a 0 after it; for free(). */
static int text_read(struct options *options, const char *path, char **ret)
{
	auto_file FILE *file = fopen(path, "re");
	auto_free char *text = malloc(FILE_BYTES_MAX + 1);
	size_t bytes;

	if (!file)
		return problem(options, path, 0, strerror(errno));
	if (!text)
		return problem(options, path, 0, strerror(ENOMEM));
	errno = 0;
	bytes = fread(text, 1, FILE_BYTES_MAX + 1, file);
	if (ferror(file))
		return problem(options, path, 0, strerror(errno));
	if (bytes > FILE_BYTES_MAX)
		return problem(options, path, 0, "is larger than 1 MiB");
	text[bytes] = '\0';
	if (strlen(text) != bytes)
		return problem(options, path, 0, "holds a NUL byte");
	*ret = text;
	text = NULL;
	return 0;
}

/* Blank lines and those that begin with '#' say nothing. */
static int lines_take(struct options *options, const char *path, char *text)
{
	unsigned number = 1;

	for (char *line = text, *next; *line; line = next, number++) {
		size_t bytes = strcspn(line, "\n");

		next = line + bytes + (line[bytes] == '\n');
		line[bytes] = '\0';
		if (bytes && line[bytes - 1] == '\r')
			line[bytes - 1] = '\0';
		if (!line[strspn(line, " \t")] || line[0] == '#')
			continue;
		if (!strchr(line, '=') || line[0] == '=')
			return problem(options, path, number, "is not NAME=VALUE");
		if (texts_add(&options->env, line) < 0)
			return problem(options, path, number, strerror(ENOMEM));
	}
	return 0;
}

static bool same_name(const char *a, const char *b)
{
	size_t bytes = strcspn(a, "=");

	return strcspn(b, "=") == bytes && !memcmp(a, b, bytes);
}

/* A program that looks for a name takes the first it finds; people mean the last they said. */
static void last_keep(struct texts *env)
{
	uint32_t kept = 0;

	for (uint32_t at = 0; at < env->count; at++) {
		bool later = false;

		for (uint32_t other = at + 1; other < env->count && !later; other++)
			later = same_name(env->items[at], env->items[other]);
		if (!later)
			env->items[kept++] = env->items[at];
	}
	env->count = kept;
}

int environment_read(struct options *options)
{
	struct texts said = options->env;
	int r = 0;

	options->env = (struct texts){ 0 };
	for (uint32_t at = 0; at < options->env_files.count && r == 0; at++) {
		char *text = NULL;

		r = text_read(options, options->env_files.items[at], &text);
		if (r == 0 && texts_add(&options->env_texts, text) < 0) {
			free(text);
			r = problem(options, options->env_files.items[at], 0, strerror(ENOMEM));
		}
		if (r == 0)
			r = lines_take(options, options->env_files.items[at], text);
	}
	for (uint32_t at = 0; at < said.count && r == 0; at++)
		r = texts_add(&options->env, said.items[at]);
	free(said.items);
	if (r == -ENOMEM)
		(void)snprintf(options->problem, sizeof(options->problem), "%s",
			       strerror(ENOMEM)); /* fits */
	last_keep(&options->env);
	return r;
}
