/*
 * Runs claims one after another against one engine and looks at the engine after each. Called by
 * the programs' main(). What is compared: the engine's process, its descriptors, its own account of
 * what it holds, its memory, and that a client which connected before all attacks is served.
 */
#include "tests/hostile/client/claims.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "engine/base/cleanup.h"
#include "tests/hostile/client/figures.h"
#include "tests/slowness.h"

enum {
	SETTLE_MS = 20000,
	SERVES = 200,
	GROWTH_BYTES_MAX = 96 << 20,
	SERVES_MAX = 4096,
};

uint64_t claim_now_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

uint64_t claim_held_up_us(void)
{
	return held_up_ms() * 1000 * (HOSTILE_SANITIZED ? 10 : 1);
}

uint64_t claim_spun_us(void)
{
	return longer(HOSTILE_SANITIZED ? 5000000 : 500000);
}

void claim_sleep_ms(uint32_t ms)
{
	const struct timespec time = { ms / 1000, (long)(ms % 1000) * 1000000 };

	(void)nanosleep(&time, NULL);
}

/* ---- the well-behaved client ---- */

/* Waits for the LAST of a ticket; the body of the event before is the caller's to look at. */
static int wait_last(struct dsec *d, int64_t ticket, struct dsec_event **ret)
{
	struct dsec_event *event = NULL;
	int r;

	if (ticket < 0)
		return (int)ticket;
	for (;;) {
		r = dsec_wait(d, ticket, (int)longer(SETTLE_MS), &event);
		if (r < 0)
			return r;
		if (event->flags & DSEC_LAST) {
			*ret = event;
			return 0;
		}
		dsec_event_free(event);
	}
}

int scene_holdings(struct scene *scene, struct dsec_holdings *ret)
{
	struct dsec_event *event = NULL;
	int r = wait_last(scene->neighbour, dsec_check(scene->neighbour, NULL), &event);

	if (r < 0)
		return r;
	r = event->body ? 0 : -EIO;
	if (event->body)
		*ret = *(const struct dsec_holdings *)event->body;
	dsec_event_free(event);
	return r;
}

