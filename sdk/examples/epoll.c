/*
 * One loop that makes 500 sandboxes and says how long that took: dsec_queue_fd() beside whatever
 * else the loop waits for. Usage: epoll [IMAGE]
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <time.h>

#include <dsec/dsec.h>

enum { WANTED = 500, EVENTS = 64 };

static double now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
	struct dsec_create_opts opts = { .size = sizeof(opts),
					 .image = argc > 1 ? argv[1] : "debian",
					 .on_disconnect = DSEC_DISCONNECT_DESTROY };
	struct dsec_call call = { .size = sizeof(call) };
	struct epoll_event wait = { .events = EPOLLIN };
	struct dsec_event *events[EVENTS];
	double begun[WANTED], took[WANTED];
	int asked = 0, ended = 0, made = 0, r, loop = epoll_create1(EPOLL_CLOEXEC);
	struct dsec *d;

	r = dsec_open(NULL, &d);
	if (r < 0 || (r = dsec_queue_new(d, &call.queue)) < 0) {
		(void)fprintf(stderr, "epoll: %s\n", dsec_error(NULL, r));
		return 1;
	}
	if (epoll_ctl(loop, EPOLL_CTL_ADD, dsec_queue_fd(call.queue), &wait) < 0)
		return 1;
	while (ended < WANTED) {
		int64_t ticket = 0;

		while (asked < WANTED && ticket >= 0) {
			begun[asked] = now_ms();
			call.tag = (uint64_t)asked;
			ticket = dsec_create(d, &call, &opts);
			asked += ticket >= 0;
		}
		if (ticket < 0 && ticket != -EAGAIN) /* that is: when events were fetched */
			break;
		(void)epoll_wait(loop, &wait, 1, -1);
		while ((r = dsec_queue_poll(call.queue, events, EVENTS, 0)) > 0) {
			for (int at = 0; at < r; at++) {
				const struct dsec_event *e = events[at];

				if (e->kind == DSEC_EV_CREATED && e->status.code == DSEC_OK)
					took[made++] = now_ms() - begun[e->tag];
				else if (e->status.code != DSEC_OK)
					(void)fprintf(stderr, "epoll: %s\n", e->status.detail);
				ended += e->flags & DSEC_LAST;
				dsec_event_free(events[at]);
			}
		}
		if (r < 0)
			break;
	}
	qsort(took, (size_t)made, sizeof(*took), compare);
	if (made)
		(void)printf("%d of %d created, p50 %.2f ms, p99 %.2f ms\n", made, WANTED,
			     took[made / 2], took[made * 99 / 100]);
	dsec_close(d); /* and with it the sandboxes go */
	return made == WANTED ? 0 : 1;
}
