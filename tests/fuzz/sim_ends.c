/*
 * How execs, operations on files, phases and calls end where an end and a deadline come together,
 * or an end does not come, which no machine can be made to do: over the engine's request path, its
 * backend a stub that does nothing until it is told. Must hold: who dies in time is told by its own
 * end, and who does not start or die is told of in a bound, whoever killed it.
 */
#include <assert.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/exec/exec_state.h"
#include "tests/fuzz/backend_stub.h"
#include "tests/fuzz/kernel.h"
#include "tests/fuzz/node.h"
#include "tests/fuzz/visitor.h"
#include "tests/hostile/client/payloads.h"

enum { TIMEOUT_MS = 400 };

struct scene {
	struct choices choices;
	struct fuzz_node node;
	struct known_ids known;
	struct visitor client;
	bool failed;
};

#define EXPECT(what)                                                                               \
	do {                                                                                       \
		if (!(what)) {                                                                     \
			printf("  %s:%d: %s\n", __FILE__, __LINE__, #what);                        \
			scene->failed = true;                                                      \
		}                                                                                  \
	} while (0)

/* The engine does what it can; nothing happens in its sandboxes. */
static void turn(struct scene *scene)
{
	for (int i = 0; i < 30; i++)
		for (uint32_t loop = 0; loop <= FUZZ_SHARDS; loop++)
			node_turn(&scene->node, loop);
	(void)visitor_read(&scene->client, UINT32_MAX);
}

static void pass(struct scene *scene, uint64_t ms)
{
	turn(scene);
	kernel_pass(scene->node.kernel, ms * 1000000);
	turn(scene);
}

/* The next thing that is to happen in a sandbox does. */
static void happen(struct scene *scene)
{
	bool happened = false;

	for (uint32_t i = 0; i < FUZZ_SHARDS && !happened; i++)
		happened = stub_step(scene->node.shards[i]->backend);
	EXPECT(happened);
	turn(scene);
}

static uint32_t ask(struct scene *scene, struct dsec_ring_request *entry, struct pack *pack)
{
	visitor_ask(&scene->client, entry, pack ? pack->data : NULL, pack ? pack->bytes : 0);
	free(pack);
	turn(scene);
	return scene->client.tickets - 1;
}

static uint32_t exec_ask(struct scene *scene)
{
	static const char *const words[] = { "true", NULL };
	struct dsec_ring_request entry = { .op = DSEC_OP_EXEC, .subject = scene->known.ids[0] };
	struct pack *pack = pack_exec(words);

	pack->exec.timeout_ms = TIMEOUT_MS;
	return ask(scene, &entry, pack);
}

static uint32_t kill_ask(struct scene *scene)
{
	struct dsec_ring_request entry = { .op = DSEC_OP_SIGNAL,
					   .subject = scene->known.ids[0],
					   .exec = 1,
					   .number = { SIGKILL, DSEC_SIGNAL_ALL } };

	return ask(scene, &entry, NULL);
}

static uint32_t destroy_ask(struct scene *scene)
{
	struct dsec_ring_request entry = { .op = DSEC_OP_DESTROY };
	struct pack *pack = pack_new(sizeof pack->select);

	pack->select.count = 1;
	pack_ref(pack, &pack->select.ids, &scene->known.ids[0], sizeof scene->known.ids[0]);
	return ask(scene, &entry, pack);
}

static bool is_over(const struct scene *scene, uint32_t ticket)
{
	return scene->client.lasts[ticket];
}

static bool ended_by(const struct scene *scene, uint32_t ticket, uint32_t reason)
{
	const struct end *end = &scene->client.ends[ticket];

	if (is_over(scene, ticket) && !end->code && end->reason == reason)
		return true;
	printf("  over %d code %u reason %u \"%s\"\n", is_over(scene, ticket), end->code,
	       end->reason, end->status.step);
	return false;
}

static bool failed_at(const struct scene *scene, uint32_t ticket, const char *step)
{
	const struct end *end = &scene->client.ends[ticket];

	if (is_over(scene, ticket) && end->code == DSEC_FAILED &&
	    end->status.blame == DSEC_BLAME_PLATFORM && !strcmp(end->status.step, step))
		return true;
	printf("  over %d code %u \"%s\": %s\n", is_over(scene, ticket), end->code,
	       end->status.step, end->status.detail);
	return false;
}

static uint32_t undying(const struct scene *scene)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < FUZZ_SHARDS; i++)
		count += scene->node.shards[i]->execs_undying;
	return count;
}

static uint32_t quarantined(const struct scene *scene)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < FUZZ_SHARDS; i++)
		count += scene->node.shards[i]->quarantined;
	return count;
}

static uint32_t list_ask(struct scene *scene)
{
	struct dsec_ring_request entry = { .op = DSEC_OP_FILE, .subject = scene->known.ids[0] };
	struct pack *pack = pack_new(sizeof pack->file);

	pack->file.verb = DSEC_FILE_LIST;
	pack_text(pack, &pack->file.path, "/");
	return ask(scene, &entry, pack);
}

