/*
 * The stream transport's framing: what follows a good handshake is the input, as it comes, in
 * pieces, with turns and reading between. Must hold: nobody else is hurt, nothing is left.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include "tests/fuzz/backend_stub.h"
#include "tests/fuzz/kernel.h"
#include "tests/fuzz/node.h"
#include "tests/fuzz/visitor.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

enum { PIECE_BYTES_MAX = 2048 };

/* Turns are chosen from the end of the input, so that its beginning is the stream itself. */
static void play(struct fuzz_node *node, struct visitor *v, struct choices *stream)
{
	char piece[PIECE_BYTES_MAX];

	while (stream->left) {
		uint32_t how = choose_byte(node->choices);
		uint32_t count = how % 2 ? choose_byte(node->choices) : PIECE_BYTES_MAX;

		if (count > stream->left)
			count = (uint32_t)stream->left;
		choose_bytes(stream, piece, count);
		/* Without waiting: the engine reads when it is turned. */
		if (send(v->raw.fd, piece, count, MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
			return;
		if (how & 2)
			(void)stub_step(node->shards[how & 4 ? 1 : 0]->backend);
		if (how & 8)
			(void)visitor_read(v, how & 3);
		node_turn(node, 0);
		if (how & 16)
			node_settle(node);
		if (how & 32)
			kernel_pass(node->kernel, 1ull << (how % 40));
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	const struct dsec_ring_hello hello = raw_hello(DSEC_TRANSPORT_STREAM);
	struct choices stream = { data, bytes - bytes / 8 };
	struct choices turns = { data + stream.left, 0 };
	struct visitor visitor, other;
	struct dsec_ring_request nop = { 0 };
	struct known_ids known = { 0 };
	struct fuzz_node node;

	node_open(&node, &turns);
	visitor_connect(&visitor, &node, &known);
	if (!visitor_open(&visitor, &node, &hello))
		abort();
	visitor_connect(&other, &node, &known);
	if (!visitor_open(&other, &node, &hello))
		abort();
	visitor.wild = true;
	turns.left = bytes / 8;
	play(&node, &visitor, &stream);
	turns.left = 0;
	visitor_ask(&other, &nop, NULL, 0);
	node_settle(&node);
	(void)visitor_read(&other, 1);
	assert(visitor_is_answered(&other));
	visitor_close(&visitor);
	visitor_close(&other);
	node_settle(&node);
	node_close(&node);
	return 0;
}
