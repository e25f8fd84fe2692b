/*
 * What a request about a file asks for, checked and copied. Called by file.c before anything is
 * made for it. Must hold: paths are bytes without a NUL, of a bounded length; a flag that the verb
 * does not know is refused.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "engine/file/file_state.h"
#include "engine/request/request.h"

struct status file_invalid(const char *field, int error)
{
	return (struct status){ .code = DSEC_INVALID,
				.blame = DSEC_BLAME_CALLER,
				.error = -error,
				.table = "file",
				.step = field };
}

/* The flags that a verb knows. */
static uint32_t verb_flags(uint32_t verb)
{
	const uint32_t path = DSEC_FILE_NO_LINKS;

	switch (verb) {
	case DSEC_FILE_READ:
		return path | DSEC_FILE_TAR | DSEC_FILE_NO_FOLLOW;
	case DSEC_FILE_WRITE:
		return path | DSEC_FILE_TAR | DSEC_FILE_APPEND | DSEC_FILE_MODE |
		       DSEC_FILE_EXCLUSIVE | DSEC_FILE_PARENTS | DSEC_FILE_NO_FOLLOW |
		       DSEC_FILE_OWNERS | DSEC_FILE_INPUT;
	case DSEC_FILE_STAT:
		return path | DSEC_FILE_NO_FOLLOW;
	case DSEC_FILE_LIST:
	case DSEC_FILE_WATCH:
		return path;
	case DSEC_FILE_MKDIR:
		return path | DSEC_FILE_MODE | DSEC_FILE_PARENTS;
	case DSEC_FILE_REMOVE:
		return path | DSEC_FILE_RECURSIVE;
	case DSEC_FILE_RENAME:
		return path | DSEC_FILE_EXCLUSIVE;
	default:
		return 0;
	}
}

/* A path as it came: bytes without a NUL. */
static bool path_is_sane(const struct wire *w, struct dsec_wire_ref ref, bool may_be_empty)
{
	const char *bytes;

	if (ref.bytes > GUEST_PATH_BYTES_MAX || wire_bytes(w, ref, &bytes) < 0)
		return false;
	return ref.bytes ? !memchr(bytes, 0, ref.bytes) : may_be_empty;
}

static struct status file_check(const struct wire *w, const struct dsec_wire_file *wish)
{
	const bool tar = wish->flags & DSEC_FILE_TAR;
	const char *bytes;

	if (wish->verb < DSEC_FILE_READ || wish->verb > DSEC_FILE_WATCH)
		return file_invalid("verb", -EINVAL);
	if (wish->flags & ~verb_flags(wish->verb) ||
	    (tar && wish->flags & (DSEC_FILE_APPEND | DSEC_FILE_EXCLUSIVE | DSEC_FILE_MODE)) ||
	    (wish->verb == DSEC_FILE_WRITE && !tar &&
	     wish->flags & (DSEC_FILE_PARENTS | DSEC_FILE_OWNERS)))
		return file_invalid("flags", -EINVAL);
	if (wish->mode > (wish->flags & DSEC_FILE_MODE ? 07777u : 0u))
		return file_invalid("mode", -EINVAL);
	if (wish->reserved0 || !wire_is_zero(wish->reserved, sizeof wish->reserved))
		return file_invalid("reserved", -EINVAL);
	if (!path_is_sane(w, wish->path, false))
		return file_invalid("path", -EINVAL);
	if (!path_is_sane(w, wish->to, wish->verb != DSEC_FILE_RENAME) ||
	    (wish->to.bytes && wish->verb != DSEC_FILE_RENAME && wish->verb != DSEC_FILE_LIST))
		return file_invalid("to", -EINVAL);
	if (wire_bytes(w, wish->input, &bytes) < 0 ||
	    (wish->input.bytes && (wish->verb != DSEC_FILE_WRITE || wish->flags & DSEC_FILE_INPUT)))
		return file_invalid("input", -EINVAL);
	if (wish->offset && (wish->verb != DSEC_FILE_READ || tar))
		return file_invalid("offset", -EINVAL);
	return STATUS_OK;
}

/* What must not happen twice; the others are asked again by whoever lost the answer. */
static bool verb_has_effects(uint32_t verb)
{
	return verb == DSEC_FILE_WRITE || verb == DSEC_FILE_MKDIR || verb == DSEC_FILE_REMOVE ||
	       verb == DSEC_FILE_RENAME;
}

struct status file_prepare(struct file *file, const struct request *request)
{
	const struct dsec_wire_file *wish = &request->body.file;
	struct status s = file_check(&request->payload, wish);
	int r;

	if (s.code)
		return s;
	r = wire_user(&request->payload, wish->user, file->user, sizeof file->user);
	if (r < 0)
		return file_invalid("user", r);
	if (!*file->user)
		memcpy(file->user, file->sandbox->user, sizeof file->user);
	file->takes_input = wish->verb == DSEC_FILE_WRITE;
	file->sends_output = wish->verb == DSEC_FILE_READ;
	file->committed = verb_has_effects(wish->verb) && !file->takes_input;
	file->ask = (struct guest_ask){
		.packet = GUEST_ASK,
		.size = sizeof file->ask,
		.verb = wish->verb,
		.flags = wish->flags,
		.mode = wish->mode,
		.limit = wish->limit,
		.offset = wish->offset,
		.bytes_max = wish->bytes_max,
		.path_bytes = wish->path.bytes,
		.to_bytes = wish->to.bytes,
	};
	file->packet = malloc(FILE_PACKET_BYTES + 1);
	file->run = file->packet ? file->sandbox->box->backend->class->run_new(file->sandbox->box) :
				   NULL;
	return file->run ? STATUS_OK : status_of_errno(-EAGAIN, "file", "files_max");
}
