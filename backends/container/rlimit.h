/*
 * Resource limits of one program. Functions that return long give -errno and leave the step behind.
 */
#pragma once

struct child;
struct worker;

/* -EPERM: the reply says which limit is above its hard limit, and what that is. */
long rlimits_check(struct worker *w);
/* What takes the host's rights: before the user namespace. */
long rlimits_raise(struct child *child);
/* The others, so that they bind the program and not the way to it: right before it. */
long rlimits_lower(struct child *child);
