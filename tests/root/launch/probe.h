/* What the probe's files share. */
#pragma once

void fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* result is of a system call that must fail with this error. */
void refused(const char *what, long result, int error);
