/*
 * What a sandbox tried and was refused: told with who did it, counted exactly, and in its verdict
 * only where a rule says so.
 */
#include <stdio.h>
#include <string.h>

#include "tests/root/engine/engine_client.h"
#include "tests/root/engine/engine_harness.h"

enum {
	HOOK_SOCKET = 1,
	HOOK_UNIX_CONNECT = 2,
	HOOK_OPEN = 4,
	HOOK_CREATE = 5,
	HOOK_BYTECODE = 30,
	FLOOD = 100000
};

/* What was told of a sandbox so far. */
struct told {
	uint32_t violations, anomalies, after_end;
	bool ended;
	uint64_t last_count, exec;
	uint32_t hook, anomaly;
	uint64_t phase; /* version */
	char process[16], text[64], phase_name[16];
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
	told->phase = news->phase_version;
	copy(told->phase_name, sizeof told->phase_name, news->phase);
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

/* How the engine enforces that rule of a policy, which is loaded: enum dsec_policy_level. */
static uint32_t policy_levels(struct dsec *d, const char *document, const char *rule)
{
	const struct dsec_policy_opts opts = { .size = sizeof opts,
					       .verb = DSEC_POLICY_LOAD,
					       .document = { document, strlen(document) } };
	int64_t ticket = dsec_policy(d, NULL, &opts);
	struct dsec_event *event;
	uint32_t levels = UINT32_MAX;
	bool last = false;

	while (!last && expect(ticket >= 0 && dsec_wait(d, ticket, 20000, &event) == 0)) {
		const struct dsec_policy_row *row = event->body;

		last = event->flags & DSEC_LAST;
		if (event->kind == DSEC_EV_ROW && row->what == DSEC_POLICY_RULE &&
		    row->text.bytes == strlen(rule) &&
		    !memcmp(row->text.data, rule, row->text.bytes))
			levels = row->levels;
		dsec_event_free(event);
	}
	expect(levels != UINT32_MAX);
	return levels;
}

static void policy_remove(struct dsec *d, const char *name)
{
	const struct dsec_policy_opts opts = { .size = sizeof opts,
					       .verb = DSEC_POLICY_REMOVE,
					       .name = name };

	expect(ticket_end(d, dsec_policy(d, NULL, &opts)).code == 0);
}

static struct dsec_id policed_make(struct dsec *d, const char *policy, uint32_t flags,
				   struct dsec_status *ret)
{
	struct dsec_create_opts opts = create_opts(1);
	auto_made struct made made = { .ids_max = 0 };

