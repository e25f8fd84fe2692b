/*
 * Phases: a move is compared and counted, ends what runs where it is told to, brings a policy that
 * allows no more than the one before, and is all or nothing whoever does what beside it.
 */
#include <stdio.h>
#include <string.h>

#include "tests/root/engine/engine_client.h"
#include "tests/root/engine/engine_harness.h"
#include "tests/root/engine/port_client.h"

enum { RACES = 8, RACING_EXECS = 6 };

/* How a move ended. */
struct moved {
	struct dsec_status status;
	uint64_t version;
	uint32_t killed, cut, policy, flags;
	char name[64], policy_name[64];
};

static void copy(char *ret, size_t bytes, struct dsec_bytes from)
{
	(void)snprintf(ret, bytes, "%.*s", (int)from.bytes, (const char *)from.data);
}

static struct dsec_phase_opts phase_opts(const char *name, uint32_t flags)
{
	return (struct dsec_phase_opts){ .size = sizeof(struct dsec_phase_opts),
					 .name = name,
					 .flags = flags };
}

static struct moved move_wait(struct dsec *d, int64_t ticket)
{
	struct moved moved = { .status.code = DSEC_LOST };
	struct dsec_event *event;

	if (!expect(ticket >= 0 && dsec_wait(d, ticket, 60000, &event) == 0))
		return moved;
	expect(event->flags & DSEC_LAST);
	moved.status = event->status;
	moved.flags = event->flags;
	if (event->body) {
		const struct dsec_phased *phased = event->body;

		moved.version = phased->version;
		moved.killed = phased->execs_killed;
		moved.cut = phased->flows_cut;
		moved.policy = phased->policy;
		copy(moved.name, sizeof moved.name, phased->name);
		copy(moved.policy_name, sizeof moved.policy_name, phased->policy_name);
	}
	dsec_event_free(event);
	return moved;
}

static struct moved move(struct dsec *d, struct dsec_id id, const struct dsec_phase_opts *opts)
{
	return move_wait(d, dsec_phase(d, NULL, id, opts));
}

static bool is_moved(const struct moved *moved, uint64_t version, const char *name)
{
	bool good = moved->status.code == DSEC_OK && moved->version == version &&
		    !strcmp(moved->name, name);

	if (!good)
		note("code %u at %s: %s; %s %llu", moved->status.code, moved->status.step,
		     moved->status.detail, moved->name, (unsigned long long)moved->version);
	return good;
}

static bool is_refused(const struct moved *moved, uint32_t code, const char *step)
{
	bool good = moved->status.code == code && !strcmp(moved->status.step, step);

	if (!good)
		note("code %u at %s: %s", moved->status.code, moved->status.step,
		     moved->status.detail);
	return good;
}

static bool inspected_as(struct dsec *d, struct dsec_id id, uint64_t version, const char *name,
			 const char *policy)
{
	int64_t ticket = dsec_inspect(d, NULL, id);
	char phase[64] = "?", policy_name[64] = "?";
	struct dsec_event *event;
	bool good = false;

	if (!expect(ticket >= 0 && dsec_wait(d, ticket, 20000, &event) == 0))
		return false;
	if (expect(event->body)) {
		const struct dsec_inspected *seen = event->body;

		copy(phase, sizeof phase, seen->phase);
		copy(policy_name, sizeof policy_name, seen->policy);
		good = seen->phase_version == version && !strcmp(phase, name) &&
		       !strcmp(policy_name, policy);
	}
	dsec_event_free(event);
	return good;
}

