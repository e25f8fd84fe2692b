/*
 * Load for tests of deaths and attacks. Must hold: threads note nothing themselves but the first
 * strange end, and stop by themselves when their connection is lost.
 */
#include "tests/root/engine/engine_load.h"

#include <errno.h>
#include <signal.h>
#include <string.h>

#include "tests/root/engine/engine_client.h"

/* False: the connection is lost. ECHILD: PID 1 died before it was told of. */
static bool status_sort(struct load *load, const struct dsec_status *s, bool is_killed)
{
	if (s->code == DSEC_OK && !is_killed) {
		atomic_fetch_add(&load->done, 1);
	} else if (s->code == DSEC_LOST) {
		atomic_fetch_add(&load->disconnected, 1);
		return false;
	} else if (s->code == DSEC_OK || s->code == DSEC_ABSENT || s->error == ECHILD) {
		atomic_fetch_add(&load->killed, 1);
	} else if (s->code == DSEC_FAILED && strstr(s->step, ".worker")) {
		atomic_fetch_add(&load->lost, 1);
	} else if (s->code == DSEC_FAILED && strstr(s->step, ".wait") && s->error == ETIMEDOUT) {
		atomic_fetch_add(&load->late, 1);
	} else if (atomic_fetch_add(&load->strange, 1) == 0) {
		note("load: code %u blame %u error %d at \"%s\" %s", s->code, s->blame, s->error,
		     s->step, s->detail);
	}
	return true;
}

static void longest_note(struct load *load, double ms)
{
	uint64_t us = (uint64_t)(ms * 1000), before = atomic_load(&load->longest_us);

	while (us > before && !atomic_compare_exchange_weak(&load->longest_us, &before, us))
		;
}

/* One sandbox from beginning to end; false: the connection is lost. */
static bool load_once(struct load *load, struct dsec *d)
{
	const struct command c = SH("echo load");
	struct dsec_create_opts opts = create_opts(1);
	struct dsec_select select = { .size = sizeof select, .count = 1 };
	int64_t ticket = dsec_create(d, NULL, &opts);

	if (ticket < 0)
		return false;
	auto_made struct made made = create_wait(d, ticket, 1);

	if (!made.created)
		return status_sort(load, made.last.code ? &made.last : &made.trouble, false);
	atomic_fetch_add(&load->done, 1);
	double begun_ms = clock_ms();

	ticket = command_try(d, made.ids[0], &c, NULL);
	if (ticket < 0)
		return false;
	auto_ran struct ran ran = command_wait(d, ticket);
	bool is_killed = ran.result &&
			 (ran.result->reason == DSEC_KILLED || ran.result->signal == SIGKILL);
	bool goes_on = ran.event && status_sort(load, &ran.status, is_killed);

	longest_note(load, clock_ms() - begun_ms);
	if (ran.result && !is_killed &&
	    !(ran.result->reason == DSEC_EXIT && ran_wrote(&ran, 1, "load\n", 5)) &&
	    atomic_fetch_add(&load->strange, 1) == 0)
		ran_note(&ran);
	if (!goes_on)
		return false;
	select.ids = made.ids;
	ticket = dsec_destroy(d, NULL, &select);
	if (ticket < 0)
		return false;
	struct dsec_status s = ticket_end(d, ticket);

	return status_sort(load, &s, false);
}

static void *load_run(void *argument)
{
	struct load *load = argument;
	struct dsec *d = engine_connect(load->engine);

	while (d && !atomic_load(&load->stop) && load_once(load, d))
		;
	dsec_close(d);
	return NULL;
}

bool load_start(struct load *load, struct engine *e, unsigned threads)
{
	memset(load, 0, sizeof *load);
	load->engine = e;
	for (unsigned i = 0; i < threads; i++) {
		if (!expect(pthread_create(&load->threads[i], NULL, load_run, load) == 0)) {
			load_end(load);
			return false;
		}
		load->thread_count++;
	}
	return true;
}

void load_end(struct load *load)
{
	atomic_store(&load->stop, true);
	for (unsigned i = 0; i < load->thread_count; i++)
		(void)pthread_join(load->threads[i], NULL); /* cannot fail: ours */
	load->thread_count = 0;
}

uint64_t load_done(const struct load *load)
{
	return atomic_load(&load->done);
}

uint64_t load_ended(const struct load *load)
{
	return atomic_load(&load->done) + atomic_load(&load->lost) + atomic_load(&load->killed) +
	       atomic_load(&load->late) + atomic_load(&load->strange);
}
