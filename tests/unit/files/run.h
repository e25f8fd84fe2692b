/*
 * The file helper's verbs on a scratch folder, natively: a child serves one operation, this process
 * is its engine.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backends/guest/protocol.h"

enum { ROWS_KEPT_MAX = 64 };

struct scratch {
	char path[64]; /* of the folder that holds root */
	int root_fd;
};

struct asked {
	uint32_t verb, flags, mode, limit;
	uint64_t offset, bytes_max;
	const char *path, *to;
	const void *input;
	size_t input_bytes;
	bool uncommitted; /* the engine goes after the last byte */
};

struct answered {
	bool answered; /* it said how it went */
	struct guest_done done;
	char *output;
	size_t output_bytes;
	struct guest_row rows[ROWS_KEPT_MAX];
	char *names[ROWS_KEPT_MAX];
	unsigned row_count;
};

#define auto_answered __attribute__((cleanup(answered_done)))

/* A folder with "root" in it, and beside it "outside", which nothing may touch. */
void scratch_make(struct scratch *scratch);
/* Asserts that "outside" is as it was, and removes all. */
void scratch_end(struct scratch *scratch);
/* Runs a shell script in root. */
void scratch_sh(const struct scratch *scratch, const char *script);
/* What a shell script in root says. */
char *scratch_says(const struct scratch *scratch, const char *script);
struct answered files_ask(const struct scratch *scratch, const struct asked *asked);
void answered_done(struct answered *answered);
const struct guest_row *answered_row(const struct answered *answered, const char *name);
