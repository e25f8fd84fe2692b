/*
 * The engine's request path under fire: the input is a play of several clients, the backend, time
 * and the shards' turns. Must hold: every ticket of a client that keeps the rules ends once, nobody
 * else is hurt by one that does not, and at the end nothing is left.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "engine/sandbox/sandbox.h"
#include "tests/fuzz/backend_stub.h"
#include "tests/fuzz/kernel.h"
#include "tests/fuzz/named_requests.h"
#include "tests/fuzz/node.h"
#include "tests/fuzz/visitor.h"
#include "tests/hostile/client/payloads.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

enum { VISITORS = 3, MOVES_MAX = 400 };

struct play {
	struct choices choices;
	struct fuzz_node node;
	struct known_ids known;
	struct visitor visitors[VISITORS];
	bool present[VISITORS];
};

/* ---- requests ---- */

static struct dsec_wire_id id_choose(struct play *play)
{
	struct choices *c = &play->choices;
	struct dsec_wire_id id = { 0 };

	if (play->known.count)
		id = play->known.ids[choose_byte(c) %
				     (play->known.count < IDS_MAX ? play->known.count : IDS_MAX)];
	switch (choose(c, 8)) {
	case 5:
		return (struct dsec_wire_id){ 0 };
	case 6:
		id.lo ^= 1ull << choose(c, 64);
		return id;
	case 7:
		choose_bytes(c, &id, sizeof id);
		return id;
	default:
		return id;
	}
}

static void items_choose(struct choices *c, struct pack *pack, struct dsec_wire_items *items,
			 const char *const words[8])
{
	for (uint32_t count = choose(c, 5); count; count--) {
		const char *word = words[choose(c, 8)];

		pack_item(pack, items, word, (uint32_t)strlen(word));
	}
}

static void labels_choose(struct choices *c, struct pack *pack, struct dsec_wire_items *labels)
{
	static const char *const words[8] = { "a", "b", "", "job", "7", "a", "long label", "b" };

	items_choose(c, pack, labels, words);
}

static struct pack *create_choose(struct play *play)
{
	static const char *const images[] = { "tiny", "tiny", "other",	    "none",
					      "../x", "",     "tiny+other", "tiny+" };
	static const uint32_t counts[] = { 0, 1, 2, 3, 6, 100, 32769, UINT32_MAX };
	static const char *const env[8] = { "A=1", "B=2", "PATH=", "C", "", "A=2", "=", "HOME=/x" };
	struct choices *c = &play->choices;
	struct pack *pack = pack_new(sizeof pack->create);
	struct dsec_wire_create *create = &pack->create;

	create->count = counts[choose(c, 8)];
	create->flags = choose(c, 8);
	create->network = choose(c, 3);
	create->on_disconnect = choose(c, 2);
	create->ttl_s = choose(c, 4) * 30;
	create->idle_ttl_s = choose(c, 3) * 10;
	/* Of what was chosen already, so that older plays stay what they were. */
	create->on_timeout = create->idle_ttl_s / 10;
	create->cpu_weight = create->ttl_s * 200;
	create->swap_bytes = create->network == DSEC_NETWORK_PRIVATE ? 1 << 20 : 0;
	create->io_weight = create->on_disconnect * 7;
	create->output_limit_bytes = create->on_disconnect * 200;
	create->processes_per_s = create->idle_ttl_s * 100;
	pack_text(pack, &create->image, images[choose(c, 8)]);
	if (choose(c, 4) == 3)
		pack_text(pack, &create->hostname, "host");
	if (choose(c, 4) == 3)
		pack_text(pack, &create->user, "user");
	items_choose(c, pack, &create->env, env);
	labels_choose(c, pack, &create->labels);
	return pack;
}

static struct pack *exec_choose(struct play *play)
{
	static const char *const words[8] = { "true", "a", "b", "", "x=y", "A=1", "PATH=/", "-" };
	static const uint64_t sizes[] = { 0, 1, 300, UINT64_MAX };
	struct choices *c = &play->choices;
	struct pack *pack = pack_new(sizeof pack->exec);
	struct dsec_wire_exec *exec = &pack->exec;