static uint32_t phase_ask(struct scene *scene)
{
	struct dsec_ring_request entry = { .op = DSEC_OP_PHASE, .subject = scene->known.ids[0] };
	struct pack *pack = pack_new(sizeof pack->phase);

	pack->phase.flags = DSEC_PHASE_KILL_OLD;
	pack_text(pack, &pack->phase.name, "next");
	return ask(scene, &entry, pack);
}

/* Of a function that is registered for it. */
static uint32_t call_ask(struct scene *scene)
{
	struct dsec_ring_request entry = { .op = DSEC_OP_FUNCTION };
	struct pack *pack = pack_new(sizeof pack->function);

	pack->function.verb = DSEC_FUNCTION_REGISTER;
	pack->function.wall_ms = TIMEOUT_MS;
	pack_text(pack, &pack->function.name, "f");
	pack_text(pack, &pack->function.image, "tiny");
	pack_item(pack, &pack->function.argv, "true", 4);
	(void)ask(scene, &entry, pack);
	node_settle(&scene->node);
	turn(scene);
	entry = (struct dsec_ring_request){ .op = DSEC_OP_INVOKE,
					    .subject = scene->known.function };
	pack = pack_new(sizeof pack->invoke);
	pack_item(pack, &pack->invoke.inputs, "input", 5);
	return ask(scene, &entry, pack);
}

/* ---- claims ---- */

static void who_dies_in_time_of_a_kill_is_told_so_though_its_timeout_came(struct scene *scene)
{
	uint32_t exec = exec_ask(scene), killed;

	happen(scene); /* it runs */
	pass(scene, TIMEOUT_MS - 50);
	killed = kill_ask(scene);
	EXPECT(is_over(scene, killed));
	pass(scene, 100);
	EXPECT(!is_over(scene, exec));
	happen(scene);
	EXPECT(ended_by(scene, exec, DSEC_KILLED));
}

static void who_does_not_die_of_a_kill_is_told_before_its_timeout(struct scene *scene)
{
	struct dsec_ring_request entry = { .op = DSEC_OP_EXEC, .subject = scene->known.ids[0] };
	static const char *const words[] = { "true", NULL };
	uint32_t exec = ask(scene, &entry, pack_exec(words));

	happen(scene);
	(void)kill_ask(scene);
	pass(scene, EXEC_KILL_LIMIT_S * 1000 + 100);
	EXPECT(failed_at(scene, exec, "exec.kill") && undying(scene) == 1);
	happen(scene);
	EXPECT(!undying(scene));
}

static void who_dies_with_its_sandbox_is_told_so_though_its_timeout_came(struct scene *scene)
{
	uint32_t exec = exec_ask(scene), gone;

	happen(scene);
	pass(scene, TIMEOUT_MS - 50);
	gone = destroy_ask(scene);
	pass(scene, 100);
	EXPECT(!is_over(scene, exec) && !is_over(scene, gone));
	happen(scene);
	happen(scene);
	EXPECT(ended_by(scene, exec, DSEC_KILLED));
	EXPECT(is_over(scene, gone) && !scene->client.ends[gone].code);
}

static void who_starts_in_a_sandbox_that_goes_is_told_as_killed(struct scene *scene)
{
	uint32_t exec = exec_ask(scene), gone = destroy_ask(scene);

	happen(scene); /* it has started */
	pass(scene, 100);
	EXPECT(!is_over(scene, exec) && !is_over(scene, gone));
	happen(scene);
	happen(scene);
	EXPECT(ended_by(scene, exec, DSEC_KILLED));
	EXPECT(is_over(scene, gone) && !scene->client.ends[gone].code);
}

static void who_does_not_start_is_told_in_a_bound_and_killed_when_it_does(struct scene *scene)
{
	uint32_t exec = exec_ask(scene), next;

	pass(scene, EXEC_START_LIMIT_S * 1000 - 100);
	EXPECT(!is_over(scene, exec));
	pass(scene, 200);
	EXPECT(failed_at(scene, exec, "exec.start") && undying(scene) == 1);
	happen(scene); /* it starts */
	EXPECT(undying(scene) == 1);
	happen(scene); /* it ends, being killed */
	EXPECT(!undying(scene));
	/* Its sandbox is as good as before. */
	next = exec_ask(scene);
	happen(scene);
	happen(scene);
	EXPECT(ended_by(scene, next, DSEC_EXIT));
}

static void who_does_not_start_in_a_sandbox_that_goes_is_told_when_that_is(struct scene *scene)
{
	uint32_t exec = exec_ask(scene), gone = destroy_ask(scene);

	pass(scene, DESTROY_LIMIT_S * 1000 + 100);
	EXPECT(failed_at(scene, exec, "exec.start") && undying(scene) == 1);
	EXPECT(failed_at(scene, gone, "destroy.quarantine"));
}

static void an_operation_on_files_that_does_not_start_is_told_in_a_bound(struct scene *scene)
{
	uint32_t file = list_ask(scene), next;

	pass(scene, EXEC_START_LIMIT_S * 1000 - 100);
	EXPECT(!is_over(scene, file));
	pass(scene, 200);
	EXPECT(failed_at(scene, file, "file.start"));
	happen(scene);
	happen(scene);
	next = list_ask(scene);
	(void)destroy_ask(scene);
	pass(scene, DESTROY_LIMIT_S * 1000 + 100);
	EXPECT(is_over(scene, next) && scene->client.ends[next].code == DSEC_ABSENT);
}

