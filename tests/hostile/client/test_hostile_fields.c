/*
 * Attacks by what requests say: unknown and reserved bits, sizes and counts that lie, names that
 * lead elsewhere, ids of others, extremes of every number. Each is refused with its own code, and
 * the connection that asked lives on.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/cleanup.h"
#include "tests/hostile/client/claims.h"
#include "tests/hostile/client/payloads.h"

enum { BIG_ARENA_BYTES = 4 << 20 };

static const struct dsec_wire_id nobody = { 0 };
static const char *const trivial[] = { "/bin/payload", NULL };

/* With an arena that takes every payload of these tests. */
static bool fields_open(struct scene *scene, struct raw *ret)
{
	struct dsec_ring_hello hello = raw_hello(DSEC_TRANSPORT_RING);

	hello.arena_bytes = BIG_ARENA_BYTES;
	CHECK(raw_open_hello(ret, scene->engine.socket, &hello) == 0);
	return true;
}

/* The connection still works. */
static bool fields_close(struct raw *raw)
{
	CHECK(pack_ask(raw, DSEC_OP_NOP, nobody, NULL, NULL) == DSEC_OK);
	raw_close(raw);
	return true;
}

static bool sandbox_new(struct raw *raw, struct dsec_wire_id *ret)
{
	CHECK(pack_create_ids(raw, pack_create(1), 1, ret) == 1);
	return true;
}

static bool sandbox_end(struct raw *raw, struct dsec_wire_id id)
{
	CHECK(pack_ask(raw, DSEC_OP_DESTROY, id, NULL, NULL) == DSEC_OK);
	return true;
}

/* ---- entries ---- */

static bool unknown_ops_are_unsupported(struct scene *scene)
{
	static const uint16_t unknown[] = { DSEC_OP_COUNT, 255, 256, 257, 0x8000, UINT16_MAX };
	struct answer answer;
	struct raw raw;

	CHECK(fields_open(scene, &raw));
	for (unsigned i = 0; i < sizeof unknown / sizeof *unknown; i++)
		CHECK(pack_ask(&raw, unknown[i], nobody, NULL, &answer) == DSEC_UNSUPPORTED);
	return fields_close(&raw);
}

static bool unknown_bits_of_entries_are_invalid(struct scene *scene)
{
	struct raw raw;

	CHECK(fields_open(scene, &raw));
	for (uint16_t op = 0; op < DSEC_OP_COUNT; op++) {
		struct dsec_ring_request entry = { .ticket = 1, .op = op };

		/* What this engine does not know it does not look into. */
		if (raw_code(&raw, &entry, NULL, 0) == DSEC_UNSUPPORTED)
			continue;
		for (int bit = 0; bit < 16; bit++) {
			entry.flags = (uint16_t)(1u << bit);
			CHECK(raw_code(&raw, &entry, NULL, 0) == DSEC_INVALID);
		}
		entry.flags = 0;
		entry.reserved0 = 1;
		CHECK(raw_code(&raw, &entry, NULL, 0) == DSEC_INVALID);
		entry.reserved0 = 0;
		entry.reserved1[1] = 1ull << 63;
		CHECK(raw_code(&raw, &entry, NULL, 0) == DSEC_INVALID);
	}
	return fields_close(&raw);
}

/* ---- structs ---- */

static const uint16_t ops_with_payload[] = { DSEC_OP_CREATE,  DSEC_OP_DESTROY, DSEC_OP_LIST,
					     DSEC_OP_STATS,   DSEC_OP_CHANGE,  DSEC_OP_PHASE,
					     DSEC_OP_FETCHED, DSEC_OP_EXEC };

