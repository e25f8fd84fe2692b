/*
 * What a sandbox tried and was refused: told with who did it, counted exactly, and in its verdict
 * only where a rule says so.
 */
#include <stdio.h>
#include <string.h>

#include "tests/root/engine/engine_client.h"
#include "tests/root/engine/engine_harness.h"

enum { HOOK_SOCKET = 1, HOOK_UNIX_CONNECT = 2, FLOOD = 100000 };

/* What was told of a sandbox so far. */
struct told {
	uint32_t violations, anomalies, after_end;
	bool ended;
	uint64_t last_count, exec;
	uint32_t hook, anomaly;
	char process[16], text[64];
};

static void copy(char *ret, size_t bytes, struct dsec_bytes from)
{
	(void)snprintf(ret, bytes, "%.*s", (int)from.bytes, (const char *)from.data);
}

static void told_add(struct told *told, const struct dsec_news *news)
{
	told->ended |= news->topic == DSEC_TOPIC_ENDED;
	if (news->topic != DSEC_TOPIC_VIOLATION && news->topic != DSEC_TOPIC_ANOMALY)
		return;
	told->after_end += told->ended;
	if (news->topic == DSEC_TOPIC_ANOMALY) {
		told->anomalies++;
		told->anomaly = news->anomaly;
		return;
	}
	told->violations++;
	told->last_count = news->count;
	told->hook = news->hook;
	if (!news->process.bytes)
		return;
	told->exec = news->exec;
	copy(told->process, sizeof told->process, news->process);
	copy(told->text, sizeof told->text, news->text);
}

static struct told told_of(struct dsec *d, struct dsec_id id)
{
	const struct dsec_select select = { .size = sizeof select, .count = 1, .ids = &id };
	const struct dsec_subscribe_opts opts = { .size = sizeof opts,
						  .flags = DSEC_SUBSCRIBE_SO_FAR,
						  .select = &select,
						  .from_seq = 1 };
	int64_t ticket = dsec_subscribe(d, NULL, &opts);
	struct told told = { 0 };
	struct dsec_event *event;
	bool last = false;

	while (!last && expect(ticket >= 0 && dsec_wait(d, ticket, 20000, &event) == 0)) {
		last = event->flags & DSEC_LAST;
		expect(event->kind != DSEC_EV_GAP);
		if (event->kind == DSEC_EV_STATE && event->body)
			told_add(&told, event->body);
		dsec_event_free(event);
		if (ticket < 0)
			break;
	}
	return told;
}

/* Events come to the journal a turn after the result that follows them. */
static struct told told_when(struct dsec *d, struct dsec_id id, uint64_t count, bool ended)
{
	struct told told = { 0 };

	(void)until(20000,
		    (told = told_of(d, id), told.last_count >= count && told.ended == ended));
	return told;
}

static uint32_t inspected_taint(struct dsec *d, struct dsec_id id)
{
	int64_t ticket = dsec_inspect(d, NULL, id);
	struct dsec_event *event;
	uint32_t taint = UINT32_MAX;

	if (!expect(ticket >= 0 && dsec_wait(d, ticket, 20000, &event) == 0))
		return taint;
	if (expect(event->body))
		taint = ((const struct dsec_inspected *)event->body)->tainted;
	dsec_event_free(event);
	return taint;
}

static void runs_with_taint(struct dsec *d, struct dsec_id id, const char *script, uint32_t taint)
{
	auto_ran struct ran ran = shell_run(d, id, script);

	if (!expect(ran_exited(&ran, 0) && ran.result->tainted == taint)) {
		ran_note(&ran);
		note("taint %x, not %x", ran.result ? ran.result->tainted : 0, taint);
	}
}

