/*
 * Makes the image of engine tests below /tmp. Called by the harness. The minimal image it starts
 * from is loadgen/image.sh's and stays in the user's cache.
 */
#include "tests/root/engine/engine_image.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/cleanup.h"

static char folder[] = "/tmp/dsec-engine-test.XXXXXX";

const char *image_folder(void)
{
	return folder;
}

static bool run(const char *command)
{
	int status = system(command);

	if (status)
		printf("cannot build the test's image (status %x): %s\n", (unsigned)status,
		       command);
	return status == 0;
}

/* The tests' own, beside those of all. */
static struct {
	const char *path, *name;
} more[8];
static unsigned more_count;

void image_add(const char *path, const char *name)
{
	if (more_count == sizeof more / sizeof *more)
		return; /* the test that lacks it fails */
	more[more_count].path = path;
	more[more_count++].name = name;
}

static bool programs_add(void)
{
	auto_free char *command = NULL;
	bool added = true;

	for (unsigned i = 0; added && i < more_count; i++) {
		free(take_ptr(command));
		added = asprintf(&command, "cp '%s' '%s/root/bin/%s'", more[i].path, folder,
				 more[i].name) >= 0 &&
			run(command);
	}
	return added;
}

bool image_build(void)
{
	static const char script[] =
		"set -eu; cache=${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/dsec\n"
		"'" SOURCE_PATH "/loadgen/image.sh' --minimal \"$cache\" >/dev/null\n"
		"cp -a \"$cache/root-minimal\" '%s/root'\n"
		"for program in " PROGRAM_PATHS "; do cp \"$program\" '%s/root/bin/'; done\n";
	static const char finish[] =
		"set -eu; mkfs.erofs --quiet -T0 '%s/test.erofs' '%s/root' >/dev/null\n"
		"rm -rf --one-file-system '%s/root'\n";
	auto_free char *command = NULL;

	if (!mkdtemp(folder)) {
		perror(folder);
		return false;
	}
	if (asprintf(&command, script, folder, folder) < 0 || !run(command) || !programs_add())
		return false;
	free(take_ptr(command));
	return asprintf(&command, finish, folder, folder, folder) >= 0 && run(command);
}

void image_remove(void)
{
	auto_free char *command = NULL;

	if (asprintf(&command, "rm -rf --one-file-system '%s'", folder) >= 0)
		(void)run(command); /* says so */
}
