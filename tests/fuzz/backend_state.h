/*
 * The backend of fuzz runs from the inside: what its files share.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "backends/backend.h"
#include "engine/base/cleanup.h"
#include "tests/fuzz/choices.h"

enum { BOXES_MAX = 64, RUNS_MAX = 64, OUTPUT_BYTES_MAX = 600 };

enum run_state { RUN_NEW, RUN_STARTING, RUN_RUNNING, RUN_ENDED };

struct stub_box {
	struct box box;
	bool taken, waiting, up;
	struct box_usage *usage;
	struct box_port *port;
	struct box_clear *clear;
	struct box_narrow *narrow;
	struct box_freeze *freeze; /* to be told */
	bool frozen;
};

struct stub_run {
	struct run run;
	bool taken, killed;
	enum run_state state;
	int stdout_fd, control_fd; /* control: of a file helper, else -1 */
	int tty_fd;		   /* the master, until it has started; -1: none */
	struct run_end *end;	   /* to be told */
};

struct image_wait {
	void *owner;
	void (*ready)(void *owner, int error);
};

struct stub {
	struct backend backend;
	struct flow_host *host;
	struct choices *choices;
	uint32_t boxes_max, runs_max;
	struct stub_box boxes[BOXES_MAX];
	struct stub_run runs[RUNS_MAX];
	struct image_wait image, detaching;
	struct run_ask ask; /* one at a time */
	void *owner;
	void (*empty)(void *owner);
};

static inline struct stub *stub_of(const struct backend *backend)
{
	return container_of(backend, struct stub, backend);
}

static inline struct stub_box *box_of(struct box *box)
{
	return container_of(box, struct stub_box, box);
}

/* backend_passage.c: between two phases; what is asked, and what comes of it. */
int stub_box_clear(struct box *base, struct box_clear *clear);
int stub_box_narrow(struct box *base, struct box_narrow *narrow);
int stub_box_freeze(struct box *base, struct box_freeze *freeze);
int stub_box_thaw(struct box *base, struct box_freeze *freeze);
int stub_box_phase(struct box *base, uint32_t version);
int stub_box_network(const struct box *base, struct box_sockets *ret);
void stub_passage_ends(struct stub *stub, struct stub_box *box);