static void a_refused_socket_is_told_with_who_tried_and_taints_nothing(struct engine *e)
{
	struct dsec_id id = sandbox_make(e->d);
	struct told told;

	runs_with_taint(e->d, id, "true", 0);
	expect(told_of(e->d, id).violations == 0);
	runs_with_taint(e->d, id, "exec probe_ipc sockets 1", 0);
	told = told_when(e->d, id, 1, false);
	expect(told.violations == 1 && told.anomalies == 0 && told.hook == HOOK_SOCKET);
	expect(told.exec == 2 && told.last_count == 1 && !strcmp(told.process, "probe_ipc"));
	sandbox_end(e->d, id);
}

static void of_a_flood_the_count_is_exact_and_the_neighbour_is_clean(struct engine *e)
{
	struct dsec_id id = sandbox_make(e->d), other = sandbox_make(e->d);
	struct told told;
	char script[64];

	(void)snprintf(script, sizeof script, "exec probe_ipc sockets %d", FLOOD);
	runs_with_taint(e->d, id, script, 0);
	told = told_when(e->d, id, FLOOD, false);
	if (!expect(told.last_count == FLOOD && told.violations < 1000))
		note("%llu counted, %u told", (unsigned long long)told.last_count, told.violations);
	expect(told.anomalies == 1 && told.anomaly == DSEC_ANOMALY_OFFLINE_SOCKETS);
	told = told_of(e->d, other);
	expect(told.violations == 0 && told.anomalies == 0);
	sandbox_end(e->d, id);
	sandbox_end(e->d, other);
}

static void names_that_are_probed_taint_it_for_good_and_nobody_else(struct engine *e)
{
	const uint32_t bit = 1u << DSEC_ANOMALY_SOCKET_PROBING;
	struct dsec_id id = sandbox_make(e->d), other = sandbox_make(e->d);
	struct told told;

	runs_with_taint(e->d, id, "probe_ipc connect; probe_ipc connect", 0);
	runs_with_taint(e->d, id, "probe_ipc connect", bit);
	runs_with_taint(e->d, id, "true", bit);
	runs_with_taint(e->d, other, "true", 0);
	told = told_when(e->d, id, 3, false);
	expect(told.violations == 3 && told.anomalies == 1 && told.hook == HOOK_UNIX_CONNECT);
	expect(told.anomaly == DSEC_ANOMALY_SOCKET_PROBING && told.text[0] == '@');
	expect(inspected_taint(e->d, id) == bit && inspected_taint(e->d, other) == 0);
	sandbox_end(e->d, id);
	expect(inspected_taint(e->d, id) == bit);
	sandbox_end(e->d, other);
}

/* Slots are used again: what one sandbox did is not another's. */
static void
who_comes_after_is_clean_and_what_was_left_running_is_told_before_the_end(struct engine *e)
{
	for (int i = 0; i < 8; i++) {
		struct dsec_id id = sandbox_make(e->d);
		struct told told;

		expect(told_of(e->d, id).violations == 0 && inspected_taint(e->d, id) == 0);
		runs_with_taint(e->d, id, "probe_ipc sockets 1000", 0);
		expect(told_when(e->d, id, 1000, false).last_count == 1000);
		{
			auto_ran struct ran left = shell_run(
				e->d, id, "probe_ipc sockets 100000000 >/dev/null 2>&1 &");

			expect(ran_exited(&left, 0));
		}
		expect(told_when(e->d, id, 1001, false).last_count > 1000); /* it has begun */
		sandbox_end(e->d, id);
		told = told_when(e->d, id, 1001, true);
		expect(told.ended && told.after_end == 0 && told.last_count > 1000);
	}
}

static const struct claim claims[] = {
	CLAIM(a_refused_socket_is_told_with_who_tried_and_taints_nothing),
	CLAIM(of_a_flood_the_count_is_exact_and_the_neighbour_is_clean),
	CLAIM(names_that_are_probed_taint_it_for_good_and_nobody_else),
	CLAIM(who_comes_after_is_clean_and_what_was_left_running_is_told_before_the_end),
};

int main(int argc, char **argv)
{
	static const struct suite suites[] = { SUITE("integrity", claims) };

	return suites_main(argc, argv, suites, sizeof suites / sizeof *suites);
}
