/*
 * Operations on files for tests. Called by claims. Whatever the library itself refuses is a noted
 * failure.
 */
#include "tests/root/engine/file_client.h"

#include <stdlib.h>
#include <string.h>

#include "tests/root/engine/engine_client.h"
#include "tests/root/engine/engine_harness.h"

struct dsec_bytes bytes_of(const char *text)
{
	return (struct dsec_bytes){ text, strlen(text) };
}

static char *copy_of(struct dsec_bytes bytes)
{
	char *copy = malloc(bytes.bytes + 1);

	if (bytes.bytes)
		memcpy(copy, bytes.data, bytes.bytes);
	copy[bytes.bytes] = 0;
	return copy;
}

static void row_take(struct filed *filed, const struct dsec_event *event)
{
	const struct dsec_file_row *row = event->body;
	struct filed_row *kept;

	if (!expect(row && filed->row_count < FILED_ROWS_MAX))
		return;
	if (!filed->rows)
		filed->rows = calloc(FILED_ROWS_MAX, sizeof *filed->rows);
	kept = &filed->rows[filed->row_count++];
	kept->row = *row;
	kept->name = copy_of(row->name);
	kept->target = copy_of(row->target);
}

static void data_take(struct filed *filed, const struct dsec_event *event, bool keep)
{
	expect(event->offset == filed->bytes);
	if (keep) {
		filed->data = realloc(filed->data, filed->bytes + event->bytes + 1);
		memcpy(filed->data + filed->bytes, event->data, event->bytes);
		filed->data[filed->bytes + event->bytes] = 0;
	}
	filed->bytes += event->bytes;
}

struct filed filed_wait(struct dsec *d, int64_t ticket, bool keep_data)
{
	struct filed filed = { .ms = clock_ms() };
	bool last = ticket < 0;

	if (!expect(ticket >= 0)) {
		note("%s", dsec_error(d, ticket));
		filed.status.code = DSEC_LOST;
	}
	while (!last) {
		struct dsec_event *event;

		if (!expect(dsec_wait(d, ticket, -1, &event) == 0))
			break;
		if (event->kind == DSEC_EV_ROW)
			row_take(&filed, event);
		if (event->kind == DSEC_EV_DATA)
			data_take(&filed, event, keep_data);
		last = event->flags & DSEC_LAST;
		if (last) {
			filed.status = event->status;
			if (event->body)
				filed.result = *(const struct dsec_file_result *)event->body;
		}
		dsec_event_free(event);
	}
	filed.ms = clock_ms() - filed.ms;
	return filed;
}

void filed_done(struct filed *filed)
{
	for (uint32_t i = 0; i < filed->row_count; i++) {
		free(filed->rows[i].name);
		free(filed->rows[i].target);
	}
	free(filed->rows);
	free(filed->data);
}

struct filed file_run(struct dsec *d, struct dsec_id id, const struct dsec_file_opts *opts)
{
	int64_t ticket;

	if (opts->verb == DSEC_FILE_READ)
		ticket = dsec_read(d, NULL, id, opts);
	else if (opts->verb == DSEC_FILE_WRITE)
		ticket = dsec_write(d, NULL, id, opts);
	else
		ticket = dsec_file(d, NULL, id, opts);
	return filed_wait(d, ticket, true);
}

struct filed file_read(struct dsec *d, struct dsec_id id, const char *path, uint32_t flags)
{
	const struct dsec_file_opts opts = {
		.size = sizeof opts, .verb = DSEC_FILE_READ, .flags = flags, .path = bytes_of(path)
	};

	return file_run(d, id, &opts);
}

struct filed file_write(struct dsec *d, struct dsec_id id, const char *path, const char *text)
{
	const struct dsec_file_opts opts = { .size = sizeof opts,
					     .verb = DSEC_FILE_WRITE,
					     .path = bytes_of(path),
					     .input = bytes_of(text) };

	return file_run(d, id, &opts);
}

struct dsec_status input_give(struct dsec *d, int64_t ticket, uint64_t offset,
			      struct dsec_bytes bytes)
{
	int64_t input = dsec_input(d, NULL, ticket, offset, bytes);

	if (input < 0)
		return (struct dsec_status){ .code = DSEC_LOST, .error = (int)-input };
	return ticket_end(d, input);
}

struct filed file_verb(struct dsec *d, struct dsec_id id, uint32_t verb, const char *path)
{
	const struct dsec_file_opts opts = { .size = sizeof opts,
					     .verb = verb,
					     .path = bytes_of(path) };

	return file_run(d, id, &opts);
}

bool filed_well(const struct filed *filed)
{
	if (filed->status.code == DSEC_OK)
		return true;
	note("code %u error %d step %s: %s", filed->status.code, filed->status.error,
	     filed->status.step, filed->status.detail);
	return false;
}

bool filed_failed(const struct filed *filed, int error)
{
	if (filed->status.code != DSEC_OK && filed->status.error == error)
		return true;
	note("code %u error %d step %s: %s, not error %d", filed->status.code, filed->status.error,
	     filed->status.step, filed->status.detail, error);
	return false;
}

bool filed_says(const struct filed *filed, const char *text)
{
	if (!filed_well(filed))
		return false;
	if (filed->bytes == strlen(text) &&
	    (!filed->bytes || !memcmp(filed->data, text, filed->bytes)))
		return true;
	note("%zu bytes: %.200s", filed->bytes, filed->data ? filed->data : "");
	return false;
}

const struct filed_row *filed_row(const struct filed *filed, const char *name)
{
	for (uint32_t i = 0; i < filed->row_count; i++)
		if (!strcmp(filed->rows[i].name, name))
			return &filed->rows[i];
	return NULL;
}
