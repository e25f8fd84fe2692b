/*
 * Functions and calls over libdsec. Called by tests. Whatever the library itself refuses is a noted
 * failure.
 */
#include "tests/root/engine/call_client.h"

#include <stdlib.h>
#include <string.h>

#include "engine/base/cleanup.h"
#include "tests/root/engine/engine_client.h"
#include "tests/root/engine/engine_harness.h"

struct dsec_status function_try(struct dsec *d, const struct dsec_function_opts *opts,
				struct dsec_id *ret_id)
{
	struct dsec_status status = { .code = DSEC_LOST };
	int64_t ticket = dsec_function(d, NULL, opts);
	struct dsec_event *event = NULL;

	if (!expect(ticket >= 0)) {
		note("function: %s", dsec_error(d, ticket));
		return status;
	}
	if (!expect(dsec_wait(d, ticket, -1, &event) == 0))
		return status;
	status = event->status;
	expect(event->flags & DSEC_LAST);
	if (ret_id)
		*ret_id = event->subject;
	dsec_event_free(event);
	return status;
}

struct dsec_id function_of(struct dsec *d, const char *name, const char *script,
			   const struct dsec_function_opts *opts)
{
	const struct dsec_bytes argv[] = { { "/bin/sh", 7 },
					   { "-c", 2 },
					   { script, script ? strlen(script) : 0 } };
	struct dsec_function_opts all = opts ? *opts : (struct dsec_function_opts){ 0 };
	struct dsec_id id = { 0 };
	struct dsec_status status;

	all.size = sizeof all;
	all.verb = DSEC_FUNCTION_REGISTER;
	all.name = name;
	all.image = "test";
	if (!all.argv) {
		all.argv = argv;
		all.argc = 3;
	}
	status = function_try(d, &all, &id);
	if (!expect(status.code == DSEC_OK))
		note("%s: %s at %s (%d)", name, status.detail, status.step, status.error);
	return id;
}

struct dsec_status function_end(struct dsec *d, struct dsec_id id)
{
	const struct dsec_function_opts opts = { .size = sizeof opts,
						 .verb = DSEC_FUNCTION_REMOVE,
						 .id = id };

	return function_try(d, &opts, NULL);
}

/* ---- calls ---- */

static void called_write(struct called *called, const struct dsec_event *event)
{
	size_t *count = &called->counts[event->stream - 1];
	char **bytes = &called->bytes[event->stream - 1];
	char *grown = realloc(*bytes, *count + event->bytes + 1);

	if (!expect(grown) || !expect(event->offset == *count))
		return;
	*bytes = grown;
	memcpy(grown + *count, event->data, event->bytes);
	*count += event->bytes;
	grown[*count] = 0;
}

int64_t calls_start(struct dsec *d, struct dsec_id id, const struct dsec_bytes *inputs,
		    uint32_t count)
{
	int64_t ticket = dsec_invoke(d, NULL, id, inputs, count);

	if (!expect(ticket >= 0))
		note("invoke: %s", dsec_error(d, ticket));
	return ticket;
}

static void calls_take(struct calls *calls, const struct dsec_event *event)
{
	struct called *called = &calls->all[event->index];

	if (!expect(event->index < calls->count))
		return;
	if (event->kind == DSEC_EV_DATA) {
		expect(!called->times);
		called_write(called, event);
	} else if (event->kind == DSEC_EV_GAP) {
		expect(event->offset == called->counts[event->stream - 1]);
		called->missing += event->bytes;
	} else if (event->kind == DSEC_EV_DONE && !(event->flags & DSEC_LAST && calls->count > 1)) {
		called->times++;
		called->is_replayed = event->flags & DSEC_REPLAYED;
		called->status = event->status;
		if (event->body)
			called->result = *(const struct dsec_called *)event->body;
	}
}

struct calls calls_wait(struct dsec *d, int64_t ticket, uint32_t count)
{
	struct calls calls = { .all = calloc(count, sizeof *calls.all), .count = count };
	double begun_ms = clock_ms();

	while (ticket >= 0 && expect(calls.all) && !calls.lasts) {
		struct dsec_event *event = NULL;

		if (!expect(dsec_wait(d, ticket, -1, &event) == 0))
			break;
		calls_take(&calls, event);
		if (event->kind == DSEC_EV_DONE && event->index < count)
			calls.all[event->index].ms = clock_ms() - begun_ms;
		if (event->flags & DSEC_LAST) {
			calls.last = event->status;
			calls.lasts++;
		}
		dsec_event_free(event);
	}
	return calls;
}

struct calls calls_ask(struct dsec *d, const struct dsec_call *call, struct dsec_id id,
		       const struct dsec_bytes *inputs, uint32_t count)
{
	return calls_wait(d, dsec_invoke(d, call, id, inputs, count), count);
}

struct calls calls_run(struct dsec *d, struct dsec_id id, const struct dsec_bytes *inputs,
		       uint32_t count)
{
	return calls_wait(d, calls_start(d, id, inputs, count), count);
}

struct called call_run(struct dsec *d, struct dsec_id id, const char *input)
{
	const struct dsec_bytes bytes = { input, strlen(input) };
	struct calls calls = calls_run(d, id, &bytes, 1);
	struct called called = { 0 };

	if (calls.all)
		called = calls.all[0];
	free(calls.all);
	return called;
}

void called_done(struct called *called)
{
	free(called->bytes[0]);
	free(called->bytes[1]);
}

void calls_done(struct calls *calls)
{
	for (uint32_t i = 0; calls->all && i < calls->count; i++)
		called_done(&calls->all[i]);
	free(calls->all);
}

bool called_is(const struct called *called, uint32_t verdict)
{
	const struct dsec_called *r = &called->result;

	if (r->size && r->verdict == verdict)
		return true;
	note("verdict %u, not %u: reason %u exit %d signal %d cpu %llu wall %llu us; status %u %s"
	     " (%d) %s; stderr: %.200s",
	     r->verdict, verdict, r->reason, r->exit_code, r->signal, (unsigned long long)r->cpu_us,
	     (unsigned long long)r->wall_us, called->status.code, called->status.step,
	     called->status.error, called->status.detail, called->bytes[1] ? called->bytes[1] : "");
	return false;
}

bool called_says(const struct called *called, const char *text)
{
	const char *bytes = called->bytes[0] ? called->bytes[0] : "";

	if (!called_is(called, DSEC_VERDICT_OK))
		return false;
	if (called->counts[0] == strlen(text) && !strcmp(bytes, text))
		return true;
	note("it says \"%.200s\", not \"%.200s\"", bytes, text);
	return false;
}
