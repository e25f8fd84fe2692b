/*
 * What the programs that work on images give up for good, one kind after the other: capabilities,
 * limits, system calls. Each is for the calling process, which has one thread yet.
 */
#pragma once

#include <stdint.h>

#define POWERS_CAPABILITY(name) (1ull << CAP_##name)

/* Whose system calls. */
enum powers {
	POWERS_UNPACKER = 1, /* reads a stream, writes files; no other process or thread */
	POWERS_SEALER = 2,   /* makes blobs, with a second thread */
	POWERS_STORE = 4,    /* whatever is done on files below open directories, as the sealer */
	POWERS_FETCHER = 8,  /* connections of the internet's families, and no file */
};

/* Scheduling below sandboxes, no core, CPU time, memory; EFBIG and EPIPE are told. */
int powers_limit(void);
/* `kept`: bits. */
int powers_keep_capabilities(uint64_t kept);
/* Another call is EPERM; the end of the process for the two that read what strangers packed. */
int powers_keep_calls(enum powers whose);