/* Events of a sandbox, and what of them tells of its phases. */
static uint32_t phases_told(struct dsec *d, struct dsec_id id, char names[static 128])
{
	const struct dsec_select select = { .size = sizeof select, .count = 1, .ids = &id };
	const struct dsec_subscribe_opts opts = { .size = sizeof opts,
						  .flags = DSEC_SUBSCRIBE_SO_FAR,
						  .select = &select,
						  .from_seq = 1 };
	int64_t ticket = dsec_subscribe(d, NULL, &opts);
	struct dsec_event *event;
	uint32_t count = 0;
	bool last = ticket < 0;
	size_t used = 0;

	while (!last && expect(dsec_wait(d, ticket, 20000, &event) == 0)) {
		const struct dsec_news *news = event->body;

		last = event->flags & DSEC_LAST;
		if (event->kind == DSEC_EV_STATE && news && news->topic == DSEC_TOPIC_PHASE) {
			count++;
			used += (size_t)snprintf(names + used, 128 - used, "%.*s%llu ",
						 (int)news->phase.bytes,
						 (const char *)news->phase.data,
						 (unsigned long long)news->phase_version);
		}
		dsec_event_free(event);
	}
	return count;
}

static void a_move_is_a_new_version_and_one_that_comes_too_late_is_told_the_phase(struct engine *e)
{
	struct dsec_id id = sandbox_make(e->d);
	struct dsec_phase_opts opts = phase_opts("agent", 0);
	struct moved moved;
	char told[128] = "";

	expect(inspected_as(e->d, id, 1, "", "default"));
	opts.version = 1;
	moved = move(e->d, id, &opts);
	expect(is_moved(&moved, 2, "agent") && !strcmp(moved.policy_name, "default"));
	opts.name = "verify";
	moved = move(e->d, id, &opts);
	expect(is_refused(&moved, DSEC_CONFLICT, "phase.version"));
	expect(moved.version == 2 && !strcmp(moved.name, "agent"));
	expect(strstr(moved.status.detail, "agent, version 2"));
	opts.version = 2;
	moved = move(e->d, id, &opts);
	expect(is_moved(&moved, 3, "verify"));
	expect(inspected_as(e->d, id, 3, "verify", "default"));
	expect(until(20000, (told[0] = 0, phases_told(e->d, id, told) == 2)));
	expect(!strcmp(told, "agent2 verify3 "));
	opts.name = "no Such";
	moved = move(e->d, id, &opts);
	expect(is_refused(&moved, DSEC_INVALID, "phase.name"));
	opts = phase_opts("a", 0);
	opts.policy = "not-there";
	moved = move(e->d, id, &opts);
	expect(is_refused(&moved, DSEC_ABSENT, "phase.policy"));
	sandbox_end(e->d, id);
	moved = move(e->d, id, &opts);
	expect(is_refused(&moved, DSEC_ABSENT, "request.subject"));
}

static void an_exec_for_a_phase_that_is_over_is_refused_and_results_say_theirs(struct engine *e)
{
	struct dsec_id id = sandbox_make(e->d);
	struct dsec_phase_opts opts = phase_opts("agent", 0);
	struct command c = SH("echo here");
	struct moved moved;

	c.phase = 1;
	{
		auto_ran struct ran ran = command_run(e->d, id, &c);

		expect(ran_says(&ran, "here\n") && ran.result->phase == 1);
	}
	moved = move(e->d, id, &opts);
	expect(is_moved(&moved, 2, "agent"));
	{
		auto_ran struct ran ran = command_run(e->d, id, &c);

		expect(ran.status.code == DSEC_CONFLICT && !ran.started);
		expect(!strcmp(ran.status.step, "phase.version"));
	}
	c.phase = 2;
	{
		auto_ran struct ran ran = command_run(e->d, id, &c);

		expect(ran_says(&ran, "here\n") && ran.result->phase == 2);
	}
	sandbox_end(e->d, id);
}

