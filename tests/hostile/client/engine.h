/*
 * A real engine of a test's own: dsecd as a child, its files in a temporary folder, what its
 * processes hold. Ended with SIGTERM, after which it must have said that nothing is left.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum { ENGINE_OPTIONS_MAX = 16 };

struct engine_options {
	const char *arguments[ENGINE_OPTIONS_MAX]; /* of dsecd, NULL-terminated */
	uint32_t descriptors_max;		   /* 0: as it finds it */
};

struct engine {
	pid_t keeper;
	pid_t pid; /* of the engine process, below the keeper */
	char folder[64], socket[96], log[96];
};

/* Ready for clients, or the program ends saying why not. The image is called "tiny". */
void engine_start(const struct engine_options *options, struct engine *ret);
/* The engine process that the keeper runs now: another one after a crash. 0: none. */
pid_t engine_pid(const struct engine *engine);
/* False, after saying what: it did not end well or left something. */
bool engine_stop(struct engine *engine);
void engine_log_print(const struct engine *engine);

/* Of the engine process. */
uint32_t engine_descriptors(const struct engine *engine);
/* How many its table has places for; 0: it cannot be read. */
uint32_t engine_descriptor_places(const struct engine *engine);
/* The number below which so many descriptors are not in use. */
uint32_t engine_descriptor_limit(const struct engine *engine, uint32_t spare);
uint64_t engine_resident_bytes(const struct engine *engine);
uint64_t engine_cpu_us(const struct engine *engine);
