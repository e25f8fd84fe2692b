/*
 * The attacks of attack.h in sandboxes of a whole engine, made with a policy and without one: by
 * root inside, whom mounts, the filter and, where the kernel takes them, LSM programs hold.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bpf/policy.h"
#include "tests/hostile/policy/attack.h"
#include "tests/root/engine/engine_client.h"
#include "tests/root/engine/engine_harness.h"
#include "tests/root/engine/engine_image.h"

enum { RULES_MAX = 128, TOLD_MAX = 512, OWN_ABSTRACT = 0x8001 };

/* Labels of the policy's rules, from 1, and whether LSM programs hold any of them. */
static char labels[RULES_MAX][96];
static bool has_lsm;

/* What was told of one sandbox, as it was read last. */
static struct {
	uint32_t count;
	struct violation {
		uint32_t rule, hook;
		char text[128];
	} all[TOLD_MAX];
} told;

static void copy(char *ret, size_t bytes, struct dsec_bytes from)
{
	(void)snprintf(ret, bytes, "%.*s", (int)from.bytes, (const char *)from.data);
}

static bool policy_do(struct dsec *d, uint32_t verb, const char *name, const char *text)
{
	const struct dsec_policy_opts opts = { .size = sizeof opts,
					       .verb = verb,
					       .name = name,
					       .document = { text, text ? strlen(text) : 0 } };
	int64_t ticket = dsec_policy(d, NULL, &opts);
	struct dsec_event *event;
	bool last = false, good = false;

	while (!last && expect(ticket >= 0 && dsec_wait(d, ticket, 60000, &event) == 0)) {
		const struct dsec_policy_row *row = event->body;

		last = event->flags & DSEC_LAST;
		good = event->status.code == DSEC_OK;
		if (event->kind == DSEC_EV_ROW && row->what == DSEC_POLICY_RULE &&
		    expect(row->number < RULES_MAX)) {
			copy(labels[row->number], sizeof labels[0], row->text);
			has_lsm |= row->levels & DSEC_POLICY_BPF_LSM;
		}
		dsec_event_free(event);
	}
	return expect(good);
}

static void told_read(struct dsec *d, struct dsec_id id)
{
	const struct dsec_select select = { .size = sizeof select, .count = 1, .ids = &id };
	const struct dsec_subscribe_opts opts = { .size = sizeof opts,
						  .flags = DSEC_SUBSCRIBE_SO_FAR,
						  .select = &select,
						  .from_seq = 1 };
	int64_t ticket = dsec_subscribe(d, NULL, &opts);
	struct dsec_event *event;
	bool last = false;

	told.count = 0;
	while (!last && expect(ticket >= 0 && dsec_wait(d, ticket, 20000, &event) == 0)) {
		const struct dsec_news *news = event->body;

		last = event->flags & DSEC_LAST;
		if (event->kind == DSEC_EV_STATE && news && news->topic == DSEC_TOPIC_VIOLATION &&
		    told.count < TOLD_MAX) {
			struct violation *v = &told.all[told.count++];

			v->rule = news->rule;
			v->hook = news->hook;
			copy(v->text, sizeof v->text, news->text);
		}
		dsec_event_free(event);
	}
}

/* With its rule, its hook and its path; an abstract name by the rule that every sandbox has. */
static bool is_told(const struct attack *a)
{
	const bool is_abstract = a->text && *a->text == '@';
	char text[128] = "";

	if (a->text)
		(void)snprintf(text, sizeof text, "%s%s", is_abstract ? "" : "/", a->text);
	for (uint32_t i = 0; i < told.count; i++) {
		const struct violation *v = &told.all[i];
		const char *label = v->rule && v->rule < RULES_MAX ? labels[v->rule] : NULL;

		if (v->hook == a->hook && (!a->text || !strcmp(v->text, text)) &&
		    (is_abstract ? v->rule == OWN_ABSTRACT :
		     a->rule	 ? label && !strcmp(label, a->rule) :
				   !v->rule))
			return true;
	}
	return false;
}

/* The filter that every sandbox has comes first, and what it refuses is told of where LSM is. */
static bool is_filters(const struct attack *a)
{
	switch (a->hook) {
	case POLICY_HOOK_SOCKET: /* a ring would have to be there */
		return a->walls == EAFNOSUPPORT;
	case POLICY_HOOK_IOCTL:
	case POLICY_HOOK_BPF:
	case POLICY_HOOK_PERF:
	case POLICY_HOOK_USERFAULTFD:
	case POLICY_HOOK_KEYCTL:
	case POLICY_HOOK_USERNS:
	case POLICY_HOOK_IO_URING:
	case POLICY_HOOK_CORE_SCHED:
	case POLICY_HOOK_MOUNT_CALL:
		return true;
	default:
		return false;
	}
}

