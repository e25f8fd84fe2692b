/*
 * Requests over libdsec for engine tests. Called by claims. Every ticket is waited for to its LAST,
 * so that a request that never ends is a claim that takes too long.
 */
#include "tests/root/engine/engine_client.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/root/engine/engine_harness.h"

double clock_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

struct dsec_call call_now(void)
{
	struct dsec_call call = { .size = sizeof call };
	struct timespec now;
	uint64_t ms;

	(void)clock_gettime(CLOCK_REALTIME, &now);
	ms = (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
	for (int i = 0; i < 6; i++)
		call.request_id[i] = (uint8_t)(ms >> (40 - 8 * i));
	call.request_id[6] = 0x70;
	call.request_id[9] = (uint8_t)now.tv_nsec;
	call.request_id[15] = 3;
	return call;
}

static struct dsec_bytes bytes_of(const char *text)
{
	return (struct dsec_bytes){ text, strlen(text) };
}

/* ---- commands ---- */

int64_t command_try(struct dsec *d, struct dsec_id id, const struct command *c,
		    const struct dsec_call *call)
{
	struct dsec_bytes argv[COMMAND_WORDS_MAX], env[COMMAND_WORDS_MAX];
	struct dsec_exec_opts opts = {
		.size = sizeof opts,
		.flags = c->flags,
		.argv = argv,
		.env = env,
		.cwd = c->cwd,
		.user = c->user,
		.input = { c->input, c->input_bytes },
		.timeout_ms = c->timeout_ms ? c->timeout_ms : 60000,
		.head_bytes = c->head_bytes,
		.tail_bytes = c->tail_bytes,
		.window_bytes = c->window_bytes,
		.idle_timeout_ms = c->idle_timeout_ms,
		.output_limit_bytes = c->output_limit_bytes,
		.kill_after_ms = c->kill_after_ms,
		.phase = c->phase,
	};

	if (!(c->flags & (DSEC_EXEC_STREAM | DSEC_EXEC_DETACH)))
		opts.flags |= DSEC_EXEC_CAPTURE;
	while (c->argv[opts.argc]) {
		argv[opts.argc] = bytes_of(c->argv[opts.argc]);
		opts.argc++;
	}
	while (c->env[opts.env_count]) {
		env[opts.env_count] = bytes_of(c->env[opts.env_count]);
		opts.env_count++;
	}
	return dsec_exec(d, call, id, &opts);
}

int64_t command_start(struct dsec *d, struct dsec_id id, const struct command *c,
		      const struct dsec_call *call)
{
	int64_t ticket = command_try(d, id, c, call);

	if (!expect(ticket >= 0))
		note("exec: %s", dsec_error(d, ticket));
	return ticket;
}

struct ran command_wait(struct dsec *d, int64_t ticket)
{
	struct ran ran = { 0 };
	struct dsec_event *event;
	int r;

	while (ticket >= 0 && !ran.event) {
		r = dsec_wait(d, ticket, -1, &event);
		if (!expect(r == 0)) {
			note("wait: %s", dsec_error(d, r));
			return ran;
		}
		ran.started |= event->kind == DSEC_EV_STARTED;
		if (event->flags & DSEC_LAST)
			ran.event = event;
		else
			dsec_event_free(event);
	}
	if (ran.event) {
		ran.status = ran.event->status;
		ran.result = ran.event->body;
	}
	return ran;
}

struct ran command_run(struct dsec *d, struct dsec_id id, const struct command *c)
{
	struct dsec_call call = { .size = sizeof call, .timeout_ms = c->call_timeout_ms };
	double begun_ms = clock_ms();
	struct ran ran = command_wait(d, command_start(d, id, c, &call));

	ran.ms = clock_ms() - begun_ms;
	return ran;
}

struct ran shell_run(struct dsec *d, struct dsec_id id, const char *script)
{
	const struct command c = SH(script);