static void the_same_request_moves_it_once(struct engine *e)
{
	struct dsec_id id = sandbox_make(e->d);
	const struct dsec_phase_opts opts = phase_opts("agent", DSEC_PHASE_KILL_OLD);
	const struct dsec_call call = call_now();
	struct moved first, again;

	first = move_wait(e->d, dsec_phase(e->d, &call, id, &opts));
	again = move_wait(e->d, dsec_phase(e->d, &call, id, &opts));
	expect(is_moved(&first, 2, "agent") && !(first.flags & DSEC_REPLAYED));
	expect(is_moved(&again, 2, "agent") && again.flags & DSEC_REPLAYED);
	expect(inspected_as(e->d, id, 2, "agent", "default"));
	sandbox_end(e->d, id);
}

/* One that is read, one that is not, one that ignores what it can, and what an ended one left. */
static void kill_old_answers_when_nothing_of_the_old_phase_runs(struct engine *e)
{
	struct dsec_id id = sandbox_make(e->d), other = sandbox_make(e->d);
	struct command reads = SH("echo up; sleep 1000"), detached = SH("sleep 1000");
	struct command deaf = SH("trap '' TERM HUP INT; echo up; while :; do sleep 1000; done");
	struct dsec_phase_opts opts = phase_opts("verify", DSEC_PHASE_KILL_OLD);
	int64_t read_ticket, deaf_ticket;
	struct moved moved;

	detached.flags = DSEC_EXEC_DETACH;
	for (int i = 0; i < 2; i++) {
		auto_ran struct ran left = shell_run(
			e->d, i ? other : id, "(setsid sleep 1000 >/dev/null 2>&1 &) ; echo left");

		expect(ran_says(&left, "left\n"));
	}
	read_ticket = command_start(e->d, id, &reads, NULL);
	deaf_ticket = command_start(e->d, id, &deaf, NULL);
	{
		auto_ran struct ran ran = command_run(e->d, id, &detached);

		expect(ran.started);
	}
	expect(until(20000, engine_running(e, "sleep") == 5));
	moved = move(e->d, id, &opts);
	expect(is_moved(&moved, 2, "verify") && moved.killed == 3);
	if (!expect(engine_running(e, "sleep") == 1)) /* the neighbour's */
		note("%u run on", engine_running(e, "sleep"));
	{
		auto_ran struct ran ran = command_wait(e->d, read_ticket);
		auto_ran struct ran stubborn = command_wait(e->d, deaf_ticket);
		auto_ran struct ran after = shell_run(e->d, id, "echo good");

		expect(ran.result && ran.result->reason == DSEC_PHASE_OVER);
		expect(ran.result && ran.result->phase == 1);
		expect(stubborn.result && stubborn.result->reason == DSEC_PHASE_OVER);
		expect(ran_says(&after, "good\n") && after.result->phase == 2);
	}
	opts.name = "empty";
	moved = move(e->d, id, &opts);
	expect(is_moved(&moved, 3, "empty") && moved.killed == 0);
	sandbox_end(e->d, id);
	sandbox_end(e->d, other);
}

static struct dsec_id policed_make(struct dsec *d, const char *policy)
{
	struct dsec_create_opts opts = create_opts(1);
	auto_made struct made made = { 0 };

	opts.policy = policy;
	made = create_run(d, &opts);
	return expect(made.created == 1) ? made.ids[0] : (struct dsec_id){ 0 };
}

static void runs(struct dsec *d, struct dsec_id id, const char *script, const char *says)
{
	auto_ran struct ran ran = shell_run(d, id, script);

	if (!expect(ran_says(&ran, says)))
		ran_note(&ran);
}

