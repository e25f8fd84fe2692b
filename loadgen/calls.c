/*
 * Owns the scenarios of calls.h. Called by main. One thread, one queue, a closed loop of
 * `in_flight` tasks; `mixed` has a third of each of fresh calls, calls of a domain and sandboxes.
 * Must hold: every answer is checked, and what was asked is accounted for; latencies are of what
 * ended within the measured time.
 */
#include "loadgen/calls.h"

#include "loadgen/clock.h"
#include "loadgen/histogram.h"
#include "loadgen/row.h"

#include <dsec/dsec.h>

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { EVENTS_A_TURN = 64, CALL_TIMEOUT_MS = 60 * 1000, TROUBLE_BYTES = 256 };

enum work { WORK_NOOP, WORK_FRESH, WORK_DOMAIN, WORK_SANDBOX, WORK_KINDS };

struct task {
	enum work work;
	uint64_t begin_ns;
	int64_t ticket;
	struct dsec_id sandbox; /* that was made, and is to go */
	bool is_destroying, is_good;
	size_t echoed;
};

struct run {
	const struct options *options;
	struct dsec *d;
	struct dsec_queue *queue;
	struct dsec_id functions[WORK_KINDS];
	struct task *tasks;
	uint32_t busy;
	uint64_t begin_ns, end_ns;
	uint64_t asked, done, refused, failed, measured;
	struct histogram *latency;
	uint32_t rate_count; /* whole measured seconds; 0: too many to keep */
	uint32_t rates[LOAD_RATES_MAX];
	char trouble[TROUBLE_BYTES];
	int error;
};

static const char input[] = "0123456789abcdef";

static void trouble_note(struct run *run, const char *what, const struct dsec_status *status)
{
	if (!run->trouble[0])
		snprintf(run->trouble, sizeof(run->trouble), "%s: code %u at %s (%s) %s", what,
			 status->code, status->step, strerror(status->error), status->detail);
}

/* ---- what is asked ---- */

static enum work work_of(const struct run *run, uint32_t task)
{
	switch (run->options->load.scenario->kind) {
	case LOAD_CALL_FRESH:
		return WORK_FRESH;
	case LOAD_CALL_DOMAIN:
		return WORK_DOMAIN;
	case LOAD_MIXED:
		return WORK_FRESH + task % 3;
	default:
		return WORK_NOOP;
	}
}

static int64_t sandbox_ask(struct run *run, const struct dsec_call *call, const struct task *task)
{
	const struct load_options *load = &run->options->load;
	const struct dsec_create_opts opts = { .size = sizeof(opts),
					       .image = load->image,
					       .on_disconnect = DSEC_DISCONNECT_DESTROY };
	const struct dsec_select select = { .size = sizeof(select),
					    .count = 1,
					    .ids = &task->sandbox };

	return task->is_destroying ? dsec_destroy(run->d, call, &select) :
				     dsec_create(run->d, call, &opts);
}

static void task_send(struct run *run, struct task *task)
{
	const struct dsec_call call = { .size = sizeof(call),
					.timeout_ms = CALL_TIMEOUT_MS,
					.flags = DSEC_CALL_ONCE,
					.queue = run->queue,
					.tag = (uint64_t)(task - run->tasks) };
	const struct dsec_bytes bytes = { input, sizeof(input) - 1 };

	if (task->work == WORK_NOOP)
		task->ticket = dsec_ping(run->d, &call);
	else if (task->work == WORK_SANDBOX)
		task->ticket = sandbox_ask(run, &call, task);
	else
		task->ticket = dsec_invoke(run->d, &call, run->functions[task->work], &bytes, 1);
	/* The rings hold what is in flight: no room is a wrong number of tasks, and told. */
	if (task->ticket < 0)
		run->error = (int)task->ticket;
}

static void task_begin(struct run *run, struct task *task, uint64_t now_ns)
{
	task->begin_ns = now_ns;
	task->is_destroying = task->is_good = false;
	task->echoed = 0;
	run->asked++;
	run->busy++;
	task_send(run, task);
}

/* ---- what comes ---- */

static void unit_measure(struct run *run, uint64_t now_ns, uint64_t latency_ns)
{
	uint64_t second = (now_ns - run->begin_ns) / CLOCK_SECOND_NS;

	run->measured++;
	histogram_record(run->latency, latency_ns);
	if (second < run->rate_count)
		run->rates[second]++;
}

static void task_over(struct run *run, struct task *task, const struct dsec_status *status,
		      uint64_t now_ns)
{
	run->busy--;
	if (status->code == DSEC_REFUSED) {
		run->refused++;
	} else if (status->code != DSEC_OK || !task->is_good) {
		run->failed++;
		trouble_note(run, "unit", status);
	} else {
		run->done++;
	}
	if (task->is_good && now_ns >= run->begin_ns && now_ns < run->end_ns)
		unit_measure(run, now_ns, now_ns - task->begin_ns);
	if (now_ns < run->end_ns && !run->error)
		task_begin(run, task, now_ns);
}

