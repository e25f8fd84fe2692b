/*
 * The first thing that a client of TLS says, and the name in it: where it means to go. Pure: reads
 * bytes that a sandbox sent, as many as have come.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

enum {
	HELLO_BYTES_MAX = 16 << 10, /* all of it, with the heads of its records */
	HELLO_NAME_BYTES = 256,
};

/*
 * 0: it is whole, and the one name in it is in *ret_name, in lower case. -EAGAIN: it is no mistake
 * so far, and there is more to come. -EPROTO: no ClientHello, or one that says a thing twice or has
 * a name that no host has. -ENOENT: it names nobody. What was encrypted (ECH) is not seen: the name
 * outside counts. `ret_name` is written to only with 0.
 */
int hello_read(const uint8_t *bytes, size_t count, char ret_name[static HELLO_NAME_BYTES]);
