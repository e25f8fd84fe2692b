/* What became of calls of a function: for people, as JSON, and as an exit status. */
#pragma once

#include <dsec/dsec.h>

#include "sdk/cli/session.h"

/* One call, as its events tell of it. */
struct call_shown {
	struct dsec_status status;
	struct dsec_called result; /* size 0: it came to none */
	bool is_over;
	char *bytes[2]; /* stdout, stderr */
	size_t counts[2];
	bool is_cut; /* there was no memory for all of it */
};

void call_take(struct call_shown *call, const struct dsec_event *event);
/* It is told, and freed. index: UINT32_MAX: the only one. Returns its exit status. */
int call_show(struct session *session, struct call_shown *call, uint32_t index);