static bool sizes_of_structs_that_lie_are_invalid(struct scene *scene)
{
	static const uint32_t lies[] = { 0, 1, 3, 1u << 20, 1u << 31, UINT32_MAX - 3, UINT32_MAX };
	struct dsec_wire_id sandbox;
	struct answer answer;
	struct raw raw;

	CHECK(fields_open(scene, &raw));
	CHECK(sandbox_new(&raw, &sandbox));
	for (unsigned i = 0; i < sizeof ops_with_payload / sizeof *ops_with_payload; i++) {
		uint16_t op = ops_with_payload[i];

		for (unsigned k = 0; k < sizeof lies / sizeof *lies; k++) {
			struct pack *pack = pack_of(op);

			pack->size = lies[k];
			CHECK(pack_ask(&raw, op, sandbox, pack, NULL) == DSEC_INVALID);
		}
		for (uint32_t bytes = 1; bytes < 4; bytes++) {
			struct pack *pack = pack_of(op);

			pack->bytes = bytes;
			CHECK(pack_ask(&raw, op, sandbox, pack, NULL) == DSEC_INVALID);
		}
		/* A tail that is not known here. */
		struct pack *pack = pack_of(op);

		pack->bytes = pack->size = 1024;
		memset(pack->data + 512, 0, 512);
		pack->data[1023] = 1;
		CHECK(pack_ask(&raw, op, sandbox, pack, &answer) == DSEC_INVALID);
		CHECK(answer.status.error == E2BIG || answer.status.error == EINVAL);
	}
	CHECK(sandbox_end(&raw, sandbox));
	return fields_close(&raw);
}

static bool a_tail_of_zeros_is_welcome(struct scene *scene)
{
	struct pack *pack = pack_new(4096);
	struct raw raw;

	CHECK(fields_open(scene, &raw));
	CHECK(pack_ask(&raw, DSEC_OP_LIST, nobody, pack, NULL) == DSEC_OK);
	pack = pack_new(4096);
	pack->data[4095] = 1;
	CHECK(pack_ask(&raw, DSEC_OP_LIST, nobody, pack, NULL) == DSEC_INVALID);
	return fields_close(&raw);
}

static bool reserved_words_are_invalid(struct scene *scene)
{
	struct dsec_wire_id sandbox;
	struct raw raw;

	CHECK(fields_open(scene, &raw));
	CHECK(sandbox_new(&raw, &sandbox));
	for (unsigned i = 0; i < sizeof ops_with_payload / sizeof *ops_with_payload; i++) {
		uint16_t op = ops_with_payload[i];
		struct pack *pack;
		uint64_t *reserved;

		if (op == DSEC_OP_EXEC)
			continue; /* has nothing left in reserve */
		pack = pack_of(op);
		reserved = pack->list.reserved;

		if (op == DSEC_OP_CREATE)
			reserved = pack->create.reserved;
		else if (op == DSEC_OP_CHANGE)
			reserved = pack->change.reserved;
		else if (op == DSEC_OP_FETCHED)
			reserved = pack->fetched.reserved;
		else if (op != DSEC_OP_LIST)
			reserved = pack->select.reserved;
		reserved[1] = 1ull << 40;
		CHECK(pack_ask(&raw, op, sandbox, pack, NULL) == DSEC_INVALID);
	}
	for (int bit = 0; bit < 32; bit++) {
		struct pack *pack = pack_create(1);

		pack->create.flags = 1u << bit;
		if (pack->create.flags & ~(uint32_t)DSEC_CREATE_FLAGS_KNOWN)
			CHECK(pack_ask(&raw, DSEC_OP_CREATE, nobody, pack, NULL) == DSEC_INVALID);
		else
			free(pack);
		pack = pack_exec(trivial);
		pack->exec.flags = 1u << bit;
		if (pack->exec.flags & ~(uint32_t)DSEC_EXEC_FLAGS_KNOWN)
			CHECK(pack_ask(&raw, DSEC_OP_EXEC, sandbox, pack, NULL) == DSEC_INVALID);
		else
			free(pack);
	}
	CHECK(sandbox_end(&raw, sandbox));
	return fields_close(&raw);
}

/* ---- lists ---- */

static bool items_are_invalid(struct raw *raw, struct dsec_wire_id sandbox,
			      struct dsec_wire_items lie)
{
	struct pack *pack = pack_exec(trivial);

