/*
 * Phases in a storm: clients move sandboxes while others start programs in them and work on their
 * files, sandboxes die and are destroyed, clients leave and come again, workers fail. By a seed,
 * over the engine's request path, its backend a stub. Must hold: every request of a client that
 * stays ends once; versions only grow; nothing is left, and no two moves are under way.
 */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/sandbox/sandbox.h"
#include "tests/fuzz/backend_stub.h"
#include "tests/fuzz/kernel.h"
#include "tests/fuzz/node.h"
#include "tests/fuzz/visitor.h"
#include "tests/hostile/client/payloads.h"

enum { SEEDS = 150, MOVES = 600, CLIENTS = 3, ASKED_MAX = 120, CHANCE_BYTES = 64 };

/* What a run tells of itself, also when it aborts. */
struct progress {
	uint64_t seed, runs, moved;
};

struct storm {
	uint64_t random;
	uint8_t chance[CHANCE_BYTES]; /* what the stubs choose by */
	struct choices choices;
	struct fuzz_node node;
	struct known_ids known;
	struct visitor clients[CLIENTS];
	bool present[CLIENTS];
	uint64_t versions[FUZZ_SHARDS][FUZZ_SANDBOXES + 1]; /* by place in the pool */
	uint64_t ids[FUZZ_SHARDS][FUZZ_SANDBOXES + 1];
	uint64_t moved;
};

static uint32_t roll(struct storm *storm, uint32_t below)
{
	storm->random ^= storm->random << 13;
	storm->random ^= storm->random >> 7;
	storm->random ^= storm->random << 17;
	return (uint32_t)((storm->random >> 32) % below);
}

static void chance_refill(struct storm *storm)
{
	for (unsigned i = 0; i < CHANCE_BYTES; i++)
		storm->chance[i] = (uint8_t)roll(storm, 256);
	storm->choices = (struct choices){ storm->chance, CHANCE_BYTES };
}

/* ---- clients ---- */

static void arrive(struct storm *storm, uint32_t who)
{
	const struct dsec_ring_hello hello =
		raw_hello(roll(storm, 2) ? DSEC_TRANSPORT_RING : DSEC_TRANSPORT_STREAM);

	if (storm->present[who])
		return;
	visitor_connect(&storm->clients[who], &storm->node, &storm->known);
	storm->present[who] = true;
	(void)visitor_open(&storm->clients[who], &storm->node, &hello);
}

static void leave(struct storm *storm, uint32_t who)
{
	if (storm->present[who])
		visitor_close(&storm->clients[who]);
	storm->present[who] = false;
}

static struct pack *phase_make(struct storm *storm)
{
	static const char *const names[] = { "agent", "verify", "judge", "Wrong" };
	static const char *const policies[] = { "", "", "", "verify", "no-network", "swe-agent" };
	struct pack *pack = pack_new(sizeof pack->phase);

	pack->phase.flags = roll(storm, 4); /* kill-old, and whatever is beside it */
	pack->phase.version = roll(storm, 4) ? 0 : roll(storm, 4);
	pack_text(pack, &pack->phase.name, names[roll(storm, 4)]);
	pack_text(pack, &pack->phase.policy, policies[roll(storm, 6)]);
	return pack;
}

static struct pack *request_make(struct storm *storm, uint16_t op, struct dsec_wire_id id)
{
	static const char *const words[] = { "true", NULL };
	struct pack *pack;

	if (op == DSEC_OP_CREATE)
		return pack_create(2);
	if (op == DSEC_OP_PHASE)
		return phase_make(storm);
	if (op == DSEC_OP_EXEC) {
		pack = pack_exec(words);
		pack->exec.timeout_ms = roll(storm, 3) * 1000;
		return pack;
	}
	if (op == DSEC_OP_FILE) {
		pack = pack_new(sizeof pack->file);
		pack->file.verb = DSEC_FILE_LIST;
		pack_text(pack, &pack->file.path, "/a");
		return pack;
	}
	pack = pack_new(sizeof pack->select);
	pack->select.count = 1;
	pack_ref(pack, &pack->select.ids, &id, sizeof id);
	return pack;
}