	return command_run(d, id, &c);
}

void ran_done(struct ran *ran)
{
	dsec_event_free(ran->event);
	*ran = (struct ran){ 0 };
}

const struct dsec_output *ran_output(const struct ran *ran, uint32_t stream)
{
	for (uint32_t i = 0; ran->result && i < ran->result->output_count; i++)
		if (ran->result->outputs[i].stream == stream)
			return &ran->result->outputs[i];
	return NULL;
}

bool ran_wrote(const struct ran *ran, uint32_t stream, const void *bytes, size_t count)
{
	const struct dsec_output *output = ran_output(ran, stream);

	if (!output || output->truncated || output->total_bytes != count ||
	    output->head.bytes + output->tail.bytes != count)
		return false;
	return (!output->head.bytes || !memcmp(output->head.data, bytes, output->head.bytes)) &&
	       (!output->tail.bytes ||
		!memcmp(output->tail.data, (const char *)bytes + output->head.bytes,
			output->tail.bytes));
}

bool ran_exited(const struct ran *ran, int code)
{
	if (ran->status.code == DSEC_OK && ran->result && ran->result->reason == DSEC_EXIT &&
	    ran->result->exit_code == code)
		return true;
	ran_note(ran);
	return false;
}

bool ran_says(const struct ran *ran, const char *text)
{
	if (!ran_exited(ran, 0))
		return false;
	if (ran_wrote(ran, 1, text, strlen(text)))
		return true;
	ran_note(ran);
	return false;
}

static void output_note(const struct ran *ran, uint32_t stream)
{
	const struct dsec_output *output = ran_output(ran, stream);

	if (output && output->total_bytes)
		note("stream %u, %llu bytes: %.*s%.*s", stream,
		     (unsigned long long)output->total_bytes,
		     (int)(output->head.bytes < 600 ? output->head.bytes : 600),
		     output->head.bytes ? (const char *)output->head.data : "",
		     (int)(output->tail.bytes < 200 ? output->tail.bytes : 200),
		     output->tail.bytes ? (const char *)output->tail.data : "");
}

void ran_note(const struct ran *ran)
{
	note("status %u blame %u error %d at \"%s\" %s", ran->status.code, ran->status.blame,
	     ran->status.error, ran->status.step, ran->status.detail);
	if (!ran->result)
		return;
	note("reason %u exit %d signal %d, %.1f ms", ran->result->reason, ran->result->exit_code,
	     ran->result->signal, ran->ms);
	output_note(ran, 1);
	output_note(ran, 2);
}

/* ---- sandboxes ---- */

struct dsec_create_opts create_opts(uint32_t count)
{
	return (struct dsec_create_opts){
		.size = sizeof(struct dsec_create_opts),
		.count = count,
		.image = "test",
		.flags = DSEC_CREATE_ALLOW_DEGRADED,
	};
}

int64_t create_start(struct dsec *d, const struct dsec_create_opts *opts,
		     const struct dsec_call *call)
{
	int64_t ticket = dsec_create(d, call, opts);

	if (!expect(ticket >= 0))
		note("create: %s", dsec_error(d, ticket));
	return ticket;
}

static void made_count(struct made *made, const struct dsec_event *event)
{
	const struct dsec_created *body = event->body;
	const struct dsec_status *status = &event->status;

	if (status->code == DSEC_OK) {
		if (made->created < made->ids_max)
			made->ids[made->created] = event->subject;
		made->created++;
		made->reused += body && body->reused;
		return;
	}
	if (!made->trouble.code)
		made->trouble = *status;
	if (status->code != DSEC_REFUSED) {
		made->failed++;
		return;
	}
	if (!made->refused || made->retry_ms_min > status->retry_after_ms)
		made->retry_ms_min = status->retry_after_ms;
	made->refused++;
}

struct made create_wait(struct dsec *d, int64_t ticket, uint32_t count)
{
	struct made made = { .asked = count, .ids_max = count };
	struct dsec_event *event;
	bool is_last = ticket < 0;

	made.ids = calloc(count, sizeof *made.ids);
	while (!is_last) {
		if (!expect(dsec_wait(d, ticket, -1, &event) == 0))
			break;
		if (event->kind == DSEC_EV_CREATED)
			made_count(&made, event);
		is_last = event->flags & DSEC_LAST;
		if (is_last)
			made.last = event->status;
		dsec_event_free(event);
	}
	return made;
}

struct made create_run(struct dsec *d, const struct dsec_create_opts *opts)
{
	return create_wait(d, create_start(d, opts, NULL), opts->count ? opts->count : 1);
}

void made_done(struct made *made)
{
	free(made->ids);
	made->ids = NULL;
}

struct dsec_id one_make(struct dsec *d, const struct dsec_create_opts *opts)
{
	auto_made struct made made = create_run(d, opts);

	if (expect(made.created == 1))
		return made.ids[0];
	note("create: code %u error %d at \"%s\" %s; last %u at \"%s\" %s", made.trouble.code,
	     made.trouble.error, made.trouble.step, made.trouble.detail, made.last.code,
	     made.last.step, made.last.detail);
	return (struct dsec_id){ 0, 0 };
}

struct dsec_id sandbox_make(struct dsec *d)
{
	struct dsec_create_opts opts = create_opts(1);

