/*
 * Terminals of execs. Functions that return long give -errno and leave the step behind.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct child;
struct worker;

/*
 * A new pty of the slot's, unlocked, owned by the sandbox's root, of the request's size: the
 * descriptor of its slave; the master goes with the reply. -EDQUOT: the sandbox holds all that it
 * may have; -ENODEV: it put something else where its devpts was; -ENOSPC: the host has no more.
 */
long tty_open(struct worker *w);
/* The worker's end; and the master, where the child did not come to its program. */
void tty_close(struct worker *w, int slave_fd, bool keep_master);
/* The child leads a session that has none: the terminal at 0 becomes its controlling one. */
long tty_take(struct child *child);
/* The terminal at 0 becomes this user's of the sandbox. */
long tty_pass(struct child *child, uint32_t uid);
/* LAUNCH_RESIZE: whoever is in the foreground is told by the kernel; or a hang-up. */
long tty_resize(struct worker *w);