	opts.policy = policy;
	opts.flags = flags;
	made = create_run(d, &opts);
	*ret = made.trouble.code ? made.trouble : made.last;
	return made.created ? made.ids[0] : (struct dsec_id){ 0 };
}

#define KERNEL_RULE "sockets.unix.deny /run/x.sock"
static const char kernel_policy[] = "name: kernel\n"
				    "files:\n"
				    "  protect: [/etc/ld.so.preload, /home]\n"
				    "  hide: [/testbed]\n"
				    "sockets: {unix: {deny: [/run/x.sock]}}\n"
				    "enforce: {sockets: required}\n";

/* However many modules it imports. */
static void python_runs_and_is_clean(struct engine *e)
{
	static const char imports[] =
		"i=0; while [ $i -lt 40 ]; do i=$((i+1)); mkdir /home/__pycache__ && exit 1; done "
		"2>/dev/null; :";
	struct dsec_status trouble;
	struct dsec_id held = policed_make(e->d, "kernel", 0, &trouble);
	struct told told;

	runs_with_taint(e->d, held, imports, 0);
	told = told_when(e->d, held, 40, false);
	expect(told.last_count == 40 && told.hook == HOOK_BYTECODE && told.anomalies == 0);
	runs_with_taint(e->d, held,
			"mkdir /home/__pycache 2>/dev/null; :", 1u << DSEC_ANOMALY_PROTECTED_WRITE);
	sandbox_end(e->d, held);
}

/* What every sandbox has a cover over, and what its policy hides: opened three times. */
static void who_looks_for_what_is_covered_is_told_and_hunts(struct engine *e)
{
	const uint32_t bit = 1u << DSEC_ANOMALY_HUNTING;
	struct dsec_status trouble;
	struct dsec_id held = policed_make(e->d, "kernel", 0, &trouble);
	struct told told;

	runs_with_taint(e->d, held, "exec cat /proc/kcore", 0);
	told = told_when(e->d, held, 1, false);
	expect(told.hook == HOOK_OPEN && !strcmp(told.text, "/kcore") && told.anomalies == 0);
	runs_with_taint(e->d, held, "ls /testbed 2>&1 | grep -q 'No such file'", 0);
	expect(until(20000, !strcmp((told = told_of(e->d, held)).text, "/testbed")));
	runs_with_taint(e->d, held, "ls /testbed 2>/dev/null; :", bit);
	told = told_of(e->d, held);
	expect(told.anomalies == 1 && told.anomaly == DSEC_ANOMALY_HUNTING);
	sandbox_end(e->d, held);
}

/* A move without a policy is told to the kernel, too. */
static void phases_are_told_as_they_are(struct engine *e)
{
	static const char attack[] = "(: >/etc/ld.so.preload) 2>/dev/null; :";
	const struct dsec_phase_opts opts = { .size = sizeof opts, .name = "next" };
	struct dsec_status trouble;
	struct dsec_id held = policed_make(e->d, "kernel", 0, &trouble);
	struct told told;

	runs_with_taint(e->d, held, attack, 1u << DSEC_ANOMALY_PROTECTED_WRITE);
	told = told_when(e->d, held, 1, false);
	expect(told.phase == 1 && !*told.phase_name);
	expect(ticket_end(e->d, dsec_phase(e->d, NULL, held, &opts)).code == DSEC_OK);
	runs_with_taint(e->d, held, attack, 1u << DSEC_ANOMALY_PROTECTED_WRITE);
	told = told_when(e->d, held, 2, false);
	expect(told.phase == 2 && !strcmp(told.phase_name, "next"));
	sandbox_end(e->d, held);
}

/* No wall can keep a file from being made, nor a socket from being reached. */
static void what_only_the_kernel_can_hold_is_held_there_or_fails_the_create(struct engine *e)
{
	static const char make[] = "echo x >/etc/ld.so.preload && rm /etc/ld.so.preload";
	static const char flood[] = "i=0; while [ $i -lt 500 ]; do i=$((i+1)); "
				    "(: >/etc/ld.so.preload); done 2>/dev/null; :";
	static const char attack[] = "(echo x >/etc/ld.so.preload) 2>&1 | grep -q 'not permitted'";
	const uint32_t levels = policy_levels(e->d, kernel_policy, KERNEL_RULE);
	struct dsec_status trouble;
	struct dsec_id held, other;
	struct told told;

	if (!levels) {
		held = policed_make(e->d, "kernel", 0, &trouble);
		expect(!held.hi && trouble.code == DSEC_UNSUPPORTED &&
		       strstr(trouble.detail, KERNEL_RULE));
		held = policed_make(e->d, "kernel", DSEC_CREATE_ALLOW_DEGRADED, &trouble);
		if (expect(held.hi))
			sandbox_end(e->d, held);
		policy_remove(e->d, "kernel");
		return;
	}
	expect(levels == DSEC_POLICY_BPF_LSM);
	python_runs_and_is_clean(e);
	who_looks_for_what_is_covered_is_told_and_hunts(e);
	phases_are_told_as_they_are(e);
	/* Slots are used again: the one that had the policy by one that has none. */
	for (int i = 0; i < 4; i++) {
		held = policed_make(e->d, "kernel", 0, &trouble);
		other = sandbox_make(e->d);
		if (!expect(held.hi)) {
			note("%s: %s", trouble.step, trouble.detail);
			return;
		}
		runs_with_taint(e->d, held, attack, 1u << DSEC_ANOMALY_PROTECTED_WRITE);
		told = told_when(e->d, held, 1, false);
		if (!expect(told.violations == 1 && told.hook == HOOK_CREATE))
			break;
		expect(told.anomalies == 1 && told.anomaly == DSEC_ANOMALY_PROTECTED_WRITE);
		expect(!strcmp(told.text, "/etc/ld.so.preload") && !strcmp(told.process, "sh"));
		runs_with_taint(e->d, held, flood, 1u << DSEC_ANOMALY_PROTECTED_WRITE);
		expect(told_when(e->d, held, 501, false).last_count == 501);
		runs_with_taint(e->d, other, make, 0);
		sandbox_end(e->d, held);
		held = sandbox_make(e->d);
		runs_with_taint(e->d, held, make, 0);
		sandbox_end(e->d, held);
		sandbox_end(e->d, other);
	}
	policy_remove(e->d, "kernel");
}

/* ---- what is the task's own ---- */

static struct dsec_id owned_make(struct dsec *d, const char *own, const char *trajectory)
{
	const struct dsec_label labels[] = {
		{ { "trajectory", 10 }, { trajectory, strlen(trajectory) } },
		{ { "task.repository", 15 }, { own, strlen(own) } },
	};
	struct dsec_create_opts opts = create_opts(1);
	auto_made struct made made = { .ids_max = 0 };

