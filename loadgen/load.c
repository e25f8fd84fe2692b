/*
 * Owns the load loop: tasks, phases, and the account of every unit. Called by main and, on a mock
 * of dsec.h, by the unit tests. Must hold: each unit that was asked for ends exactly once as done,
 * refused or failed, and a sandbox that was made is asked to go whatever went wrong with its unit.
 */
#include "loadgen/load.h"

#include "loadgen/clock.h"
#include "loadgen/histogram.h"
#include "loadgen/request.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	EVENTS_A_TURN = 64,
	FAILURES_MAX = 1000, /* then it is given up */
	SILENCE_S_MAX = 90,  /* without an event while requests are under way */
	LATE_S_MAX = 60,     /* for units of an open loop that could not start in time */
	PROGRESS_MS = 250,
};

struct held {
	struct dsec_id id;
	uint64_t number; /* which unit made it */
	bool is_counted, has_failed;
};

struct task {
	struct request request;
	struct held held; /* its sandbox; number: of the unit */
	uint64_t intended_ns;
	uint32_t at; /* in the phase's ops */
	bool is_refused;
};

struct load {
	struct requester requester;
	const struct load_options *options;
	const struct load_hooks *hooks;
	struct load_result *result;
	const struct load_phase *phase;

	struct task *tasks;
	uint32_t *idle, *stalled, *parked; /* indices of tasks */
	uint32_t idle_count, stalled_count, parked_count, busy_count;
	struct held *held;
	uint64_t held_count, held_wanted;

	uint64_t started; /* units of this phase */
	uint64_t begin_ns, end_ns, next_intended_ns, backoff_ns;
	uint64_t event_ns, progress_ns;
	bool is_begun, is_ended, has_peaked;
	bool has_given_up; /* too much failed: only what is under way or held is finished */
	int error;
};

/* ---- units ---- */

static void trouble_note(struct load *load, const char *trouble)
{
	if (!load->result->trouble[0])
		snprintf(load->result->trouble, LOAD_TROUBLE_BYTES, "%s", trouble);
}

static void unit_count(struct load *load, struct held *unit)
{
	if (!unit->is_counted)
		load->result->asked++;
	unit->is_counted = true;
}

static void unit_fail(struct load *load, struct task *task, const char *trouble)
{
	unit_count(load, &task->held);
	if (!task->held.has_failed)
		load->result->failed++;
	task->held.has_failed = true;
	trouble_note(load, trouble);
}

static bool is_in_window(const struct load *load, uint64_t when_ns)
{
	return when_ns >= load->begin_ns && when_ns < load->end_ns;
}

/* A closed loop is judged by when things ended, an open one by when they were meant to start. */
static bool is_timed(const struct load *load, const struct task *task, uint64_t now_ns)
{
	if (!load->phase->is_measured)
		return false;
	return is_in_window(load, load->options->rate_per_s > 0 ? task->intended_ns : now_ns);
}

static void latency_record(struct load *load, const struct task *task)
{
	uint64_t end_ns = task->request.timed_ns, latency_ns = end_ns - task->intended_ns;
	uint64_t tenth = load->held_wanted / 10;

	if (!is_timed(load, task, end_ns))
		return;
	histogram_record(load->result->latency, latency_ns);
	if (load->phase->pace != LOAD_FILL)
		return;
	if (task->held.number < tenth)
		histogram_record(load->result->latency_first, latency_ns);
	if (task->held.number >= load->held_wanted - tenth)
		histogram_record(load->result->latency_last, latency_ns);
}

static void unit_measure(struct load *load, const struct task *task, uint64_t now_ns)
{
	uint64_t second;

	if (load->phase->is_ending && is_timed(load, task, now_ns))
		histogram_record(load->result->lifecycle, now_ns - task->intended_ns);
	if (!load->phase->is_measured || !is_in_window(load, now_ns))
		return;
	load->result->measured++;
	second = (now_ns - load->begin_ns) / CLOCK_SECOND_NS;
	if (second < LOAD_RATES_MAX)
		load->result->rates[second]++;
}

static void unit_end(struct load *load, struct task *task, uint64_t now_ns)
{
	struct load_result *result = load->result;

	if (task->is_refused && !task->held.has_failed) {
		unit_count(load, &task->held);
		result->refused++;
	} else if (!task->held.has_failed) {
		result->done += load->phase->is_ending && task->held.is_counted;
		unit_measure(load, task, now_ns);
	}
	if (task->request.has_sandbox) {
		/* A unit that is yet to end stays counted; one that ended is over. */
		task->held.is_counted &= !load->phase->is_ending;
		task->held.has_failed &= !load->phase->is_ending;
		load->held[load->held_count++] = task->held;
	}
	load->idle[load->idle_count++] = (uint32_t)(task - load->tasks);
	load->busy_count--;
}

