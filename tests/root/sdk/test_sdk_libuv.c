/*
 * A libuv loop polls dsec_queue_fd() beside a timer: 100 execs, which the timer asks for, a few
 * under way at a time, end once each; without both going on beside each other none of it ends. Must
 * hold: nothing here waits but the loop, and the loop ends after a while even when nothing comes.
 */
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <uv.h>

#include "dsec/dsec.h"
#include "tests/hostile/client/engine.h"
#include "tests/slowness.h"

enum { EXECS = 100, EVENTS = 16, UNDER_WAY_MAX = 4, TICK_MS = 1, LIMIT_MS = 60000 };

struct scene {
	struct dsec *d;
	struct dsec_call call;
	struct dsec_id sandbox;
	uv_loop_t loop;
	uv_poll_t poll;
	uv_timer_t ticks, limit;
	uint32_t asked, ended, good, ends_of[EXECS];
	int failed;
};

static void loop_end(struct scene *scene, int r)
{
	scene->failed = r;
	uv_close((uv_handle_t *)&scene->poll, NULL);
	uv_close((uv_handle_t *)&scene->ticks, NULL);
	uv_close((uv_handle_t *)&scene->limit, NULL);
}

/* One more, while few are under way. */
static int exec_ask(struct scene *scene)
{
	static const struct dsec_bytes argv[] = { { "/bin/payload", 12 },
						  { "out", 3 },
						  { "7", 1 } };
	const struct dsec_exec_opts opts = {
		.size = sizeof opts, .flags = DSEC_EXEC_CAPTURE, .argv = argv, .argc = 3
	};
	int64_t ticket;

	if (scene->asked == EXECS || scene->asked - scene->ended == UNDER_WAY_MAX)
		return 0;
	scene->call.tag = scene->asked;
	ticket = dsec_exec(scene->d, &scene->call, scene->sandbox, &opts);
	if (ticket < 0)
		return ticket == -EAGAIN ? 0 : (int)ticket;
	scene->asked++;
	return 0;
}

static void event_see(struct scene *scene, const struct dsec_event *event)
{
	const struct dsec_result *result = event->body;

	if (!(event->flags & DSEC_LAST))
		return;
	scene->ended++;
	scene->ends_of[event->tag]++;
	if (event->status.code)
		printf("exec %u: %s\n", (unsigned)event->tag, event->status.detail);
	else
		scene->good += result && result->reason == DSEC_EXIT && !result->exit_code &&
			       result->outputs[0].total_bytes == 7;
}

static void on_readable(uv_poll_t *poll, int status, int what)
{
	struct scene *scene = poll->data;
	struct dsec_event *events[EVENTS];
	int r;

	(void)what;
	if (status < 0) {
		loop_end(scene, status);
		return;
	}
	while ((r = dsec_queue_poll(scene->call.queue, events, EVENTS, 0)) > 0) {
		for (int at = 0; at < r; at++) {
			event_see(scene, events[at]);
			dsec_event_free(events[at]);
		}
	}
	if (r < 0 || scene->ended == EXECS)
		loop_end(scene, r);
}

static void on_tick(uv_timer_t *timer)
{
	int r = exec_ask(timer->data);

	if (r < 0)
		loop_end(timer->data, r);
}

static void on_limit(uv_timer_t *timer)
{
	loop_end(timer->data, -ETIMEDOUT);
}

static int loop_run(struct scene *scene)
{
	int r = uv_loop_init(&scene->loop);

	if (r < 0)
		return r;
	scene->poll.data = scene->ticks.data = scene->limit.data = scene;
	(void)uv_timer_init(&scene->loop, &scene->ticks); /* cannot fail, as uv_timer_start() */
	(void)uv_timer_init(&scene->loop, &scene->limit);
	(void)uv_timer_start(&scene->ticks, on_tick, TICK_MS, TICK_MS);
	(void)uv_timer_start(&scene->limit, on_limit, longer(LIMIT_MS), 0);
	r = uv_poll_init(&scene->loop, &scene->poll, dsec_queue_fd(scene->call.queue));
	if (r < 0)
		return r;
	r = uv_poll_start(&scene->poll, UV_READABLE, on_readable);
	if (r < 0)
		loop_end(scene, r);
	(void)uv_run(&scene->loop, UV_RUN_DEFAULT); /* 0: everything is closed, see below */
	r = uv_loop_close(&scene->loop);
	return scene->failed ? scene->failed : r;
}

static bool execs_of_a_timer_end_once_in_its_loop(const char *address)
{
	const struct dsec_open_opts opts = { .size = sizeof opts, .address = address };
	struct scene scene = { .call.size = sizeof scene.call };
	bool once = true;
	int r = dsec_open(&opts, &scene.d);

	if (r >= 0)
		r = dsec_sandbox(scene.d, "tiny", &scene.sandbox);
	if (r >= 0)
		r = dsec_queue_new(scene.d, &scene.call.queue);
	if (r >= 0)
		r = loop_run(&scene);
	for (int i = 0; i < EXECS; i++)
		once &= scene.ends_of[i] == 1;
	printf("%d; %u asked, %u ended, %u well, each once: %d\n", r, scene.asked, scene.ended,
	       scene.good, once);
	dsec_queue_free(scene.call.queue);
	dsec_close(scene.d);
	return r >= 0 && scene.good == EXECS && once;
}

int main(void)
{
	const struct engine_options options = { 0 };
	struct engine engine;
	bool holds;

	engine_start(&options, &engine);
	holds = execs_of_a_timer_end_once_in_its_loop(engine.socket);
	holds &= engine_stop(&engine);
	printf("Tested: 1\n");
	return !holds;
}
