/*
 * An engine that exists only in a simulated time, behind the functions of dsec.h that the load loop
 * calls, and the clock that goes with it. One at a time: mock_begin() makes it as new.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct dsec;

struct mock_options {
	uint64_t create_ns, exec_ns, destroy_ns; /* how long each takes */
	uint64_t stall_from_ns, stall_until_ns;	 /* nothing is answered in between */
	uint64_t lost_ns;			 /* the connection ends then; 0: never */
	uint32_t refuse_every;			 /* every so manyth create; 0: none */
	uint32_t fail_exec_every, fail_destroy_every, fail_probe_every;
	uint32_t sandboxes_max; /* creates over it are refused; 0: no limit */
	uint32_t room;		/* requests under way; more are -EAGAIN; 0: no limit */
	uint32_t assertions;	/* what the probe says; 0: 40 */
};

struct mock_counts {
	uint64_t creates, execs, probes, destroys, live, live_max, under_way_max, again;
};

/* Starts over, at time 0. */
struct dsec *mock_begin(const struct mock_options *options);
const struct mock_counts *mock_counts(void);
