/*
 * Scratch directories of runs: below the images, so that what is made in them can be renamed.
 * Each engine has a locked folder of its own there; what nobody locks is a dead engine's.
 */
#pragma once

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

#include "engine/base/io.h"
#include "engine/config.h"

struct config;
struct control;

struct scratch {
	struct io_op op;
	siginfo_t info;
	struct control *control;
	char name[INSTANCE_BYTES_MAX + 16];
	int parent_fd, fd; /* -1: none */
	void *owner;
	void (*gone)(struct scratch *scratch); /* nothing of it is left, or it was logged */
};

struct scratches {
	char own_name[INSTANCE_BYTES_MAX + 16];
	int all_fd, own_fd; /* the folder of all engines, and ours, locked; -1 */
	uint64_t made;
	uint32_t live; /* scratch directories; without any, neither folder is held */
	uint32_t sweeping;
};

/* Sweeps what dead engines left. */
void scratches_open(struct control *control, struct scratches *scratches);
void scratches_close(struct scratches *scratches);
/* An empty directory. -EROFS, -EACCES, …: the images cannot be written to. */
int scratch_make(struct control *control, struct scratches *scratches, struct scratch *ret);
/* All of it goes, by a process; gone() follows, always. */
void scratch_sweep(struct scratch *scratch, struct scratches *scratches);
