/*
 * Reading what a sandbox uses: one request to the backend at a time, for however many parts. Called
 * by the stats and inspect ops. Must hold: whoever was told 0 is told once more, and the sandbox is
 * there until the last of them was.
 */
#include "engine/sandbox/usage.h"

#include <errno.h>
#include <stdlib.h>

#include "engine/sandbox/sandbox.h"

struct usage_reader {
	struct part *part;
	usage_read_fn *read;
	struct usage_reader *next;
};

static void usage_done(struct box_usage *usage, int error)
{
	struct sandbox *sandbox = usage->owner;
	struct usage_reader *reader = sandbox->usage_readers, *next;
	const struct box_usage copy = *usage; /* the next reading may begin below */

	sandbox->usage_readers = NULL;
	for (; reader; reader = next) {
		next = reader->next;
		reader->read(reader->part, sandbox, &copy, error);
		free(reader);
	}
	sandbox_usage_over(sandbox);
}

int usage_read(struct sandbox *sandbox, struct part *part, usage_read_fn *read)
{
	struct usage_reader *reader = malloc(sizeof *reader);
	int r;

	if (!reader)
		return -ENOMEM;
	*reader = (struct usage_reader){ part, read, sandbox->usage_readers };
	if (!reader->next) {
		sandbox->usage.owner = sandbox;
		sandbox->usage.done = usage_done;
		r = sandbox->box->backend->class->box_usage(sandbox->box, &sandbox->usage);
		if (r < 0) {
			free(reader);
			return r;
		}
	}
	sandbox->usage_readers = reader;
	return 0;
}
