/*
 * One event, one line, to standard error (or the journal through it): `2026-.. program level text`.
 * The level is set once before threads start. Nothing here blocks for longer than one write(2).
 * A line that comes again is counted instead, and reported with its count once a second by whatever
 * is logged next or by log_flush(). Every thread may log; errno is kept.
 */
#pragma once

enum log_level { LOG_ERROR, LOG_WARNING, LOG_INFO, LOG_DEBUG };

void log_open(enum log_level level, const char *program);
void log_line(enum log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Report what was counted for at least a second: called once a second by one thread. */
void log_flush(void);
/* Report all that was counted: before the program ends. */
void log_close(void);

/*
 * A name that a user chose, in double quotes; quotes, backslashes and all that is not printable
 * ASCII as \xNN. Cut to fit bytes_max with its terminator; empty when that is under 3.
 */
const char *log_quote(const char *text, char *ret, unsigned bytes_max);

#define log_error(...)	 log_line(LOG_ERROR, __VA_ARGS__)
#define log_warning(...) log_line(LOG_WARNING, __VA_ARGS__)
#define log_info(...)	 log_line(LOG_INFO, __VA_ARGS__)
#define log_debug(...)	 log_line(LOG_DEBUG, __VA_ARGS__)
