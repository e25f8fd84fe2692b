/*
 * Crews: what is born of a bound worker has its policy's filter, answer by answer, as what was
 * given it has; no other policy's; and no death of a worker and no new version changes that.
 */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "tests/root/engine/engine_client.h"
#include "tests/root/engine/engine_harness.h"

enum { WORKERS_MAX = 64, OWN = 6 /* workers that are never bound */, BURST = 40, ROUNDS = 4 };

static const char one[] = "name: one\nsockets: { families: [unix, inet] }\n"
			  "ioctls: { allow: [tty, file] }\nprocesses: { setscheduler: deny }\n";
static const char two[] = "name: two\nsockets: { families: [unix, inet6, netlink] }\n"
			  "processes: { ptrace: deny }\n";

/* ---- which workers ---- */

static unsigned long status_of(pid_t pid, const char *field)
{
	char path[32], line[256];
	unsigned long value = 0;
	FILE *file;

	(void)snprintf(path, sizeof path, "/proc/%d/status", pid);
	file = fopen(path, "re");
	while (file && fgets(line, sizeof line, file))
		if (!strncmp(line, field, strlen(field)))
			(void)sscanf(line + strlen(field), ": %lu", &value);
	if (file)
		(void)fclose(file); /* was only read */
	return value;
}

static unsigned bound_workers(const struct engine *e, pid_t ret[static WORKERS_MAX])
{
	unsigned count = engine_workers(e, ret, WORKERS_MAX), bound = 0;

	for (unsigned i = 0; i < count; i++)
		if (status_of(ret[i], "Seccomp_filters") > 1)
			ret[bound++] = ret[i];
	return bound;
}

/* They start sandboxes and programs and do nothing else: they wake up for those alone. */
static unsigned long bound_wakes(const struct engine *e)
{
	pid_t pids[WORKERS_MAX];
	unsigned count = bound_workers(e, pids);
	unsigned long wakes = 0;

	for (unsigned i = 0; i < count; i++)
		wakes += status_of(pids[i], "voluntary_ctxt_switches");
	return wakes;
}

static struct made burst_of(struct engine *e, const char *policy)
{
	struct dsec_create_opts opts = create_opts(BURST);

	opts.policy = policy;
	return create_run(e->d, &opts);
}

static struct dsec_id sandbox_of(struct engine *e, const char *policy)
{
	struct dsec_create_opts opts = create_opts(1);

	opts.policy = policy;
	return one_make(e->d, &opts);
}

/* ---- what its programs are answered ---- */

static void answers_of(struct engine *e, struct dsec_id id, const char *word, char ret[static 128])
{
	const struct command c = { .argv = { "/bin/probe_filter", word } };
	auto_ran struct ran ran = command_run(e->d, id, &c);
	const struct dsec_output *out = ran_output(&ran, 1);

	ret[0] = 0;
	if (!expect(ran_exited(&ran, 0) && out))
		ran_note(&ran);
	else
		(void)snprintf(ret, 128, "%.*s", (int)out->head.bytes,
			       (const char *)out->head.data);
}

static void new_answers(struct engine *e, const char *policy, char ret[static 128])
{
	const struct dsec_id id = sandbox_of(e, policy);

	answers_of(e, id, NULL, ret);
	sandbox_end(e->d, id);
}

static bool families_are(struct engine *e, struct dsec_id id, const char *wanted)
{
	char said[128];

	answers_of(e, id, "names", said);
	if (strcmp(said, wanted) != 0)
		note("families %s", said);
	return !strcmp(said, wanted);
}

static bool answers_are(struct engine *e, const char *policy, const char *wanted)
{
	char said[128];

	new_answers(e, policy, said);
	if (strcmp(said, wanted) != 0)
		note("%s: %s, and was %s", policy, said, wanted);
	return !strcmp(said, wanted);
}

/* ---- until there is a crew ---- */