	return one_make(d, &opts);
}

struct dsec_status ticket_end(struct dsec *d, int64_t ticket)
{
	struct dsec_status status = { .code = DSEC_LOST };
	struct dsec_event *event;
	bool is_last = false;

	if (!expect(ticket >= 0))
		note("%s", dsec_error(d, ticket));
	while (ticket >= 0 && !is_last) {
		if (!expect(dsec_wait(d, ticket, -1, &event) == 0))
			break;
		is_last = event->flags & DSEC_LAST;
		status = event->status;
		dsec_event_free(event);
	}
	return status;
}

struct dsec_status sandboxes_end(struct dsec *d, const struct dsec_id *ids, uint32_t count)
{
	struct dsec_select select = { .size = sizeof select, .count = count, .ids = ids };

	return ticket_end(d, dsec_destroy(d, NULL, &select));
}

struct dsec_id networked_make(struct dsec *d, uint32_t network)
{
	struct dsec_create_opts opts = create_opts(1);

	opts.network = network;
	return one_make(d, &opts);
}

void sandbox_end(struct dsec *d, struct dsec_id id)
{
	struct dsec_status status = sandboxes_end(d, &id, 1);

	if (!expect(status.code == DSEC_OK))
		note("destroy: code %u at \"%s\" %s", status.code, status.step, status.detail);
}

bool holdings_are_none(const struct dsec_holdings *h)
{
	return !h->sandboxes && !h->execs && !h->execs_kept && !h->execs_undying && !h->files &&
	       !h->forwards && !h->inbounds && !h->port_waits && !h->imports && !h->sinks &&
	       !h->subscriptions && !h->quarantined && !h->slots_quarantined && !h->networks_ending;
}

struct dsec_holdings holdings_now(struct dsec *d)
{
	struct dsec_holdings holdings = { 0 };
	struct dsec_event *event;
	int64_t ticket = dsec_check(d, NULL);

	if (ticket < 0 || dsec_wait(d, ticket, -1, &event) < 0)
		return holdings;
	if (event->body)
		holdings = *(const struct dsec_holdings *)event->body;
	dsec_event_free(event);
	return holdings;
}

struct listing {
	const struct dsec_id *wanted; /* NULL: all */
	struct dsec_id *ids;	      /* NULL: not asked for */
	uint32_t ids_max, rows;
};

static void list_walk(struct dsec *d, struct listing *listing)
{
	const struct dsec_id *wanted = listing->wanted;
	struct dsec_event *event;
	int64_t ticket = dsec_list(d, NULL, NULL);
	bool is_last = ticket < 0;

	while (!is_last && expect(dsec_wait(d, ticket, -1, &event) == 0)) {
		const struct dsec_row *row = event->kind == DSEC_EV_ROW ? event->body : NULL;

		if (row && (!wanted || (row->id.lo == wanted->lo && row->id.hi == wanted->hi))) {
			if (listing->rows < listing->ids_max)
				listing->ids[listing->rows] = row->id;
			listing->rows++;
		}
		is_last = event->flags & DSEC_LAST;
		dsec_event_free(event);
	}
}

uint32_t list_count(struct dsec *d)
{
	struct listing listing = { 0 };

	list_walk(d, &listing);
	return listing.rows;
}

bool list_has(struct dsec *d, struct dsec_id id)
{
	struct listing listing = { .wanted = &id };

	list_walk(d, &listing);
	return listing.rows == 1;
}

void list_destroy(struct dsec *d)
{
	struct dsec_id ids[64];
	struct listing listing = { .ids = ids, .ids_max = 64 };

	list_walk(d, &listing);
	if (listing.rows)
		expect(sandboxes_end(d, ids, listing.rows < 64 ? listing.rows : 64).code ==
		       DSEC_OK);
}

uint32_t policy_load(struct dsec *d, const char *document)
{
	const struct dsec_policy_opts opts = { .size = sizeof opts,
					       .verb = DSEC_POLICY_LOAD,
					       .document = { document, strlen(document) } };
	int64_t ticket = dsec_policy(d, NULL, &opts);
	struct dsec_status status = ticket_end(d, ticket);

	if (status.code)
		note("policy: %s", status.detail);
	return status.code;
}

void policies_remove(struct dsec *d, const char *const *names)
{
	for (; *names; names++) {
		const struct dsec_policy_opts opts = { .size = sizeof opts,
						       .verb = DSEC_POLICY_REMOVE,
						       .name = *names };

		expect(ticket_end(d, dsec_policy(d, NULL, &opts)).code == DSEC_OK);
	}
}
