/*
 * More readers of an exec that runs or is over, and lists of execs. Called by request.c, on the
 * sandbox's shard. What is asked of an exec that was forgotten is told from one that never was.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "engine/exec/exec_state.h"
#include "engine/request/request.h"
#include "engine/shard.h"

static struct status attach_invalid(const char *field, const char *detail)
{
	return (struct status){ .code = DSEC_INVALID,
				.blame = DSEC_BLAME_CALLER,
				.error = EINVAL,
				.table = "attach",
				.step = field,
				.detail = detail };
}

struct status exec_absent(const struct sandbox *sandbox, uint64_t number)
{
	bool was = number && number < sandbox->exec_next;

	return (struct status){ .code = DSEC_ABSENT,
				.blame = DSEC_BLAME_CALLER,
				.error = was ? ESTALE : ENOENT,
				.table = "request",
				.step = "exec",
				.detail = was ? "it is over, and no longer kept" :
						"the sandbox had no such exec" };
}

struct status exec_attach(struct exec *exec, struct part *part, const uint64_t at[EXEC_STREAMS],
			  uint64_t window_bytes)
{
	struct reader *reader;
	uint64_t from[EXEC_STREAMS];

	for (int i = 0; i < EXEC_STREAMS; i++) {
		uint64_t total = exec->streams[i].capture.total;

		from[i] = at[i] == UINT64_MAX ? total : at[i];
		if (from[i] > total)
			return attach_invalid("at", "beyond what it wrote so far");
	}
	reader = calloc(1, sizeof *reader);
	if (!reader)
		return status_of_errno(-ENOMEM, "attach", "reader");
	*reader = (struct reader){ .part = part, .exec = exec, .follows = true };
	if (part->request->entry.op == DSEC_OP_ATTACH)
		reader->follows = !(part->request->body.attach.flags & DSEC_ATTACH_SO_FAR);
	else
		reader->replays = exec->over;
	part->work = reader;
	if (exec->started)
		reader_tell_started(reader);
	reader_begin(exec, reader, from, window_bytes);
	return STATUS_OK;
}

void attach_part(struct part *part)
{
	const struct dsec_ring_request *entry = &part->request->entry;
	const struct dsec_wire_attach *wish = &part->request->body.attach;
	struct sandbox *sandbox = sandbox_of(part);
	struct exec *exec = sandbox ? exec_find(sandbox, entry->exec) : NULL;
	struct status s;

	if (wish->flags & ~(uint32_t)DSEC_ATTACH_SO_FAR)
		s = attach_invalid("flags", "unknown flag");
	else if (!wire_is_zero(wish->reserved, sizeof wish->reserved))
		s = attach_invalid("reserved", NULL);
	else if (!sandbox || sandbox->state != DSEC_STATE_RUNNING)
		s = status_absent();
	else if (!exec)
		s = exec_absent(sandbox, entry->exec);
	else
		s = exec_attach(exec, part, wish->at, wish->window_bytes);
	if (s.code)
		part_end(part, &s, NULL);
}