static int by_size(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

int neighbour_serve(struct scene *scene, uint32_t count, struct service *ret)
{
	uint64_t took_us[SERVES_MAX];
	struct dsec_holdings holdings;
	int r = 0;

	count = fewer(count, 20);
	for (uint32_t i = 0; r >= 0 && i < count; i++) {
		uint64_t began_us = claim_now_us();

		r = scene_holdings(scene, &holdings);
		took_us[i] = claim_now_us() - began_us;
	}
	if (r < 0)
		return r;
	qsort(took_us, count, sizeof *took_us, by_size);
	ret->median_us = took_us[count / 2];
	ret->worst_us = took_us[count - 1];
	return 0;
}

int neighbour_destroy(struct scene *scene, const struct dsec_id *ids, uint32_t count)
{
	const struct dsec_select select = { .size = sizeof select, .count = count, .ids = ids };
	struct dsec_event *event = NULL;
	int r = wait_last(scene->neighbour, dsec_destroy(scene->neighbour, NULL, &select), &event);

	if (r < 0)
		return r;
	r = event->status.code ? -EIO : 0;
	dsec_event_free(event);
	return r;
}

static bool run_is_right(struct dsec *d, struct dsec_id sandbox)
{
	static const char *const argv[] = { "/bin/payload", "out", "100", NULL };
	struct dsec_event *event = NULL;
	const struct dsec_result *result;
	bool right;

	CHECK(dsec_run(d, sandbox, argv, 10000, &event) == 0);
	result = event->body;
	right = result && result->reason == DSEC_EXIT && result->exit_code == 0 &&
		result->outputs[0].total_bytes == 100;
	if (!right)
		printf("  code %u \"%s\"; reason %d, exit code %d, %llu bytes\n",
		       event->status.code, event->status.detail, result ? (int)result->reason : -1,
		       result ? result->exit_code : -1,
		       result ? (unsigned long long)result->outputs[0].total_bytes : 0);
	dsec_event_free(event);
	CHECK(right);
	return true;
}

bool neighbour_works(struct scene *scene)
{
	const struct dsec_open_opts opts = { .size = sizeof opts, .address = scene->engine.socket };
	struct dsec_id sandbox;
	struct dsec *d;
	int r = dsec_open(&opts, &d);

	if (r < 0) {
		printf("  no connection: %s\n", dsec_error(NULL, r));
		return false;
	}
	r = dsec_sandbox(d, "tiny", &sandbox);
	if (r < 0)
		printf("  no sandbox: %s\n", dsec_error(d, r));
	if (r >= 0 && !run_is_right(d, sandbox))
		r = -EIO;
	dsec_close(d);
	if (r >= 0)
		r = neighbour_destroy(scene, &sandbox, 1);
	return r >= 0;
}

/* ---- around a claim ---- */

static bool is_settled(const struct scene *scene, const struct dsec_holdings *now)
{
	return now->clients == scene->before.clients && now->sandboxes == scene->before.sandboxes &&
	       now->execs == scene->before.execs &&
	       engine_descriptors(&scene->engine) <= scene->descriptors;
}

bool scene_settles(struct scene *scene, uint32_t timeout_ms)
{
	uint64_t end_us = claim_now_us() + longer(timeout_ms) * 1000;
	struct dsec_holdings now = { 0 };

	do {
		CHECK(scene_holdings(scene, &now) == 0);
		if (is_settled(scene, &now))
			return true;
		claim_sleep_ms(10);
	} while (claim_now_us() < end_us);
	printf("  left: clients %u, was %u; sandboxes %llu, was %llu; execs %llu, was %llu; "
	       "descriptors %u, was %u\n",
	       now.clients, scene->before.clients, (unsigned long long)now.sandboxes,
	       (unsigned long long)scene->before.sandboxes, (unsigned long long)now.execs,
	       (unsigned long long)scene->before.execs, engine_descriptors(&scene->engine),
	       scene->descriptors);
	return false;
}

static bool scene_remember(struct scene *scene)
{
	CHECK(scene_holdings(scene, &scene->before) == 0);
	scene->descriptors = engine_descriptors(&scene->engine);
	scene->descriptor_places = engine_descriptor_places(&scene->engine);
	CHECK(scene->descriptor_places > 0);
	scene->resident_bytes = engine_resident_bytes(&scene->engine);
	return true;
}

static bool scene_is_sound(struct scene *scene)
{
	struct service service;
	uint64_t resident_bytes;

	CHECK(neighbour_works(scene));
	CHECK(scene_settles(scene, SETTLE_MS));
	CHECK(neighbour_serve(scene, SERVES, &service) == 0);
	resident_bytes = engine_resident_bytes(&scene->engine);
	printf("  served in %llu us, at worst %llu us; engine has %llu MiB\n",
	       (unsigned long long)service.median_us, (unsigned long long)service.worst_us,
	       (unsigned long long)resident_bytes >> 20);
	CHECK(service.median_us < claim_held_up_us());
	CHECK(service.worst_us < claim_held_up_us());
	/* Growing takes some 10 ms in which a shard waits. */
	CHECK(engine_descriptor_places(&scene->engine) == scene->descriptor_places);
	/* A sanitizer keeps what was freed. */
	if (!HOSTILE_SANITIZED)
		CHECK(resident_bytes < scene->resident_bytes + GROWTH_BYTES_MAX);
	return true;
}

/* With a bystander beside it; and how often meanwhile the engine's loops were kept for long. */
static bool attack_is_borne(const struct claim *claim, struct scene *scene)
{
	struct dsec_holdings now;
	bool holds;

	CHECK(bystander_start(&scene->bystander) == 0);
	holds = claim->holds(scene);
	bystander_stop(&scene->bystander);
	CHECK(scene_holdings(scene, &now) == 0);
	printf("  callbacks over 1 ms: %llu\n",
	       (unsigned long long)(now.callbacks_over_1ms - scene->before.callbacks_over_1ms));
	return holds;
}

static bool claim_holds(const struct claim *claim, struct scene *scene)
{
	uint64_t began_us = claim_now_us();
	bool holds;

	printf("%s\n", claim->name);
	(void)fflush(stdout);
	holds = scene_remember(scene) && attack_is_borne(claim, scene) && scene_is_sound(scene);
	printf("%s %s (%llu ms)\n", holds ? "ok" : "FAILED", claim->name,
	       (unsigned long long)(claim_now_us() - began_us) / 1000);
	(void)fflush(stdout);
	return holds;
}

static bool is_wanted(const struct claim *claim, char **names)
{
	for (char **name = names; *name; name++)
		if (!strcmp(*name, claim->name))
			return true;
	return !*names;
}

int claims_run(const struct claim *claims, uint32_t count, const struct engine_options *options,
	       char **names)
{
	struct scene scene;
	struct dsec_open_opts opts = { .size = sizeof opts };
	struct figures_options figures = { 0 };
	uint32_t tested = 0, failed = 0;
	int r;

	if (*names && !strcmp(*names, "--figures")) {
		if (figures_options_parse(&figures, names) < 0)
			return 2;
		names += 3;
	}
	engine_start(options, &scene.engine);
	opts.address = scene.engine.socket;
	r = dsec_open(&opts, &scene.neighbour);
	if (r >= 0)
		r = bystander_open(&scene.bystander, scene.engine.socket);
	if (r < 0) {
		printf("no connection: %s\n", dsec_error(NULL, r));
		(void)engine_stop(&scene.engine);
		return 1;
	}
	/* The first use of everything: pools of the allocator, the image, launchers. */
	failed += !neighbour_works(&scene);
	if (figures.rounds)
		failed += bystander_settle_in(&scene.bystander) < 0 || !scene_remember(&scene);
	for (uint32_t i = 0; i < count; i++) {
		if (!is_wanted(&claims[i], names))
			continue;
		tested++;
		failed += figures.rounds ? !figures_of_claim(&figures, &claims[i], &scene) :
					   !claim_holds(&claims[i], &scene);
		if (engine_pid(&scene.engine) != scene.engine.pid) {
			printf("the engine is another one:\n");
			engine_log_print(&scene.engine);
			failed++;
			break;
		}
	}
	bystander_close(&scene.bystander);
	dsec_close(scene.neighbour);
	failed += !engine_stop(&scene.engine);
	printf("Tested: %u\n", tested);
	return failed != 0;
}