static void ask(struct storm *storm, struct visitor *v)
{
	static const uint16_t ops[] = {
		DSEC_OP_EXEC,  DSEC_OP_EXEC,  DSEC_OP_EXEC,   DSEC_OP_EXEC, DSEC_OP_PHASE,
		DSEC_OP_PHASE, DSEC_OP_PHASE, DSEC_OP_CREATE, DSEC_OP_FILE, DSEC_OP_DESTROY,
	};
	struct dsec_ring_request entry = { .op = ops[roll(storm, 10)] };
	struct pack *pack;

	if (storm->known.count)
		entry.subject = storm->known.ids[roll(
			storm, storm->known.count < IDS_MAX ? storm->known.count : IDS_MAX)];
	else
		entry.op = DSEC_OP_CREATE;
	entry.timeout_ms = roll(storm, 8) ? 0 : 1;
	pack = request_make(storm, entry.op, entry.subject);
	visitor_ask(v, &entry, pack->data, pack->bytes);
	free(pack);
}

/* ---- what must hold all the while ---- */

static void versions_check(struct storm *storm)
{
	for (uint32_t i = 0; i < FUZZ_SHARDS; i++) {
		struct shard *shard = storm->node.shards[i];

		for (uint32_t k = 0; k < shard->sandboxes.count; k++) {
			const struct sandbox *sandbox = pool_at(&shard->sandboxes, k);
			uint64_t version;

			if (!sandbox || k > FUZZ_SANDBOXES)
				continue;
			version = sandbox->phase.version;
			if (storm->ids[i][k] == sandbox->id.lo) {
				assert(version >= storm->versions[i][k]);
				storm->moved += version - storm->versions[i][k];
			}
			storm->ids[i][k] = sandbox->id.lo;
			storm->versions[i][k] = version;
		}
	}
}

static void step(struct storm *storm)
{
	struct backend *backend = storm->node.shards[roll(storm, FUZZ_SHARDS)]->backend;
	const uint32_t who = roll(storm, CLIENTS), what = roll(storm, 40);
	struct visitor *v = &storm->clients[who];

	chance_refill(storm);
	if (!storm->present[who])
		arrive(storm, who);
	else if (what == 0 || v->tickets >= ASKED_MAX)
		leave(storm, who);
	else if (what == 1)
		stub_box_dies(backend);
	else if (what == 2)
		kernel_pass(storm->node.kernel, 1000000ull << roll(storm, 14));
	else if (what < 12)
		(void)stub_step(backend);
	else if (what < 18)
		node_turn(&storm->node, roll(storm, FUZZ_SHARDS + 1));
	else if (what < 22)
		(void)visitor_read(v, 16);
	else if (v->open)
		ask(storm, v);
}

/* What can end does, well or badly, and everybody reads. */
static void finish(struct storm *storm)
{
	bool answered = false;

	for (int round = 0; round < 200 && !answered; round++) {
		chance_refill(storm);
		node_settle(&storm->node);
		answered = true;
		for (uint32_t i = 0; i < CLIENTS; i++) {
			if (!storm->present[i] || !storm->clients[i].open)
				continue;
			(void)visitor_read(&storm->clients[i], UINT32_MAX);
			answered &= visitor_is_answered(&storm->clients[i]);
		}
		kernel_pass(storm->node.kernel, 2000000);
	}
	assert(answered);
}

static uint64_t storm_run(uint64_t seed)
{
	struct storm *storm = calloc(1, sizeof *storm);
	uint64_t moved;

	assert(storm);
	storm->random = seed * 0x9e3779b97f4a7c15ull + 1;
	chance_refill(storm);
	node_open(&storm->node, &storm->choices);
	for (int i = 0; i < MOVES; i++) {
		step(storm);
		versions_check(storm);
	}
	finish(storm);
	for (uint32_t i = 0; i < CLIENTS; i++)
		leave(storm, i);
	storm->choices.left = 0; /* and all else ends well */
	node_settle(&storm->node);
	node_close(&storm->node);
	moved = storm->moved;
	free(storm);
	return moved;
}

static void seeds_run(struct progress *progress, uint64_t first, uint64_t count)
{
	for (uint64_t seed = first; seed < first + count; seed++) {
		progress->seed = seed;
		progress->moved += storm_run(seed);
		progress->runs++;
	}
}

int main(int argc, char **argv)
{
	struct progress *progress = mmap(NULL, sizeof *progress, PROT_READ | PROT_WRITE,
					 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	const uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 10) : 0;
	int status = 1;
	pid_t pid;

	if (progress == MAP_FAILED)
		return 1;
	fflush(NULL);
	pid = fork();
	if (pid == 0) {
		seeds_run(progress, seed ? seed : 1, seed ? 1 : SEEDS);
		exit(0);
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		return 1;
	printf("%lu storms, %lu moves\n", progress->runs, progress->moved);
	if (status)
		printf("failing seed %lu (%s %lu replays it)\n", progress->seed, argv[0],
		       progress->seed);
	printf("Tested: %lu\n", progress->runs + !!status);
	return status || (!seed && progress->moved < SEEDS);
}
