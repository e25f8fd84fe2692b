/*
 * The handshake's bytes: a hello, a token and a step that are nearly right, in pieces of any
 * length, with turns between, hung up anywhere. Must hold: nothing is left of it.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "tests/fuzz/kernel.h"
#include "tests/fuzz/node.h"
#include "tests/fuzz/visitor.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

enum { CONNECTIONS = 3, SECOND_NS = 1000000000, TENANT_NAMES = 5 };

/* Some of its bytes otherwise. */
static void bend(struct choices *c, void *bytes, uint32_t count)
{
	for (uint32_t times = choose(c, 2) ? choose(c, 4) : 0; times; times--)
		((uint8_t *)bytes)[choose_byte(c) % count] = choose_byte(c);
}

static void send_in_pieces(struct visitor *v, struct fuzz_node *node, const void *bytes,
			   uint32_t count)
{
	struct choices *c = node->choices;
	const char *at = bytes;

	while (count) {
		uint32_t piece = choose(c, 2) ? 1 + choose_byte(c) % count : count;

		if (raw_send(&v->raw, at, piece) < 0)
			return;
		at += piece;
		count -= piece;
		node_turn(node, choose(c, FUZZ_SHARDS));
		if (choose(c, 16) == 15)
			kernel_pass(node->kernel, choose(c, 20) * 1000000000ull);
	}
}

/* What is sealed then is the engine's to find out. */
static void touch_memory(struct visitor *v, struct choices *c)
{
	struct raw *raw = &v->raw;

	if (raw_map(raw) < 0)
		return;
	for (uint32_t times = choose(c, 4); times; times--)
		((uint32_t *)raw->channel)[choose_byte(c)] = choose_word(c);
}

static void connection(struct fuzz_node *node, struct known_ids *known, struct visitor *v)
{
	struct choices *c = node->choices;
	struct dsec_ring_hello hello =
		raw_hello(choose(c, 2) ? DSEC_TRANSPORT_STREAM : DSEC_TRANSPORT_RING);
	struct dsec_ring_step step = { .magic = DSEC_RING_MAGIC, .step = 1 };
	static const char tenants[TENANT_NAMES][8] = { "", "blue", "*", "default", "none" };
	char token[300];

	visitor_connect(v, node, known);
	hello.token_bytes = choose(c, 2) ? choose_byte(c) : 0;
	hello.arena_bytes = 1;
	/* The first of the node's tenants is a gateway. */
	memcpy(hello.tenant, tenants[choose(c, TENANT_NAMES)], sizeof *tenants);
	bend(c, &hello, sizeof hello);
	choose_bytes(c, token, choose_byte(c));
	send_in_pieces(v, node, &hello, sizeof hello);
	if (hello.token_bytes <= sizeof token)
		send_in_pieces(v, node, token, hello.token_bytes);
	node_settle(node);
	if (hello.transport != DSEC_TRANSPORT_RING || choose(c, 8) == 7 || visitor_is_silent(v) ||
	    raw_receive_welcome(&v->raw) < 0 || v->raw.welcome.code)
		return;
	touch_memory(v, c);
	bend(c, &step, sizeof step);
	send_in_pieces(v, node, &step, sizeof step);
	if (choose(c, 2))
		node_settle(node);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	struct choices choices = { data, bytes };
	struct visitor visitors[CONNECTIONS];
	struct known_ids known = { 0 };
	struct fuzz_node node;

	node_open(&node, &choices);
	for (int i = 0; i < CONNECTIONS; i++)
		connection(&node, &known, &visitors[i]);
	choices.left = 0;
	/* Longer than a handshake may take: those that are not over end. */
	node_settle(&node);
	kernel_pass(node.kernel, 20ull * SECOND_NS);
	node_settle(&node);
	for (int i = 0; i < CONNECTIONS; i++)
		visitor_close(&visitors[i]);
	node_settle(&node);
	for (uint32_t i = 0; i < FUZZ_SHARDS; i++)
		assert(!node.shards[i]->clients_live);
	node_close(&node);
	return 0;
}
