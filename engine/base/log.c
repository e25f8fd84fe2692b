/*
 * Owns standard error as the log, the level, and the lines of the last second. Called from every
 * thread; a mutex covers the state and the write. The only file with mutable statics.
 */
#include "engine/base/log.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { TEXT_MAX = 1024, SEEN_MAX = 16 };

#define WINDOW_NS 1000000000ull

/* A line that was written less than a second ago. */
struct seen {
	bool used;
	enum log_level level;
	uint32_t repeated;
	uint64_t since_ns;
	char text[TEXT_MAX];
};

static struct {
	pthread_mutex_t lock;
	enum log_level level;
	char program[32];
	struct seen seen[SEEN_MAX];
} state = { .lock = PTHREAD_MUTEX_INITIALIZER, .level = LOG_INFO, .program = "dsec" };

static const char *const level_names[] = {
	[LOG_ERROR] = "error",
	[LOG_WARNING] = "warning",
	[LOG_INFO] = "info",
	[LOG_DEBUG] = "debug",
};

void log_open(enum log_level level, const char *program)
{
	state.level = level;
	snprintf(state.program, sizeof state.program, "%s", program);
}

static uint64_t uptime_ns(void)
{
	struct timespec ts;

	(void)clock_gettime(CLOCK_MONOTONIC, &ts); /* cannot fail for this clock */
	return (uint64_t)ts.tv_sec * 1000000000ull + (uint64_t)ts.tv_nsec;
}

static void line_write(enum log_level level, const char *text, uint32_t repeated)
{
	char line[TEXT_MAX + 128], count[40] = "", date[32];
	struct timespec now;
	struct tm tm;
	int bytes;

	(void)clock_gettime(CLOCK_REALTIME, &now); /* cannot fail for this clock */
	gmtime_r(&now.tv_sec, &tm);
	strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%S", &tm);
	if (repeated)
		snprintf(count, sizeof count, ", repeated %u times", repeated);
	bytes = snprintf(line, sizeof line, "%s.%03ldZ %s %s %s%s\n", date, now.tv_nsec / 1000000,
			 state.program, level_names[level], text, count);
	if (write(STDERR_FILENO, line, (size_t)bytes) < 0)
		return; /* nobody reads the log: nobody to tell */
}

static void seen_report(struct seen *seen)
{
	if (seen->repeated)
		line_write(seen->level, seen->text, seen->repeated);
}

/* Report and forget what is older than a second; what was repeated is watched for another. */
static void seen_expire(uint64_t now_ns)
{
	for (struct seen *seen = state.seen; seen < state.seen + SEEN_MAX; seen++) {
		if (!seen->used || now_ns - seen->since_ns < WINDOW_NS)
			continue;
		seen_report(seen);
		seen->used = seen->repeated;
		seen->repeated = 0;
		seen->since_ns = now_ns;
	}
}

/* Whether the line was written within this second; it is counted, or remembered from now on. */
static bool seen_before(enum log_level level, const char *text, uint64_t now_ns)
{
	struct seen *oldest = state.seen;

	for (struct seen *seen = state.seen; seen < state.seen + SEEN_MAX; seen++) {
		if (seen->used && seen->level == level && strcmp(seen->text, text) == 0) {
			seen->repeated++;
			return true;
		}
		if (oldest->used && (!seen->used || seen->since_ns < oldest->since_ns))
			oldest = seen;
	}
	if (oldest->used)
		seen_report(oldest);
	oldest->used = true;
	oldest->level = level;
	oldest->repeated = 0;
	oldest->since_ns = now_ns;
	memcpy(oldest->text, text, strlen(text) + 1);
	return false;
}

void log_line(enum log_level level, const char *format, ...)
{
	int saved = errno, bytes;
	uint64_t now_ns;
	char text[TEXT_MAX];
	va_list arguments;

	if (level > state.level)
		return;
	va_start(arguments, format);
	bytes = vsnprintf(text, sizeof text, format, arguments);
	va_end(arguments);
	if (bytes >= TEXT_MAX)
		memcpy(text + TEXT_MAX - 4, "...", 4);
	/* One event, one line, whatever it says. */
	for (unsigned char *c = (unsigned char *)text; bytes > 0 && *c; c++)
		if (*c < ' ' || *c == 0x7f)
			*c = '?';
	if (bytes < 0)
		snprintf(text, sizeof text, "a line that could not be formatted");
	now_ns = uptime_ns();
	pthread_mutex_lock(&state.lock);
	seen_expire(now_ns);
	if (!seen_before(level, text, now_ns))
		line_write(level, text, 0);
	pthread_mutex_unlock(&state.lock);
	errno = saved;
}

void log_flush(void)
{
	int saved = errno;

	pthread_mutex_lock(&state.lock);
	seen_expire(uptime_ns());
	pthread_mutex_unlock(&state.lock);
	errno = saved;
}

void log_close(void)
{
	pthread_mutex_lock(&state.lock);
	for (struct seen *seen = state.seen; seen < state.seen + SEEN_MAX; seen++) {
		if (seen->used)
			seen_report(seen);
		seen->used = false;
	}
	pthread_mutex_unlock(&state.lock);
}

const char *log_quote(const char *text, char *ret, unsigned bytes_max)
{
	unsigned at = 0;

	if (!bytes_max)
		return "";
	ret[0] = 0;
	if (bytes_max < 3)
		return ret;
	ret[at++] = '"';
	for (const unsigned char *c = (const unsigned char *)text; *c; c++) {
		bool plain = *c >= ' ' && *c < 0x7f && *c != '"' && *c != '\\';

		if (at + (plain ? 1 : 4) + 2 > bytes_max)
			break;
		if (plain)
			ret[at++] = (char)*c;
		else
			at += (unsigned)snprintf(ret + at, 5, "\\x%02x", *c);
	}
	ret[at++] = '"';
	ret[at] = 0;
	return ret;
}
