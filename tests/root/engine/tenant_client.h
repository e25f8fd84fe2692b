/*
 * Ways into an engine with several tenants, and a folder for their sockets and tokens.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "tests/root/engine/engine_client.h"
#include "tests/root/engine/engine_harness.h"

/* A tenant's way in: a socket of its own, or the engine's and a token. */
struct way {
	const char *door, *token, *acts_for;
};

/* 0 or -errno. */
int way_try(struct engine *e, struct way way, struct dsec **ret);
/* NULL is noted. */
struct dsec *way_open(struct engine *e, struct way way);
bool is_of(struct dsec *d, const char *name);

struct answer {
	struct dsec_status status;
	uint32_t rows;
};

/* To its end. */
struct answer answer_wait(struct dsec *d, int64_t ticket);

/* For DOOR.sock and NAME.token, before suites_main(). */
bool tenant_folder_make(char ret_folder[64]);
bool tenant_token_write(const char *name, const char *token);
/* With the tokens of these names; false: something else is left in it, as a socket. */
bool tenant_folder_remove(const char *const *names);
