/*
 * What tests ask about files in sandboxes, over libdsec: one struct for how an operation ended.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <dsec/dsec.h>

enum { FILED_ROWS_MAX = 5000 };

struct filed_row {
	struct dsec_file_row row;
	char *name, *target; /* with a NUL after them */
};

struct filed {
	struct dsec_status status;
	struct dsec_file_result result;
	char *data; /* all DATA */
	size_t bytes;
	struct filed_row *rows;
	uint32_t row_count;
	double ms;
};

#define auto_filed __attribute__((cleanup(filed_done)))

struct dsec_bytes bytes_of(const char *text);
/* Takes its events up to the last one; keep_data: else it is only counted. */
struct filed filed_wait(struct dsec *d, int64_t ticket, bool keep_data);
void filed_done(struct filed *filed);
/* One of the verbs of dsec_file(), read or write, all at once. */
struct filed file_run(struct dsec *d, struct dsec_id id, const struct dsec_file_opts *opts);
struct filed file_read(struct dsec *d, struct dsec_id id, const char *path, uint32_t flags);
struct filed file_write(struct dsec *d, struct dsec_id id, const char *path, const char *text);
struct filed file_verb(struct dsec *d, struct dsec_id id, uint32_t verb, const char *path);
/* Waits until they were taken; no bytes: the end. */
struct dsec_status input_give(struct dsec *d, int64_t ticket, uint64_t offset,
			      struct dsec_bytes bytes);
/* It ended well; else it is noted. */
bool filed_well(const struct filed *filed);
/* It failed with this errno. */
bool filed_failed(const struct filed *filed, int error);
/* It was a read of exactly this. */
bool filed_says(const struct filed *filed, const char *text);
const struct filed_row *filed_row(const struct filed *filed, const char *name);
