/*
 * Files of sandboxes as clients see them: whole and atomic writes, reads by credit, folders, what a
 * failure says. One engine for all claims; each makes the sandboxes it needs and ends them.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/cleanup.h"
#include "tests/root/engine/engine_client.h"
#include "tests/root/engine/engine_harness.h"
#include "tests/root/engine/file_client.h"

static void what_was_written_is_read(struct engine *e)
{
	struct dsec_id id = sandbox_make(e->d);
	auto_filed struct filed written = file_write(e->d, id, "/tmp/a", "some text\n");
	auto_filed struct filed again = file_read(e->d, id, "/tmp/a", 0);
	auto_filed struct filed empty = file_write(e->d, id, "/tmp/empty", "");
	auto_filed struct filed nothing = file_read(e->d, id, "/tmp/empty", 0);
	auto_ran struct ran inside = shell_run(e->d, id, "stat -c '%a %u %s' /tmp/a /tmp/empty");

	expect(filed_well(&written) && written.result.bytes == 10);
	expect(filed_says(&again, "some text\n") && again.result.bytes == 10);
	expect(filed_well(&empty));
	expect(filed_says(&nothing, ""));
	expect(ran_says(&inside, "644 0 10\n644 0 0\n"));
	sandbox_end(e->d, id);
}

static const struct claim claims[] = {
	CLAIM(what_was_written_is_read),
};

int main(int argc, char **argv)
{
	const struct suite suites[] = { SUITE("files", claims) };

	return suites_main(argc, argv, suites, 1);
}