	exec->flags = choose(c, 4);
	/* A window so small that its reader had to say what it has consumed would end nothing. */
	if (exec->flags == 3) {
		exec->flags = choose_byte(c) % 64;
		exec->window_bytes = choose(c, 2) * UINT64_MAX;
		exec->idle_timeout_ms = choose(c, 3) * 1000;
		exec->kill_after_ms = choose(c, 2) * 500;
		exec->resume[choose(c, 2)] = choose(c, 2) * 256;
	}
	exec->timeout_ms = choose(c, 3) * 1000;
	exec->head_bytes = sizes[choose(c, 4)];
	exec->tail_bytes = sizes[choose(c, 4)];
	exec->output_limit_bytes = exec->head_bytes; /* older plays stay what they were */
	pack_item(pack, &exec->argv, "true", 4);
	items_choose(c, pack, &exec->argv, words);
	items_choose(c, pack, &exec->env, words);
	if (choose(c, 4) == 3)
		pack_text(pack, &exec->cwd, "/tmp");
	if (choose(c, 4) == 3)
		pack_ref(pack, &exec->input, pack->data, choose_byte(c) * 2u % pack->bytes);
	if (choose(c, 8) == 7) {
		struct dsec_wire_rlimit limits[2] = {
			{ choose(c, 20), 0, choose_byte(c), choose_byte(c) },
			{ choose(c, 16), 0, 1, 1 },
		};

		pack_ref(pack, &exec->rlimits, limits, sizeof limits);
	}
	return pack;
}

static struct pack *select_choose(struct play *play, uint32_t bytes)
{
	struct choices *c = &play->choices;
	struct pack *pack = pack_new(bytes);
	struct dsec_wire_id ids[8];

	pack->select.count = choose(c, 8);
	for (uint32_t i = 0; i < pack->select.count; i++)
		ids[i] = id_choose(play);
	pack_ref(pack, &pack->select.ids, ids, pack->select.count * (uint32_t)sizeof *ids);
	if (choose(c, 2))
		labels_choose(c, pack, &pack->select.labels);
	return pack;
}

static struct pack *change_choose(struct play *play)
{
	static const char *const keys[8] = { "a", "b", "", "job", "7", "a", "none", "b" };
	struct choices *c = &play->choices;
	struct pack *pack = pack_new(sizeof pack->change);
	struct dsec_wire_id id = id_choose(play);

	pack->change.select.count = choose(c, 2);
	pack_ref(pack, &pack->change.select.ids, &id,
		 pack->change.select.count * (uint32_t)sizeof id);
	labels_choose(c, pack, &pack->change.select.labels);
	pack->change.set = choose(c, 16);
	pack->change.ttl_s = choose(c, 3) * 20;
	pack->change.idle_ttl_s = choose(c, 3) * 5;
	pack->change.on_timeout = choose(c, 2);
	labels_choose(c, pack, &pack->change.labels);
	items_choose(c, pack, &pack->change.removed, keys);
	return pack;
}

static struct pack *list_choose(struct play *play)
{
	struct choices *c = &play->choices;
	struct pack *pack = pack_new(sizeof pack->list);
	struct dsec_wire_id cursor;

	pack->list.limit = choose(c, 4);
	if (choose(c, 2)) {
		cursor = id_choose(play);
		pack_ref(pack, &pack->list.cursor, &cursor, sizeof cursor);
	}
	labels_choose(c, pack, &pack->list.labels);
	return pack;
}

static struct pack *file_choose(struct play *play)
{
	static const char *const paths[] = { "/a", "a/b", "..", "" };
	struct choices *c = &play->choices;
	struct pack *pack = pack_new(sizeof pack->file);
	struct dsec_wire_file *file = &pack->file;

