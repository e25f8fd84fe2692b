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

bool image_build(void)
{
	static const char script[] =
		"set -eu; cache=${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/dsec\n"
		"'" SOURCE_PATH "/loadgen/image.sh' --minimal \"$cache\" >/dev/null\n"
		"cp -a \"$cache/root-minimal\" '%s/root'\n"
		"for program in " PROGRAM_PATHS "; do cp \"$program\" '%s/root/bin/'; done\n"
		"mkfs.erofs --quiet -T0 '%s/test.erofs' '%s/root' >/dev/null\n"
		"rm -rf --one-file-system '%s/root'\n";
	auto_free char *command = NULL;

	if (!mkdtemp(folder)) {
		perror(folder);
		return false;
	}
	if (asprintf(&command, script, folder, folder, folder, folder, folder) < 0)
		return false;
	return run(command);
}

void image_remove(void)
{
	auto_free char *command = NULL;

	if (asprintf(&command, "rm -rf --one-file-system '%s'", folder) >= 0)
		(void)run(command); /* says so */
}