/* A program of ours was the wall: an LSM one, or one of the cgroup's that knows abstract names. */
static bool must_be_told(const struct attack *a, int got, bool held)
{
	if (a->text && *a->text == '@')
		return got == EPERM;
	if (held && has_lsm && is_filters(a))
		return true;
	return held && a->hook && got == a->denied && got != a->walls;
}

static struct dsec_id sandbox_with(struct dsec *d, const char *policy)
{
	struct dsec_create_opts opts = create_opts(1);

	opts.policy = policy;
	opts.flags |= DSEC_CREATE_ALLOW_DEGRADED;
	auto_made struct made made = create_run(d, &opts);

	if (!expect(made.created == 1))
		return (struct dsec_id){ 0 };
	return made.ids[0];
}

/* What the attack got, by its line of the program's output; -1: none. */
static int result_of(const struct ran *ran, const char *name)
{
	const struct dsec_output *out = ran_output(ran, 1);
	char text[8192], wanted[80], *at;

	(void)snprintf(text, sizeof text, "\n%.*s", out ? (int)out->head.bytes : 0,
		       out ? (const char *)out->head.data : "");
	(void)snprintf(wanted, sizeof wanted, "\n%s ", name);
	at = strstr(text, wanted);
	return at ? atoi(at + strlen(wanted)) : -1;
}

/* Of who has no policy nothing is told but what no sandbox may. */
static void expect_own_rules_only(struct dsec *d, struct dsec_id id)
{
	told_read(d, id);
	for (uint32_t i = 0; i < told.count; i++)
		if (!expect(told.all[i].rule >= 0x8000))
			note("without: told of rule %u at hook %u", told.all[i].rule,
			     told.all[i].hook);
}

/* Inside, what walls or LSM programs answer, whichever comes first; outside, as always. */
static void group_is_held(struct engine *e, const struct attack_group *group, const char *policy)
{
	const struct command c = { .argv = { "policy-attack", group->name } };

	for (int held = 0; held < 2; held++) {
		told.count = 0;
		struct dsec_id id = sandbox_with(e->d, held ? policy : NULL);
		auto_ran struct ran ran = command_run(e->d, id, &c);

		if (!expect(ran_exited(&ran, 0)))
			ran_note(&ran);
		for (unsigned i = 0; i < group->count; i++) {
			const struct attack *a = &group->attacks[i];
			const int r = result_of(&ran, a->name);
			const bool fits = held ? r == a->walls || r == a->denied : r == a->plain;

			if (!expect(fits))
				note("%s, %s: %s", a->name, held ? "with it" : "without",
				     r < 0 ? "no line" : strerrorname_np(r));
			/* Events come to the journal a turn after the result. */
			if (must_be_told(a, r, held) &&
			    !expect(is_told(a) || until(2000, (told_read(e->d, id), is_told(a)))))
				note("%s, %s: not told among %u", a->name,
				     held ? "with it" : "without", told.count);
		}
		if (!held)
			expect_own_rules_only(e->d, id);
		sandbox_end(e->d, id);
	}
}

/* The policy goes with the claim: an engine keeps a sheet for each. */
static void held_by(struct engine *e, const struct attack_group *group, const char *policy,
		    const char *text)
{
	if (!policy_do(e->d, DSEC_POLICY_LOAD, NULL, text))
		return;
	group_is_held(e, group, policy);
	(void)policy_do(e->d, DSEC_POLICY_REMOVE, policy, NULL);
}

static void files_with_rules_are_held_by_every_route(struct engine *e)
{
	held_by(e, &files_group, "attacked", POLICY_TEXT);
}

static void nothing_inside_mounts_anything(struct engine *e)
{
	held_by(e, &mounts_group, "attacked", POLICY_TEXT);
}

static void ioctls_are_held_by_every_entry(struct engine *e)
{
	held_by(e, &ioctls_group, "attacked", POLICY_TEXT);
}

static void families_and_names_of_sockets_are_held(struct engine *e)
{
	held_by(e, &sockets_group, "attacked", POLICY_TEXT);
}

static void others_and_the_kernels_machinery_are_held(struct engine *e)
{
	held_by(e, &processes_group, "attacked", POLICY_TEXT);
}

static void neither_rings_nor_mounts_are_there(struct engine *e)
{
	held_by(e, &closed_group, "closed", POLICY_CLOSED_TEXT);
}

int main(int argc, char **argv)
{
	static const struct claim claims[] = {
		CLAIM(files_with_rules_are_held_by_every_route),
		CLAIM(nothing_inside_mounts_anything),
		CLAIM(ioctls_are_held_by_every_entry),
		CLAIM(families_and_names_of_sockets_are_held),
		CLAIM(others_and_the_kernels_machinery_are_held),
		CLAIM(neither_rings_nor_mounts_are_there),
	};
	static const struct suite suites[] = { SUITE("policy", claims) };

	image_add(ATTACK_PATH, "policy-attack");
	image_add(ATTACK_PATH, "../usr/bin/answer");
	return suites_main(argc, argv, suites, 1);
}
