/*
 * 64 workers that share a connection and a queue: 500 times a sandbox, a program in it, and its
 * end. Every event goes to one of them, whichever is free. Usage: threads IMAGE PROGRAM
 * [ARGUMENT...]
 */
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include <dsec/dsec.h>

enum { WORKERS = 64, JOBS = 500, ARGUMENTS_MAX = 16 };
enum { MAKE, RUN, REMOVE }; /* what a request was for: its tag */

struct work {
	struct dsec *d;
	struct dsec_queue *queue;
	struct dsec_create_opts create;
	struct dsec_exec_opts exec;
	int begun, good, ended; /* atomic */
};

/* Begins the next job that can be begun; the last one that ends sends all workers home. */
static void jobs_next(struct work *work, bool one_ended)
{
	struct dsec_call call = { .size = sizeof(call), .queue = work->queue, .tag = MAKE };

	for (;; one_ended = true) {
		if (one_ended && __atomic_add_fetch(&work->ended, 1, __ATOMIC_RELAXED) == JOBS)
			dsec_queue_wake(work->queue);
		if (__atomic_fetch_add(&work->begun, 1, __ATOMIC_RELAXED) >= JOBS ||
		    dsec_create(work->d, &call, &work->create) >= 0)
			return;
	}
}

/* The next step of a job, by the event that ended the one before; negative: it cannot be done. */
static int64_t step(struct work *work, const struct dsec_event *e)
{
	struct dsec_select select = { .size = sizeof(select), .count = 1, .ids = &e->subject };
	struct dsec_call call = { .size = sizeof(call), .queue = work->queue, .tag = e->tag + 1 };
	const struct dsec_result *result = e->body;

	if (e->status.code != DSEC_OK)
		return e->flags & DSEC_LAST ? -1 : 0;
	if (e->kind == DSEC_EV_CREATED)
		return dsec_exec(work->d, &call, e->subject, &work->exec);
	if (e->tag == RUN && e->flags & DSEC_LAST) {
		if (result && result->reason == DSEC_EXIT && result->exit_code == 0)
			__atomic_add_fetch(&work->good, 1, __ATOMIC_RELAXED);
		return dsec_destroy(work->d, &call, &select);
	}
	return 0;
}

static void *worker(void *argument)
{
	struct work *work = argument;
	struct dsec_event *e;

	while (dsec_queue_poll(work->queue, &e, 1, -1) == 1) {
		if (step(work, e) < 0 || (e->tag == REMOVE && e->flags & DSEC_LAST))
			jobs_next(work, true);
		dsec_event_free(e);
	}
	dsec_queue_wake(work->queue); /* one wakes the next */
	return NULL;
}

int main(int argc, char **argv)
{
	struct work work = { .create = { .size = sizeof(work.create),
					 .on_disconnect = DSEC_DISCONNECT_DESTROY },
			     .exec = { .size = sizeof(work.exec) } };
	/* A program is begun before its create has ended: two requests a worker are always room. */
	struct dsec_open_opts open = { .size = sizeof(open), .requests_max = 2 * WORKERS };
	struct dsec_bytes arguments[ARGUMENTS_MAX];
	pthread_t threads[WORKERS];
	int r;

	if (argc < 3 || argc > ARGUMENTS_MAX) {
		(void)fputs("usage: threads IMAGE PROGRAM [ARGUMENT...]\n", stderr);
		return 1;
	}
	work.create.image = argv[1];
	work.exec.argc = (uint32_t)argc - 2;
	work.exec.argv = arguments;
	for (int at = 2; at < argc; at++)
		arguments[at - 2] = (struct dsec_bytes){ argv[at], strlen(argv[at]) };
	r = dsec_open(&open, &work.d);
	if (r < 0 || (r = dsec_queue_new(work.d, &work.queue)) < 0) {
		(void)fprintf(stderr, "threads: %s\n", dsec_error(NULL, r));
		return 1;
	}
	for (int at = 0; at < WORKERS; at++) {
		if (pthread_create(&threads[at], NULL, worker, &work))
			return 1;
		jobs_next(&work, false);
	}
	for (int at = 0; at < WORKERS; at++)
		(void)pthread_join(threads[at], NULL);
	(void)printf("%d of %d ran well, by %d threads\n", work.good, JOBS, WORKERS);
	dsec_close(work.d);
	return work.good == JOBS ? 0 : 1;
}
