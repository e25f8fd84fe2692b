/*
 * Another implementation of engine/base/io.h: over real descriptors, on one thread, without
 * waiting. What is ready, in which order it completes and how much of it, the input chooses; when
 * it has ended, all that is ready completes, in order.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "tests/fuzz/choices.h"

struct io;
struct kernel;

struct kernel *kernel_new(struct choices *choices);
/* Every loop must be closed. */
void kernel_free(struct kernel *kernel);
uint64_t kernel_now_ns(const struct kernel *kernel);
void kernel_pass(struct kernel *kernel, uint64_t ns);
/* Something completed or was delivered since this was asked last, on any loop. */
bool kernel_moved(struct kernel *kernel);
/* For io_options.world. */
struct world *kernel_world(struct kernel *kernel);