	opts.labels = labels;
	opts.label_count = 2;
	made = create_run(d, &opts);
	return expect(made.created == 1) ? made.ids[0] : (struct dsec_id){ 0 };
}

/* How many of them had it as their own; the code of the end. */
static uint32_t fetched(struct dsec *d, const struct dsec_select *select, const char *path,
			uint32_t *ret_code)
{
	const struct dsec_fetched_opts opts = { .size = sizeof opts, .path = path };
	int64_t ticket = dsec_fetched(d, NULL, select, &opts);
	struct dsec_event *event;
	uint32_t own = 0;
	bool last = false;

	*ret_code = UINT32_MAX;
	while (!last && expect(ticket >= 0 && dsec_wait(d, ticket, 20000, &event) == 0)) {
		last = event->flags & DSEC_LAST;
		own += event->kind == DSEC_EV_ROW;
		*ret_code = event->status.code;
		dsec_event_free(event);
	}
	return own;
}

static void what_a_proxy_saw_fetched_taints_whose_own_it_is(struct engine *e)
{
	const uint32_t bit = 1u << DSEC_ANOMALY_PROXY_OWN_REPOSITORY;
	static const char path[] = "/mod/git.example/owner/name/@v/list";
	const struct dsec_label all = { { "trajectory", 10 }, { "7", 1 } };
	struct dsec_id id = owned_make(e->d, "git.example/owner/name", "7");
	struct dsec_id other = owned_make(e->d, "git.example/owner/other", "7");
	struct dsec_id plain = sandbox_make(e->d);
	const struct dsec_select by_label = { .size = sizeof by_label,
					      .label_count = 1,
					      .labels = &all };
	struct dsec_select by_id = { .size = sizeof by_id, .count = 1, .ids = &id };
	uint32_t code;
	struct told told;

	expect(fetched(e->d, &by_id, "/mod/git.example/owner/else/@v/list", &code) == 0 && !code);
	expect(inspected_taint(e->d, id) == 0);
	expect(fetched(e->d, &by_label, path, &code) == 1 && !code);
	expect(inspected_taint(e->d, id) == bit && inspected_taint(e->d, other) == 0);
	runs_with_taint(e->d, id, "true", bit);
	told = told_of(e->d, id);
	expect(told.violations == 0 && told.anomalies == 1);
	expect(told.anomaly == DSEC_ANOMALY_PROXY_OWN_REPOSITORY);
	/* Once is enough, and who has no label has nothing of its own. */
	expect(fetched(e->d, &by_id, path, &code) == 1 && !code);
	by_id.ids = &plain;
	expect(fetched(e->d, &by_id, path, &code) == 0 && !code);
	expect(told_of(e->d, id).anomalies == 1 && told_of(e->d, plain).anomalies == 0);
	sandbox_end(e->d, plain);
	expect(fetched(e->d, &by_id, path, &code) == 0 && code == DSEC_ABSENT);
	sandbox_end(e->d, id);
	expect(inspected_taint(e->d, id) == bit);
	sandbox_end(e->d, other);
}

static const struct claim claims[] = {
	CLAIM(what_a_proxy_saw_fetched_taints_whose_own_it_is),
	CLAIM(what_only_the_kernel_can_hold_is_held_there_or_fails_the_create),
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
