/* Which sandboxes: ids as people write them, and labels. */
#pragma once

#include "sdk/cli/session.h"

/* --label or --job: what select_labels() selects by. */
bool select_has_labels(const struct options *options);
/* The options' labels as the library wants them; free() it. NULL: no memory. */
struct dsec_label *select_labels(const struct options *options, uint32_t *ret_count);

/*
 * An id, its unique beginning or end of at least 4 characters, or name:NAME. 0, or -errno after one
 * line on stderr: -ENOENT none, -ENOTUNIQ several, -EINVAL too short.
 */
int select_one(struct session *session, const char *text, struct dsec_id *ret);

/*
 * All arguments and labels as a selection. *ret_ids is for free(), *ret_labels too. -EINVAL when
 * nothing is named at all.
 */
int select_all(struct session *session, struct dsec_select *select, struct dsec_id **ret_ids,
	       struct dsec_label **ret_labels);
