/* Where the guard's links and maps are pinned. For guard.c only. */
#pragma once

#include <stdbool.h>

enum {
	GUARD_INSTANCE_BYTES_MAX = 32,
	GUARD_PATH_BYTES_MAX = 128,
};

struct guard_pins {
	char directory[GUARD_PATH_BYTES_MAX]; /* "" when not open */
	char mount[GUARD_PATH_BYTES_MAX];     /* a bpffs of our own, "" when /sys/fs/bpf is used */
	bool run_made;			      /* /run/dsec did not exist */
};

/* Names an instance: [a-z0-9-], at most 31. */
bool guard_instance_valid(const char *instance);
/* Make the directory. What a dead engine left in it stays until it is replaced or removed. */
int guard_pins_open(const char *instance, struct guard_pins *ret);
/* Pin, replacing an older pin of that name without a moment between. No dots in the name. */
int guard_pins_add(const struct guard_pins *pins, int fd, const char *name);
/* Detach and unpin everything in the directory, remove it and the mount. Twice is fine. */
void guard_pins_close(struct guard_pins *pins);
/* The same for what a dead engine of this instance left. */
int guard_pins_sweep(const char *instance);
