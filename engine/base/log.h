/*
 * One event, one line, to standard error (or the journal through it): `2026-.. level text`.
 * The level is set once before threads start. Nothing here blocks for longer than one write(2).
 */
#pragma once

enum log_level { LOG_ERROR, LOG_WARNING, LOG_INFO, LOG_DEBUG };

void log_open(enum log_level level, const char *program);
void log_line(enum log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Quote a name that a user chose: control bytes and quotes as \xNN, cut at bytes_max - 1. */
const char *log_quote(const char *text, char *ret, unsigned bytes_max);

#define log_error(...)	 log_line(LOG_ERROR, __VA_ARGS__)
#define log_warning(...) log_line(LOG_WARNING, __VA_ARGS__)
#define log_info(...)	 log_line(LOG_INFO, __VA_ARGS__)
#define log_debug(...)	 log_line(LOG_DEBUG, __VA_ARGS__)
