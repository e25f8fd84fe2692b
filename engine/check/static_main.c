/*
 * The program `dsecd-check`: `dsecd --check` in one static file, for hosts on which nothing of DSec
 * is installed yet.
 */
#include <stdio.h>
#include <string.h>

#include "engine/check/check.h"

static int usage(FILE *to, int status)
{
	fputs("usage: dsecd-check [--json] [--images DIR]\n\n"
	      "Says what this host can do for DSec, by doing it; changes nothing. Run as root.\n"
	      "Exit status: 0 when all that is required is there, 1 when not, 2 for wrong usage.\n",
	      to);
	return status;
}

int main(int argc, char **argv)
{
	struct check_options options = {
		.images_path = "/var/lib/dsec/images",
		.sandboxes_max = 8192,
	};

	for (int i = 1; i < argc; i++) {
		if (!strcmp(argv[i], "--json"))
			options.json = true;
		else if (!strcmp(argv[i], "--images") && i + 1 < argc)
			options.images_path = argv[++i];
		else if (!strcmp(argv[i], "--help"))
			return usage(stdout, 0);
		else
			return usage(stderr, 2);
	}
	return check_run(&options, stdout);
}
