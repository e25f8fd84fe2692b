/*
 * Limits of a sandbox: from a request or from the defaults to what the backend is told, and what
 * of them this host enforces. Pure functions, called by the create op and by what shows settings.
 */
#pragma once

#include <stdint.h>

#include "backends/backend.h"
#include "dsec/ring.h"
#include "engine/request/status.h"

struct config;

/*
 * A limit out of its range, or one that was asked for and cannot be enforced here and may not be
 * left out: its name is the status' step, and the detail says what to do.
 */
struct status limits_check(const struct dsec_wire_create *wish, uint32_t unenforced);
struct box_limits limits_of(const struct config *config, const struct dsec_wire_create *wish);
/* Which there are: bits of enum dsec_limit. */
uint32_t limits_in_force(const struct box_limits *limits);
