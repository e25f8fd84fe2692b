/*
 * The requests about files: their structs are checked and packed, then submitted. Called by
 * applications, without the lock, as those of request.c.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "sdk/lib/connection.h"
#include "sdk/lib/error.h"
#include "sdk/lib/pack.h"
#include "sdk/lib/structs.h"

enum { WINDOW_BYTES = 256 << 10 }; /* as the engine's */

static int file_pack(const struct dsec_file_opts *opts, struct submission *submission)
{
	struct dsec_wire_file wire = {
		.size = sizeof(wire),
		.verb = opts->verb,
		.flags = opts->flags,
		.mode = opts->mode,
		.limit = opts->limit,
		.offset = opts->offset,
		.bytes_max = opts->bytes_max,
	};
	struct pack pack;

	dsec__pack_begin(&pack, sizeof(wire));
	wire.path = dsec__pack_bytes(&pack, opts->path.data, opts->path.bytes);
	wire.to = dsec__pack_bytes(&pack, opts->to.data, opts->to.bytes);
	wire.user = dsec__pack_text(&pack, opts->user);
	wire.input = dsec__pack_bytes(&pack, opts->input.data, opts->input.bytes);
	return dsec__pack_end(&pack, &wire, sizeof(wire), submission);
}

static bool verb_fits(uint32_t verb, uint32_t only)
{
	if (only)
		return verb == only;
	return verb >= DSEC_FILE_STAT && verb <= DSEC_FILE_WATCH;
}

/* `only`: the one verb of the call; 0: any but read and write. */
static int64_t file_submit(struct dsec *d, const struct dsec_call *call, struct dsec_id sandbox,
			   const struct dsec_file_opts *opts, uint32_t only)
{
	struct submission submission = { .op = DSEC_OP_FILE, .subject = sandbox };
	struct dsec_file_opts known;
	struct dsec_call known_call;
	int r;

	r = dsec__call_take(d, call, &known_call);
	if (r == 0)
		r = dsec__struct_take(&known, sizeof(known), opts, "file");
	if (r < 0)
		return r;
	if (!known.verb)
		known.verb = only;
	if (!verb_fits(known.verb, only))
		return dsec__fail(-EINVAL, "file: the verb is not one of this call");
	if (known.reserved)
		return dsec__fail(-EINVAL, "file: reserved is not 0");
	if (!known.path.data || !known.path.bytes)
		return dsec__fail(-EINVAL, "file: no path");
	if (known.verb == DSEC_FILE_RENAME && (!known.to.data || !known.to.bytes))
		return dsec__fail(-EINVAL, "file: no new name");
	if (known.verb == DSEC_FILE_WRITE && !known.input.data)
		known.flags |= DSEC_FILE_INPUT;
	submission.is_stream = known.flags & DSEC_FILE_INPUT;
	if (known.verb == DSEC_FILE_READ)
		submission.window_bytes = WINDOW_BYTES;
	r = file_pack(&known, &submission);
	return r < 0 ? r : dsec__submit(d, &known_call, &submission);
}

int64_t dsec_read(struct dsec *d, const struct dsec_call *call, struct dsec_id sandbox,
		  const struct dsec_file_opts *opts)
{
	return file_submit(d, call, sandbox, opts, DSEC_FILE_READ);
}

int64_t dsec_write(struct dsec *d, const struct dsec_call *call, struct dsec_id sandbox,
		   const struct dsec_file_opts *opts)
{
	return file_submit(d, call, sandbox, opts, DSEC_FILE_WRITE);
}

int64_t dsec_file(struct dsec *d, const struct dsec_call *call, struct dsec_id sandbox,
		  const struct dsec_file_opts *opts)
{
	return file_submit(d, call, sandbox, opts, 0);
}