static void a_phase_whose_old_programs_do_not_end_is_told_in_a_bound(struct scene *scene)
{
	uint32_t file = list_ask(scene), phase, exec;

	happen(scene); /* the helper runs */
	phase = phase_ask(scene);
	EXPECT(is_over(scene, file) && !is_over(scene, phase));
	pass(scene, 2 * EXEC_KILL_LIMIT_S * 1000 + 100);
	EXPECT(failed_at(scene, phase, "phase.kill"));
	/* It is in its old phase, and works. */
	exec = exec_ask(scene);
	node_settle(&scene->node);
	turn(scene);
	EXPECT(ended_by(scene, exec, DSEC_EXIT));
}

/* `happens`: things before it stays where it is. */
static void call_stays(struct scene *scene, int happens, uint64_t limit_ms, const char *step)
{
	uint32_t call = call_ask(scene);

	for (int i = 0; i < happens; i++)
		happen(scene);
	pass(scene, limit_ms - 100);
	EXPECT(!is_over(scene, call));
	pass(scene, 200);
	EXPECT(failed_at(scene, call, step) && quarantined(scene) == 1);
	node_settle(&scene->node);
	EXPECT(quarantined(scene) == 0);
}

static void a_call_is_told_in_a_bound_wherever_it_stays(struct scene *scene)
{
	call_stays(scene, 0, CREATE_LIMIT_S * 1000, "call.set");
	call_stays(scene, 1, CREATE_LIMIT_S * 1000, "call.start");
	call_stays(scene, 3, EXEC_KILL_LIMIT_S * 1000, "call.finish");
}

static void a_call_that_does_not_die_of_its_limit_is_told(struct scene *scene)
{
	uint32_t call = call_ask(scene);

	happen(scene);
	happen(scene); /* it runs */
	pass(scene, TIMEOUT_MS + 100);
	EXPECT(!is_over(scene, call));
	pass(scene, EXEC_KILL_LIMIT_S * 1000 + 100);
	EXPECT(failed_at(scene, call, "call.run") && quarantined(scene) == 1);
	node_settle(&scene->node);
	EXPECT(quarantined(scene) == 0);
}

/* ---- */

static const struct {
	const char *name;
	void (*run)(struct scene *scene);
} claims[] = {
#define CLAIM(name)                                                                                \
	{                                                                                          \
#name, name                                                                        \
	}
	CLAIM(who_dies_in_time_of_a_kill_is_told_so_though_its_timeout_came),
	CLAIM(who_does_not_die_of_a_kill_is_told_before_its_timeout),
	CLAIM(who_dies_with_its_sandbox_is_told_so_though_its_timeout_came),
	CLAIM(who_starts_in_a_sandbox_that_goes_is_told_as_killed),
	CLAIM(who_does_not_start_is_told_in_a_bound_and_killed_when_it_does),
	CLAIM(who_does_not_start_in_a_sandbox_that_goes_is_told_when_that_is),
	CLAIM(an_operation_on_files_that_does_not_start_is_told_in_a_bound),
	CLAIM(a_phase_whose_old_programs_do_not_end_is_told_in_a_bound),
	CLAIM(a_call_is_told_in_a_bound_wherever_it_stays),
	CLAIM(a_call_that_does_not_die_of_its_limit_is_told),
};

static bool scene_run(void (*run)(struct scene *scene))
{
	const struct dsec_ring_hello hello = raw_hello(DSEC_TRANSPORT_STREAM);
	struct dsec_ring_request entry = { .op = DSEC_OP_CREATE };
	struct scene *scene = calloc(1, sizeof *scene);
	bool opened, failed;

	assert(scene);
	node_open(&scene->node, &scene->choices);
	visitor_connect(&scene->client, &scene->node, &scene->known);
	opened = visitor_open(&scene->client, &scene->node, &hello);
	assert(opened);
	(void)ask(scene, &entry, pack_create(1));
	node_settle(&scene->node);
	turn(scene);
	assert(scene->known.count == 1);
	pass(scene, 3600 * 1000); /* or a time that was never set would be one to come */
	run(scene);
	node_settle(&scene->node);
	turn(scene);
	EXPECT(visitor_is_answered(&scene->client) && !undying(scene));
	visitor_close(&scene->client);
	node_settle(&scene->node);
	node_close(&scene->node);
	failed = scene->failed;
	free(scene);
	return failed;
}

int main(void)
{
	int bad = 0;

	for (size_t i = 0; i < sizeof claims / sizeof *claims; i++) {
		bool failed = scene_run(claims[i].run);

		printf("%s ends::%s\n", failed ? "FAIL" : "PASS", claims[i].name);
		bad += failed;
	}
	printf("Tested: %zu\n", sizeof claims / sizeof *claims);
	return bad ? 1 : 0;
}