/* ---- the walk through a phase's requests ---- */

static bool is_probed(const struct load *load, const struct task *task)
{
	uint32_t every = load->options->probe_every;

	return every && task->held.number % every == 0 && !task->held.has_failed;
}

static void task_send(struct load *load, struct task *task)
{
	int r = request_send(&load->requester, &task->request);
	if (r == -EAGAIN) {
		load->stalled[load->stalled_count++] = (uint32_t)(task - load->tasks);
	} else if (r < 0) {
		unit_fail(load, task, task->request.trouble);
		load->error = r;
	}
}

/* The next request of the unit, or its end. A unit gone wrong has only its sandbox to lose. */
static void task_go_on(struct load *load, struct task *task, uint64_t now_ns)
{
	struct request *request = &task->request;
	enum load_op op;

	for (;; task->at++) {
		op = task->at < LOAD_OPS_MAX ? load->phase->ops[task->at] : LOAD_END;
		if (op == LOAD_END) {
			unit_end(load, task, now_ns);
			return;
		}
		if (op == LOAD_PROBE && !is_probed(load, task))
			continue;
		if (op != LOAD_CREATE && !request->has_sandbox)
			continue;
		if (op != LOAD_DESTROY && (task->held.has_failed || task->is_refused))
			continue;
		break;
	}
	if (op == LOAD_DESTROY && load->phase->pace == LOAD_TIMED && load->is_ended &&
	    !load->has_peaked && !load->has_given_up) {
		load->parked[load->parked_count++] = (uint32_t)(task - load->tasks);
		return;
	}
	request->op = op;
	request->assertions = 0;
	request->trouble[0] = '\0';
	task_send(load, task);
}

static void unit_begin(struct load *load, uint64_t intended_ns)
{
	struct task *task = &load->tasks[load->idle[--load->idle_count]];
	uint64_t tag = task->request.tag;

	*task = (struct task){ .intended_ns = intended_ns };
	task->request.tag = tag;
	if (load->phase->ops[0] != LOAD_CREATE) {
		task->held = load->held[--load->held_count];
		task->request.sandbox = task->held.id;
		task->request.has_sandbox = true;
	} else {
		task->held.number = load->started;
	}
	load->started++;
	load->busy_count++;
	if (load->phase->is_asking) {
		task->held.is_counted = task->held.has_failed = false;
		unit_count(load, &task->held);
	}
	task_go_on(load, task, intended_ns);
}

static void task_succeed(struct load *load, struct task *task)
{
	struct request *request = &task->request;

	if (request->op == LOAD_CREATE) {
		task->held.id = request->sandbox;
		load->result->created++;
		load->result->reused += request->is_reused;
	} else if (request->op == LOAD_PROBE) {
		load->result->probes++;
		load->result->assertions += request->assertions;
	} else if (request->op == LOAD_DESTROY) {
		request->has_sandbox = false;
		load->result->destroyed++;
	}
	if (request->op == load->phase->timed_op)
		latency_record(load, task);
}

static void event_take(struct load *load, const struct dsec_event *event, uint64_t now_ns)
{
	enum request_verdict verdict;
	struct task *task;

	load->event_ns = now_ns;
	if (event->tag == 0 || event->tag > load->options->in_flight)
		return;
	task = &load->tasks[event->tag - 1];
	verdict = request_take(&task->request, event, now_ns);
	if (verdict == REQUEST_GOING_ON)
		return;
	task->request.ticket = -1;
	if (verdict == REQUEST_OK) {
		task_succeed(load, task);
	} else if (verdict == REQUEST_REFUSED) {
		task->is_refused = true;
		trouble_note(load, task->request.trouble);
		load->backoff_ns = now_ns + task->request.retry_after_ms * CLOCK_MS_NS;
	} else {
		unit_fail(load, task, task->request.trouble);
	}
	/* A sandbox that could not be destroyed is left: `created - destroyed` shows it. */
	if (task->request.op == LOAD_DESTROY && verdict != REQUEST_OK)
		task->request.has_sandbox = false;
	task->at++;
	task_go_on(load, task, now_ns);
}

/* ---- when units start, and when a phase is over ---- */

