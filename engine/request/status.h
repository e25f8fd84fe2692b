/*
 * How a request or a part of it ended, as the engine passes it on.
 */
#pragma once

#include <stdint.h>

#include "dsec/ring.h"

/* What goes wrong, as a client sees it. Zero: all is well. */
struct status {
	uint16_t code, blame;
	int error; /* positive errno */
	uint32_t retry_after_ms;
	const char *table, *step; /* "container", "spawn"; step NULL: none */
	const char *detail;	  /* for people; static text or NULL */
};

#define STATUS_OK ((struct status){ 0 })

/* What the wire knows and this engine cannot. */
struct status status_unsupported(const char *table, const char *step, const char *detail);
struct status status_of_errno(int error, const char *table, const char *step);
/* No such sandbox: the same words whatever is wrong with an id. */
struct status status_absent(void);
/* A worse status wins: for what a request of several parts ends with. */
void status_merge(struct status *into, const struct status *other);
/* For the wire: all of its bytes are written. */
void status_write(const struct status *s, struct dsec_wire_status *ret);
