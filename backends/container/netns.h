/* What a network namespace of sandboxes needs before one may use it. */
#pragma once

#include <stdint.h>

struct worker;

/*
 * The caller is in the namespace and sees it in proc_fd. System calls only. Hides what /proc/net
 * says of sockets: the mode lives in the namespace's own entry, so it holds for every mount of proc
 * and only the host's root can take it back.
 */
long netns_mask(int proc_fd);

/* Make, or take away, the slot's; the worker is in the vault. */
long netns_make(struct worker *w, int slot_fd);
long netns_drop(struct worker *w, int slot_fd); /* fine where there is none */
/*
 * 1 if no socket of an earlier sandbox is left in the namespace, none in TIME_WAIT either; else 0.
 * A namespace of the host's can be dirtied by nothing else but caches, which are off.
 */
long netns_is_clean(struct worker *w, int net_fd);
