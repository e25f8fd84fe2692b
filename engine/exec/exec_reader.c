/*
 * Readers of an exec's streams. Called by exec_stream.c when bytes came, by request.c for credit,
 * input and cancels, and by whoever begins or ends one. Always true: each gets every byte from its
 * offset on, or a GAP with the exact number of those that are gone; one that does not read holds
 * back the program, where it is the only one, and never another reader.
 */
#include "engine/exec/exec_reader.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "engine/exec/exec_state.h"
#include "engine/request/request.h"
#include "engine/shard.h"

static struct emission reader_event(const struct reader *reader, uint16_t kind, int i)
{
	return (struct emission){
		.kind = kind,
		.subject = reader->exec->sandbox->id,
		.exec = reader->exec->number,
		.stream = (uint16_t)(i + 1),
		.offset = reader->windows[i].sent,
	};
}

void reader_tell_started(struct reader *reader)
{
	struct emission e = { .kind = DSEC_EV_STARTED,
			      .flags = sandbox_event_flags(reader->exec->sandbox),
			      .subject = reader->exec->sandbox->id,
			      .exec = reader->exec->number };

	part_emit(reader->part, &e);
}

/* What is gone is not in the way: the window moves on by as much. */
static void reader_gap(struct reader *reader, int i, uint64_t to)
{
	struct window *window = &reader->windows[i];
	struct emission e = reader_event(reader, DSEC_EV_GAP, i);
	uint64_t missing = to - window->sent;

	e.body = &missing;
	e.bytes = sizeof missing;
	part_emit(reader->part, &e);
	window->sent += missing;
	window->consumed += missing;
}

/* As much of a stream as it has and the window takes. True: nothing is left. */
static bool reader_send(struct reader *reader, int i)
{
	const struct capture *capture = &reader->exec->streams[i].capture;
	struct window *window = &reader->windows[i];
	size_t bytes, room;

	while ((room = window_room(window)) && window->sent < capture->total) {
		struct emission e = reader_event(reader, DSEC_EV_DATA, i);
		const char *piece = NULL;

		if (capture_next(capture, window->sent) > window->sent) {
			reader_gap(reader, i, capture_next(capture, window->sent));
			continue;
		}
		bytes = capture_piece(capture, window->sent, &piece);
		if (bytes > room)
			bytes = room;
		if (bytes > EXEC_DATA_BYTES_MAX)
			bytes = EXEC_DATA_BYTES_MAX;
		e.body = piece;
		e.bytes = (uint32_t)bytes;
		part_emit(reader->part, &e);
		window->sent += bytes;
	}
	return window->sent == capture->total;
}

/* Nobody's any more; whoever it held back goes on. */
static void reader_remove(struct reader *reader)
{
	struct exec *exec = reader->exec;

	if (reader->live) {
		*reader->link = reader->next;
		if (reader->next)
			reader->next->link = reader->link;
	}
	reader->live = false;
	reader->part = NULL;
	if (reader != &exec->owner)
		free(reader);
	for (int i = 0; i < EXEC_STREAMS; i++)
		exec_stream_read(&exec->streams[i]);
}

static void reader_end(struct reader *reader)
{
	const struct exec *exec = reader->exec;

	if (exec->over)
		exec_answer(exec, reader->part, reader->replays ? DSEC_EVENT_REPLAYED : 0);
	else
		exec_answer_running(exec, reader->part);
	reader_remove(reader);
}

/* True: it ended. */
static bool reader_pump(struct reader *reader)
{
	bool all = true;

	for (int i = 0; i < EXEC_STREAMS; i++)
		all &= reader_send(reader, i);
	if (!all || (!reader->exec->over && reader->follows))
		return false;
	reader_end(reader);
	return true;
}

void reader_begin(struct exec *exec, struct reader *reader, const uint64_t at[EXEC_STREAMS],
		  uint64_t window_bytes)
{
	reader->exec = exec;
	reader->live = true;
	reader->next = exec->readers;
	reader->link = &exec->readers;
	if (reader->next)
		reader->next->link = &reader->next;
	exec->readers = reader;
	for (int i = 0; i < EXEC_STREAMS; i++) {
		reader->windows[i] = window_at(at[i], window_bytes);
		capture_keep(&exec->streams[i].capture, reader->windows[i].bytes + EXEC_PIPE_BYTES);
	}
	(void)reader_pump(reader); /* or it ended */
}

void readers_pump(struct exec *exec)
{
	struct reader *next;

	for (struct reader *reader = exec->readers; reader; reader = next) {
		next = reader->next;
		(void)reader_pump(reader); /* or it ended */
	}
}

uint64_t readers_room(const struct exec *exec, const struct stream *stream)
{
	uint64_t limit = 0, total = stream->capture.total;
	bool any = false;

	for (const struct reader *reader = exec->readers; reader; reader = reader->next) {
		const struct window *window = &reader->windows[stream - exec->streams];

		if (!reader->follows)
			continue;
		any = true;
		if (window->consumed + window->bytes > limit)
			limit = window->consumed + window->bytes;
	}
	if (!any)
		return UINT64_MAX;
	return limit > total ? limit - total : 0;
}

void reader_finish(struct reader *reader)
{
	const struct exec *exec = reader->exec;

	for (int i = 0; reader->live && i < EXEC_STREAMS; i++)
		if (reader->windows[i].sent < exec->streams[i].capture.total)
			reader_gap(reader, i, exec->streams[i].capture.total);
	reader_end(reader);
}

/* ---- hooks of EXEC and ATTACH ---- */

void reader_input(struct part *part, struct part *input)
{
	struct exec *exec = ((struct reader *)part->work)->exec;
	struct status s = { .code = DSEC_INVALID,
			    .blame = DSEC_BLAME_CALLER,
			    .error = EINVAL,
			    .table = "exec",
			    .step = "input",
			    .detail = "it was not started with an input stream" };

	if (exec->takes_input)
		inlet_add(&exec->inlet, input);
	else
		part_end(input, &s, NULL);
}

int reader_credit(struct part *part, uint32_t stream, uint64_t consumed)
{
	struct reader *reader = part->work;
	struct exec *exec = reader->exec;
	int r;

	if (!reader->live || stream < 1 || stream > EXEC_STREAMS)
		return -EINVAL;
	r = window_credit(&reader->windows[stream - 1], consumed);
	if (r == 0 && !reader_pump(reader))
		exec_stream_read(&exec->streams[stream - 1]);
	return r;
}

void reader_cancel(struct part *part)
{
	struct reader *reader = part->work;
	struct status s = status_of_errno(-ECANCELED, "exec", "cancel");

	if (!reader)
		return;
	part_end(part, &s, NULL);
	reader_remove(reader);
}