	file->verb = choose(c, 10);
	file->flags = choose(c, 4) == 3 ? choose_word(c) % 1024 : choose(c, 2) * DSEC_FILE_INPUT;
	file->limit = choose(c, 3);
	file->bytes_max = choose(c, 2) * 100;
	pack_text(pack, &file->path, paths[choose(c, 4)]);
	if (file->verb == DSEC_FILE_RENAME || choose(c, 8) == 7)
		pack_text(pack, &file->to, paths[choose(c, 4)]);
	if (choose(c, 4) == 3)
		pack_text(pack, &file->user, "user");
	if (choose(c, 4) == 3)
		pack_ref(pack, &file->input, pack->data, choose_byte(c) * 2u % pack->bytes);
	return pack;
}

/* Any bytes, none of them too, for any request. */
static struct pack *input_choose(struct choices *c, struct dsec_ring_request *entry)
{
	struct pack *pack = pack_new(0);

	pack->bytes = choose(c, 3) * 100;
	entry->offset = choose(c, 3) * 100;
	return pack;
}

static struct pack *port_choose(struct choices *c)
{
	static const uint32_t ports[] = { 0, 1, 80, 65535, 65536, UINT32_MAX, 80, 80 };
	static const uint32_t waits[] = { 0, 1, 1000, UINT32_MAX };
	struct pack *pack = pack_new(sizeof pack->port);

	pack->port.port = ports[choose(c, 8)];
	pack->port.wait_ms = waits[choose(c, 4)];
	pack->port.flags = choose(c, 4) == 3 ? DSEC_PORT_REVOKE : 0;
	return pack;
}

static struct pack *attach_choose(struct choices *c, struct dsec_ring_request *entry)
{
	static const uint64_t offsets[] = { 0, 0, 256, UINT64_MAX };
	struct pack *pack = pack_new(sizeof(struct dsec_wire_attach));
	struct dsec_wire_attach attach = { .size = sizeof attach, .flags = choose(c, 3) };

	attach.at[0] = offsets[choose(c, 4)];
	attach.at[1] = offsets[choose(c, 4)];
	memcpy(pack->data, &attach, sizeof attach);
	entry->exec = choose(c, 4);
	return pack;
}

static struct pack *function_choose(struct choices *c)
{
	static const char *const names[] = { "f", "g", "", "../x" };
	static const char *const images[] = { "tiny", "tiny", "other", "none" };
	static const char *const words[8] = { "true", "a", "b", "", "x=y", "A=1", "PATH=/", "-" };
	struct pack *pack = pack_new(sizeof pack->function);
	struct dsec_wire_function *f = &pack->function;

	f->verb = choose(c, 8) == 7 ? choose_byte(c) : DSEC_FUNCTION_REGISTER + choose(c, 3);
	f->flags = choose(c, 4);
	f->isolation = choose(c, 2);
	f->cpu_ms = choose(c, 3) * 100;
	f->wall_ms = choose(c, 2) * 1000;
	f->output_bytes = choose(c, 2) * 100;
	pack_text(pack, &f->name, names[choose(c, 4)]);
	pack_text(pack, &f->image, images[choose(c, 4)]);
	pack_item(pack, &f->argv, "true", 4);
	items_choose(c, pack, &f->argv, words);
	items_choose(c, pack, &f->env, words);
	return pack;
}

static struct pack *fetched_choose(struct play *play)
{
	static const char *const paths[] = { "a/b", "/x/%61/b.git/", "", "b" };
	struct pack *pack = select_choose(play, sizeof pack->fetched);

	pack_text(pack, &pack->fetched.path, paths[choose(&play->choices, 4)]);
	return pack;
}

static struct pack *phase_choose(struct choices *c)
{
	static const char *const names[] = { "a", "verify", "", "A!" };
	static const char *const policies[] = { "", "", "default", "verify", "no-network", "x y" };
	struct pack *pack = pack_new(sizeof pack->phase);
	struct dsec_wire_phase *wish = &pack->phase;

