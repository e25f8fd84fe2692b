/* Who a child is, after it entered the slot's user namespace. System calls only. */
#pragma once

#include <stdint.h>

struct child;

/* The sandbox's root: uid and gid 0 there, its capabilities and no more, no new privileges. */
long credentials_root(struct child *child);

/*
 * From there to the user that the request names, whose home goes to ret_home: a place in
 * child->text, or constant. On success nothing but child->text was written.
 */
long credentials_user(struct child *child, const char **ret_home);
