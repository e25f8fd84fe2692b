/* The programs of a sandbox: those that run, and those that are kept. */
#pragma once

struct session;

/* As `dsec ps --execs` shows them. Returns dsec's exit status. */
int execs_show(struct session *session, const char *sandbox);