static uint64_t intended_next(const struct load *load, uint64_t now_ns)
{
	const struct load_options *options = load->options;

	if (load->has_given_up && load->phase->pace != LOAD_EMPTY)
		return UINT64_MAX;
	switch (load->phase->pace) {
	case LOAD_FILL:
		return load->started < load->held_wanted ? now_ns : UINT64_MAX;
	case LOAD_EMPTY:
		return load->held_count ? now_ns : UINT64_MAX;
	case LOAD_TIMED:
		break;
	}
	if (load->phase->ops[0] != LOAD_CREATE && !load->held_count)
		return UINT64_MAX;
	if (options->rate_per_s > 0)
		return load->next_intended_ns < load->end_ns ? load->next_intended_ns : UINT64_MAX;
	if (load->is_ended)
		return UINT64_MAX;
	return load->backoff_ns > now_ns ? load->backoff_ns : now_ns;
}

static void units_start(struct load *load, uint64_t now_ns)
{
	while (load->idle_count && !load->error) {
		uint64_t intended_ns = intended_next(load, now_ns);

		if (intended_ns > now_ns)
			return;
		if (load->phase->pace == LOAD_TIMED && load->options->rate_per_s > 0)
			load->next_intended_ns += (uint64_t)(1e9 / load->options->rate_per_s + 0.5);
		unit_begin(load, intended_ns);
	}
}

/*
 * When the measured time is over, sandboxes are kept until nothing but them is left; then whoever
 * counts what lives (hooks->peak) has something to see. If it would see none, one more is made.
 */
static void peak_show(struct load *load, uint64_t now_ns)
{
	if (load->busy_count > load->parked_count || load->error)
		return;
	if (load->phase->ops[0] == LOAD_CREATE && !load->parked_count && load->idle_count &&
	    !load->has_given_up) {
		unit_begin(load, now_ns);
		return;
	}
	if (load->parked_count)
		load->error = load->hooks->peak(load->hooks->context, load->parked_count);
	load->has_peaked = true;
	load->event_ns = clock_now_ns();
	while (load->parked_count)
		task_go_on(load, &load->tasks[load->parked[--load->parked_count]], now_ns);
}

/* Units of an open loop whose time has come and gone are asked for, late; but not for ever. */
static void units_give_up(struct load *load, uint64_t now_ns)
{
	if (load->options->rate_per_s <= 0 || now_ns < load->end_ns + LATE_S_MAX * CLOCK_SECOND_NS)
		return;
	while (load->next_intended_ns < load->end_ns) {
		load->next_intended_ns += (uint64_t)(1e9 / load->options->rate_per_s + 0.5);
		load->result->asked++;
		load->result->failed++;
		trouble_note(load, "open loop: units could not start within a minute of the end");
	}
}

static void time_mark(struct load *load, uint64_t now_ns)
{
	const struct load_hooks *hooks = load->hooks;
	double share = 0;

	if (!load->is_begun && now_ns >= load->begin_ns && load->phase->is_measured) {
		load->is_begun = true;
		hooks->measure_begin(hooks->context);
	}
	if (load->phase->pace == LOAD_TIMED && !load->is_ended && now_ns >= load->end_ns) {
		load->is_ended = true;
		load->result->duration_ns = load->end_ns - load->begin_ns;
		hooks->measure_end(hooks->context);
	}
	if (now_ns < load->progress_ns)
		return;
	load->progress_ns = now_ns + PROGRESS_MS * CLOCK_MS_NS;
	if (load->phase->pace == LOAD_TIMED)
		share = (double)(now_ns - load->begin_ns) / (double)(load->end_ns - load->begin_ns);
	else if (load->held_wanted)
		share = (double)load->held_count / (double)load->held_wanted;
	if (now_ns >= load->begin_ns)
		hooks->progress(hooks->context, load->options->scenario->name,
				load->result->measured, share);
}

static bool phase_is_over(const struct load *load)
{
	if (load->busy_count || intended_next(load, 0) != UINT64_MAX)
		return false;
	return load->phase->pace != LOAD_TIMED || load->has_given_up ||
	       (load->is_ended && load->has_peaked);
}

/* ---- the loop ---- */

static int events_fetch(struct load *load, uint64_t now_ns)
{
	struct dsec_event *events[EVENTS_A_TURN];
	uint64_t until_ns = load->progress_ns, next_ns;
	int count, timeout_ms = 0;

	if (load->phase->pace == LOAD_TIMED && !load->is_ended && load->end_ns < until_ns)
		until_ns = load->end_ns;
	next_ns = load->idle_count ? intended_next(load, now_ns) : UINT64_MAX;
	if (next_ns < until_ns)
		until_ns = next_ns;
	/* An open loop needs better than milliseconds; then the descriptor is waited for below. */
	if (until_ns > now_ns && load->options->rate_per_s <= 0)
		timeout_ms = (int)((until_ns - now_ns + CLOCK_MS_NS - 1) / CLOCK_MS_NS);
	count = dsec_queue_poll(load->requester.queue, events, EVENTS_A_TURN, timeout_ms);
	if (count < 0)
		return count;
	if (count == 0 && timeout_ms == 0) {
		clock_wait_readable(dsec_queue_fd(load->requester.queue), until_ns);
		return 0;
	}
	now_ns = clock_now_ns();
	for (int i = 0; i < count; i++) {
		event_take(load, events[i], now_ns);
		dsec_event_free(events[i]);
	}
	return 0;
}

