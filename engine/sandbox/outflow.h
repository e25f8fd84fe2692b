/*
 * What went out of a sandbox by its policy's way out, as the guard counts it.
 */
#pragma once

#include <stdbool.h>

#include "dsec/ring.h"

struct sandbox;

/* Its policy has a way out, and the guard holds it to it. */
bool outflow_is_policed(const struct sandbox *sandbox);
/* All 0 where it is not. A few system calls. */
void outflow_read(const struct sandbox *sandbox, struct dsec_egress *ret);
/* The same, and where most of it went: one call more for each place. */
void outflow_read_places(const struct sandbox *sandbox, struct dsec_egress *ret);
