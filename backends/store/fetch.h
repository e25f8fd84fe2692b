/*
 * Between dsec-store, which has no network, and dsec-fetch (engine/serve/fetch.c), which has
 * nothing else: one socket, one question at a time, answered in pieces. What comes is believed by
 * nobody: whoever asks checks sizes and digests.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "backends/store/digest.h"

enum { FETCH_PIECE_BYTES = 1 << 20, FETCH_WHY_BYTES = 80, FETCH_FD = 0 /* dsec-fetch's */ };

enum fetch_what { FETCH_INDEX = 1, FETCH_BLOB };

struct fetch_ask {
	uint32_t what, reserved;
	uint64_t bytes; /* of the blob; of an index: at most */
	uint8_t digest[DIGEST_BYTES];
};

/* In front of a piece's bytes. */
struct fetch_piece {
	int32_t error;	/* positive errno: the answer ends here, and `why` says why */
	uint32_t bytes; /* 1 to FETCH_PIECE_BYTES; with an error none */
	uint64_t total; /* of all of the answer */
	char why[FETCH_WHY_BYTES];
};

_Static_assert(sizeof(struct fetch_ask) == 48, "no padding");
_Static_assert(sizeof(struct fetch_piece) == 96, "no padding");

/* What dsec-fetch is started with, beside the socket. */
struct fetch_wish {
	const char *program_path, *address, *timeout_s, *headers_path,
		*authorities_path; /* "": none */
};

/* Zeroed, but for what the caller says. */
struct fetch {
	int fd;
	/* fetch.c's */
	uint32_t left; /* of the piece that is being read */
	uint64_t total;
	char why[FETCH_WHY_BYTES];
};

/* Its process ends with the socket. Before whoever starts it is confined. */
int fetch_start(const struct fetch_wish *wish, struct fetch *ret);
/* index.json, at most `max` bytes. The caller frees; ends with a NUL. */
int fetch_index(struct fetch *fetch, size_t max, char **ret, size_t *ret_bytes,
		const char **ret_why);
/* A blob's bytes follow by fetch_read(), from its beginning, all of them. */
int fetch_blob(struct fetch *fetch, const uint8_t digest[DIGEST_BYTES], uint64_t bytes,
	       const char **ret_why);
/* All or -errno; `ret_why` lives as long as `fetch`. */
int fetch_read(struct fetch *fetch, void *ret, size_t count, const char **ret_why);