	pack->exec.argv = lie;
	CHECK(pack_ask(raw, DSEC_OP_EXEC, sandbox, pack, NULL) == DSEC_INVALID);
	pack = pack_exec(trivial);
	pack->exec.env = lie;
	CHECK(pack_ask(raw, DSEC_OP_EXEC, sandbox, pack, NULL) == DSEC_INVALID);
	pack = pack_create(1);
	pack->create.labels = lie;
	CHECK(pack_ask(raw, DSEC_OP_CREATE, nobody, pack, NULL) == DSEC_INVALID);
	pack = pack_create(1);
	pack->create.env = lie;
	CHECK(pack_ask(raw, DSEC_OP_CREATE, nobody, pack, NULL) == DSEC_INVALID);
	pack = pack_new(sizeof pack->list);
	pack->list.labels = lie;
	CHECK(pack_ask(raw, DSEC_OP_LIST, nobody, pack, NULL) == DSEC_INVALID);
	pack = pack_new(sizeof pack->select);
	pack->select.labels = lie;
	CHECK(pack_ask(raw, DSEC_OP_DESTROY, nobody, pack, NULL) == DSEC_INVALID);
	pack = pack_fetched();
	pack->fetched.select.labels = lie;
	CHECK(pack_ask(raw, DSEC_OP_FETCHED, sandbox, pack, NULL) == DSEC_INVALID);
	pack = pack_change();
	pack->change.labels = lie;
	CHECK(pack_ask(raw, DSEC_OP_CHANGE, sandbox, pack, NULL) == DSEC_INVALID);
	pack = pack_change();
	pack->change.removed = lie;
	CHECK(pack_ask(raw, DSEC_OP_CHANGE, sandbox, pack, NULL) == DSEC_INVALID);
	return true;
}

static bool lists_that_lie_are_invalid(struct scene *scene)
{
	static const struct dsec_wire_items lies[] = {
		{ 0, 0, 2, 0 },
		{ 0, 0, UINT32_MAX, 0 },
		{ 0, 16, 1, 0 },
		{ 0, 3, 0, 0 },
		{ 0, UINT32_MAX, 2, 0 },
		{ UINT32_MAX, 1, 2, 0 },
		{ UINT32_MAX, UINT32_MAX, 2, 0 },
		{ 64, UINT32_MAX - 63, 2, 0 },
		{ 1u << 31, 1u << 31, 2, 0 },
		{ 20, 5, 2, 0 },
		{ 0, 0, 0, 1 },
	};
	struct dsec_wire_id sandbox;
	struct raw raw;

	CHECK(fields_open(scene, &raw));
	CHECK(sandbox_new(&raw, &sandbox));
	for (unsigned i = 0; i < sizeof lies / sizeof *lies; i++)
		CHECK(items_are_invalid(&raw, sandbox, lies[i]));
	CHECK(sandbox_end(&raw, sandbox));
	return fields_close(&raw);
}

static bool references_that_lie_are_invalid(struct scene *scene)
{
	static const struct dsec_wire_ref lies[] = {
		{ UINT32_MAX, 1 }, { 1, UINT32_MAX },	   { UINT32_MAX, UINT32_MAX },
		{ 400, 1 << 20 },  { 1u << 31, 1u << 31 },
	};
	struct dsec_wire_id sandbox;
	struct raw raw;

	CHECK(fields_open(scene, &raw));
	CHECK(sandbox_new(&raw, &sandbox));
	for (unsigned i = 0; i < sizeof lies / sizeof *lies; i++) {
		struct pack *pack;

		for (unsigned field = 0; field < 5; field++) {
			pack = pack_create(1);
			(&pack->create.image)[field] = lies[i];
			CHECK(pack_ask(&raw, DSEC_OP_CREATE, nobody, pack, NULL) != DSEC_OK);
		}
		for (unsigned field = 0; field < 3; field++) {
			pack = pack_exec(trivial);
			(&pack->exec.cwd)[field] = lies[i];
			CHECK(pack_ask(&raw, DSEC_OP_EXEC, sandbox, pack, NULL) == DSEC_INVALID);
		}
		pack = pack_new(sizeof pack->list);
		pack->list.cursor = lies[i];
		CHECK(pack_ask(&raw, DSEC_OP_LIST, nobody, pack, NULL) == DSEC_INVALID);
		pack = pack_new(sizeof pack->select);
		pack->select.ids = lies[i];
		pack->select.count = lies[i].bytes / 16;
		CHECK(pack_ask(&raw, DSEC_OP_DESTROY, nobody, pack, NULL) == DSEC_INVALID);
		pack = pack_change();
		pack->change.select.ids = lies[i];
		pack->change.select.count = lies[i].bytes / 16;
		CHECK(pack_ask(&raw, DSEC_OP_CHANGE, sandbox, pack, NULL) == DSEC_INVALID);
	}
	CHECK(sandbox_end(&raw, sandbox));
	return fields_close(&raw);
}

