/* Sandboxes with a way out, as test_engine_egress.c and egress_six.c make and try them. */
#pragma once

#include <stdbool.h>

#include "tests/root/engine/engine_client.h"
#include "tests/root/engine/engine_harness.h"

/* Whether that is what it reads there; "" when nothing answers. reads() notes what was not so. */
bool answers(struct dsec *d, struct dsec_id id, const char *address, int port,
	     const char *expected);
bool reads(struct dsec *d, struct dsec_id id, const char *address, int port, const char *expected);
/* At port 80 of none of these, all at once: "203.0.113.1 203.0.113.2". */
bool reads_none(struct dsec *d, struct dsec_id id, const char *addresses);

bool policy_put(struct dsec *d, const char *document);
/* `out`, and `in` for its phase `verify`. */
bool policies_put(struct engine *e);
/* With policy `out`, which is enforced. */
struct dsec_create_opts out_opts(void);
struct dsec_id out_make(struct dsec *d, uint32_t network);
struct dsec_inspected inspected_now(struct dsec *d, struct dsec_id id);
