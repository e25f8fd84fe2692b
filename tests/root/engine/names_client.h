/* What tests of egress by name do: policies, sandboxes that have them, what is told of these. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include <dsec/dsec.h>

bool policy_put(struct dsec *d, const char *document);
/* One of this policy, that nothing degrades; the zero id is a noted failure. */
struct dsec_id policed_make(struct dsec *d, const char *policy, uint32_t network);
/* The shell's script ends with 0 and writes exactly this. */
bool says(struct dsec *d, struct dsec_id id, const char *script, const char *expected);

/* The last violation and anomaly that were told of a sandbox. */
struct told {
	uint32_t hook, rule, anomaly;
	char where[64]; /* of the anomaly */
	uint64_t count;
	char text[256];
};

struct told told_of(struct dsec *d, struct dsec_id id);