/* ---- text ---- */

static bool bytes_that_execve_cannot_carry_are_invalid(struct scene *scene)
{
	struct dsec_wire_id sandbox;
	struct pack *pack;
	char text[4000];
	struct raw raw;

	memset(text, 'x', sizeof text);
	CHECK(fields_open(scene, &raw));
	CHECK(sandbox_new(&raw, &sandbox));
	pack = pack_new(sizeof pack->exec);
	pack_item(pack, &pack->exec.argv, "/bin/\0payload", 13);
	CHECK(pack_ask(&raw, DSEC_OP_EXEC, sandbox, pack, NULL) == DSEC_INVALID);
	pack = pack_exec(trivial);
	pack_item(pack, &pack->exec.env, "A=\0", 3);
	CHECK(pack_ask(&raw, DSEC_OP_EXEC, sandbox, pack, NULL) == DSEC_INVALID);
	pack = pack_exec(trivial);
	pack_ref(pack, &pack->exec.cwd, "/\0tmp", 5);
	CHECK(pack_ask(&raw, DSEC_OP_EXEC, sandbox, pack, NULL) == DSEC_INVALID);
	pack = pack_exec(trivial);
	pack_ref(pack, &pack->exec.user, "root\0", 5);
	CHECK(pack_ask(&raw, DSEC_OP_EXEC, sandbox, pack, NULL) == DSEC_INVALID);
	/* No program at all, an empty one, more arguments and bytes than are allowed. */
	CHECK(pack_ask(&raw, DSEC_OP_EXEC, sandbox, pack_new(sizeof pack->exec), NULL) ==
	      DSEC_INVALID);
	pack = pack_new(sizeof pack->exec);
	pack_item(pack, &pack->exec.argv, "", 0);
	CHECK(pack_ask(&raw, DSEC_OP_EXEC, sandbox, pack, NULL) == DSEC_FAILED);
	pack = pack_exec(trivial);
	for (int i = 0; i < 5000; i++)
		pack_item(pack, &pack->exec.argv, "a", 1);
	CHECK(pack_ask(&raw, DSEC_OP_EXEC, sandbox, pack, NULL) == DSEC_INVALID);
	pack = pack_exec(trivial);
	for (int i = 0; i < 40; i++)
		pack_item(pack, &pack->exec.argv, text, sizeof text);
	CHECK(pack_ask(&raw, DSEC_OP_EXEC, sandbox, pack, NULL) == DSEC_INVALID);
	CHECK(pack_ask(&raw, DSEC_OP_EXEC, sandbox, pack_exec(trivial), NULL) == DSEC_OK);
	CHECK(sandbox_end(&raw, sandbox));
	return fields_close(&raw);
}

static int image_code(struct raw *raw, const char *name, uint32_t bytes)
{
	struct pack *pack = pack_new(sizeof pack->create);

	pack_ref(pack, &pack->create.image, name, bytes);
	return pack_ask(raw, DSEC_OP_CREATE, nobody, pack, NULL);
}

