/*
 * Sessions: programs on terminals, typed to and read by tests. A shell, or a script of its.
 */
#pragma once

#include <stdbool.h>

#include "tests/root/engine/engine_follow.h"
#include "tests/root/engine/engine_harness.h"

enum { SESSION_ROWS = 24, SESSION_COLUMNS = 80, SESSION_ANSWER_MS = 20000 };

struct session {
	struct dsec *d;
	struct dsec_id id;
	struct follower out;
	uint64_t typed, looked; /* looked: up to what session_sees() found */
};

#define auto_session __attribute__((cleanup(session_done)))

/* /bin/sh with this script; NULL: one that is typed to. */
struct session session_start(struct engine *e, struct dsec_id id, const char *script);
/* One of a program and its arguments; ends with NULL. */
struct session session_of(struct engine *e, struct dsec_id id, const char *const *words);
void session_done(struct session *s);
/* Until this is written, after what was found before. A noted failure where it is not. */
bool session_sees(struct session *s, const char *text);
/* It is in what was written so far. */
bool session_said(const struct session *s, const char *text);
/* Types it; "": the end. */
bool session_type(struct session *s, const char *text);
/* To its end. */
bool session_ends(struct session *s);
bool session_exited(struct session *s, int code);
struct dsec_status session_status(const struct session *s);
/* To its exec, with bits of enum dsec_signal_flag. */
struct dsec_status session_signal(struct session *s, int signal);
struct dsec_status session_resize(struct session *s, uint32_t rows, uint32_t columns);