	wish->flags = choose(c, 16) == 15 ? choose_byte(c) : choose(c, 6);
	wish->version = choose(c, 3);
	pack_text(pack, &wish->name, names[choose(c, 4) & choose(c, 4)]);
	pack_text(pack, &wish->policy, policies[choose(c, 6)]);
	return pack;
}

static struct pack *invoke_choose(struct choices *c)
{
	struct pack *pack = pack_new(sizeof pack->invoke);

	for (uint32_t count = choose(c, 4) == 3 ? choose(c, 64) : choose(c, 4); count; count--)
		pack_item(pack, &pack->invoke.inputs, "input", choose(c, 6));
	return pack;
}

static struct pack *subscribe_choose(struct play *play)
{
	static const uint64_t seqs[] = { 0, 0, 1, 5 };
	struct choices *c = &play->choices;
	struct pack *pack = pack_new(sizeof pack->subscribe);
	struct dsec_wire_subscribe *wish = &pack->subscribe;
	struct dsec_wire_id ids[4];

	wish->select.count = choose(c, 4);
	for (uint32_t i = 0; i < wish->select.count; i++)
		ids[i] = id_choose(play);
	pack_ref(pack, &wish->select.ids, ids, wish->select.count * (uint32_t)sizeof *ids);
	if (choose(c, 2))
		labels_choose(c, pack, &wish->select.labels);
	wish->topics = choose(c, 4) ? 0 : choose_byte(c);
	wish->from_seq = seqs[choose(c, 4)];
	wish->epoch = choose(c, 8) == 7;
	wish->window = choose(c, 3);
	wish->flags = choose(c, 2);
	return pack;
}

static struct pack *pack_choose(struct play *play, struct dsec_ring_request *entry)
{
	uint16_t op = entry->op;
	struct choices *c = &play->choices;
	struct pack *pack;

	if (op == DSEC_OP_CREATE)
		pack = create_choose(play);
	else if (op == DSEC_OP_EXEC)
		pack = exec_choose(play);
	else if (op == DSEC_OP_LIST)
		pack = list_choose(play);
	else if (op == DSEC_OP_CHANGE)
		pack = change_choose(play);
	else if (op == DSEC_OP_FETCHED)
		pack = fetched_choose(play);
	else if (op == DSEC_OP_DESTROY || op == DSEC_OP_STATS)
		pack = select_choose(play, sizeof pack->select);
	else if (op == DSEC_OP_FILE)
		pack = file_choose(play);
	else if (op == DSEC_OP_ATTACH)
		pack = attach_choose(c, entry);
	else if (op == DSEC_OP_IMAGE || op == DSEC_OP_FORK)
		pack = op == DSEC_OP_FORK ? fork_choose(c) : image_choose(c, id_choose(play));
	else if (op == DSEC_OP_POLICY)
		pack = policy_choose(c);
	else if (op == DSEC_OP_SUBSCRIBE)
		pack = subscribe_choose(play);
	else if (op == DSEC_OP_INPUT)
		pack = input_choose(c, entry);
	else if (op == DSEC_OP_PORT)
		pack = port_choose(c);
	else if (op == DSEC_OP_PHASE)
		pack = phase_choose(c);
	else if (op == DSEC_OP_FUNCTION)
		pack = function_choose(c);
	else if (op == DSEC_OP_INVOKE)
		pack = invoke_choose(c);
	else
		pack = pack_new(0);
	/* And some bytes of it otherwise. */
	for (uint32_t count = choose(c, 4) == 3 ? choose(c, 8) : 0; count && pack->bytes; count--)
		pack->data[choose_word(c) % pack->bytes] = (char)choose_byte(c);
	if (choose(c, 16) == 15)
		pack->bytes = choose_byte(c);
	return pack;
}

/* Zero for most; else one of a few, so that some come twice. */
static void request_id_choose(struct choices *c, uint8_t id[16])
{
	uint64_t ms = 1700000000000 + choose(c, 3);

	memset(id, 0, 16);
	for (int i = 0; i < 6; i++)
		id[i] = (uint8_t)(ms >> (40 - 8 * i));
	id[15] = choose_byte(c) % 4;
}