static bool image_names_lead_nowhere_else(struct scene *scene)
{
	static const char *const absent[] = { "tiny.erofs", "tin", "tiny2", "-",     "--",  "a/b/c",
					      "a:b",	    "_",   "TINY",  "tiny-", "con", "0" };
	auto_free char *longest = calloc(1, 4097);
	struct raw raw;

	CHECK(fields_open(scene, &raw));
	for (const char *const *name = names_invalid; *name; name++)
		CHECK(image_code(&raw, *name, (uint32_t)strlen(*name)) == DSEC_INVALID);
	for (unsigned i = 0; i < sizeof absent / sizeof *absent; i++)
		CHECK(image_code(&raw, absent[i], (uint32_t)strlen(absent[i])) == DSEC_ABSENT);
	memset(longest, 'a', 4096);
	CHECK(image_code(&raw, longest, 4096) == DSEC_INVALID);
	CHECK(image_code(&raw, longest, 128) == DSEC_INVALID);
	CHECK(image_code(&raw, longest, 127) == DSEC_ABSENT);
	CHECK(image_code(&raw, "", 0) == DSEC_INVALID);
	CHECK(image_code(&raw, "tiny\0x", 6) == DSEC_INVALID);
	return fields_close(&raw);
}

/* A field of a create, as bytes of one kind: the code. */
static int create_code(struct raw *raw, size_t field, const char *text, uint32_t bytes)
{
	struct pack *pack = pack_create(1);
	struct dsec_wire_id ids[1];

	pack_ref(pack, (struct dsec_wire_ref *)(pack->data + field), text, bytes);
	if (pack_create_ids(raw, pack, 1, ids) != 1)
		return DSEC_INVALID;
	return pack_ask(raw, DSEC_OP_DESTROY, ids[0], NULL, NULL);
}

static bool names_have_lengths_that_hold(struct scene *scene)
{
	const size_t hostname = offsetof(struct dsec_wire_create, hostname);
	const size_t user = offsetof(struct dsec_wire_create, user);
	char text[65];
	struct raw raw;

	memset(text, 'x', sizeof text);
	CHECK(fields_open(scene, &raw));
	CHECK(create_code(&raw, hostname, text, 63) == DSEC_OK);
	CHECK(create_code(&raw, hostname, text, 64) == DSEC_INVALID);
	CHECK(create_code(&raw, hostname, "a\0b", 3) == DSEC_INVALID);
	CHECK(create_code(&raw, user, text, 63) == DSEC_OK);
	CHECK(create_code(&raw, user, text, 64) == DSEC_INVALID);
	CHECK(create_code(&raw, user, "\0", 1) == DSEC_INVALID);
	return fields_close(&raw);
}

static bool labels_and_env_have_sizes_that_hold(struct scene *scene)
{
	struct dsec_wire_id ids[1];
	struct pack *pack;
	char text[2048];
	struct raw raw;

	memset(text, 'x', sizeof text);
	CHECK(fields_open(scene, &raw));
	pack = pack_create(1); /* key without a value */
	pack_item(pack, &pack->create.labels, "a", 1);
	CHECK(pack_ask(&raw, DSEC_OP_CREATE, nobody, pack, NULL) == DSEC_INVALID);
	pack = pack_create(1); /* 2048 bytes with their lengths */
	pack_item(pack, &pack->create.labels, text, 2040);
	pack_item(pack, &pack->create.labels, "", 0);
	CHECK(pack_create_ids(&raw, pack, 1, ids) == 1);
	CHECK(sandbox_end(&raw, ids[0]));
	pack = pack_create(1);
	pack_item(pack, &pack->create.labels, text, 2041);
	pack_item(pack, &pack->create.labels, "", 0);
	CHECK(pack_ask(&raw, DSEC_OP_CREATE, nobody, pack, NULL) == DSEC_INVALID);
	pack = pack_create(1);
	for (int i = 0; i < 9; i++)
		pack_item(pack, &pack->create.env, text, 2000);
	CHECK(pack_ask(&raw, DSEC_OP_CREATE, nobody, pack, NULL) == DSEC_INVALID);
	pack = pack_create(1); /* it could never start a program */
	pack_item(pack, &pack->create.env, "A=\0", 3);
	CHECK(pack_ask(&raw, DSEC_OP_CREATE, nobody, pack, NULL) == DSEC_INVALID);
	return fields_close(&raw);
}

/* ---- ids ---- */

/* What an exec, a stats and a destroy of an id say, all of it. */
struct sayings {
	struct answer exec, stats, destroy;
};

