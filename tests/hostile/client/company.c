/*
 * The company that is no attack: burners of CPU time, and good clients at full speed. Called by
 * figures.c beside a bystander. Must hold: none takes more of the CPUs, or other rights, than an
 * attack or a good client has, or a comparison with it would excuse too much.
 */
#include "tests/hostile/client/company.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <time.h>

#include "tests/hostile/client/claims.h"

enum { BURNERS_MAX = 64, QUESTIONS = 64, SANDBOXES = 32, ANSWER_MS = 30000 };

/* ---- burners ---- */

struct burner {
	pthread_t thread;
	uint64_t until_us, piece_us;
	double wall_per_cpu; /* how much time goes by for what it burns */
};

static uint64_t microseconds(const struct timeval *t)
{
	return (uint64_t)t->tv_sec * 1000000 + (uint64_t)t->tv_usec;
}

static void effort_read(int who, struct effort *ret)
{
	struct rusage usage;

	(void)getrusage(who, &usage); /* cannot fail for these arguments */
	ret->elapsed_us = claim_now_us();
	ret->cpu_us = microseconds(&usage.ru_utime) + microseconds(&usage.ru_stime);
	ret->pieces = (uint64_t)usage.ru_nvcsw;
}

void effort_of_process(struct effort *ret)
{
	effort_read(RUSAGE_SELF, ret);
}

void effort_of_thread(struct effort *ret)
{
	effort_read(RUSAGE_THREAD, ret);
}

static uint64_t thread_cpu_us(void)
{
	struct timespec now;

	(void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now); /* cannot fail for this clock */
	return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

/* Whoever was kept from burning does not sleep until it has caught up. */
static void *burn(void *argument)
{
	const struct burner *burner = argument;
	const uint64_t began_us = claim_now_us();

	(void)prctl(PR_SET_TIMERSLACK, 1000); /* pieces may be shorter than the default */
	while (claim_now_us() < burner->until_us) {
		uint64_t end_us = thread_cpu_us() + burner->piece_us, due_us;
		struct timespec due;

		while (thread_cpu_us() < end_us)
			;
		due_us = began_us + (uint64_t)((double)thread_cpu_us() * burner->wall_per_cpu);
		due = (struct timespec){ .tv_sec = (time_t)(due_us / 1000000),
					 .tv_nsec = (long)(due_us % 1000000) * 1000 };
		(void)clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &due, NULL);
	}
	return NULL;
}

static int burners_start(struct burner *burners, const struct effort *effort, uint64_t until_us)
{
	const struct burner one = {
		.until_us = until_us,
		.piece_us = effort->cpu_us / (effort->pieces + 1) + 1,
		.wall_per_cpu =
			(double)effort->elapsed_us * effort->threads / (double)(effort->cpu_us + 1),
	};
	int r = 0;

	for (uint32_t i = 0; r >= 0 && i < effort->threads; i++) {
		burners[i] = one;
		r = -pthread_create(&burners[i].thread, NULL, burn, &burners[i]);
		if (r < 0)
			burners[i].until_us = 0;
	}
	return r;
}

/* Those of BURNERS_MAX that were started. */
static void burners_join(struct burner *burners)
{
	for (uint32_t i = 0; i < BURNERS_MAX; i++)
		if (burners[i].until_us)
			(void)pthread_join(burners[i].thread, NULL);
}

int company_burns(const struct efforts *efforts, uint64_t until_us)
{
	struct burner burners[BURNERS_MAX] = { 0 };
	int r;

	if (efforts->own.threads + efforts->others.threads > BURNERS_MAX)
		return -ERANGE;
	r = burners_start(burners, &efforts->own, until_us);
	if (r >= 0)
		r = burners_start(burners + efforts->own.threads, &efforts->others, until_us);
	burners_join(burners);
	return r;
}

/* ---- good clients ---- */