/* Those after the tenth are rarer, so that what was found before them stays what it was. */
static uint16_t op_choose(struct choices *c)
{
	/* clang-format off */
	static const uint16_t ops[] = {
		0, 1, 2, 3, 4, 5, 6, 7, 8, 9, DSEC_OP_INPUT, DSEC_OP_CREDIT,
		DSEC_OP_ATTACH, DSEC_OP_FILE, DSEC_OP_CHANGE, DSEC_OP_INSPECT, DSEC_OP_SIGNAL,
		DSEC_OP_RESIZE, DSEC_OP_PORT, DSEC_OP_FUNCTION, DSEC_OP_INVOKE, DSEC_OP_INVOKE,
		DSEC_OP_SUBSCRIBE, DSEC_OP_SUBSCRIBE, DSEC_OP_POLICY, DSEC_OP_FETCHED,
		DSEC_OP_PHASE, DSEC_OP_PHASE,
	};
	/* clang-format on */
	uint8_t byte = choose_byte(c);

	/* Of the rarer ones, each can come. */
	if (byte < 240)
		return ops[byte % 12];
	return ops[12 + (byte - 240u) % (sizeof ops / sizeof *ops - 12)];
}

static void ask(struct play *play, struct visitor *v)
{
	static const uint32_t timeouts[] = { 0, 0, 0, 1, 1000, UINT32_MAX };
	struct choices *c = &play->choices;
	struct dsec_ring_request entry = { .op = op_choose(c) };
	struct pack *pack = pack_choose(play, &entry);

	entry.subject = id_choose(play);
	if ((entry.op == DSEC_OP_INVOKE || entry.op == DSEC_OP_FUNCTION) && choose(c, 8) != 7)
		entry.subject = play->known.function;
	entry.timeout_ms = timeouts[choose(c, 6)];
	/* Or nobody would end it. */
	if (entry.op == DSEC_OP_SUBSCRIBE)
		entry.timeout_ms = 1;
	entry.number[0] = choose_byte(c);
	if (entry.op == DSEC_OP_CREDIT) {
		entry.number[1] = choose(c, 4);
		entry.number[2] = choose(c, 8) * 100;
	}
	if (entry.op == DSEC_OP_SIGNAL || entry.op == DSEC_OP_RESIZE) {
		entry.exec = choose(c, 4);
		entry.number[1] = choose(c, 4) << 8;
	}
	if (choose(c, 4) == 3)
		request_id_choose(c, entry.request_id);
	if (choose(c, 32) == 31)
		entry.flags = choose_byte(c);
	visitor_ask(v, &entry, pack->data, pack->bytes);
	free(pack);
}

/* ---- moves ---- */

static void arrive(struct play *play, uint32_t who)
{
	struct choices *c = &play->choices;
	struct dsec_ring_hello hello =
		raw_hello(choose(c, 4) ? DSEC_TRANSPORT_RING : DSEC_TRANSPORT_STREAM);

	if (play->present[who])
		return;
	hello.channels = choose(c, 2) ? UINT32_MAX : 0;
	hello.requests_max = choose(c, 2) * 16;
	hello.arena_bytes = 1;
	visitor_connect(&play->visitors[who], &play->node, &play->known);
	play->present[who] = true;
	(void)visitor_open(&play->visitors[who], &play->node, &hello);
}

static void leave(struct play *play, uint32_t who)
{
	if (play->present[who])
		visitor_close(&play->visitors[who]);
	play->present[who] = false;
}

/* A word of the channel, or a request as it comes: from then on no account is kept. */
static void misbehave(struct play *play, struct visitor *v)
{
	struct choices *c = &play->choices;
	uint32_t word, value;

	v->wild = true;
	if (v->raw.hello.transport == DSEC_TRANSPORT_STREAM) {
		char bytes[256];
		uint32_t count = choose_byte(c);

		choose_bytes(c, bytes, count);
		(void)raw_send(&v->raw, bytes, count); /* it may be cut already */
		return;
	}
	word = choose(c, 2) ? choose(c, 6) * 32 + choose(c, 2) :
			      choose_word(c) % (v->raw.welcome.channel_bytes / 4);
	value = choose(c, 2) ? choose_word(c) : (uint32_t)((int8_t)choose_byte(c));
	__atomic_store_n((uint32_t *)v->raw.channel + word, value, __ATOMIC_RELEASE);
}