static bool call_is_good(const struct task *task, const struct dsec_event *event)
{
	const struct dsec_called *called = event->body;

	return called && called->verdict == DSEC_VERDICT_OK && task->echoed == sizeof(input) - 1;
}

static void event_take(struct run *run, const struct dsec_event *event, uint64_t now_ns)
{
	struct task *task = &run->tasks[event->tag];

	if (event->kind == DSEC_EV_CREATED)
		task->sandbox = event->subject;
	if (event->kind == DSEC_EV_DATA && event->bytes == sizeof(input) - 1 &&
	    !memcmp(event->data, input, event->bytes))
		task->echoed += event->bytes;
	if (!(event->flags & DSEC_LAST))
		return;
	if (task->work == WORK_SANDBOX && !task->is_destroying && task->sandbox.lo) {
		task->is_destroying = true;
		task_send(run, task);
		return;
	}
	if (task->work == WORK_FRESH || task->work == WORK_DOMAIN)
		task->is_good = call_is_good(task, event);
	else
		task->is_good = task->work == WORK_NOOP || task->is_destroying;
	task->sandbox = (struct dsec_id){ 0 };
	task_over(run, task, &event->status, now_ns);
}

static void loop_run(struct run *run)
{
	const struct load_options *load = &run->options->load;
	uint64_t now_ns = clock_now_ns();

	run->begin_ns = now_ns + (uint64_t)(load->warmup_seconds * 1e9);
	run->end_ns = run->begin_ns + (uint64_t)(load->seconds * 1e9);
	run->rate_count = load->seconds <= LOAD_RATES_MAX ? (uint32_t)load->seconds : 0;
	for (uint32_t i = 0; i < load->in_flight && !run->error; i++) {
		run->tasks[i].work = work_of(run, i);
		task_begin(run, &run->tasks[i], now_ns);
	}
	while (run->busy && !run->error) {
		struct dsec_event *events[EVENTS_A_TURN];
		int count = dsec_queue_poll(run->queue, events, EVENTS_A_TURN, CALL_TIMEOUT_MS);

		if (count <= 0)
			run->error = count ? count : -ETIMEDOUT;
		now_ns = clock_now_ns();
		for (int i = 0; i < count; i++) {
			event_take(run, events[i], now_ns);
			dsec_event_free(events[i]);
		}
	}
}

/* ---- functions ---- */

static int function_ask(struct run *run, const struct dsec_function_opts *opts,
			struct dsec_id *ret_id)
{
	int64_t ticket = dsec_function(run->d, NULL, opts);
	struct dsec_event *event = NULL;
	int r = ticket < 0 ? (int)ticket : dsec_wait(run->d, ticket, CALL_TIMEOUT_MS, &event);

	if (r < 0) {
		snprintf(run->trouble, sizeof(run->trouble), "%s", dsec_error(run->d, r));
		return r;
	}
	if (event->status.code != DSEC_OK) {
		trouble_note(run, "function", &event->status);
		r = -EIO;
	} else if (ret_id) {
		*ret_id = event->subject;
	}
	dsec_event_free(event);
	return r;
}

static int functions_make(struct run *run)
{
	const struct load_options *load = &run->options->load;
	const struct dsec_bytes argv = { load->echo, strlen(load->echo) };
	int r = 0;

	for (enum work work = WORK_FRESH; work <= WORK_DOMAIN && r >= 0; work++) {
		char name[48];
		const struct dsec_function_opts opts = {
			.size = sizeof(opts),
			.verb = DSEC_FUNCTION_REGISTER,
			.name = name,
			.image = load->image,
			.argv = &argv,
			.argc = 1,
			.isolation = work == WORK_DOMAIN ? DSEC_ISOLATION_DOMAIN :
							   DSEC_ISOLATION_FRESH,
		};

		snprintf(name, sizeof(name), "loadgen-%s-%d", load->label, work);
		r = function_ask(run, &opts, &run->functions[work]);
	}
	return r;
}

static void functions_remove(struct run *run)
{
	for (enum work work = WORK_FRESH; work <= WORK_DOMAIN; work++) {
		const struct dsec_function_opts opts = { .size = sizeof(opts),
							 .verb = DSEC_FUNCTION_REMOVE,
							 .id = run->functions[work] };

		if (opts.id.lo && function_ask(run, &opts, NULL) < 0)
			run->failed++;
	}
}

/* ---- burst: one create of many ---- */

static void burst_count(struct run *run, const struct dsec_event *event, uint64_t begin_ns)
{
	if (event->kind != DSEC_EV_CREATED)
		return;
	if (event->status.code == DSEC_OK) {
		run->done++;
		run->measured++;
		histogram_record(run->latency, clock_now_ns() - begin_ns);
	} else if (event->status.code == DSEC_REFUSED) {
		run->refused++;
	} else {
		run->failed++;
		trouble_note(run, "create", &event->status);
	}
}