/* Its last event; the subject of one before it where that is wanted. */
static bool ticket_ends(struct dsec *d, int64_t ticket, struct dsec_id *ret_subjects)
{
	struct dsec_event *event;
	bool is_last = false, is_good = true;

	CHECK(ticket >= 0);
	while (!is_last) {
		CHECK(dsec_wait(d, ticket, ANSWER_MS, &event) == 0);
		is_last = event->flags & DSEC_LAST;
		is_good &= event->status.code == DSEC_OK;
		if (ret_subjects && !is_last)
			*ret_subjects++ = event->subject;
		dsec_event_free(event);
	}
	CHECK(is_good);
	return true;
}

static struct dsec *company_open(const struct scene *scene, uint32_t channels)
{
	const struct dsec_open_opts opts = { .size = sizeof opts,
					     .address = scene->engine.socket,
					     .channels = channels };
	struct dsec *d;

	return dsec_open(&opts, &d) < 0 ? NULL : d;
}

/* As many no-ops under way as there are places, until then; *count: of those that are. */
static bool asks(struct dsec *d, struct dsec_queue *queue, uint64_t until_us, uint32_t *count)
{
	const struct dsec_call call = { .size = sizeof call, .queue = queue };
	struct dsec_event *events[QUESTIONS];
	int got;

	for (;;) {
		for (; *count < QUESTIONS && claim_now_us() < until_us; ++*count)
			CHECK(dsec_ping(d, &call) >= 0);
		if (!*count)
			return true;
		got = dsec_queue_poll(queue, events, QUESTIONS, ANSWER_MS);
		CHECK(got > 0);
		*count -= (uint32_t)got; /* each has one event */
		for (int i = 0; i < got; i++)
			dsec_event_free(events[i]);
	}
}

bool company_asks(const struct scene *scene, const struct effort *others, uint64_t until_us)
{
	struct dsec *d = company_open(scene, UINT32_MAX);
	struct burner burners[BURNERS_MAX] = { 0 };
	struct dsec_queue *queue = NULL;
	uint32_t count = 0;
	bool holds;

	CHECK(d != NULL);
	CHECK(others->threads <= BURNERS_MAX);
	holds = burners_start(burners, others, until_us) == 0 && dsec_queue_new(d, &queue) == 0 &&
		asks(d, queue, until_us, &count);
	burners_join(burners);
	dsec_queue_free(queue);
	dsec_close(d);
	return holds;
}

static bool works_once(struct dsec *d)
{
	static const struct dsec_bytes argv[] = { { "/bin/payload", 12 }, { "exit", 4 } };
	const struct dsec_create_opts create = { .size = sizeof create,
						 .count = SANDBOXES,
						 .image = "tiny",
						 .on_disconnect = DSEC_DISCONNECT_DESTROY };
	const struct dsec_exec_opts exec = { .size = sizeof exec,
					     .flags = DSEC_EXEC_CAPTURE,
					     .argv = argv,
					     .argc = 2,
					     .timeout_ms = ANSWER_MS };
	struct dsec_id ids[SANDBOXES];
	const struct dsec_select all = { .size = sizeof all, .count = SANDBOXES, .ids = ids };
	int64_t tickets[SANDBOXES];

	CHECK(ticket_ends(d, dsec_create(d, NULL, &create), ids));
	for (uint32_t i = 0; i < SANDBOXES; i++)
		tickets[i] = dsec_exec(d, NULL, ids[i], &exec);
	for (uint32_t i = 0; i < SANDBOXES; i++)
		CHECK(ticket_ends(d, tickets[i], NULL));
	CHECK(ticket_ends(d, dsec_destroy(d, NULL, &all), NULL));
	return true;
}

bool company_works(const struct scene *scene, uint64_t until_us)
{
	struct dsec *d = company_open(scene, 1);
	bool holds = true;

	CHECK(d != NULL);
	while (holds && claim_now_us() < until_us)
		holds = works_once(d);
	dsec_close(d);
	return holds;
}