static bool sayings_of(struct raw *raw, struct dsec_wire_id id, struct sayings *ret)
{
	CHECK(pack_ask(raw, DSEC_OP_EXEC, id, pack_exec(trivial), &ret->exec) == DSEC_ABSENT);
	CHECK(pack_ask(raw, DSEC_OP_STATS, id, NULL, &ret->stats) == DSEC_OK);
	CHECK(pack_ask(raw, DSEC_OP_DESTROY, id, NULL, &ret->destroy) == DSEC_OK);
	/* What echoes the question and what counts buffers is not an answer. */
	ret->exec.last.subject = ret->stats.last.subject = ret->destroy.last.subject = nobody;
	ret->exec.last.ticket = ret->stats.last.ticket = ret->destroy.last.ticket = 0;
	ret->exec.last.buffer = ret->stats.last.buffer = ret->destroy.last.buffer = 0;
	return true;
}

static bool ids_of_others_cannot_be_told_apart(struct scene *scene)
{
	struct dsec_wire_id gone, foreign[9];
	struct sayings first, other;
	struct raw raw;

	CHECK(fields_open(scene, &raw));
	CHECK(sandbox_new(&raw, &gone));
	CHECK(sandbox_end(&raw, gone));
	for (int i = 0; i < 9; i++)
		foreign[i] = gone;
	foreign[0].hi ^= 1; /* another node */
	foreign[1].hi = foreign[1].lo = UINT64_MAX;
	foreign[2].lo ^= 1ull << DSEC_ID_SHARD_SHIFT;	  /* another shard */
	foreign[3].lo |= 0xfffull << DSEC_ID_SHARD_SHIFT; /* a shard that is not there */
	foreign[4].lo += 1ull << 20;			  /* not made yet */
	foreign[5].lo ^= 1;				  /* another place in the pool */
	foreign[6].lo |= 0xfffff;			  /* a place that is not there */
	foreign[7] = (struct dsec_wire_id){ 0, 1 };
	foreign[8] = (struct dsec_wire_id){ 1, 0 };
	CHECK(sayings_of(&raw, gone, &first));
	for (int i = 0; i < 9; i++) {
		CHECK(sayings_of(&raw, foreign[i], &other));
		if (memcmp(&first, &other, sizeof first) != 0)
			printf("  id %d: \"%s\" \"%s\" against \"%s\" \"%s\"\n", i,
			       other.exec.status.step, other.exec.status.detail,
			       first.exec.status.step, first.exec.status.detail);
		CHECK(memcmp(&first, &other, sizeof first) == 0);
	}
	return fields_close(&raw);
}

/* ---- numbers ---- */

static bool extremes_of_create_are_answered(struct scene *scene)
{
	static const uint32_t times[] = { 30 * 24 * 3600 + 1, 1u << 31, UINT32_MAX };
	struct dsec_wire_id ids[1];
	struct pack *pack;
	struct raw raw;

	CHECK(fields_open(scene, &raw));
	for (unsigned i = 0; i < sizeof times / sizeof *times; i++) {
		pack = pack_create(1);
		pack->create.ttl_s = times[i];
		CHECK(pack_ask(&raw, DSEC_OP_CREATE, nobody, pack, NULL) == DSEC_INVALID);
		pack = pack_create(1);
		pack->create.idle_ttl_s = times[i];
		CHECK(pack_ask(&raw, DSEC_OP_CREATE, nobody, pack, NULL) == DSEC_INVALID);
		pack = pack_create(times[i]);
		CHECK(pack_ask(&raw, DSEC_OP_CREATE, nobody, pack, NULL) == DSEC_INVALID);
		pack = pack_create(1);
		pack->create.network = times[i];
		CHECK(pack_ask(&raw, DSEC_OP_CREATE, nobody, pack, NULL) == DSEC_INVALID);
		pack = pack_create(1);
		pack->create.on_disconnect = times[i];
		CHECK(pack_ask(&raw, DSEC_OP_CREATE, nobody, pack, NULL) == DSEC_INVALID);
	}
	CHECK(pack_create_ids(&raw, pack_create(0), 1, ids) == 1);
	CHECK(sandbox_end(&raw, ids[0]));
	pack = pack_create(1);
	pack->create.flags = DSEC_CREATE_ALLOW_DEGRADED;
	pack->create.memory_bytes = pack->create.disk_bytes = pack->create.inodes = UINT64_MAX;
	pack->create.pids_max = pack->create.cpu_weight = pack->create.cpu_max_permille =
		UINT32_MAX;
	if (pack_create_ids(&raw, pack, 1, ids) == 1)
		CHECK(sandbox_end(&raw, ids[0]));
	return fields_close(&raw);
}