static void a_narrower_policy_comes_into_force_and_a_wider_one_never(struct engine *e)
{
	struct dsec_phase_opts opts = phase_opts("judge", DSEC_PHASE_KILL_OLD);
	struct moved moved;
	struct dsec_id id;

	expect(policy_load(e->d, "name: wide\n"
				 "files: { readonly: [/srv/a] }\n"
				 "phases: { judge: tight }\n") == DSEC_INVALID); /* not there yet */
	expect(policy_load(e->d, "name: tight\n"
				 "files: { readonly: [/srv/a, /srv/b], hide: [/srv/c] }\n"
				 "processes: { userfaultfd: deny, keyctl: deny }\n"
				 "sockets: { families: [netlink] }\n") == DSEC_OK);
	expect(policy_load(e->d, "name: wide\n"
				 "files: { readonly: [/srv/a] }\n"
				 "phases: { judge: tight }\n") == DSEC_OK);
	expect(policy_load(e->d, "name: aside\nfiles: { readonly: [/srv/b] }\n") == DSEC_OK);
	id = policed_make(e->d, "wide");
	runs(e->d, id,
	     "mkdir -p /srv/b /srv/c; echo x >/srv/b/t; echo y >/srv/c/u; cat /srv/b/t /srv/c/u",
	     "x\ny\n");
	opts.name = "else"; /* it declares phases, and not that one */
	moved = move(e->d, id, &opts);
	expect(is_refused(&moved, DSEC_INVALID, "phase.name"));
	opts.policy = "aside";
	moved = move(e->d, id, &opts);
	expect(is_refused(&moved, DSEC_DENIED, "phase.policy"));
	expect(strstr(moved.status.detail, "files.readonly /srv/a") && moved.version == 1);
	opts = phase_opts("judge", DSEC_PHASE_KILL_OLD);
	moved = move(e->d, id, &opts);
	expect(is_moved(&moved, 2, "judge") && !strcmp(moved.policy_name, "tight"));
	expect(inspected_as(e->d, id, 2, "judge", "tight"));
	runs(e->d, id, "echo z 2>/dev/null >/srv/b/t; mv /srv/b /srv/d 2>/dev/null; cat /srv/b/t",
	     "x\n");
	runs(e->d, id, "ls /srv/c; echo end", "end\n");
	{
		/* The filter is there, too: a unix socket is refused now. */
		auto_ran struct ran ran = shell_run(e->d, id, "probe_ipc connect");

		expect(!ran_exited(&ran, 0) || ran_wrote(&ran, 1, "", 0));
	}
	opts = phase_opts("back", 0);
	opts.policy = "wide";
	moved = move(e->d, id, &opts);
	expect(is_refused(&moved, DSEC_DENIED, "phase.policy") && moved.version == 2);
	runs(e->d, id, "cat /srv/b/t", "x\n");
	sandbox_end(e->d, id);
	policies_remove(e->d, (const char *const[]){ "wide", "tight", "aside", NULL });
}

/* Whoever begins beside a move is of the old phase, and ended with it, or of the new one. */
static void beside_a_move_an_exec_is_of_one_phase_or_the_other(struct engine *e)
{
	const struct command c = SH("sleep 0.01; echo done");
	struct dsec_phase_opts opts = phase_opts("next", DSEC_PHASE_KILL_OLD);
	const struct dsec_call patient = { .size = sizeof patient, .timeout_ms = 60000 };
	struct dsec_id id = sandbox_make(e->d);
	unsigned before = 0, after = 0;

	for (unsigned race = 1; race <= RACES; race++) {
		int64_t tickets[RACING_EXECS], move_ticket = -1;
		struct moved moved;

		for (unsigned i = 0; i < RACING_EXECS; i++) {
			if (i == race % RACING_EXECS)
				move_ticket = dsec_phase(e->d, &patient, id, &opts);
			tickets[i] = command_start(e->d, id, &c, &patient);
		}
		moved = move_wait(e->d, move_ticket);
		expect(is_moved(&moved, race + 1, "next"));
		for (unsigned i = 0; i < RACING_EXECS; i++) {
			auto_ran struct ran ran = command_wait(e->d, tickets[i]);

			if (!expect(ran.result)) {
				ran_note(&ran);
				continue;
			}
			if (ran.result->phase == race + 1) {
				expect(ran_says(&ran, "done\n"));
				after++;
			} else {
				expect(ran.result->phase == race);
				expect(ran.result->reason == DSEC_PHASE_OVER ||
				       ran_exited(&ran, 0));
				before++;
			}
		}
	}
	expect(before + after == RACES * RACING_EXECS);
	note("%u of the old phases, %u of the new ones", before, after);
	sandbox_end(e->d, id);
}

