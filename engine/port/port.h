/* The port op: who waits for a listener in a sandbox. */
#pragma once

enum {
	PORT_WAITS_MAX = 1024, /* per shard */
	PORT_WAIT_MS_MAX = 600 * 1000,
};
