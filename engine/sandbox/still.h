/*
 * A sandbox that is held still while what it wrote is read: for packing and forking. Nothing begins
 * in it meanwhile, and nobody in it runs.
 *
 *	waiting --what starts has started--> freezing --> still --still_end()--> thawing --> over
 *	ending --everything in it has ended--^
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "backends/backend.h"
#include "engine/base/timer.h"
#include "engine/request/status.h"

struct sandbox;

/* Embedded; lives until over(), or ready() with an error. */
struct still {
	struct sandbox *sandbox;
	struct box_freeze freeze;
	struct timer look;
	struct box_clear clear;
	uint32_t looks;
	bool kills; /* all that is in it ends first */
	bool is_still, is_ending;
	uint64_t since_ns, paused_us; /* over(): for so long nobody ran */
	/*
	 * 0: it stands still, and freeze.upper_fd is the callee's. -EBUSY: programs or operations
	 * on files kept starting; -ETIMEDOUT: something does not stop, or die; -ESRCH: it ends.
	 */
	void (*ready)(struct still *still, int error);
	/* It ends: whoever reads is to hurry. Once, after ready() with 0. */
	void (*hurry)(struct still *still);
	void (*over)(struct still *still);
};

/* sandbox, kills and the calls are set, the rest is zero. Not OK: nothing began. */
struct status still_begin(struct still *still, char ret_detail[80]);
/* After ready() with 0, once. over() follows. */
void still_end(struct still *still);
/* Its sandbox ends. */
void still_hurry(struct still *still);
/* Why nothing may begin in a sandbox that is held still. */
struct status still_refusal(void);
/* What ready() said, of that op. */
struct status still_status(const char *table, int error);
