/*
 * Finds a verb's own verb in its table and runs it. Called by image.c, policy.c and files.c. What
 * makes no sense is refused before an engine is asked.
 */
#include "sdk/cli/subverb.h"

#include <stdio.h>
#include <string.h>

enum { NAMES_BYTES = 192 };

/* "check, load and show". */
static void names_print(const struct subverbs *subverbs, char ret_text[NAMES_BYTES])
{
	size_t used = 0;

	for (size_t at = 0; at < subverbs->count && used < NAMES_BYTES; at++) {
		const char *between = !at ? "" : at + 1 < subverbs->count ? ", " : " and ";

		used += (size_t)snprintf(ret_text + used, NAMES_BYTES - used, "%s%s", between,
					 subverbs->items[at].name); /* cut is fine */
	}
}

static const struct subverb *subverb_find(const struct subverbs *subverbs, const char *name)
{
	for (size_t at = 0; at < subverbs->count; at++) {
		if (!strcmp(subverbs->items[at].name, name))
			return &subverbs->items[at];
	}
	return NULL;
}

static int run(struct session *session, const struct subverbs *subverbs)
{
	const struct options *options = session->options;
	const char *name = options->argument_count ? options->arguments[0] : NULL;
	const struct subverb *sub = name ? subverb_find(subverbs, name) : NULL;
	int count = options->argument_count - 1, status;
	char names[NAMES_BYTES];

	if (!sub) {
		names_print(subverbs, names);
		return name ? session_refuse(session, "%s %.40s: there is %s", subverbs->verb, name,
					     names) :
			      session_refuse(session, "%s wants a verb of its own: there is %s",
					     subverbs->verb, names);
	}
	if (count < sub->least || count > sub->most)
		return session_refuse(session, "%s %s wants %s", subverbs->verb, sub->name,
				      sub->wants);
	status = subverbs->refuse ? subverbs->refuse(session, sub) : 0;
	if (status)
		return status;
	if (session_open(session, false) < 0)
		return EXIT_TROUBLE;
	return sub->run(session, sub, options->arguments + 1, count);
}

int subverb_run(const struct options *options, const struct subverbs *subverbs)
{
	struct session session = { .options = options };

	return session_end(&session, run(&session, subverbs));
}
