/*
 * Runs a fuzz target over every file of a folder, once: what a fuzz test is where there is no
 * libFuzzer. Used by dsec_fuzz_test(); holds one input at a time. An empty folder is a failure.
 */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "engine/base/cleanup.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static int input_replay(const char *folder, const char *name)
{
	auto_free char *path = NULL;
	auto_free uint8_t *data = NULL;
	struct stat st;
	FILE *file;
	size_t got;

	if (asprintf(&path, "%s/%s", folder, name) < 0)
		return -1;
	file = fopen(path, "re");
	if (!file)
		return -1;
	if (fstat(fileno(file), &st) < 0 || !S_ISREG(st.st_mode)) {
		fclose(file);
		return -1;
	}
	/* Of the input's exact size, so that a sanitizer sees the first byte read past it. */
	data = malloc(st.st_size ? (size_t)st.st_size : 1);
	got = data ? fread(data, 1, (size_t)st.st_size, file) : 0;
	fclose(file);
	if (!data || got != (size_t)st.st_size)
		return -1;
	printf("%s\n", name);
	fflush(stdout);
	return LLVMFuzzerTestOneInput(data, got);
}

int main(int argc, char **argv)
{
	struct dirent **entries = NULL;
	int count, tested = 0, failed = 0;

	if (argc != 2) {
		fprintf(stderr, "usage: %s FOLDER\n", argv[0]);
		return 2;
	}
	count = scandir(argv[1], &entries, NULL, alphasort);
	if (count < 0) {
		perror(argv[1]);
		return 1;
	}
	for (int i = 0; i < count; i++) {
		if (entries[i]->d_name[0] != '.') {
			tested++;
			if (input_replay(argv[1], entries[i]->d_name) < 0) {
				fprintf(stderr, "%s: cannot be replayed\n", entries[i]->d_name);
				failed++;
			}
		}
		free(entries[i]);
	}
	free(entries);
	printf("Tested: %d\n", tested);
	return tested && !failed ? 0 : 1;
}