static void stalled_retry(struct load *load)
{
	uint32_t count = load->stalled_count;

	load->stalled_count = 0;
	for (uint32_t i = 0; i < count; i++)
		task_send(load, &load->tasks[load->stalled[i]]);
}

static void phase_begin(struct load *load, const struct load_phase *phase)
{
	const struct load_options *options = load->options;
	uint64_t now_ns = clock_now_ns();

	load->phase = phase;
	load->started = 0;
	load->is_begun = load->is_ended = load->has_peaked = false;
	load->backoff_ns = 0;
	load->event_ns = load->begin_ns = load->progress_ns = now_ns;
	load->end_ns = UINT64_MAX;
	if (phase->pace != LOAD_TIMED)
		return;
	load->next_intended_ns = now_ns;
	load->begin_ns += (uint64_t)(options->warmup_seconds * 1e9);
	load->end_ns = load->begin_ns + (uint64_t)(options->seconds * 1e9);
}

static void phase_end(struct load *load)
{
	const struct load_hooks *hooks = load->hooks;

	if (load->phase->pace != LOAD_FILL)
		return;
	if (load->phase->is_measured) {
		load->result->duration_ns = clock_now_ns() - load->begin_ns;
		hooks->measure_end(hooks->context);
	}
	if (!load->error && load->held_count)
		load->error = hooks->peak(hooks->context, load->held_count);
}

static void phase_run(struct load *load, const struct load_phase *phase)
{
	phase_begin(load, phase);
	while (!load->error) {
		uint64_t now_ns = clock_now_ns();
		int r;

		time_mark(load, now_ns);
		units_start(load, now_ns);
		if (load->is_ended && !load->has_peaked)
			peak_show(load, now_ns);
		if (load->is_ended)
			units_give_up(load, now_ns);
		if (load->error || phase_is_over(load))
			break;
		r = events_fetch(load, now_ns);
		if (r < 0)
			load->error = r;
		stalled_retry(load);
		if (load->busy_count && now_ns > load->event_ns + SILENCE_S_MAX * CLOCK_SECOND_NS)
			load->error = -ETIMEDOUT;
		if (load->result->failed >= FAILURES_MAX)
			load->has_given_up = true;
	}
	phase_end(load);
}

/* What was under way when it could not go on has failed; what is held was never seen to go. */
static void rest_fail(struct load *load)
{
	struct load_result *result = load->result;
	uint64_t open = result->asked - result->done - result->refused - result->failed;

	if (!load->error)
		return;
	result->failed += open;
	if (!result->trouble[0])
		snprintf(result->trouble, LOAD_TROUBLE_BYTES, "given up: %s",
			 strerror(-load->error));
}

static int load_alloc(struct load *load)
{
	const struct load_options *options = load->options;
	uint32_t tasks = options->in_flight;

	load->held_wanted = options->scenario->is_holding ? options->count : tasks;
	load->tasks = calloc(tasks, sizeof(*load->tasks));
	load->idle = calloc(tasks, sizeof(*load->idle));
	load->stalled = calloc(tasks, sizeof(*load->stalled));
	load->parked = calloc(tasks, sizeof(*load->parked));
	load->held = calloc(load->held_wanted + tasks, sizeof(*load->held));
	if (!load->tasks || !load->idle || !load->stalled || !load->parked || !load->held)
		return -ENOMEM;
	for (uint32_t i = 0; i < tasks; i++) {
		load->tasks[i].request.tag = i + 1;
		load->idle[i] = tasks - 1 - i;
	}
	load->idle_count = tasks;
	return 0;
}

static void load_free(struct load *load)
{
	requester_done(&load->requester);
	free(load->tasks);
	free(load->idle);
	free(load->stalled);
	free(load->parked);
	free(load->held);
}

int load_run(struct dsec *d, const struct load_options *options, const struct load_hooks *hooks,
	     struct load_result *result)
{
	struct load load = { .options = options, .hooks = hooks, .result = result };

	load.error = requester_init(&load.requester, d, options);
	if (!load.error)
		load.error = load_alloc(&load);
	for (uint32_t i = 0; i < options->scenario->phase_count && !load.error; i++)
		phase_run(&load, &options->scenario->phases[i]);
	if (load.has_given_up && !load.error)
		load.error = -ECANCELED;
	rest_fail(&load);
	load_free(&load);
	return load.error;
}
