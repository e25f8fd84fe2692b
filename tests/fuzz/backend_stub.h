/*
 * A backend without sandboxes: its boxes and runs are states, and what a launcher or the kernel
 * would do later happens when it is told to.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "tests/fuzz/choices.h"

struct backend;
struct flow_host;

struct stub_options {
	struct flow_host *host;
	struct choices *choices;
	uint32_t boxes_max, runs_max;
	void *owner;
};

struct backend *stub_open(const struct stub_options *options);
/* One of the things that are to happen, well or badly as the input chooses. False: none are. */
bool stub_step(struct backend *backend);
/* PID 1 of a box that is built ends. */
void stub_box_dies(struct backend *backend);
