/* The log as it arrives at standard error, which each test replaces by a file. */
#include "engine/base/log.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { TEXT_MAX = 1 << 20 };

/* Standard error, from log_begin() to log_end(), which returns what was written. */
static int log_begin(int *ret_saved)
{
	int fd = memfd_create("log", MFD_CLOEXEC);

	*ret_saved = dup(STDERR_FILENO);
	cr_assert_geq(dup2(fd, STDERR_FILENO), 0);
	return fd;
}

static char *log_end(int fd, int saved)
{
	char *text = calloc(1, TEXT_MAX);

	cr_assert_geq(dup2(saved, STDERR_FILENO), 0);
	cr_assert_geq(pread(fd, text, TEXT_MAX - 1, 0), 0);
	return text;
}

static unsigned count(const char *text, const char *what)
{
	unsigned found = 0;

	while ((text = strstr(text, what))) {
		found++;
		text++;
	}
	return found;
}

static void second_pass(void)
{
	struct timespec second = { .tv_sec = 1, .tv_nsec = 20000000 };

	nanosleep(&second, NULL);
}

Test(log, line_has_time_program_level_and_text)
{
	int saved, fd = log_begin(&saved), year, month, day, hour, minute, second, ms, end = 0;
	char *text;

	log_open(LOG_INFO, "tested");
	errno = ENOENT;
	log_warning("sandbox create failed id=%d.%d", 41, 7);
	cr_assert_eq(errno, ENOENT);
	text = log_end(fd, saved);
	cr_assert_eq(sscanf(text, "%d-%d-%dT%d:%d:%d.%dZ %n", &year, &month, &day, &hour, &minute,
			    &second, &ms, &end),
		     7);
	cr_assert_str_eq(text + end, "tested warning sandbox create failed id=41.7\n");
	free(text);
}

Test(log, lines_above_the_level_are_not_written)
{
	int saved, fd = log_begin(&saved);
	char *text;

	log_open(LOG_WARNING, "tested");
	log_debug("one");
	log_info("two");
	log_warning("three");
	log_error("four");
	text = log_end(fd, saved);
	cr_assert_eq(count(text, "\n"), 2);
	cr_assert(strstr(text, "warning three\n"));
	cr_assert(strstr(text, "error four\n"));
	free(text);
}

Test(log, event_is_one_line_whatever_it_says)
{
	int saved, fd = log_begin(&saved);
	char *text, longer[5000];

	memset(longer, 'x', sizeof longer - 1);
	longer[sizeof longer - 1] = 0;
	log_error("first\nsecond\r\033[31m");
	log_error("%s", longer);
	text = log_end(fd, saved);
	cr_assert_eq(count(text, "\n"), 2);
	cr_assert(strstr(text, "first?second??[31m\n"));
	cr_assert(strstr(text, "xxx...\n"));
	cr_assert_lt(strlen(text), 1400);
	free(text);
}

Test(log, repeated_lines_are_counted_and_reported_once_a_second)
{
	int saved, fd = log_begin(&saved);
	char *text;

	for (unsigned i = 0; i < 1000; i++) {
		log_error("disk full");
		log_error("network down");
	}
	log_flush(); /* too early to say anything */
	second_pass();
	log_flush();
	log_flush();
	text = log_end(fd, saved);
	cr_assert_eq(count(text, "\n"), 4);
	cr_assert_eq(count(text, "error disk full\n"), 1);
	cr_assert_eq(count(text, "error disk full, repeated 999 times\n"), 1);
	cr_assert_eq(count(text, "error network down, repeated 999 times\n"), 1);
	free(text);
}

Test(log, line_that_comes_back_later_is_written_again)
{
	int saved, fd = log_begin(&saved);
	char *text;

	log_error("disk full");
	second_pass();
	log_error("disk full");
	text = log_end(fd, saved);
	cr_assert_eq(count(text, "error disk full\n"), 2);
	free(text);
}

Test(log, close_reports_what_was_counted)
{
	int saved, fd = log_begin(&saved);
	char *text;

	log_error("disk full");
	log_error("disk full");
	log_close();
	text = log_end(fd, saved);
	cr_assert_eq(count(text, "disk full, repeated 1 times\n"), 1);
	free(text);
}

Test(log, no_line_is_lost_when_many_differ)
{
	int saved, fd = log_begin(&saved);
	char *text, line[32];

	for (unsigned round = 0; round < 2; round++)
		for (unsigned i = 0; i < 100; i++)
			log_error("line %03u.", i);
	log_close();
	text = log_end(fd, saved);
	for (unsigned i = 0; i < 100; i++) {
		snprintf(line, sizeof line, "line %03u.", i);
		cr_assert_eq(count(text, line), 2);
	}
	free(text);
}

static void *thread_log(void *name)
{
	for (unsigned i = 0; i < 500; i++)
		log_error("%s says %u", (const char *)name, i);
	return NULL;
}

Test(log, threads_do_not_mix_their_lines)
{
	int saved, fd = log_begin(&saved);
	pthread_t threads[2];
	char *text, *line, *rest;
	unsigned lines = 0;

	cr_assert_eq(pthread_create(&threads[0], NULL, thread_log, (char[]){ "one" }), 0);
	cr_assert_eq(pthread_create(&threads[1], NULL, thread_log, (char[]){ "two" }), 0);
	pthread_join(threads[0], NULL);
	pthread_join(threads[1], NULL);
	text = log_end(fd, saved);
	rest = text;
	while ((line = strtok_r(rest, "\n", &rest))) {
		char name[8], tail[8];
		unsigned number;

		lines++;
		cr_assert_eq(sscanf(line, "%*s dsec error %7s says %u%7s", name, &number, tail), 2,
			     "%s", line);
	}
	cr_assert_eq(lines, 1000);
	free(text);
}

Test(log, quoted_name_cannot_forge_a_line)
{
	char text[64];

	cr_assert_str_eq(log_quote("plain name", text, sizeof text), "\"plain name\"");
	cr_assert_str_eq(log_quote("a\n\"b\\\x9b\x7f", text, sizeof text),
			 "\"a\\x0a\\x22b\\x5c\\x9b\\x7f\"");
	cr_assert_str_eq(log_quote("", text, sizeof text), "\"\"");
}

Test(log, quoted_name_is_cut_between_its_characters)
{
	char text[64];

	for (unsigned bytes_max = 1; bytes_max < 20; bytes_max++) {
		memset(text, '#', sizeof text);
		(void)log_quote("ab\ncd\nef", text, bytes_max);
		cr_assert_lt(strlen(text), bytes_max);
		cr_assert_eq(text[bytes_max], '#');
		if (bytes_max >= 3)
			cr_assert_eq(text[strlen(text) - 1], '"');
	}
	cr_assert_str_eq(log_quote("ab\ncd", text, 9), "\"ab\\x0a\"");
	cr_assert_str_eq(log_quote("ab\ncd", text, 8), "\"ab\"");
}