static void a_sandbox_that_goes_takes_its_move_along(struct engine *e)
{
	for (int i = 0; i < 4; i++) {
		struct dsec_id id = sandbox_make(e->d);
		const struct command c = SH("sleep 1000");
		const struct dsec_phase_opts opts = phase_opts("next", DSEC_PHASE_KILL_OLD);
		const struct dsec_select select = { .size = sizeof select, .count = 1, .ids = &id };
		int64_t exec, ticket, end;
		struct moved moved;

		exec = command_start(e->d, id, &c, NULL);
		ticket = dsec_phase(e->d, NULL, id, &opts);
		end = dsec_destroy(e->d, NULL, &select);
		moved = move_wait(e->d, ticket);
		expect(moved.status.code == DSEC_OK || moved.status.code == DSEC_ABSENT);
		expect(ticket_end(e->d, end).code == DSEC_OK);
		auto_ran struct ran ran = command_wait(e->d, exec);
	}
}

/* In a sandbox of its own with a network. */
static struct dsec_id talks_make(struct engine *e, int64_t *ret_ticket)
{
	struct dsec_id id = networked_make(e->d, DSEC_NETWORK_PRIVATE);

	*ret_ticket = talk_start(e->d, id);
	return id;
}

static void flows_that_are_cut_end_and_their_programs_run_on_and_a_neighbours_too(struct engine *e)
{
	const struct dsec_phase_opts opts = phase_opts("next", DSEC_PHASE_CUT_FLOWS);
	int64_t ticket = -1, other_ticket = -1;
	struct dsec_id id = talks_make(e, &ticket), other = talks_make(e, &other_ticket);
	struct moved moved;

	expect(until(20000, talk_has_begun(e->d, id)) && until(20000, talk_has_begun(e->d, other)));
	moved = move(e->d, id, &opts);
	if (moved.status.code == DSEC_UNSUPPORTED) {
		note("%s", moved.status.detail);
	} else if (expect(is_moved(&moved, 2, "next") && moved.cut >= 2)) {
		auto_ran struct ran ran = command_wait(e->d, ticket);

		expect(ran_says(&ran, "over\n") && ran.result->phase == 1);
		expect(engine_running(e, "busybox") == 1); /* the neighbour's */
	}
	moved = move(e->d, other, &opts);
	expect(moved.status.code == DSEC_UNSUPPORTED || is_moved(&moved, 2, "next"));
	sandbox_end(e->d, id);
	sandbox_end(e->d, other);
	ticket_end(e->d, other_ticket);
	id = sandbox_make(e->d); /* without a network there is nothing to cut */
	moved = move(e->d, id, &opts);
	expect(is_moved(&moved, 2, "next") && moved.cut == 0);
	sandbox_end(e->d, id);
}

static const struct claim claims[] = {
	CLAIM(a_move_is_a_new_version_and_one_that_comes_too_late_is_told_the_phase),
	CLAIM(an_exec_for_a_phase_that_is_over_is_refused_and_results_say_theirs),
	CLAIM(the_same_request_moves_it_once),
	CLAIM(kill_old_answers_when_nothing_of_the_old_phase_runs),
	CLAIM(a_narrower_policy_comes_into_force_and_a_wider_one_never),
	CLAIM(beside_a_move_an_exec_is_of_one_phase_or_the_other),
	CLAIM(a_sandbox_that_goes_takes_its_move_along),
	CLAIM(flows_that_are_cut_end_and_their_programs_run_on_and_a_neighbours_too),
};

int main(int argc, char **argv)
{
	static const struct suite suites[] = { SUITE("phase", claims) };

	return suites_main(argc, argv, suites, sizeof suites / sizeof *suites);
}
