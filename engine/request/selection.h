/*
 * Which sandboxes of its shard a part is about: those of its request's ids, and those that have its
 * labels. Walked in pieces, so that no request keeps a shard for long, whatever it names.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct dsec_wire_items;
struct part;
struct request;
struct sandbox;
struct wire;

enum { WALK_STEPS = 1024 /* per turn: below 200 us */ };

/* NULL, or the field of a dsec_wire_select that is wrong. */
const char *selection_wrong(const struct request *request);
/* Labels to select by: pairs, and no more of them than a sandbox can have. */
bool selection_labels_fit(const struct wire *w, const struct dsec_wire_items *labels);
/* Every one of `labels`, in w, is among `all`, in own. Both were checked. */
bool selection_labels_match(const struct wire *own, const struct dsec_wire_items *all,
			    const struct wire *w, const struct dsec_wire_items *labels);
/*
 * The next sandbox, from place part->started on. NULL: *steps are used up, or there is no other.
 * One that is named twice may come twice.
 */
struct sandbox *selection_next(struct part *part, uint32_t *steps);
/* Was the one that it returned last named, not only found by its labels. */
bool selection_was_named(const struct part *part);
/* How many are named. */
uint32_t selection_names(const struct request *request);
/* The last one that it gave is to be given again. */
void selection_back(struct part *part);
bool selection_is_over(const struct part *part);
/* What comparing a sandbox's labels with these takes of *steps. */
void selection_count(const struct sandbox *sandbox, const struct dsec_wire_items *labels,
		     uint32_t *steps);
