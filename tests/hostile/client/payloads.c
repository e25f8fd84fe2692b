/*
 * Packing payloads by hand. Called by the attacks; too much for the room is a mistake of the test
 * and ends it.
 */
#include "tests/hostile/client/payloads.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

const char *const names_invalid[] = {
	"../x",	    "..",	 ".",		"/etc/passwd", "a/../b",  "a/./b",
	"./tiny",   "tiny/..",	 "tiny/",	"/",	       "//",	  "a//b",
	".hidden",  "a/.hidden", "tiny\n",	"tiny erofs",  "%s%n",	  "a\\b",
	"tiny\xff", "~root",	 ".import/x/1", "*",	       "\x1b[2J", NULL,
};

enum { ANSWER_MS = 60000 };

struct pack *pack_new(uint32_t struct_bytes)
{
	struct pack *pack = calloc(1, sizeof *pack);

	assert(pack);
	pack->bytes = struct_bytes;
	pack->size = struct_bytes;
	return pack;
}

static void pack_add(struct pack *pack, const void *bytes, uint32_t count)
{
	assert(count <= PACK_BYTES - pack->bytes);
	if (count)
		memcpy(pack->data + pack->bytes, bytes, count);
	pack->bytes += count;
}

void pack_ref(struct pack *pack, struct dsec_wire_ref *ref, const void *bytes, uint32_t count)
{
	*ref = (struct dsec_wire_ref){ pack->bytes, count };
	pack_add(pack, bytes, count);
}

void pack_text(struct pack *pack, struct dsec_wire_ref *ref, const char *text)
{
	pack_ref(pack, ref, text, (uint32_t)strlen(text));
}

/* The items of a list are packed one after another, with nothing between. */
void pack_item(struct pack *pack, struct dsec_wire_items *items, const void *bytes, uint32_t count)
{
	if (!items->count)
		items->at = pack->bytes;
	assert(items->at + items->bytes == pack->bytes);
	pack_add(pack, &count, sizeof count);
	pack_add(pack, bytes, count);
	items->bytes += (uint32_t)sizeof count + count;
	items->count++;
}

void pack_words(struct pack *pack, struct dsec_wire_items *items, const char *const words[])
{
	for (; *words; words++)
		pack_item(pack, items, *words, (uint32_t)strlen(*words));
}

struct pack *pack_create(uint32_t count)
{
	struct pack *pack = pack_new(sizeof pack->create);

	pack->create.count = count;
	pack_text(pack, &pack->create.image, "tiny");
	return pack;
}

struct pack *pack_exec(const char *const words[])
{
	struct pack *pack = pack_new(sizeof pack->exec);

	pack_words(pack, &pack->exec.argv, words);
	return pack;
}

struct pack *pack_change(void)
{
	struct pack *pack = pack_new(sizeof pack->change);

	pack->change.set = DSEC_CHANGE_TTL | DSEC_CHANGE_LABELS;
	pack->change.ttl_s = 1000;
	pack_item(pack, &pack->change.labels, "key", 3);
	pack_item(pack, &pack->change.labels, "value", 5);
	return pack;
}

struct pack *pack_fetched(void)
{
	struct pack *pack = pack_new(sizeof pack->fetched);

	pack_text(pack, &pack->fetched.path, "git.example/owner/name");
	return pack;
}

struct pack *pack_of(uint16_t op)
{
	static const char *const trivial[] = { "true", NULL };

	switch (op) {
	case DSEC_OP_CREATE:
		return pack_create(1);
	case DSEC_OP_EXEC:
		return pack_exec(trivial);
	case DSEC_OP_LIST:
		return pack_new(sizeof(struct dsec_wire_list));
	case DSEC_OP_CHANGE:
		return pack_change();
	case DSEC_OP_FETCHED:
		return pack_fetched();
	default:
		return pack_new(sizeof(struct dsec_wire_select));
	}
}

int pack_ask(struct raw *raw, uint16_t op, struct dsec_wire_id subject, struct pack *pack,
	     struct answer *ret)
{
	struct dsec_ring_request entry = { .ticket = raw->submitted + 1,
					   .op = op,
					   .subject = subject };
	struct answer answer = { 0 };
	int r = raw_ask(raw, &entry, pack ? pack->data : NULL, pack ? pack->bytes : 0);

	free(pack);
	if (r >= 0)
		r = raw_last(raw, entry.ticket, ANSWER_MS, &answer.last, &answer.status);
	if (ret)
		*ret = answer;
	return r < 0 ? r : answer.last.code;
}

int pack_create_ids(struct raw *raw, struct pack *pack, uint32_t max, struct dsec_wire_id *ret)
{
	struct dsec_ring_request entry = { .ticket = raw->submitted + 1, .op = DSEC_OP_CREATE };
	struct dsec_ring_event event;
	uint32_t count = 0;
	int r = raw_ask(raw, &entry, pack->data, pack->bytes);

	free(pack);
	while (r >= 0) {
		r = raw_next(raw, ANSWER_MS, &event, NULL);
		if (r < 0 || event.flags & DSEC_EVENT_LAST)
			break;
		if (event.kind == DSEC_EV_CREATED && event.code == DSEC_OK && count < max)
			ret[count++] = event.subject;
	}
	return r < 0 ? r : (int)count;
}
