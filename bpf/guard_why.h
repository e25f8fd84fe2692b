/* Why a capability is missing, collected for the caller of guard_open(). For guard.c only. */
#pragma once

#include <stddef.h>

struct guard_why {
	char *text;
	size_t bytes, used;
};

void guard_why_add(struct guard_why *why, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
/* What was not loaded, the verifier's last word in its log, which is changed, and the remedy. */
void guard_why_load(struct guard_why *why, const char *what, int r, char *log);
