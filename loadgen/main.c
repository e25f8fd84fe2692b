/*
 * dsec-loadgen: drives load at an engine through dsec.h, measures it, and looks for what it left
 * behind without asking the engine. Owns the order of a run: baseline, load, settling, report. Must
 * hold: exit status 0 only when everything that was asked is accounted for and nothing is left.
 */
#include "loadgen/calls.h"
#include "loadgen/clock.h"
#include "loadgen/options.h"
#include "loadgen/report.h"
#include "loadgen/residue.h"

#include <dsec/dsec.h>

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

enum {
	SETTLE_MS_MAX = 5000,
	SETTLE_STEP_MS = 20,
	PEAK_MS_MAX = 2000,
	CALL_MS_MAX = 30 * 1000,
};

struct run {
	struct report report;
	struct residue *residue;
	const struct options *options;
	bool is_on_terminal;
};

static void measure_begin(void *context)
{
	struct run *run = context;

	(void)machine_time_read(&run->report.time_begin); /* an extra: zeros when it fails */
}

static void measure_end(void *context)
{
	struct run *run = context;

	(void)machine_time_read(&run->report.time_end); /* as above */
}

/* The residue checker must see what lives, or what it says of residue means nothing. */
static int peak(void *context, uint64_t live)
{
	struct run *run = context;
	uint64_t until_ns = clock_now_ns() + PEAK_MS_MAX * CLOCK_MS_NS;
	int64_t seen;
	int r;

	for (;;) {
		seen = residue_alive(run->residue);
		if (seen < 0)
			return (int)seen;
		if ((uint64_t)seen >= live || clock_now_ns() >= until_ns)
			break;
		clock_wait_readable(-1, clock_now_ns() + SETTLE_STEP_MS * CLOCK_MS_NS);
	}
	run->report.alive_seen = (uint64_t)seen;
	if ((uint64_t)seen < live) {
		fprintf(stderr, "dsec-loadgen: %llu sandboxes live, processes seen in %lld\n",
			(unsigned long long)live, (long long)seen);
		return -EBADE;
	}
	if (!run->options->load.scenario->is_holding)
		return 0;
	clock_wait_readable(-1, clock_now_ns() + (uint64_t)(run->options->hold_seconds * 1e9));
	r = machine_memory_read(&run->report.memory_held);
	return r;
}

static void progress(void *context, const char *phase, uint64_t units, double share)
{
	struct run *run = context;

	if (run->is_on_terminal)
		fprintf(stderr, "\r%s: %llu, %.0f %%   ", phase, (unsigned long long)units,
			100 * (share > 1 ? 1 : share));
}

/* What the engine says of its loops; an extra, so that not to know is no failure. */
static struct dsec_holdings holdings_ask(struct dsec *d)
{
	struct dsec_holdings holdings = { 0 };
	struct dsec_event *event = NULL;
	int64_t ticket = dsec_check(d, NULL);

	if (ticket < 0 || dsec_wait(d, ticket, CALL_MS_MAX, &event) < 0)
		return holdings;
	if (event->body && event->status.code == DSEC_OK)
		memcpy(&holdings, event->body, sizeof(holdings));
	dsec_event_free(event);
	return holdings;
}

/* Teardown of what is confirmed gone may still be freeing: it gets a moment, and it is told. */
static int residue_settle(struct run *run)
{
	uint64_t begin_ns = clock_now_ns(), now_ns = begin_ns;
	int r;

	do {
		r = residue_look(run->residue, &run->report.residue);
		now_ns = clock_now_ns();
		if (r < 0 || !residue_total(&run->report.residue))
			break;
		clock_wait_readable(-1, now_ns + SETTLE_STEP_MS * CLOCK_MS_NS);
	} while (now_ns < begin_ns + SETTLE_MS_MAX * CLOCK_MS_NS);
	run->report.settle_ms = (now_ns - begin_ns) / CLOCK_MS_NS;
	return r;
}

static int load_drive(struct run *run, struct dsec *d, struct load_result *result)
{
	const struct load_hooks hooks = { .context = run,
					  .measure_begin = measure_begin,
					  .measure_end = measure_end,
					  .peak = peak,
					  .progress = progress };
	struct dsec_holdings before = holdings_ask(d), after;
	int64_t listed;
	int r;

	r = machine_memory_read(&run->report.memory_before);
	if (!r)
		r = load_run(d, &run->options->load, &hooks, result);
	if (run->is_on_terminal)
		fprintf(stderr, "\r%40s\r", "");
	after = holdings_ask(d);
	run->report.callbacks_over_1ms = after.callbacks_over_1ms - before.callbacks_over_1ms;
	run->report.callback_max_us = after.callback_max_ns / 1000;
	listed = load_live_count(d, run->options->load.label);
	run->report.live = result->created - result->destroyed;
	if (listed > 0 && (uint64_t)listed > run->report.live)
		run->report.live = (uint64_t)listed;
	if (!r && listed < 0)
		r = (int)listed;
	return r;
}

static int run_all(struct run *run, struct load_result *result)
{
	const struct options *options = run->options;
	const struct dsec_open_opts opts = { .size = sizeof(opts),
					     .channels = UINT32_MAX,
					     .address = options->address,
					     .reconnect_ms = UINT32_MAX }; /* it counts ends */
	struct dsec *d = NULL;
	int r, settled;

	r = dsec_open(&opts, &d);
	if (r < 0) {
		fprintf(stderr, "dsec-loadgen: %s\n", dsec_error(NULL, r));
		return r;
	}
	r = residue_open(options->address, options->instance, &run->residue);
	if (r < 0) {
		fprintf(stderr, "dsec-loadgen: no engine to look at (instance %s): %s\n",
			options->instance, strerror(-r));
		dsec_close(d);
		return r;
	}
	r = load_drive(run, d, result);
	settled = residue_settle(run);
	dsec_close(d);
	residue_close(run->residue);
	return r < 0 ? r : settled;
}

int main(int argc, char **argv)
{
	struct options options;
	struct load_result result;
	struct run run = { .options = &options, .is_on_terminal = isatty(STDERR_FILENO) };
	char label[32];
	int r = options_parse(&options, argc, argv);
	if (r)
		return r < 0 ? 2 : 0;
	snprintf(label, sizeof(label), "%d", (int)getpid());
	options.load.label = label;
	/* An open loop starts units when they are meant to start, not 50 us later. */
	(void)prctl(PR_SET_TIMERSLACK, 1ul); /* at worst they start late, and that is counted */
	if (options.load.scenario->kind != LOAD_SANDBOXES)
		return calls_run(&options);
	if (load_result_init(&result) < 0) {
		fprintf(stderr, "dsec-loadgen: no memory\n");
		return 1;
	}
	run.report.options = &options;
	run.report.result = &result;
	r = machine_describe(&run.report.machine);
	if (!r)
		r = run_all(&run, &result);
	run.report.error = r;
	report_print(&run.report);
	if (options.json_path && (r = report_write_json(&run.report, options.json_path)) < 0)
		fprintf(stderr, "dsec-loadgen: %s: %s\n", options.json_path, strerror(-r));
	r = r < 0 || !report_is_good(&run.report);
	load_result_done(&result);
	return r;
}
