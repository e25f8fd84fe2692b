/*
 * Owns a simulated engine: requests become events after the time each takes. Used by the unit tests
 * of the load loop. Must hold: time passes only while the loop waits, so a test is exact.
 */
#include "tests/unit/loadgen/mock.h"

#include "loadgen/clock.h"

#include <dsec/dsec.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PENDING_MAX = 65536 };

struct mock_event {
	struct dsec_event event; /* first: what the loop frees */
	uint64_t due_ns;
	struct dsec_result result;
	struct dsec_output output;
	struct dsec_created created;
	char text[32];
};

struct dsec {
	struct mock_options options;
	struct mock_counts counts;
	uint64_t now_ns;
	int64_t ticket;
	struct mock_event *pending[PENDING_MAX];
	uint32_t pending_count;
};

static struct dsec mock;

struct dsec *mock_begin(const struct mock_options *options)
{
	for (uint32_t i = 0; i < mock.pending_count; i++)
		free(mock.pending[i]);
	memset(&mock, 0, sizeof(mock));
	mock.options = *options;
	return &mock;
}

const struct mock_counts *mock_counts(void)
{
	return &mock.counts;
}

/* ---- time ---- */

uint64_t clock_now_ns(void)
{
	return mock.now_ns;
}

static uint64_t due_next(void)
{
	uint64_t due_ns = UINT64_MAX;

	for (uint32_t i = 0; i < mock.pending_count; i++) {
		if (mock.pending[i]->due_ns < due_ns)
			due_ns = mock.pending[i]->due_ns;
	}
	return due_ns;
}

static void time_pass(uint64_t until_ns)
{
	uint64_t due_ns = due_next();

	if (due_ns < until_ns)
		until_ns = due_ns;
	if (until_ns > mock.now_ns)
		mock.now_ns = until_ns;
}

void clock_wait_readable(int fd, uint64_t until_ns)
{
	(void)fd;
	time_pass(until_ns);
}

/* ---- events ---- */

static struct mock_event *event_add(const struct dsec_call *call, uint64_t takes_ns)
{
	struct mock_event *added = calloc(1, sizeof(*added));
	uint64_t due_ns = mock.now_ns + takes_ns;

	if (!added || mock.pending_count == PENDING_MAX)
		abort();
	if (due_ns >= mock.options.stall_from_ns && due_ns < mock.options.stall_until_ns)
		due_ns = mock.options.stall_until_ns;
	added->due_ns = due_ns;
	added->event.size = sizeof(added->event);
	added->event.ticket = mock.ticket;
	added->event.tag = call->tag;
	added->event.flags = DSEC_LAST;
	mock.pending[mock.pending_count++] = added;
	return added;
}

static bool has_room(void)
{
	if (mock.options.room && mock.pending_count >= mock.options.room) {
		mock.counts.again++;
		return false;
	}
	mock.ticket++;
	if (mock.pending_count + 1 > mock.counts.under_way_max)
		mock.counts.under_way_max = mock.pending_count + 1;
	return true;
}

static bool is_turn(uint64_t count, uint32_t every)
{
	return every && count % every == 0;
}

int dsec_queue_new(struct dsec *d, struct dsec_queue **ret)
{
	*ret = (struct dsec_queue *)d;
	return 0;
}

void dsec_queue_free(struct dsec_queue *q)
{
	(void)q;
}

int dsec_queue_fd(struct dsec_queue *q)
{
	(void)q;
	return -1;
}

int dsec_queue_poll(struct dsec_queue *q, struct dsec_event **ret, int max, int timeout_ms)
{
	int count = 0;

	(void)q;
	if (due_next() > mock.now_ns)
		time_pass(mock.now_ns + (uint64_t)timeout_ms * CLOCK_MS_NS);
	if (mock.options.lost_ns && mock.now_ns >= mock.options.lost_ns)
		return -ENOTCONN;
	/* In the order in which they were asked, like a ring. */
	for (uint32_t i = 0; i < mock.pending_count && count < max;) {
		if (mock.pending[i]->due_ns > mock.now_ns) {
			i++;
			continue;
		}
		ret[count++] = &mock.pending[i]->event;
		mock.pending_count--;
		memmove(&mock.pending[i], &mock.pending[i + 1],
			(mock.pending_count - i) * sizeof(*mock.pending));
	}
	return count;
}