/* Events to the last one. */
static void burst_follow(struct run *run, int64_t ticket, uint64_t begin_ns)
{
	bool is_last = false;

	while (!is_last && !run->error) {
		struct dsec_event *event;
		int r = ticket < 0 ? (int)ticket :
				     dsec_wait(run->d, ticket, CALL_TIMEOUT_MS, &event);

		if (r < 0) {
			run->error = r;
			return;
		}
		if (begin_ns)
			burst_count(run, event, begin_ns);
		is_last = event->flags & DSEC_LAST;
		dsec_event_free(event);
	}
}

static void burst_run(struct run *run)
{
	const struct load_options *load = &run->options->load;
	const struct dsec_label label = { { "loadgen", 7 }, { load->label, strlen(load->label) } };
	const struct dsec_create_opts opts = { .size = sizeof(opts),
					       .count = load->count,
					       .image = load->image,
					       .labels = &label,
					       .label_count = 1,
					       .on_disconnect = DSEC_DISCONNECT_DESTROY };
	const struct dsec_select select = { .size = sizeof(select),
					    .labels = &label,
					    .label_count = 1 };
	int64_t live;

	run->asked = load->count;
	run->begin_ns = clock_now_ns();
	burst_follow(run, dsec_create(run->d, NULL, &opts), run->begin_ns);
	run->end_ns = clock_now_ns();
	live = load_live_count(run->d, load->label);
	if (live != (int64_t)run->done && !run->error) {
		snprintf(run->trouble, sizeof(run->trouble), "%" PRId64 " live of %" PRIu64, live,
			 run->done);
		run->failed++;
	}
	burst_follow(run, dsec_destroy(run->d, NULL, &select), 0);
	if (load_live_count(run->d, load->label) != 0)
		run->failed++;
}

/* ---- the report ---- */

static json_t *includes_json(const struct load_scenario *scenario)
{
	json_t *includes = json_array();

	for (int i = 0; i < LOAD_INCLUDES_MAX && scenario->includes[i]; i++)
		json_array_append_new(includes, json_string(scenario->includes[i]));
	return includes;
}

static bool run_is_good(const struct run *run)
{
	return !run->error && !run->failed && run->done &&
	       run->asked == run->done + run->refused + run->failed;
}

static int run_report(const struct run *run)
{
	const struct options *options = run->options;
	struct machine machine = { .kernel = "", .processor = "" };
	const struct row row = { .name = options->name,
				 .latency_of = options->load.scenario->latency_of,
				 .trouble = run->trouble,
				 .latency = run->latency,
				 .machine = &machine,
				 .asked = run->asked,
				 .done = run->done,
				 .refused = run->refused,
				 .failed = run->failed,
				 .measured = run->measured,
				 .duration_ns = run->end_ns - run->begin_ns,
				 .rates = run->rates,
				 .rate_count = run->rate_count,
				 .in_flight = options->load.in_flight,
				 .is_good = run_is_good(run) };
	json_t *json;
	int r = machine_describe(&machine);

	printf("%s: %.0f/s, p50 %.1f us, p99 %.1f us, %.1f s; asked %" PRIu64 " done %" PRIu64
	       " refused %" PRIu64 " failed %" PRIu64 "%s%s\n",
	       row.name, row_rate_per_s(&row), row_us_at(run->latency, 0.5),
	       row_us_at(run->latency, 0.99), (double)row.duration_ns / 1e9, run->asked, run->done,
	       run->refused, run->failed, run->trouble[0] ? ": " : "", run->trouble);
	if (run->error)
		printf("%s: given up: %s\n", row.name, strerror(-run->error));
	if (!options->json_path)
		return 0;
	json = row_json(&row);
	if (json)
		json_object_set_new(json, "includes", includes_json(options->load.scenario));
	if (!r)
		r = row_append(json, options->json_path);
	if (r < 0)
		fprintf(stderr, "dsec-loadgen: %s: %s\n", options->json_path, strerror(-r));
	return r;
}

static void run_scenario(struct run *run)
{
	if (run->options->load.scenario->kind == LOAD_BURST) {
		burst_run(run);
		return;
	}
	run->error = dsec_queue_new(run->d, &run->queue);
	if (!run->error && run->options->load.scenario->kind != LOAD_NOOP)
		run->error = functions_make(run);
	if (!run->error)
		loop_run(run);
	dsec_queue_free(run->queue);
	functions_remove(run);
}

int calls_run(const struct options *options)
{
	const struct dsec_open_opts opts = { .size = sizeof(opts),
					     .channels = UINT32_MAX,
					     .address = options->address,
					     .spin_us = options->load.spin_us,
					     .reconnect_ms = UINT32_MAX };
	struct run run = { .options = options, .end_ns = 1 };
	int r = dsec_open(&opts, &run.d);

	if (r < 0) {
		fprintf(stderr, "dsec-loadgen: %s\n", dsec_error(NULL, r));
		return 1;
	}
	run.tasks = calloc(options->load.in_flight, sizeof(*run.tasks));
	run.latency = histogram_new();
	if (run.tasks && run.latency)
		run_scenario(&run);
	else
		run.error = -ENOMEM;
	dsec_close(run.d);
	r = run.latency ? run_report(&run) : run.error;
	r = r < 0 || !run_is_good(&run);
	free(run.tasks);
	histogram_free(run.latency);
	return r;
}