static bool is_run_by_bound(struct engine *e, struct dsec_id id)
{
	const unsigned long wakes = bound_wakes(e);
	char said[128];

	answers_of(e, id, "names", said);
	return bound_wakes(e) > wakes;
}

/* Asked for often enough, and then of some sandboxes of both shards. */
static bool crew_serves(struct engine *e, const char *policy)
{
	auto_made struct made made = burst_of(e, policy);
	bool good = expect(made.created == BURST);

	for (unsigned i = 0; good && i < 4; i++)
		good = is_run_by_bound(e, made.ids[i]);
	return expect(sandboxes_end(e->d, made.ids, made.created).code == DSEC_OK) && good;
}

static bool crew_is_there(struct engine *e, const char *policy)
{
	return until(60000, crew_serves(e, policy));
}

/* ---- claims ---- */

static void what_is_inherited_answers_as_what_is_given_and_is_nobody_elses(struct engine *e)
{
	char first[128], second[128], none[128];
	pid_t pids[WORKERS_MAX];
	unsigned long wakes;

	expect(policy_load(e->d, one) == DSEC_OK && policy_load(e->d, two) == DSEC_OK);
	new_answers(e, "one", first);
	new_answers(e, "two", second);
	new_answers(e, "default", none);
	expect(bound_workers(e, pids) == 0);
	expect(strcmp(first, second) != 0 && strcmp(first, none) != 0 && strcmp(second, none) != 0);
	expect(!strncmp(first, "2 filters", 9) && !strncmp(none, "1 filters", 9));
	expect(crew_is_there(e, "one") && crew_is_there(e, "two"));
	wakes = bound_wakes(e);
	expect(answers_are(e, "default", none) && bound_wakes(e) == wakes);
	for (unsigned round = 0; round < ROUNDS; round++) {
		wakes = bound_wakes(e);
		expect(answers_are(e, "one", first) && bound_wakes(e) > wakes);
		wakes = bound_wakes(e);
		expect(answers_are(e, "two", second) && bound_wakes(e) > wakes);
		expect(answers_are(e, "default", none));
	}
	policies_remove(e->d, (const char *const[]){ "one", "two", NULL });
}

/* A terminal is set up past a filter that allows its program none of that. */
static void a_terminal_and_its_sizes_are_no_affair_of_the_filter(struct engine *e)
{
	static const char none[] = "name: none\nioctls: { allow: [0x5401] }\n";
	const struct command c = { .argv = { "/bin/sh", "-c", "tty </dev/tty" },
				   .flags = DSEC_EXEC_TTY };
	struct dsec_id id;

	expect(policy_load(e->d, none) == DSEC_OK && crew_is_there(e, "none"));
	id = sandbox_of(e, "none");
	{
		auto_ran struct ran ran = command_run(e->d, id, &c);

		if (!expect(ran_exited(&ran, 0)))
			ran_note(&ran);
	}
	sandbox_end(e->d, id);
	policies_remove(e->d, (const char *const[]){ "none", NULL });
}

static void a_bound_worker_that_dies_costs_one_request_and_its_crew_stays(struct engine *e)
{
	pid_t pids[WORKERS_MAX];
	char wanted[128];
	unsigned count, lost = 0;

	expect(policy_load(e->d, one) == DSEC_OK && crew_is_there(e, "one"));
	new_answers(e, "one", wanted);
	count = bound_workers(e, pids);
	for (unsigned round = 0; round < ROUNDS; round++) {
		struct dsec_create_opts opts = create_opts(BURST);

		opts.policy = "one";
		int64_t ticket = create_start(e->d, &opts, NULL);

		/* In the end all of them at once: who waits for them is served by the others. */
		count = bound_workers(e, pids);
		for (unsigned i = 0; i < (round < ROUNDS / 2 ? 1 : count); i++)
			lost += kill(pids[i], SIGKILL) == 0; /* a worker: the engine reaps it */
		auto_made struct made made = create_wait(e->d, ticket, BURST);

		expect(made.created + made.failed == BURST);
		expect(made.failed <= (round < ROUNDS / 2 ? 1 : count));
		for (unsigned i = 0; i < made.created; i += BURST / 2)
			expect(families_are(e, made.ids[i], "1 2 \n"));
		expect(sandboxes_end(e->d, made.ids, made.created).code == DSEC_OK);
		expect(crew_is_there(e, "one"));
	}
	expect(lost >= ROUNDS && answers_are(e, "one", wanted));
	policies_remove(e->d, (const char *const[]){ "one", NULL });
}

