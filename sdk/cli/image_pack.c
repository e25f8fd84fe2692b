/*
 * `dsec image pack`: rules and canaries as the engine wants them. Called by image.c and
 * image_build.c. Must hold: a line of a file of canaries is one as it stands, but for its end; an
 * empty one is none.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sdk/cli/cleanup.h"
#include "sdk/cli/image.h"

enum { WORDS_MAX = 256 };

/* "wipe:…" and "scan:…"; each is owned. */
struct words {
	struct dsec_bytes items[WORDS_MAX];
	uint32_t count;
};

static void words_done(struct words *words)
{
	for (uint32_t i = 0; i < words->count; i++)
		free((char *)words->items[i].data);
}

/* -E2BIG: more than there may be. */
static int word_add(struct words *words, const char *kind, const char *text, size_t bytes)
{
	char *word;
	int length;

	if (words->count == WORDS_MAX)
		return -E2BIG;
	length = asprintf(&word, "%s%.*s", kind, (int)bytes, text);
	if (length < 0)
		return -ENOMEM;
	words->items[words->count++] = (struct dsec_bytes){ word, (size_t)length };
	return 0;
}

static int rules_add(struct words *words, const char *rules)
{
	int r = 0;

	while (r == 0 && rules && *rules) {
		size_t bytes = strcspn(rules, ",");

		r = word_add(words, "wipe:", rules, bytes);
		rules += bytes + (rules[bytes] == ',');
	}
	return r;
}

static int file_add(struct words *words, FILE *file)
{
	auto_free char *line = NULL;
	size_t size = 0;
	ssize_t bytes;
	int r = 0;

	while (r == 0 && (bytes = getline(&line, &size, file)) > 0) {
		bytes -= line[bytes - 1] == '\n';
		if (memchr(line, 0, (size_t)bytes))
			return -EINVAL;
		if (bytes)
			r = word_add(words, "scan:", line, (size_t)bytes);
	}
	return r < 0 ? r : ferror(file) ? -EIO : 0;
}

static int canaries_add(struct words *words, const struct options *options)
{
	FILE *file;
	int r = 0;

	for (uint32_t i = 0; r == 0 && i < options->scans.count; i++)
		r = word_add(words, "scan:", options->scans.items[i],
			     strlen(options->scans.items[i]));
	if (r < 0 || !options->scan_file)
		return r;
	file = fopen(options->scan_file, "re");
	if (!file)
		return -errno;
	r = file_add(words, file);
	(void)fclose(file); /* only read */
	return r;
}

int image_pack(struct session *session, struct dsec_id sandbox, const char *name)
{
	const struct options *options = session->options;
	struct dsec_image_opts opts = { .size = sizeof(opts),
					.verb = DSEC_IMAGE_PACK,
					.name = name,
					.sandbox = sandbox,
					.flags = (options->layer ? DSEC_IMAGE_LAYER : 0) |
						 (options->flatten ? DSEC_IMAGE_FLATTEN : 0) |
						 (options->kill ? DSEC_IMAGE_KILL : 0) };
	__attribute__((cleanup(words_done))) struct words words = { .count = 0 };
	int r;

	r = rules_add(&words, options->wipe);
	if (r == 0)
		r = canaries_add(&words, options);
	if (r == -E2BIG)
		return session_refuse(session, "image pack: at most %d rules and canaries",
				      WORDS_MAX);
	if (r < 0)
		return session_fail_error(session, r, "scan-file", strerror(-r));
	opts.layers = words.items;
	opts.layer_count = words.count;
	return image_job(session, &opts, "image pack");
}
