/*
 * What a pack is asked, as words that the engine gives to dsec-store: each begins with its kind.
 * They are the engine's, but `wipe:` and `scan:`, which a client wrote.
 */
#pragma once

#include <stdint.h>

#include "backends/store/digest.h"

struct canary_list;
struct residue;

enum { PACK_BASES_MAX = 128, PACK_TEXT_BYTES = 160 };

struct pack_wish {
	uint8_t bases[PACK_BASES_MAX]
		     [DIGEST_BYTES]; /* base:HEX: manifests below it, lowest first */
	uint32_t base_count;
	uint32_t id_base;	      /* ids:NUMBER: the first host id of the sandbox's range */
	const char *image;	      /* image:NAME: what the sandbox was made of; "": not told */
	const char *sandbox;	      /* sandbox:ID; "": not told */
	struct residue *residue;      /* wipe:WORD, …; owned. No word: all rules */
	struct residue *below;	      /* the same once more: counts what layers below have; owned */
	uint32_t wipe_count;	      /* words of it */
	struct canary_list *canaries; /* scan:TEXT, …; owned. NULL: none */
	uint32_t canary_count;
};

/*
 * -EINVAL, -E2BIG, -ENOMEM: *ret_word is the one that is wrong, and `ret_why` in words, static. A
 * canary is never shown: the word is its kind then.
 */
int pack_wish_read(char *const *texts, uint32_t count, struct pack_wish *ret, const char **ret_word,
		   const char **ret_why);
void pack_wish_done(struct pack_wish *wish);