static void
a_new_version_under_a_name_has_its_own_filter_and_the_old_ones_keep_theirs(struct engine *e)
{
	static const char changed[] = "name: one\nsockets: { families: [unix, inet6] }\n";
	struct dsec_id old, new;

	expect(policy_load(e->d, one) == DSEC_OK && crew_is_there(e, "one"));
	old = sandbox_of(e, "one");
	expect(families_are(e, old, "1 2 \n"));
	expect(policy_load(e->d, changed) == DSEC_OK);
	/* Beside the old one's crew, then with one of its own. */
	for (unsigned i = 0; i < 2; i++) {
		new = sandbox_of(e, "one");
		expect(families_are(e, new, "1 10 \n"));
		expect(families_are(e, old, "1 2 \n"));
		sandbox_end(e->d, new);
		expect(crew_is_there(e, "one"));
	}
	expect(policy_load(e->d, one) == DSEC_OK);
	new = sandbox_of(e, "one");
	expect(families_are(e, new, "1 2 \n"));
	sandbox_end(e->d, new);
	sandbox_end(e->d, old);
	policies_remove(e->d, (const char *const[]){ "one", NULL });
}

/* Six of them, of four crews at most: each sandbox has its own policy's filter, whoever made it. */
static void more_policies_than_crews_each_have_their_own_filter(struct engine *e)
{
	static const char *const families[] = { "unix, inet",  "unix, inet6",	"unix, netlink",
						"inet, inet6", "inet, netlink", "inet6, netlink" };
	static const char *const wanted[] = { "1 2 \n",	 "1 10 \n", "1 16 \n",
					      "2 10 \n", "2 16 \n", "10 16 \n" };
	char document[128], name[2] = "a";
	pid_t pids[WORKERS_MAX];

	for (unsigned i = 0; i < 6; i++) {
		(void)snprintf(document, sizeof document, "name: %c\nsockets: { families: [%s] }\n",
			       'a' + (int)i, families[i]);
		expect(policy_load(e->d, document) == DSEC_OK);
	}
	for (unsigned round = 0; round < 3; round++)
		for (unsigned i = 0; i < 6; i++) {
			name[0] = (char)('a' + i);
			auto_made struct made made = burst_of(e, name);

			expect(made.created == BURST);
			expect(families_are(e, made.ids[0], wanted[i]));
			expect(families_are(e, made.ids[BURST - 1], wanted[i]));
			expect(sandboxes_end(e->d, made.ids, made.created).code == DSEC_OK);
		}
	expect(bound_workers(e, pids) <= 4 * OWN);
	for (unsigned i = 0; i < 6; i++) {
		name[0] = (char)('a' + i);
		policies_remove(e->d, (const char *const[]){ name, NULL });
	}
}

static const struct claim claims[] = {
	CLAIM(what_is_inherited_answers_as_what_is_given_and_is_nobody_elses),
	CLAIM(a_terminal_and_its_sizes_are_no_affair_of_the_filter),
	CLAIM(a_new_version_under_a_name_has_its_own_filter_and_the_old_ones_keep_theirs),
	CLAIM(more_policies_than_crews_each_have_their_own_filter),
};

static const struct claim hurt[] = {
	CLAIM(a_bound_worker_that_dies_costs_one_request_and_its_crew_stays),
};

int main(int argc, char **argv)
{
	static const struct suite suites[] = { SUITE("crews", claims),
					       SUITE("crews, hurt", hurt, .is_hurt = true) };

	return suites_main(argc, argv, suites, sizeof suites / sizeof *suites);
}
