/*
 * Canaries: bytes that must not be in an image. Each is looked for as it is, as hexadecimal digits
 * of either case, as base64 (both alphabets, at every alignment) and as UTF-16 of either order.
 * What compresses or encrypts hides it; so do base64's line breaks in the middle.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	CANARY_BYTES_MIN = 8, /* shorter ones are found by chance */
	CANARY_BYTES_MAX = 512,
	CANARY_FORM_BYTES_MAX = 2 * CANARY_BYTES_MAX, /* hex and UTF-16 are the longest */
	CANARIES_MAX = 1024,
	CANARIES_BYTES_MAX = 64 << 10, /* all together */
};

struct canary_list;

int canary_list_new(struct canary_list **ret);
void canary_list_free(struct canary_list *list);
/* -EINVAL: too short; -E2BIG: too long, or too many. */
int canary_add(struct canary_list *list, const void *bytes, size_t count);
/* All were added. -ENOMEM. */
int canary_ready(struct canary_list *list);

/* One stream of bytes that is looked through. */
struct canary_scan {
	const struct canary_list *list;
	uint64_t offset; /* of what follows */
	size_t kept;
	uint8_t tail[4 * CANARY_BYTES_MAX]; /* of what came, where a canary may have begun */
};

struct canary_hit {
	uint64_t offset;  /* in the stream */
	uint32_t canary;  /* the number of it, from 0, in order of canary_add() */
	const char *form; /* "as it is", "hex", "base64", "utf-16" */
};

void canary_begin(struct canary_scan *scan, const struct canary_list *list);
/* The next bytes. True: one was found, the first. */
bool canary_feed(struct canary_scan *scan, const void *bytes, size_t count, struct canary_hit *ret);
/* What has come before does not go on: a hole. `count` bytes of nothing follow. */
void canary_skip(struct canary_scan *scan, uint64_t count);
/* All at once. */
bool canary_find(const struct canary_list *list, const void *bytes, size_t count,
		 struct canary_hit *ret);