static void move(struct play *play)
{
	struct choices *c = &play->choices;
	uint8_t what = choose_byte(c);
	uint32_t who = what / 16 % VISITORS;
	struct visitor *v = &play->visitors[who];
	bool open = play->present[who] && v->open;
	struct backend *backend = play->node.shards[choose(c, FUZZ_SHARDS)]->backend;

	switch (what % 16) {
	case 0:
		arrive(play, who);
		break;
	case 1:
		if (choose(c, 4) == 3)
			leave(play, who);
		break;
	case 2:
		if (open && choose(c, 4) == 3)
			misbehave(play, v);
		break;
	case 3:
		if (open)
			visitor_read(v, choose(c, 16));
		break;
	case 4:
		if (choose(c, 4) == 3)
			stub_box_dies(backend);
		break;
	case 5:
		kernel_pass(play->node.kernel, 1000000ull << choose(c, 20));
		break;
	case 6:
	case 7:
		(void)stub_step(backend);
		break;
	case 8:
	case 9:
		node_turn(&play->node, choose(c, FUZZ_SHARDS + 1));
		break;
	case 10:
		for (uint32_t i = 0; i <= FUZZ_SHARDS; i++)
			node_turn(&play->node, i);
		break;
	default:
		if (open)
			ask(play, v);
	}
}

/* Everybody reads, and everything that can end does. */
static void finish(struct play *play)
{
	uint32_t read = 0, before = 0;

	for (int still = 0; still < 20; still = read == before ? still + 1 : 0) {
		bool answered = true;

		before = read;
		node_settle(&play->node);
		for (int i = 0; i < VISITORS; i++) {
			struct visitor *v = &play->visitors[i];

			if (!play->present[i] || !v->open || v->wild)
				continue;
			read += visitor_read(v, UINT32_MAX);
			answered &= visitor_is_answered(v);
		}
		if (answered)
			return;
		kernel_pass(play->node.kernel, 2000000); /* what waits for room is looked at */
	}
	for (int i = 0; i < VISITORS; i++) {
		struct visitor *v = &play->visitors[i];

		if (play->present[i] && v->open && !v->wild)
			assert(visitor_is_answered(v));
	}
}

/* No client, and no sandbox that was to go with its client. */
static void nobody_is_left(const struct fuzz_node *node)
{
	for (uint32_t i = 0; i < FUZZ_SHARDS; i++) {
		const struct shard *shard = node->shards[i];

		assert(!shard->clients_live);
		assert(!pool_taken(&shard->requests));
		for (uint32_t k = 0; k < shard->sandboxes.count; k++) {
			const struct sandbox *sandbox = pool_at(&shard->sandboxes, k);

			assert(!sandbox || sandbox->on_disconnect == DSEC_DISCONNECT_KEEP);
		}
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	struct play *play = calloc(1, sizeof *play);

	play->choices = (struct choices){ data, bytes };
	node_open(&play->node, &play->choices);
	for (int moves = 0; play->choices.left && moves < MOVES_MAX; moves++)
		move(play);
	play->choices.left = 0;
	finish(play);
	for (int i = 0; i < VISITORS; i++)
		if (play->present[i] && play->visitors[i].open && !play->visitors[i].wild)
			assert(!visitor_is_cut(&play->visitors[i])); /* who keeps the rules stays */
	for (uint32_t i = 0; i < VISITORS; i++)
		leave(play, i);
	node_settle(&play->node);
	nobody_is_left(&play->node);
	if (bytes % 2)
		node_outlive(&play->node); /* else they end with the engine */
	node_close(&play->node);
	free(play);
	return 0;
}
