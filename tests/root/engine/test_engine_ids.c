/*
 * Request ids: what changes something happens once under an id, whatever it is, whichever shard
 * does it and whichever has its record; and an id means one request.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "engine/base/cleanup.h"
#include "tests/root/engine/call_client.h"
#include "tests/root/engine/tenant_client.h"

enum { SHARDS = 2 };

/* ---- ids ---- */

static uint64_t engine_ms(void)
{
	struct timespec now;

	(void)clock_gettime(CLOCK_REALTIME, &now); /* cannot fail */
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* One never used before, of this age, with its record on this shard. */
static struct dsec_call id_at(uint64_t ms, uint8_t shard)
{
	struct dsec_call call = { .size = sizeof call };
	struct timespec now;

	(void)clock_gettime(CLOCK_MONOTONIC, &now); /* cannot fail */
	for (int i = 0; i < 6; i++)
		call.request_id[i] = (uint8_t)(ms >> (40 - 8 * i));
	memcpy(call.request_id + 6, &now.tv_nsec, 4);
	call.request_id[15] = shard;
	return call;
}

/* ---- answers ---- */

struct told {
	struct dsec_status status;
	bool replayed;
	uint32_t rows, created;
	struct dsec_id subject; /* of the row, or of what was created */
	uint64_t exec;
	char token[64];
};

static struct told told_of(struct dsec *d, int64_t ticket)
{
	struct told told = { .status = { .code = DSEC_LOST } };
	struct dsec_event *event;
	bool is_last = !expect(ticket >= 0);

	while (!is_last && expect(dsec_wait(d, ticket, -1, &event) == 0)) {
		is_last = event->flags & DSEC_LAST;
		if (event->kind == DSEC_EV_ROW || event->kind == DSEC_EV_CREATED)
			told.subject = event->subject;
		told.rows += event->kind == DSEC_EV_ROW;
		told.created += event->kind == DSEC_EV_CREATED && event->status.code == DSEC_OK;
		if (event->exec)
			told.exec = event->exec;
		told.status = event->status;
		told.replayed = event->flags & DSEC_REPLAYED;
		dsec_event_free(event);
	}
	return told;
}

/* ---- every op that changes something ---- */

enum { CREATE, EXEC, APPEND, MKDIR, SIGNAL, CHANGE, PORT, FUNCTION, IMAGE_REMOVE, DESTROY, OPS };

static const char *const op_names[OPS] = {
	"create", "exec", "append",   "mkdir",	      "signal",
	"change", "port", "function", "image remove", "destroy"
};

/* `other`: as another request would be. */
static int64_t file_op(struct dsec *d, const struct dsec_call *call, struct dsec_id id, bool mkdir,
		       bool other)
{
	struct dsec_file_opts opts = { .size = sizeof opts,
				       .verb = mkdir ? DSEC_FILE_MKDIR : DSEC_FILE_WRITE,
				       .path = { other ? "/tmp/b" : "/tmp/a", 6 } };

	if (mkdir) {
		opts.path.data = other ? "/tmp/d" : "/tmp/c";
		return dsec_file(d, call, id, &opts);
	}
	opts.flags = DSEC_FILE_APPEND;
	opts.input = (struct dsec_bytes){ "x", 1 };
	return dsec_write(d, call, id, &opts);
}

static int64_t function_op(struct dsec *d, const struct dsec_call *call, bool other)
{
	const struct dsec_bytes argv = { "/bin/true", 9 };
	const struct dsec_function_opts opts = { .size = sizeof opts,
						 .verb = DSEC_FUNCTION_REGISTER,
						 .name = other ? "g" : "f",
						 .image = "test",
						 .argv = &argv,
						 .argc = 1 };

	return dsec_function(d, call, &opts);
}

static int64_t ask(struct dsec *d, const struct dsec_call *call, struct dsec_id id, unsigned op,
		   bool other)
{
	const struct command counts = SH("echo >>/tmp/ran"), more = SH("echo; echo >>/tmp/ran");
	const struct dsec_select select = { .size = sizeof select, .count = 1, .ids = &id };
	const struct dsec_change_opts change = { .size = sizeof change,
						 .set = DSEC_CHANGE_TTL,
						 .ttl_s = other ? 700 : 600 };
	const struct dsec_port_opts port = { .size = sizeof port, .port = other ? 81 : 80 };
	const struct dsec_image_opts image = { .size = sizeof image,
					       .verb = DSEC_IMAGE_REMOVE,
					       .name = other ? "no/b" : "no/a" };
	struct dsec_create_opts create = create_opts(1);

	create.ttl_s = other ? 60 : 0;
	switch (op) {
	case CREATE:
		return create_start(d, &create, call);
	case EXEC:
		return command_try(d, id, other ? &more : &counts, call);
	case APPEND:
	case MKDIR:
		return file_op(d, call, id, op == MKDIR, other);
	case SIGNAL:
		return dsec_signal(d, call, id, 1, other ? 10 : 12);
	case CHANGE:
		return dsec_change(d, call, &select, &change);
	case PORT:
		return dsec_port(d, call, id, &port);
	case FUNCTION:
		return function_op(d, call, other);
	case IMAGE_REMOVE:
		return dsec_image(d, call, &image);
	default:
		return dsec_destroy(d, call, &select);
	}
}

/* ---- calls: each says what no other does ---- */

enum { CALLS = 40 };

static struct dsec_id chance_of(struct dsec *d, const char *name, const char *script)
{
	char text[160];

	(void)snprintf(text, sizeof text, "head -c 8 /dev/urandom; read x; %s", script); /* fits */
	return function_of(d, name, text, NULL);
}

static void inputs_fill(struct dsec_bytes *inputs, uint32_t count, const char *text)
{
	for (uint32_t i = 0; i < count; i++)
		inputs[i] = (struct dsec_bytes){ text, strlen(text) };
}

static bool said_the_same(const struct calls *a, const struct calls *b)
{
	bool same = a->count == b->count && a->last.code == b->last.code;

	for (uint32_t i = 0; same && i < a->count; i++) {
		const struct called *one = &a->all[i], *two = &b->all[i];

		same = one->times == 1 && two->times == 1 && two->is_replayed &&
		       one->counts[0] >= 8 && two->counts[0] >= 8 &&
		       !memcmp(one->bytes[0], two->bytes[0], 8) &&
		       !memcmp(&one->result, &two->result, sizeof one->result) &&
		       two->counts[0] + two->missing == one->counts[0];
	}
	return same;
}

static void calls_once(struct dsec *d, struct dsec_id id, uint32_t count, uint8_t shard)
{
	struct dsec_call call = id_at(engine_ms(), shard);
	struct dsec_bytes inputs[CALLS + 1];

	inputs_fill(inputs, CALLS + 1, "in\n");
	auto_calls struct calls first = calls_ask(d, &call, id, inputs, count);
	auto_calls struct calls again = calls_ask(d, &call, id, inputs, count);

	expect(first.last.code == DSEC_OK && !first.all[0].is_replayed);
	if (!expect(said_the_same(&first, &again)))
		note("%u calls, record on shard %u: %u, then %u", count, shard, first.last.code,
		     again.last.code);
	auto_calls struct calls more = calls_ask(d, &call, id, inputs, count + 1);

	inputs[count - 1].data = "un\n";
	auto_calls struct calls other = calls_ask(d, &call, id, inputs, count);

	expect(more.last.code == DSEC_CONFLICT && !more.last.retry_after_ms);
	expect(other.last.code == DSEC_CONFLICT);
}

static void a_call_runs_once_under_an_id_and_its_verdict_is_told_again(struct engine *e)
{
	struct dsec_call old = id_at(engine_ms() - 3600 * 1000, 0);
	struct dsec_id id = chance_of(e->d, "once", "exit 0");
	struct dsec_id fails = chance_of(e->d, "fails", "exit 3");
	const struct dsec_bytes input = { "", 0 };

	for (uint8_t shard = 0; shard < SHARDS; shard++) {
		calls_once(e->d, id, 1, shard);
		calls_once(e->d, id, fewer(CALLS, 6), shard);
		calls_once(e->d, fails, 1, shard);
	}
	auto_calls struct calls never = calls_ask(e->d, &old, id, &input, 1);

	expect(never.last.code == DSEC_UNKNOWN && !never.all[0].result.size);
	expect(function_end(e->d, fails).code == DSEC_OK);
	expect(function_end(e->d, id).code == DSEC_OK);
}

/* More than is kept, by one call and by many: what is there is its beginning. */
static void what_is_not_kept_of_a_calls_output_is_a_gap(struct engine *e)
{
	const struct dsec_function_opts opts = { .output_bytes = 1 << 20 };
	struct dsec_id id = function_of(e->d, "large",
					"head -c 8 /dev/urandom; head -c 300000 /dev/zero", &opts);
	struct dsec_bytes inputs[4];

	inputs_fill(inputs, 4, "");
	for (uint32_t count = 1; count <= 4; count += 3) {
		struct dsec_call call = id_at(engine_ms(), (uint8_t)(count & 1));
		auto_calls struct calls first = calls_ask(e->d, &call, id, inputs, count);
		auto_calls struct calls again = calls_ask(e->d, &call, id, inputs, count);
		uint64_t kept = 0, missing = 0;

		expect(first.last.code == DSEC_OK && again.last.code == DSEC_OK);
		for (uint32_t i = 0; i < count; i++) {
			const struct called *called = &again.all[i];

			expect(called->times == 1 && called->is_replayed && !first.all[i].missing);
			expect(called->counts[0] + called->missing == 300008);
			expect(!called->counts[0] ||
			       !memcmp(called->bytes[0], first.all[i].bytes[0], 8));
			kept += called->counts[0];
			missing += called->missing;
		}
		expect(kept >= 64 << 10 && kept <= 128 << 10 && missing);
	}
	expect(function_end(e->d, id).code == DSEC_OK);
}

/* Who asks again after its connection went: verdicts that there were stand, the others are made. */
static void calls_that_were_cut_off_go_on_under_their_id(struct engine *e)
{
	struct dsec_id id = chance_of(e->d, "cut", "[ $x != slow ] || exec sleep 1");
	struct dsec_call call = id_at(engine_ms(), 0);
	struct dsec_bytes inputs[CALLS];
	struct dsec *d = engine_connect(e);
	double seen[CALLS] = { 0 };
	struct dsec_event *event;
	const uint32_t all = fewer(CALLS, 8) & ~1u;
	unsigned count = 0;

	for (unsigned i = 0; i < all; i++)
		inputs_fill(&inputs[i], 1, i % 2 ? "slow\n" : "quick\n");
	int64_t ticket = dsec_invoke(d, &call, id, inputs, all);

	while (count < all / 2 && expect(dsec_wait(d, ticket, -1, &event) == 0)) {
		if (event->kind == DSEC_EV_DATA && expect(event->bytes == sizeof *seen))
			memcpy(&seen[event->index], event->data, sizeof *seen);
		count += event->kind == DSEC_EV_DONE && event->index % 2 == 0;
		expect(!(event->flags & DSEC_LAST) || count == all / 2);
		dsec_event_free(event);
	}
	dsec_close(d);
	auto_calls struct calls calls = { 0 };

	do { /* while they end it is CONFLICT, with a time */
		calls_done(&calls);
		calls = calls_ask(e->d, &call, id, inputs, all);
	} while (calls.last.code == DSEC_CONFLICT && expect(calls.last.retry_after_ms));
	expect(calls.last.code == DSEC_OK);
	for (uint32_t i = 0; i < all; i++) {
		const struct called *called = &calls.all[i];

		expect(called->times == 1 && called_is(called, DSEC_VERDICT_OK));
		expect(i % 2 || (called->is_replayed && called->counts[0] == sizeof *seen &&
				 !memcmp(called->bytes[0], &seen[i], sizeof *seen)));
	}
	auto_calls struct calls again = calls_ask(e->d, &call, id, inputs, all);

	expect(said_the_same(&calls, &again));
	expect(function_end(e->d, id).code == DSEC_OK);
}

/* ---- sandboxes ---- */

static struct dsec_id sandbox_on(struct dsec *d, uint8_t shard)
{
	struct dsec_create_opts opts = create_opts(1);
	struct dsec_call call = id_at(engine_ms(), shard);
	struct dsec_id id = { 0 };

	opts.network = DSEC_NETWORK_PRIVATE;
	struct made made = create_wait(d, create_start(d, &opts, &call), 1);

	if (expect(made.created == 1))
		id = made.ids[0];
	made_done(&made);
	return id;
}

static bool same_answer(const struct told *a, const struct told *b)
{
	return !memcmp(&a->status, &b->status, sizeof a->status) && a->rows == b->rows &&
	       a->created == b->created && a->exec == b->exec &&
	       !memcmp(&a->subject, &b->subject, sizeof a->subject);
}

static void op_once(struct dsec *d, struct dsec_id id, unsigned op, uint8_t shard)
{
	struct dsec_call call = id_at(engine_ms(), shard);
	struct told first = told_of(d, ask(d, &call, id, op, false));
	struct told again = told_of(d, ask(d, &call, id, op, false));
	struct told other = told_of(d, ask(d, &call, id, op == DESTROY ? CHANGE : op, true));

	if (!expect(again.replayed && !first.replayed && same_answer(&first, &again)))
		note("%s, record on shard %u: %u %s, then %u %s", op_names[op], shard,
		     first.status.code, first.status.step, again.status.code, again.status.step);
	if (!expect(other.status.code == DSEC_CONFLICT && !other.status.retry_after_ms &&
		    !strcmp(other.status.step, "request.request_id")))
		note("%s, record on shard %u: another was %u %s", op_names[op], shard,
		     other.status.code, other.status.step);
}

static void what_has_an_id_happens_once_and_its_result_is_told_again(struct engine *e)
{
	for (uint8_t at = 0; at < SHARDS * SHARDS; at++) {
		struct dsec_id id = sandbox_on(e->d, at / SHARDS);

		for (unsigned op = 0; op < OPS - 1; op++)
			op_once(e->d, id, op, at % SHARDS);
		auto_ran struct ran ran =
			shell_run(e->d, id, "cat /tmp/a; wc -l </tmp/ran; ls /tmp");

		expect(ran_says(&ran, "x1\na\nc\nran\n"));
		op_once(e->d, id, DESTROY, at % SHARDS);
		expect(!list_has(e->d, id));
		list_destroy(e->d);
	}
}

/* The same id for something else in another sandbox, on another shard. */
static void an_id_means_one_request_whatever_shard_it_is_for(struct engine *e)
{
	struct dsec_id ids[SHARDS] = { sandbox_on(e->d, 0), sandbox_on(e->d, 1) };
	struct dsec_create_opts many = create_opts(8);

	for (uint8_t shard = 0; shard < SHARDS; shard++) {
		struct dsec_call call = id_at(engine_ms(), shard);

		expect(told_of(e->d, ask(e->d, &call, ids[0], EXEC, false)).status.code == DSEC_OK);
		expect(told_of(e->d, ask(e->d, &call, ids[1], EXEC, false)).status.code ==
		       DSEC_CONFLICT);
		expect(told_of(e->d, ask(e->d, &call, ids[1], CHANGE, false)).status.code ==
		       DSEC_CONFLICT);
		expect(told_of(e->d, create_start(e->d, &many, &call)).status.code ==
		       DSEC_CONFLICT);
		call = id_at(engine_ms(), shard);
		struct told made = told_of(e->d, create_start(e->d, &many, &call));
		struct told again = told_of(e->d, create_start(e->d, &many, &call));

		expect(made.created == 8 && again.created == 8 && again.replayed);
	}
	expect(list_count(e->d) == 2 + 2 * 8);
	list_destroy(e->d);
}

static void what_was_refused_did_not_happen_and_may_be_asked_again(struct engine *e)
{
	struct dsec_create_opts opts = create_opts(40);
	struct made made = create_run(e->d, &opts);
	struct dsec_call calls[SHARDS] = { id_at(engine_ms(), 0), id_at(engine_ms(), 1) };

	expect(made.created == 24);
	opts.count = 1;
	for (int i = 0; i < SHARDS; i++)
		expect(told_of(e->d, create_start(e->d, &opts, &calls[i])).created == 0);
	list_destroy(e->d);
	for (int i = 0; i < SHARDS; i++) {
		struct told told = told_of(e->d, create_start(e->d, &opts, &calls[i]));

		expect(told.created == 1 && !told.replayed);
	}
	made_done(&made);
	list_destroy(e->d);
}

static void ids_too_old_or_of_the_future_are_refused(struct engine *e)
{
	struct dsec_id id = sandbox_on(e->d, 0);

	for (unsigned op = 0; op < OPS; op++) {
		struct dsec_call old = id_at(engine_ms() - 3600 * 1000, 1);
		struct dsec_call future = id_at(engine_ms() + 60 * 1000, 1);
		struct told told = told_of(e->d, ask(e->d, &future, id, op, false));

		expect(told.status.code == DSEC_INVALID);
		told = told_of(e->d, ask(e->d, &old, id, op, false));
		/* What is destroyed by its id is gone afterwards, whether it was before or not. */
		if (!expect(told.status.code == (op == DESTROY ? DSEC_OK : DSEC_UNKNOWN)))
			note("%s: %u", op_names[op], told.status.code);
	}
	expect(!list_has(e->d, id));
}

/* Its records are few: it forgets, oldest first, and says so; the other does not. */
static void a_tenants_records_go_oldest_first_and_no_others(struct engine *e)
{
	struct dsec *d = way_open(e, (struct way){ .door = "few" });
	struct dsec *other = way_open(e, (struct way){ 0 });
	struct dsec_id mine = sandbox_make(d), others = sandbox_make(other);
	struct dsec_call first = id_at(engine_ms(), 0), kept = id_at(engine_ms(), 0), call;

	expect(told_of(d, ask(d, &first, mine, CHANGE, false)).status.code == DSEC_OK);
	expect(told_of(other, ask(other, &kept, others, CHANGE, false)).status.code == DSEC_OK);
	for (int i = 0; i < 12; i++) {
		pause_ms(2); /* of one millisecond all go when one has */
		call = id_at(engine_ms(), 0);
		expect(told_of(d, ask(d, &call, mine, CHANGE, false)).status.code == DSEC_OK);
	}
	expect(told_of(d, ask(d, &call, mine, CHANGE, false)).replayed);
	expect(told_of(d, ask(d, &first, mine, CHANGE, false)).status.code == DSEC_UNKNOWN);
	expect(told_of(other, ask(other, &kept, others, CHANGE, false)).replayed);
	sandbox_end(d, mine);
	list_destroy(other);
	dsec_close(d);
	dsec_close(other);
}

static const struct claim ids[] = {
	CLAIM(what_has_an_id_happens_once_and_its_result_is_told_again),
	CLAIM(an_id_means_one_request_whatever_shard_it_is_for),
	CLAIM(what_was_refused_did_not_happen_and_may_be_asked_again),
	CLAIM(ids_too_old_or_of_the_future_are_refused),
	CLAIM(a_call_runs_once_under_an_id_and_its_verdict_is_told_again),
	CLAIM(what_is_not_kept_of_a_calls_output_is_a_gap),
	CLAIM(calls_that_were_cut_off_go_on_under_their_id),
};
static const struct claim few[] = { CLAIM(a_tenants_records_go_oldest_first_and_no_others) };

int main(int argc, char **argv)
{
	char folder[64], door[256];
	const char *const nobody[] = { NULL };
	const char *const arguments[] = { "--shards", "2", "--sandboxes-max", "24", NULL };
	const char *const few_arguments[] = { "--shards", "2",	"--tenant", "name=default,gateway",
					      "--tenant", door, NULL };
	const struct suite suites[] = {
		SUITE("ids", ids, .arguments = arguments),
		SUITE("few", few, .arguments = few_arguments, .tenant = "*"),
	};
	int r;

	if (!tenant_folder_make(folder))
		return 1;
	(void)snprintf(door, sizeof door, "name=few,socket=%s/few.sock,records-max=8", folder);
	r = suites_main(argc, argv, suites, sizeof suites / sizeof *suites);
	return tenant_folder_remove(nobody) ? r : 1;
}
