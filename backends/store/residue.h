/*
 * Residue: what work leaves behind and no image should have, as rules with names (docs/pack.md
 * lists them). A rule is a list of globs over paths from the root; what is selected decides one
 * path at a time, and what lies below a directory that matches goes with it.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	RESIDUE_RULES_MAX = 32,
	RESIDUE_GLOBS_MAX = 64, /* of one selection's own */
	RESIDUE_GLOB_BYTES_MAX = 255,
};

struct residue_rule {
	const char *name;
	const char *globs; /* separated by spaces */
	bool only_cores;   /* of what matches: ELF core files */
	const char *why;
};

/* In the order of the documentation; NULL behind the last. */
const struct residue_rule *residue_rule(size_t at);

/*
 * `/` begins a path; `*` and `?` stay within a name; a part `**` is any number of names, and at the
 * end everything below but directories. Time is bounded by the product of the two lengths.
 */
bool residue_glob_matches(const char *glob, const char *path, bool is_directory);

struct residue;

/*
 * Of words: "all", "none", names of rules, and globs, which begin with `/`. -EINVAL, -E2BIG:
 * `*ret_word` is the one that is wrong.
 */
int residue_new(const char *const *words, size_t count, struct residue **ret, size_t *ret_word);
void residue_free(struct residue *residue);

struct residue_hit {
	uint32_t rule; /* for residue_count() */
	bool only_cores;
};

/* Is this path to be wiped? Nothing is counted yet. */
bool residue_find(const struct residue *residue, const char *path, bool is_directory,
		  struct residue_hit *ret);
/* It was: how many of it so far, for the report. */
void residue_count(struct residue *residue, const struct residue_hit *hit);
/* What was wiped by the rule at `at`; its name ("globs": the selection's own). NULL: the last. */
const char *residue_counted(const struct residue *residue, size_t at, uint64_t *ret_count);