static bool extremes_of_exec_are_answered(struct scene *scene)
{
	static const uint64_t sizes[] = { 1, 4 << 20, 1ull << 32, UINT64_MAX };
	struct dsec_wire_id sandbox;
	struct pack *pack;
	struct raw raw;

	CHECK(fields_open(scene, &raw));
	CHECK(sandbox_new(&raw, &sandbox));
	for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++) {
		static const char *const words[] = { "/bin/payload", "out", "100000", NULL };

		pack = pack_exec(words);
		pack->exec.head_bytes = pack->exec.tail_bytes = sizes[i];
		CHECK(pack_ask(&raw, DSEC_OP_EXEC, sandbox, pack, NULL) == DSEC_OK);
	}
	pack = pack_exec(trivial);
	pack->exec.timeout_ms = UINT32_MAX;
	CHECK(pack_ask(&raw, DSEC_OP_EXEC, sandbox, pack, NULL) == DSEC_INVALID);
	pack = pack_exec(trivial);
	pack->exec.timeout_ms = 1;
	CHECK(pack_ask(&raw, DSEC_OP_EXEC, sandbox, pack, NULL) == DSEC_OK);
	CHECK(sandbox_end(&raw, sandbox));
	return fields_close(&raw);
}

static bool any_timeout_of_any_op_ends(struct scene *scene)
{
	static const uint32_t timeouts[] = { 0, 1, 2, 1000, 1u << 31, UINT32_MAX };
	struct raw raw;

	CHECK(fields_open(scene, &raw));
	for (unsigned i = 0; i < sizeof timeouts / sizeof *timeouts; i++) {
		for (uint16_t op = 0; op < DSEC_OP_COUNT; op++) {
			struct dsec_ring_request entry = { .ticket = 1,
							   .op = op,
							   .timeout_ms = timeouts[i] };
			struct pack *pack = pack_of(op);
			bool bare = op < DSEC_OP_CREATE || op > DSEC_OP_STATS;

			if (op == DSEC_OP_CREATE)
				pack->create.image.bytes = 0;
			CHECK(raw_code(&raw, &entry, pack->data, bare ? 0 : pack->bytes) >= 0);
			free(pack);
		}
	}
	return fields_close(&raw);
}

int main(int argc, char **argv)
{
	static const struct claim claims[] = {
#define CLAIM(name) { #name, name }
		CLAIM(unknown_ops_are_unsupported),
		CLAIM(unknown_bits_of_entries_are_invalid),
		CLAIM(sizes_of_structs_that_lie_are_invalid),
		CLAIM(a_tail_of_zeros_is_welcome),
		CLAIM(reserved_words_are_invalid),
		CLAIM(lists_that_lie_are_invalid),
		CLAIM(references_that_lie_are_invalid),
		CLAIM(bytes_that_execve_cannot_carry_are_invalid),
		CLAIM(image_names_lead_nowhere_else),
		CLAIM(names_have_lengths_that_hold),
		CLAIM(labels_and_env_have_sizes_that_hold),
		CLAIM(ids_of_others_cannot_be_told_apart),
		CLAIM(extremes_of_create_are_answered),
		CLAIM(extremes_of_exec_are_answered),
		CLAIM(any_timeout_of_any_op_ends),
#undef CLAIM
	};
	const struct engine_options options = { .arguments = { "--sandboxes-max", "128" } };

	(void)argc;
	return claims_run(claims, sizeof claims / sizeof *claims, &options, argv + 1);
}