void dsec_event_free(struct dsec_event *e)
{
	free(e);
}

/* ---- requests ---- */

int64_t dsec_create(struct dsec *d, const struct dsec_call *call,
		    const struct dsec_create_opts *opts)
{
	struct mock_event *made, *last;
	bool is_refused;

	(void)opts;
	if (!has_room())
		return -EAGAIN;
	d->counts.creates++;
	is_refused = is_turn(d->counts.creates, d->options.refuse_every) ||
		     (d->options.sandboxes_max && d->counts.live >= d->options.sandboxes_max);
	made = event_add(call, d->options.create_ns);
	made->event.kind = DSEC_EV_CREATED;
	made->event.flags = 0;
	last = event_add(call, d->options.create_ns);
	last->event.kind = DSEC_EV_DONE;
	if (is_refused) {
		made->event.status.code = DSEC_REFUSED;
		made->event.status.retry_after_ms = 10;
		return d->ticket;
	}
	made->event.subject.lo = (uint64_t)d->ticket;
	made->created.size = sizeof(made->created);
	made->created.reused = 1;
	made->event.body = &made->created;
	if (++d->counts.live > d->counts.live_max)
		d->counts.live_max = d->counts.live;
	return d->ticket;
}

static void output_set(struct mock_event *event, const char *text)
{
	snprintf(event->text, sizeof(event->text), "%s", text);
	event->output = (struct dsec_output){ .stream = 1,
					      .total_bytes = strlen(event->text),
					      .head = { event->text, strlen(event->text) } };
	event->result.outputs = &event->output;
	event->result.output_count = 1;
}

int64_t dsec_exec(struct dsec *d, const struct dsec_call *call, struct dsec_id sandbox,
		  const struct dsec_exec_opts *opts)
{
	struct mock_event *done;
	bool is_probe = opts->argc > 1, is_failed;
	char text[32];

	if (!has_room() || !sandbox.lo)
		return sandbox.lo ? -EAGAIN : -EINVAL;
	done = event_add(call, d->options.exec_ns);
	done->event.kind = DSEC_EV_DONE;
	done->event.body = &done->result;
	done->result.size = sizeof(done->result);
	done->result.reason = DSEC_EXIT;
	if (is_probe) {
		is_failed = is_turn(++d->counts.probes, d->options.fail_probe_every);
		snprintf(text, sizeof(text), "asserted %u\n",
			 d->options.assertions ? d->options.assertions : 40);
		output_set(done, is_failed ? "FAILED uid_map\n" : text);
	} else {
		is_failed = is_turn(++d->counts.execs, d->options.fail_exec_every);
	}
	done->result.exit_code = is_failed;
	return d->ticket;
}

int64_t dsec_destroy(struct dsec *d, const struct dsec_call *call, const struct dsec_select *select)
{
	struct mock_event *done;

	if (!has_room())
		return -EAGAIN;
	if (select->count != 1 || !select->ids[0].lo)
		return -EINVAL;
	d->counts.destroys++;
	done = event_add(call, d->options.destroy_ns);
	done->event.kind = DSEC_EV_DONE;
	if (is_turn(d->counts.destroys, d->options.fail_destroy_every))
		done->event.status.code = DSEC_FAILED;
	else
		d->counts.live--;
	return d->ticket;
}

const char *dsec_error(struct dsec *d, int64_t result)
{
	(void)d;
	return strerror((int)-result);
}

/* Not called by the loop; the linker wants them for result.c. */
int64_t dsec_list(struct dsec *d, const struct dsec_call *call, const struct dsec_list_opts *opts)
{
	(void)d;
	(void)call;
	(void)opts;
	return -ENOSYS;
}

int dsec_wait(struct dsec *d, int64_t ticket, int timeout_ms, struct dsec_event **ret)
{
	(void)d;
	(void)ticket;
	(void)timeout_ms;
	(void)ret;
	return -ENOSYS;
}
