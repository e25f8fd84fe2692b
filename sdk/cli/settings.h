/* What is in force in a sandbox, for people and as JSON. Called by the verbs. Stateless. */
#pragma once

#include <dsec/dsec.h>
#include <stdbool.h>

#include "sdk/cli/json.h"

enum { LIMITS_TEXT_BYTES = 64 };

/* The names of limits, each after a space: " memory pids". */
void limits_text(uint64_t limits, char ret_text[LIMITS_TEXT_BYTES]);
const char *state_name(uint32_t state);
const char *cause_name(uint32_t cause);
/* Adds them to an object; what fails is memory alone. */
void settings_add(json_t *object, const struct dsec_created *settings);
void labels_add(json_t *object, const struct dsec_label *labels, uint32_t count);
/* "phase", null before the first move, and "phase_version". */
void phase_add(json_t *object, struct dsec_bytes name, uint64_t version);
bool fork_is(struct dsec_id source);
/* "fork_of", null where it is none. */
void fork_add(json_t *object, struct dsec_id source);
/* "integrity": "clean" or "tainted[…]". */
void integrity_add(json_t *object, uint32_t tainted);
