/*
 * Lists of a sandbox's execs: those that run and those that are kept, in order of their numbers.
 * Called by select.c on every shard in turn; only the sandbox's own has any. A row fits the
 * smallest result buffer: arguments and environment are cut to what there is room for.
 */
#include "engine/exec/exec_list.h"

#include <stdlib.h>
#include <string.h>

#include "engine/base/cleanup.h"
#include "engine/exec/exec_state.h"
#include "engine/request/request.h"
#include "engine/shard.h"

enum {
	EXECS_MAX = 256, /* more than leaves and kept ones of a sandbox */
	ROW_BYTES_MAX = DSEC_BUFFER_BYTES_MIN,
	ENV_BYTES_MIN = 1024, /* what long arguments leave to the environment */
};

struct packing {
	char body[ROW_BYTES_MAX];
	uint32_t used;
	bool cut;
};

static const char *strings_skip(const char *at, uint32_t count)
{
	while (count--)
		at += strlen(at) + 1;
	return at;
}

/* As many of `count` strings as fit below `end`. What follows them in the packed strings. */
static const char *row_items(struct packing *p, const char *at, uint32_t count, uint32_t end,
			     struct dsec_wire_items *ret)
{
	*ret = (struct dsec_wire_items){ .at = p->used };
	for (; count; count--) {
		uint32_t bytes = (uint32_t)strlen(at);

		if (end - p->used < sizeof bytes || bytes > end - p->used - sizeof bytes) {
			p->cut = true;
			break;
		}
		memcpy(p->body + p->used, &bytes, sizeof bytes);
		memcpy(p->body + p->used + sizeof bytes, at, bytes);
		p->used += (uint32_t)sizeof bytes + bytes;
		ret->count++;
		at += bytes + 1;
	}
	ret->bytes = p->used - ret->at;
	return strings_skip(at, count);
}

static void row_text(struct packing *p, const char *text, struct dsec_wire_ref *ret)
{
	uint32_t bytes = (uint32_t)strlen(text), room = ROW_BYTES_MAX / 4;

	p->cut |= bytes > room;
	*ret = (struct dsec_wire_ref){ p->used, bytes < room ? bytes : room };
	memcpy(p->body + p->used, text, ret->bytes);
	p->used += ret->bytes;
}

static void row_emit(struct part *part, const struct exec *exec)
{
	uint64_t now_ns = io_now_ns(part->shard->io);
	const char *strings = exec->spec.strings, *environment;
	struct packing p = { .used = sizeof(struct dsec_wire_exec_row) };
	struct dsec_wire_exec_row row = {
		.size = sizeof row,
		.reason = exec->over ? exec->result.reason : DSEC_RUNNING,
		.id = exec->sandbox->id,
		.exec = exec->number,
		.age_ms = (now_ns - exec->begun_ns) / 1000000,
		.wall_us = ((exec->over ? exec->ended_ns : now_ns) - exec->begun_ns) / 1000,
		.exit_code = exec->over ? exec->result.exit_code : -1,
		.signal = exec->result.signal,
		.stdout_bytes = exec->streams[0].capture.total,
		.stderr_bytes = exec->streams[1].capture.total,
	};
	struct emission e = { .kind = DSEC_EV_ROW,
			      .subject = exec->sandbox->id,
			      .exec = exec->number,
			      .index = (uint16_t)part->started++,
			      .body = p.body };

	environment = strings_skip(strings, exec->spec.argument_count);
	row_text(&p, strings_skip(environment, exec->spec.environment_count), &row.cwd);
	row_text(&p, exec->user, &row.user);
	(void)row_items(&p, strings, exec->spec.argument_count, ROW_BYTES_MAX - ENV_BYTES_MIN,
			&row.argv);
	(void)row_items(&p, environment, exec->spec.environment_count, ROW_BYTES_MAX, &row.env);
	row.truncated = p.cut;
	memcpy(p.body, &row, sizeof row);
	e.bytes = p.used;
	part_emit(part, &e);
}

static int number_compare(const void *a, const void *b)
{
	const struct exec *first = *(struct exec *const *)a, *second = *(struct exec *const *)b;

	return first->number < second->number ? -1 : first->number > second->number;
}

static uint32_t execs_gather(const struct exec *execs, uint64_t after, const struct exec **ret,
			     uint32_t count)
{
	for (; execs && count < EXECS_MAX; execs = execs->next)
		if (execs->number > after && execs->spec.strings)
			ret[count++] = execs;
	return count;
}

void exec_list_part(struct part *part, uint64_t after)
{
	struct sandbox *sandbox = sandbox_of(part);
	uint64_t subject = part->request->entry.subject.lo;
	uint32_t limit = part->request->body.list.limit, count;
	const struct exec *execs[EXECS_MAX];
	struct status absent = status_absent();

	if (!sandbox) {
		bool here = subject >> DSEC_ID_SHARD_SHIFT == part->shard->number;

		part_end(part, here ? &absent : NULL, NULL);
		return;
	}
	count = execs_gather(sandbox->execs, after, execs, 0);
	count = execs_gather(sandbox->kept, after, execs, count);
	qsort(execs, count, sizeof *execs, number_compare);
	for (uint32_t i = 0; i < count && (!limit || i < limit); i++)
		row_emit(part, execs[i]);
	part_end(part, NULL, NULL);
}
